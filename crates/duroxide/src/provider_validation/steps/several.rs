//! Steps of several turns: parents and children, and executions that continue as new.

use super::super::ProviderFactory;
use super::super::support::{
    Commit, Store, activity_for, assert_refused, named, raised, start_item, started, status,
};
use super::{Held, able, activity_completed, as_turn, completion, ids, opening, running, work};
use crate::model::WorkItem;
use crate::providers::{
    ExtendedProvider, FinishedActivity, ProviderError, StepCause, StepOutcome, StepToStore, StepTurn,
    WorkClaim, WorkRequest, refusal,
};

async fn store_all(
    extended: &dyn ExtendedProvider,
    cause: StepCause<'_>,
    turns: &[(&Held, &str, &Commit)],
    claim: Option<&WorkRequest<'_>>,
) -> Result<StepOutcome, ProviderError> {
    let turns: Vec<StepTurn<'_>> = turns
        .iter()
        .map(|(held, token, commit)| StepTurn { held: held.as_held(), turn: as_turn(commit, token) })
        .collect();
    extended.store_step(StepToStore { cause, turns: &turns }, claim).await
}

fn ending(instance: &str) -> Commit {
    Commit {
        events: vec![activity_completed(instance, 3, 2)],
        metadata: status("Completed"),
        ..Commit::default()
    }
}

fn child_start(parent: &str, child: &str) -> WorkItem {
    let mut start = start_item(child);
    if let WorkItem::StartOrchestration { parent_instance, parent_id, parent_execution_id, .. } = &mut start {
        (*parent_instance, *parent_id, *parent_execution_id) = (Some(parent.into()), Some(4), Some(1));
    }
    start
}

/// A parent's turn and the first turn of its child are one commit.
pub async fn a_child_begins_in_the_step_of_its_parent(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results && support.turns > 1) else { return };
    let (held, first) = running(&store, extended, "parent").await;
    let done = completion("parent", 2);
    let results = [FinishedActivity { lock_token: &first.lock_token, completion: &done }];
    let parent = Commit::of_events(vec![activity_completed("parent", 3, 2)]);
    let mut child = opening("child");
    child.metadata.parent_instance_id = Some("parent".into());
    let turns = [(&held, "", &parent), (&Held::free("child"), "", &child)];
    let step = super::stored(store_all(extended, StepCause::Results(&results), &turns, Some(&work(2))).await);
    assert_eq!((step.incarnations.len(), ids(&step.claims)), (2, vec![2]));
    assert!(step.incarnations[1] > step.incarnations[0], "the child is newer");
    store.expect_no_turn("nothing passed through the queue").await;
    assert_eq!((store.history("parent").await.len(), store.history("child").await.len()), (3, 2));
    let parent_of = store.admin().get_parent_id("child").await.expect("get_parent_id should work");
    assert_eq!(parent_of.as_deref(), Some("parent"));
}

/// If one turn does not hold, none is stored.
pub async fn a_step_of_several_turns_is_stored_wholly_or_not_at_all(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results && support.turns > 1) else { return };
    let (held, first) = running(&store, extended, "parent").await;
    store.send(raised("child", "n", "")).await;
    let done = completion("parent", 2);
    let results = [FinishedActivity { lock_token: &first.lock_token, completion: &done }];
    let mut parent = Commit::of_events(vec![activity_completed("parent", 3, 2)]);
    parent.work = vec![super::activity("parent", 4)];
    parent.messages = vec![raised("bystander", "n", "")];
    let child = opening("child");
    let free = Held::free("child");
    let turns = [(&held, "", &parent), (&free, "", &child)];
    let outcome = store_all(extended, StepCause::Results(&results), &turns, Some(&work(2))).await;
    super::conflicts(outcome, "a message waits for the child");
    super::expect_untouched(&store, &held, &first).await;
    let mut bad = opening("fresh");
    bad.events[1].event_id = 1;
    let fresh = Held::free("fresh");
    let turns = [(&held, "", &parent), (&fresh, "", &bad)];
    let outcome = store_all(extended, StepCause::Results(&results), &turns, Some(&work(2))).await;
    assert_refused(outcome, "an event id twice");
    super::expect_untouched(&store, &held, &first).await;
    assert!(!store.exists("fresh").await);
}

