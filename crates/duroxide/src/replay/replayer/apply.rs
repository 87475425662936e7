//! The effect of one event.

use crate::model::payload::PAYLOAD_TARGET;
use crate::model::{Action, ErrorDetails, Event, EventKind};
use crate::replay::dropped_futures::DROPPED_FUTURE;
use crate::replay::journal::Answerable;
use crate::replay::outcome::nondeterminism;
use crate::replay::shared_state::Cancellable;
use crate::replay::{CompletionResult, RacePolicy, matching};

use super::{Replayer, Unmatched};

impl Replayer {
    /// Ties a request to the event that records it.
    pub(crate) fn bind(&mut self, token: u64, event_id: u64, kind: &EventKind, is_old: bool) {
        self.shared_state.bind(token, event_id);
        match kind {
            EventKind::ActivityScheduled { .. } => {
                self.open.insert(event_id, Answerable::Activity);
            }
            EventKind::TimerCreated { .. } => {
                self.open.insert(event_id, Answerable::Timer);
            }
            EventKind::SubOrchestrationScheduled { .. } => {
                self.open.insert(event_id, Answerable::Child);
            }
            EventKind::ExternalSubscribed { name } => {
                self.shared_state.bind_wait(event_id, (name.clone(), None))
            }
            #[cfg(feature = "replay-version-test")]
            EventKind::ExternalSubscribed2 { name, topic } => {
                self.shared_state.bind_wait(event_id, (name.clone(), Some(topic.clone())));
            }
            EventKind::QueueSubscribed { name } => {
                self.shared_state.bind_dequeue(event_id, name);
                self.call_for_poll(is_old);
            }
            _ => {}
        }
    }

    fn call_for_poll(&mut self, is_old: bool) {
        self.needs_poll = true;
        self.reason_is_old = is_old;
    }

    pub(super) fn apply(&mut self, event: &Event, is_old: bool) -> Result<(), ErrorDetails> {
        match &event.kind {
            kind if matching::records_action(kind) => self.take_up(event, is_old)?,
            EventKind::ActivityCompleted { result } => {
                let outcome = CompletionResult::ActivityOk(result.clone());
                self.complete(event, Answerable::Activity, outcome, is_old)?;
            }
            EventKind::ActivityFailed { details } => {
                let outcome = CompletionResult::ActivityErr(details.recorded_message());
                self.complete(event, Answerable::Activity, outcome, is_old)?;
            }
            EventKind::TimerFired { .. } => {
                self.complete(event, Answerable::Timer, CompletionResult::TimerFired, is_old)?;
            }
            EventKind::SubOrchestrationCompleted { result } => {
                let outcome = CompletionResult::SubOrchOk(result.clone());
                self.complete(event, Answerable::Child, outcome, is_old)?;
            }
            EventKind::SubOrchestrationFailed { details } => {
                let outcome = CompletionResult::SubOrchErr(details.recorded_message());
                self.complete(event, Answerable::Child, outcome, is_old)?;
            }
            EventKind::ExternalEvent { name, data } => self.signal((name.clone(), None), data, is_old),
            #[cfg(feature = "replay-version-test")]
            EventKind::ExternalEvent2 { name, topic, data } => {
                self.signal((name.clone(), Some(topic.clone())), data, is_old);
            }
            EventKind::QueueEventDelivered { name, data } => {
                self.shared_state.deliver_message(name, data.clone());
                self.call_for_poll(is_old);
            }
            kind => {
                if let Some((kind, reason)) = cancellation(kind) {
                    if let Some(source) = event.source_event_id {
                        self.shared_state.cancel_by_row(source, kind);
                    }
                    self.expect_drop(kind, event.source_event_id, reason, is_old);
                }
            }
        }
        Ok(())
    }

    /// Lets a recorded request take up the oldest request of the code, which must be the same.
    fn take_up(&mut self, event: &Event, is_old: bool) -> Result<(), ErrorDetails> {
        let place = self.place_of_match(&event.kind);
        let Some(Unmatched { token, action, .. }) = self.unmatched.remove(place) else {
            if matching::is_schedule(&event.kind) {
                let text = matching::missing_action_text(&event.kind).to_string();
                return Err(self.explained(text, matching::explain(event, None)));
            }
            return Ok(());
        };
        if !matching::fits(&action, &event.kind) {
            return Err(self.mismatch(&action, event));
        }
        if let EventKind::KeyValueSet { key, last_updated_at_ms, .. } = &event.kind {
            self.shared_state.confirm_kv_time(key, *last_updated_at_ms, token);
        }
        self.bind(token, event.event_id, &event.kind, is_old);
        Ok(())
    }

    /// Requests match in order, with two exceptions: a continue-as-new has no event, so the search skips it; and old
    /// versions recorded the removals of one pruning in any order.
    fn place_of_match(&self, kind: &EventKind) -> usize {
        let first = self.first_recordable().unwrap_or(self.unmatched.len());
        let EventKind::KeyValueCleared { key } = kind else { return first };
        let run = self.unmatched.iter().skip(first).map(|asked| &asked.action);
        run.take_while(|action| matches!(action, Action::ClearKeyValue { .. }))
            .position(|action| matches!(action, Action::ClearKeyValue { key: asked } if asked == key))
            .map_or(first, |place| first + place)
    }

