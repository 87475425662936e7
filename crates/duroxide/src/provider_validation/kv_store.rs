//! The key-value store of an instance, in its two layers.
//!
//! A reader sees the newest values at any time. A turn gets the values as of the beginning of its execution, because
//! replay reproduces the execution's own writes.

use std::collections::HashMap;

use super::support::*;
use super::{EventKind, ProviderFactory};
use crate::model::limits::MAX_KV_VALUE_BYTES;
use crate::providers::PruneOptions;

/// An instance whose turns write keys.
struct Writer<'s> {
    store: &'s Store<'s>,
    instance: &'static str,
    execution_id: u64,
    next_event_id: u64,
}

impl<'s> Writer<'s> {
    /// Creates the instance.
    async fn new(store: &'s Store<'s>, instance: &'static str) -> Self {
        store.create(instance).await;
        Self { store, instance, execution_id: 1, next_event_id: 2 }
    }

    /// Takes a turn that writes these events.
    async fn write(&mut self, kinds: impl IntoIterator<Item = EventKind>) {
        let commit = self.commit(kinds);
        self.store.next_turn(self.instance, commit).await;
    }

    /// Takes a turn that ends the execution with this status.
    async fn end(&mut self, status: &str) {
        let commit = self.commit([]).status(status);
        self.store.next_turn(self.instance, commit).await;
    }

    /// Ends the execution; later writes belong to the next.
    async fn continue_as_new(&mut self) {
        self.end("ContinuedAsNew").await;
        self.execution_id += 1;
        self.next_event_id = 1;
    }

    fn commit(&mut self, kinds: impl IntoIterator<Item = EventKind>) -> Commit {
        let commit = Commit::appending(self.instance, self.execution_id, self.next_event_id, kinds);
        self.next_event_id += commit.events.len() as u64;
        commit
    }

    /// Reads a value as a client does.
    async fn get(&self, key: &str) -> Option<String> {
        self.store.provider.get_kv_value(self.instance, key).await.expect("get_kv_value should work")
    }

    async fn expect(&self, key: &str, value: Option<&str>) {
        let seen = self.get(key).await;
        assert_eq!(seen.as_deref(), value, "a reader of {} should see this under {key:?}", self.instance);
    }

    /// Returns the snapshot of the next turn.
    async fn snapshot(&self) -> HashMap<String, String> {
        self.store.send(raised(self.instance, "look", "")).await;
        let turn = self.store.turn_of(self.instance).await;
        self.store.ack(&turn, Commit { execution_id: self.execution_id, ..Commit::default() }).await;
        turn.item.kv_snapshot.into_iter().map(|(key, entry)| (key, entry.value)).collect()
    }

    async fn expect_snapshot(&self, expected: &[(&str, &str)]) {
        let expected: HashMap<String, String> =
            expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        assert_eq!(
            self.snapshot().await,
            expected,
            "the next turn of {} should be given this",
            self.instance
        );
    }

    /// Removes all executions but the current one.
    async fn prune(&self) {
        let keep_one = PruneOptions { keep_last: Some(1), ..PruneOptions::default() };
        let pruned = self.store.admin().prune_executions(self.instance, keep_one).await;
        pruned.expect("prune_executions should work");
    }

    async fn delete(&self, force: bool) {
        let deleted = self.store.admin().delete_instance(self.instance, force).await;
        deleted.expect("delete_instance should work");
    }
}

fn cleared(key: &str) -> EventKind {
    EventKind::KeyValueCleared { key: key.to_string() }
}

fn all_cleared() -> EventKind {
    EventKind::KeyValuesCleared
}

// Reads.

/// A value that was set is read back at once.
pub async fn test_kv_set_and_get<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.expect("key", Some("value")).await;
}

/// The last value wins.
pub async fn test_kv_overwrite<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "old")]).await;
    kv.expect("key", Some("old")).await;
    kv.write([kv_set("key", "new")]).await;
    kv.expect("key", Some("new")).await;
}

/// A cleared key has no value.
pub async fn test_kv_clear_single<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.write([cleared("key")]).await;
    kv.expect("key", None).await;
}

/// All keys can be cleared at once.
pub async fn test_kv_clear_all<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("a", "1"), kv_set("b", "2")]).await;
    kv.write([all_cleared()]).await;
    kv.expect("a", None).await;
    kv.expect("b", None).await;
}

/// A key that was never set has no value.
pub async fn test_kv_get_nonexistent<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let kv = Writer::new(&store, "kv").await;
    kv.expect("never", None).await;
}

/// An unknown instance has no values; asking is not an error.
pub async fn test_kv_get_unknown_instance<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let value = store.provider.get_kv_value("nobody", "key").await;
    assert_eq!(value, Ok(None), "an unknown instance has no values");
}

