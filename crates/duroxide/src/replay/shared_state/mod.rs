//! The state that orchestration code and the engine share while the engine polls the code.
//!
//! The code adds requests and takes their outcomes; the engine takes the requests and adds the outcomes. Each request
//! gets a *token*. The engine ties the token to the event that records the request. Later it stores the outcome of that
//! event for the future that holds the token.

mod author;
mod engine;
mod polling;
mod requests;
mod state;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::signals::SignalKey;
use super::wake::Listener;
use state::State;

pub(crate) use polling::{ForeignWait, Keeper};
pub(crate) use state::Emitted;

/// The request behind a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Activity,
    Timer,
    Child,
    /// A child that lives on when its future is dropped or its parent is cancelled. As for a timer, no row records a drop.
    LastingChild,
    Wait(SignalKey),
    Dequeue(String),
}

/// The kinds of requests whose cancellation the engine records, in the order in which it writes the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cancellable {
    Activity,
    Child,
    Wait,
    Dequeue,
}

impl Cancellable {
    pub(crate) const ALL: [Self; 4] = [Self::Activity, Self::Child, Self::Wait, Self::Dequeue];
}

impl Request {
    fn cancellable(&self) -> Option<Cancellable> {
        match self {
            Self::Activity => Some(Cancellable::Activity),
            Self::Child => Some(Cancellable::Child),
            Self::Wait(_) => Some(Cancellable::Wait),
            Self::Dequeue(_) => Some(Cancellable::Dequeue),
            Self::Timer | Self::LastingChild => None,
        }
    }
}

/// State shared by an orchestration's context and the engine that runs it.
#[derive(Debug)]
pub(crate) struct SharedState {
    state: Mutex<State>,
    /// The size of the orchestration's future.
    code_bytes: AtomicUsize,
}

impl SharedState {
    /// Makes the state of an execution about which nothing is known yet: the legacy policy, replaying. `time` tells the
    /// time until an engine sets it.
    pub(crate) fn new(time: fn() -> u64) -> Self {
        Self { state: Mutex::new(State::new(time)), code_bytes: AtomicUsize::new(0) }
    }

    /// Notes how large the orchestration's future is, once it is made.
    pub(crate) fn note_code_bytes(&self, bytes: usize) {
        self.code_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How large the orchestration's future is; 0 before it is made.
    pub(crate) fn code_bytes(&self) -> usize {
        self.code_bytes.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock, and nothing in here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change that may make waiting futures ready, and wakes them after it has released the lock.
    fn change<R>(&self, change: impl FnOnce(&mut State, &mut Vec<u64>) -> R) -> R {
        let mut ready = Vec::new();
        let (result, listeners, _retired) = {
            let mut state = self.lock();
            let result = change(&mut state, &mut ready);
            let listeners: Vec<Listener> = ready.iter().filter_map(|id| state.listener_of(*id)).collect();
            (result, listeners, std::mem::take(&mut state.retired))
        };
        listeners.into_iter().for_each(Listener::wake);
        result
    }
}
