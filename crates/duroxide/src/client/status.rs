//! How an instance stands.

use super::{Client, ClientError};
use crate::model::{ErrorDetails, Event, EventKind, ExecutionStatus, OrchestrationStatus, SystemStats};
use crate::providers::{ExtendedProvider, InstanceMetadata};

/// How many of the newest events to read for a failure's details, step by step. The failure is the last event, or is
/// followed by one row for each activity that was still running. The first step reads one event, so that older rows
/// that do not decode cannot hide why the instance failed.
const RECENT_EVENTS: [usize; 3] = [1, 32, 1024];

impl Client {
    /// Returns the status of an instance as of its last committed turn.
    ///
    /// The status is `NotFound` until a runtime has taken the first turn, also right after a successful start: the enum
    /// has no other word. [`get_instance_info`](Self::get_instance_info) tells an instance whose start is queued, which
    /// is `Pending`, from one that does not exist. The status is `Running` between two executions.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{:?}", client.get_orchestration_status("order-7").await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn get_orchestration_status(&self, instance: &str) -> Result<OrchestrationStatus, ClientError> {
        match self.extended() {
            Some(store) => self.status_from_metadata(store, instance).await,
            None => self.status_from_history(instance).await,
        }
    }

    /// Returns figures about an instance; `None` if it is unknown.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{:?}", client.get_orchestration_stats("order-7").await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn get_orchestration_stats(&self, instance: &str) -> Result<Option<SystemStats>, ClientError> {
        Ok(self.store.get_instance_stats(instance).await?)
    }

    /// Reads no history, except the end of a failed one.
    async fn status_from_metadata(
        &self,
        store: &dyn ExtendedProvider,
        instance: &str,
    ) -> Result<OrchestrationStatus, ClientError> {
        let Some(metadata) = store.read_metadata(instance).await? else {
            // A history can exist without an instance row, if it was written without a turn.
            return self.status_from_history(instance).await;
        };
        self.described(store, instance, metadata).await
    }

    /// Makes a status of a description.
    pub(super) async fn described(
        &self,
        store: &dyn ExtendedProvider,
        instance: &str,
        metadata: InstanceMetadata,
    ) -> Result<OrchestrationStatus, ClientError> {
        let InstanceMetadata { status, output, custom_status, custom_status_version, .. } = metadata;
        match (ExecutionStatus::parse(&status), output) {
            (Some(ExecutionStatus::Running | ExecutionStatus::ContinuedAsNew), _) => {
                Ok(OrchestrationStatus::Running { custom_status, custom_status_version })
            }
            (Some(ExecutionStatus::Completed), Some(output)) => {
                Ok(OrchestrationStatus::Completed { output, custom_status, custom_status_version })
            }
            (Some(ExecutionStatus::Failed), _) => match recent_failure(store, instance).await? {
                Some(details) => {
                    Ok(OrchestrationStatus::Failed { details, custom_status, custom_status_version })
                }
                None => self.status_from_history(instance).await,
            },
            (Some(ExecutionStatus::Completed) | None, _) => self.status_from_history(instance).await,
        }
    }

    async fn status_from_history(&self, instance: &str) -> Result<OrchestrationStatus, ClientError> {
        let history = self.store.read(instance).await?;
        if history.is_empty() {
            return Ok(OrchestrationStatus::NotFound);
        }
        // The custom status is an extra: a store that cannot tell it does not spoil the answer.
        let custom = self.store.get_custom_status(instance, 0).await.ok().flatten();
        let (custom_status, custom_status_version) = custom.unwrap_or((None, 0));
        Ok(match history.iter().rev().find_map(outcome) {
            Some(Ok(output)) => {
                OrchestrationStatus::Completed { output, custom_status, custom_status_version }
            }
            Some(Err(details)) => {
                OrchestrationStatus::Failed { details, custom_status, custom_status_version }
            }
            None if history.iter().any(is_start) => {
                OrchestrationStatus::Running { custom_status, custom_status_version }
            }
            None => OrchestrationStatus::NotFound,
        })
    }
}

async fn recent_failure(
    store: &dyn ExtendedProvider,
    instance: &str,
) -> Result<Option<ErrorDetails>, ClientError> {
    for limit in RECENT_EVENTS {
        let events = store.read_recent(instance, limit).await?;
        let failure = events.iter().rev().find_map(|event| outcome(event)?.err());
        if failure.is_some() || events.len() < limit {
            return Ok(failure);
        }
    }
    Ok(None)
}

fn outcome(event: &Event) -> Option<Result<String, ErrorDetails>> {
    match &event.kind {
        EventKind::OrchestrationCompleted { output } => Some(Ok(output.clone())),
        EventKind::OrchestrationFailed { details } => Some(Err(details.clone())),
        _ => None,
    }
}

fn is_start(event: &Event) -> bool {
    matches!(event.kind, EventKind::OrchestrationStarted { .. })
}
