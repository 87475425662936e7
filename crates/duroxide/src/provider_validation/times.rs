//! Times that operators read: real milliseconds, and an end only for executions that have ended.

use super::ProviderFactory;
use super::support::*;
use crate::providers::{ExecutionInfo, InstanceFilter, InstanceInfo, PruneOptions};

/// How far a store's clock may be from ours, unless the test moves it by hand.
const CLOCK_SKEW_MS: u64 = 2_000;

async fn info(store: &Store<'_>, instance: &str) -> InstanceInfo {
    store.admin().get_instance_info(instance).await.expect("get_instance_info should work")
}

async fn execution(store: &Store<'_>, instance: &str, execution_id: u64) -> ExecutionInfo {
    let info = store.admin().get_execution_info(instance, execution_id).await;
    info.expect("get_execution_info should work")
}

/// Asserts that a reported time lies between two moments.
fn expect_between(store: &Store<'_>, what: &str, time: u64, earliest: u64, latest: u64) {
    let skew = if store.factory.clock().is_some() { 0 } else { CLOCK_SKEW_MS };
    let is_between = earliest.saturating_sub(skew) <= time && time <= latest + skew;
    assert!(is_between, "{what} should be between {earliest} and {latest} ms since the epoch, not {time}");
}

/// The store reports creation, start and update in milliseconds since the epoch, and every turn counts as an update.
pub async fn times_are_milliseconds_since_the_epoch(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let before = store.now_ms();
    store.create("timed").await;
    let created = store.now_ms();
    let first = info(&store, "timed").await;
    expect_between(&store, "created_at", first.created_at, before, created);
    expect_between(&store, "updated_at", first.updated_at, before, created);
    let started_at = execution(&store, "timed", 1).await.started_at;
    expect_between(&store, "started_at", started_at, before, created);

    store.pass(ms(50)).await;
    store.next_turn("timed", Commit::default()).await;
    let second = info(&store, "timed").await;
    assert_eq!(second.created_at, first.created_at, "a turn should not change when the instance was created");
    assert!(
        second.updated_at >= first.updated_at + 40,
        "a turn 50 ms later should update the time: {} then {}",
        first.updated_at,
        second.updated_at
    );
    let started_again = execution(&store, "timed", 1).await.started_at;
    assert_eq!(started_again, started_at, "a turn should not change when the execution began");
}

/// A running execution has no end, even if a turn sets the status `Running`.
pub async fn a_running_execution_has_no_completion_time(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("runner").await;
    assert_eq!(execution(&store, "runner", 1).await.completed_at, None, "nothing has ended yet");
    store.next_turn("runner", Commit::default().status("Running")).await;
    let running = execution(&store, "runner", 1).await;
    assert_eq!(running.status, "Running", "the status should be the one that the turn gave");
    assert_eq!(running.completed_at, None, "an execution that runs has not ended");
}

/// Every end of an execution has a time, including continue-as-new.
pub async fn every_end_has_a_completion_time(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for status in ["Completed", "Failed", "ContinuedAsNew"] {
        store.create(status).await;
        store.pass(ms(10)).await;
        let before = store.now_ms();
        store.next_turn(status, Commit::default().status(status)).await;
        let ended = execution(&store, status, 1).await;
        let completed_at = ended.completed_at.unwrap_or_else(|| panic!("{status} should have an end"));
        expect_between(&store, "completed_at", completed_at, before, store.now_ms());
        assert!(completed_at >= ended.started_at, "an execution should not end before it began: {ended:?}");
    }
}

/// Executions that continued as new are old enough to prune once their end lies before the cut-off.
pub async fn continued_executions_can_be_pruned_by_age(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_chain("chain", 2, "Running").await;
    store.pass(ms(10)).await;
    store.start_and_ack("chain", Commit::default().status("ContinuedAsNew")).await;
    let ended_at = execution(&store, "chain", 1).await.completed_at.expect("execution 1 has ended");

    let before = |cut_off| PruneOptions { completed_before: Some(cut_off), ..PruneOptions::default() };
    let pruned = store.admin().prune_executions("chain", before(ended_at)).await;
    let pruned = pruned.expect("prune_executions should work");
    assert_eq!(pruned.executions_deleted, 0, "an end at the cut-off is not before it");
    let pruned = store.admin().prune_executions("chain", before(ended_at + 1)).await;
    let pruned = pruned.expect("prune_executions should work");
    assert_eq!(pruned.executions_deleted, 1, "execution 1 ended before the cut-off");
    assert_eq!(store.executions("chain").await, [2], "the current execution should remain");
}

/// The cut-off of a bulk deletion is strict.
pub async fn an_end_at_the_cut_off_is_not_before_it(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_status("ended", "Completed").await;
    let ended_at = execution(&store, "ended", 1).await.completed_at.expect("the execution has ended");
    for (cut_off, expected) in [(ended_at, 0), (ended_at + 1, 1)] {
        let filter = InstanceFilter { completed_before: Some(cut_off), ..InstanceFilter::default() };
        let deleted = store.admin().delete_instance_bulk(filter).await.expect("bulk deletion should work");
        assert_eq!(
            deleted.instances_deleted, expected,
            "an end at {ended_at} against a cut-off of {cut_off}"
        );
    }
}

/// The store lists instances newest first, also those created in the same millisecond.
pub async fn instances_are_listed_newest_first(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for instance in ["m", "a", "z", "k"] {
        store.create_with_status(instance, "Completed").await;
    }
    let newest_first = ["k", "z", "a", "m"];
    let listed = store.admin().list_instances().await.expect("list_instances should work");
    assert_eq!(listed, newest_first, "the instance that was created last comes first");
    let listed = store.admin().list_instances_by_status("Completed").await;
    let listed = listed.expect("list_instances_by_status should work");
    assert_eq!(listed, newest_first, "the instance that was created last comes first");
}
