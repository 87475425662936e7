//! What keeps a step from being stored. Each time the activity stays its holder's, and nothing is there of the turn.

use super::super::ProviderFactory;
use super::super::support::{Commit, Store, assert_refused, raised};
use super::{
    Held, able, activity_completed, completion, conflicts, expect_untouched, going_on, running, running_for,
    store_one, store_result, stored, work,
};
use crate::providers::{FinishedActivity, StepCause, StepOutcome, WorkRequest};

/// Somebody has leased the instance, or had: nobody has taken over from him yet.
pub async fn a_lease_on_the_instance_keeps_a_step_out(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let long = WorkRequest { lock_timeout: store.lease() * 4, ..work(1) };
    let (held, first) = running_for(&store, extended, "i", &long).await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_for(store.lease()).await;
    conflicts(store_result(extended, &first, &held, &going_on("i", 2), Some(&work(1))).await, "it is leased");
    expect_untouched(&store, &held, &first).await;
    store.outlive_lease().await;
    conflicts(
        store_result(extended, &first, &held, &going_on("i", 2), Some(&work(1))).await,
        "it was leased",
    );
    let turn = match store.try_ack(&turn.token, Commit::default()).await {
        Ok(()) => None,
        Err(_) => Some(store.turn_of("i").await),
    };
    if let Some(turn) = turn {
        store.ack(&turn, Commit::default()).await;
    }
    stored(store_result(extended, &first, &held, &going_on("i", 2), Some(&work(1))).await);
}

/// An older message waits in the queue: it comes first.
pub async fn a_message_that_waits_comes_before_a_step(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send(raised("i", "n", "")).await;
    conflicts(
        store_result(extended, &first, &held, &going_on("i", 2), Some(&work(1))).await,
        "a message waits",
    );
    expect_untouched(&store, &held, &first).await;
    // A delayed one counts from when it is visible.
    let (delayed, second) = running_on(&store, extended, "delayed").await;
    store.send_delayed(raised("delayed", "n", ""), store.lease()).await;
    store.outlive_lease().await;
    let outcome = store_result(extended, &second, &delayed, &going_on("delayed", 2), None).await;
    conflicts(outcome, "a message has become visible");
}

async fn running_on(
    store: &Store<'_>,
    extended: &dyn crate::providers::ExtendedProvider,
    instance: &str,
) -> (Held, crate::providers::WorkClaim) {
    // The other instance has a message; its turn comes first.
    let other = store.turn().await;
    store.ack(&other, Commit::default()).await;
    let long = WorkRequest { lock_timeout: store.lease() * 4, ..work(1) };
    running_for(store, extended, instance, &long).await
}

/// Nobody takes turns of a blocked instance.
pub async fn a_blocked_instance_takes_no_step(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_of("i").await;
    if extended.block_instance(&turn.token, "for a check").await.is_err() {
        return;
    }
    conflicts(store_result(extended, &first, &held, &going_on("i", 2), None).await, "it is blocked");
    expect_untouched(&store, &held, &first).await;
}

/// The history has gone on without the caller.
pub async fn a_step_needs_the_last_event(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    for wrong in [1, 3, 0] {
        let outcome = store_result(extended, &first, &held.after(wrong), &going_on("i", 4), None).await;
        conflicts(outcome, "the caller holds another last event");
    }
    expect_untouched(&store, &held, &first).await;
    store.next_turn("i", Commit::of_events(vec![activity_completed("i", 3, 2)])).await;
    conflicts(store_result(extended, &first, &held, &going_on("i", 4), None).await, "another turn was taken");
    stored(store_result(extended, &first, &held.after(3), &going_on("i", 4), None).await);
}

/// Another execution runs, or the id was deleted and is another instance now.
pub async fn a_step_needs_the_execution_and_the_incarnation(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    for wrong in [
        Held { execution_id: 2, ..held.clone() },
        Held { incarnation: held.incarnation + 1, ..held.clone() },
        Held { incarnation: 0, last_event_id: 0, ..held.clone() },
        Held { instance: "nobody".into(), ..held.clone() },
    ] {
        let instance = wrong.instance.clone();
        let done = completion(&instance, 2);
        let results = [FinishedActivity { lock_token: &first.lock_token, completion: &done }];
        let commit = going_on(&instance, 2);
        let outcome = store_one(extended, StepCause::Results(&results), &wrong, &commit, None).await;
        conflicts(outcome, "the instance is another one");
    }
    expect_untouched(&store, &held, &first).await;
}

