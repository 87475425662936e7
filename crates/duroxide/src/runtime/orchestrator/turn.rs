//! The I/O around a turn: load the missing history, take a slot, decide, and store.

use std::sync::Arc;
use std::time::Duration;

use super::check;
use super::claim::{Claim, StoredHistory};
use super::commit::{self, Commit};
use super::decide::{Decision, InstanceState, Rules};
use super::obstacles;
use super::refused::{self, NotStored, Settled};
use super::start_reminders;
use super::turn_capacity::TurnSlot;
use crate::model::{QueuedActivity, WorkItem};
use crate::observability::TurnOutcome;
use crate::providers::{ScheduledActivityIdentifier, refusal};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::leases::Lease;

/// A claim whose lease the runtime renews until this is dropped.
pub(super) struct LeasedClaim {
    claim: Claim,
    lease: Lease,
    /// Reminders that go back into the queue together with the turn.
    reminders: Vec<WorkItem>,
}

impl LeasedClaim {
    pub fn new(core: &Core, mut claim: Claim) -> Self {
        claim.attempt_count = core.postponed.own_attempts(&claim.instance, claim.attempt_count);
        // A turn goes on even if its lease is lost: the store then refuses its commit.
        let lease = core.leases.keep(core.turn_lease(), &claim.token, Default::default());
        Self { claim, lease, reminders: Vec::new() }
    }

    /// Gives the claim back unused; the attempt does not count.
    pub async fn give_back(self, core: &Core) {
        abandon(core, &self.claim, None, true).await;
    }

    /// Ends the claim when its turn is settled. Keeps the lease of a turn that waits, so that nothing overtakes its
    /// messages.
    fn end(self, core: &Arc<Core>, settled: Settled) {
        let Settled::Waits(wait) = settled else { return };
        let (Self { claim, lease, .. }, waiting) = (self, core.clone());
        core.work.spawn(async move {
            tokio::select! {
                () = waiting.stop.cancelled() => {}
                () = waiting.clock.sleep(wait) => {}
            }
            refused::give_back(&waiting, &claim, None, true).await;
            drop(lease);
        });
    }
}

/// Takes the turn of a claimed instance, in this slot or in the next that is free.
pub(super) async fn claimed(core: Arc<Core>, mut leased: LeasedClaim, slot: Option<TurnSlot>) {
    hold_for_test(&core, &leased.claim).await;
    leased.reminders = start_reminders::take(&core, &mut leased.claim).await;
    let state = match recall(&core, &leased.claim).await {
        Ok(state) => state,
        Err(NotStored::TakenOver) => {
            let settled = refused::taken_over(&core, &leased.claim);
            return leased.end(&core, settled);
        }
        Err(NotStored::Refused(error)) => {
            let settled = refused::not_taken(&core, &leased.claim, &error).await;
            return leased.end(&core, settled);
        }
    };
    let slot = match slot {
        Some(slot) => slot,
        None => match core.turn_capacity.slot_unless(&core.stop).await {
            Some(slot) => slot,
            None => return leased.give_back(&core).await,
        },
    };
    take(core, leased, state, slot).await;
}

/// Runs the turn in `slot`, which is free again before the commit.
async fn take(core: Arc<Core>, leased: LeasedClaim, state: InstanceState, slot: TurnSlot) {
    let LeasedClaim { claim, lease, reminders } = leased;
    let worker_id = core.turn_worker_id(slot.number);
    let rules = Rules::of(&core);
    let began = core.clock.monotonic();
    let mut running = core.mark_running(&claim.token);
    running.noted().await;
    let (claim, decision) = check::take(&rules, &core, claim, state, Vec::new()).await;
    drop(running);
    let took = core.clock.monotonic().saturating_sub(began);
    core.turn_capacity.note_turn(core.metrics(), took);
    drop(slot);
    let settled = match decision {
        Decision::Defer(delay) => {
            core.metrics().record_turns(TurnOutcome::Deferred, 1);
            abandon(&core, &claim, Some(delay), false).await;
            obstacles::deferred(&core, &claim, delay);
            Settled::Over
        }
        Decision::Block(reason) => {
            refused::block(&core, &claim, &reason.stored()).await;
            Settled::Over
        }
        Decision::Commit(mut commit) => {
            remember_origin(&core, &claim, &commit);
            if commit.suspended.is_some() {
                commit.orchestrator_items.extend(reminders);
            }
            commit::store(&core, &claim, *commit, &worker_id).await
        }
    };
    // Only now: a lease that ends while its ack is under way would let another runtime take the same turn.
    LeasedClaim { claim, lease, reminders: Vec::new() }.end(&core, settled);
}

