//! The data that orchestration code and the engine share.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::panic::Location;
use std::sync::Weak;
use std::task::Waker;

use crate::model::{Action, ActivityOptions};
use crate::replay::key_values::KeyValues;
use crate::replay::queues::Queues;
use crate::replay::signals::Signals;
use crate::replay::wake::{Listener, Node};
use crate::replay::{CompletionResult, DecodeWords, RacePolicy};

use super::requests::OpenRequests;
use super::{Cancellable, Request};

#[derive(Debug)]
pub(super) struct State {
    pub(super) policy: RacePolicy,
    pub(super) decode_words: DecodeWords,
    pub(super) replaying: bool,
    /// The time of the turn.
    pub(super) now_ms: Option<u64>,
    /// Tells the time to a context that no engine drives.
    pub(super) time: fn() -> u64,
    /// Set when the engine discards the suspended code: the futures dropped with it ask for no cancellation.
    pub(super) ignores_drops: bool,
    pub(super) last_token: u64,
    pub(super) emitted: Vec<Emitted>,
    /// How many actions that become events the code has emitted so far.
    pub(super) emitted_events: u64,
    pub(super) requests: HashMap<u64, PendingRequest>,
    /// Wakers that are no longer needed. A waker may be the last reference to a task, whose destructor may call back
    /// into this state. So they are dropped only after the lock is released.
    pub(super) retired: Vec<Listener>,
    pub(super) token_of: HashMap<u64, u64>,
    pub(super) dropped: BTreeMap<Cancellable, BTreeSet<u64>>,
    /// The events that started children which live on when their parent gives them up.
    pub(super) lasting_children: BTreeSet<u64>,
    pub(super) signals: Signals,
    pub(super) queues: Queues,
    /// Waits and dequeues that got their signal or message since the engine last asked.
    pub(super) served: Vec<u64>,
    pub(super) kv: KeyValues,
    pub(super) open_requests: OpenRequests,
    /// Times of recorded writes, by their place among the recorded requests.
    pub(super) recorded_kv_times: HashMap<u64, u64>,
    /// The changes that the history records, or will: see `OrchestrationContext::patched`.
    pub(super) recorded_patches: HashSet<String>,
    /// What the code was told about its changes so far.
    pub(super) patches: HashMap<String, bool>,
    pub(super) cancellation: Cancellation,
    pub(super) custom_status: Option<String>,
    pub(super) current: Option<Current>,
    /// Whether a future took its outcome since the engine last asked.
    pub(super) progressed: bool,
    /// How many members of joins wait for something that is not durable.
    pub(super) foreign_waits: usize,
    /// Whether code went on though no step had brought it anything, since the engine last asked.
    pub(super) moved_unasked: bool,
    /// Where the code made its last request.
    pub(super) last_place: Option<&'static Location<'static>>,
    /// Where the code is, if that is known.
    pub(super) code_place: Option<&'static Location<'static>>,
    /// Where the code makes the call whose steps are taken just now.
    pub(super) asking_place: Option<&'static Location<'static>>,
    /// Set for code that runs a second time to be compared: its log lines are not written again.
    pub(super) muted: bool,
}

/// Whether a caller cancels the instance, and which code listens for that.
#[derive(Debug, Default)]
pub(super) struct Cancellation {
    /// Set when the request arrived while the code listened: then the code ends the instance itself.
    pub(super) heard: Option<String>,
    /// The futures that listen, with whom to wake once they were polled.
    pub(super) listeners: BTreeMap<u64, Option<Listener>>,
    pub(super) last_listener: u64,
}

/// A request that the engine has not taken over yet.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    pub(crate) token: u64,
    pub(crate) action: Action,
    /// The options of the activity, if the code gave any.
    pub(crate) options: Option<Box<ActivityOptions>>,
    /// The line of the code that made it.
    pub(crate) place: &'static Location<'static>,
}

/// A request whose future has not taken its outcome yet.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: Request,
    pub(super) schedule_id: Option<u64>,
    pub(super) outcome: Option<CompletionResult>,
    pub(super) listener: Option<Listener>,
    pub(super) dropped: bool,
}

/// The node whose code is being polled.
#[derive(Debug, Clone)]
pub(super) struct Current {
    /// The identity of its waker.
    pub(super) waker: usize,
    pub(super) node: Weak<Node>,
}

pub(super) fn identity(waker: &Waker) -> usize {
    waker.data() as usize
}

