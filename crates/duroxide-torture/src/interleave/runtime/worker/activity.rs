//! Stands in for the life of an activity: it goes through the slots as the library's do, and runs nothing.

use std::time::Duration;

use super::claim::ClaimedActivity;
use super::slot_queue::{Put, Start, WorkerSlot};
use crate::interleave::runtime::core::Core;
use crate::interleave::runtime::sessions::InSession;
use crate::interleave::sync::{Arc, a_while};

pub(super) async fn put(core: &Arc<Core>, claim: ClaimedActivity, slot: Option<WorkerSlot>) {
    let put = match slot {
        Some(slot) => core.slot_queue.put_in(slot, claim),
        None => core.slot_queue.put(claim),
    };
    match put {
        Put::Start(start) => spawn(core, *start),
        Put::Waits => {}
        Put::Refused(claim) => claim.give_back(core, None).await,
    }
}

pub(super) fn spawn(core: &Arc<Core>, start: Start) {
    core.work.spawn(run(core.clone(), start, None));
}

pub(super) async fn run(core: Arc<Core>, start: Start, session: Option<InSession>) {
    let Start { claim, slot, permit } = start;
    let _until_stored = (session, permit);
    a_while().await;
    core.slot_queue.pace.record(Duration::from_millis(20));
    pass_on(&core, slot);
    a_while().await;
    core.ran.send_modify(|ran| ran.push(claim.work.id));
}

fn pass_on(core: &Arc<Core>, slot: WorkerSlot) {
    if core.stop.is_cancelled() {
        return;
    }
    if let Some(next) = core.slot_queue.next_in(slot) {
        spawn(core, next);
    }
}
