//! The calls of the engine on the shared state.

use std::collections::{BTreeSet, HashMap};
use std::panic::Location;

use crate::model::{Action, KvEntry};
use crate::replay::queues::Queues;
use crate::replay::signals::{SignalKey, Signals};
use crate::replay::wake::Listener;
use crate::replay::{CompletionResult, DecodeWords, RacePolicy};

use super::{Cancellable, Emitted, SharedState};

/// The calls of the engine.
impl SharedState {
    /// Prepares the state for an execution, before its code runs.
    pub(crate) fn open(&self, policy: RacePolicy, words: DecodeWords, custom_status: Option<String>) {
        let mut state = self.lock();
        state.policy = policy;
        state.decode_words = words;
        state.signals = Signals::new(policy);
        state.queues = Queues::new(policy);
        state.custom_status = custom_status;
    }

    pub(crate) fn load_kv(&self, snapshot: HashMap<String, KvEntry>) {
        self.lock().kv.load(snapshot);
    }

    /// Notes the recorded time of a write that the code has not made yet.
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

    /// Ignores futures that are dropped from now on.
    pub(crate) fn ignore_drops(&self) {
        self.lock().ignores_drops = true;
    }

    pub(crate) fn drain_emitted(&self) -> Vec<Emitted> {
        std::mem::take(&mut self.lock().emitted)
    }

    pub(crate) fn emitted(&self) -> Vec<(u64, Action)> {
        self.lock().emitted.iter().map(|emitted| (emitted.token, emitted.action.clone())).collect()
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

    /// Stores the outcome of a scheduled step; tells whether a token was bound to it.
    pub(crate) fn deliver(&self, schedule_id: u64, outcome: CompletionResult) -> bool {
        self.change(|state, ready| {
            let Some(token) = state.token_of.get(&schedule_id) else { return false };
            if let Some(pending) = state.requests.get_mut(token) {
                pending.outcome = Some(outcome);
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

    /// Applies the cancellation row of a wait or dequeue.
    pub(crate) fn cancel_by_row(&self, schedule_id: u64, kind: Cancellable) {
        self.change(|state, ready| match kind {
            Cancellable::Wait => state.signals.cancel_by_row(schedule_id),
            Cancellable::Dequeue => state.queues.cancel_by_row(schedule_id, ready),
            Cancellable::Activity | Cancellable::Child => {}
        });
    }

    pub(crate) fn end_of_history(&self) {
        self.lock().queues.end_of_history();
    }

    /// Takes the schedules of one kind whose futures the code dropped.
    pub(crate) fn take_dropped(&self, kind: Cancellable) -> BTreeSet<u64> {
        self.lock().dropped.remove(&kind).unwrap_or_default()
    }

    /// Tells whether this event started a child that lives on when its parent gives it up.
    pub(crate) fn is_lasting(&self, schedule_id: u64) -> bool {
        self.lock().lasting_children.contains(&schedule_id)
    }

    /// Takes the waits and dequeues that got their signal or message since the last call.
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

    /// Tells whether members of joins wait for something that is not durable.
    pub(crate) fn has_foreign_waits(&self) -> bool {
        self.lock().foreign_waits > 0
    }

    /// Tells whether code went on though no step had brought it anything, since the last call.
    pub(crate) fn take_moved_unasked(&self) -> bool {
        std::mem::take(&mut self.lock().moved_unasked)
    }

    /// Notes a change that the history records, before the code asks for it.
    pub(crate) fn expect_patch(&self, id: &str) {
        self.lock().recorded_patches.insert(id.to_string());
    }

    /// Tells the code that a caller cancels the instance, if the code listens; returns whether it does.
    pub(crate) fn deliver_cancellation(&self, reason: &str) -> bool {
        let listeners: Vec<_> = {
            let cancellation = &mut self.lock().cancellation;
            if cancellation.listeners.is_empty() {
                return false;
            }
            cancellation.heard.get_or_insert_with(|| reason.to_string());
            cancellation.listeners.values_mut().filter_map(Option::take).collect()
        };
        listeners.into_iter().for_each(Listener::wake);
        true
    }

    /// Tells whether the code heard that a caller cancels the instance: then the code ends it.
    pub(crate) fn has_heard_cancellation(&self) -> bool {
        self.lock().cancellation.heard.is_some()
    }

    /// Tells whether the code listens for a cancellation.
    pub(crate) fn listens(&self) -> bool {
        !self.lock().cancellation.listeners.is_empty()
    }

    /// Says where the code makes the call whose steps are taken from now on; `None` for wherever a step is taken.
    pub(crate) fn set_asking_place(&self, place: Option<&'static Location<'static>>) {
        self.lock().asking_place = place;
    }

    /// Where the code made its last request; `None` if it has made none.
    pub(crate) fn last_place(&self) -> Option<&'static Location<'static>> {
        self.lock().last_place
    }

    /// Says where the code is.
    pub(crate) fn set_code_place(&self, place: Option<&'static Location<'static>>) {
        self.lock().code_place = place;
    }

    /// Where the code is, if that is known.
    pub(crate) fn code_place(&self) -> Option<&'static Location<'static>> {
        self.lock().code_place
    }

    /// Keeps the code from writing log lines.
    pub(crate) fn mute(&self) {
        self.lock().muted = true;
    }
}
