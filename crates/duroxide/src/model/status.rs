//! How an instance is described to applications.

use super::{ErrorDetails, Event, EventKind};

/// What became of an instance, as of its last committed turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields carry the names of what they hold")]
pub enum OrchestrationStatus {
    /// No turn was taken yet, or the instance does not exist.
    NotFound,
    /// It goes on.
    Running { custom_status: Option<String>, custom_status_version: u64 },
    /// It returned a result.
    Completed { output: String, custom_status: Option<String>, custom_status_version: u64 },
    /// It failed or was cancelled.
    Failed { details: ErrorDetails, custom_status: Option<String>, custom_status_version: u64 },
}

/// Which orchestration an instance runs, and who started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrchestrationDescriptor {
    /// The orchestration's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The parent, if the instance is a child.
    pub parent_instance: Option<String>,
    /// The event of the parent that scheduled it.
    pub parent_id: Option<u64>,
}

impl OrchestrationDescriptor {
    /// Takes the description from the newest start event.
    pub(crate) fn from_history(history: &[Event]) -> Option<Self> {
        history.iter().rev().find_map(|event| match &event.kind {
            EventKind::OrchestrationStarted { name, version, parent_instance, parent_id, .. } => Some(Self {
                name: name.clone(),
                version: version.clone(),
                parent_instance: parent_instance.clone(),
                parent_id: *parent_id,
            }),
            _ => None,
        })
    }
}
