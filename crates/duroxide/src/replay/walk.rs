//! Walking through a history with the orchestration's code beside it.
//!
//! Each event is applied in turn; between events the code is polled when there is news for it. What the code asks for
//! must be what the next recorded request says. Events that were stored long ago and events of the turn being taken go
//! through the same steps, so that both decide alike.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::model::{Action, AppErrorKind, ErrorDetails, Event, EventKind};

use super::desk::{Cancellable, Desk};
use super::drops::{DROPPED_FUTURE, Drops};
use super::journal::Answerable;
use super::outcome::{application, nondeterminism};
use super::wake::OwnedNode;
use super::{CompletionResult, RacePolicy, matching};

/// An orchestration's code, suspended.
pub(crate) type Program = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Polls in a row that may wake themselves up again without any step having brought a result.
const IDLE_POLLS_MAX: u32 = 100;

/// How the code ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Returned(Result<String, String>),
    /// It panicked, kept itself busy without end, or does not fit its history.
    Broken(ErrorDetails),
}

/// The orchestration's code at some place in its history.
pub(crate) struct Walk {
    instance: String,
    desk: Arc<Desk>,
    program: Option<Program>,
    root: OwnedNode,
    policy: RacePolicy,
    has_begun: bool,
    ended: Option<Ended>,
    needs_poll: bool,
    /// Whether the reason for the next poll was stored before this turn: then the code has run from here before.
    reason_is_old: bool,
    /// Whether the event applied last took up an action.
    took_action: bool,
    /// Requests of the code that no event has taken up yet.
    unmatched: VecDeque<(u64, Action)>,
    open: HashMap<u64, Answerable>,
    /// How many recorded requests were seen, to find the recorded times of writes.
    recorded_actions: u64,
    drops: Drops,
    saw_foreign: bool,
}

