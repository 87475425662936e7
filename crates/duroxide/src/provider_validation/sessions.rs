//! Activities that are bound to a session: which owner may take them, and for how long a session is its own.
//!
//! Two owners, A and B. Unless a check says otherwise, a session is leased for 30 seconds and an activity for 5.

use std::time::Duration;

use super::ProviderFactory;
use super::support::*;
use crate::providers::{SessionFetchConfig, TagFilter, WorkItem};

const INSTANCE: &str = "sessions";
const SESSION_LEASE: Duration = Duration::from_secs(30);
const ACTIVITY_LEASE: Duration = Duration::from_secs(5);
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

fn a() -> SessionFetchConfig {
    owner("A", SESSION_LEASE)
}

fn b() -> SessionFetchConfig {
    owner("B", SESSION_LEASE)
}

/// Enqueues an activity of a session.
async fn enqueue(store: &Store<'_>, id: u64, session: &str) {
    store.send_work(session_activity(INSTANCE, id, session)).await;
}

/// Enqueues an activity without a session.
async fn enqueue_plain(store: &Store<'_>, id: u64) {
    store.send_work(activity(INSTANCE, id)).await;
}

/// Fetches as this owner; activity `id` must come.
async fn take(store: &Store<'_>, owner: &SessionFetchConfig, id: u64) -> Work {
    take_for(store, owner, ACTIVITY_LEASE, id).await
}

/// Fetches as this owner with this lease on the activity; activity `id` must come.
async fn take_for(store: &Store<'_>, owner: &SessionFetchConfig, lease: Duration, id: u64) -> Work {
    let work = store.try_session_work(lease, owner).await;
    let work = work.unwrap_or_else(|| panic!("owner {} should be given activity {id}", owner.owner_id));
    assert_eq!(work.id(), id, "owner {} should be given activity {id}", owner.owner_id);
    work
}

/// Asserts that there is nothing for this owner.
async fn expect_nothing(store: &Store<'_>, owner: &SessionFetchConfig, why: &str) {
    let work = store.try_session_work(ACTIVITY_LEASE, owner).await;
    assert!(work.is_none(), "owner {} should be given nothing: {why}; got {work:?}", owner.owner_id);
}

/// Lets an owner take activity 1 of session `s` and finish it, so that the session is its own.
async fn claim_session(store: &Store<'_>, owner: &SessionFetchConfig) {
    enqueue(store, 1, "s").await;
    let work = take(store, owner, 1).await;
    store.discard(&work).await;
}

/// Renews the sessions of an owner and returns how many there were.
async fn renew(store: &Store<'_>, owner_id: &str, extend_for: Duration, idle_timeout: Duration) -> usize {
    let renewed = store.provider.renew_session_lock(&[owner_id], extend_for, idle_timeout).await;
    renewed.expect("renew_session_lock should work")
}

/// Cleans up and returns how many sessions were removed.
async fn clean_up(store: &Store<'_>) -> usize {
    let removed = store.provider.cleanup_orphaned_sessions(IDLE_TIMEOUT).await;
    removed.expect("cleanup_orphaned_sessions should work")
}

fn session_of(work: &Work) -> Option<&str> {
    match &work.item {
        WorkItem::ActivityExecute { session_id, .. } => session_id.as_deref(),
        other => panic!("the worker queue should hold activities only, not {other:?}"),
    }
}

/// An activity without a session goes to any owner.
pub async fn test_non_session_items_fetchable_by_any_worker(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue_plain(&store, 1).await;
    take(&store, &a(), 1).await;
}

/// An activity of a free session can be taken, and keeps its session id.
pub async fn test_session_item_claimable_when_no_session(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    let work = take(&store, &a(), 1).await;
    assert_eq!(session_of(&work), Some("s"), "the session id should come back with the activity");
}

