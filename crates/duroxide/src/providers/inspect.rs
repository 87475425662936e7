//! The few things that a store must know about payloads, so that no store looks into them itself.
//!
//! A store keeps events and work items as opaque text. Where the contract makes it act on their content (routing,
//! due times, custom status, key-value changes, the name of an instance that has no row yet), it asks here.

use crate::model::{
    ActivityRecord, AppErrorKind, ErrorDetails, Event, EventKind, EventView, ExecutionStatus, WorkItem,
    begun_too_late, codec,
};

/// The changes of a history delta outside the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeltaChanges {
    /// The last custom status of the delta, if it has one; the inner `None` clears it.
    pub custom_status: Option<Option<String>>,
    /// The key-value changes, in order.
    pub kv: Vec<KvChange>,
}

/// One change of an instance's key-value store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvChange {
    /// Sets a value.
    Set {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// When it was set, in milliseconds since the epoch.
        last_updated_at_ms: u64,
    },
    /// Removes one key.
    Clear {
        /// The key.
        key: String,
    },
    /// Removes all keys.
    ClearAll,
}

/// Removes the values from serde's reason why a stored text does not decode, so that no payload gets into a log or an
/// error: `invalid type: string "4111", expected u32` becomes `invalid type: string, expected u32`.
pub fn without_values(reason: &str) -> String {
    codec::without_values(reason)
}

/// Collects the changes of a delta outside the history.
pub fn delta_changes(delta: &[Event]) -> DeltaChanges {
    let mut changes = DeltaChanges::default();
    for event in delta {
        match &event.kind {
            EventKind::CustomStatusUpdated { status } => changes.custom_status = Some(status.clone()),
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => changes.kv.push(KvChange::Set {
                key: key.clone(),
                value: value.clone(),
                last_updated_at_ms: *last_updated_at_ms,
            }),
            EventKind::KeyValueCleared { key } => changes.kv.push(KvChange::Clear { key: key.clone() }),
            EventKind::KeyValuesCleared => changes.kv.push(KvChange::ClearAll),
            _ => {}
        }
    }
    changes
}

/// The name and version of an orchestration, from the event or the message that started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The orchestration's name.
    pub name: String,
    /// Its version; `None` if the start names none.
    pub version: Option<String>,
}

/// Finds the origin of an instance that has history but no row, in its first start event.
pub fn origin_in_history(history: &[Event]) -> Option<Origin> {
    history.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => {
            Some(Origin { name: name.clone(), version: Some(version.clone()) })
        }
        _ => None,
    })
}

/// Finds the origin of an instance that has nothing but messages, in the first start among them.
pub fn origin_in_messages<'a>(messages: impl IntoIterator<Item = &'a WorkItem>) -> Option<Origin> {
    messages.into_iter().find_map(|message| match message {
        WorkItem::StartOrchestration { orchestration, version, .. }
        | WorkItem::ContinueAsNew { orchestration, version, .. } => {
            Some(Origin { name: orchestration.clone(), version: version.clone() })
        }
        _ => None,
    })
}

/// Counts the queue messages that an execution took over, from its first event.
pub fn carried_messages(first_event: &Event) -> u64 {
    match &first_event.kind {
        EventKind::OrchestrationStarted { carry_forward_events: Some(events), .. } => events.len() as u64,
        _ => 0,
    }
}

/// Returns the stored name of an event's kind: the `type` of its JSON.
pub fn event_type(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::OrchestrationStarted { .. } => "OrchestrationStarted",
        EventKind::OrchestrationCompleted { .. } => "OrchestrationCompleted",
        EventKind::OrchestrationFailed { .. } => "OrchestrationFailed",
        EventKind::ActivityScheduled { .. } => "ActivityScheduled",
        EventKind::ActivityCompleted { .. } => "ActivityCompleted",
        EventKind::ActivityFailed { .. } => "ActivityFailed",
        EventKind::ActivityCancelRequested { .. } => "ActivityCancelRequested",
        EventKind::TimerCreated { .. } => "TimerCreated",
        EventKind::TimerFired { .. } => "TimerFired",
        EventKind::ExternalSubscribed { .. } => "ExternalSubscribed",
        EventKind::ExternalEvent { .. } => "ExternalEvent",
        EventKind::OrchestrationChained { .. } => "OrchestrationChained",
        EventKind::SubOrchestrationScheduled { .. } => "SubOrchestrationScheduled",
        EventKind::SubOrchestrationCompleted { .. } => "SubOrchestrationCompleted",
        EventKind::SubOrchestrationFailed { .. } => "SubOrchestrationFailed",
        EventKind::SubOrchestrationCancelRequested { .. } => "SubOrchestrationCancelRequested",
        EventKind::OrchestrationContinuedAsNew { .. } => "OrchestrationContinuedAsNew",
        EventKind::OrchestrationCancelRequested { .. } => "OrchestrationCancelRequested",
        EventKind::ExternalSubscribedCancelled { .. } => "ExternalSubscribedCancelled",
        EventKind::QueueSubscribed { .. } => "ExternalSubscribedPersistent",
        EventKind::QueueEventDelivered { .. } => "ExternalEventPersistent",
        EventKind::QueueSubscriptionCancelled { .. } => "ExternalSubscribedPersistentCancelled",
        EventKind::CustomStatusUpdated { .. } => "CustomStatusUpdated",
        #[cfg(feature = "replay-version-test")]
        EventKind::ExternalSubscribed2 { .. } => "ExternalSubscribed2",
        #[cfg(feature = "replay-version-test")]
        EventKind::ExternalEvent2 { .. } => "ExternalEvent2",
        EventKind::KeyValueSet { .. } => "KeyValueSet",
        EventKind::KeyValueCleared { .. } => "KeyValueCleared",
        EventKind::KeyValuesCleared => "KeyValuesCleared",
    }
}

