//! Sorts the messages of a turn: the start of an execution, its inputs, and the messages that come too late.

use super::parents::{Notice, ParentLink};
use super::record::Phase;
use crate::model::{AppErrorKind, ErrorDetails, WorkItem};

const TARGET: &str = "duroxide::runtime";

/// The messages of a turn, sorted.
#[derive(Debug, Default)]
pub(super) struct TurnMessages {
    /// The message that begins an execution; the messages that it carries over are in `inputs`.
    pub start: Option<StartMessage>,
    /// The messages for the execution, in order.
    pub inputs: Vec<WorkItem>,
    /// Starts of children whose id is already taken.
    rivals: Vec<ParentLink>,
}

/// The message that begins an execution.
#[derive(Debug, Clone)]
pub(super) struct StartMessage {
    pub name: String,
    pub input: String,
    pub version: Option<String>,
    pub parent: Option<ParentLink>,
    pub carried: Vec<(String, String)>,
    pub custom_status: Option<String>,
    pub continues: bool,
}

impl TurnMessages {
    pub fn sort(instance: &str, phase: Phase, messages: Vec<WorkItem>) -> Self {
        let mut sorted = Self::default();
        // The start of a successor wins over any other start, wherever it is.
        let continues = |message: &WorkItem| matches!(message, WorkItem::ContinueAsNew { .. });
        let awaits_successor = matches!(phase, Phase::Fresh | Phase::Continued);
        let successor = awaits_successor.then(|| messages.iter().position(continues)).flatten();
        let accepts_start = phase == Phase::Fresh && successor.is_none();
        for (place, message) in messages.into_iter().enumerate() {
            match message {
                start @ WorkItem::StartOrchestration { .. } => {
                    sorted.take_start(instance, start, accepts_start);
                }
                start @ WorkItem::ContinueAsNew { .. } if successor == Some(place) => {
                    sorted.start = start_message(start);
                }
                WorkItem::ContinueAsNew { .. } => {
                    tracing::warn!(target: TARGET, instance, "ignoring a continuation that nobody waits for");
                }
                WorkItem::ActivityExecute { .. } => {
                    tracing::warn!(target: TARGET, instance, "ignoring an activity in the orchestrator queue");
                }
                input => sorted.inputs.push(input),
            }
        }
        sorted.put_timers_in_order_of_their_times();
        sorted.put_carried_first(instance);
        sorted
    }

    /// Sorts the timers of this turn by their times, and keeps the places that timers have among the other messages. The
    /// store delivers timers in the order in which they were set; after a standstill, several are due at once.
    fn put_timers_in_order_of_their_times(&mut self) {
        let places: Vec<usize> =
            (0..self.inputs.len()).filter(|&at| due(&self.inputs[at]).is_some()).collect();
        if places.is_sorted_by_key(|&at| due(&self.inputs[at])) {
            return;
        }
        let mut timers: Vec<WorkItem> = places.iter().map(|&at| self.inputs[at].clone()).collect();
        timers.sort_by_key(due);
        for (at, timer) in places.into_iter().zip(timers) {
            self.inputs[at] = timer;
        }
    }

    fn take_start(&mut self, instance: &str, start: WorkItem, accepts_start: bool) {
        let start = start_message(start);
        if accepts_start && self.start.is_none() {
            self.start = start;
            return;
        }
        match start.and_then(|start| start.parent) {
            Some(parent) => self.rivals.push(parent),
            None => tracing::warn!(target: TARGET, instance,
                "Ignoring duplicate StartOrchestration for an existing instance"),
        }
    }

    fn put_carried_first(&mut self, instance: &str) {
        let Some(start) = &self.start else { return };
        let carried = start.carried.iter().map(|(name, data)| WorkItem::QueueMessage {
            instance: instance.to_string(),
            name: name.clone(),
            data: data.clone(),
        });
        self.inputs = carried.chain(std::mem::take(&mut self.inputs)).collect();
    }

    /// Makes the messages to parents whose child's id is taken. A start that the store delivers twice is no rival of
    /// itself while the child goes on.
    pub fn collision_notices(
        &self,
        instance: &str,
        recorded: Option<&ParentLink>,
        finished: bool,
    ) -> Vec<Notice> {
        let is_redelivery =
            |rival: &ParentLink| !finished && rival.execution_id.is_some() && Some(rival) == recorded;
        let text = match finished {
            true => format!("sub-orchestration instance id '{instance}' already exists and is terminal"),
            false => format!("sub-orchestration instance id '{instance}' already exists"),
        };
        let rivals = self.rivals.iter().filter(|rival| !is_redelivery(rival));
        rivals
            .map(|rival| {
                tracing::warn!(target: TARGET, instance, parent = %rival.instance, "the id of a child is taken");
                let kind = AppErrorKind::OrchestrationFailed;
                let details = ErrorDetails::Application { kind, message: text.clone(), retryable: false };
                Notice::to(rival.clone(), Err(details))
            })
            .collect()
    }
}

/// When a timer is due; `None` for any other message.
fn due(message: &WorkItem) -> Option<u64> {
    match message {
        WorkItem::TimerFired { fire_at_ms, .. } => Some(*fire_at_ms),
        _ => None,
    }
}

fn start_message(message: WorkItem) -> Option<StartMessage> {
    match message {
        WorkItem::StartOrchestration {
            orchestration,
            input,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            ..
        } => Some(StartMessage {
            name: orchestration,
            input,
            version,
            parent: ParentLink::new(parent_instance.as_ref(), parent_id, parent_execution_id),
            carried: Vec::new(),
            custom_status: None,
            continues: false,
        }),
        WorkItem::ContinueAsNew {
            orchestration,
            input,
            version,
            parent_instance,
            parent_id,
            parent_execution_id,
            carry_forward_events,
            initial_custom_status,
            ..
        } => Some(StartMessage {
            name: orchestration,
            input,
            version,
            parent: ParentLink::new(parent_instance.as_ref(), parent_id, parent_execution_id),
            carried: carry_forward_events,
            custom_status: initial_custom_status,
            continues: true,
        }),
        _ => None,
    }
}
