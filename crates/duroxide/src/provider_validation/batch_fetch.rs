//! Several instances or activities in one step, each under a lease of its own.

use std::collections::HashSet;

use semver::Version;

use super::support::{
    Commit, Store, TURN_LEASE, WORK_LEASE, activity, activity_id, assert_refused, completion_of, named,
    owner, raised, session_activity, started, tagged_activity,
};
use super::{ExecutionMetadata, ProviderFactory};
use crate::providers::{
    DispatcherCapabilityFilter, ExtendedProvider, InstanceClaim, InstanceRequest, SemverRange,
    SessionFetchConfig, TagFilter, WorkClaim, WorkRequest,
};

async fn claim_instances(
    extended: &dyn ExtendedProvider,
    max: usize,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Vec<InstanceClaim> {
    let request = InstanceRequest { max, lock_timeout: TURN_LEASE, filter };
    extended.claim_instances(&request).await.expect("claim_instances should work")
}

async fn claim_work(
    extended: &dyn ExtendedProvider,
    max: usize,
    session: Option<&SessionFetchConfig>,
    tag_filter: &TagFilter,
) -> Vec<WorkClaim> {
    let request = WorkRequest { max, lock_timeout: WORK_LEASE, session, tag_filter };
    extended.claim_work(&request).await.expect("claim_work should work")
}

fn instances(claims: &[InstanceClaim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.instance.as_str()).collect()
}

fn ids(claims: &[WorkClaim]) -> Vec<u64> {
    claims.iter().map(|claim| activity_id(&claim.item)).collect()
}

/// A batch has at most as many instances as the caller asked for, oldest message first; the rest stays in the queue.
pub async fn instances_come_oldest_first_and_at_most_max(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for instance in ["c", "a", "d", "b"] {
        store.start(instance).await;
    }
    assert!(claim_instances(extended, 0, None).await.is_empty(), "nothing was asked for");
    assert_eq!(instances(&claim_instances(extended, 3, None).await), ["c", "a", "d"]);
    assert_eq!(instances(&claim_instances(extended, 3, None).await), ["b"], "only one is left");
    assert!(claim_instances(extended, 3, None).await.is_empty(), "all are leased");
    store.expect_no_turn("all are leased").await;
}

/// Each claim describes the instance as a fetch would, without its history.
pub async fn claims_describe_their_instances(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("known").await;
    let second = Commit { execution_id: 2, events: vec![started("known", 2)], ..Commit::default() };
    store.next_turn("known", second).await;
    store.send(raised("known", "n", "1")).await;
    store.send(raised("known", "n", "2")).await;
    store.start("fresh").await;

    let claims = claim_instances(extended, 10, None).await;
    let [known, fresh] = claims.as_slice() else { panic!("two instances should be claimed; got {claims:?}") };
    assert_eq!((known.instance.as_str(), known.orchestration_name.as_str()), ("known", "TestOrch"));
    assert_eq!((known.version.as_str(), known.execution_id), ("1.0.0", 2));
    assert_eq!((known.last_event_id, known.attempt_count), (1, 1));
    assert_eq!(known.status.as_deref(), Some("Running"));
    assert_eq!(known.messages, [raised("known", "n", "1"), raised("known", "n", "2")]);
    assert_ne!(known.incarnation, 0, "an instance with a row has an incarnation");

    assert_eq!((fresh.instance.as_str(), fresh.orchestration_name.as_str()), ("fresh", "TestOrch"));
    assert_eq!((fresh.execution_id, fresh.last_event_id, fresh.incarnation), (1, 0, 0));
    assert_eq!(fresh.status, None, "an instance without a row has no status");
}

/// The holder acks, renews and gives back each claim separately.
pub async fn claimed_instances_have_leases_of_their_own(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for instance in ["a", "b", "c"] {
        store.start(instance).await;
    }
    let claims = claim_instances(extended, 3, None).await;
    let tokens: HashSet<&str> = claims.iter().map(|claim| claim.lock_token.as_str()).collect();
    assert_eq!(tokens.len(), 3, "each claim should have a token of its own");

    store.try_ack(&claims[0].lock_token, Commit::creating("a")).await.expect("a claim can be acked");
    store
        .provider
        .abandon_orchestration_item(&claims[1].lock_token, None, false)
        .await
        .expect("a claim can be given back");
    store
        .provider
        .renew_orchestration_item_lock(&claims[2].lock_token, TURN_LEASE)
        .await
        .expect("a claim can be renewed");

    let turn = store.turn_of("b").await;
    assert_eq!(turn.attempts, 2, "the claim should count as an attempt");
    store.expect_no_turn("one is done, two are leased").await;
    let again = store.try_ack(&claims[0].lock_token, Commit::default()).await;
    assert_refused(again, "a second ack of a claim");
}

/// A batch leaves out executions that the caller cannot replay, and honours every range of its filter.
pub async fn claims_honour_the_capability_filter(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for (instance, major) in [("v1", 1), ("v2", 2), ("v3", 3)] {
        let metadata =
            ExecutionMetadata { pinned_duroxide_version: Some(Version::new(major, 0, 0)), ..named() };
        store.start_and_ack(instance, Commit { metadata, ..Commit::creating(instance) }).await;
    }
    for instance in ["v1", "v2", "v3"] {
        store.send(raised(instance, "n", "")).await;
    }
    store.start("unpinned").await;
    let major = |major| SemverRange::new(Version::new(major, 0, 0), Version::new(major, 9, 9));
    let nothing = DispatcherCapabilityFilter { supported_duroxide_versions: vec![] };
    assert!(claim_instances(extended, 10, Some(&nothing)).await.is_empty(), "nothing is supported");
    let filter = DispatcherCapabilityFilter { supported_duroxide_versions: vec![major(1), major(3)] };
    let claims = claim_instances(extended, 10, Some(&filter)).await;
    assert_eq!(instances(&claims), ["v1", "v3", "unpinned"], "both ranges and the unpinned one match");
    let left = store.turn_of("v2").await;
    assert_eq!(left.attempts, 1, "an instance that was left out should not be counted");
}

/// A batch has at most as many activities as the caller asked for, first in, first out.
pub async fn activities_come_in_order_and_at_most_max(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for id in 1..=5 {
        store.send_work(activity("i", id)).await;
    }
    let any = TagFilter::default();
    assert!(claim_work(extended, 0, None, &any).await.is_empty(), "nothing was asked for");
    let claims = claim_work(extended, 3, None, &any).await;
    assert_eq!(ids(&claims), [1, 2, 3]);
    assert!(claims.iter().all(|claim| claim.attempt_count == 1), "each is at its first attempt");
    assert_eq!(ids(&claim_work(extended, 3, None, &any).await), [4, 5], "only two are left");
    store.expect_no_work("all are leased").await;
}

/// The holder acks and gives back each claimed activity separately.
pub async fn claimed_activities_have_leases_of_their_own(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create_with_work("i", (1..=3).map(|id| activity("i", id)).collect()).await;
    let claims = claim_work(extended, 3, None, &TagFilter::default()).await;
    let tokens: HashSet<&str> = claims.iter().map(|claim| claim.lock_token.as_str()).collect();
    assert_eq!(tokens.len(), 3, "each claim should have a token of its own");

    let done = completion_of(&claims[0].item, "done");
    store.provider.ack_work_item(&claims[0].lock_token, Some(done)).await.expect("a claim can be acked");
    store
        .provider
        .abandon_work_item(&claims[1].lock_token, None, true)
        .await
        .expect("a claim can be given back");
    let again = store.work().await;
    assert_eq!((again.id(), again.attempts), (2, 1), "what was given back uncounted should come again");
    store.expect_no_work("one is done, two are leased").await;
    assert_eq!(store.turn_of("i").await.item.messages.len(), 1, "one completion was reported");
}

/// At most one activity of a batch is bound to a session: its owner could not run two at a time.
pub async fn at_most_one_session_activity_per_batch(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send_work(session_activity("i", 1, "s1")).await;
    store.send_work(session_activity("i", 2, "s1")).await;
    store.send_work(activity("i", 3)).await;
    store.send_work(session_activity("i", 4, "s2")).await;
    store.send_work(activity("i", 5)).await;

    let me = owner("me", WORK_LEASE);
    let claims = claim_work(extended, 10, Some(&me), &TagFilter::default()).await;
    assert_eq!(ids(&claims), [1, 3, 5], "one activity of a session and all that have none, in order");
    let you = owner("you", WORK_LEASE);
    let claims = claim_work(extended, 10, Some(&you), &TagFilter::default()).await;
    assert_eq!(ids(&claims), [4], "the first session is taken, the second was left free");
    let claims = claim_work(extended, 10, None, &TagFilter::default()).await;
    assert!(claims.is_empty(), "without an owner no activity of a session is handed out; got {claims:?}");
    let claims = claim_work(extended, 10, Some(&me), &TagFilter::default()).await;
    assert_eq!(ids(&claims), [2], "the session's next activity is its owner's");
}

/// A batch of activities honours the tag filter.
pub async fn claims_honour_the_tag_filter(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send_work(activity("i", 1)).await;
    store.send_work(tagged_activity("i", 2, "gpu")).await;
    store.send_work(tagged_activity("i", 3, "cpu")).await;
    store.send_work(tagged_activity("i", 4, "gpu")).await;
    store.send_work(activity("i", 5)).await;
    assert!(claim_work(extended, 10, None, &TagFilter::None).await.is_empty(), "nothing is served");
    let gpu = TagFilter::tags(["gpu"]);
    assert_eq!(ids(&claim_work(extended, 1, None, &gpu).await), [2]);
    assert_eq!(ids(&claim_work(extended, 10, None, &TagFilter::default_and(["gpu"])).await), [1, 4, 5]);
    assert_eq!(ids(&claim_work(extended, 10, None, &TagFilter::Any).await), [3]);
}
