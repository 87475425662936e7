//! Storing a turn or a result and claiming the work that it leads to, in one step.
//!
//! Such a claim is like any other, in the same order and under the same filters; and a refused call leaves nothing
//! behind and claims nothing.

mod results;
mod turns;
mod waiting;

pub use results::*;
pub use turns::*;
pub use waiting::*;

use std::time::Duration;

use super::support::{Commit, TURN_LEASE, WORK_LEASE, activity_id};
use crate::providers::{
    DispatcherCapabilityFilter, ExtendedProvider, InstanceClaim, InstanceRequest, ProviderError,
    StoredResult, StoredTurn, TagFilter, TurnToStore, WorkClaim, WorkRequest,
};

/// Far longer than a sync takes; a check that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Activities of any tag and no session.
fn work(max: usize) -> WorkRequest<'static> {
    WorkRequest { max, lock_timeout: WORK_LEASE, session: None, tag_filter: &TagFilter::Any }
}

/// Instances that this filter lets through.
fn instances(max: usize, filter: Option<&DispatcherCapabilityFilter>) -> InstanceRequest<'_> {
    InstanceRequest { max, lock_timeout: TURN_LEASE, filter }
}

async fn try_store_turn(
    extended: &dyn ExtendedProvider,
    token: &str,
    commit: &Commit,
    claim: Option<&WorkRequest<'_>>,
) -> Result<StoredTurn, ProviderError> {
    let turn = TurnToStore {
        activity_options: &[],
        lock_token: token,
        execution_id: commit.execution_id,
        history_delta: &commit.events,
        worker_items: &commit.work,
        orchestrator_items: &commit.messages,
        metadata: &commit.metadata,
        cancelled_activities: &commit.cancelled,
    };
    extended.store_turn(turn, claim).await
}

async fn store_turn(
    extended: &dyn ExtendedProvider,
    token: &str,
    commit: &Commit,
    claim: Option<&WorkRequest<'_>>,
) -> StoredTurn {
    try_store_turn(extended, token, commit, claim).await.expect("store_turn should work")
}

/// Waits until a result is durable, and returns the claims that came with it.
async fn settled(stored: Result<StoredResult, ProviderError>) -> Vec<InstanceClaim> {
    let StoredResult { claims, durable } = stored.expect("store_result should work");
    let waited = tokio::time::timeout(PATIENCE, durable.wait()).await;
    waited.expect("a result should become durable by itself").expect("the store should make it durable");
    claims
}

fn ids(claims: &[WorkClaim]) -> Vec<u64> {
    claims.iter().map(|claim| activity_id(&claim.item)).collect()
}

fn names(claims: &[InstanceClaim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.instance.as_str()).collect()
}
