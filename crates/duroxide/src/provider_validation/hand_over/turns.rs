//! A turn's commit claims activities.

use super::super::support::{
    Commit, Store, Turn, WORK_LEASE, activity, assert_refused, completion_of, owner, raised, scheduled,
    session_activity, started, status, tagged_activity,
};
use super::super::{Event, ProviderFactory};
use super::{ids, store_turn, try_store_turn, work};
use crate::model::WorkItem;
use crate::providers::{ExtendedProvider, TagFilter, WorkRequest};

/// Starts an instance and returns its first turn.
async fn first_turn(store: &Store<'_>, instance: &str) -> Turn {
    store.start(instance).await;
    store.turn_of(instance).await
}

fn scheduling(instance: &str, work: Vec<WorkItem>) -> Commit {
    Commit { work, ..Commit::creating(instance) }
}

/// A turn's commit claims the activity that the turn schedules, at its first attempt.
pub async fn a_turn_claims_the_activity_that_it_schedules(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let turn = first_turn(&store, "i").await;
    let stored =
        store_turn(extended, &turn.token, &scheduling("i", vec![activity("i", 2)]), Some(&work(1))).await;
    let [claim] = stored.claims.as_slice() else { panic!("one activity should be claimed; got {stored:?}") };
    assert_eq!((&claim.item, claim.attempt_count), (&activity("i", 2), 1));
    store.expect_no_work("the only activity is claimed").await;
    assert_eq!(store.history("i").await.len(), 1, "the turn should be stored");
    assert_refused(store.try_ack(&turn.token, Commit::default()).await, "a second ack of the turn");
}

/// The holder renews, acks and gives back a claim made along with a turn like any other.
pub async fn activities_claimed_with_a_turn_are_claims_like_any_other(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let turn = first_turn(&store, "i").await;
    let scheduled = (2..=4).map(|id| activity("i", id)).collect();
    let request = WorkRequest { lock_timeout: store.lease(), ..work(3) };
    let stored = store_turn(extended, &turn.token, &scheduling("i", scheduled), Some(&request)).await;
    let [renewed, given_back, left] = stored.claims.as_slice() else { panic!("three; got {stored:?}") };
    let provider = &store.provider;
    provider.renew_work_item_lock(&renewed.lock_token, WORK_LEASE).await.expect("a claim can be renewed");
    provider.abandon_work_item(&given_back.lock_token, None, true).await.expect("a claim can be given back");
    let again = store.work().await;
    assert_eq!((again.id(), again.attempts), (3, 1), "what was given back uncounted should come again");
    store.outlive_lease().await;
    let expired = store.work().await;
    assert_eq!((expired.id(), expired.attempts), (4, 2), "the lease of the third should run out");
    let late = provider.ack_work_item(&left.lock_token, Some(completion_of(&left.item, "late"))).await;
    assert_refused(late, "an ack after another has taken over");
    let done = completion_of(&renewed.item, "done");
    provider.ack_work_item(&renewed.lock_token, Some(done.clone())).await.expect("a claim can be acked");
    assert_eq!(store.turn_of("i").await.item.messages, [done]);
}

/// An activity that has waited longer comes first, whichever instance scheduled it.
pub async fn an_older_activity_is_claimed_before_the_turns_own(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send_work(activity("other", 1)).await;
    let turn = first_turn(&store, "i").await;
    let commit = scheduling("i", vec![activity("i", 2), activity("i", 3)]);
    let stored = store_turn(extended, &turn.token, &commit, Some(&work(2))).await;
    assert_eq!(ids(&stored.claims), [1, 2], "first in, first out");
    assert_eq!(store.work().await.id(), 3, "what was not claimed is there for others");
}

