//! The orchestration dispatcher on a store that signals: claims in batches, and waits for signals instead of polling.

use std::sync::Arc;

use super::turn::LeasedClaim;
use super::{steps, turn_capacity};
use crate::providers::{InstanceClaim, ProviderError, WorkQueue, WorkSignal};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::{FetchBackoff, LONGEST_SILENCE};

/// Claims instances and starts their turns until the runtime stops.
pub(super) async fn run(core: Arc<Core>) {
    let Some(store) = core.store.as_extended() else { return };
    let mut signal = store.work_signal(WorkQueue::Orchestrator);
    let mut backoff = FetchBackoff::default();
    loop {
        let Some(wanted) = wanted(&core).await else { return };
        steps::until_timers_are_taken(&core).await;
        signal.mark_seen();
        match claim(&core, wanted).await {
            Ok(claims) => {
                backoff.reset();
                let nothing_is_left = claims.len() < wanted;
                begin_all(&core, claims).await;
                if nothing_is_left {
                    wait_for_more(&core, &mut signal).await;
                }
            }
            Err(error) => {
                tracing::warn!(target: TARGET, %error, retryable = error.retryable, "claiming instances failed");
                let pause = backoff.after(&error);
                tokio::select! {
                    () = core.stop.cancelled() => return,
                    () = core.clock.sleep(pause) => {}
                }
            }
        }
    }
}

/// Waits until a turn could begin, and tells how many to claim; `None` when the runtime stops.
async fn wanted(core: &Core) -> Option<usize> {
    tokio::select! {
        biased;
        () = core.stop.cancelled() => None,
        () = core.turn_capacity.any_free() => Some(core.turn_capacity.wanted(core.options.orchestration_concurrency)),
    }
}

async fn begin_all(core: &Arc<Core>, claims: Vec<InstanceClaim>) {
    if !claims.is_empty() {
        core.metrics().record_orch_dispatcher_items_fetched(claims.len() as u64);
    }
    let claims = residents_first(core, claims);
    // Turns that workers handed over may have taken the permits meanwhile. A turn that waits for one keeps its lease.
    let leased: Vec<_> = claims.into_iter().map(|claim| LeasedClaim::new(core, claim.into())).collect();
    for claim in leased {
        let Some(permit) = core.turn_capacity.permit().await else { return };
        turn_capacity::begin(core, claim, permit);
    }
}

/// Puts the instances that are in memory first, among those that were claimed together: the turns of the others may take
/// their places. The claim was in the order of age, and all of it is taken, so nobody waits longer than for one claim.
fn residents_first(core: &Core, claims: Vec<InstanceClaim>) -> Vec<InstanceClaim> {
    let (mut first, others): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|claim| core.residents.has(&claim.instance));
    first.extend(others);
    first
}

/// Waits until a claim may find something, or the runtime stops. Begins the turns that the store claims for this
/// runtime meanwhile.
async fn wait_for_more(core: &Arc<Core>, signal: &mut WorkSignal) {
    let Some(store) = core.store.as_extended() else { return };
    loop {
        let Some(wanted) = wanted(core).await else { return };
        let request = turn_capacity::request(core, wanted);
        let claims = tokio::select! {
            () = core.stop.cancelled() => return,
            claims = store.wait_for_instances(&request, signal) => claims,
            () = core.clock.sleep(LONGEST_SILENCE) => return,
        };
        let nothing_is_left = !claims.is_empty() && claims.len() < wanted;
        begin_all(core, claims).await;
        if !nothing_is_left {
            return;
        }
    }
}

/// Claims instances. A stop does not interrupt a claim: the dispatcher must know its leases, to give them back.
async fn claim(core: &Core, wanted: usize) -> Result<Vec<InstanceClaim>, ProviderError> {
    let Some(store) = core.store.as_extended() else { return Ok(Vec::new()) };
    store.claim_instances(&turn_capacity::request(core, wanted)).await
}