/// What a message means to an instance that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageClass {
    /// It can create the instance.
    Start,
    /// It ends a step that an execution scheduled: for an instance that is gone it is stale.
    Completion,
    /// A queue message: the store drops it if the instance does not exist.
    Queue,
    /// A signal or a cancellation, which may have overtaken the start, or a queue message whose sender says that it may
    /// have. The store keeps it.
    Signal,
}

impl MessageClass {
    /// Returns the class as stores write it next to a message.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Completion => "completion",
            Self::Queue => "queue",
            Self::Signal => "signal",
        }
    }

    /// Tells whether the store removes messages of this class when their execution ends with this status, because no
    /// execution will read them. A start stays: its sender waits for an answer. When the execution continues as new,
    /// its completions are stale, but signals and queue messages are for the next one.
    pub fn goes_with(self, status: &str) -> bool {
        match ExecutionStatus::parse(status) {
            Some(ExecutionStatus::ContinuedAsNew) => self == Self::Completion,
            Some(ExecutionStatus::Completed | ExecutionStatus::Failed) => self != Self::Start,
            Some(ExecutionStatus::Running) | None => false,
        }
    }
}

/// Where an orchestrator message goes, and how the store treats it on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRoute<'a> {
    /// The instance that receives it.
    pub instance: &'a str,
    /// What it means to an instance that does not exist.
    pub class: MessageClass,
    /// For a timer: when it is due, in milliseconds since the epoch.
    pub due_at_ms: Option<u64>,
    /// For the start of a child: the instance that started it. Deleting the parent removes the start.
    pub parent: Option<&'a str>,
}

/// Routes an orchestrator message; `None` for an activity, which belongs to the worker queue.
pub fn message_route(item: &WorkItem) -> Option<MessageRoute<'_>> {
    let plain = |instance, class| MessageRoute { instance, class, due_at_ms: None, parent: None };
    let route = |instance, class| Some(plain(instance, class));
    match item {
        WorkItem::ActivityExecute { .. } => None,
        WorkItem::StartOrchestration { instance, parent_instance, .. } => {
            Some(MessageRoute { parent: parent_instance.as_deref(), ..plain(instance, MessageClass::Start) })
        }
        // Its instance exists, and knows its own parent.
        WorkItem::ContinueAsNew { instance, .. } => route(instance, MessageClass::Start),
        WorkItem::ActivityCompleted { instance, .. } | WorkItem::ActivityFailed { instance, .. } => {
            route(instance, MessageClass::Completion)
        }
        WorkItem::SubOrchCompleted { parent_instance, .. }
        | WorkItem::SubOrchFailed { parent_instance, .. } => route(parent_instance, MessageClass::Completion),
        WorkItem::TimerFired { instance, fire_at_ms, .. } => {
            Some(MessageRoute { due_at_ms: Some(*fire_at_ms), ..plain(instance, MessageClass::Completion) })
        }
        WorkItem::ExternalRaised { instance, .. } | WorkItem::CancelInstance { instance, .. } => {
            route(instance, MessageClass::Signal)
        }
        WorkItem::QueueMessage { instance, .. } => route(instance, MessageClass::Queue),
        #[cfg(feature = "replay-version-test")]
        WorkItem::ExternalRaised2 { instance, .. } => route(instance, MessageClass::Signal),
    }
}

/// Tells whether the store may park this message at its sender's request.
pub fn may_wait_for_its_instance(item: &WorkItem) -> bool {
    let class = message_route(item).map(|route| route.class);
    matches!(class, Some(MessageClass::Signal | MessageClass::Queue))
}

