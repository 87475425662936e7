//! Deleting instances: which may be deleted, that all their rows go, and that nothing comes back.

use super::ProviderFactory;
use super::scenario::*;
use super::support::*;
use crate::providers::WorkItem;

const FAMILY: [&str; 4] = ["root", "child-1", "child-2", "grandchild"];

/// Creates a root with two children, and a grandchild below the first, all completed.
async fn create_family(store: &Store<'_>) {
    store.create_with_status("root", "Completed").await;
    store.create_finished_child("child-1", "root").await;
    store.create_finished_child("child-2", "root").await;
    store.create_finished_child("grandchild", "child-1").await;
}

/// Completed, failed and cancelled instances can be deleted without force.
pub async fn test_delete_terminal_instances<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_status("completed", "Completed").await;
    store.create_with_status("failed", "Failed").await;
    let mut cancelled = Commit::creating("cancelled").status("Failed");
    cancelled.metadata.output = Some("canceled: on request".to_string());
    store.start_and_ack("cancelled", cancelled).await;

    let deleted = store.admin().delete_instance("completed", false).await;
    let deleted = deleted.expect("a completed instance should be deletable without force");
    assert!(deleted.instances_deleted >= 1, "at least one instance should be counted: {deleted:?}");
    assert!(deleted.executions_deleted >= 1, "at least one execution should be counted: {deleted:?}");
    assert!(deleted.events_deleted >= 1, "at least one event should be counted: {deleted:?}");
    for instance in ["failed", "cancelled"] {
        let deleted = store.admin().delete_instance(instance, false).await;
        deleted.expect("a failed instance should be deletable without force");
    }
    store.expect_gone(&["completed", "failed", "cancelled"]).await;
}

/// A running instance can be deleted only with force.
pub async fn test_delete_running_rejected_force_succeeds<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("running").await;

    expect_refusal(store.admin().delete_instance("running", false).await, &["running"]);
    store.expect_present(&["running"]).await;

    let forced = store.admin().delete_instance("running", true).await;
    let forced = forced.expect("a running instance should be deletable with force");
    assert!(forced.instances_deleted >= 1, "at least one instance should be counted: {forced:?}");
    store.expect_gone(&["running"]).await;
}

/// Deleting an unknown instance is a permanent error.
pub async fn test_delete_nonexistent_instance<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    expect_refusal(store.admin().delete_instance("nobody", false).await, &["not found"]);
}

/// Deletion takes queued messages and leases along, so that the id can be used again.
pub async fn test_delete_cleans_queues_and_locks<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let commit = Commit::creating("reused").status("Completed").schedule(activity("reused", 2));
    store.start_and_ack("reused", commit).await;

    let deleted = store.admin().delete_instance("reused", false).await;
    let deleted = deleted.expect("a completed instance should be deletable");
    assert!(deleted.queue_messages_deleted >= 1, "the queued activity should be counted: {deleted:?}");

    store.send(start_named("reused", "OtherOrch", Some(VERSION))).await;
    let turn = store.turn_of("reused").await;
    assert_eq!(turn.item.orchestration_name, "OtherOrch", "the name should come from the new start");
    let mut commit = Commit::creating("reused");
    commit.metadata.orchestration_name = Some("OtherOrch".to_string());
    store.ack(&turn, commit).await;
    let info = store.admin().get_instance_info("reused").await;
    let info = info.expect("the re-created instance should be there");
    assert_eq!(info.orchestration_name, "OtherOrch", "nothing of the deleted instance should remain");
}

/// A child cannot be deleted alone; its root takes the whole tree along.
pub async fn test_cascade_delete_hierarchy<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    create_family(&store).await;

    let words = ["sub-orchestration", "root", "parent"];
    expect_refusal(store.admin().delete_instance("child-1", false).await, &words);
    expect_refusal(store.admin().delete_instance("child-1", true).await, &words);
    expect_refusal(store.admin().delete_instance("grandchild", false).await, &words);
    store.expect_present(&FAMILY).await;

    let deleted = store.admin().delete_instance("root", false).await;
    let deleted = deleted.expect("a completed root should be deletable");
    assert!(deleted.executions_deleted >= 4, "the executions of four instances should go: {deleted:?}");
    store.expect_gone(&FAMILY).await;
}

/// A turn in progress cannot bring a deleted instance back.
pub async fn test_force_delete_prevents_ack_recreation<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("zombie").await;
    store.send(raised("zombie", "signal", "")).await;
    let turn = store.turn_of("zombie").await;

    let forced = store.admin().delete_instance("zombie", true).await;
    forced.expect("a leased instance should be deletable with force");

    let late = Commit { metadata: named(), ..Commit::of_events(vec![activity_scheduled("zombie", 2)]) };
    let acked = store.try_ack(&turn.token, late).await;
    assert!(acked.is_err(), "the ack of a deleted instance should fail");
    store.expect_gone(&["zombie"]).await;
}

