//! The desk between orchestration code and engine.
//!
//! Orchestration code puts down what it asks for and takes up what came of it; the engine does the reverse. Each request
//! gets a *token*. The engine ties the token to the event that records the request, and later lays the outcome of that
//! event down for the future that holds the token.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use crate::model::{Action, KvEntry, clock};

use super::key_values::KeyValues;
use super::queues::Queues;
use super::signals::{SignalKey, Signals};
use super::wake::{Listener, Node, OwnedNode};
use super::{CompletionResult, RacePolicy};

/// What a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Activity,
    Timer,
    Child,
    Wait(SignalKey),
    Dequeue(String),
}

/// The kinds of requests whose cancellation is recorded, in the order in which the rows are written.
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
            Self::Timer => None,
        }
    }
}

/// State shared by an orchestration's context and the engine that runs it.
#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    policy: RacePolicy,
    replaying: bool,
    /// The time of the turn. A context that no engine drives reads the machine's clock.
    now_ms: Option<u64>,
    /// Set when the suspended code is put away: dropped futures then mean nothing.
    put_away: bool,
    last_token: u64,
    emitted: Vec<(u64, Action)>,
    /// How many actions that become events were emitted so far.
    emitted_events: u64,
    slots: HashMap<u64, Slot>,
    /// Wakers that are no longer needed. They may be the last reference to somebody's task, whose end may come back
    /// here, so they are dropped once the lock is released.
    retired: Vec<Listener>,
    token_of: HashMap<u64, u64>,
    dropped: BTreeMap<Cancellable, BTreeSet<u64>>,
    signals: Signals,
    queues: Queues,
    /// Waits and dequeues that got what they waited for, since the engine last asked.
    served: Vec<u64>,
    kv: KeyValues,
    /// Times of recorded writes, by their place among the recorded requests.
    recorded_kv_times: HashMap<u64, u64>,
    custom_status: Option<String>,
    current: Option<Current>,
    /// Whether a future took its outcome since the engine last asked.
    progressed: bool,
    /// Whether something that is not durable was seen to be awaited, since the engine last asked.
    foreign: bool,
}

#[derive(Debug)]
struct Slot {
    request: Request,
    schedule_id: Option<u64>,
    outcome: Option<CompletionResult>,
    listener: Option<Listener>,
    dropped: bool,
}

/// The node whose code is being polled.
#[derive(Debug, Clone)]
struct Current {
    /// The identity of its waker.
    waker: usize,
    node: Weak<Node>,
}

fn identity(waker: &Waker) -> usize {
    waker.data() as usize
}

