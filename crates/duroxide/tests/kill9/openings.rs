//! Which events of a history end which others.

use duroxide::EventKind;

/// Tells whether an event asks for work that an execution waits for, or gives up.
pub fn is_work(kind: &EventKind) -> bool {
    matches!(kind, EventKind::ActivityScheduled { .. } | EventKind::SubOrchestrationScheduled { .. })
}

/// Tells whether an event gives something up.
pub fn is_cancel(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ActivityCancelRequested { .. }
            | EventKind::SubOrchestrationCancelRequested { .. }
            | EventKind::ExternalSubscribedCancelled { .. }
            | EventKind::QueueSubscriptionCancelled { .. }
            | EventKind::OrchestrationCancelRequested { .. }
    )
}

/// Tells whether an event of this kind can be ended.
pub type Opens = fn(&EventKind) -> bool;

/// For an event that ends something: which kind of event it can end.
pub fn expected_opening(kind: &EventKind) -> Option<Opens> {
    Some(match kind {
        EventKind::ActivityCompleted { .. }
        | EventKind::ActivityFailed { .. }
        | EventKind::ActivityCancelRequested { .. } => {
            |kind| matches!(kind, EventKind::ActivityScheduled { .. })
        }
        EventKind::TimerFired { .. } => |kind| matches!(kind, EventKind::TimerCreated { .. }),
        EventKind::SubOrchestrationCompleted { .. }
        | EventKind::SubOrchestrationFailed { .. }
        | EventKind::SubOrchestrationCancelRequested { .. } => {
            |kind| matches!(kind, EventKind::SubOrchestrationScheduled { .. })
        }
        _ => return None,
    })
}
