//! Deleting and pruning beside other work: running work stays, and unrelated rows stay unchanged.

use std::sync::Arc;

use super::ProviderFactory;
use super::scenario::*;
use super::support::*;
use crate::providers::{InstanceFilter, Provider, ProviderAdmin, PruneOptions};

/// How often a check tries to make two calls meet.
const ROUNDS: usize = 20;

fn admin_of(provider: &Arc<dyn Provider>) -> &dyn ProviderAdmin {
    provider.as_management_capability().expect("the store should offer ProviderAdmin")
}

async fn delete_bulk(store: &Store<'_>, filter: InstanceFilter) -> u64 {
    let deleted = store.admin().delete_instance_bulk(filter).await;
    deleted.expect("delete_instance_bulk should work").instances_deleted
}

fn by_ids(instances: &[&str]) -> InstanceFilter {
    InstanceFilter { instance_ids: Some(ids(instances)), ..InstanceFilter::default() }
}

/// Creates an instance whose first execution has ended and whose second is still a message in the queue.
async fn create_between_executions(store: &Store<'_>, instance: &str) {
    let commit = Commit::creating(instance).status("ContinuedAsNew").message(continue_as_new(instance));
    store.start_and_ack(instance, commit).await;
}

/// The store commits the turn of a child even if its parent does not exist, or no longer exists.
pub async fn a_missing_parent_does_not_fail_its_child(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_child("child", "nobody").await;
    let parent = store.admin().get_parent_id("child").await.expect("get_parent_id should work");
    assert_eq!(parent.as_deref(), Some("nobody"), "the child still names its parent");
    assert_eq!(store.history("child").await.len(), 1, "the child's turn should be stored");
}

/// An instance between two executions runs: it can be deleted only with force, and then with its queued successor.
pub async fn an_instance_between_executions_is_not_deleted_without_force(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    create_between_executions(&store, "between").await;
    expect_refusal(store.admin().delete_instance("between", false).await, &["running"]);
    let set = store.admin().delete_instances_atomic(&ids(&["between"]), false).await;
    expect_refusal(set, &["running"]);

    let turn = store.turn_of("between").await;
    expect_refusal(store.admin().delete_instance("between", false).await, &["running"]);
    store.abandon(&turn).await;

    let forced = store.admin().delete_instance("between", true).await;
    let forced = forced.expect("force should delete an instance between executions");
    assert_eq!(forced.queue_messages_deleted, 1, "the queued successor should go too: {forced:?}");
    store.expect_no_turn("the successor was deleted with its instance").await;
}

/// Of several instances that are in the way of a deletion, the error names the first one of the caller's list.
pub async fn a_refused_deletion_names_the_first_in_its_way(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_status("parent", "Completed").await;
    store.create_finished_child("child", "parent").await;
    store.create("busy").await;
    for (set, named) in [(["parent", "busy"], "parent"), (["busy", "parent"], "busy")] {
        expect_refusal(store.admin().delete_instances_atomic(&ids(&set), false).await, &[named]);
    }
}

/// A bulk deletion skips an instance between two executions until it has really ended.
pub async fn bulk_deletion_skips_instances_between_executions(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    create_between_executions(&store, "between").await;
    assert_eq!(delete_bulk(&store, InstanceFilter::default()).await, 0, "the instance goes on");
    let turn = store.turn_of("between").await;
    assert_eq!(delete_bulk(&store, InstanceFilter::default()).await, 0, "the instance goes on");
    store.ack(&turn, Commit::beginning("between", 2).status("Completed")).await;
    assert_eq!(delete_bulk(&store, InstanceFilter::default()).await, 1, "the instance has ended");
}

/// An instance that begins to run while a caller deletes it either stays or is gone before its turn.
pub async fn a_deletion_and_a_turn_exclude_each_other(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for round in 0..ROUNDS {
        let instance = format!("contended-{round}");
        store.create_with_status(&instance, "Completed").await;
        store.start(&instance).await;
        let turn = store.turn_of(&instance).await;

        let (provider, id) = (store.provider.clone(), instance.clone());
        let deletion = tokio::spawn(async move { admin_of(&provider).delete_instance(&id, false).await });
        let (provider, commit) = (store.provider.clone(), Commit::beginning(&instance, 2).status("Running"));
        let turn = tokio::spawn(async move { ack_turn(&*provider, &turn.token, commit).await });
        let deleted = deletion.await.expect("the deletion should not panic").is_ok();
        let committed = turn.await.expect("the turn should not panic").is_ok();

        assert_ne!(deleted, committed, "either the deletion or the turn should succeed, in round {round}");
        assert_eq!(store.exists(&instance).await, committed, "the outcome should fit, in round {round}");
    }
}

/// Pruning never takes an execution that is just becoming the current one.
pub async fn pruning_beside_a_turn_keeps_the_current_execution(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    create_between_executions(&store, "chain").await;
    for round in 2..2 + ROUNDS as u64 {
        let turn = store.turn_of("chain").await;
        let provider = store.provider.clone();
        let pruning = tokio::spawn(async move {
            admin_of(&provider).prune_executions("chain", PruneOptions::default()).await
        });
        let commit =
            Commit::beginning("chain", round).status("ContinuedAsNew").message(continue_as_new("chain"));
        store.ack(&turn, commit).await;
        pruning.await.expect("pruning should not panic").expect("prune_executions should work");
        assert_eq!(store.history("chain").await.len(), 1, "execution {round} should keep its history");
        assert!(store.executions("chain").await.contains(&round), "execution {round} should remain");
    }
}

