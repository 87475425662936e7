//! Starts on the short path: a runtime takes the first turn of an instance before its start is stored.

use std::sync::{Arc, Weak};

use async_trait::async_trait;

use super::turns::{self, Taken};
use crate::model::{INITIAL_EXECUTION_ID, WorkItem};
use crate::providers::{StepCause, TakenStart, TakesStarts};
use crate::runtime::core::Core;
use crate::runtime::orchestrator::claim::{Claim, StoredHistory};
use crate::runtime::orchestrator::decide::{InstanceState, Rules};
use crate::runtime::orchestrator::turn_capacity;

/// Offers a runtime to the clients of its store handle, until it is shut down.
pub(crate) fn register(core: &Arc<Core>) {
    if !core.steps.support.starts || core.options.orchestration_concurrency == 0 {
        return;
    }
    if let Some(exchange) = core.store.as_extended().and_then(|store| store.local_exchange()) {
        core.steps.set_start_taker(Some(exchange.register(Arc::new(Taker(Arc::downgrade(core))))));
    }
}

struct Taker(Weak<Core>);

#[async_trait]
impl TakesStarts for Taker {
    async fn take_start(&self, start: &WorkItem) -> TakenStart {
        let Some(core) = self.0.upgrade() else { return TakenStart::Not };
        if core.stop.is_cancelled() || !can_begin(&core, start) {
            return TakenStart::Not;
        }
        // A task of its own: the client may drop its call at any point, and the runtime must learn of its claims.
        let (task_core, start) = (core.clone(), start.clone());
        let taken = core.work.spawn(async move { take(&task_core, &start).await }).await;
        // A runtime that is shut down may have stored it before it gave up.
        taken.unwrap_or(TakenStart::Perhaps)
    }
}

/// Tells whether this runtime has the code of the orchestration.
fn can_begin(core: &Core, start: &WorkItem) -> bool {
    let WorkItem::StartOrchestration { orchestration, version, instance, .. } = start else { return false };
    !is_held_for_test(instance) && Rules::of(core).missing(orchestration, version.as_deref()).is_none()
}

async fn take(core: &Arc<Core>, start: &WorkItem) -> TakenStart {
    let WorkItem::StartOrchestration { instance, orchestration, .. } = start else { return TakenStart::Not };
    let Some(permit) = turn_capacity::reserve(core) else { return TakenStart::Not };
    let Some(slot) = core.turn_capacity.free_slot() else { return TakenStart::Not };
    let claim = Claim {
        instance: instance.clone(),
        execution_id: INITIAL_EXECUTION_ID,
        incarnation: 0,
        last_event_id: Some(0),
        orchestration_name: orchestration.clone(),
        version: "unknown".to_string(),
        status: None,
        messages: vec![start.clone()],
        token: String::new(),
        attempt_count: 1,
    };
    let state = InstanceState::Stored(StoredHistory::nothing());
    let Some(turns) = turns::take(core, claim, state, None, slot).await else { return TakenStart::Not };
    let stored = turns::store(core, StepCause::Start(start), turns).await;
    drop(permit);
    match stored {
        Taken::Stored => TakenStart::Stored,
        Taken::Not { is_perhaps_stored: false } => TakenStart::Not,
        Taken::Not { is_perhaps_stored: true } => TakenStart::Perhaps,
    }
}

#[cfg(feature = "test-hooks")]
fn is_held_for_test(instance: &str) -> bool {
    crate::runtime::test_hooks::get_orch_processing_delay(instance).is_some()
}

#[cfg(not(feature = "test-hooks"))]
fn is_held_for_test(_: &str) -> bool {
    false
}
