//! One worker slot on a store that does not signal: fetch, run, fetch again.

use std::sync::Arc;
use std::time::Duration;

use super::activity;
use super::claim::ClaimedActivity;
use super::slot_queue::Start;
use crate::providers::{ProviderError, SessionFetchConfig, WorkClaim};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::FetchBackoff;

/// How long an activity waits if its session would be one too many here.
const SESSION_CAP_DELAY: Duration = Duration::from_millis(100);

/// Works in one slot until the runtime stops.
pub(super) async fn run(core: Arc<Core>, index: usize) {
    let mut backoff = FetchBackoff::default();
    while !core.stop.is_cancelled() {
        let began = core.clock.monotonic();
        let fetched = tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            fetched = fetch(&core, index) => fetched,
        };
        let pause = match fetched {
            Ok(Some(claim)) => {
                backoff.reset();
                dispatch(&core, index, claim).await;
                continue;
            }
            Ok(None) => {
                backoff.reset();
                let spent = core.clock.monotonic().saturating_sub(began);
                core.options.dispatcher_min_poll_interval.saturating_sub(spent)
            }
            Err(error) => {
                tracing::warn!(target: TARGET, %error, retryable = error.retryable, "fetching activities failed");
                backoff.after(&error)
            }
        };
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.clock.sleep(pause) => {}
        }
    }
}

async fn fetch(core: &Core, index: usize) -> Result<Option<WorkClaim>, ProviderError> {
    let options = &core.options;
    let owner = SessionFetchConfig {
        owner_id: core.session_owner(index),
        lock_timeout: options.session_lock_timeout,
    };
    let session = core.sessions.has_room().then_some(&owner);
    let fetched = core
        .store
        .fetch_work_item(
            options.worker_lock_timeout,
            options.dispatcher_long_poll_timeout,
            session,
            &options.worker_tag_filter,
        )
        .await?;
    Ok(fetched.map(|(item, lock_token, attempt_count)| WorkClaim {
        item,
        lock_token,
        attempt_count,
        record: Default::default(),
    }))
}

/// Starts an activity and waits until its slot is free; its result may still be on the way then.
async fn dispatch(core: &Arc<Core>, index: usize, claim: WorkClaim) {
    core.metrics().record_worker_dispatcher_items_fetched(1);
    let Some(claim) = ClaimedActivity::take(core, claim).await else { return };
    let session = match &claim.work.session_id {
        None => None,
        Some(id) => match core.sessions.enter(id, core.clock.monotonic()) {
            Some(session) => Some(session),
            None => {
                // Another slot has taken the last free place for a session.
                tracing::debug!(target: TARGET, session = %id, "no room for another session, giving it back");
                return claim.give_back(core, Some(SESSION_CAP_DELAY)).await;
            }
        },
    };
    let Some(slot) = core.slot_queue.take(index) else { return claim.give_back(core, None).await };
    let start = Start { claim, slot, permit: core.slot_queue.permit() };
    core.work.spawn(activity::run(core.clone(), start, session));
    core.slot_queue.until_free(index).await;
}