/// The next activity of a session goes to its owner.
pub async fn test_session_affinity_same_worker(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &a()).await;
    enqueue(&store, 2, "s").await;
    take(&store, &a(), 2).await;
}

/// No other owner gets the next activity of a session.
pub async fn test_session_affinity_blocks_other_worker(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &a()).await;
    enqueue(&store, 2, "s").await;
    expect_nothing(&store, &b(), "the session is A's").await;
}

/// Different sessions can have different owners.
pub async fn test_different_sessions_different_workers(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s1").await;
    let first = take(&store, &a(), 1).await;
    enqueue(&store, 2, "s2").await;
    let second = take(&store, &b(), 2).await;
    store.discard(&first).await;
    store.discard(&second).await;

    enqueue(&store, 3, "s1").await;
    enqueue(&store, 4, "s2").await;
    take(&store, &b(), 4).await;
    take(&store, &a(), 3).await;
}

/// An activity of another owner's session does not hide one behind it.
pub async fn test_mixed_session_and_non_session_items(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &a()).await;
    enqueue(&store, 2, "s").await;
    enqueue_plain(&store, 3).await;
    take(&store, &b(), 3).await;
}

/// A session whose lease has run out is free.
pub async fn test_session_claimable_after_lock_expiry(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(50))).await;
    store.pass(ms(100)).await;
    enqueue(&store, 2, "s").await;
    take(&store, &b(), 2).await;
}

/// A caller that takes no sessions gets none of their activities.
pub async fn test_none_session_skips_session_items(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    enqueue_plain(&store, 2).await;
    assert_eq!(store.work().await.id(), 2, "without an owner only the plain activity should be given");
    store.expect_no_work("the other activity is bound to a session").await;
    take(&store, &a(), 1).await;
}

/// Activities with and without sessions come in one order.
pub async fn test_some_session_returns_all_items(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s1").await;
    enqueue_plain(&store, 2).await;
    enqueue(&store, 3, "s2").await;
    enqueue(&store, 4, "s3").await;
    for id in 1..=4 {
        take(&store, &a(), id).await;
    }
    expect_nothing(&store, &a(), "everything was given").await;
}

/// Renewal counts the sessions that it extends.
pub async fn test_renew_session_lock_active(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s1").await;
    take(&store, &a(), 1).await;
    assert_eq!(renew(&store, "A", SESSION_LEASE, IDLE_TIMEOUT).await, 1, "A owns one session");
    enqueue(&store, 2, "s2").await;
    take(&store, &a(), 2).await;
    assert_eq!(renew(&store, "A", SESSION_LEASE, IDLE_TIMEOUT).await, 2, "A owns two sessions");
}

/// The store does not renew a session that was idle for the idle time.
pub async fn test_renew_session_lock_skips_idle(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &a()).await;
    let renewed = renew(&store, "A", SESSION_LEASE, Duration::ZERO).await;
    assert_eq!(renewed, 0, "with an idle time of zero every session is idle");
}

/// An owner without sessions renews none.
pub async fn test_renew_session_lock_no_sessions(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    assert_eq!(renew(&store, "A", SESSION_LEASE, IDLE_TIMEOUT).await, 0, "A owns no session");
}

/// Cleaning up removes a session that has expired and has no activities.
pub async fn test_cleanup_removes_expired_no_items(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(50))).await;
    store.pass(ms(100)).await;
    assert_eq!(clean_up(&store).await, 1, "the expired session should be removed");
}

/// Cleaning up keeps a session that has activities waiting.
pub async fn test_cleanup_keeps_sessions_with_pending_items(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(50))).await;
    enqueue(&store, 2, "s").await;
    store.pass(ms(100)).await;
    assert_eq!(clean_up(&store).await, 0, "the expired session still has an activity waiting");
}

/// Cleaning up keeps a session whose lease is live.
pub async fn test_cleanup_keeps_active_sessions(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", Duration::from_secs(300))).await;
    assert_eq!(clean_up(&store).await, 0, "the session is still A's");
}