impl Walk {
    pub(crate) fn new(instance: &str, desk: Arc<Desk>, program: Program) -> Self {
        Self {
            instance: instance.to_string(),
            desk,
            program: Some(program),
            root: OwnedNode::root(),
            policy: RacePolicy::Legacy,
            has_begun: false,
            ended: None,
            needs_poll: true,
            reason_is_old: true,
            took_action: false,
            unmatched: VecDeque::new(),
            open: HashMap::new(),
            recorded_actions: 0,
            drops: Drops::default(),
            saw_foreign: false,
        }
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    pub(crate) fn shared_desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    pub(crate) fn policy(&self) -> RacePolicy {
        self.policy
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        self.ended.take()
    }

    pub(crate) fn drops(&mut self) -> &mut Drops {
        &mut self.drops
    }

    /// Whether the code was ever seen to wait for something that is not durable.
    pub(crate) fn saw_foreign(&self) -> bool {
        self.saw_foreign
    }

    /// Walks through stored events, in order. They may be all of the history or what was missed of it.
    pub(crate) fn replay(&mut self, events: &[Event]) {
        self.look_ahead(events);
        for event in events {
            self.step(event, true);
            // Whatever the code does because of this event, it did at this time.
            self.desk.set_now(event.timestamp_ms);
        }
    }

    /// Notes when values were written, so that code that writes them again sees the recorded times at once.
    fn look_ahead(&mut self, events: &[Event]) {
        for event in events.iter().filter(|event| matching::records_action(&event.kind)) {
            if let EventKind::KeyValueSet { last_updated_at_ms, .. } = event.kind {
                self.desk.expect_kv_time(self.recorded_actions, last_updated_at_ms);
            }
            self.recorded_actions += 1;
        }
    }

    /// Counts a request that was recorded just now.
    pub(crate) fn note_recorded(&mut self) {
        self.recorded_actions += 1;
    }

    /// Applies one event. `is_old` says that it was stored before this turn.
    pub(crate) fn step(&mut self, event: &Event, is_old: bool) {
        if !self.has_begun {
            self.begin(event, is_old);
        }
        if is_old {
            self.drops.note_old_event(event.event_id);
        }
        let takes_action = matching::records_action(&event.kind);
        if self.must_poll_before(takes_action) {
            self.poll();
        }
        if self.ended.is_some() {
            self.pass_by(event, is_old);
        } else if let Err(details) = self.apply(event, is_old) {
            self.end(Ended::Broken(details));
        }
        self.took_action = takes_action;
    }

    /// Looks at an event after the code has returned. That the code asked for less than was recorded is accepted; but
    /// what it did ask for must not be recorded a second time, and drops must have been repeated.
    fn pass_by(&mut self, event: &Event, is_old: bool) {
        match cancellation(&event.kind) {
            Some((kind, reason)) => self.expect_drop(kind, event.source_event_id, reason, is_old),
            None if self.policy == RacePolicy::Legacy => {}
            None => {
                let place = self.place_of_match(&event.kind);
                let asked = self.unmatched.get(place);
                if asked.is_some_and(|(_, action)| matching::fits(action, &event.kind))
                    && let Some((token, _)) = self.unmatched.remove(place)
                {
                    self.bind(token, event.event_id, &event.kind, is_old);
                }
            }
        }
    }

    fn begin(&mut self, first: &Event, is_old: bool) {
        self.has_begun = true;
        self.reason_is_old = is_old;
        let EventKind::OrchestrationStarted { initial_custom_status, .. } = &first.kind else {
            let text = "corrupted history: first event must be OrchestrationStarted";
            return self.end(Ended::Broken(nondeterminism(text.to_string())));
        };
        self.policy = RacePolicy::of_stamp(&self.instance, &first.duroxide_version);
        self.desk.open(self.policy, initial_custom_status.clone());
    }

    /// A run of recorded requests was bound in one go when it was new, and only then was the code polled. So news
    /// that come from binding wait until the run is over. Legacy executions did it one by one when they were replayed.
    fn must_poll_before(&self, takes_action: bool) -> bool {
        let inside_a_run = takes_action && self.took_action && self.first_recordable().is_some();
        match self.policy {
            RacePolicy::Legacy => self.needs_poll,
            RacePolicy::Prompt => self.has_news() && !inside_a_run,
        }
    }

    fn has_news(&self) -> bool {
        self.needs_poll || (self.policy == RacePolicy::Prompt && self.root.is_woken())
    }

    /// Polls the code if there is news for it. Everything up to now was stored before this turn if `is_old` says so.
    pub(crate) fn settle(&mut self, is_old: bool) {
        if self.has_begun && self.has_news() {
            self.reason_is_old = is_old;
            self.poll();
        }
    }

    /// Polls once for legacy executions, and until nothing changes any more for others.
    fn poll(&mut self) {
        let mut idle = 0;
        while self.ended.is_none() {
            self.desk.take_progress();
            self.poll_once();
            if self.policy == RacePolicy::Legacy || !self.root.is_woken() {
                return;
            }
            idle = if self.desk.take_progress() { 0 } else { idle + 1 };
            if idle >= IDLE_POLLS_MAX {
                self.end(Ended::Broken(restless()));
            }
        }
    }

    /// Polls a legacy execution after new requests were bound, as long as that brings more of them.
    pub(crate) fn poll_again(&mut self, idle: &mut u32) {
        self.desk.take_progress();
        self.reason_is_old = false;
        self.poll_once();
        *idle = if self.desk.take_progress() { 0 } else { *idle + 1 };
        if *idle >= IDLE_POLLS_MAX && self.ended.is_none() {
            self.end(Ended::Broken(restless()));
        }
    }

    fn poll_once(&mut self) {
        let Some(program) = &mut self.program else { return };
        self.needs_poll = false;
        self.desk.set_replaying(self.reason_is_old);
        self.root.rest();
        let polled = {
            let _entered = self.desk.enter(&self.root);
            let mut context = Context::from_waker(self.root.waker());
            catch_unwind(AssertUnwindSafe(|| program.as_mut().poll(&mut context)))
        };
        match polled {
            Ok(Poll::Pending) => {
                self.saw_foreign |= self.desk.take_foreign() || self.root.awaits_foreign();
                self.unmatched.extend(self.desk.drain_emitted());
            }
            Ok(Poll::Ready(result)) => {
                self.unmatched.extend(self.desk.drain_emitted());
                self.end(Ended::Returned(result));
            }
            Err(panic) => {
                self.unmatched.clear();
                let message = panic_text(panic.as_ref());
                self.end(Ended::Broken(application(AppErrorKind::Panicked, message)));
            }
        }
    }

    fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.put_away();
    }

    /// Drops the suspended code without that meaning anything.
    fn put_away(&mut self) {
        self.desk.put_away();
        let program = self.program.take();
        // What user code does when it is dropped is its own affair.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(program)));
    }

    /// Takes the requests that nothing recorded so far has taken up.
    pub(crate) fn take_unmatched(&mut self) -> VecDeque<(u64, Action)> {
        std::mem::take(&mut self.unmatched)
    }

