//! The first ack creates an instance, not the enqueue.

use super::support::{Commit, Store, named, start_named, started};
use super::{ExecutionMetadata, ProviderFactory};

fn version(version: &str) -> ExecutionMetadata {
    ExecutionMetadata { orchestration_version: Some(version.to_string()), ..named() }
}

/// The first ack with name and version makes the instance; its version is the metadata's, not the start's.
pub async fn test_instance_creation_via_metadata<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("new").await;
    let first = store.turn_of("new").await;
    assert_eq!(first.item.orchestration_name, "TestOrch", "the name should come from the start");
    assert_eq!(first.item.execution_id, 1, "the first execution should be 1");
    assert!(first.item.history.is_empty(), "a new instance should have no history");
    let commit = Commit { events: vec![started("new", 1)], metadata: version("2.0.0"), ..Commit::default() };
    store.ack(&first, commit).await;

    store.start("new").await;
    let second = store.turn_of("new").await;
    assert_eq!(second.item.version, "2.0.0", "the version should be the one of the metadata");
    assert_eq!(second.item.execution_id, 1, "the execution should still be 1");
    assert_eq!(second.item.history.len(), 1, "the first turn's event should be there");
    store.ack(&second, Commit::default()).await;
}

/// A start makes no instance; its turn can be fetched all the same.
pub async fn test_no_instance_creation_on_enqueue<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("queued").await;
    let known = store.admin().get_instance_info("queued").await;
    assert!(known.is_err(), "an enqueued start should not make an instance; got {known:?}");
    store.turn_of("queued").await;
    let known = store.admin().get_instance_info("queued").await;
    assert!(known.is_err(), "a fetch should not make an instance; got {known:?}");
}

/// A start may leave the version open; the first ack settles it.
pub async fn test_null_version_handling<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send(start_named("open", "TestOrch", None)).await;
    let turn = store.turn_of("open").await;
    let commit = Commit { events: vec![started("open", 1)], metadata: version("3.0.0"), ..Commit::default() };
    store.ack(&turn, commit).await;

    store.start("open").await;
    let next = store.turn_of("open").await;
    assert_eq!(next.item.version, "3.0.0", "the version should be the one of the metadata");
}

/// A child's own first ack creates it, not its parent's.
pub async fn test_sub_orchestration_instance_creation<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let commit =
        Commit { messages: vec![start_named("child", "ChildOrch", None)], ..Commit::creating("parent") };
    store.start_and_ack("parent", commit).await;
    assert!(
        store.admin().get_instance_info("child").await.is_err(),
        "a start in an ack should not make the instance"
    );

    let turn = store.turn_of("child").await;
    assert_eq!(turn.item.orchestration_name, "ChildOrch", "the name should come from the child's start");
    let metadata = ExecutionMetadata {
        orchestration_name: Some("ChildOrch".to_string()),
        parent_instance_id: Some("parent".to_string()),
        ..version("1.5.0")
    };
    store.ack(&turn, Commit { events: vec![started("child", 1)], metadata, ..Commit::default() }).await;

    store.send(start_named("child", "ChildOrch", None)).await;
    let next = store.turn_of("child").await;
    assert_eq!(next.item.version, "1.5.0", "the version should be the one of the metadata");
}
