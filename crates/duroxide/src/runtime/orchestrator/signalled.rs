//! The orchestration dispatcher on a store that signals: claims in batches, and waits without asking.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::turn::{self, LeasedClaim};
use crate::providers::{InstanceClaim, InstanceRequest, ProviderError, WorkQueue};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::FetchBackoff;
use crate::runtime::pace::Pace;

/// The most instances that are claimed together.
const LARGEST_BATCH: usize = 64;

/// The most turns that are under way at once, those included that are being loaded or stored.
const MOST_UNDER_WAY: usize = 256;

/// Claims instances and starts their turns until the runtime stops.
pub(super) async fn run(core: Arc<Core>, slots: Arc<Semaphore>) {
    let Some(store) = core.store.as_extended() else { return };
    let mut signal = store.work_signal(WorkQueue::Orchestrator);
    let under_way = Arc::new(Semaphore::new(MOST_UNDER_WAY));
    let pace = Arc::new(Pace::new(LARGEST_BATCH));
    let mut backoff = FetchBackoff::default();
    loop {
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            // Just to wait until there is room at all.
            _ = under_way.acquire() => {}
        }
        signal.mark_seen();
        let room = under_way.available_permits().max(1);
        let wanted = pace.batch(core.options.orchestration_concurrency).min(room);
        match claim(&core, wanted).await {
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
                    let leased = LeasedClaim::new(&core, claim.into());
                    let Ok(permit) = under_way.clone().acquire_owned().await else { return };
                    let taken = turn::claimed(core.clone(), leased, slots.clone(), pace.clone());
                    core.work.spawn(async move {
                        taken.await;
                        drop(permit);
                    });
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
async fn claim(core: &Core, max: usize) -> Result<Vec<InstanceClaim>, ProviderError> {
    let Some(store) = core.store.as_extended() else { return Ok(Vec::new()) };
    let lock_timeout = core.options.orchestrator_lock_timeout;
    store.claim_instances(&InstanceRequest { max, lock_timeout, filter: Some(&core.filter) }).await
}
