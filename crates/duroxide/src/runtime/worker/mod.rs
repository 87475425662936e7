//! Runs activities.
//!
//! [`dispatcher`] claims activities from the store; [`activity`] handles one that is claimed.

mod activity;
mod attempt;
mod builtin;
mod claim;
mod dispatcher;
#[cfg(test)]
mod dispatcher_tests;
mod guarded;
mod result;
mod slot_queue;
#[cfg(test)]
mod slot_queue_tests;

use std::sync::Arc;

use super::core::Core;
use super::sessions;
use crate::model::WorkItem;
use crate::providers::{TagFilter, WorkClaim, WorkRequest};
use claim::ClaimedActivity;

pub(crate) use builtin::with_builtins;
pub(crate) use slot_queue::{Reservation, SlotQueue};

/// Reserves room for the activities of a turn that is about to be stored; `None` if this runtime should claim none of
/// them now. Leaves activities of sessions to the dispatcher, which knows which slot owns them.
pub(crate) fn reserve<'a>(core: &Core, items: impl IntoIterator<Item = &'a WorkItem>) -> Option<Reservation> {
    let is_free = |item: &&WorkItem| matches!(item, WorkItem::ActivityExecute { session_id: None, .. });
    let wanted = items.into_iter().filter(is_free).count();
    // While renewals are late, the store may hand out activities again that are still under way here.
    if wanted == 0 || core.stop.is_cancelled() || core.leases.is_behind() {
        return None;
    }
    core.slot_queue.reserve(wanted)
}

/// Asks for as many activities as there is reserved room for.
pub(crate) fn request<'a>(core: &'a Core, reserved: &Reservation) -> WorkRequest<'a> {
    WorkRequest {
        max: reserved.count,
        lock_timeout: core.options.worker_lock_timeout,
        session: None,
        tag_filter: &core.options.worker_tag_filter,
    }
}

/// Takes over activities that were claimed along with a turn.
pub(crate) async fn receive(core: &Arc<Core>, claims: Vec<WorkClaim>) {
    if claims.is_empty() {
        return;
    }
    core.metrics().record_worker_dispatcher_items_fetched(claims.len() as u64);
    for claim in claims {
        if let Some(claim) = ClaimedActivity::take(core, claim).await {
            activity::put(core, claim, None).await;
        }
    }
}

/// Starts the workers of a runtime, if its options let it run activities.
pub(crate) fn start(core: &Arc<Core>) {
    let count = core.options.worker_concurrency;
    if count == 0 || matches!(core.options.worker_tag_filter, TagFilter::None) {
        return;
    }
    core.slot_queue.open();
    let slots_of_each = if core.store.leases_one_at_a_time() { 1 } else { count };
    for first in (0..count).step_by(slots_of_each) {
        let (shared, slots) = (core.clone(), first..first + slots_of_each);
        core.work
            .spawn_supervised("worker dispatcher", move || dispatcher::run(shared.clone(), slots.clone()));
    }
    let mut owners: Vec<String> = (0..count).map(|slot| core.session_owner(slot)).collect();
    owners.dedup();
    let shared = core.clone();
    core.upkeep.spawn_supervised("session keeper", move || sessions::keep(shared.clone(), owners.clone()));
}