/// Finishing an activity shows that its session is in use.
pub async fn test_ack_updates_session_last_activity(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    let work = take(&store, &a(), 1).await;
    store.pass(ms(250)).await;
    store.discard(&work).await;
    let renewed = renew(&store, "A", SESSION_LEASE, ms(200)).await;
    assert_eq!(renewed, 1, "the session was active when its activity was acked");
}

/// Renewing an activity shows that its session is in use.
pub async fn test_renew_work_item_updates_session_last_activity(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    let work = take(&store, &a(), 1).await;
    store.pass(ms(250)).await;
    let extended = store.provider.renew_work_item_lock(&work.token, ACTIVITY_LEASE).await;
    extended.expect("renew_work_item_lock should work");
    let renewed = renew(&store, "A", SESSION_LEASE, ms(200)).await;
    assert_eq!(renewed, 1, "the session was active when its activity was renewed");
}

/// Activities of a session come in the order in which they were enqueued.
pub async fn test_session_items_processed_in_order(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for id in 1..=3 {
        enqueue(&store, id, "s").await;
    }
    for id in 1..=3 {
        let work = take(&store, &a(), id).await;
        store.discard(&work).await;
    }
}

/// An owner of a session also gets activities without one.
pub async fn test_non_session_items_returned_with_session_config(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &a()).await;
    enqueue_plain(&store, 2).await;
    take(&store, &a(), 2).await;
}

/// A session belongs to an id: every caller with that id can take its activities.
pub async fn test_shared_worker_id_any_caller_can_fetch_owned_session(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for id in 1..=3 {
        enqueue(&store, id, "s").await;
    }
    take(&store, &owner("shared", SESSION_LEASE), 1).await;
    take(&store, &owner("shared", SESSION_LEASE), 2).await;
    expect_nothing(&store, &b(), "the session belongs to the shared id").await;
}

/// Of two owners that want a free session, one gets it.
pub async fn test_concurrent_session_claim_only_one_wins(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    enqueue(&store, 2, "s").await;
    let (as_a, as_b) = (a(), b());
    let (for_a, for_b) = tokio::join!(
        fetch_work(&*store.provider, ACTIVITY_LEASE, Some(&as_a), &TagFilter::DefaultOnly),
        fetch_work(&*store.provider, ACTIVITY_LEASE, Some(&as_b), &TagFilter::DefaultOnly),
    );
    let winners = usize::from(for_a.is_some()) + usize::from(for_b.is_some());
    assert_eq!(winners, 1, "one owner should win the session, the other gets nothing: {for_a:?}, {for_b:?}");
    let loser = if for_a.is_some() { b() } else { a() };
    expect_nothing(&store, &loser, "the session belongs to the winner").await;
}

/// An expired session passes to the first owner that fetches from it.
pub async fn test_session_takeover_after_lock_expiry(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(50))).await;
    store.pass(ms(100)).await;
    enqueue(&store, 2, "s").await;
    let work = take(&store, &b(), 2).await;
    assert_eq!(session_of(&work), Some("s"), "the session id should come back with the activity");
    enqueue(&store, 3, "s").await;
    expect_nothing(&store, &a(), "the session is B's now").await;
}

/// A session that was cleaned up comes back with its next activity.
pub async fn test_cleanup_then_new_item_recreates_session(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(50))).await;
    store.pass(ms(100)).await;
    assert_eq!(clean_up(&store).await, 1, "the expired session should be removed");
    enqueue(&store, 2, "s").await;
    take(&store, &b(), 2).await;
}

/// An activity that was given back returns to the owner of its session.
pub async fn test_abandoned_session_item_retryable(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    let first = take(&store, &a(), 1).await;
    assert_eq!(first.attempts, 1, "the first fetch is attempt 1");
    store.abandon_work(&first, None, false).await;
    let second = take(&store, &a(), 1).await;
    assert_eq!(second.attempts, 2, "the second fetch is attempt 2");
    store.discard(&second).await;
    expect_nothing(&store, &a(), "the activity was acked").await;
}