/// `list_children` lists one level.
pub async fn test_list_children<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    create_family(&store).await;
    let children = async |instance: &str| {
        let mut children = store.admin().list_children(instance).await.expect("list_children should work");
        children.sort();
        children
    };
    assert_eq!(children("root").await, ["child-1", "child-2"], "the direct children, and only they");
    assert_eq!(children("child-1").await, ["grandchild"], "the one grandchild");
    assert!(children("grandchild").await.is_empty(), "a leaf has no children");
    assert!(children("nobody").await.is_empty(), "an unknown instance has no children");
}

/// A root has no parent, a child has one, and an unknown instance is an error.
pub async fn test_delete_get_parent_id<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_status("root", "Completed").await;
    store.create_finished_child("child", "root").await;

    let parent = store.admin().get_parent_id("root").await.expect("get_parent_id should work for a root");
    assert_eq!(parent, None, "a root has no parent");
    let parent = store.admin().get_parent_id("child").await.expect("get_parent_id should work for a child");
    assert_eq!(parent.as_deref(), Some("root"), "a child names its parent");
    let unknown = store.admin().get_parent_id("nobody").await;
    assert!(unknown.is_err(), "an unknown instance should be an error, not {unknown:?}");
}

/// A tree holds an instance and all its descendants.
pub async fn test_delete_get_instance_tree<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    create_family(&store).await;

    let tree = store.admin().get_instance_tree("root").await.expect("get_instance_tree should work");
    assert_eq!(tree.root_id, "root", "the tree is named after the instance that was asked for");
    assert_eq!(tree.size(), 4, "root, two children and a grandchild: {tree:?}");
    assert!(!tree.is_root_only(), "the root has descendants");
    for instance in FAMILY {
        assert!(tree.all_ids.iter().any(|id| id == instance), "{instance} should be in {tree:?}");
    }

    let leaf = store.admin().get_instance_tree("grandchild").await.expect("get_instance_tree should work");
    assert_eq!(leaf.size(), 1, "a leaf's tree is the leaf: {leaf:?}");
    assert!(leaf.is_root_only(), "a leaf has no descendants");
}

/// One call deletes independent instances.
pub async fn test_delete_instances_atomic<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let instances = ["one", "two", "three"];
    for instance in instances {
        store.create_with_status(instance, "Completed").await;
    }
    let deleted = store.admin().delete_instances_atomic(&ids(&instances), false).await;
    let deleted = deleted.expect("three completed instances should be deletable");
    assert!(deleted.instances_deleted >= 1, "the instances should be counted: {deleted:?}");
    assert!(deleted.executions_deleted >= 3, "three executions should be counted: {deleted:?}");
    store.expect_gone(&instances).await;
}

/// One running instance in the set keeps all of them, unless the caller forces the deletion.
pub async fn test_delete_instances_atomic_force<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_status("completed", "Completed").await;
    store.create("running").await;
    let both = ["completed", "running"];

    expect_refusal(store.admin().delete_instances_atomic(&ids(&both), false).await, &["running"]);
    store.expect_present(&both).await;

    let forced = store.admin().delete_instances_atomic(&ids(&both), true).await;
    forced.expect("force should delete running instances too");
    store.expect_gone(&both).await;
}

/// The store refuses a set that would leave a child behind.
pub async fn test_delete_instances_atomic_orphan_detection<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_status("parent", "Completed").await;
    store.create_finished_child("child", "parent").await;

    let parent_only = store.admin().delete_instances_atomic(&ids(&["parent"]), false).await;
    expect_refusal(parent_only, &["child", "orphan", "tree"]);
    store.expect_present(&["parent", "child"]).await;

    let together = store.admin().delete_instances_atomic(&ids(&["parent", "child"]), false).await;
    together.expect("parent and child together should be deletable");
    store.expect_gone(&["parent", "child"]).await;
}

/// An activity of a deleted instance cannot report to a new one with the same id.
pub async fn test_stale_activity_after_delete_recreate<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_work("phoenix", vec![activity("phoenix", 2)]).await;
    let held = store.work().await;

    store.admin().delete_instance("phoenix", true).await.expect("force should delete a running instance");
    store.create("phoenix").await;

    let stale = store.provider.ack_work_item(&held.token, Some(completed("phoenix", 2, "stale"))).await;
    assert!(stale.is_err(), "the ack of a deleted instance's activity should fail");

    store.send(raised("phoenix", "probe", "")).await;
    let probe = store.turn_of("phoenix").await;
    let is_stale = |message: &WorkItem| matches!(message, WorkItem::ActivityCompleted { result, .. } if result == "stale");
    let leaked = probe.item.messages.iter().any(is_stale);
    assert!(!leaked, "the new instance should hear nothing of the old one: {:?}", probe.item.messages);
}
