//! The orchestration dispatcher on a store that signals: claims in batches, and waits without asking.

use std::sync::Arc;

use super::seats;
use crate::providers::{InstanceClaim, ProviderError, WorkQueue};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::FetchBackoff;

/// Claims instances and starts their turns until the runtime stops.
pub(super) async fn run(core: Arc<Core>) {
    let Some(store) = core.store.as_extended() else { return };
    let mut signal = store.work_signal(WorkQueue::Orchestrator);
    let mut backoff = FetchBackoff::default();
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.seats.any_free() => {}
        }
        signal.mark_seen();
        match claim(&core).await {
            Ok(claims) if claims.is_empty() => {
                backoff.reset();
                tokio::select! {
                    () = core.stop.cancelled() => return,
                    () = signal.wait() => {}
                }
            }
            Ok(claims) => {
                backoff.reset();
                core.metrics().record_orch_dispatcher_items_fetched(claims.len() as u64);
                for claim in claims {
                    let Some(seat) = core.seats.take().await else { return };
                    seats::begin(&core, claim, seat);
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

/// A claim is not interrupted by a stop: what it has leased must be known, to be given back.
async fn claim(core: &Core) -> Result<Vec<InstanceClaim>, ProviderError> {
    let Some(store) = core.store.as_extended() else { return Ok(Vec::new()) };
    let wanted = core.seats.wanted(core.options.orchestration_concurrency);
    store.claim_instances(&seats::request(core, wanted)).await
}
