//! Children whose start is still a message in the queue: they belong to their parent, and go with it.

use super::ProviderFactory;
use super::scenario::*;
use super::support::*;
use crate::model::WorkItem;
use crate::providers::{DeleteInstanceResult, DeliveryOutcome, InstanceFilter, refusal};

/// The start of a child, as its parent's turn enqueues it.
fn start_of_child(child: &str, of: &str) -> WorkItem {
    let mut start = start_item(child);
    if let WorkItem::StartOrchestration { parent_instance, parent_id, parent_execution_id, .. } = &mut start {
        (*parent_instance, *parent_id, *parent_execution_id) = (Some(of.to_string()), Some(2), Some(1));
    }
    start
}

/// Creates a parent whose first turn starts a child.
async fn create_parent(store: &Store<'_>, parent: &str, child: &str) {
    let commit = Commit::creating(parent).message(start_of_child(child, parent));
    store.start_and_ack(parent, commit).await;
}

async fn delete(store: &Store<'_>, instance: &str) -> DeleteInstanceResult {
    let deleted = store.admin().delete_instance(instance, true).await;
    deleted.expect("delete_instance should work")
}

/// Checks that the next turn is a start of this instance and nothing else, and commits it.
async fn expect_start_alone(store: &Store<'_>, instance: &str) {
    let turn = store.turn_of(instance).await;
    assert_eq!(turn.item.messages.len(), 1, "the start should come alone: {:?}", turn.item.messages);
    assert!(matches!(turn.item.messages[0], WorkItem::StartOrchestration { .. }));
    assert_eq!(turn.attempts, 1, "it should be a new message");
    store.ack(&turn, Commit::creating(instance)).await;
}

/// If a parent is deleted and made again while the start of its child is queued, the child starts once, for the new
/// parent.
pub async fn a_queued_start_goes_with_its_parent(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    create_parent(&store, "p", "p::1").await;
    let deleted = delete(&store, "p").await;
    assert_eq!(deleted.queue_messages_deleted, 1, "the start should be deleted: {deleted:?}");
    store.expect_no_turn("the start went with the parent").await;

    create_parent(&store, "p", "p::1").await;
    expect_start_alone(&store, "p::1").await;
    store.expect_no_turn("one child was started").await;
}

/// Deleting a tree also deletes the queued starts of all its members, whichever way it is deleted.
pub async fn queued_starts_go_with_a_tree_that_has_ended(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let admin = store.admin();
    for way in 0..3 {
        store.create_with_status("p", "Completed").await;
        let child = Commit::creating("c").child_of("p").status("Completed");
        store.start_and_ack("c", child.message(start_of_child("grandchild", "c"))).await;
        let deleted = match way {
            0 => admin.delete_instance("p", false).await,
            1 => admin.delete_instances_atomic(&ids(&["p", "c"]), false).await,
            _ => admin.delete_instance_bulk(InstanceFilter::default()).await,
        };
        let deleted = deleted.expect("a tree that has ended should be deleted");
        assert_eq!(deleted.instances_deleted, 2, "parent and child should go: {deleted:?}");
        assert_eq!(deleted.queue_messages_deleted, 1, "and the grandchild's start: {deleted:?}");
        store.expect_no_turn("nothing of the tree is left").await;
    }
}

/// A child in its first turn is lost with its parent: the store refuses the turn's commit.
pub async fn a_child_in_its_first_turn_is_lost_with_its_parent(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    create_parent(&store, "p", "c").await;
    let turn = store.turn_of("c").await;
    delete(&store, "p").await;
    assert_refused(store.try_ack(&turn.token, Commit::creating("c").child_of("p")).await, "the child's turn");
    assert!(!store.exists("c").await, "the child should not come into being");
    store.expect_no_turn("its start is gone").await;

    create_parent(&store, "p", "c").await;
    expect_start_alone(&store, "c").await;
}

/// Other messages for a child that never started go with its start: they would reach a later child of the same id.
pub async fn messages_for_a_queued_child_go_with_its_start(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send(raised("c", "early", "")).await;
    store.expect_no_turn("the signal waits for an instance").await;
    let commit = Commit::creating("p").message(start_of_child("c", "p")).message(cancel("c"));
    store.start_and_ack("p", commit).await;
    let deleted = delete(&store, "p").await;
    assert_eq!(deleted.queue_messages_deleted, 3, "start, cancellation and signal should go: {deleted:?}");
    create_parent(&store, "p", "c").await;
    expect_start_alone(&store, "c").await;
}

/// A deletion does not touch starts that other callers have queued, nor children without a parent.
pub async fn starts_by_others_stay(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("p").await;
    store.create("other").await;
    store.send(start_of_child("shared", "p")).await;
    store.send(start_of_child("elsewhere", "other")).await;
    store.start("shared").await;
    store.start("detached").await;
    let deleted = delete(&store, "p").await;
    assert_eq!(deleted.queue_messages_deleted, 1, "only p's own start should go: {deleted:?}");
    for instance in ["elsewhere", "shared", "detached"] {
        expect_start_alone(&store, instance).await;
    }
}

/// A start that came with a message goes with the parent that it names, and the message with it.
pub async fn a_start_that_came_with_a_message_goes_with_its_parent(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("p").await;
    let message = queue_message("c", "inbox", "");
    let sent = extended.enqueue_start_with_message(start_of_child("c", "p"), message).await;
    if sent.as_ref().is_err_and(refusal::is_not_supported) {
        return;
    }
    assert_eq!(sent.expect("enqueue_start_with_message should work"), DeliveryOutcome::Started);
    let deleted = delete(&store, "p").await;
    assert_eq!(deleted.queue_messages_deleted, 2, "start and message should go: {deleted:?}");
    store.expect_no_turn("the start went with the parent").await;
}

/// A start for a taken id goes with its parent, even out of a turn that a runtime is taking with it.
pub async fn a_start_for_a_taken_id_goes_with_its_parent(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("taken").await;
    create_parent(&store, "p", "taken").await;
    store.send(raised("taken", "go", "")).await;
    let turn = store.turn_of("taken").await;
    assert_eq!(turn.item.messages.len(), 2);
    let deleted = delete(&store, "p").await;
    assert_eq!(deleted.queue_messages_deleted, 1, "the start should go: {deleted:?}");
    // The turn would tell a later parent of the same id about a child that is not its own.
    assert_refused(store.try_ack(&turn.token, Commit::default()).await, "a turn with the start");
    let turn = store.turn_of("taken").await;
    assert!(
        matches!(turn.item.messages[..], [WorkItem::ExternalRaised { .. }]),
        "the signal should come again"
    );
    assert_eq!(turn.attempts, 1, "nobody failed");
    store.ack(&turn, Commit::default()).await;

    create_parent(&store, "p", "taken").await;
    delete(&store, "p").await;
    store.expect_no_turn("the start is gone").await;
    assert!(store.exists("taken").await);
}

/// A parent deleted in the middle of a turn starts no child.
pub async fn the_turn_of_a_deleted_parent_starts_no_child(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("p").await;
    store.send(raised("p", "go", "")).await;
    let turn = store.turn_of("p").await;
    delete(&store, "p").await;
    let commit = Commit::default().message(start_of_child("c", "p"));
    assert_refused(store.try_ack(&turn.token, commit).await, "the turn of a deleted instance");
    store.expect_no_turn("no child was started").await;
}
