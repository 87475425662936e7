//! From a new action to the event that records it.

use crate::model::{Action, EventKind, INITIAL_EXECUTION_ID, SUB_ORCH_AUTO_PREFIX};

/// The prefix of a child's id until its event id is known.
pub(crate) const PENDING_CHILD_PREFIX: &str = "sub::pending_";

/// The latest time that stores can hold.
pub(crate) const LATEST_TIME_MS: u64 = i64::MAX.unsigned_abs();

/// The name under which a change of the code is recorded: as a system call, whose input is the change's id.
pub(crate) const PATCH: &str = "__duroxide_syscall:patched";

/// The request that records a change of the code.
pub(crate) fn patch(id: String) -> Action {
    Action::CallActivity {
        scheduling_event_id: 0,
        name: PATCH.to_string(),
        input: id,
        session_id: None,
        tag: None,
    }
}

/// The id of the change that an event records.
pub(crate) fn patch_of(kind: &EventKind) -> Option<&str> {
    match kind {
        EventKind::ActivityScheduled { name, input, .. } if name == PATCH => Some(input),
        _ => None,
    }
}

/// Completes an action with the id of its event, and returns the event's content. Continue-as-new has no event.
pub(crate) fn record(action: &mut Action, event_id: u64, execution_id: u64) -> Option<EventKind> {
    Some(match action {
        Action::CallActivity { scheduling_event_id, name, input, session_id, tag } => {
            *scheduling_event_id = event_id;
            EventKind::ActivityScheduled {
                name: name.clone(),
                input: input.clone(),
                session_id: session_id.clone(),
                tag: tag.clone(),
            }
        }
        Action::CreateTimer { scheduling_event_id, fire_at_ms } => {
            *scheduling_event_id = event_id;
            EventKind::TimerCreated { fire_at_ms: *fire_at_ms }
        }
        Action::WaitExternal { scheduling_event_id, name } => {
            *scheduling_event_id = event_id;
            EventKind::ExternalSubscribed { name: name.clone() }
        }
        #[cfg(feature = "replay-version-test")]
        Action::WaitExternal2 { scheduling_event_id, name, topic } => {
            *scheduling_event_id = event_id;
            EventKind::ExternalSubscribed2 { name: name.clone(), topic: topic.clone() }
        }
        Action::DequeueEvent { scheduling_event_id, name } => {
            *scheduling_event_id = event_id;
            EventKind::QueueSubscribed { name: name.clone() }
        }
        Action::StartSubOrchestration { scheduling_event_id, name, instance, input, .. } => {
            *scheduling_event_id = event_id;
            if instance.starts_with(PENDING_CHILD_PREFIX) {
                *instance = generated_child_id(execution_id, event_id);
            }
            EventKind::SubOrchestrationScheduled {
                name: name.clone(),
                instance: instance.clone(),
                input: input.clone(),
            }
        }
        Action::StartOrchestrationDetached { scheduling_event_id, name, instance, input, .. } => {
            *scheduling_event_id = event_id;
            EventKind::OrchestrationChained {
                name: name.clone(),
                instance: instance.clone(),
                input: input.clone(),
            }
        }
        Action::UpdateCustomStatus { status } => EventKind::CustomStatusUpdated { status: status.clone() },
        Action::SetKeyValue { key, value, last_updated_at_ms } => EventKind::KeyValueSet {
            key: key.clone(),
            value: value.clone(),
            last_updated_at_ms: *last_updated_at_ms,
        },
        Action::ClearKeyValue { key } => EventKind::KeyValueCleared { key: key.clone() },
        Action::ClearKeyValues => EventKind::KeyValuesCleared,
        Action::ContinueAsNew { .. } => return None,
    })
}

/// Makes a timer run from now on, if today's code asked for it at a place in the past.
pub(crate) fn move_timer(action: &mut Action, asked_at_ms: u64, now_ms: u64) {
    if let Action::CreateTimer { fire_at_ms, .. } = action {
        let delay_ms = fire_at_ms.saturating_sub(asked_at_ms);
        *fire_at_ms = now_ms.saturating_add(delay_ms).min(LATEST_TIME_MS);
    }
}

/// The recorded id of a child whose parent did not choose one. From the second execution on, the id contains the
/// execution's number, because event ids start over in each.
fn generated_child_id(execution_id: u64, event_id: u64) -> String {
    if execution_id == INITIAL_EXECUTION_ID {
        format!("{SUB_ORCH_AUTO_PREFIX}{event_id}")
    } else {
        format!("{SUB_ORCH_AUTO_PREFIX}{execution_id}_{event_id}")
    }
}
