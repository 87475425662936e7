//! The reference store: everything in memory, every rule of the contract in its plainest form.
//!
//! This store is a specification that runs. Tests compare other stores with it, so it prefers being obviously right to
//! being fast: one lock around plain collections, no indexes, linear scans. Nothing survives the process. Programs may
//! use it in tests, or where losing everything at exit is fine.
//!
//! Every operation is a plain function on `State` with the time as an argument. It first checks everything and then
//! applies, so that a refusal leaves nothing behind. Every future of the store is ready at once and holds nothing, so
//! dropping one is harmless. Fetches ignore `poll_timeout` and return at once; a caller that wants to wait uses the
//! work signal.
//!
//! The store keeps payloads as JSON text, encoded on the way in and decoded on the way out, like a store on disk. So
//! undecodable rows can exist here too, and the same rules apply: the store reports an undecodable history with the
//! turn, and sets aside an undecodable message or activity, so that it holds up no other.

mod admin;
mod blocked;
mod dropped;
mod dues;
mod extended;
mod history;
#[cfg(any(test, feature = "test-hooks", feature = "provider-test"))]
mod hooks;
#[cfg(any(test, feature = "test-hooks", feature = "provider-test"))]
pub use hooks::KeptState;
mod inspection;
mod key_values;
mod orphans;
mod provider;
mod quarantine;
#[cfg(feature = "testing")]
mod quiescence;
mod reads;
mod removal;
mod state;
mod steps;
mod turns;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{InstanceWatchers, LocalExchange, RunningActivities, StoreLimits, WorkSignalSource};
use crate::model::{Clock, SystemClock, whole_ms};
use state::State;

#[cfg(feature = "testing")]
pub(crate) use quiescence::Quiescence;

/// A store that keeps everything in memory; the reference for all other stores.
///
/// ```
/// use std::sync::Arc;
/// use duroxide::providers::memory::MemoryProvider;
/// use duroxide::providers::{ManualClock, Provider, StoreLimits};
///
/// let store: Arc<dyn Provider> = Arc::new(MemoryProvider::new());
/// assert_eq!(store.name(), "memory");
///
/// // For a test of time and limits.
/// let clock = Arc::new(ManualClock::default());
/// let limits = StoreLimits { max_payload_bytes: 1_024, ..Default::default() };
/// let parking_time = std::time::Duration::from_secs(60);
/// let store = MemoryProvider::with_clock(clock).with_limits(limits).with_parking_time(parking_time);
/// ```
pub struct MemoryProvider {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    orchestrator_signal: WorkSignalSource,
    worker_signal: WorkSignalSource,
    watchers: Arc<InstanceWatchers>,
    running: Arc<RunningActivities>,
    /// Counts everything that may end or begin a time in which nothing happens.
    #[cfg(feature = "testing")]
    pulse: tokio::sync::watch::Sender<u64>,
    exchange: Arc<LocalExchange>,
}

impl MemoryProvider {
    /// Makes an empty store that follows the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// Makes an empty store that follows the given clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::new(State::default()),
            orchestrator_signal: WorkSignalSource::new(clock.clone()),
            worker_signal: WorkSignalSource::new(clock.clone()),
            watchers: Arc::default(),
            running: Arc::default(),
            #[cfg(feature = "testing")]
            pulse: tokio::sync::watch::Sender::new(0),
            exchange: Arc::default(),
            clock,
        }
    }

    /// Sets other limits for ids and payloads than the usual ones.
    #[must_use]
    pub fn with_limits(self, limits: StoreLimits) -> Self {
        self.lock().limits = limits;
        self
    }

    /// Keeps messages for instances that do not exist for `parking_time` instead of a day.
    #[must_use]
    pub fn with_parking_time(self, parking_time: Duration) -> Self {
        self.lock().parking_ms = whole_ms(parking_time);
        self
    }

    /// Reads the state.
    fn read_state<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.lock())
    }

    /// Takes or prolongs leases: this makes nothing ready, but moves the time at which something will be.
    fn lease<T>(&self, lease: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.lock();
        // The time is read with the lock held: a lease must not begin before its claim.
        let now = self.clock.now_ms();
        let leased = lease(&mut state, now);
        self.announce_dues(&state, now);
        leased
    }

    /// Changes the state and wakes the callers that may find something afterwards.
    fn change<T>(&self, change: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.lock();
        let now = self.clock.now_ms();
        let changed = change(&mut state, now);
        // Signals with the lock held, so that a late signal cannot announce an outdated due time.
        self.announce_dues(&state, now);
        if state.has_ready_messages(now) {
            self.orchestrator_signal.notify();
        }
        if state.has_ready_activities(now) {
            self.worker_signal.notify();
        }
        changed
    }

    fn announce_dues(&self, state: &State, now: u64) {
        #[cfg(feature = "testing")]
        self.beat();
        self.orchestrator_signal.set_next_due(state.next_message_due(now));
        self.worker_signal.set_next_due(state.next_activity_due(now));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Operations check before they apply, and applying does not panic: a poisoned lock guards a sound state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self::new()
    }
}
