//! Custom status and key-value store, in corners that the published checks leave out.

use std::collections::HashMap;

use super::support::{Commit, Store, event, event_in, kv_set, raised, started};
use super::{EventKind, ProviderFactory};
use crate::providers::KvEntry;

fn custom_status(status: Option<&str>) -> EventKind {
    EventKind::CustomStatusUpdated { status: status.map(str::to_string) }
}

fn kv_set_at(key: &str, value: &str, last_updated_at_ms: u64) -> EventKind {
    EventKind::KeyValueSet { key: key.into(), value: value.into(), last_updated_at_ms }
}

async fn all_values(store: &Store<'_>, instance: &str) -> HashMap<String, String> {
    store.provider.get_kv_all_values(instance).await.expect("get_kv_all_values should work")
}

fn values(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Of several custom statuses in one turn, the last counts, and the version rises by one.
pub async fn last_custom_status_of_a_turn_counts(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("i");
    commit.events.push(event("i", 2, custom_status(Some("first"))));
    commit.events.push(event("i", 3, custom_status(None)));
    commit.events.push(event("i", 4, custom_status(Some("last"))));
    store.start_and_ack("i", commit).await;
    let seen = store.provider.get_custom_status("i", 0).await.expect("get_custom_status should work");
    assert_eq!(seen, Some((Some("last".to_string()), 1)), "the last one counts, once");
}

/// A custom status survives continue-as-new.
pub async fn custom_status_survives_executions(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("i");
    commit.events.push(event("i", 2, custom_status(Some("kept"))));
    commit.metadata.status = Some("ContinuedAsNew".to_string());
    store.start_and_ack("i", commit).await;
    let second = Commit { execution_id: 2, events: vec![started("i", 2)], ..Commit::default() };
    store.next_turn("i", second).await;
    let seen = store.provider.get_custom_status("i", 0).await.expect("get_custom_status should work");
    assert_eq!(seen, Some((Some("kept".to_string()), 1)), "it belongs to the instance");
}

/// Readers get one merged view of all values: those that earlier executions left, and the running one's changes.
pub async fn all_values_are_merged(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    assert_eq!(all_values(&store, "nobody").await, values(&[]), "an unknown instance has no values");

    let mut commit = Commit::creating("i");
    commit.events.push(event("i", 2, kv_set("kept", "1")));
    commit.events.push(event("i", 3, kv_set("changed", "1")));
    commit.events.push(event("i", 4, kv_set("removed", "1")));
    commit.metadata.status = Some("ContinuedAsNew".to_string());
    store.start_and_ack("i", commit).await;
    let first = values(&[("kept", "1"), ("changed", "1"), ("removed", "1")]);
    assert_eq!(all_values(&store, "i").await, first, "what the first execution left");

    let events = vec![
        started("i", 2),
        event_in("i", 2, 2, kv_set("changed", "2")),
        event_in("i", 2, 3, EventKind::KeyValueCleared { key: "removed".into() }),
        event_in("i", 2, 4, kv_set("new", "2")),
    ];
    store.next_turn("i", Commit { execution_id: 2, events, ..Commit::default() }).await;
    let second = values(&[("kept", "1"), ("changed", "2"), ("new", "2")]);
    assert_eq!(all_values(&store, "i").await, second, "with what the running execution changed");

    let cleared =
        vec![event_in("i", 2, 5, EventKind::KeyValuesCleared), event_in("i", 2, 6, kv_set("last", "3"))];
    store.next_turn("i", Commit { execution_id: 2, events: cleared, ..Commit::default() }).await;
    assert_eq!(all_values(&store, "i").await, values(&[("last", "3")]), "after everything was cleared");
}

/// The snapshot has the time of each value, as its event recorded it.
pub async fn snapshot_has_the_times_of_the_values(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("i");
    commit.events.push(event("i", 2, kv_set_at("a", "old", 111)));
    commit.events.push(event("i", 3, kv_set_at("b", "v", 222)));
    commit.events.push(event("i", 4, kv_set_at("a", "new", 333)));
    commit.metadata.status = Some("ContinuedAsNew".to_string());
    store.start_and_ack("i", commit).await;
    store.send(raised("i", "n", "")).await;
    let snapshot = store.turn_of("i").await.item.kv_snapshot;
    let expected = HashMap::from([
        ("a".to_string(), KvEntry { value: "new".to_string(), last_updated_at_ms: 333 }),
        ("b".to_string(), KvEntry { value: "v".to_string(), last_updated_at_ms: 222 }),
    ]);
    assert_eq!(snapshot, expected, "each value should come with its time");
}

/// The events of a custom status and of values are part of the history like all others.
pub async fn state_events_stay_in_the_history(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("i");
    commit.events.push(event("i", 2, kv_set("k", "v")));
    commit.events.push(event("i", 3, custom_status(None)));
    commit.events.push(event("i", 4, EventKind::KeyValuesCleared));
    let written = commit.events.clone();
    store.start_and_ack("i", commit).await;
    assert_eq!(store.history("i").await, written);
}
