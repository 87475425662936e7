//! One orchestration slot on a store that does not signal: fetch, take the turn, fetch again.

use std::sync::Arc;

use super::claim::from_fetch;
use super::turn::{self, LeasedClaim};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::FetchBackoff;

/// Takes turns in one slot until the runtime stops.
pub(super) async fn run(core: Arc<Core>, index: usize) {
    let mut backoff = FetchBackoff::default();
    tracing::debug!(target: TARGET, worker_id = core.turn_worker_id(index), "polling for turns");
    loop {
        let slot = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            slot = core.turn_capacity.slot() => slot,
        };
        let Some(slot) = slot else { return };
        let options = &core.options;
        let began = core.clock.monotonic();
        let fetch = core.store.fetch_orchestration_item(
            options.orchestrator_lock_timeout,
            options.dispatcher_long_poll_timeout,
            Some(&core.filter),
        );
        let fetched = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            fetched = fetch => fetched,
        };
        let pause = match fetched {
            Ok(Some((item, token, attempt_count))) => {
                backoff.reset();
                core.metrics().record_orch_dispatcher_items_fetched(1);
                let (claim, stored) = from_fetch(item, token, attempt_count);
                let leased = LeasedClaim::new(&core, claim);
                core.work.spawn(turn::fetched(core.clone(), leased, stored, slot));
                continue;
            }
            Ok(None) => {
                backoff.reset();
                let spent = core.clock.monotonic().saturating_sub(began);
                options.dispatcher_min_poll_interval.saturating_sub(spent)
            }
            Err(error) => {
                tracing::warn!(target: TARGET, %error, retryable = error.retryable, "fetching turns failed");
                backoff.after(&error)
            }
        };
        drop(slot);
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.clock.sleep(pause) => {}
        }
    }
}
