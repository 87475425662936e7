//! The custom status of an instance and its version.

use super::support::*;
use super::{EventKind, ProviderFactory};

const INSTANCE: &str = "status";

fn updated(status: Option<&str>) -> EventKind {
    EventKind::CustomStatusUpdated { status: status.map(str::to_string) }
}

/// Takes a turn of the instance that appends one event.
async fn append(store: &Store<'_>, event_id: u64, kind: EventKind) {
    store.next_turn(INSTANCE, Commit::of_events(vec![event(INSTANCE, event_id, kind)])).await;
}

/// Reads the custom status if its version is above `seen`.
async fn read(store: &Store<'_>, seen: u64) -> Option<(Option<String>, u64)> {
    store.provider.get_custom_status(INSTANCE, seen).await.expect("get_custom_status should work")
}

fn value(status: &str, version: u64) -> Option<(Option<String>, u64)> {
    Some((Some(status.to_string()), version))
}

/// The first status has version 1.
pub async fn test_custom_status_set<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create(INSTANCE).await;
    append(&store, 2, updated(Some("progress"))).await;
    assert_eq!(read(&store, 0).await, value("progress", 1), "the status should be stored as version 1");
}

/// Clearing the status is a change too.
pub async fn test_custom_status_clear<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create(INSTANCE).await;
    append(&store, 2, updated(Some("progress"))).await;
    append(&store, 3, updated(None)).await;
    assert_eq!(read(&store, 0).await, Some((None, 2)), "the cleared status should be version 2");
}

/// A turn that does not mention the status does not change it.
pub async fn test_custom_status_none_preserves<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create(INSTANCE).await;
    append(&store, 2, updated(Some("progress"))).await;
    append(&store, 3, EventKind::TimerCreated { fire_at_ms: 0 }).await;
    assert_eq!(read(&store, 0).await, value("progress", 1), "value and version should be kept");
}

/// Every change increments the version by one.
pub async fn test_custom_status_version_increments<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create(INSTANCE).await;
    append(&store, 2, updated(Some("a"))).await;
    assert_eq!(read(&store, 0).await, value("a", 1), "the first change is version 1");
    append(&store, 3, updated(Some("b"))).await;
    assert_eq!(read(&store, 1).await, value("b", 2), "the second change is version 2");
    append(&store, 4, updated(None)).await;
    assert_eq!(read(&store, 2).await, Some((None, 3)), "the third change is version 3");
}

/// A reader that has seen the version gets nothing.
pub async fn test_custom_status_polling_no_change<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create(INSTANCE).await;
    append(&store, 2, updated(Some("progress"))).await;
    assert_eq!(read(&store, 1).await, None, "version 1 has been seen");
    assert_eq!(read(&store, 0).await, value("progress", 1), "version 1 has not been seen");
}

/// An unknown instance has no status.
pub async fn test_custom_status_nonexistent_instance<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    assert_eq!(read(&store, 0).await, None, "an unknown instance has no status");
}

/// A new instance has no status.
pub async fn test_custom_status_default_on_new_instance<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create(INSTANCE).await;
    assert_eq!(read(&store, 0).await, None, "a new instance has no status");
}