    /// The oldest request that an event can record. Legacy executions make no exception for a continue-as-new.
    pub(super) fn first_recordable(&self) -> Option<usize> {
        let has_event = |action: &Action| {
            self.policy == RacePolicy::Legacy || !matches!(action, Action::ContinueAsNew { .. })
        };
        self.unmatched.iter().position(|asked| has_event(&asked.action))
    }

    fn complete(
        &mut self,
        event: &Event,
        family: Answerable,
        outcome: CompletionResult,
        is_old: bool,
    ) -> Result<(), ErrorDetails> {
        let Some(source) = event.source_event_id else { return Ok(()) };
        match self.open.remove(&source) {
            Some(recorded) if recorded == family => {}
            Some(recorded) => {
                let text = format!("completion kind mismatch: expected {}", family.name());
                let found = format!(
                    " (event {} recorded {} for event {source}, which is a {})",
                    event.event_id,
                    matching::describe_event(&event.kind),
                    recorded.name()
                );
                return Err(self.explained(text, found));
            }
            None => {
                let found = format!(
                    " (event {} recorded {} for event {source}, for which nothing is waiting)",
                    event.event_id,
                    matching::describe_event(&event.kind)
                );
                return Err(self.explained("completion without open schedule".to_string(), found));
            }
        }
        self.shared_state.deliver(source, outcome);
        self.call_for_poll(is_old);
        Ok(())
    }

    fn signal(&mut self, key: (String, Option<String>), data: &str, is_old: bool) {
        if self.shared_state.deliver_signal(&key, data.to_string()) {
            self.call_for_poll(is_old);
        } else if !is_old {
            tracing::warn!(
                target: "duroxide::runtime",
                instance = self.instance,
                event_name = key.0,
                "skipping ExternalEvent delivery: no pending subscription slot (event remains in history for audit)"
            );
        }
    }

    fn expect_drop(&mut self, kind: Cancellable, source: Option<u64>, reason: &str, is_old: bool) {
        if let Some(source) = source
            && is_old
            && reason == DROPPED_FUTURE
        {
            self.dropped_futures.expect(kind, source);
        }
    }

    /// Makes the error of a request that differs from the recorded one. Only the level `trace` shows payloads, except
    /// that legacy executions record the published text to the letter.
    fn mismatch(&self, action: &Action, event: &Event) -> ErrorDetails {
        tracing::trace!(target: PAYLOAD_TARGET, instance = self.instance, event_id = event.event_id,
            recorded = ?event.kind, asked = ?action, "the code does not ask for what was recorded");
        let text = matching::mismatch_text(action, &event.kind);
        let explained = self.explained(text, matching::explain(event, Some(action)));
        match self.policy {
            RacePolicy::Prompt => explained,
            RacePolicy::Legacy => nondeterminism(matching::published_mismatch_text(action, &event.kind)),
        }
    }

    /// Adds the place to a text. Legacy executions keep the bare text, because their histories hold it and replays
    /// compare it to the letter; for them the place goes to the log.
    fn explained(&self, text: String, explanation: String) -> ErrorDetails {
        match self.policy {
            RacePolicy::Prompt => nondeterminism(text + &explanation),
            RacePolicy::Legacy => {
                tracing::warn!(instance = self.instance, "{text}{explanation}");
                nondeterminism(text)
            }
        }
    }

    /// Checks an event after the code has returned. The code may have asked for less than was recorded. But no event
    /// may record one of its requests a second time, and the code must have dropped the same futures.
    pub(super) fn pass_by(&mut self, event: &Event, is_old: bool) {
        match cancellation(&event.kind) {
            Some((kind, reason)) => self.expect_drop(kind, event.source_event_id, reason, is_old),
            None if self.policy == RacePolicy::Legacy => {}
            None => {
                let place = self.place_of_match(&event.kind);
                let asked = self.unmatched.get(place);
                if asked.is_some_and(|asked| matching::fits(&asked.action, &event.kind))
                    && let Some(Unmatched { token, .. }) = self.unmatched.remove(place)
                {
                    self.bind(token, event.event_id, &event.kind, is_old);
                }
            }
        }
    }
}

/// The kind of request that a cancellation row cancels, and the reason.
fn cancellation(kind: &EventKind) -> Option<(Cancellable, &str)> {
    match kind {
        EventKind::ActivityCancelRequested { reason } => Some((Cancellable::Activity, reason)),
        EventKind::SubOrchestrationCancelRequested { reason } => Some((Cancellable::Child, reason)),
        EventKind::ExternalSubscribedCancelled { reason } => Some((Cancellable::Wait, reason)),
        EventKind::QueueSubscriptionCancelled { reason } => Some((Cancellable::Dequeue, reason)),
        _ => None,
    }
}
