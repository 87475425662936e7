//! Whether there is an instance that could take a message.

use super::{Client, ClientError};
use crate::model::{ExecutionStatus, OrchestrationStatus};

/// What the store knows of the receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It runs, or its start is queued. The number tells one creation of an id from the next; 0 if it is not known yet.
    Alive(u64),
    Ended,
    Absent,
    /// The store does not tell a queued start from nothing.
    Unknown,
}

impl Client {
    /// Looks for the receiver of a message. Reads no history.
    pub(super) async fn presence(&self, instance: &str) -> Result<Presence, ClientError> {
        let described = match self.extended() {
            Some(store) => store.read_metadata(instance).await?,
            None => None,
        };
        let Some(metadata) = described else {
            return Ok(match self.get_orchestration_status(instance).await? {
                OrchestrationStatus::Running { .. } => Presence::Alive(0),
                OrchestrationStatus::Completed { .. } | OrchestrationStatus::Failed { .. } => Presence::Ended,
                OrchestrationStatus::NotFound if self.extended().is_some() => Presence::Absent,
                OrchestrationStatus::NotFound => Presence::Unknown,
            });
        };
        Ok(match ExecutionStatus::parse(&metadata.status) {
            Some(ExecutionStatus::Completed | ExecutionStatus::Failed) => Presence::Ended,
            _ => Presence::Alive(metadata.incarnation),
        })
    }
}
