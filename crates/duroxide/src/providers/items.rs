//! The values that travel between the runtime and a store.

use std::collections::HashMap;
use std::time::Duration;

use semver::Version;

use crate::model::{Event, KvEntry, WorkItem};

/// Names one activity: the event that scheduled it, in its execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledActivityIdentifier {
    /// The instance that scheduled it.
    pub instance: String,
    /// The execution of that instance.
    pub execution_id: u64,
    /// The event id of `ActivityScheduled`, equal to `id` of the work item.
    pub activity_id: u64,
}

/// A caller that takes activities of sessions, and for how long it owns a session.
#[derive(Debug, Clone)]
pub struct SessionFetchConfig {
    /// The owner; all callers with the same id share its sessions.
    pub owner_id: String,
    /// How long a session belongs to its owner after a fetch.
    pub lock_timeout: Duration,
}

/// A turn to take: an instance, its history and the messages that arrived for it.
#[derive(Debug, Clone)]
pub struct OrchestrationItem {
    /// The instance.
    pub instance: String,
    /// The orchestration that it runs.
    pub orchestration_name: String,
    /// Its current execution.
    pub execution_id: u64,
    /// The version of the orchestration; `unknown` when it is not known yet.
    pub version: String,
    /// The history of the current execution, in the order of event ids.
    pub history: Vec<Event>,
    /// The messages, in the order in which senders enqueued them.
    pub messages: Vec<WorkItem>,
    /// Set when the stored history cannot be decoded; `history` is then empty.
    pub history_error: Option<String>,
    /// The key-value store as it was when the current execution began.
    pub kv_snapshot: HashMap<String, KvEntry>,
}

/// The changes that a turn makes to its instance and execution.
#[derive(Debug, Clone, Default)]
pub struct ExecutionMetadata {
    /// `Completed`, `Failed` or `ContinuedAsNew`; `None` leaves the status as it is.
    pub status: Option<String>,
    /// The result, the error's text, or the next execution's input.
    pub output: Option<String>,
    /// With the version: creates the instance if it does not exist.
    pub orchestration_name: Option<String>,
    /// With the name: creates the instance if it does not exist.
    pub orchestration_version: Option<String>,
    /// The parent, for a child's first turn.
    pub parent_instance_id: Option<String>,
    /// The version of the package that started the execution; sent with its first event.
    pub pinned_duroxide_version: Option<Version>,
}