impl Desk {
    pub(crate) fn new() -> Self {
        let policy = RacePolicy::Legacy;
        Self {
            state: Mutex::new(State {
                policy,
                replaying: true,
                now_ms: None,
                put_away: false,
                last_token: 0,
                emitted: Vec::new(),
                emitted_events: 0,
                slots: HashMap::new(),
                retired: Vec::new(),
                token_of: HashMap::new(),
                dropped: BTreeMap::new(),
                signals: Signals::new(policy),
                queues: Queues::new(policy),
                served: Vec::new(),
                kv: KeyValues::default(),
                recorded_kv_times: HashMap::new(),
                custom_status: None,
                current: None,
                progressed: false,
                foreign: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock, and nothing in here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change that may make waiting futures ready, and wakes them once the lock is released.
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

/// What orchestration code does at the desk.
impl Desk {
    pub(crate) fn is_replaying(&self) -> bool {
        self.lock().replaying
    }

    /// Puts a request down. `action` is told the token.
    pub(crate) fn request(&self, request: Request, action: impl FnOnce(u64) -> Action) -> u64 {
        let mut state = self.lock();
        let token = state.emit(action);
        let slot = Slot { request, schedule_id: None, outcome: None, listener: None, dropped: false };
        state.slots.insert(token, slot);
        token
    }

    /// Puts down a decision that has no outcome.
    pub(crate) fn decide(&self, action: Action) -> u64 {
        self.lock().emit(|_| action)
    }

    /// Uses up a token without asking for anything.
    pub(crate) fn waste_token(&self) {
        self.lock().last_token += 1;
    }

    /// Returns when a timer set now fires: never beyond what stores can hold.
    pub(crate) fn fire_time(&self, delay: std::time::Duration) -> u64 {
        let latest = i64::MAX.unsigned_abs();
        self.lock().now().saturating_add(clock::whole_ms(delay)).min(latest)
    }

    /// Sets the tag of an activity that the engine has not taken over yet; tells whether it could.
    pub(crate) fn set_tag(&self, token: u64, new_tag: String) -> bool {
        let mut state = self.lock();
        let action = state.emitted.iter_mut().rev().find(|(emitted, _)| *emitted == token);
        match action {
            Some((_, Action::CallActivity { tag, .. })) => {
                *tag = Some(new_tag);
                true
            }
            _ => false,
        }
    }

    /// Takes the outcome of a request, or notes who wants to hear of it.
    pub(crate) fn poll(&self, token: u64, waker: &Waker) -> Poll<CompletionResult> {
        self.change(|state, _| match state.take_outcome(token) {
            Some(outcome) => {
                state.progressed = true;
                Poll::Ready(outcome)
            }
            None => {
                let listener = state.listener_for(waker);
                if let Some(slot) = state.slots.get_mut(&token) {
                    let before = slot.listener.replace(listener);
                    state.retired.extend(before);
                }
                Poll::Pending
            }
        })
    }

    /// A future was dropped. If it had not produced its output, that is a request to cancel.
    pub(crate) fn abandon(&self, token: u64) {
        self.change(|state, ready| state.abandon(token, ready));
    }

    pub(crate) fn custom_status(&self) -> Option<String> {
        self.lock().custom_status.clone()
    }

    pub(crate) fn set_custom_status(&self, status: Option<String>) {
        let mut state = self.lock();
        state.custom_status.clone_from(&status);
        state.emit(|_| Action::UpdateCustomStatus { status });
    }

    pub(crate) fn set_kv(&self, key: String, value: String) {
        let mut state = self.lock();
        let place = state.emitted_events;
        let at_ms = state.recorded_kv_times.remove(&place).unwrap_or_else(|| state.now());
        let (action_key, action_value) = (key.clone(), value.clone());
        let writer = state.emit(|_| Action::SetKeyValue {
            key: action_key,
            value: action_value,
            last_updated_at_ms: at_ms,
        });
        state.kv.set(key, value, at_ms, writer);
    }

    pub(crate) fn clear_kv(&self, key: String) {
        let mut state = self.lock();
        state.kv.remove(&key);
        state.emit(|_| Action::ClearKeyValue { key });
    }

    pub(crate) fn clear_all_kv(&self) {
        let mut state = self.lock();
        state.kv.clear();
        state.emit(|_| Action::ClearKeyValues);
    }

    pub(crate) fn prune_kv(&self, before_ms: u64) -> usize {
        let mut state = self.lock();
        let old = state.kv.older_than(before_ms);
        for key in &old {
            state.kv.remove(key);
            state.emit(|_| Action::ClearKeyValue { key: key.clone() });
        }
        old.len()
    }

    /// Looks at the key-value store.
    pub(crate) fn read_kv<R>(&self, read: impl FnOnce(&KeyValues) -> R) -> R {
        read(&self.lock().kv)
    }
}

/// What the engine does at the desk.
impl Desk {
    /// Sets the desk up for an execution, before its code runs.
    pub(crate) fn open(&self, policy: RacePolicy, custom_status: Option<String>) {
        let mut state = self.lock();
        state.policy = policy;
        state.signals = Signals::new(policy);
        state.queues = Queues::new(policy);
        state.custom_status = custom_status;
    }

    pub(crate) fn load_kv(&self, snapshot: HashMap<String, KvEntry>) {
        self.lock().kv.load(snapshot);
    }

    /// Notes the recorded time of a write that the code is still to make.
    pub(crate) fn expect_kv_time(&self, place: u64, at_ms: u64) {
        self.lock().recorded_kv_times.insert(place, at_ms);
    }

    pub(crate) fn confirm_kv_time(&self, key: &str, at_ms: u64, writer: u64) {
        self.lock().kv.confirm(key, at_ms, writer);
    }

    pub(crate) fn set_now(&self, now_ms: u64) {
        self.lock().now_ms = Some(now_ms);
    }

    pub(crate) fn set_replaying(&self, replaying: bool) {
        self.lock().replaying = replaying;
    }

    /// From now on dropped futures mean nothing.
    pub(crate) fn put_away(&self) {
        self.lock().put_away = true;
    }

    pub(crate) fn drain_emitted(&self) -> Vec<(u64, Action)> {
        std::mem::take(&mut self.lock().emitted)
    }

    pub(crate) fn emitted(&self) -> Vec<(u64, Action)> {
        self.lock().emitted.clone()
    }

    /// Ties a token to the event that recorded its request.
    pub(crate) fn bind(&self, token: u64, schedule_id: u64) {
        self.change(|state, _| state.bind(token, schedule_id));
    }

    pub(crate) fn bind_wait(&self, schedule_id: u64, key: SignalKey) {
        self.lock().signals.bind(key, schedule_id);
    }

    pub(crate) fn bind_dequeue(&self, schedule_id: u64, name: &str) {
        self.change(|state, ready| {
            let dropped =
                state.dropped.get(&Cancellable::Dequeue).is_some_and(|ids| ids.contains(&schedule_id));
            state.queues.bind(name, schedule_id, dropped, ready);
        });
    }

    /// Lays down the outcome of a scheduled step; tells whether a token was bound to it.
    pub(crate) fn deliver(&self, schedule_id: u64, outcome: CompletionResult) -> bool {
        self.change(|state, ready| {
            let Some(token) = state.token_of.get(&schedule_id) else { return false };
            if let Some(slot) = state.slots.get_mut(token) {
                slot.outcome = Some(outcome);
                ready.push(schedule_id);
            }
            true
        })
    }

    /// Offers a signal to the waits; tells whether one took it.
    pub(crate) fn deliver_signal(&self, key: &SignalKey, data: String) -> bool {
        self.change(|state, ready| {
            let taken = state.signals.deliver(key, data, ready);
            if let (true, RacePolicy::Prompt) = (taken, state.policy) {
                state.served.extend(ready.iter());
            }
            taken
        })
    }

    pub(crate) fn deliver_message(&self, name: &str, data: String) {
        self.change(|state, ready| state.queues.deliver(name, data, ready));
    }

    /// A cancellation row of a wait or dequeue takes effect.
    pub(crate) fn cancel_by_row(&self, schedule_id: u64, kind: Cancellable) {
        self.change(|state, ready| match kind {
            Cancellable::Wait => state.signals.cancel_by_row(schedule_id),
            Cancellable::Dequeue => state.queues.cancel_by_row(schedule_id, ready),
            Cancellable::Activity | Cancellable::Child => {}
        });
    }

    pub(crate) fn end_of_walk(&self) {
        self.lock().queues.end_of_walk();
    }

    /// The schedules whose futures were dropped, of one kind.
    pub(crate) fn take_dropped(&self, kind: Cancellable) -> BTreeSet<u64> {
        self.lock().dropped.remove(&kind).unwrap_or_default()
    }

    /// The waits and dequeues that got what they waited for, since the last call.
    pub(crate) fn take_served(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().served)
    }

    pub(crate) fn unread_messages(&self) -> Option<Vec<(String, String)>> {
        self.lock().queues.unread()
    }

    /// Tells whether a future took its outcome since the last call.
    pub(crate) fn take_progress(&self) -> bool {
        std::mem::take(&mut self.lock().progressed)
    }

    pub(crate) fn take_foreign(&self) -> bool {
        std::mem::take(&mut self.lock().foreign)
    }
}

/// What combinators need to poll their members one by one.
impl Desk {
    /// Tells whether every member must be polled every time, as legacy executions were recorded.
    pub(crate) fn polls_everything(&self) -> bool {
        self.lock().policy == RacePolicy::Legacy
    }

    /// Returns who is being polled with this waker.
    pub(crate) fn listener_for(&self, waker: &Waker) -> Listener {
        self.lock().listener_for(waker)
    }

    /// Marks a node as the one being polled, until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, node: &OwnedNode) -> Entered {
        let current = Current { waker: identity(node.waker()), node: node.downgrade() };
        let before = self.lock().current.replace(current);
        Entered { desk: Arc::clone(self), before }
    }

    pub(crate) fn note_foreign(&self) {
        self.lock().foreign = true;
    }
}

/// See [`Desk::enter`].
pub(crate) struct Entered {
    desk: Arc<Desk>,
    before: Option<Current>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.desk.lock().current = self.before.take();
    }
}

impl State {
    fn now(&self) -> u64 {
        self.now_ms.unwrap_or_else(clock::system_now_ms)
    }

    fn emit(&mut self, action: impl FnOnce(u64) -> Action) -> u64 {
        self.last_token += 1;
        let token = self.last_token;
        let action = action(token);
        if !matches!(action, Action::ContinueAsNew { .. }) {
            self.emitted_events += 1;
        }
        self.emitted.push((token, action));
        token
    }

    fn bind(&mut self, token: u64, schedule_id: u64) {
        let Some(slot) = self.slots.get_mut(&token) else { return };
        slot.schedule_id = Some(schedule_id);
        if slot.dropped {
            self.record_drop(token, schedule_id);
        } else {
            self.token_of.insert(schedule_id, token);
        }
    }

    fn take_outcome(&mut self, token: u64) -> Option<CompletionResult> {
        let slot = self.slots.get_mut(&token)?;
        let schedule_id = slot.schedule_id?;
        let outcome = match &slot.request {
            Request::Wait(_) => self.signals.take(schedule_id).map(CompletionResult::ExternalData),
            Request::Dequeue(_) => self.queues.take(schedule_id).map(CompletionResult::ExternalData),
            Request::Activity | Request::Timer | Request::Child => slot.outcome.take(),
        }?;
        if matches!(slot.request, Request::Wait(_) | Request::Dequeue(_)) {
            self.served.push(schedule_id);
        }
        let slot = self.slots.remove(&token);
        self.retired.extend(slot.and_then(|slot| slot.listener));
        self.token_of.remove(&schedule_id);
        Some(outcome)
    }

    fn abandon(&mut self, token: u64, ready: &mut Vec<u64>) {
        if self.put_away {
            return;
        }
        let Some(slot) = self.slots.get_mut(&token) else { return };
        let Some(schedule_id) = slot.schedule_id else {
            slot.dropped = true;
            return;
        };
        match slot.request {
            Request::Wait(_) => self.signals.drop_wait(schedule_id),
            Request::Dequeue(_) => self.queues.drop_dequeue(schedule_id, ready),
            Request::Activity | Request::Timer | Request::Child => {}
        }
        self.record_drop(token, schedule_id);
    }

    fn record_drop(&mut self, token: u64, schedule_id: u64) {
        self.token_of.remove(&schedule_id);
        let Some(slot) = self.slots.remove(&token) else { return };
        self.retired.extend(slot.listener);
        if let Some(kind) = slot.request.cancellable() {
            self.dropped.entry(kind).or_default().insert(schedule_id);
        }
    }

    fn listener_of(&mut self, schedule_id: u64) -> Option<Listener> {
        let token = self.token_of.get(&schedule_id)?;
        self.slots.get_mut(token)?.listener.take()
    }

    fn listener_for(&self, waker: &Waker) -> Listener {
        match &self.current {
            Some(current) if current.waker == identity(waker) => Listener::Node(current.node.clone()),
            current => {
                if let Some(node) = current.as_ref().and_then(|current| current.node.upgrade()) {
                    node.note_adaptor();
                }
                Listener::Foreign(waker.clone())
            }
        }
    }
}
