//! Whether what the code asks for now is what it asked for when the history was recorded.

use crate::model::{Action, Event, EventKind};

/// Tells whether an event records a request or decision of the code, and so takes up one of its actions.
pub(crate) fn records_action(kind: &EventKind) -> bool {
    is_schedule(kind) || is_note(kind)
}

/// Requests, which must have been asked for.
pub(crate) fn is_schedule(kind: &EventKind) -> bool {
    match kind {
        EventKind::ActivityScheduled { .. }
        | EventKind::TimerCreated { .. }
        | EventKind::ExternalSubscribed { .. }
        | EventKind::QueueSubscribed { .. }
        | EventKind::SubOrchestrationScheduled { .. }
        | EventKind::OrchestrationChained { .. } => true,
        #[cfg(feature = "replay-version-test")]
        EventKind::ExternalSubscribed2 { .. } => true,
        _ => false,
    }
}

/// Status and key-value updates. One that the code no longer makes is accepted.
fn is_note(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::CustomStatusUpdated { .. }
            | EventKind::KeyValueSet { .. }
            | EventKind::KeyValueCleared { .. }
            | EventKind::KeyValuesCleared
    )
}

/// Tells whether an action is the one that an event records.
///
/// Not compared are times (the recorded one counts), child ids (the recorded one counts), versions, and the text of a
/// status.
pub(crate) fn fits(action: &Action, kind: &EventKind) -> bool {
    match (action, kind) {
        (
            Action::CallActivity { name, input, session_id, tag, .. },
            EventKind::ActivityScheduled { name: n, input: i, session_id: s, tag: t },
        ) => name == n && input == i && session_id == s && tag == t,
        (Action::CreateTimer { .. }, EventKind::TimerCreated { .. }) => true,
        (Action::WaitExternal { name, .. }, EventKind::ExternalSubscribed { name: n }) => name == n,
        (Action::DequeueEvent { name, .. }, EventKind::QueueSubscribed { name: n }) => name == n,
        #[cfg(feature = "replay-version-test")]
        (Action::WaitExternal2 { name, topic, .. }, EventKind::ExternalSubscribed2 { name: n, topic: t }) => {
            name == n && topic == t
        }
        (
            Action::StartSubOrchestration { name, input, .. },
            EventKind::SubOrchestrationScheduled { name: n, input: i, .. },
        ) => name == n && input == i,
        (
            Action::StartOrchestrationDetached { name, instance, input, .. },
            EventKind::OrchestrationChained { name: n, instance: id, input: i },
        ) => name == n && instance == id && input == i,
        (Action::UpdateCustomStatus { .. }, EventKind::CustomStatusUpdated { .. }) => true,
        (Action::SetKeyValue { key, value, .. }, EventKind::KeyValueSet { key: k, value: v, .. }) => {
            key == k && value == v
        }
        (Action::ClearKeyValue { key }, EventKind::KeyValueCleared { key: k }) => key == k,
        (Action::ClearKeyValues, EventKind::KeyValuesCleared) => true,
        _ => false,
    }
}

/// The pinned text for a recorded request that the code does not make.
pub(crate) fn missing_action_text(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::OrchestrationChained { .. } => "history OrchestrationChained but no emitted action",
        _ => "history schedule but no emitted action",
    }
}

/// The pinned text for a recorded request that is not the one that the code makes.
pub(crate) fn mismatch_text(action: &Action, kind: &EventKind) -> String {
    let what = match kind {
        EventKind::CustomStatusUpdated { .. } => "custom status",
        EventKind::KeyValueSet { .. } => "kv set",
        EventKind::KeyValueCleared { .. } => "kv clear",
        EventKind::KeyValuesCleared => "kv clear_all",
        _ => "schedule",
    };
    format!("{what} mismatch: action={action:?} vs event={kind:?}")
}

/// What a person needs to find the place: the event, what it recorded, and what the code asks for now.
pub(crate) fn explain(event: &Event, asked: Option<&Action>) -> String {
    let asked = asked.map_or_else(|| "nothing more".to_string(), describe_action);
    format!(
        " (event {} recorded {}; the code now asks for {asked})",
        event.event_id,
        describe_event(&event.kind)
    )
}

/// Names an event for a person.
pub(crate) fn describe_event(kind: &EventKind) -> String {
    match kind {
        EventKind::ActivityScheduled { name, .. } => format!("activity '{name}'"),
        EventKind::TimerCreated { .. } => "a timer".to_string(),
        EventKind::ExternalSubscribed { name } => format!("a wait for '{name}'"),
        #[cfg(feature = "replay-version-test")]
        EventKind::ExternalSubscribed2 { name, topic } => format!("a wait for '{name}' on '{topic}'"),
        EventKind::QueueSubscribed { name } => format!("a dequeue from '{name}'"),
        EventKind::SubOrchestrationScheduled { name, .. } => format!("child orchestration '{name}'"),
        EventKind::OrchestrationChained { name, instance, .. } => {
            format!("a detached start of '{name}' as '{instance}'")
        }
        EventKind::CustomStatusUpdated { .. } => "a status update".to_string(),
        EventKind::KeyValueSet { key, .. } => format!("a write of key '{key}'"),
        EventKind::KeyValueCleared { key } => format!("the removal of key '{key}'"),
        EventKind::KeyValuesCleared => "the removal of all keys".to_string(),
        EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. } => {
            "the outcome of an activity".to_string()
        }
        EventKind::TimerFired { .. } => "the firing of a timer".to_string(),
        EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. } => {
            "the outcome of a child orchestration".to_string()
        }
        _ => "something else".to_string(),
    }
}

fn describe_action(action: &Action) -> String {
    match action {
        Action::CallActivity { name, .. } => format!("activity '{name}'"),
        Action::CreateTimer { .. } => "a timer".to_string(),
        Action::WaitExternal { name, .. } => format!("a wait for '{name}'"),
        #[cfg(feature = "replay-version-test")]
        Action::WaitExternal2 { name, topic, .. } => format!("a wait for '{name}' on '{topic}'"),
        Action::DequeueEvent { name, .. } => format!("a dequeue from '{name}'"),
        Action::StartSubOrchestration { name, .. } => format!("child orchestration '{name}'"),
        Action::StartOrchestrationDetached { name, instance, .. } => {
            format!("a detached start of '{name}' as '{instance}'")
        }
        Action::ContinueAsNew { .. } => "a continue-as-new".to_string(),
        Action::UpdateCustomStatus { .. } => "a status update".to_string(),
        Action::SetKeyValue { key, .. } => format!("a write of key '{key}'"),
        Action::ClearKeyValue { key } => format!("the removal of key '{key}'"),
        Action::ClearKeyValues => "the removal of all keys".to_string(),
    }
}
