//! The turns of a step, and their commit.

use std::sync::Arc;

use super::under_way::Hold;
use super::{following, timers};
use crate::model::WorkItem;
use crate::observability::TurnOutcome;
use crate::providers::{
    AnnouncedEnd, HeldInstance, ProviderError, RunningMark, StepCause, StepOutcome, StepToStore, StepTurn,
};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::orchestrator::check;
use crate::runtime::orchestrator::claim::Claim;
use crate::runtime::orchestrator::commit::{self, Ack, Commit};
use crate::runtime::orchestrator::decide::{Decision, InstanceState, Rules};
use crate::runtime::orchestrator::report::Report;
use crate::runtime::orchestrator::residents::Resident;
use crate::runtime::orchestrator::turn_capacity::TurnSlot;
use crate::runtime::worker;

/// What became of a step.
pub(super) enum Taken {
    Stored,
    /// The cause has to go the long way.
    Not {
        /// The store did not say whether it has it.
        is_perhaps_stored: bool,
    },
}

const REFUSED: Taken = Taken::Not { is_perhaps_stored: false };

/// A turn that was taken and is not stored.
pub(super) struct UnstoredTurn {
    pub claim: Claim,
    pub commit: Commit,
    /// `None` if the instance is new, or if a later turn of the same step has it.
    pub hold: Option<Hold>,
    pub worker_id: String,
}

impl UnstoredTurn {
    /// Makes the claim of the next turn of the same instance, as if this one were stored.
    pub(super) fn claim_afterwards(&self, messages: Vec<WorkItem>) -> Claim {
        let last = self.commit.events.iter().map(|event| event.event_id).max();
        Claim {
            messages,
            execution_id: self.commit.execution_id,
            last_event_id: last.unwrap_or(self.claim.last_event_id),
            token: String::new(),
            ..self.claim.clone()
        }
    }
}

impl Commit {
    /// Tells whether the turn sends a message to an instance.
    pub(super) fn sends_to(&self, instance: &String) -> bool {
        self.orchestrator_items.iter().any(|item| following::addressee(item) == Some(instance))
    }
}

/// Takes a turn of an instance in memory; `None` if the store could not take the outcome as a step.
pub(super) async fn take_resident(
    core: &Arc<Core>,
    claim: Claim,
    resident: Box<Resident>,
    hold: Hold,
    slot: TurnSlot,
    running: Vec<RunningMark>,
) -> Option<Vec<UnstoredTurn>> {
    take(core, claim, InstanceState::Resident(resident), Some(hold), slot, running).await
}

/// Takes a turn in a slot, which is free again before the commit.
pub(super) async fn take(
    core: &Arc<Core>,
    claim: Claim,
    state: InstanceState,
    hold: Option<Hold>,
    slot: TurnSlot,
    running: Vec<RunningMark>,
) -> Option<Vec<UnstoredTurn>> {
    let worker_id = core.turn_worker_id(slot.number);
    let rules = Rules::of(core);
    let began = core.clock.monotonic();
    let (claim, decision) = check::take(&rules, core, claim, state, Vec::new()).await;
    let turns = match decision {
        Decision::Commit(commit) => {
            let mut turns = vec![UnstoredTurn { claim, commit: *commit, hold, worker_id }];
            following::take_along(core, &rules, &mut turns).await;
            Some(turns)
        }
        // To block an instance takes a lease, which the long way brings.
        Decision::Defer(_) | Decision::Block(_) => None,
    };
    let took = core.clock.monotonic().saturating_sub(began);
    core.turn_capacity.note_turn(core.metrics(), took);
    // This drops the marks before the slot: the turn that gets the slot next may kill the process, and the marked
    // activities have no part in that.
    drop(running);
    drop(slot);
    turns
}

