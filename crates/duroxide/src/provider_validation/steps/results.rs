//! A step that is caused by results of activities.

use super::super::ProviderFactory;
use super::super::support::{
    Commit, Store, WORK_LEASE, activity, assert_refused, ms, owner, raised, session_activity, started, status,
};
use super::{
    Held, able, activity_completed, completion, going_on, ids, one_instance, opening, running, store_one,
    store_result, stored, work,
};
use crate::providers::{FinishedActivity, StepCause, TagFilter, WorkRequest};

/// The result, the turn and the next activity are one commit: nothing passes through a queue.
pub async fn a_result_is_stored_with_its_turn(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    let step = stored(store_result(extended, &first, &held, &going_on("i", 2), Some(&work(1))).await);
    assert_eq!(step.incarnations, [held.incarnation]);
    let [second] = step.claims.as_slice() else { panic!("one activity should be claimed; got {step:?}") };
    assert_eq!((ids(&step.claims), second.attempt_count), (vec![4], 1));
    store.expect_no_turn("the result was taken in its own commit").await;
    store.expect_no_work("the only activity is claimed").await;
    assert_eq!(store.history("i").await.len(), 4);
    let again = store.provider.ack_work_item(&first.lock_token, Some(completion("i", 2))).await;
    assert_refused(again, "the result of an activity that is gone");
    let step =
        stored(store_result(extended, second, &held.after(4), &going_on("i", 4), Some(&work(1))).await);
    assert_eq!(ids(&step.claims), [6]);
    let claims = extended.claim_instances(&one_instance()).await.expect("claim_instances should work");
    assert!(claims.is_empty(), "nothing waits for the instance");
}

/// What comes later finds the instance as the long way would have left it.
pub async fn the_long_way_goes_on_after_a_step(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    stored(store_result(extended, &first, &held, &going_on("i", 2), None).await);
    let work = store.work().await;
    assert_eq!((work.id(), work.attempts), (4, 1), "an activity that was not asked for is ready");
    store.complete(&work).await;
    let turn = store.turn_of("i").await;
    assert_eq!(turn.item.messages, [completion("i", 4)]);
    assert_eq!((turn.item.history.len(), turn.attempts), (4, 1));
}

/// The activity that a step hands over is renewed, acked and given back like any other, and its lease runs out.
pub async fn activities_entered_as_leased_are_claims_like_any_other(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let short = WorkRequest { lock_timeout: store.lease(), ..work(1) };
    for (instance, given_back) in [("back", true), ("lost", false)] {
        let (held, first) = running(&store, extended, instance).await;
        let step = stored(store_result(extended, &first, &held, &going_on(instance, 2), Some(&short)).await);
        let [next] = step.claims.as_slice() else { panic!("one activity; got {step:?}") };
        store
            .provider
            .renew_work_item_lock(&next.lock_token, store.lease())
            .await
            .expect("it can be renewed");
        if given_back {
            let back = store.provider.abandon_work_item(&next.lock_token, None, true).await;
            back.expect("it can be given back");
        } else {
            store.outlive_lease().await;
        }
        let again = store.work().await;
        let attempts = if given_back { 1 } else { 2 };
        assert_eq!((again.id(), again.attempts), (4, attempts), "{instance}");
        store.complete(&again).await;
        store.ack(&store.turn_of(instance).await, Commit::default()).await;
    }
}

/// Several results are one turn.
pub async fn several_results_are_stored_with_one_turn(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let mut commit = opening("i");
    commit.work.push(super::activity("i", 3));
    commit.events.push(super::activity_scheduled("i", 3));
    store.start("i").await;
    let turn = store.turn_of("i").await;
    let first = extended.store_turn(super::as_turn(&commit, &turn.token), Some(&work(2))).await;
    let first = first.expect("store_turn should work");
    let held =
        Held { instance: "i".into(), incarnation: first.incarnation, execution_id: 1, last_event_id: 3 };
    let done = [completion("i", 3), completion("i", 2)];
    let tokens = [&first.claims[1].lock_token, &first.claims[0].lock_token];
    let results: Vec<FinishedActivity<'_>> = tokens
        .iter()
        .zip(&done)
        .map(|(token, completion)| FinishedActivity { lock_token: token, completion })
        .collect();
    let events = vec![activity_completed("i", 4, 3), activity_completed("i", 5, 2)];
    let both = Commit { events, metadata: status("Completed"), ..Commit::default() };
    stored(store_one(extended, StepCause::Results(&results), &held, &both, None).await);
    store.expect_no_work("both are done").await;
    assert_eq!(store.history("i").await.len(), 5);
}

