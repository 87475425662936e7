//! The message that reminds an instance of an activity that a worker must have begun by then.
//!
//! The turn that schedules an activity with a schedule-to-start time-out also sends its own instance a message that is due
//! when the time is over. The runtime that claims the message fails the activity if no worker has begun it. So the time-out
//! needs no worker that would take the activity, and an activity without one costs nothing.
//!
//! The message has the shape of a timer's, of the execution 0, which no instance has. A build that does not know it takes it
//! for a timer of an earlier execution and drops it. The history records neither the message nor its effect, only the
//! failure.

use super::WorkItem;

const NO_EXECUTION: u64 = 0;

/// Makes the reminder of an activity.
pub(crate) fn start_reminder(instance: &str, activity_id: u64, due_at_ms: u64) -> WorkItem {
    WorkItem::TimerFired {
        instance: instance.to_string(),
        execution_id: NO_EXECUTION,
        id: activity_id,
        fire_at_ms: due_at_ms,
    }
}

/// Returns the activity that a message is a reminder of; `None` for any other message.
pub(crate) fn reminded_activity(message: &WorkItem) -> Option<u64> {
    match message {
        WorkItem::TimerFired { execution_id: NO_EXECUTION, id, .. } => Some(*id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_is_no_timer_of_an_execution() {
        let reminder = start_reminder("order-7", 2, 30_001);
        let text = r#"{"TimerFired":{"instance":"order-7","execution_id":0,"id":2,"fire_at_ms":30001}}"#;
        assert_eq!(serde_json::to_string(&reminder).unwrap(), text);
        assert_eq!(reminded_activity(&reminder), Some(2));
        let timer =
            WorkItem::TimerFired { instance: "order-7".into(), execution_id: 1, id: 2, fire_at_ms: 30_001 };
        assert_eq!(reminded_activity(&timer), None);
    }
}
