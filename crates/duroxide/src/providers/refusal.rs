//! The refusals of all our stores, in the same words.
//!
//! Clients and tests search for parts of these texts, so each exists once. Each is permanent: the same call will never
//! succeed. Authors of other stores are welcome to use them.

use super::{FinishedActivity, ProviderError, StepCause, StepSupport, StepToStore};
use crate::model::WorkItem;

fn refuse(operation: &str, message: impl Into<String>) -> ProviderError {
    ProviderError::permanent(operation, message)
}

/// The token of a turn is unknown: never handed out, already used, or taken over by another caller.
pub fn unknown_turn_token(operation: &str) -> ProviderError {
    refuse(operation, UNKNOWN_TURN_TOKEN)
}

/// Tells whether a store refused a turn because of its lease: that has run out, or is another's.
pub fn is_about_turn_lease(error: &ProviderError) -> bool {
    !error.retryable && [UNKNOWN_TURN_TOKEN, TURN_LEASE_EXPIRED].contains(&error.message.as_str())
}

const UNKNOWN_TURN_TOKEN: &str = "Invalid lock token";
const TURN_LEASE_EXPIRED: &str = "Instance lock expired";

/// The lease of a turn ran out before its ack.
pub fn turn_lease_expired() -> ProviderError {
    refuse("ack_orchestration_item", TURN_LEASE_EXPIRED)
}

/// The lease of a turn cannot be renewed any more.
pub fn turn_not_renewable() -> ProviderError {
    refuse("renew_orchestration_item_lock", "Lock token invalid, expired, or already acked")
}

/// The activity was cancelled, or its lease ran out.
pub fn work_not_held() -> ProviderError {
    refuse(
        "ack_work_item",
        "Activity was cancelled or lock expired (worker queue row not found or lock invalid)",
    )
}

/// The activity was cancelled, or its lease ran out.
pub fn work_not_renewable() -> ProviderError {
    refuse("renew_work_item_lock", "Lock renewal failed - activity was cancelled or lock expired")
}

/// The token of a work item is unknown.
pub fn unknown_work_token() -> ProviderError {
    refuse("abandon_work_item", "Invalid lock token or already acked")
}

/// Tells whether a store refused because the caller does not hold the activity.
pub fn is_unknown_work_token(error: &ProviderError) -> bool {
    !error.retryable && error.message == unknown_work_token().message
}

/// A worker may only report the completion or failure of its activity.
pub fn wrong_completion() -> ProviderError {
    refuse("ack_work_item", "Invalid completion type for worker ack")
}

/// The item does not belong in this queue.
pub fn wrong_queue(operation: &str) -> ProviderError {
    refuse(operation, "Invalid work item type")
}

/// The store lacks an ability beyond the published contract.
pub fn not_supported(operation: &str) -> ProviderError {
    refuse(operation, NOT_SUPPORTED)
}

/// Tells whether a store refused because it lacks the ability.
pub fn is_not_supported(error: &ProviderError) -> bool {
    !error.retryable && error.message == NOT_SUPPORTED
}

const NOT_SUPPORTED: &str = "Not supported by this store";

/// Checks that a start and a message can go together: each is of its kind, and both are for the same instance.
///
/// # Errors
/// The refusal, if they cannot.
pub fn check_start_with_message(
    operation: &str,
    start: &WorkItem,
    message: &WorkItem,
) -> Result<(), ProviderError> {
    match (start, message) {
        (
            WorkItem::StartOrchestration { instance: started, .. },
            WorkItem::QueueMessage { instance: told, .. },
        ) if started == told => Ok(()),
        (WorkItem::StartOrchestration { .. }, WorkItem::QueueMessage { .. }) => {
            Err(refuse(operation, "The message is for another instance than the start"))
        }
        _ => Err(wrong_queue(operation)),
    }
}

/// Checks that a step is one, and one that the store supports.
///
/// # Errors
/// The refusal, if it is not.
pub fn check_step(
    operation: &str,
    step: &StepToStore<'_>,
    support: StepSupport,
) -> Result<(), ProviderError> {
    let Some(first) = step.turns.first() else {
        return Err(refuse(operation, "A step has at least one turn"));
    };
    if step.turns.len() > support.turns {
        return Err(refuse(operation, format!("A step has at most {} turns here", support.turns)));
    }
    let instance = first.held.instance;
    let is_ours = match step.cause {
        StepCause::Lease => support.turns > 1,
        StepCause::Results(results) => {
            let is_for_it = |result: &FinishedActivity<'_>| match result.completion {
                WorkItem::ActivityCompleted { instance: to, .. }
                | WorkItem::ActivityFailed { instance: to, .. } => to == instance,
                _ => false,
            };
            support.results && !results.is_empty() && results.iter().all(is_for_it)
        }
        StepCause::Start(start) => {
            support.starts
                && matches!(start, WorkItem::StartOrchestration { instance: to, .. } if to == instance)
        }
        StepCause::Timer(timer) => {
            support.timers && matches!(timer, WorkItem::TimerFired { instance: to, .. } if to == instance)
        }
    };
    match is_ours {
        true => Ok(()),
        false => {
            Err(refuse(operation, "The cause of the step is not for its first instance, or not supported"))
        }
    }
}

/// An event without an id: ids come from the runtime, never from a store.
pub fn event_without_id(operation: &str) -> ProviderError {
    refuse(operation, "Failed to append history: event_id must be set by runtime")
}

/// An event whose id is taken.
pub fn duplicate_event(operation: &str, instance: &str, execution_id: u64, event_id: u64) -> ProviderError {
    refuse(
        operation,
        format!(
            "Failed to append history: instance {instance}, execution {execution_id} already has an event {event_id}"
        ),
    )
}

/// A stored event does not parse.
pub fn undecodable_history(operation: &str, reason: &str) -> ProviderError {
    refuse(operation, history_error(reason))
}

/// The text of `OrchestrationItem::history_error`. Leaves out the values in the reason.
pub fn history_error(reason: &str) -> String {
    format!("Failed to deserialize history: {}", super::inspect::without_values(reason))
}

/// No such instance.
pub fn instance_not_found(operation: &str, instance: &str) -> ProviderError {
    refuse(operation, format!("Instance {instance} not found"))
}

/// No such execution.
pub fn execution_not_found(instance: &str, execution_id: u64) -> ProviderError {
    refuse("get_execution_info", format!("Execution {execution_id} not found for instance {instance}"))
}

/// A running instance can be deleted only by force.
pub fn still_running(instance: &str) -> ProviderError {
    refuse(
        "delete_instances_atomic",
        format!("Instance {instance} is still running. Use force=true to delete anyway, or cancel first."),
    )
}

/// A child can be deleted only with its root.
pub fn child_deletion(instance: &str) -> ProviderError {
    refuse(
        "delete_instance",
        format!("Cannot delete sub-orchestration {instance} directly. Delete root instance instead."),
    )
}

/// A deletion would leave a child behind.
pub fn orphaned_child(parent: &str, child: &str) -> ProviderError {
    refuse(
        "delete_instances_atomic",
        format!(
            "Cannot delete: instance {parent} has child {child} that was created after tree traversal. Re-fetch the tree and retry."
        ),
    )
}

/// An id or name that is empty.
pub fn empty_field(operation: &str, field: &str) -> ProviderError {
    refuse(operation, format!("{field} must not be empty"))
}

/// An id or payload beyond the store's limit.
pub fn too_large(operation: &str, field: &str, bytes: usize, limit: usize) -> ProviderError {
    refuse(operation, format!("{field} is {bytes} bytes long; this store takes at most {limit}"))
}
