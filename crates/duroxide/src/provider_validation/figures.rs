//! Figures that operators read: queue depths, sizes, totals, and the rows that a deletion really removed.

use super::scenario::*;
use super::support::*;
use super::{Event, EventKind, ProviderFactory};
use crate::model::SystemStats;

/// Asserts how many messages and activities wait.
async fn expect_depths(store: &Store<'_>, messages: usize, activities: usize, when: &str) {
    let depths = store.admin().get_queue_depths().await.expect("get_queue_depths should work");
    assert_eq!(depths.orchestrator_queue, messages, "waiting messages {when}");
    assert_eq!(depths.worker_queue, activities, "waiting activities {when}");
    assert_eq!(depths.timer_queue, 0, "timers are messages; there is no queue of timers");
}

async fn stats(store: &Store<'_>, instance: &str) -> SystemStats {
    let stats = store.provider.get_instance_stats(instance).await.expect("get_instance_stats should work");
    stats.expect("a known instance has figures")
}

/// A held message does not wait; one that was given back, or whose lease ran out, does.
pub async fn queue_depths_count_messages_that_nobody_holds(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    expect_depths(&store, 0, 0, "in an empty store").await;
    store.create("depth").await;
    store.send(raised("depth", "a", "")).await;
    store.send(raised("depth", "b", "")).await;
    expect_depths(&store, 2, 0, "after two signals").await;

    let turn = store.turn_of("depth").await;
    expect_depths(&store, 0, 0, "while a turn holds them").await;
    store.send(raised("depth", "c", "")).await;
    expect_depths(&store, 1, 0, "when one more arrives").await;
    store.abandon_with(&turn, Some(ms(60_000)), false).await;
    expect_depths(&store, 3, 0, "after the turn was given back").await;

    store.turn_for(store.lease()).await;
    expect_depths(&store, 2, 0, "while a turn holds one of them").await;
    store.outlive_lease().await;
    expect_depths(&store, 3, 0, "after the lease ran out").await;
}

/// A held activity does not wait; one that was given back, or whose lease ran out, does.
pub async fn queue_depths_count_activities_that_nobody_holds(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("depth", 1)).await;
    store.send_work(activity("depth", 2)).await;
    expect_depths(&store, 0, 2, "after two were enqueued").await;
    let work = store.work().await;
    expect_depths(&store, 0, 1, "while a worker holds one").await;
    store.abandon_work(&work, Some(ms(60_000)), false).await;
    expect_depths(&store, 0, 2, "after it was given back").await;
    store.work_for(store.lease()).await;
    expect_depths(&store, 0, 1, "while a worker holds the other").await;
    store.outlive_lease().await;
    expect_depths(&store, 0, 2, "after its lease ran out").await;
}

/// Timers and delayed messages wait too.
pub async fn queue_depths_count_what_is_not_due_yet(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let due = store.now_ms() + 60_000;
    let commit = Commit::creating("later").message(timer("later", 2, due));
    store.start_and_ack("later", commit).await;
    store.send_delayed(raised("later", "signal", ""), ms(60_000)).await;
    expect_depths(&store, 2, 0, "when a timer and a delayed signal are queued").await;
}

/// A deletion reports exactly the rows that it removed.
pub async fn deletion_counts_what_was_removed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create_chain("counted", 2, "Completed").await;
    store.next_turn("counted", Commit::appending("counted", 2, 2, [kv_set("k", "v")])).await;
    store.send(raised("counted", "a", "")).await;
    store.send_delayed(raised("counted", "b", ""), ms(60_000)).await;
    store.send_work(activity("counted", 3)).await;

    let deleted = store.admin().delete_instance("counted", false).await;
    let deleted = deleted.expect("an instance that has ended should be deletable");
    assert_eq!(deleted.instances_deleted, 1, "one instance was there");
    assert_eq!(deleted.executions_deleted, 2, "two executions were there");
    assert_eq!(deleted.events_deleted, 3, "three events were there");
    assert_eq!(deleted.queue_messages_deleted, 3, "two messages and an activity were queued");
}

