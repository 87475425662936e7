//! The commit of an activity's result claims an instance.

use semver::Version;

use super::super::support::{
    Commit, Store, TURN_LEASE, Work, activity, assert_refused, completed, completion_of, named, raised,
    start_item,
};
use super::super::{ExecutionMetadata, ProviderFactory};
use super::{instances, names, settled};
use crate::model::WorkItem;
use crate::providers::{
    DispatcherCapabilityFilter, ExtendedProvider, InstanceClaim, InstanceRequest, SemverRange,
};

/// Creates an instance with an activity, and takes the activity.
async fn running_activity(store: &Store<'_>, instance: &str) -> Work {
    store.create_with_work(instance, vec![activity(instance, 2)]).await;
    store.work().await
}

/// Stores the result of an activity and waits until it is durable.
async fn store_done(
    extended: &dyn ExtendedProvider,
    work: &Work,
    claim: Option<&InstanceRequest<'_>>,
) -> Vec<InstanceClaim> {
    let done = Some(completion_of(&work.item, "done"));
    settled(extended.store_result(&work.token, done, claim).await).await
}

/// The commit of a result claims the result's own instance, with the result among its messages.
pub async fn a_result_claims_the_instance_that_it_is_for(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let work = running_activity(&store, "i").await;
    let claims = store_done(extended, &work, Some(&instances(1, None))).await;
    let [claim] = claims.as_slice() else { panic!("one instance should be claimed; got {claims:?}") };
    assert_eq!((claim.instance.as_str(), claim.attempt_count), ("i", 1));
    assert_eq!(claim.messages, [completed("i", 2, "done")]);
    assert_eq!(
        (claim.orchestration_name.as_str(), claim.execution_id, claim.last_event_id),
        ("TestOrch", 1, 1)
    );
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work");
    assert_eq!(Some(claim.incarnation), metadata.map(|metadata| metadata.incarnation));
    store.expect_no_turn("the only instance with messages is claimed").await;
    store.expect_no_work("the activity is done").await;
    let again = extended.store_result(&work.token, None, None).await;
    assert_refused(again, "a second result of the same activity");
}

/// The holder renews, acks and gives back a claim made along with a result like any other.
pub async fn instances_claimed_with_a_result_are_claims_like_any_other(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let work = running_activity(&store, "i").await;
    let request = InstanceRequest { lock_timeout: store.lease(), ..instances(1, None) };
    let claims = store_done(extended, &work, Some(&request)).await;
    let token = &claims[0].lock_token;
    store.provider.abandon_orchestration_item(token, None, true).await.expect("a claim can be given back");
    let turn = store.turn_of("i").await;
    assert_eq!(turn.attempts, 1, "what was given back uncounted should come again");
    store.ack(&turn, Commit { work: vec![activity("i", 3)], ..Commit::default() }).await;

    let work = store.work().await;
    let claims = store_done(extended, &work, Some(&request)).await;
    let token = &claims[0].lock_token;
    store.provider.renew_orchestration_item_lock(token, TURN_LEASE).await.expect("a claim can be renewed");
    store.outlive_lease().await;
    store.expect_no_turn("the lease was renewed").await;
    let history = extended.load_history(token, 0).await.expect("the history of a claim can be loaded");
    assert_eq!(history.events.len(), 1);
    store.try_ack(token, Commit::default()).await.expect("a claim can be acked");
    store.expect_no_turn("the messages were taken").await;

    store.next_turn("i", Commit { work: vec![activity("i", 4)], ..Commit::default() }).await;
    let work = store.work().await;
    let claims = store_done(extended, &work, Some(&request)).await;
    store.outlive_lease().await;
    let turn = store.turn_of("i").await;
    assert_eq!(turn.attempts, 2, "the lease should run out like any other");
    let late = store.try_ack(&claims[0].lock_token, Commit::default()).await;
    assert_refused(late, "an ack after another has taken over");
}

/// An instance whose message has waited longer comes first.
pub async fn an_instance_with_an_older_message_is_claimed_first(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let work = running_activity(&store, "i").await;
    store.send(start_item("older")).await;
    let claims = store_done(extended, &work, Some(&instances(1, None))).await;
    assert_eq!(names(&claims), ["older"]);
    assert_eq!(store.turn_of("i").await.item.messages, [completed("i", 2, "done")]);
}

/// A result claims as many instances as the caller asks for, and none if it does not ask.
pub async fn a_result_claims_at_most_max_instances(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut work = Vec::new();
    for instance in ["a", "b", "c"] {
        work.push(running_activity(&store, instance).await);
    }
    assert!(store_done(extended, &work[0], None).await.is_empty(), "nobody asked for instances");
    let none = store_done(extended, &work[1], Some(&instances(0, None))).await;
    assert!(none.is_empty(), "none were asked for");
    let claims = store_done(extended, &work[2], Some(&instances(2, None))).await;
    assert_eq!(names(&claims), ["a", "b"], "two were asked for, and three are ready");
    store.turn_of("c").await;
}

