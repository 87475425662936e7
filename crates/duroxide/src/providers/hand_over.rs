//! Storing something and claiming what it leads to, in one step.
//!
//! A sequential step takes four calls: claim the instance, store its turn, claim the activity, store its result. If
//! both ends are in one process, two are enough: the turn's commit claims activities for a worker that has room, and
//! the result's commit claims an instance for a turn. Both leave the same rows behind as the long way, for a crash may
//! come at any point.

use tokio::sync::oneshot;

use super::{ExecutionMetadata, InstanceClaim, ProviderError, ScheduledActivityIdentifier, WorkClaim};
use crate::model::{Event, WorkItem};

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
    /// New messages.
    pub orchestrator_items: &'a [WorkItem],
    /// What changes about instance and execution.
    pub metadata: &'a ExecutionMetadata,
    /// Activities that nobody waits for any more.
    pub cancelled_activities: &'a [ScheduledActivityIdentifier],
}

/// A turn that was stored.
#[derive(Debug, Default)]
pub struct StoredTurn {
    /// Which creation of its id the instance is; 0 if it has no row.
    pub incarnation: u64,
    /// Activities that were claimed along with it: the oldest ones, whoever scheduled them.
    pub claims: Vec<WorkClaim>,
}

/// A result that was stored.
#[derive(Debug)]
pub struct StoredResult {
    /// Instances that were claimed along with it: those with the oldest message, whether or not it is this result.
    pub claims: Vec<InstanceClaim>,
    /// Tells when the result is safe.
    pub durable: Durable,
}

/// Tells when something that was committed survives a power cut.
///
/// A result whose turn follows at once need not be synced by itself: the turn's commit comes later in the same log, so
/// what makes the turn durable makes the result durable too. Whoever reports the result to others waits for that.
#[derive(Debug)]
pub struct Durable(Option<oneshot::Receiver<Result<(), ProviderError>>>);

impl Durable {
    /// It is durable already.
    pub fn already() -> Self {
        Self(None)
    }

    /// It is durable when the sender says so.
    pub fn when(told: oneshot::Receiver<Result<(), ProviderError>>) -> Self {
        Self(Some(told))
    }

    /// Waits until it is durable.
    ///
    /// # Errors
    /// If the store could not make sure of it. What was committed may then be there or not after a power cut.
    pub async fn wait(self) -> Result<(), ProviderError> {
        let Some(told) = self.0 else { return Ok(()) };
        told.await.unwrap_or_else(|_| Err(ProviderError::retryable("sync", "the store was closed")))
    }
}
