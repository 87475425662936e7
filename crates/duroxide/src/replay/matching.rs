//! Whether the code's request is the one that the history recorded.

use std::panic::Location;

use crate::model::{Action, Event, EventKind, payload};

use super::recording;

/// Tells whether an event records a request or decision of the code, and so takes up one of its actions.
pub(crate) fn records_action(kind: &EventKind) -> bool {
    is_schedule(kind) || is_note(kind)
}

/// Tells whether an event records a request that the code must make again.
pub(crate) fn is_schedule(kind: &EventKind) -> bool {
    match kind {
        kind if recording::patch_of(kind).is_some() => false,
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

/// Status and key-value updates, and changes of the code. One that the code no longer makes is accepted.
fn is_note(kind: &EventKind) -> bool {
    recording::patch_of(kind).is_some()
        || matches!(
            kind,
            EventKind::CustomStatusUpdated { .. }
                | EventKind::KeyValueSet { .. }
                | EventKind::KeyValueCleared { .. }
                | EventKind::KeyValuesCleared
        )
}

/// Tells whether an action is the one that an event records.
///
/// Does not compare times and child ids (the recorded ones count), versions, or the text of a status.
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

/// The pinned error text for a recorded request that the code does not make.
pub(crate) fn missing_action_text(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::OrchestrationChained { .. } => "history OrchestrationChained but no emitted action",
        _ => "history schedule but no emitted action",
    }
}

/// The pinned error text for a recorded request that differs from the code's, without payloads.
pub(crate) fn mismatch_text(action: &Action, kind: &EventKind) -> String {
    published_mismatch_text(&action_without_payload(action), &event_without_payload(kind))
}

/// The same text with payloads, as executions started before 0.1.31 record it.
pub(crate) fn published_mismatch_text(action: &Action, kind: &EventKind) -> String {
    let what = match kind {
        EventKind::CustomStatusUpdated { .. } => "custom status",
        EventKind::KeyValueSet { .. } => "kv set",
        EventKind::KeyValueCleared { .. } => "kv clear",
        EventKind::KeyValuesCleared => "kv clear_all",
        _ => "schedule",
    };
    format!("{what}{ACTION_AND_EVENT}{action:?} vs event={kind:?}")
}

const ACTION_AND_EVENT: &str = " mismatch: action=";
const ASKED_NOW: &str = "; the code now asks for ";

/// Removes the payloads from the text of a nondeterminism error, for the log. A text with an explanation holds none.
pub(crate) fn loggable(text: String) -> String {
    match text.find(ACTION_AND_EVENT) {
        Some(start) if !text.contains(ASKED_NOW) => format!("{} mismatch", &text[..start]),
        _ => text,
    }
}

/// The action for people to read: with a length and a hash in place of its payload.
fn action_without_payload(action: &Action) -> Action {
    let mut shown = action.clone();
    match &mut shown {
        Action::CallActivity { input, .. }
        | Action::StartOrchestrationDetached { input, .. }
        | Action::StartSubOrchestration { input, .. }
        | Action::ContinueAsNew { input, .. } => hide(input),
        Action::UpdateCustomStatus { status: Some(status) } => hide(status),
        Action::SetKeyValue { value, .. } => hide(value),
        _ => {}
    }
    shown
}

/// The recorded request for people to read, without its payload.
fn event_without_payload(kind: &EventKind) -> EventKind {
    let mut shown = kind.clone();
    match &mut shown {
        EventKind::ActivityScheduled { input, .. }
        | EventKind::OrchestrationChained { input, .. }
        | EventKind::SubOrchestrationScheduled { input, .. } => hide(input),
        EventKind::CustomStatusUpdated { status: Some(status) } => hide(status),
        EventKind::KeyValueSet { value, .. } => hide(value),
        _ => {}
    }
    shown
}

fn hide(payload: &mut String) {
    *payload = format!("<{}>", payload::summary(payload));
}

/// The details that lead a person to the place: the event, the recorded request, and the code's request now.
pub(crate) fn explain(event: &Event, asked: Option<(&Action, &'static Location<'static>)>) -> String {
    let (id, recorded) = (event.event_id, describe_event(&event.kind));
    let difference = asked.and_then(|(asked, _)| only_difference(asked, &event.kind)).unwrap_or_default();
    let asked = asked.map_or_else(
        || "nothing more".to_string(),
        |(asked, place)| describe_action(asked) + &at_place(place),
    );
    format!(" (event {id} recorded {recorded}{ASKED_NOW}{asked}{difference})")
}

/// The line of the code that made a request, for people. Requests of our own loops do not know it.
pub(crate) fn at_place(place: &Location<'_>) -> String {
    match place.file().ends_with(RETRY_LOOP) {
        true => String::new(),
        false => format!(" at {}:{}", place.file(), place.line()),
    }
}

/// The line of the code itself, for people, where no line of a request tells more.
pub(crate) fn of_code(place: Option<&Location<'_>>) -> String {
    place.map_or_else(String::new, |place| format!(", in the code at {}:{}", place.file(), place.line()))
}

/// The file with the loop that retries activities: an async function cannot learn who called it.
const RETRY_LOOP: &str = "orchestration/activities.rs";

/// Says how the payloads differ, if nothing else does.
fn only_difference(action: &Action, kind: &EventKind) -> Option<String> {
    let (what, recorded, now) = match (action, kind) {
        (Action::CallActivity { input, .. }, EventKind::ActivityScheduled { input: recorded, .. })
        | (
            Action::StartSubOrchestration { input, .. },
            EventKind::SubOrchestrationScheduled { input: recorded, .. },
        )
        | (
            Action::StartOrchestrationDetached { input, .. },
            EventKind::OrchestrationChained { input: recorded, .. },
        ) => ("input", recorded, input),
        (Action::SetKeyValue { value, .. }, EventKind::KeyValueSet { value: recorded, .. }) => {
            ("value", recorded, value)
        }
        _ => return None,
    };
    let fits_otherwise = fits(&with_payload(action, recorded), kind);
    fits_otherwise.then(|| format!("; only the {what} differs: {}", payload::difference(recorded, now)))
}

/// The action with another payload.
fn with_payload(action: &Action, other: &str) -> Action {
    let mut changed = action.clone();
    match &mut changed {
        Action::CallActivity { input: payload, .. }
        | Action::StartSubOrchestration { input: payload, .. }
        | Action::StartOrchestrationDetached { input: payload, .. }
        | Action::SetKeyValue { value: payload, .. } => *payload = other.to_string(),
        _ => {}
    }
    changed
}

/// Names an event for a person.
pub(crate) fn describe_event(kind: &EventKind) -> String {
    match kind {
        kind if recording::patch_of(kind).is_some() => {
            format!("the change '{}'", recording::patch_of(kind).unwrap_or_default())
        }
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
        EventKind::OrchestrationStarted { .. } => "the start".to_string(),
        EventKind::ExternalEvent { name, .. } => format!("the signal '{name}'"),
        EventKind::QueueEventDelivered { name, .. } => format!("a message in '{name}'"),
        EventKind::OrchestrationCancelRequested { .. } => "the request to cancel".to_string(),
        _ => "something else".to_string(),
    }
}

pub(crate) fn describe_action(action: &Action) -> String {
    match action {
        Action::CallActivity { name, input, .. } if name == recording::PATCH => {
            format!("the change '{input}'")
        }
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