/// Activities of one turn keep the order in which the turn scheduled them, also if some are claimed along with it and come back.
pub async fn what_a_turn_claims_keeps_its_place(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let turn = first_turn(&store, "i").await;
    let commit = scheduling("i", vec![session_activity("i", 2, "s"), activity("i", 3)]);
    let stored = store_turn(extended, &turn.token, &commit, Some(&work(2))).await;
    let [claim] = stored.claims.as_slice() else { panic!("the one without a session; got {stored:?}") };
    let given_back = store.provider.abandon_work_item(&claim.lock_token, None, true).await;
    given_back.expect("a claim can be given back");
    let owner = owner("A", WORK_LEASE);
    let request = WorkRequest { session: Some(&owner), ..work(1) };
    for id in [2, 3] {
        let claims = extended.claim_work(&request).await.expect("claim_work should work");
        assert_eq!(ids(&claims), [id], "first in, first out");
    }
}

/// A turn claims as many activities as the caller asks for, and none if it does not ask.
pub async fn a_turn_claims_at_most_max_activities(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let four = |instance: &str| (2..=5).map(|id| activity(instance, id)).collect();
    let turn = first_turn(&store, "unasked").await;
    let stored = store_turn(extended, &turn.token, &scheduling("unasked", four("unasked")), None).await;
    assert!(stored.claims.is_empty(), "nobody asked for activities");
    let turn = first_turn(&store, "none").await;
    let stored = store_turn(extended, &turn.token, &Commit::creating("none"), Some(&work(0))).await;
    assert!(stored.claims.is_empty(), "none were asked for");
    let turn = first_turn(&store, "three").await;
    let stored = store_turn(extended, &turn.token, &Commit::creating("three"), Some(&work(3))).await;
    assert_eq!(ids(&stored.claims), [2, 3, 4], "three were asked for, and more are there");
    assert_eq!(store.work().await.id(), 5);
    store.expect_no_work("all are claimed").await;
}

/// The commit leaves activities of other tags and of sessions to workers that may take them.
pub async fn a_turn_claims_only_what_the_caller_may_run(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let scheduled = || {
        vec![
            tagged_activity("i", 2, "gpu"),
            session_activity("i", 3, "s"),
            activity("i", 4),
            tagged_activity("i", 5, "cpu"),
        ]
    };
    let turn = first_turn(&store, "i").await;
    let tag_filter = &TagFilter::default_and(["cpu"]);
    let request = WorkRequest { tag_filter, ..work(10) };
    let stored = store_turn(extended, &turn.token, &scheduling("i", scheduled()), Some(&request)).await;
    assert_eq!(ids(&stored.claims), [4, 5], "neither the other tag nor the session");
    let gpu = store.try_tagged_work(&TagFilter::tags(["gpu"])).await.expect("the other tag is left");
    assert_eq!(gpu.id(), 2);

    let turn = first_turn(&store, "nobody").await;
    let request = WorkRequest { tag_filter: &TagFilter::None, ..work(10) };
    let commit = scheduling("nobody", vec![activity("nobody", 6)]);
    let stored = store_turn(extended, &turn.token, &commit, Some(&request)).await;
    assert!(stored.claims.is_empty(), "nothing is served");

    let turn = first_turn(&store, "owner").await;
    let session = owner("me", WORK_LEASE);
    let request = WorkRequest { session: Some(&session), ..work(10) };
    let commit = scheduling("owner", vec![session_activity("owner", 7, "s")]);
    let stored = store_turn(extended, &turn.token, &commit, Some(&request)).await;
    assert_eq!(ids(&stored.claims), [3, 6], "an owner of sessions is given one activity of a session");
}

/// The commit does not claim an activity that the same turn cancels.
pub async fn a_turn_does_not_claim_what_it_cancels(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create_with_work("i", vec![activity("i", 2)]).await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_of("i").await;
    let commit =
        Commit { work: vec![activity("i", 3)], cancelled: vec![scheduled("i", 2)], ..Commit::default() };
    let stored = store_turn(extended, &turn.token, &commit, Some(&work(10))).await;
    assert_eq!(ids(&stored.claims), [3]);
}