/// Only the holder of an activity has its result: not after its lease, not after another took over, not twice.
pub async fn a_step_needs_the_lease_of_its_activity(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let short = WorkRequest { lock_timeout: store.lease(), ..work(1) };
    let (held, first) = running_for(&store, extended, "i", &short).await;
    let done = completion("i", 2);
    let result = |token| FinishedActivity { lock_token: token, completion: &done };
    for (tokens, why) in [
        (vec!["nobody's"], "the token is unknown"),
        (vec![first.lock_token.as_str(); 2], "one activity has one result"),
        (vec![first.lock_token.as_str(), "nobody's"], "one of the tokens is unknown"),
    ] {
        let results: Vec<FinishedActivity<'_>> = tokens.into_iter().map(result).collect();
        let outcome =
            store_one(extended, StepCause::Results(&results), &held, &going_on("i", 2), Some(&work(1))).await;
        conflicts(outcome, why);
    }
    assert_eq!(store.history("i").await.len(), 2, "nothing should be stored");
    store.outlive_lease().await;
    conflicts(store_result(extended, &first, &held, &going_on("i", 2), None).await, "the lease has run out");
    let taken_over = store.work().await;
    conflicts(store_result(extended, &first, &held, &going_on("i", 2), None).await, "another has it");
    store.complete(&taken_over).await;
}

/// What the store refuses for good is refused in a step too, and nothing is written.
pub async fn a_refused_step_leaves_nothing_behind(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    let mut without_id = going_on("i", 2);
    without_id.events[1].event_id = 0;
    let mut taken = going_on("i", 2);
    taken.events[1].event_id = 1;
    let mut twice = going_on("i", 2);
    twice.events[1].event_id = 3;
    for (commit, what) in
        [(without_id, "an event without an id"), (taken, "an id that is taken"), (twice, "an id twice")]
    {
        assert_refused(store_result(extended, &first, &held, &commit, Some(&work(1))).await, what);
    }
    let elsewhere = completion("other", 2);
    let results = [FinishedActivity { lock_token: &first.lock_token, completion: &elsewhere }];
    let outcome = store_one(extended, StepCause::Results(&results), &held, &going_on("i", 2), None).await;
    assert_refused(outcome, "a result for another instance");
    let outcome = store_one(extended, StepCause::Results(&[]), &held, &going_on("i", 2), None).await;
    assert_refused(outcome, "a step without a cause");
    expect_untouched(&store, &held, &first).await;
}

/// Of two steps of one instance at the same time, one is stored; and a step and a claim exclude each other.
pub async fn steps_at_the_same_time_exclude_each_other(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    for round in 0..10 {
        let instance = format!("i{round}");
        let mut commit = super::opening(&instance);
        commit.work.push(super::activity(&instance, 3));
        store.start(&instance).await;
        let turn = store.turn_of(&instance).await;
        let first = extended.store_turn(super::as_turn(&commit, &turn.token), Some(&work(2))).await;
        let first = first.expect("store_turn should work");
        let held = Held {
            instance: instance.clone(),
            incarnation: first.incarnation,
            execution_id: 1,
            last_event_id: 2,
        };
        let (one, other) = (going_on(&instance, 2), going_on(&instance, 2));
        let (one, other) = tokio::join!(
            store_result(extended, &first.claims[0], &held, &one, None),
            store_result(extended, &first.claims[1], &held, &other, None),
        );
        let is_stored = |outcome| matches!(outcome, Ok(StepOutcome::Stored(_)));
        assert_eq!(usize::from(is_stored(one)) + usize::from(is_stored(other)), 1, "exactly one is stored");
        assert_eq!(store.history(&instance).await.len(), 4);
        let next = store.work().await;
        store.provider.ack_work_item(&next.token, None).await.expect("ack_work_item should work");
    }
}