/// A step that ends its instance ends it as a turn does, and wakes those who watch it.
pub async fn a_step_can_end_its_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send_delayed(raised("i", "too late", ""), store.lease()).await;
    let mut watch = extended.watch_instance("i");
    let mut metadata = status("Completed");
    metadata.output = Some("42".into());
    let end = Commit { events: vec![activity_completed("i", 3, 2)], metadata, ..Commit::default() };
    stored(store_result(extended, &first, &held, &end, None).await);
    watch.changed().await;
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work").expect("it exists");
    assert_eq!((metadata.status.as_str(), metadata.output.as_deref()), ("Completed", Some("42")));
    store.outlive_lease().await;
    store.expect_no_turn("what nobody will read goes with the instance").await;
}

/// A step that opens an execution after one that has ended makes its instance run again: it counts once.
pub async fn a_step_after_an_end_counts_its_instance_once(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send_work(activity("i", 4)).await;
    let late = extended.claim_work(&work(1)).await.expect("claim_work should work").remove(0);
    let end = Commit {
        events: vec![activity_completed("i", 3, 2)],
        metadata: status("Completed"),
        ..Commit::default()
    };
    stored(store_result(extended, &first, &held, &end, None).await);
    let again = Commit { execution_id: 2, events: vec![started("i", 1)], ..Commit::default() };
    stored(store_result(extended, &late, &held.after(3), &again, None).await);
    let totals = store.admin().get_system_metrics().await.expect("get_system_metrics should work");
    let counts = (totals.total_instances, totals.running_instances, totals.completed_instances);
    assert_eq!(counts, (1, 1, 0));
}

/// A message that becomes visible later does not keep a step from being stored, and is delivered then.
pub async fn messages_of_later_do_not_hold_a_step_up(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    let (held, first) = running(&store, extended, "i").await;
    store.send_delayed(raised("i", "later", ""), store.lease()).await;
    stored(store_result(extended, &first, &held, &going_on("i", 2), Some(&work(1))).await);
    store.expect_no_turn("it is not visible yet").await;
    store.outlive_lease().await;
    assert_eq!(store.turn_of("i").await.item.messages, [raised("i", "later", "")]);
}

/// The result of an activity of a session counts as a use of the session.
pub async fn a_result_in_a_step_keeps_its_session_awake(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store, |support| support.results) else { return };
    store.start("i").await;
    let turn = store.turn_of("i").await;
    let mut commit = opening("i");
    commit.work = vec![session_activity("i", 2, "s")];
    let incarnation = extended.store_turn(super::as_turn(&commit, &turn.token), None).await;
    let incarnation = incarnation.expect("store_turn should work").incarnation;
    let (lease, idle) = (ms(20_000), ms(1_500));
    let session = owner("me", lease);
    let tag_filter = &TagFilter::DefaultOnly;
    let request = WorkRequest { max: 1, lock_timeout: WORK_LEASE, session: Some(&session), tag_filter };
    let first = extended.claim_work(&request).await.expect("claim_work should work");
    store.pass(ms(1_000)).await;
    let held = Held { instance: "i".into(), incarnation, execution_id: 1, last_event_id: 2 };
    stored(store_result(extended, &first[0], &held, &going_on("i", 2), None).await);
    store.pass(ms(1_000)).await;
    let renewed = store.provider.renew_session_lock(&["me"], lease, idle).await;
    assert_eq!(renewed.expect("renew_session_lock should work"), 1, "it was in use a second ago");
}