/// Pruning keeps an execution that never ended, however old it is.
pub async fn pruning_keeps_executions_that_run(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("odd").await;
    store.start_and_ack("odd", Commit::beginning("odd", 2).status("ContinuedAsNew")).await;
    store.start_and_ack("odd", Commit::beginning("odd", 3)).await;
    let pruned = store.admin().prune_executions("odd", PruneOptions::default()).await;
    let pruned = pruned.expect("prune_executions should work");
    assert_eq!(pruned.executions_deleted, 1, "only execution 2 has ended: {pruned:?}");
    assert_eq!(pruned.events_deleted, 1, "execution 2 had one event: {pruned:?}");
    assert_eq!(store.executions("odd").await, [1, 3], "what runs should remain");
}

/// Both conditions of pruning must hold.
pub async fn pruning_conditions_are_combined(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_chain("chain", 5, "Running").await;
    store.pass(ms(10)).await;
    let future = store.now_ms() + 60_000;
    let cases = [
        (PruneOptions { keep_last: Some(1), completed_before: Some(1) }, [1, 2, 3, 4, 5].as_slice()),
        (PruneOptions { keep_last: Some(9), completed_before: Some(future) }, &[1, 2, 3, 4, 5]),
        (PruneOptions { keep_last: Some(2), completed_before: Some(future) }, &[4, 5]),
    ];
    for (options, remaining) in cases {
        let pruned = store.admin().prune_executions("chain", options.clone()).await;
        let pruned = pruned.expect("prune_executions should work");
        assert_eq!(pruned.instances_processed, 1, "the instance counts although nothing may be pruned");
        assert_eq!(store.executions("chain").await, remaining, "what should remain of {options:?}");
    }
}

/// A bulk deletion takes roots only, counts the limit in roots, and an empty list of ids selects nothing.
pub async fn bulk_deletion_selects_roots(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for root in ["root-1", "root-2"] {
        store.create_with_status(root, "Completed").await;
        for child in ["a", "b"] {
            store.create_finished_child(&format!("{root}-{child}"), root).await;
        }
    }
    assert_eq!(delete_bulk(&store, by_ids(&[])).await, 0, "an empty list selects nothing");
    assert_eq!(delete_bulk(&store, by_ids(&["root-1-a"])).await, 0, "a child is not selected by itself");
    let one = InstanceFilter { limit: Some(1), ..InstanceFilter::default() };
    assert_eq!(delete_bulk(&store, one.clone()).await, 3, "one root with its two children");
    assert_eq!(delete_bulk(&store, one).await, 3, "the other root with its two children");
    assert_eq!(delete_bulk(&store, InstanceFilter::default()).await, 0, "nothing is left");
}

/// Of two deletions of one instance one succeeds, and the other finds it gone.
pub async fn concurrent_deletions_agree(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for round in 0..ROUNDS {
        let instance = format!("twice-{round}");
        store.create_with_status(&instance, "Completed").await;
        let delete = |provider: Arc<dyn Provider>, id: String| {
            tokio::spawn(async move { admin_of(&provider).delete_instance(&id, false).await })
        };
        let first = delete(store.provider.clone(), instance.clone());
        let second = delete(store.provider.clone(), instance.clone());
        let results = [first.await.expect("no panic"), second.await.expect("no panic")];

        assert!(results.iter().any(Result::is_ok), "one deletion should succeed: {results:?}");
        let counted: u64 = results.iter().flatten().map(|deleted| deleted.instances_deleted).sum();
        assert_eq!(counted, 1, "the instance should be counted once: {results:?}");
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            assert!(error.message.to_lowercase().contains("not found"), "it should be gone: {error}");
        }
        store.expect_gone(&[&instance]).await;
    }
}

/// A completion for a deleted instance is never delivered and never holds up others.
pub async fn late_messages_of_a_deleted_instance_are_not_in_the_way(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("gone").await;
    store.admin().delete_instance("gone", true).await.expect("force should delete a running instance");
    store.send(completed("gone", 2, "late")).await;
    store.send(raised("gone", "late", "")).await;
    store.start("other").await;
    store.turn_of("other").await;
    store.expect_no_turn("nothing else can take a turn").await;
}

/// A session outlives the instance whose activity claimed it.
pub async fn a_session_outlives_its_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_with_work("first", vec![session_activity("first", 2, "s")]).await;
    let (a, b) = (owner("A", TURN_LEASE), owner("B", TURN_LEASE));
    assert!(store.try_session_work(WORK_LEASE, &a).await.is_some(), "A should claim the session");
    store.admin().delete_instance("first", true).await.expect("force should delete a running instance");

    store.send_work(session_activity("second", 2, "s")).await;
    let for_b = store.try_session_work(WORK_LEASE, &b).await;
    assert!(for_b.is_none(), "the session is still A's, got {for_b:?}");
    assert!(store.try_session_work(WORK_LEASE, &a).await.is_some(), "A should be given the activity");
}