/// Clearing a key that was never set changes nothing.
pub async fn test_kv_clear_nonexistent_key<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([cleared("never")]).await;
    kv.expect("never", None).await;
}

/// The store applies the events of a turn in order: a value set after a clear stays.
pub async fn test_kv_set_after_clear<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("a", "1"), kv_set("b", "2")]).await;
    kv.write([all_cleared(), kv_set("c", "3")]).await;
    kv.expect("a", None).await;
    kv.expect("b", None).await;
    kv.expect("c", Some("3")).await;
}

/// The empty text is a value.
pub async fn test_kv_empty_value<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "")]).await;
    kv.expect("key", Some("")).await;
}

/// Values up to the limit of the runtime come back whole.
pub async fn test_kv_large_value<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    for bytes in [16 * 1024, MAX_KV_VALUE_BYTES] {
        let value = "x".repeat(bytes);
        kv.write([kv_set("large", &value)]).await;
        assert!(kv.get("large").await == Some(value), "a value of {bytes} bytes should come back whole");
    }
}

/// Keys are arbitrary text.
pub async fn test_kv_special_chars_in_key<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    let keys = ["with spaces", "日本語", "dots.in.key", "slashes/in/key", "\u{1f511}"];
    for key in keys {
        kv.write([kv_set(key, &format!("value of {key}"))]).await;
    }
    for key in keys {
        kv.expect(key, Some(&format!("value of {key}"))).await;
    }
}

/// The same key of two instances has two values.
pub async fn test_kv_instance_isolation<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut first = Writer::new(&store, "first").await;
    let mut second = Writer::new(&store, "second").await;
    first.write([kv_set("key", "of first")]).await;
    second.write([kv_set("key", "of second")]).await;
    first.expect("key", Some("of first")).await;
    second.expect("key", Some("of second")).await;
}

/// Clearing all keys of one instance leaves those of another.
pub async fn test_kv_clear_isolation<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut first = Writer::new(&store, "first").await;
    let mut second = Writer::new(&store, "second").await;
    first.write([kv_set("key", "of first")]).await;
    second.write([kv_set("key", "of second")]).await;
    first.write([all_cleared()]).await;
    first.expect("key", None).await;
    second.expect("key", Some("of second")).await;
}

// Snapshots of turns.

/// A new instance begins with nothing.
pub async fn test_kv_snapshot_empty<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let kv = Writer::new(&store, "kv").await;
    kv.expect_snapshot(&[]).await;
}

/// The next turn gets the values of an ended execution.
pub async fn test_kv_snapshot_in_fetch<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("a", "1"), kv_set("b", "2")]).await;
    kv.end("Completed").await;
    kv.expect_snapshot(&[("a", "1"), ("b", "2")]).await;
}

/// The next turn does not get a key that an ended execution cleared.
pub async fn test_kv_snapshot_after_clear_single<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("a", "1"), kv_set("b", "2")]).await;
    kv.write([cleared("a")]).await;
    kv.end("Completed").await;
    kv.expect_snapshot(&[("b", "2")]).await;
}

/// The turns of an execution do not get keys that the execution itself set and cleared.
pub async fn test_kv_snapshot_after_clear_all<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("a", "1"), kv_set("b", "2")]).await;
    kv.write([all_cleared()]).await;
    kv.expect_snapshot(&[]).await;
}

/// A turn gets the values of earlier executions, not those of its own.
pub async fn test_kv_snapshot_cross_execution<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("A", "1")]).await;
    kv.continue_as_new().await;
    kv.write([kv_set("B", "2")]).await;
    kv.expect_snapshot(&[("A", "1")]).await;
}

/// Readers see the values of the running execution; its turns do not get them.
pub async fn test_kv_delta_snapshot_excludes_current_execution<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.expect("key", Some("value")).await;
    kv.expect_snapshot(&[]).await;
}

/// After continue-as-new the next execution gets the values of the last one.
pub async fn test_kv_delta_snapshot_includes_completed_execution<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.continue_as_new().await;
    kv.expect_snapshot(&[("key", "value")]).await;
}

// Executions and pruning.

/// A value that a later execution overwrote survives the pruning of the earlier one.
pub async fn test_kv_execution_id_tracking<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "of 1")]).await;
    kv.continue_as_new().await;
    kv.write([kv_set("key", "of 2")]).await;
    kv.prune().await;
    kv.expect("key", Some("of 2")).await;
}

/// A later execution overwrites what an earlier one wrote.
pub async fn test_kv_cross_execution_overwrite<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "v1")]).await;
    kv.continue_as_new().await;
    kv.expect("key", Some("v1")).await;
    kv.write([kv_set("key", "v2")]).await;
    kv.expect("key", Some("v2")).await;
}