/// Stores turns together with their cause.
pub(super) async fn store(core: &Arc<Core>, cause: StepCause<'_>, turns: Vec<UnstoredTurn>) -> Taken {
    let (mut prepared, mut afterwards) = (Vec::with_capacity(turns.len()), Vec::with_capacity(turns.len()));
    for turn in turns {
        // Of every turn: what it asked for may have been taken along.
        let (commit, report) = (&turn.commit, &turn.commit.report);
        core.origins.remember(&turn.claim.instance, commit.execution_id, &report.name, &report.version);
        let UnstoredTurn { claim, commit, hold, worker_id } = turn;
        let announced = commit.announce_end(core, &claim.instance);
        let mut commit = commit;
        commit.settle_options(core, &claim.instance);
        let Commit { mut orchestrator_items, notices, suspended, report, .. } = commit;
        afterwards.push(Afterwards { suspended, hold, announced, report, worker_id });
        match commit::messages(core, notices).await {
            Ok(messages) => {
                orchestrator_items.extend(messages);
                core.steps.note_messages(core, &orchestrator_items);
            }
            Err(_) => return REFUSED,
        }
        let ack = Ack {
            execution_id: commit.execution_id,
            events: commit.events,
            worker_items: commit.worker_items,
            activity_options: commit.activity_options,
            orchestrator_items,
            metadata: commit.metadata,
            cancelled_activities: commit.cancelled_activities,
        };
        prepared.push(PreparedTurn { claim, ack });
    }
    match commit(core, cause, &prepared).await {
        Ok(StepOutcome::Stored(stored)) => {
            core.metrics().record_orch_dispatcher_items_fetched(prepared.len() as u64);
            core.metrics().record_turns(TurnOutcome::Stored, prepared.len() as u64);
            let mut reports = Vec::with_capacity(prepared.len());
            for ((turn, afterwards), incarnation) in
                prepared.into_iter().zip(afterwards).zip(stored.incarnations)
            {
                reports.push(afterwards.settle(core, turn, incarnation));
            }
            // The instances must be in memory before their activities run: a result leads to the next turn at once.
            worker::receive(core, stored.claims).await;
            for StoredReport { report, instance, execution_id, worker_id } in reports {
                report.publish(core, &instance, execution_id, &worker_id);
            }
            Taken::Stored
        }
        Ok(StepOutcome::Conflict) => {
            core.metrics().record_turns(TurnOutcome::Requeued, prepared.len() as u64);
            tracing::debug!(target: TARGET, instance = instance_of(&prepared),
                "the instance has changed meanwhile; the turn is taken again from its queue");
            REFUSED
        }
        Err(error) => {
            core.metrics().record_turns(TurnOutcome::Requeued, prepared.len() as u64);
            tracing::debug!(target: TARGET, instance = instance_of(&prepared), %error,
                "the store does not take the turn with its cause; the cause goes through the queue");
            Taken::Not { is_perhaps_stored: error.retryable }
        }
    }
}

fn instance_of(prepared: &[PreparedTurn]) -> &str {
    prepared.first().map_or("", |turn| turn.claim.instance.as_str())
}

async fn commit(
    core: &Core,
    cause: StepCause<'_>,
    prepared: &[PreparedTurn],
) -> Result<StepOutcome, ProviderError> {
    let turns: Vec<StepTurn<'_>> = prepared.iter().map(PreparedTurn::as_step_turn).collect();
    let reserved = worker::reserve(core, prepared.iter().flat_map(|turn| &turn.ack.worker_items));
    let request = reserved.as_ref().map(|reserved| worker::request(core, reserved));
    core.store.extension().store_step(StepToStore { cause, turns: &turns }, request.as_ref()).await
}

/// A turn as it goes to the store.
struct PreparedTurn {
    claim: Claim,
    ack: Ack,
}

impl PreparedTurn {
    fn as_step_turn(&self) -> StepTurn<'_> {
        let held = HeldInstance {
            instance: &self.claim.instance,
            incarnation: self.claim.incarnation,
            execution_id: self.claim.execution_id,
            last_event_id: self.claim.last_event_id,
        };
        StepTurn { held, turn: self.ack.as_turn(&self.claim.token) }
    }
}

/// What follows when a turn is stored.
struct Afterwards {
    suspended: Option<Box<Resident>>,
    hold: Option<Hold>,
    announced: Option<AnnouncedEnd>,
    report: Report,
    worker_id: String,
}

/// The report of a turn that is stored.
struct StoredReport {
    report: Report,
    instance: String,
    execution_id: u64,
    worker_id: String,
}

impl Afterwards {
    /// Keeps the instance in memory. Returns the report, which the caller publishes.
    fn settle(self, core: &Core, turn: PreparedTurn, incarnation: u64) -> StoredReport {
        let Self { suspended, hold, announced, report, worker_id } = self;
        announced.into_iter().for_each(AnnouncedEnd::confirm);
        let PreparedTurn { claim, ack } = turn;
        core.postponed.forget(&claim.instance);
        // A worker of this runtime that runs one of these learns it now, not at the next renewal.
        core.running.cancel(&ack.cancelled_activities);
        if let Some(mut suspended) = suspended {
            suspended.note_incarnation(incarnation);
            if suspended.may_stay() {
                let now = core.clock.monotonic();
                let left = match hold {
                    Some(hold) => hold.end(&core.residents, suspended, now),
                    None => core.residents.keep(claim.instance.clone(), suspended, now),
                };
                core.metrics().record_residents_evicted(left as u64);
            }
        }
        // The instance must be in memory before its timers are known: one may be due at once.
        timers::note(core, &ack.orchestrator_items);
        StoredReport { report, instance: claim.instance, execution_id: ack.execution_id, worker_id }
    }
}
