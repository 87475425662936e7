//! Steps: turns that are stored together with their cause.
//!
//! A step is stored wholly or not at all. It leaves what the long way leaves, and nothing if the instance is not what the
//! caller holds. A store passes the checks of steps that it does not take.

mod claims;
mod conflicts;
mod results;
mod several;
mod starts;
mod timers;

pub use claims::*;
pub use conflicts::*;
pub use results::*;
pub use several::*;
pub use starts::*;
pub use timers::*;

use super::support::{
    Commit, Store, TURN_LEASE, WORK_LEASE, activity, activity_scheduled, completed, started,
};
use super::{Event, EventKind};
use crate::model::WorkItem;
use crate::providers::{
    ExtendedProvider, FinishedActivity, HeldInstance, InstanceRequest, ProviderError, StepCause, StepOutcome,
    StepSupport, StepToStore, StepTurn, StoredStep, TagFilter, TurnToStore, WorkClaim, WorkRequest,
};

/// Activities of any tag and no session.
fn work(max: usize) -> WorkRequest<'static> {
    WorkRequest { max, lock_timeout: WORK_LEASE, session: None, tag_filter: &TagFilter::Any }
}

/// The abilities of a store that takes such steps.
fn able<'s>(store: &'s Store<'_>, takes: impl Fn(StepSupport) -> bool) -> Option<&'s dyn ExtendedProvider> {
    store.extended().filter(|extended| takes(extended.step_support()))
}

/// An instance as a runtime holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    instance: String,
    incarnation: u64,
    execution_id: u64,
    last_event_id: u64,
}

impl Held {
    /// An id that is free.
    fn free(instance: &str) -> Self {
        Self { instance: instance.to_string(), incarnation: 0, execution_id: 1, last_event_id: 0 }
    }

    fn after(&self, last_event_id: u64) -> Self {
        Self { last_event_id, ..self.clone() }
    }

    fn as_held(&self) -> HeldInstance<'_> {
        HeldInstance {
            instance: &self.instance,
            incarnation: self.incarnation,
            execution_id: self.execution_id,
            last_event_id: self.last_event_id,
        }
    }
}

fn as_turn<'a>(commit: &'a Commit, lock_token: &'a str) -> TurnToStore<'a> {
    TurnToStore {
        activity_options: &[],
        lock_token,
        execution_id: commit.execution_id,
        history_delta: &commit.events,
        worker_items: &commit.work,
        orchestrator_items: &commit.messages,
        metadata: &commit.metadata,
        cancelled_activities: &commit.cancelled,
    }
}

/// Stores a step of one turn.
async fn store_one(
    extended: &dyn ExtendedProvider,
    cause: StepCause<'_>,
    held: &Held,
    commit: &Commit,
    claim: Option<&WorkRequest<'_>>,
) -> Result<StepOutcome, ProviderError> {
    let turns = [StepTurn { held: held.as_held(), turn: as_turn(commit, "") }];
    extended.store_step(StepToStore { cause, turns: &turns }, claim).await
}

/// Stores the result of one activity together with its turn.
async fn store_result(
    extended: &dyn ExtendedProvider,
    finished: &WorkClaim,
    held: &Held,
    commit: &Commit,
    claim: Option<&WorkRequest<'_>>,
) -> Result<StepOutcome, ProviderError> {
    let completion = super::support::completion_of(&finished.item, "done");
    let results = [FinishedActivity { lock_token: &finished.lock_token, completion: &completion }];
    store_one(extended, StepCause::Results(&results), held, commit, claim).await
}

fn stored(outcome: Result<StepOutcome, ProviderError>) -> StoredStep {
    match outcome.expect("store_step should work") {
        StepOutcome::Stored(stored) => stored,
        StepOutcome::Conflict => panic!("the step should be stored"),
    }
}

fn conflicts(outcome: Result<StepOutcome, ProviderError>, why: &str) {
    match outcome.expect("store_step should work") {
        StepOutcome::Stored(stored) => panic!("the step should not be stored: {why}; got {stored:?}"),
        StepOutcome::Conflict => {}
    }
}

/// The first turn of an instance: it schedules activity 2.
fn opening(instance: &str) -> Commit {
    let events = vec![started(instance, 1), activity_scheduled(instance, 2)];
    Commit { events, work: vec![activity(instance, 2)], ..Commit::creating(instance) }
}

/// The turn that takes the result of activity `done`, with event ids from `done + 1` on, and schedules the next one.
fn going_on(instance: &str, done: u64) -> Commit {
    let events = vec![activity_completed(instance, done + 1, done), activity_scheduled(instance, done + 2)];
    Commit { events, work: vec![activity(instance, done + 2)], ..Commit::default() }
}

fn activity_completed(instance: &str, event_id: u64, of: u64) -> Event {
    let kind = EventKind::ActivityCompleted { result: "done".into() };
    Event::with_event_id(event_id, instance, 1, Some(of), kind)
}

/// Makes an instance whose activity 2 the caller holds.
async fn running(store: &Store<'_>, extended: &dyn ExtendedProvider, instance: &str) -> (Held, WorkClaim) {
    running_for(store, extended, instance, &work(1)).await
}

async fn running_for(
    store: &Store<'_>,
    extended: &dyn ExtendedProvider,
    instance: &str,
    request: &WorkRequest<'_>,
) -> (Held, WorkClaim) {
    store.start(instance).await;
    let turn = store.turn_of(instance).await;
    let commit = opening(instance);
    let first = extended.store_turn(as_turn(&commit, &turn.token), Some(request)).await;
    let first = first.expect("store_turn should work");
    let [claim] = <[WorkClaim; 1]>::try_from(first.claims).expect("one activity should be claimed");
    let held =
        Held { instance: instance.into(), incarnation: first.incarnation, execution_id: 1, last_event_id: 2 };
    (held, claim)
}

/// Checks that nothing of a step is there: the history is as long as before, and the activity is still the caller's.
async fn expect_untouched(store: &Store<'_>, held: &Held, finished: &WorkClaim) {
    let history = store.history_of(&held.instance, 1).await;
    assert_eq!(history.len(), 2, "a step that is not stored should leave nothing behind: {history:?}");
    let renewed = store.provider.renew_work_item_lock(&finished.lock_token, WORK_LEASE).await;
    renewed.expect("the activity should still be its holder's");
    store.expect_no_work("a step that is not stored should schedule nothing").await;
}

fn ids(claims: &[WorkClaim]) -> Vec<u64> {
    claims.iter().map(|claim| super::support::activity_id(&claim.item)).collect()
}

fn completion(instance: &str, id: u64) -> WorkItem {
    completed(instance, id, "done")
}

fn one_instance() -> InstanceRequest<'static> {
    InstanceRequest { max: 1, lock_timeout: TURN_LEASE, filter: None }
}