/// The commit does not claim an instance in the middle of a turn; the result waits for it.
pub async fn an_instance_in_a_turn_is_not_claimed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let work = running_activity(&store, "i").await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_of("i").await;
    let claims = store_done(extended, &work, Some(&instances(10, None))).await;
    assert!(claims.is_empty(), "the instance is in a turn; got {claims:?}");
    store.ack(&turn, Commit::default()).await;
    assert_eq!(store.turn_of("i").await.item.messages, [completed("i", 2, "done")]);
}

/// The commit leaves executions that the caller cannot replay to other dispatchers.
pub async fn a_result_claims_only_what_the_caller_can_replay(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let pinned =
        |major| ExecutionMetadata { pinned_duroxide_version: Some(Version::new(major, 0, 0)), ..named() };
    for (instance, major) in [("v2", 2), ("v1", 1)] {
        let work = vec![activity(instance, 2)];
        let commit = Commit { work, metadata: pinned(major), ..Commit::creating(instance) };
        store.start_and_ack(instance, commit).await;
    }
    let (v2, v1) = (store.work().await, store.work().await);
    let nothing = DispatcherCapabilityFilter { supported_duroxide_versions: vec![] };
    let claims = store_done(extended, &v2, Some(&instances(10, Some(&nothing)))).await;
    assert!(claims.is_empty(), "nothing is supported; got {claims:?}");
    let range = SemverRange::new(Version::new(1, 0, 0), Version::new(1, 9, 9));
    let first = DispatcherCapabilityFilter { supported_duroxide_versions: vec![range] };
    let claims = store_done(extended, &v1, Some(&instances(10, Some(&first)))).await;
    assert_eq!(names(&claims), ["v1"], "the older one is of another version");
    assert_eq!(store.turn_of("v2").await.attempts, 1, "what was left out should not be counted");
}

/// A refused result enqueues nothing, keeps the activity and claims nothing.
pub async fn a_refused_result_claims_and_enqueues_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create_with_work("i", vec![activity("i", 2)]).await;
    store.create("waiting").await;
    store.send(raised("waiting", "n", "")).await;
    let request = instances(10, None);
    let refuse = async |token: &str, completion: WorkItem, why: &str| {
        assert_refused(extended.store_result(token, Some(completion), Some(&request)).await, why);
    };
    refuse("lock_invented", completed("i", 2, ""), "an invented token").await;
    let work = store.work_for(store.lease()).await;
    refuse(&work.token, raised("i", "n", ""), "a completion of the wrong kind").await;
    store.outlive_lease().await;
    refuse(&work.token, completed("i", 2, ""), "a lease that ran out").await;

    let again = store.work().await;
    assert_eq!((again.id(), again.attempts), (2, 2), "the activity should still be there");
    let turn = store.turn_of("waiting").await;
    assert_eq!(turn.attempts, 1, "the waiting instance should not have been claimed");
    store.expect_no_turn("no result was enqueued").await;
}

/// Without a completion, the store only removes the activity; it still claims ready instances.
pub async fn a_result_without_completion_only_removes_the_activity(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let work = running_activity(&store, "i").await;
    let claims = settled(extended.store_result(&work.token, None, Some(&instances(10, None))).await).await;
    assert!(claims.is_empty(), "nothing was enqueued; got {claims:?}");
    store.outlive_lease().await;
    store.expect_no_work("the activity was removed").await;

    let work = running_activity(&store, "j").await;
    store.send(raised("i", "n", "")).await;
    let claims = settled(extended.store_result(&work.token, None, Some(&instances(10, None))).await).await;
    assert_eq!(names(&claims), ["i"]);
}

/// A result becomes durable even if no later write follows and no caller waits for it.
pub async fn a_result_becomes_durable_by_itself(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for instance in ["a", "b", "c"] {
        let work = running_activity(&store, instance).await;
        let done = Some(completion_of(&work.item, "done"));
        let stored = extended.store_result(&work.token, done, None).await.expect("store_result should work");
        match instance {
            "a" => drop(stored),
            _ => drop(settled(Ok(stored)).await),
        }
        store.ack(&store.turn_of(instance).await, Commit::default()).await;
    }
}

/// Results that are stored at the same time claim each instance once.
pub async fn results_stored_together_claim_each_instance_once(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut work = Vec::new();
    for n in 0..20 {
        work.push(running_activity(&store, &format!("i{n}")).await);
    }
    let mut claimed = Vec::new();
    for pair in work.chunks(4) {
        let request = instances(1, None);
        let [a, b, c, d] = pair else { panic!("twenty is a multiple of four") };
        let done = tokio::join!(
            store_done(extended, a, Some(&request)),
            store_done(extended, b, Some(&request)),
            store_done(extended, c, Some(&request)),
            store_done(extended, d, Some(&request)),
        );
        claimed.extend([done.0, done.1, done.2, done.3].into_iter().flatten());
    }
    let mut found: Vec<String> = claimed.into_iter().map(|claim| claim.instance).collect();
    while let Some(turn) = store.try_turn().await {
        found.push(turn.item.instance);
    }
    found.sort();
    let mut expected: Vec<String> = (0..20).map(|n| format!("i{n}")).collect();
    expected.sort();
    assert_eq!(found, expected, "each instance should be claimed or left, once");
}