/// Where an activity goes, and the key that finds it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityRoute<'a> {
    /// The instance that scheduled it.
    pub instance: &'a str,
    /// The execution of that instance.
    pub execution_id: u64,
    /// The event that scheduled it.
    pub activity_id: u64,
    /// The session that it is bound to.
    pub session_id: Option<&'a str>,
    /// The tag that routes it.
    pub tag: Option<&'a str>,
}

/// Routes an activity; `None` for anything that does not belong to the worker queue.
pub fn activity_route(item: &WorkItem) -> Option<ActivityRoute<'_>> {
    match item {
        WorkItem::ActivityExecute { instance, execution_id, id, session_id, tag, .. } => {
            Some(ActivityRoute {
                instance,
                execution_id: *execution_id,
                activity_id: *id,
                session_id: session_id.as_deref(),
                tag: tag.as_deref(),
            })
        }
        _ => None,
    }
}

/// Tells whether a worker may report this as the end of its activity.
pub fn is_activity_completion(item: &WorkItem) -> bool {
    matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. })
}

/// Returns the activity that a completion or failure is of; `None` for any other message.
pub fn completed_activity(item: &WorkItem) -> Option<super::ScheduledActivityIdentifier> {
    match item {
        WorkItem::ActivityCompleted { instance, execution_id, id, .. }
        | WorkItem::ActivityFailed { instance, execution_id, id, .. } => {
            let (instance, execution_id, activity_id) = (instance.clone(), *execution_id, *id);
            Some(super::ScheduledActivityIdentifier { instance, execution_id, activity_id })
        }
        _ => None,
    }
}

/// Returns the failure with which an activity ends if no worker begins it in time, by its stored text. `None` if the activity
/// has no such deadline, if an attempt has left something behind, or if the text does not decode.
pub fn failure_of_unbegun(text: &[u8]) -> Option<WorkItem> {
    let record = ActivityRecord::read(0, text).ok()?;
    record.options.as_deref()?.start_by_ms()?;
    if record.progress.is_some() {
        return None;
    }
    let WorkItem::ActivityExecute { instance, execution_id, id, name, .. } =
        serde_json::from_slice(text).ok()?
    else {
        return None;
    };
    let (kind, message) = (AppErrorKind::ActivityFailed, begun_too_late(&name));
    let details = ErrorDetails::Application { kind, message, retryable: false };
    Some(WorkItem::ActivityFailed { instance, execution_id, id, details })
}

/// Tells whether an encoded event records that its execution ended because a caller cancelled it.
pub fn is_cancellation(event: &super::rows::EventRow) -> bool {
    event.event_type == "OrchestrationFailed" && {
        let text = event.text.as_bytes();
        EventView::of_stored(0, text, text.len() as u64, 0).is_cancellation()
    }
}

/// Tells whether an execution with this status has ended.
pub fn is_terminal_status(status: &str) -> bool {
    ExecutionStatus::parse(status).is_some_and(|status| status != ExecutionStatus::Running)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind) -> Event {
        Event::with_event_id(1, "i", 1, None, kind)
    }

    #[test]
    fn the_last_custom_status_of_a_delta_wins_and_kv_changes_keep_their_order() {
        let delta = [
            event(EventKind::CustomStatusUpdated { status: Some("a".into()) }),
            event(EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 7 }),
            event(EventKind::CustomStatusUpdated { status: None }),
            event(EventKind::KeyValuesCleared),
            event(EventKind::KeyValueCleared { key: "k".into() }),
        ];
        let changes = delta_changes(&delta);
        assert_eq!(changes.custom_status, Some(None));
        assert_eq!(
            changes.kv,
            [
                KvChange::Set { key: "k".into(), value: "v".into(), last_updated_at_ms: 7 },
                KvChange::ClearAll,
                KvChange::Clear { key: "k".into() },
            ]
        );
    }

    #[test]
    fn a_delta_without_such_events_changes_nothing() {
        let delta = [event(EventKind::TimerCreated { fire_at_ms: 1 })];
        assert_eq!(delta_changes(&delta), DeltaChanges::default());
    }

    #[test]
    fn the_event_type_is_the_tag_of_the_stored_json() {
        let kinds = [
            EventKind::QueueSubscribed { name: "q".into() },
            EventKind::QueueEventDelivered { name: "q".into(), data: String::new() },
            EventKind::QueueSubscriptionCancelled { reason: String::new() },
            EventKind::KeyValuesCleared,
            EventKind::TimerFired { fire_at_ms: 0 },
        ];
        for kind in kinds {
            let json = serde_json::to_value(&kind).unwrap();
            assert_eq!(json["type"], event_type(&kind));
        }
    }

    #[test]
    fn completions_of_children_go_to_the_parent() {
        let item = WorkItem::SubOrchCompleted {
            parent_instance: "p".into(),
            parent_execution_id: 1,
            parent_id: 2,
            result: String::new(),
        };
        assert_eq!(message_route(&item).unwrap().instance, "p");
    }
}