    /// Ties a request to the event that records it.
    pub(crate) fn bind(&mut self, token: u64, event_id: u64, kind: &EventKind, is_old: bool) {
        self.desk.bind(token, event_id);
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
            EventKind::ExternalSubscribed { name } => self.desk.bind_wait(event_id, (name.clone(), None)),
            #[cfg(feature = "replay-version-test")]
            EventKind::ExternalSubscribed2 { name, topic } => {
                self.desk.bind_wait(event_id, (name.clone(), Some(topic.clone())));
            }
            EventKind::QueueSubscribed { name } => {
                self.desk.bind_dequeue(event_id, name);
                self.call_for_poll(is_old);
            }
            _ => {}
        }
    }

    fn call_for_poll(&mut self, is_old: bool) {
        self.needs_poll = true;
        self.reason_is_old = is_old;
    }

    fn apply(&mut self, event: &Event, is_old: bool) -> Result<(), ErrorDetails> {
        match &event.kind {
            kind if matching::records_action(kind) => self.take_up(event, is_old)?,
            EventKind::ActivityCompleted { result } => {
                let outcome = CompletionResult::ActivityOk(result.clone());
                self.complete(event, Answerable::Activity, outcome, is_old)?;
            }
            EventKind::ActivityFailed { details } => {
                let outcome = CompletionResult::ActivityErr(details.display_message());
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
                let outcome = CompletionResult::SubOrchErr(details.display_message());
                self.complete(event, Answerable::Child, outcome, is_old)?;
            }
            EventKind::ExternalEvent { name, data } => self.signal((name.clone(), None), data, is_old),
            #[cfg(feature = "replay-version-test")]
            EventKind::ExternalEvent2 { name, topic, data } => {
                self.signal((name.clone(), Some(topic.clone())), data, is_old);
            }
            EventKind::QueueEventDelivered { name, data } => {
                self.desk.deliver_message(name, data.clone());
                self.call_for_poll(is_old);
            }
            kind => {
                if let Some((kind, reason)) = cancellation(kind) {
                    if let Some(source) = event.source_event_id {
                        self.desk.cancel_by_row(source, kind);
                    }
                    self.expect_drop(kind, event.source_event_id, reason, is_old);
                }
            }
        }
        Ok(())
    }

    /// A recorded request takes up the oldest request of the code, which must be the same.
    fn take_up(&mut self, event: &Event, is_old: bool) -> Result<(), ErrorDetails> {
        let place = self.place_of_match(&event.kind);
        let Some((token, action)) = self.unmatched.remove(place) else {
            if matching::is_schedule(&event.kind) {
                return Err(self.misfit(matching::missing_action_text(&event.kind).to_string(), event, None));
            }
            return Ok(());
        };
        if !matching::fits(&action, &event.kind) {
            return Err(self.misfit(matching::mismatch_text(&action, &event.kind), event, Some(&action)));
        }
        if let EventKind::KeyValueSet { key, last_updated_at_ms, .. } = &event.kind {
            self.desk.confirm_kv_time(key, *last_updated_at_ms, token);
        }
        self.bind(token, event.event_id, &event.kind, is_old);
        Ok(())
    }

    /// Requests match in order. A continue-as-new has no event and is passed over; and old versions recorded the removals
    /// of one pruning in any order.
    fn place_of_match(&self, kind: &EventKind) -> usize {
        let first = self.first_recordable().unwrap_or(self.unmatched.len());
        let EventKind::KeyValueCleared { key } = kind else { return first };
        let run = self.unmatched.iter().skip(first).map(|(_, action)| action);
        run.take_while(|action| matches!(action, Action::ClearKeyValue { .. }))
            .position(|action| matches!(action, Action::ClearKeyValue { key: asked } if asked == key))
            .map_or(first, |place| first + place)
    }

    /// The oldest request that an event can record. Legacy executions make no exception for a continue-as-new.
    fn first_recordable(&self) -> Option<usize> {
        let has_event = |action: &Action| {
            self.policy == RacePolicy::Legacy || !matches!(action, Action::ContinueAsNew { .. })
        };
        self.unmatched.iter().position(|(_, action)| has_event(action))
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
        self.desk.deliver(source, outcome);
        self.call_for_poll(is_old);
        Ok(())
    }

    fn signal(&mut self, key: (String, Option<String>), data: &str, is_old: bool) {
        if self.desk.deliver_signal(&key, data.to_string()) {
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
            self.drops.expect(kind, source);
        }
    }

    fn misfit(&self, text: String, event: &Event, asked: Option<&Action>) -> ErrorDetails {
        self.explained(text, matching::explain(event, asked))
    }

    /// Adds the place to a text. Legacy executions keep the bare text, which is recorded in their histories and
    /// compared to the letter; they tell the log.
    fn explained(&self, text: String, explanation: String) -> ErrorDetails {
        match self.policy {
            RacePolicy::Prompt => nondeterminism(text + &explanation),
            RacePolicy::Legacy => {
                tracing::warn!(instance = self.instance, "{text}{explanation}");
                nondeterminism(text)
            }
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.put_away();
    }
}

/// What a cancellation row cancels, and why.
fn cancellation(kind: &EventKind) -> Option<(Cancellable, &str)> {
    match kind {
        EventKind::ActivityCancelRequested { reason } => Some((Cancellable::Activity, reason)),
        EventKind::SubOrchestrationCancelRequested { reason } => Some((Cancellable::Child, reason)),
        EventKind::ExternalSubscribedCancelled { reason } => Some((Cancellable::Wait, reason)),
        EventKind::QueueSubscriptionCancelled { reason } => Some((Cancellable::Dequeue, reason)),
        _ => None,
    }
}

fn restless() -> ErrorDetails {
    ErrorDetails::Infrastructure {
        operation: "quiescence_loop".to_string(),
        message: format!(
            "quiescence loop exceeded {IDLE_POLLS_MAX} iterations: the orchestration keeps waking itself up without \
             any step having brought a result"
        ),
        retryable: false,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("orchestration panicked").to_string()
}
