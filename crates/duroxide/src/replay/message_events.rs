//! From messages to events.

use crate::model::{ErrorDetails, Event, EventKind, WorkItem, cancellation};

use super::journal::{Answerable, Journal};
use super::outcome::nondeterminism;

/// The events that the messages of a turn became.
#[derive(Debug, Default)]
pub(crate) struct MessageEvents {
    pub(crate) events: Vec<Event>,
    /// Why the turn must fail without running user code.
    pub(crate) abort: Option<ErrorDetails>,
}

/// Why the engine does not record an answer to a request.
enum NotRecorded {
    /// Another execution asked, or an answer is recorded already. Normal with at-least-once delivery.
    Stale(&'static str),
    /// No request of this execution asked for it.
    Misfit(String),
}

/// Turns messages into events of the journal's execution, in their order.
pub(crate) fn admit(journal: &mut Journal, messages: Vec<WorkItem>, now_ms: u64) -> MessageEvents {
    let mut received = MessageEvents::default();
    for message in messages {
        received.admit(journal, message, now_ms);
    }
    received
}

impl MessageEvents {
    fn admit(&mut self, journal: &mut Journal, message: WorkItem, now_ms: u64) {
        use Answerable::{Activity, Child, Timer};
        match message {
            WorkItem::ActivityCompleted { execution_id, id, result, .. } => {
                self.answer(
                    journal,
                    now_ms,
                    Activity,
                    execution_id,
                    id,
                    EventKind::ActivityCompleted { result },
                );
            }
            WorkItem::ActivityFailed { execution_id, id, details, .. } => {
                self.answer(
                    journal,
                    now_ms,
                    Activity,
                    execution_id,
                    id,
                    EventKind::ActivityFailed { details },
                );
            }
            WorkItem::TimerFired { execution_id, id, fire_at_ms, .. } => {
                self.answer(journal, now_ms, Timer, execution_id, id, EventKind::TimerFired { fire_at_ms });
            }
            WorkItem::SubOrchCompleted { parent_execution_id, parent_id, result, .. } => {
                let kind = EventKind::SubOrchestrationCompleted { result };
                self.answer(journal, now_ms, Child, parent_execution_id, parent_id, kind);
            }
            WorkItem::SubOrchFailed { parent_execution_id, parent_id, details, .. } => {
                let kind = EventKind::SubOrchestrationFailed { details };
                self.answer(journal, now_ms, Child, parent_execution_id, parent_id, kind);
            }
            WorkItem::ExternalRaised { name, data, .. } => {
                self.push(journal, now_ms, EventKind::ExternalEvent { name, data });
            }
            WorkItem::QueueMessage { name, data, .. } => {
                self.push(journal, now_ms, EventKind::QueueEventDelivered { name, data });
            }
            #[cfg(feature = "replay-version-test")]
            WorkItem::ExternalRaised2 { name, topic, data, .. } => {
                if journal.has_topic(&name, &topic) {
                    self.push(journal, now_ms, EventKind::ExternalEvent2 { name, topic, data });
                } else {
                    tracing::warn!(
                        instance = journal.instance(),
                        name,
                        topic,
                        "dropping a signal: no such topic"
                    );
                }
            }
            WorkItem::CancelInstance { reason, .. } => {
                let is_first = journal.cancel_reason().is_none();
                let is_last = cancellation::is_final(&reason) && !journal.is_cancel_final();
                if !journal.is_finished() && (is_first || is_last) {
                    self.push(journal, now_ms, EventKind::OrchestrationCancelRequested { reason });
                }
            }
            // The runtime takes starts out before; activities do not belong in this queue.
            WorkItem::StartOrchestration { .. }
            | WorkItem::ContinueAsNew { .. }
            | WorkItem::ActivityExecute { .. } => {}
        }
    }

    fn push(&mut self, journal: &mut Journal, now_ms: u64, kind: EventKind) {
        self.events.push(journal.record(None, now_ms, kind));
    }

    fn answer(
        &mut self,
        journal: &mut Journal,
        now_ms: u64,
        family: Answerable,
        execution_id: u64,
        schedule_id: u64,
        kind: EventKind,
    ) {
        match check(journal, family, execution_id, schedule_id) {
            Ok(()) => {
                if let EventKind::ActivityFailed { details } | EventKind::SubOrchestrationFailed { details } =
                    &kind
                    && !matches!(details, ErrorDetails::Application { .. })
                {
                    self.abort.get_or_insert_with(|| details.clone());
                }
                self.events.push(journal.record(Some(schedule_id), now_ms, kind));
            }
            Err(NotRecorded::Stale(why)) => tracing::warn!(
                instance = journal.instance(),
                execution_id = journal.execution_id(),
                message_execution_id = execution_id,
                schedule_id,
                kind = family.name(),
                "dropping a completion: {why}"
            ),
            Err(NotRecorded::Misfit(text)) => self.abort = Some(nondeterminism(text)),
        }
    }
}

fn check(
    journal: &Journal,
    family: Answerable,
    execution_id: u64,
    schedule_id: u64,
) -> Result<(), NotRecorded> {
    if execution_id != journal.execution_id() {
        return Err(NotRecorded::Stale("it belongs to another execution"));
    }
    if journal.is_answered(family, schedule_id) {
        return Err(NotRecorded::Stale("an earlier one is recorded"));
    }
    match journal.kind_of(schedule_id) {
        Some(recorded) if recorded == family => Ok(()),
        Some(recorded) => Err(NotRecorded::Misfit(format!(
            "completion kind mismatch for id={schedule_id}, expected '{}', got '{}'",
            recorded.name(),
            family.name()
        ))),
        None => {
            let what = match family {
                Answerable::Activity => "completion",
                Answerable::Timer => "timer",
                Answerable::Child => "sub-orchestration",
            };
            Err(NotRecorded::Misfit(format!("no matching schedule for {what} id={schedule_id}")))
        }
    }
}
