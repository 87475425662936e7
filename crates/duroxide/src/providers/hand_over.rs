//! Stores a result and claims the work that it leads to, in one step.
//!
//! A sequential step takes four calls: claim the instance, store its turn, claim the activity, store its result. If
//! dispatcher and worker are in one process, two calls are enough: the turn's commit claims activities for a worker
//! that has room, and the result's commit claims an instance for a turn. Both leave the same rows as the four calls,
//! because a crash may come at any point.

use tokio::sync::oneshot;

use super::{ExecutionMetadata, InstanceClaim, ProviderError, ScheduledActivityIdentifier, WorkClaim};
use crate::model::{ActivityOptions, Event, WorkItem};

/// The arguments of [`ack_orchestration_item`](super::Provider::ack_orchestration_item), borrowed.
#[derive(Debug, Clone, Copy)]
pub struct TurnToStore<'a> {
    /// The lease on the instance.
    pub lock_token: &'a str,
    /// The execution that the turn belongs to.
    pub execution_id: u64,
    /// The new events.
    pub history_delta: &'a [Event],
    /// New activities.
    pub worker_items: &'a [WorkItem],
    /// The options of new activities, by their ids within the execution, where the code gave any. Empty unless the
    /// store [keeps attempts](super::ExtendedProvider::keeps_attempts).
    pub activity_options: &'a [(u64, ActivityOptions)],
    /// New messages.
    pub orchestrator_items: &'a [WorkItem],
    /// The changes of instance and execution.
    pub metadata: &'a ExecutionMetadata,
    /// Activities that the orchestration no longer waits for.
    pub cancelled_activities: &'a [ScheduledActivityIdentifier],
}

impl<'a> TurnToStore<'a> {
    /// Returns the options of a new activity, if the code gave any.
    pub fn options_of(&self, item: &WorkItem) -> Option<&'a ActivityOptions> {
        let WorkItem::ActivityExecute { id: activity_id, .. } = item else { return None };
        self.activity_options.iter().find(|(id, _)| id == activity_id).map(|(_, options)| options)
    }
}

/// A turn that was stored.
#[derive(Debug, Default)]
pub struct StoredTurn {
    /// Which creation of its id the instance is; 0 if it has no row.
    pub incarnation: u64,
    /// Activities that the commit claimed: the oldest ones, whichever instance scheduled them.
    pub claims: Vec<WorkClaim>,
}

/// A result that was stored.
#[derive(Debug)]
pub struct StoredResult {
    /// Instances that the commit claimed: those with the oldest message, whether or not that is this result.
    pub claims: Vec<InstanceClaim>,
    /// Resolves when the result is safe.
    pub durable: Durable,
}

/// Resolves when a commit survives a power cut.
///
/// A result whose turn follows at once needs no sync of its own: the turn's commit comes later in the same log, so the
/// sync that makes the turn durable makes the result durable too. A caller that reports the result to others waits for
/// this first.
#[derive(Debug)]
pub struct Durable(Option<oneshot::Receiver<Result<(), ProviderError>>>);

impl Durable {
    /// Makes one for a commit that is already durable.
    pub fn already() -> Self {
        Self(None)
    }

    /// Makes one for a commit that is durable when the sender says so.
    pub fn when(told: oneshot::Receiver<Result<(), ProviderError>>) -> Self {
        Self(Some(told))
    }

    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// If the store could not make sure. The commit may then survive a power cut or not.
    pub async fn wait(self) -> Result<(), ProviderError> {
        let Some(told) = self.0 else { return Ok(()) };
        told.await.unwrap_or_else(|_| Err(ProviderError::retryable("sync", "the store was closed")))
    }
}
