//! The items, events and metadata that checks use.
//!
//! The defaults are those of nearly every check: orchestration `TestOrch` in version `1.0.0` with input `{}`, execution
//! 1, activities without session and tag.

#![allow(dead_code, reason = "each helper serves several modules; which ones changes with the kit")]

use std::time::Duration;

use super::{Event, EventKind, ExecutionMetadata};
use crate::model::WorkItem;
use crate::providers::{ScheduledActivityIdentifier, SessionFetchConfig};

pub(crate) const ORCHESTRATION: &str = "TestOrch";
pub(crate) const VERSION: &str = "1.0.0";

/// A start with the usual name, version and input.
pub(crate) fn start_item(instance: &str) -> WorkItem {
    start_named(instance, ORCHESTRATION, Some(VERSION))
}

/// A start of a certain orchestration.
pub(crate) fn start_named(instance: &str, orchestration: &str, version: Option<&str>) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_string(),
        orchestration: orchestration.to_string(),
        input: "{}".to_string(),
        version: version.map(str::to_string),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

/// The message that begins the next execution.
pub(crate) fn continue_as_new(instance: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.to_string(),
        orchestration: ORCHESTRATION.to_string(),
        input: "{}".to_string(),
        version: Some(VERSION.to_string()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: Vec::new(),
        initial_custom_status: None,
    }
}

/// A signal.
pub(crate) fn raised(instance: &str, name: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: name.into(), data: data.into() }
}

/// A queue message.
pub(crate) fn queue_message(instance: &str, name: &str, data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: instance.into(), name: name.into(), data: data.into() }
}

/// A cancellation of an instance.
pub(crate) fn cancel(instance: &str) -> WorkItem {
    WorkItem::CancelInstance { instance: instance.into(), reason: "stop".into() }
}

/// A timer of execution 1 that is due at this time.
pub(crate) fn timer(instance: &str, id: u64, fire_at_ms: u64) -> WorkItem {
    WorkItem::TimerFired { instance: instance.into(), execution_id: 1, id, fire_at_ms }
}

/// The completion of an activity of execution 1.
pub(crate) fn completed(instance: &str, id: u64, result: &str) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.into(), execution_id: 1, id, result: result.into() }
}

/// An activity of execution 1, without session and tag.
pub(crate) fn activity(instance: &str, id: u64) -> WorkItem {
    activity_for(instance, id, None, None)
}

/// An activity that is bound to a session.
pub(crate) fn session_activity(instance: &str, id: u64, session: &str) -> WorkItem {
    activity_for(instance, id, Some(session), None)
}

/// An activity with a tag.
pub(crate) fn tagged_activity(instance: &str, id: u64, tag: &str) -> WorkItem {
    activity_for(instance, id, None, Some(tag))
}

/// An activity of execution 1.
pub(crate) fn activity_for(instance: &str, id: u64, session: Option<&str>, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_string(),
        execution_id: 1,
        id,
        name: "TestActivity".to_string(),
        input: "{}".to_string(),
        session_id: session.map(str::to_string),
        tag: tag.map(str::to_string),
    }
}

/// The id under which an activity was scheduled.
pub(crate) fn activity_id(item: &WorkItem) -> u64 {
    match item {
        WorkItem::ActivityExecute { id, .. } => *id,
        other => panic!("the worker queue should hold activities only, not {other:?}"),
    }
}

/// The completion that a worker reports for an activity.
pub(crate) fn completion_of(item: &WorkItem, result: &str) -> WorkItem {
    match item {
        WorkItem::ActivityExecute { instance, execution_id, id, .. } => WorkItem::ActivityCompleted {
            instance: instance.clone(),
            execution_id: *execution_id,
            id: *id,
            result: result.to_string(),
        },
        other => panic!("the worker queue should hold activities only, not {other:?}"),
    }
}

/// The ids of the activity completions among these messages, in order.
pub(crate) fn completion_ids(messages: &[WorkItem]) -> Vec<u64> {
    messages
        .iter()
        .filter_map(|message| match message {
            WorkItem::ActivityCompleted { id, .. } => Some(*id),
            _ => None,
        })
        .collect()
}

/// Names an activity of execution 1 in a list of cancellations.
pub(crate) fn scheduled(instance: &str, activity_id: u64) -> ScheduledActivityIdentifier {
    ScheduledActivityIdentifier { instance: instance.to_string(), execution_id: 1, activity_id }
}

/// An owner of sessions.
pub(crate) fn owner(id: &str, lock_timeout: Duration) -> SessionFetchConfig {
    SessionFetchConfig { owner_id: id.to_string(), lock_timeout }
}

/// An event of execution 1.
pub(crate) fn event(instance: &str, event_id: u64, kind: EventKind) -> Event {
    event_in(instance, 1, event_id, kind)
}

/// An event.
pub(crate) fn event_in(instance: &str, execution_id: u64, event_id: u64, kind: EventKind) -> Event {
    Event::with_event_id(event_id, instance, execution_id, None, kind)
}

/// The first event of an execution.
pub(crate) fn started(instance: &str, execution_id: u64) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: ORCHESTRATION.to_string(),
        version: VERSION.to_string(),
        input: "{}".to_string(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    event_in(instance, execution_id, 1, kind)
}

/// An activity was scheduled in execution 1.
pub(crate) fn activity_scheduled(instance: &str, event_id: u64) -> Event {
    let kind = EventKind::ActivityScheduled {
        name: "TestActivity".to_string(),
        input: "{}".to_string(),
        session_id: None,
        tag: None,
    };
    event(instance, event_id, kind)
}

/// A key was set.
pub(crate) fn kv_set(key: &str, value: &str) -> EventKind {
    EventKind::KeyValueSet { key: key.into(), value: value.into(), last_updated_at_ms: 0 }
}

/// The usual name and version, so that the ack creates the instance.
pub(crate) fn named() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some(ORCHESTRATION.to_string()),
        orchestration_version: Some(VERSION.to_string()),
        ..ExecutionMetadata::default()
    }
}

/// A status and nothing else.
pub(crate) fn status(status: &str) -> ExecutionMetadata {
    ExecutionMetadata { status: Some(status.to_string()), ..ExecutionMetadata::default() }
}

/// The usual name and version, and a status.
pub(crate) fn named_with_status(status: &str) -> ExecutionMetadata {
    ExecutionMetadata { status: Some(status.to_string()), ..named() }
}