/// An activity that was given back without counting is at its first attempt again.
pub async fn test_abandoned_session_item_ignore_attempt(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    let first = take(&store, &a(), 1).await;
    assert_eq!(first.attempts, 1, "the first fetch is attempt 1");
    store.abandon_work(&first, Some(ms(1)), true).await;
    store.pass(ms(10)).await;
    let second = take(&store, &a(), 1).await;
    assert_eq!(second.attempts, 1, "the attempt that was given back should not count");
}

/// A session whose lease has run out is not renewed.
pub async fn test_renew_session_lock_after_expiry_returns_zero(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(50))).await;
    store.pass(ms(100)).await;
    let renewed = renew(&store, "A", SESSION_LEASE, IDLE_TIMEOUT).await;
    assert_eq!(renewed, 0, "renewal should not revive an expired session");
}

/// The former owner can claim its expired session again.
pub async fn test_original_worker_reclaims_expired_session(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(50))).await;
    store.pass(ms(100)).await;
    enqueue(&store, 2, "s").await;
    take(&store, &a(), 2).await;
}

/// An activity whose lease ran out returns to the owner of its session, and to no other.
pub async fn test_activity_lock_expires_session_lock_valid_same_worker_refetches(
    factory: &dyn ProviderFactory,
) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    take_for(&store, &a(), ms(500), 1).await;
    store.pass(ms(600)).await;
    expect_nothing(&store, &b(), "the session is still A's").await;
    let again = take(&store, &a(), 1).await;
    assert_eq!(again.attempts, 2, "the second fetch is attempt 2");
}

/// An activity given back after its session changed hands goes to the new owner.
pub async fn test_session_lock_expires_new_owner_gets_redelivery(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    let held = take(&store, &owner("A", ms(200)), 1).await;
    store.pass(ms(300)).await;
    enqueue(&store, 2, "s").await;
    take(&store, &b(), 2).await;
    store.abandon_work(&held, None, false).await;
    let redelivered = take(&store, &b(), 1).await;
    assert_eq!(redelivered.attempts, 2, "the second fetch is attempt 2");
}

/// The owner of an expired session acquires it again with the next activity.
pub async fn test_session_lock_expires_same_worker_reacquires(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(200))).await;
    store.pass(ms(300)).await;
    enqueue(&store, 2, "s").await;
    take(&store, &a(), 2).await;
    enqueue(&store, 3, "s").await;
    expect_nothing(&store, &b(), "the session is A's again").await;
}

/// When both leases have run out, any owner can take the activity.
pub async fn test_both_locks_expire_different_worker_claims(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    take_for(&store, &owner("A", ms(200)), ms(200), 1).await;
    store.pass(ms(400)).await;
    let taken = take(&store, &b(), 1).await;
    assert_eq!(taken.attempts, 2, "the second fetch is attempt 2");
}

/// An activity can be finished although its session has expired.
pub async fn test_session_lock_expires_activity_lock_valid_ack_succeeds(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    enqueue(&store, 1, "s").await;
    let work = take_for(&store, &owner("A", ms(200)), SESSION_LEASE, 1).await;
    store.pass(ms(300)).await;
    store.complete(&work).await;
}

/// A renewed session stays with its owner beyond its first lease.
pub async fn test_session_lock_renewal_extends_past_original_timeout(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    claim_session(&store, &owner("A", ms(1_000))).await;
    store.pass(ms(600)).await;
    assert_eq!(renew(&store, "A", ms(1_000), IDLE_TIMEOUT).await, 1, "the session should be renewed");
    store.pass(ms(500)).await;
    enqueue(&store, 2, "s").await;
    expect_nothing(&store, &b(), "the renewed session is still A's").await;
    take(&store, &a(), 2).await;
}