/// A key can be removed in one execution and come back in the next.
pub async fn test_kv_cross_execution_remove_readd<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "v1")]).await;
    kv.continue_as_new().await;
    kv.write([cleared("key")]).await;
    kv.expect("key", None).await;
    kv.continue_as_new().await;
    kv.expect("key", None).await;
    kv.write([kv_set("key", "v3")]).await;
    kv.expect("key", Some("v3")).await;
}

/// Pruning keeps the newest value of a key, also after the execution that wrote it has ended.
pub async fn test_kv_prune_preserves_overwritten<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "of 1")]).await;
    kv.continue_as_new().await;
    kv.write([kv_set("key", "of 2")]).await;
    kv.end("Completed").await;
    kv.prune().await;
    kv.expect("key", Some("of 2")).await;
}

/// Pruning an execution keeps its values.
pub async fn test_kv_prune_preserves_all_keys<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("first", "of 1")]).await;
    kv.continue_as_new().await;
    kv.write([kv_set("second", "of 2")]).await;
    kv.prune().await;
    assert_eq!(store.executions("kv").await, [2], "execution 1 should be pruned");
    kv.expect("first", Some("of 1")).await;
    kv.expect("second", Some("of 2")).await;
}

/// Pruning an instance with one execution keeps its values.
pub async fn test_kv_prune_current_execution_protected<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.prune().await;
    kv.expect("key", Some("value")).await;
}

/// Keys that no later execution touched survive pruning, for readers and for turns.
pub async fn test_kv_delta_prune_untouched_key_survives<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("first", "of 1")]).await;
    kv.continue_as_new().await;
    kv.write([kv_set("second", "of 2")]).await;
    kv.continue_as_new().await;
    kv.write([kv_set("third", "of 3")]).await;
    kv.prune().await;
    assert_eq!(store.executions("kv").await, [3], "executions 1 and 2 should be pruned");
    kv.expect("first", Some("of 1")).await;
    kv.expect("second", Some("of 2")).await;
    kv.expect_snapshot(&[("first", "of 1"), ("second", "of 2")]).await;
}

// Both layers together.

/// Readers see overridden, untouched and new keys of a running execution.
pub async fn test_kv_delta_client_reads_merged<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("overridden", "old"), kv_set("untouched", "kept")]).await;
    kv.continue_as_new().await;
    kv.write([kv_set("overridden", "new"), kv_set("added", "fresh")]).await;
    kv.expect("overridden", Some("new")).await;
    kv.expect("untouched", Some("kept")).await;
    kv.expect("added", Some("fresh")).await;
}

/// A key that the running execution cleared is hidden from readers.
pub async fn test_kv_delta_tombstone_overrides_store<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.continue_as_new().await;
    kv.write([cleared("key")]).await;
    kv.expect("key", None).await;
}

/// Clearing all keys hides the values of earlier executions; readers see values set afterwards.
pub async fn test_kv_delta_clear_all_tombstones_store<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("a", "1"), kv_set("b", "2")]).await;
    kv.continue_as_new().await;
    kv.write([all_cleared()]).await;
    kv.write([kv_set("c", "3")]).await;
    kv.expect("a", None).await;
    kv.expect("b", None).await;
    kv.expect("c", Some("3")).await;
}

/// Values stay when their execution completes.
pub async fn test_kv_delta_merged_on_completion<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.end("Completed").await;
    kv.expect("key", Some("value")).await;
}

/// The next execution gets the last value of each key.
pub async fn test_kv_delta_merged_on_can<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("a", "1"), kv_set("b", "1")]).await;
    kv.write([kv_set("a", "2")]).await;
    kv.continue_as_new().await;
    kv.expect_snapshot(&[("a", "2"), ("b", "1")]).await;
}

// Deletion.

/// The values of an ended instance go with it.
pub async fn test_kv_delete_instance_cascades<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.end("Completed").await;
    kv.delete(false).await;
    kv.expect("key", None).await;
}

/// The values of children go with their root.
pub async fn test_kv_delete_instance_with_children<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut parent = Writer::new(&store, "parent").await;
    store.create_child("child", "parent").await;
    let mut child = Writer { store: &store, instance: "child", execution_id: 1, next_event_id: 2 };
    parent.write([kv_set("key", "of parent")]).await;
    child.write([kv_set("key", "of child")]).await;
    child.end("Completed").await;
    parent.end("Completed").await;
    parent.delete(false).await;
    parent.expect("key", None).await;
    child.expect("key", None).await;
}

/// The values of a running execution go with the instance.
pub async fn test_kv_delta_delete_instance_cascades<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut kv = Writer::new(&store, "kv").await;
    kv.write([kv_set("key", "value")]).await;
    kv.delete(true).await;
    kv.expect("key", None).await;
}