/// A deletion does not count ids that do not exist, nor an id twice.
pub async fn deletion_does_not_count_what_was_not_there(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for force in [false, true] {
        let nobody = store.admin().delete_instances_atomic(&ids(&["nobody", "nothing"]), force).await;
        // A store may also refuse ids that it does not know.
        if let Ok(deleted) = nobody {
            assert_eq!(deleted.instances_deleted, 0, "unknown ids should not count: {deleted:?}");
            assert_eq!(deleted.executions_deleted, 0, "unknown ids have no executions: {deleted:?}");
        }
    }
    let none = store.admin().delete_instances_atomic(&[], false).await;
    let none = none.expect("deleting nothing should work");
    assert_eq!(none.instances_deleted, 0, "nothing was named");

    store.create_with_status("once", "Completed").await;
    let twice = store.admin().delete_instances_atomic(&ids(&["once", "once"]), false).await;
    let twice = twice.expect("an id that is named twice should be deleted once");
    assert_eq!(twice.instances_deleted, 1, "an id that is named twice is one instance");
}

/// A start event whose input is `repeated` a hundred times.
fn started_with(instance: &str, repeated: &str) -> Event {
    let mut first = started(instance, 1);
    if let EventKind::OrchestrationStarted { input, .. } = &mut first.kind {
        *input = repeated.repeat(100);
    }
    first
}

/// Sizes are bytes, not characters.
pub async fn sizes_are_counted_in_bytes(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for (instance, text) in [("bytes-1", "x"), ("bytes-3", "語")] {
        let events = vec![started_with(instance, text), event(instance, 2, kv_set("k", &text.repeat(7)))];
        store.start_and_ack(instance, Commit { metadata: named(), ..Commit::of_events(events) }).await;
    }
    let (narrow, wide) = (stats(&store, "bytes-1").await, stats(&store, "bytes-3").await);
    assert_eq!(narrow.kv_total_value_bytes, 7, "seven characters of one byte");
    assert_eq!(wide.kv_total_value_bytes, 21, "seven characters of three bytes");
    let difference = wide.history_size_bytes.saturating_sub(narrow.history_size_bytes);
    assert_eq!(difference, 214, "107 characters of three bytes are 214 bytes more than 107 of one");
}

/// Keys that the running execution cleared or overwrote are not counted twice, and hidden ones not at all.
pub async fn key_value_figures_describe_what_readers_see(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("figures").await;
    let first = [kv_set("kept", "1234"), kv_set("replaced", "12345678"), kv_set("cleared", "12")];
    let first = Commit::appending("figures", 1, 2, first).status("ContinuedAsNew");
    store.next_turn("figures", first).await;
    let second = [kv_set("replaced", "1"), EventKind::KeyValueCleared { key: "cleared".to_string() }];
    store.next_turn("figures", Commit::appending("figures", 2, 1, second)).await;

    let stats = stats(&store, "figures").await;
    assert_eq!(stats.kv_user_key_count, 2, "readers see two keys");
    assert_eq!(stats.kv_total_value_bytes, 5, "readers see values of four bytes and one byte");
    assert_eq!(stats.history_event_count, 2, "only the current execution's events count");
}

/// Totals count each instance under the status of its current execution.
pub async fn totals_follow_the_current_execution(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let empty = store.admin().get_system_metrics().await.expect("get_system_metrics should work");
    assert_eq!((empty.total_instances, empty.total_executions, empty.total_events), (0, 0, 0), "nothing yet");

    store.create("running").await;
    store.create_with_status("completed", "Completed").await;
    store.create_with_status("failed", "Failed").await;
    store.create_with_status("between", "ContinuedAsNew").await;
    store.create_chain("chain", 3, "Running").await;
    let totals = store.admin().get_system_metrics().await.expect("get_system_metrics should work");
    assert_eq!(totals.total_instances, 5, "five instances: {totals:?}");
    assert_eq!(totals.total_executions, 7, "one execution each, and three of the chain: {totals:?}");
    assert_eq!(totals.running_instances, 2, "the running one and the chain: {totals:?}");
    assert_eq!(totals.completed_instances, 1, "one has completed: {totals:?}");
    assert_eq!(totals.failed_instances, 1, "one has failed: {totals:?}");
    assert_eq!(totals.total_events, 7, "one start event for each execution: {totals:?}");
}
