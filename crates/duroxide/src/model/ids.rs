//! Ids that users see: where they start, and how children get their names.

/// The execution id of the first run of every instance.
pub const INITIAL_EXECUTION_ID: u64 = 1;

/// The event id of `OrchestrationStarted`, the first event of every execution.
pub const INITIAL_EVENT_ID: u64 = 1;

/// The prefix of a child's id when its parent did not choose one.
pub const SUB_ORCH_AUTO_PREFIX: &str = "sub::";

/// Tells whether the library generated this child id, given as the parent recorded it.
pub fn is_auto_generated_sub_orch_id(instance: &str) -> bool {
    instance.starts_with(SUB_ORCH_AUTO_PREFIX)
}

/// Returns the instance id of a child: a generated id gets its parent's as a prefix, a chosen one stays as it is.
///
/// ```
/// use duroxide::build_child_instance_id;
/// assert_eq!(build_child_instance_id("order", "sub::5"), "order::sub::5");
/// assert_eq!(build_child_instance_id("order", "invoice-7"), "invoice-7");
/// ```
pub fn build_child_instance_id(parent_instance: &str, child_instance: &str) -> String {
    if is_auto_generated_sub_orch_id(child_instance) {
        format!("{parent_instance}::{child_instance}")
    } else {
        child_instance.to_string()
    }
}