/// A refused turn stores nothing and claims nothing, neither its own activities nor older ones.
pub async fn a_refused_turn_claims_and_stores_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("i").await;
    store.send_work(activity("older", 1)).await;
    let commit = Commit { work: vec![activity("i", 2)], metadata: status("Completed"), ..Commit::default() };
    let refuse = async |token: &str, events: Vec<Event>, why: &str| {
        let commit = Commit { events, ..commit.clone() };
        assert_refused(try_store_turn(extended, token, &commit, Some(&work(10))).await, why);
    };
    refuse("lock_invented", vec![], "an invented token").await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_of("i").await;
    refuse(&turn.token, vec![started("i", 1)], "an event id that is taken").await;
    store.abandon(&turn).await;
    let turn = store.turn_for(store.lease()).await;
    store.outlive_lease().await;
    refuse(&turn.token, vec![], "a lease that ran out").await;

    assert_eq!(store.history("i").await.len(), 1, "no event should be stored");
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work");
    assert_eq!(metadata.map(|metadata| metadata.status), Some("Running".into()), "the status should stay");
    let left = store.work().await;
    assert_eq!((left.id(), left.attempts), (1, 1), "the older activity should not have been claimed");
    store.expect_no_work("no activity of a refused turn is stored").await;
    store.turn_of("i").await;
}

/// The answer names the same incarnation as the metadata, and another one after delete and re-create.
pub async fn a_stored_turn_names_the_incarnation(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let first = incarnation_of_next_turn(&store, extended, Commit::creating("i")).await;
    let second = incarnation_of_next_turn(&store, extended, Commit::default()).await;
    assert_eq!(first, second, "a turn does not change the incarnation");
    store.admin().delete_instance("i", true).await.expect("the instance can be deleted");
    let third = incarnation_of_next_turn(&store, extended, Commit::creating("i")).await;
    assert_ne!(first, third, "another creation of the same id");

    let turn = first_turn(&store, "rowless").await;
    let stored =
        store_turn(extended, &turn.token, &Commit::of_events(vec![started("rowless", 1)]), None).await;
    assert_eq!(stored.incarnation, 0, "without a name there is no row, and so no incarnation");
}

async fn incarnation_of_next_turn(store: &Store<'_>, extended: &dyn ExtendedProvider, commit: Commit) -> u64 {
    let turn = first_turn(store, "i").await;
    let stored = store_turn(extended, &turn.token, &commit, None).await;
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work");
    assert_eq!(Some(stored.incarnation), metadata.map(|metadata| metadata.incarnation));
    assert_ne!(stored.incarnation, 0, "an instance with a row has an incarnation");
    stored.incarnation
}

/// Turns that are stored at the same time share the activities between them, each once.
pub async fn turns_stored_together_claim_each_activity_once(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut turns = Vec::new();
    for n in 0..20 {
        turns.push(first_turn(&store, &format!("i{n}")).await);
    }
    let mut claimed = Vec::new();
    for together in turns.chunks(4) {
        let take = async |turn: &Turn| {
            let instance = &turn.item.instance;
            let commit = scheduling(instance, vec![activity(instance, 2)]);
            store_turn(extended, &turn.token, &commit, Some(&work(1))).await.claims
        };
        let [a, b, c, d] = together else { panic!("twenty is a multiple of four") };
        let done = tokio::join!(take(a), take(b), take(c), take(d));
        claimed.extend([done.0, done.1, done.2, done.3].into_iter().flatten());
    }
    let mut found: Vec<String> = claimed.into_iter().map(|claim| instance_of(claim.item)).collect();
    while let Some(work) = store.try_work().await {
        found.push(instance_of(work.item));
    }
    found.sort();
    let mut expected: Vec<String> = turns.into_iter().map(|turn| turn.item.instance).collect();
    expected.sort();
    assert_eq!(found, expected, "each activity should be claimed or left, once");
}

fn instance_of(activity: WorkItem) -> String {
    match activity {
        WorkItem::ActivityExecute { instance, .. } => instance,
        other => panic!("only activities were scheduled, not {other:?}"),
    }
}
