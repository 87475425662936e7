//! The messages in the two queues.

use serde::{Deserialize, Serialize};

use super::ErrorDetails;

/// A message: an activity to run (worker queue), or news for an instance (orchestrator queue).
///
/// Its JSON is the stored format: the variant's name as the only key. Later versions added fields; old messages lack
/// them.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the ids and payloads that the variants' texts name")]
pub enum WorkItem {
    /// Start an instance.
    StartOrchestration {
        instance: String,
        orchestration: String,
        input: String,
        version: Option<String>,
        parent_instance: Option<String>,
        parent_id: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        execution_id: u64,
    },
    /// Run an activity; the only kind in the worker queue.
    ActivityExecute {
        instance: String,
        execution_id: u64,
        id: u64,
        name: String,
        input: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// An activity returned a result.
    ActivityCompleted { instance: String, execution_id: u64, id: u64, result: String },
    /// An activity failed.
    ActivityFailed { instance: String, execution_id: u64, id: u64, details: ErrorDetails },
    /// A timer is due.
    TimerFired { instance: String, execution_id: u64, id: u64, fire_at_ms: u64 },
    /// A signal was raised.
    ExternalRaised { instance: String, name: String, data: String },
    /// A child returned a result.
    SubOrchCompleted { parent_instance: String, parent_execution_id: u64, parent_id: u64, result: String },
    /// A child failed.
    SubOrchFailed { parent_instance: String, parent_execution_id: u64, parent_id: u64, details: ErrorDetails },
    /// Cancel the instance.
    CancelInstance { instance: String, reason: String },
    /// Begin the next execution.
    ContinueAsNew {
        instance: String,
        orchestration: String,
        input: String,
        version: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_instance: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_id: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        #[serde(default)]
        carry_forward_events: Vec<(String, String)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initial_custom_status: Option<String>,
    },
    /// A message for one of the instance's queues.
    QueueMessage { instance: String, name: String, data: String },
    /// A signal on a topic was raised.
    #[cfg(feature = "replay-version-test")]
    ExternalRaised2 { instance: String, name: String, topic: String, data: String },
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
