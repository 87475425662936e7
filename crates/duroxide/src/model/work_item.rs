//! The messages in the two queues.

use serde::{Deserialize, Serialize};

use super::ErrorDetails;

/// A message: an activity to run (worker queue), or news for an instance (orchestrator queue).
///
/// Its JSON is the stored format: the variant's name as the only key. Later versions added fields; old messages lack
/// them.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum WorkItem {
    /// Start an instance.
    StartOrchestration {
        /// The id of the new instance.
        instance: String,
        /// The registered name of what it runs.
        orchestration: String,
        /// What the orchestration gets, as text.
        input: String,
        /// The version that it must have; `None` for the one that the runtime chooses at the start.
        version: Option<String>,
        /// The parent that waits for the result, if the instance is a child.
        parent_instance: Option<String>,
        /// The parent's event that asked for the child.
        parent_id: Option<u64>,
        /// The parent's execution that asked for the child; messages of older versions lack it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        /// The number of the execution that begins: 1 for a new instance.
        execution_id: u64,
    },
    /// Run an activity; the only kind in the worker queue.
    ActivityExecute {
        /// The instance that waits for the result.
        instance: String,
        /// The execution that asked for the activity. A result for an earlier one disturbs nobody.
        execution_id: u64,
        /// The event that asked for it, which the result names.
        id: u64,
        /// The registered name of the activity.
        name: String,
        /// What it gets, as text.
        input: String,
        /// The session whose worker has to run it; `None` for any worker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        /// What a worker must serve to get it; `None` for workers that take work without a tag.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// An activity returned a result.
    ActivityCompleted {
        /// The instance that the message is for.
        instance: String,
        /// The execution that asked for it. A later execution ignores the message.
        execution_id: u64,
        /// The event that asked for the activity.
        id: u64,
        /// What the activity returned, as text.
        result: String,
    },
    /// An activity failed.
    ActivityFailed {
        /// The instance that the message is for.
        instance: String,
        /// The execution that asked for it. A later execution ignores the message.
        execution_id: u64,
        /// The event that asked for the activity.
        id: u64,
        /// Why it failed.
        details: ErrorDetails,
    },
    /// A timer is due.
    TimerFired {
        /// The instance that the message is for.
        instance: String,
        /// The execution that asked for it. A later execution ignores the message.
        execution_id: u64,
        /// The event that set the timer.
        id: u64,
        /// When the timer is due, in milliseconds since the epoch. The store delivers the message no earlier.
        fire_at_ms: u64,
    },
    /// A signal was raised.
    ExternalRaised {
        /// The instance that the message is for.
        instance: String,
        /// The name that a wait must have to take the signal.
        name: String,
        /// What the waiting code gets, as text.
        data: String,
    },
    /// A child returned a result.
    SubOrchCompleted {
        /// The instance that waits for the child, and gets this message.
        parent_instance: String,
        /// The parent's execution that asked for the child. A later execution ignores the message.
        parent_execution_id: u64,
        /// The parent's event that asked for the child.
        parent_id: u64,
        /// What the child returned, as text.
        result: String,
    },
    /// A child failed.
    SubOrchFailed {
        /// The instance that waits for the child, and gets this message.
        parent_instance: String,
        /// The parent's execution that asked for the child. A later execution ignores the message.
        parent_execution_id: u64,
        /// The parent's event that asked for the child.
        parent_id: u64,
        /// Why the child failed.
        details: ErrorDetails,
    },
    /// Cancel the instance.
    CancelInstance {
        /// The instance that the message is for.
        instance: String,
        /// The reason that the caller gave; it ends up in the instance's failure.
        reason: String,
    },
    /// Begin the next execution.
    ContinueAsNew {
        /// The instance that goes on.
        instance: String,
        /// The registered name of what it runs.
        orchestration: String,
        /// What the next execution gets, as text.
        input: String,
        /// The version that it must have; `None` for the one that the runtime chooses.
        version: Option<String>,
        /// The parent that waits for the result, if the instance is a child.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_instance: Option<String>,
        /// The parent's event that asked for the child.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_id: Option<u64>,
        /// The parent's execution that asked for the child; messages of older versions lack it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        /// The queue messages that nobody has read yet, oldest first: the queue's name and the data of each.
        #[serde(default)]
        carry_forward_events: Vec<(String, String)>,
        /// The custom status with which the next execution begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initial_custom_status: Option<String>,
    },
    /// A message for one of the instance's queues.
    QueueMessage {
        /// The instance that the message is for.
        instance: String,
        /// The name of the queue.
        name: String,
        /// What the reader of the queue gets, as text.
        data: String,
    },
    /// A signal on a topic was raised.
    #[cfg(feature = "replay-version-test")]
    ExternalRaised2 {
        /// The instance that the message is for.
        instance: String,
        /// The name that a wait must have to take the signal.
        name: String,
        /// The topic that the wait must have as well.
        topic: String,
        /// What the waiting code gets, as text.
        data: String,
    },
}

/// Returns the kind of a message, as logs show it. A queue message keeps its historic name.
pub fn kind_of(msg: &WorkItem) -> &'static str {
    match msg {
        WorkItem::StartOrchestration { .. } => "StartOrchestration",
        WorkItem::ActivityExecute { .. } => "ActivityExecute",
        WorkItem::ActivityCompleted { .. } => "ActivityCompleted",
        WorkItem::ActivityFailed { .. } => "ActivityFailed",
        WorkItem::TimerFired { .. } => "TimerFired",
        WorkItem::ExternalRaised { .. } => "ExternalRaised",
        WorkItem::SubOrchCompleted { .. } => "SubOrchCompleted",
        WorkItem::SubOrchFailed { .. } => "SubOrchFailed",
        WorkItem::CancelInstance { .. } => "CancelInstance",
        WorkItem::ContinueAsNew { .. } => "ContinueAsNew",
        WorkItem::QueueMessage { .. } => "ExternalRaisedPersistent",
        #[cfg(feature = "replay-version-test")]
        WorkItem::ExternalRaised2 { .. } => "ExternalRaised2",
    }
}
