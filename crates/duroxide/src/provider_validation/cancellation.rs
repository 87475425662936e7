//! Cancelling an activity removes its row: its holder finds out when it renews or acks.
//!
//! The names of the first functions are older than the rule that they check: a worker's calls do not depend on the
//! state of the orchestration.

use super::ProviderFactory;
use super::support::{
    Commit, Store, WORK_LEASE, activity, completion_of, named_with_status, scheduled, status,
};

/// Checks that a worker can fetch an activity whatever status its orchestration got with the same ack.
async fn fetch_with_orchestration(factory: &dyn ProviderFactory, status: &str) {
    let store = Store::new(factory).await;
    let commit =
        Commit { work: vec![activity("i", 2)], metadata: named_with_status(status), ..Commit::creating("i") };
    store.start_and_ack("i", commit).await;
    assert_eq!(store.work().await.id(), 2, "an activity of a {status} orchestration should be fetchable");
}

/// An activity of a running orchestration can be fetched.
pub async fn test_fetch_returns_running_state_for_active_orchestration<F: ProviderFactory>(factory: &F) {
    fetch_with_orchestration(factory, "Running").await;
}

/// An activity of a completed orchestration can be fetched.
pub async fn test_fetch_returns_terminal_state_when_orchestration_completed<F: ProviderFactory>(factory: &F) {
    fetch_with_orchestration(factory, "Completed").await;
}

/// An activity of a failed orchestration can be fetched.
pub async fn test_fetch_returns_terminal_state_when_orchestration_failed<F: ProviderFactory>(factory: &F) {
    fetch_with_orchestration(factory, "Failed").await;
}

/// An activity of an execution that continued as new can be fetched.
pub async fn test_fetch_returns_terminal_state_when_orchestration_continued_as_new<F: ProviderFactory>(
    factory: &F,
) {
    fetch_with_orchestration(factory, "ContinuedAsNew").await;
}

/// An activity of an instance that does not exist can be fetched.
pub async fn test_fetch_returns_missing_state_when_instance_deleted<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("nobody", 1)).await;
    assert_eq!(store.work().await.id(), 1, "an activity should not need an instance");
}

/// A lease on an activity of a running orchestration can be renewed.
pub async fn test_renew_returns_running_when_orchestration_active<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let work = store.work().await;
    let renewed = store.provider.renew_work_item_lock(&work.token, WORK_LEASE).await;
    assert!(renewed.is_ok(), "a live lease should be renewable; got {renewed:?}");
}

/// So can the lease on an activity whose orchestration has completed meanwhile.
pub async fn test_renew_returns_terminal_when_orchestration_completed<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let unnamed =
        Commit { metadata: Default::default(), work: vec![activity("i", 2)], ..Commit::creating("i") };
    store.start_and_ack("i", unnamed).await;
    let work = store.work().await;
    store.next_turn("i", Commit { metadata: status("Completed"), ..Commit::default() }).await;
    let renewed = store.provider.renew_work_item_lock(&work.token, WORK_LEASE).await;
    assert!(renewed.is_ok(), "the end of the orchestration should not end the lease; got {renewed:?}");
}

/// So can the lease on an activity whose instance does not exist.
pub async fn test_renew_returns_missing_when_instance_deleted<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("nobody", 1)).await;
    let work = store.work().await;
    let renewed = store.provider.renew_work_item_lock(&work.token, WORK_LEASE).await;
    assert!(renewed.is_ok(), "an activity should not need an instance; got {renewed:?}");
}

/// An ack without a completion removes the activity and enqueues nothing.
pub async fn test_ack_work_item_none_deletes_without_enqueue<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let work = store.work().await;
    store.provider.ack_work_item(&work.token, None).await.expect("an ack without completion should work");
    store.expect_no_work("the acked activity should be gone").await;
    store.expect_no_turn("nothing should have been enqueued").await;
}

/// Cancelled activities leave the queue, others stay.
pub async fn test_cancelled_activities_deleted_from_worker_queue<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_work("i", (1..=3).map(|id| activity("i", id)).collect()).await;
    let tried = store.work().await;
    store.abandon_work(&tried, None, false).await;
    let commit = Commit { cancelled: vec![scheduled("i", 1), scheduled("i", 2)], ..Commit::default() };
    store.next_turn("i", commit).await;
    assert_eq!(store.work().await.id(), 3, "the activity that was not cancelled should be left");
    store.expect_no_work("the others were cancelled").await;
}

/// A token that was used cannot be acked again, and trying again will not help.
pub async fn test_ack_work_item_fails_when_entry_deleted<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    let work = store.work().await;
    store.complete(&work).await;
    let again = store.provider.ack_work_item(&work.token, Some(completion_of(&work.item, "again"))).await;
    let again = again.expect_err("an ack of an activity that is gone should be refused");
    assert!(!again.is_retryable(), "the error should be permanent; got {again:?}");
}

/// A cancelled activity cannot be renewed: that is how its holder learns of it.
pub async fn test_renew_fails_when_entry_deleted<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_work("i", vec![activity("i", 2)]).await;
    let work = store.work().await;
    store.next_turn("i", Commit { cancelled: vec![scheduled("i", 2)], ..Commit::default() }).await;
    let renewed = store.provider.renew_work_item_lock(&work.token, WORK_LEASE).await;
    assert!(renewed.is_err(), "a cancelled activity should not be renewable");
}

/// Cancelling an activity that does not exist is no error.
pub async fn test_cancelling_nonexistent_activities_is_idempotent<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("i").await;
    let commit = Commit { cancelled: vec![scheduled("i", 98), scheduled("nobody", 99)], ..Commit::default() };
    store.next_turn("i", commit).await;
}

/// One ack can cancel any number of activities.
pub async fn test_batch_cancellation_deletes_multiple_activities<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_work("i", (1..=5).map(|id| activity("i", id)).collect()).await;
    let cancelled = (1..=5).map(|id| scheduled("i", id)).collect();
    store.next_turn("i", Commit { cancelled, ..Commit::default() }).await;
    store.expect_no_work("all five were cancelled").await;
}

/// An activity that the same ack schedules and cancels never exists.
pub async fn test_same_activity_in_worker_items_and_cancelled_is_noop<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("i").await;
    let commit = Commit {
        work: vec![activity("i", 2), activity("i", 3)],
        cancelled: vec![scheduled("i", 2)],
        ..Commit::default()
    };
    store.next_turn("i", commit).await;
    assert_eq!(store.work().await.id(), 3, "the activity that was not cancelled should be there");
    store.expect_no_work("the other was cancelled with the ack that scheduled it").await;
}

/// After a forced deletion no call about an activity of the instance breaks, whether the store keeps its row or not.
pub async fn test_orphan_activity_after_instance_force_deletion<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_work("doomed", vec![activity("doomed", 2)]).await;
    let deleted = store.admin().delete_instance("doomed", true).await.expect("a forced deletion should work");
    assert!(deleted.instances_deleted > 0, "the instance should be counted as deleted");
    assert!(store.admin().get_instance_info("doomed").await.is_err(), "the instance should be gone");
    if let Some(work) = store.try_work().await {
        store.complete(&work).await;
    }
}