/// Remembers which orchestration runs here: the activities and children of this turn will ask for it.
fn remember_origin(core: &Core, claim: &Claim, commit: &Commit) {
    let report = &commit.report;
    if !commit.worker_items.is_empty() || !commit.orchestrator_items.is_empty() {
        core.origins.remember(&claim.instance, commit.execution_id, &report.name, &report.version);
    }
}

/// Takes the instance from memory if it is resident, and loads its history otherwise. An instance that has ended needs
/// neither, so a timer that comes after its end costs no more than its row.
async fn recall(core: &Core, claim: &Claim) -> Result<InstanceState, NotStored> {
    if claim.is_known_to_have_ended() {
        return Ok(InstanceState::Ended);
    }
    if claim.is_fresh() {
        return Ok(InstanceState::Stored(StoredHistory::nothing()));
    }
    core.steps.until_idle(&claim.instance).await;
    if let Some(resident) = core.residents.take(claim, core.clock.monotonic()) {
        return Ok(InstanceState::Resident(resident));
    }
    core.metrics().record_instance_rebuilt();
    if let Some(reason) = why_not_to_load(core, claim) {
        let queued = queued_activities(core, claim).await?;
        return Ok(InstanceState::Stored(StoredHistory::Undecodable { reason, queued }));
    }
    let store = core.store.extension();
    let history = match store.load_history(&claim.token, 0).await {
        Err(error) if refusal::is_about_turn_lease(&error) => {
            refused::recover_lease(core, claim, error).await?;
            store.load_history(&claim.token, 0).await
        }
        history => history,
    };
    let mut history = StoredHistory::from(history?);
    if let StoredHistory::Undecodable { queued, .. } = &mut history {
        *queued = queued_activities(core, claim).await?;
    }
    Ok(InstanceState::Stored(history))
}

/// Says why not to load a history that seems to be more than a process can load: an attempt beyond the last one has
/// loaded it to fail the instance as poison, and has not stored that failure either. A store that knows only the
/// published contract has loaded the history with the claim.
fn why_not_to_load(core: &Core, claim: &Claim) -> Option<String> {
    let last_to_load = core.options.max_attempts.saturating_add(1);
    if core.store.leases_one_at_a_time() || claim.attempt_count <= last_to_load {
        return None;
    }
    let attempts = claim.attempt_count - 1;
    Some(format!(
        "history not loaded: {attempts} attempts have failed, and nothing was stored, not even the failure"
    ))
}

/// Asks the store which activities it has for an instance whose history does not tell. This runtime has leased the
/// instance, so no turn schedules more of them before its commit.
async fn queued_activities(
    core: &Core,
    claim: &Claim,
) -> Result<Vec<ScheduledActivityIdentifier>, NotStored> {
    let Some(inspector) = core.store.extension().as_inspector() else { return Ok(Vec::new()) };
    match inspector.list_activities(&claim.instance, usize::MAX).await {
        Ok(activities) => {
            let identifier = |activity: QueuedActivity| ScheduledActivityIdentifier {
                instance: activity.instance,
                execution_id: activity.execution_id,
                activity_id: activity.activity_id,
            };
            Ok(activities.into_iter().map(identifier).collect())
        }
        Err(error) if error.retryable => Err(error.into()),
        Err(error) => {
            tracing::warn!(target: TARGET, instance = %claim.instance, %error,
                "the activities of an instance with an undecodable history are not known, and stay queued");
            Ok(Vec::new())
        }
    }
}

async fn abandon(core: &Core, claim: &Claim, delay: Option<Duration>, ignore_attempt: bool) {
    let abandoned = core.store.abandon_orchestration_item(&claim.token, delay, ignore_attempt).await;
    if let Err(error) = abandoned {
        tracing::warn!(target: TARGET, instance = %claim.instance, %error,
            "turn not given back; it returns when its lease ends");
    }
}

#[cfg(feature = "test-hooks")]
async fn hold_for_test(core: &Core, claim: &Claim) {
    if let Some(delay) = crate::runtime::test_hooks::get_orch_processing_delay(&claim.instance) {
        core.clock.sleep(delay).await;
    }
}

#[cfg(not(feature = "test-hooks"))]
async fn hold_for_test(_core: &Core, _claim: &Claim) {}