impl State {
    pub(super) fn new(time: fn() -> u64) -> Self {
        let policy = RacePolicy::Legacy;
        Self {
            policy,
            decode_words: DecodeWords::Own,
            replaying: true,
            now_ms: None,
            time,
            ignores_drops: false,
            last_token: 0,
            emitted: Vec::new(),
            emitted_events: 0,
            requests: HashMap::new(),
            retired: Vec::new(),
            token_of: HashMap::new(),
            dropped: BTreeMap::new(),
            lasting_children: BTreeSet::new(),
            signals: Signals::new(policy),
            queues: Queues::new(policy),
            served: Vec::new(),
            kv: KeyValues::default(),
            open_requests: OpenRequests::default(),
            recorded_kv_times: HashMap::new(),
            recorded_patches: HashSet::new(),
            patches: HashMap::new(),
            cancellation: Cancellation::default(),
            custom_status: None,
            current: None,
            progressed: false,
            foreign_waits: 0,
            moved_unasked: false,
            last_place: None,
            code_place: None,
            asking_place: None,
            muted: false,
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.now_ms.unwrap_or_else(self.time)
    }

    #[track_caller]
    pub(super) fn emit(&mut self, action: impl FnOnce(u64) -> Action) -> u64 {
        self.last_token += 1;
        let token = self.last_token;
        let action = action(token);
        if !matches!(action, Action::ContinueAsNew { .. }) {
            self.emitted_events += 1;
        }
        let place = self.asking_place.unwrap_or(Location::caller());
        self.last_place = Some(place);
        self.emitted.push(Emitted { token, action, options: None, place });
        token
    }

    pub(super) fn bind(&mut self, token: u64, schedule_id: u64) {
        let Some(pending) = self.requests.get_mut(&token) else { return };
        pending.schedule_id = Some(schedule_id);
        if matches!(pending.request, Request::LastingChild) {
            self.lasting_children.insert(schedule_id);
        }
        if pending.dropped {
            self.record_drop(token, schedule_id);
        } else {
            self.token_of.insert(schedule_id, token);
        }
    }

    /// Takes the outcome of a request, and the id of the event that recorded the request.
    pub(super) fn take_outcome(&mut self, token: u64) -> Option<(CompletionResult, u64)> {
        let pending = self.requests.get_mut(&token)?;
        let schedule_id = pending.schedule_id?;
        let outcome = match &pending.request {
            Request::Wait(_) => self.signals.take(schedule_id).map(CompletionResult::ExternalData),
            Request::Dequeue(_) => self.queues.take(schedule_id).map(CompletionResult::ExternalData),
            Request::Activity | Request::Timer | Request::Child | Request::LastingChild => {
                pending.outcome.take()
            }
        }?;
        if matches!(pending.request, Request::Wait(_) | Request::Dequeue(_)) {
            self.served.push(schedule_id);
        }
        let pending = self.requests.remove(&token);
        self.retired.extend(pending.and_then(|pending| pending.listener));
        self.token_of.remove(&schedule_id);
        Some((outcome, schedule_id))
    }

    pub(super) fn abandon(&mut self, token: u64, ready: &mut Vec<u64>) {
        if self.ignores_drops {
            return;
        }
        let Some(pending) = self.requests.get_mut(&token) else { return };
        let Some(schedule_id) = pending.schedule_id else {
            pending.dropped = true;
            self.retired.extend(pending.listener.take());
            return;
        };
        match pending.request {
            Request::Wait(_) => self.signals.drop_wait(schedule_id),
            Request::Dequeue(_) => self.queues.drop_dequeue(schedule_id, ready),
            Request::Activity | Request::Timer | Request::Child | Request::LastingChild => {}
        }
        self.record_drop(token, schedule_id);
    }

    pub(super) fn record_drop(&mut self, token: u64, schedule_id: u64) {
        self.token_of.remove(&schedule_id);
        let Some(pending) = self.requests.remove(&token) else { return };
        self.retired.extend(pending.listener);
        if let Some(kind) = pending.request.cancellable() {
            self.dropped.entry(kind).or_default().insert(schedule_id);
        }
    }

    pub(super) fn listener_of(&mut self, schedule_id: u64) -> Option<Listener> {
        let token = self.token_of.get(&schedule_id)?;
        self.requests.get_mut(token)?.listener.take()
    }

    pub(super) fn listener_for(&self, waker: &Waker) -> Listener {
        match &self.current {
            Some(current) if current.waker == identity(waker) => Listener::Node(current.node.clone()),
            current => {
                let node = current.as_ref().and_then(|current| current.node.upgrade());
                Listener::foreign(waker, node.as_deref())
            }
        }
    }
}