/// A message that an earlier turn sends to the instance of a later one comes first, so the later one does not hold.
pub async fn a_later_turn_sees_what_an_earlier_one_did(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results && support.turns > 1) else { return };
    let (held, first) = running(&store, extended, "parent").await;
    let done = completion("parent", 2);
    let results = [FinishedActivity { lock_token: &first.lock_token, completion: &done }];
    let mut parent = Commit::of_events(vec![activity_completed("parent", 3, 2)]);
    parent.messages = vec![child_start("parent", "child")];
    let (free, child) = (Held::free("child"), opening("child"));
    let turns = [(&held, "", &parent), (&free, "", &child)];
    super::conflicts(
        store_all(extended, StepCause::Results(&results), &turns, None).await,
        "a start is queued",
    );
    super::expect_untouched(&store, &held, &first).await;
}

/// A child's last turn, under its lease, and the turn of its parent are one commit, if the store takes steps that are caused by
/// a lease.
pub async fn a_parent_goes_on_in_the_step_of_its_child(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.turns > 1) else { return };
    let (held, first) = running(&store, extended, "parent").await;
    store.send(child_start("parent", "child")).await;
    let turn = store.turn_of("child").await;
    let child = Commit {
        metadata: super::super::support::named_with_status("Completed"),
        ..Commit::creating("child")
    };
    let parent = Commit::of_events(vec![super::activity_scheduled("parent", 3)]);
    let free = Held::free("child");
    let turns = [(&free, turn.token.as_str(), &child), (&held, "", &parent)];
    let outcome = store_all(extended, StepCause::Lease, &turns, None).await;
    if outcome.as_ref().is_err_and(|error| error.message == refusal::not_supported("store_step").message) {
        store.ack(&turn, child).await;
        return;
    }
    super::stored(outcome);
    assert_refused(store.try_ack(&turn.token, Commit::default()).await, "the lease is over");
    store.expect_no_turn("the messages of the lease were taken").await;
    assert_eq!(store.history("parent").await.len(), 3);
    assert_refused(store_all(extended, StepCause::Lease, &turns, None).await, "the same lease again");
    let _: WorkClaim = first;
}

/// An execution ends and the next one begins in one commit.
pub async fn an_instance_continues_as_new_in_one_step(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results && support.turns > 1) else { return };
    let (held, first) = running(&store, extended, "i").await;
    let done = completion("i", 2);
    let results = [FinishedActivity { lock_token: &first.lock_token, completion: &done }];
    let close = Commit { metadata: status("ContinuedAsNew"), ..ending("i") };
    let mut next_activity = activity_for("i", 2, None, None);
    if let WorkItem::ActivityExecute { execution_id, .. } = &mut next_activity {
        *execution_id = 2;
    }
    let open = Commit {
        execution_id: 2,
        events: vec![started("i", 2)],
        work: vec![next_activity.clone()],
        metadata: named(),
        ..Commit::default()
    };
    let closed = held.after(3);
    let turns = [(&held, "", &close), (&closed, "", &open)];
    let step = super::stored(store_all(extended, StepCause::Results(&results), &turns, Some(&work(1))).await);
    assert_eq!(step.incarnations, [held.incarnation; 2], "it is the same instance");
    assert_eq!(step.claims[0].item, next_activity);
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work").expect("it exists");
    assert_eq!((metadata.current_execution_id, metadata.status.as_str()), (2, "Running"));
    assert_eq!((store.history_of("i", 1).await.len(), store.history_of("i", 2).await.len()), (3, 1));
    store.expect_no_turn("nothing passed through the queue").await;
}
