//! The orchestration that the load stores: some activities one after the other, three events a turn.
//!
//! Turn `k` (from 0) writes the events `3k + 1` to `3k + 3`; its last event schedules an activity, in the last turn it
//! ends the instance. So an instance of `n` steps takes `n + 1` turns, and one message *or* one activity of it is in a
//! queue at any time, which is what the checks after a crash rely on.

use duroxide::providers::{ExecutionMetadata, WorkItem, current_build_version};
use duroxide::{Event, EventKind};

use crate::Outcome;

pub const PAYLOAD_BYTES: usize = 64;
pub const EVENTS_PER_TURN: u64 = 3;
pub const NAME: &str = "fulfil-order";
pub const VERSION: &str = "1.0.0";
pub const EXECUTION: u64 = 1;

/// The input or result of everything.
pub fn payload() -> String {
    "x".repeat(PAYLOAD_BYTES)
}

/// The id of the `count`th instance that a caller starts.
pub fn instance_id(prefix: &str, caller: usize, count: u64) -> String {
    format!("{prefix}order-{caller:04}-{count:06}")
}

/// The message that starts an instance.
pub fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: NAME.into(),
        input: payload(),
        version: Some(VERSION.into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: EXECUTION,
    }
}

/// What a turn commits.
pub struct Turn {
    pub events: Vec<Event>,
    pub activity: Option<WorkItem>,
    pub metadata: ExecutionMetadata,
    /// The id of its last event.
    pub last_event: u64,
}

/// The turn that a message asks for: the first for a start, the one after its activity for a completion.
pub fn turn_for(message: &WorkItem, steps: u64) -> Outcome<Turn> {
    match message {
        WorkItem::StartOrchestration { instance, .. } => Ok(turn(instance, 0, steps)),
        WorkItem::ActivityCompleted { instance, id, .. } => Ok(turn(instance, id / EVENTS_PER_TURN, steps)),
        other => Err(format!("the store returned a message that nobody sent: {other:?}").into()),
    }
}

/// The `number`th turn of an instance.
pub fn turn(instance: &str, number: u64, steps: u64) -> Turn {
    let first = number * EVENTS_PER_TURN + 1;
    let scheduled = first - 1;
    let event = |event_id, source, kind| Event::with_event_id(event_id, instance, EXECUTION, source, kind);
    let opening = if number == 0 {
        event(first, None, started())
    } else {
        event(first, Some(scheduled), EventKind::ActivityCompleted { result: payload() })
    };
    // Stands for whatever else a turn decides; it changes nothing but the history.
    let middle = event(first + 1, None, EventKind::ExternalSubscribed { name: "approval".into() });
    let is_last = number >= steps;
    let closing = if is_last {
        EventKind::OrchestrationCompleted { output: payload() }
    } else {
        EventKind::ActivityScheduled { name: "charge".into(), input: payload(), session_id: None, tag: None }
    };
    let last_event = first + EVENTS_PER_TURN - 1;
    Turn {
        events: vec![opening, middle, event(last_event, None, closing)],
        activity: (!is_last).then(|| activity(instance, last_event)),
        metadata: metadata(number == 0, is_last),
        last_event,
    }
}

fn started() -> EventKind {
    EventKind::OrchestrationStarted {
        name: NAME.into(),
        version: VERSION.into(),
        input: payload(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    }
}

fn metadata(is_first: bool, is_last: bool) -> ExecutionMetadata {
    ExecutionMetadata {
        status: is_last.then(|| "Completed".into()),
        output: is_last.then(payload),
        orchestration_name: is_first.then(|| NAME.into()),
        orchestration_version: is_first.then(|| VERSION.into()),
        parent_instance_id: None,
        pinned_duroxide_version: is_first.then(current_build_version),
    }
}

/// The activity that the event `id` schedules.
pub fn activity(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: EXECUTION,
        id,
        name: "charge".into(),
        input: payload(),
        session_id: None,
        tag: None,
    }
}

/// The result of an activity.
pub fn completion(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.into(), execution_id: EXECUTION, id, result: payload() }
}
