//! Starts on the short path: a runtime takes the first turn of an instance before its start is stored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;

use super::is_held_for_test;
use super::turns::{self, Taken};
use crate::model::{Clock, SystemClock, WorkItem};
use crate::providers::{StepCause, TakenStart, TakesStarts};
use crate::runtime::core::Core;
use crate::runtime::orchestrator::claim::{Claim, StoredHistory};
use crate::runtime::orchestrator::decide::{InstanceState, Rules};
use crate::runtime::orchestrator::turn_capacity;

/// Offers a runtime to the clients of its store handle, until it is shut down.
pub(super) fn register(core: &Arc<Core>) {
    if !core.steps.support.starts {
        return;
    }
    if let Some(exchange) = core.steps.exchange() {
        core.steps.set_start_taker(Some(exchange.register(Arc::new(Taker(Arc::downgrade(core))))));
    }
}

/// How long a client waits for a slot and the code of a first turn. Then it enqueues the start instead.
const PATIENCE: Duration = Duration::from_millis(20);

struct Taker(Weak<Core>);

/// A start that a client has offered: it can withdraw it until the runtime begins to store it.
#[derive(Default)]
struct Offer {
    is_settled: AtomicBool,
}

impl Offer {
    fn accept(&self) -> bool {
        !self.is_settled.swap(true, Ordering::AcqRel)
    }

    fn withdraw(&self) -> bool {
        !self.is_settled.swap(true, Ordering::AcqRel)
    }

    fn is_withdrawn(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }
}

#[async_trait]
impl TakesStarts for Taker {
    async fn take_start(&self, start: &WorkItem) -> TakenStart {
        let Some(core) = self.0.upgrade() else { return TakenStart::Not };
        if core.stop.is_cancelled() || !can_begin(&core, start) {
            return TakenStart::Not;
        }
        if !core.turn_capacity.is_quick_enough_to_wait(PATIENCE).await {
            return TakenStart::Not;
        }
        // A task of its own: the client may drop its call at any point, and the runtime must learn of its claims.
        let (task_core, start, offer) = (core.clone(), start.clone(), Arc::new(Offer::default()));
        let task_offer = offer.clone();
        let mut taken = core.work.spawn(async move { take(&task_core, &start, &task_offer).await });
        let taken = tokio::select! {
            biased;
            taken = &mut taken => taken,
            () = SystemClock.sleep(PATIENCE) => match offer.withdraw() {
                true => return TakenStart::Not,
                false => taken.await,
            },
        };
        // A runtime that is shut down may have stored it before it gave up.
        taken.unwrap_or(TakenStart::Perhaps)
    }

    fn note_message(&self, instance: &str) {
        if let Some(core) = self.0.upgrade() {
            core.steps.note_message(&core, instance);
        }
    }
}

/// Tells whether this runtime has the code of the orchestration.
fn can_begin(core: &Core, start: &WorkItem) -> bool {
    let WorkItem::StartOrchestration { orchestration, version, instance, .. } = start else { return false };
    !is_held_for_test(instance) && Rules::of(core).missing(orchestration, version.as_deref()).is_none()
}

async fn take(core: &Arc<Core>, start: &WorkItem, offer: &Offer) -> TakenStart {
    let WorkItem::StartOrchestration { instance, orchestration, .. } = start else { return TakenStart::Not };
    let Some(permit) = turn_capacity::reserve(core) else { return TakenStart::Not };
    // Among many starts it waits for its slot no longer than the client does.
    let Some(slot) = core.turn_capacity.slot_unless(&core.stop).await else { return TakenStart::Not };
    if offer.is_withdrawn() {
        return TakenStart::Not;
    }
    let claim = Claim::of_new(instance, orchestration, start.clone());
    let state = InstanceState::Stored(StoredHistory::nothing());
    let Some(turns) = turns::take(core, claim, state, None, slot, Vec::new()).await else {
        return TakenStart::Not;
    };
    if !offer.accept() {
        return TakenStart::Not;
    }
    let stored = turns::store(core, StepCause::Start(start), turns).await;
    drop(permit);
    match stored {
        Taken::Stored => TakenStart::Stored,
        Taken::Not { is_perhaps_stored: false } => TakenStart::Not,
        Taken::Not { is_perhaps_stored: true } => TakenStart::Perhaps,
    }
}
