//! The calls of orchestration code on the shared state.

use std::task::{Poll, Waker};

use crate::model::{Action, ActivityOptions, clock};
use crate::replay::key_values::KeyValues;
use crate::replay::recording::{self, LATEST_TIME_MS};
use crate::replay::wake::Listener;
use crate::replay::{CompletionResult, DecodeWords};

use super::state::PendingRequest;
use super::{Emitted, Request, SharedState};

/// The calls of orchestration code.
impl SharedState {
    pub(crate) fn is_replaying(&self) -> bool {
        self.lock().replaying
    }

    /// Adds a request. `action` gets the token.
    #[track_caller]
    pub(crate) fn request(&self, request: Request, action: impl FnOnce(u64) -> Action) -> u64 {
        let mut state = self.lock();
        let token = state.emit(action);
        let pending =
            PendingRequest { request, schedule_id: None, outcome: None, listener: None, dropped: false };
        state.requests.insert(token, pending);
        token
    }

    /// Adds a decision that has no outcome.
    #[track_caller]
    pub(crate) fn decide(&self, action: Action) -> u64 {
        self.lock().emit(|_| action)
    }

    /// Uses up a token without a request.
    pub(crate) fn waste_token(&self) {
        self.lock().last_token += 1;
    }

    /// Returns when a timer set now fires: never beyond what stores can hold.
    pub(crate) fn fire_time(&self, delay: std::time::Duration) -> u64 {
        self.lock().now().saturating_add(clock::whole_ms(delay)).min(LATEST_TIME_MS)
    }

    /// Sets the tag of an activity that the engine has not taken over yet; tells whether it did.
    pub(crate) fn set_tag(&self, token: u64, new_tag: String) -> bool {
        let mut state = self.lock();
        let action = state.emitted.iter_mut().rev().find(|emitted| emitted.token == token);
        match action {
            Some(Emitted { action: Action::CallActivity { tag, .. }, .. }) => {
                *tag = Some(new_tag);
                true
            }
            _ => false,
        }
    }

    /// Sets the options of an activity that the engine has not taken over yet; tells whether it did.
    pub(crate) fn set_options(&self, token: u64, new_options: ActivityOptions) -> bool {
        let mut state = self.lock();
        let action = state.emitted.iter_mut().rev().find(|emitted| emitted.token == token);
        match action {
            Some(Emitted { action: Action::CallActivity { .. }, options, .. }) => {
                *options = Some(Box::new(new_options)).filter(|options| !options.is_empty());
                true
            }
            _ => false,
        }
    }

    /// Takes the outcome of a request and the id of its event. If there is none yet, keeps the waker for when there is.
    pub(crate) fn poll(&self, token: u64, waker: &Waker) -> Poll<(CompletionResult, u64)> {
        self.change(|state, _| match state.take_outcome(token) {
            Some(outcome) => {
                state.progressed = true;
                Poll::Ready(outcome)
            }
            None => {
                let listener = state.listener_for(waker);
                if let Some(pending) = state.requests.get_mut(&token) {
                    let before = Listener::replace(&mut pending.listener, listener);
                    state.retired.extend(before);
                }
                Poll::Pending
            }
        })
    }

    /// Handles a dropped future. If the future had not produced its output, this is a request to cancel.
    pub(crate) fn abandon(&self, token: u64) {
        self.change(|state, ready| state.abandon(token, ready));
    }

    /// The words that the code gets when a payload does not decode.
    pub(crate) fn decode_words(&self) -> DecodeWords {
        self.lock().decode_words
    }

    pub(crate) fn custom_status(&self) -> Option<String> {
        self.lock().custom_status.clone()
    }

    #[track_caller]
    pub(crate) fn set_custom_status(&self, status: Option<String>) {
        let mut state = self.lock();
        state.custom_status.clone_from(&status);
        state.emit(|_| Action::UpdateCustomStatus { status });
    }

    #[track_caller]
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

    #[track_caller]
    pub(crate) fn clear_kv(&self, key: String) {
        let mut state = self.lock();
        state.kv.remove(&key);
        state.emit(|_| Action::ClearKeyValue { key });
    }

    #[track_caller]
    pub(crate) fn clear_all_kv(&self) {
        let mut state = self.lock();
        if state.kv.has_reserved() {
            // Answers are not the code's to remove.
            for key in state.kv.keys() {
                state.kv.remove(&key);
                state.emit(|_| Action::ClearKeyValue { key });
            }
            return;
        }
        state.kv.clear();
        state.emit(|_| Action::ClearKeyValues);
    }

    #[track_caller]
    pub(crate) fn prune_kv(&self, before_ms: u64) -> usize {
        let mut state = self.lock();
        let old = state.kv.older_than(before_ms);
        for key in &old {
            state.kv.remove(key);
            state.emit(|_| Action::ClearKeyValue { key: key.clone() });
        }
        old.len()
    }

    /// Tells whether a change of the code applies to this execution, and records it if it is new. The first answer
    /// counts until the execution ends.
    #[track_caller]
    pub(crate) fn patched(&self, id: String) -> bool {
        let mut state = self.lock();
        if let Some(known) = state.patches.get(&id) {
            return *known;
        }
        let applies = state.recorded_patches.contains(&id) || !state.replaying;
        state.patches.insert(id.clone(), applies);
        if applies {
            state.emit(|_| recording::patch(id));
        }
        applies
    }

    /// Listens for the cancellation of the instance.
    pub(crate) fn start_listening(&self) -> u64 {
        let cancellation = &mut self.lock().cancellation;
        cancellation.last_listener += 1;
        cancellation.listeners.insert(cancellation.last_listener, None);
        cancellation.last_listener
    }

    pub(crate) fn stop_listening(&self, listener: u64) {
        // Dropped after the lock is released: a foreign waker may run code.
        let _listener = self.lock().cancellation.listeners.remove(&listener);
    }

    /// Returns the reason of the cancellation. If there is none yet, keeps the waker for when there is.
    pub(crate) fn poll_cancellation(&self, listener: u64, waker: &Waker) -> Poll<String> {
        let mut state = self.lock();
        if let Some(reason) = state.cancellation.heard.clone() {
            state.progressed = true;
            return Poll::Ready(reason);
        }
        let waits = state.listener_for(waker);
        let place = state.cancellation.listeners.entry(listener).or_default();
        let before = Listener::replace(place, waits);
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Tells whether log lines of the code are written.
    pub(crate) fn writes_log(&self) -> bool {
        let state = self.lock();
        !state.replaying && !state.muted
    }

    /// Reads the key-value store.
    pub(crate) fn read_kv<R>(&self, read: impl FnOnce(&KeyValues) -> R) -> R {
        read(&self.lock().kv)
    }
}
