//! The reads of operators.

use super::support::{Commit, Store, event, kv_set, named, named_with_status, start_item, started, status};
use super::{Event, EventKind, ExecutionMetadata, ProviderFactory};
use crate::model::SystemStats;

/// Sets these keys, in events from `first_id` on.
fn setting(instance: &str, first_id: u64, values: &[(&str, &str)]) -> Vec<Event> {
    let ids = first_id..;
    ids.zip(values).map(|(id, (key, value))| event(instance, id, kv_set(key, value))).collect()
}

async fn stats(store: &Store<'_>, instance: &str) -> SystemStats {
    let stats = store.provider.get_instance_stats(instance).await.expect("get_instance_stats should work");
    stats.expect("a known instance should have stats")
}

/// The store lists every instance.
pub async fn test_list_instances<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let created = ["list-a", "list-b", "list-c"];
    for instance in created {
        store.create(instance).await;
    }
    let listed = store.admin().list_instances().await.expect("list_instances should work");
    for instance in created {
        assert!(listed.iter().any(|id| id == instance), "{instance} should be listed; got {listed:?}");
    }
}

/// The store lists instances by the status of their current execution.
pub async fn test_list_instances_by_status<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create_with_status("ended", "Completed").await;
    store.create("going").await;
    let completed = store.admin().list_instances_by_status("Completed").await.expect("listing should work");
    assert_eq!(completed, ["ended"], "exactly the completed instance should be listed");
    let unknown = store.admin().list_instances_by_status("NoSuchStatus").await.expect("listing should work");
    assert!(unknown.is_empty(), "no instance has that status; got {unknown:?}");
}

/// The store lists the executions of an instance, even without an instance row.
pub async fn test_list_executions<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start_and_ack("nameless", Commit::of_events(vec![started("nameless", 1)])).await;
    let executions = store.admin().list_executions("nameless").await.expect("list_executions should work");
    assert_eq!(executions, [1], "the acked execution should be listed");
    let none = store.admin().list_executions("nobody").await.expect("an unknown instance is no error");
    assert!(none.is_empty(), "an unknown instance has no executions; got {none:?}");
}

/// The description of an instance comes from its acks.
pub async fn test_get_instance_info<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let metadata = ExecutionMetadata {
        orchestration_name: Some("InfoOrch".to_string()),
        orchestration_version: Some("2.0.0".to_string()),
        ..ExecutionMetadata::default()
    };
    let commit = Commit { events: vec![started("info", 1)], metadata, ..Commit::default() };
    store.start_and_ack("info", commit).await;

    let info = store.admin().get_instance_info("info").await.expect("get_instance_info should work");
    assert_eq!(info.instance_id, "info");
    assert_eq!(info.orchestration_name, "InfoOrch");
    assert_eq!(info.orchestration_version, "2.0.0");
    assert_eq!(info.current_execution_id, 1);
    assert_eq!(info.status, "Running", "an execution runs until an ack says otherwise");

    let unknown = store.admin().get_instance_info("nobody").await;
    let unknown = unknown.expect_err("an unknown instance should be an error");
    assert!(
        unknown.message.to_lowercase().contains("not found") && !unknown.is_retryable(),
        "the error should be permanent and say `not found`; got {unknown:?}"
    );
}

/// The description of an execution comes from its acks, even without an instance row.
pub async fn test_get_execution_info<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let metadata = ExecutionMetadata { output: Some("result".to_string()), ..status("Completed") };
    // The store files events under the instance of the lease, whatever they say themselves.
    let commit = Commit { events: vec![started("somebody-else", 1)], metadata, ..Commit::default() };
    store.start_and_ack("execution", commit).await;

    let info =
        store.admin().get_execution_info("execution", 1).await.expect("get_execution_info should work");
    assert_eq!(info.execution_id, 1);
    assert_eq!(info.status, "Completed");
    assert_eq!(info.output.as_deref(), Some("result"));
    assert_eq!(info.event_count, 1);
    assert!(
        store.admin().get_execution_info("execution", 2).await.is_err(),
        "an unknown execution should be an error"
    );
}

/// Totals count all rows.
pub async fn test_get_system_metrics<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let before = store.admin().get_system_metrics().await.expect("get_system_metrics should work");
    let commit = Commit { events: vec![started("somebody-else", 1)], metadata: named(), ..Commit::default() };
    store.start_and_ack("metrics", commit).await;
    let after = store.admin().get_system_metrics().await.expect("get_system_metrics should work");
    assert_eq!(after.total_instances, before.total_instances + 1, "one instance was created");
    assert_eq!(after.running_instances, before.running_instances + 1, "and it runs");
    assert!(after.total_events > 0, "its event should be counted");
}

/// Queue depths count a waiting message.
pub async fn test_get_queue_depths<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let before = store.admin().get_queue_depths().await.expect("get_queue_depths should work");
    store.send(start_item("depth")).await;
    let after = store.admin().get_queue_depths().await.expect("get_queue_depths should work");
    assert!(
        after.orchestrator_queue > before.orchestrator_queue,
        "an enqueued message should be counted; got {before:?}, then {after:?}"
    );
    assert_eq!(after.timer_queue, 0, "timers are messages of the orchestrator queue");
}

/// An unknown instance has no stats.
pub async fn test_get_instance_stats_nonexistent<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let stats = store.provider.get_instance_stats("nobody").await.expect("get_instance_stats should work");
    assert!(stats.is_none(), "an unknown instance should have no stats; got {stats:?}");
}

/// The history is counted and measured.
pub async fn test_get_instance_stats_history<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("sized").await;
    let stats = stats(&store, "sized").await;
    assert!(stats.history_event_count >= 1, "the start event should be counted");
    assert!(stats.history_size_bytes > 0, "the start event should be measured");
    assert_eq!((stats.kv_user_key_count, stats.kv_total_value_bytes), (0, 0), "there are no values");
    assert_eq!(stats.queue_pending_count, 0, "no message was carried over");
}

/// Values of a finished execution are counted.
pub async fn test_get_instance_stats_kv<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("kv");
    commit.events.extend(setting("kv", 2, &[("a", "123"), ("b", "12345")]));
    commit.metadata = named_with_status("Completed");
    store.start_and_ack("kv", commit).await;
    let stats = stats(&store, "kv").await;
    assert_eq!((stats.kv_user_key_count, stats.kv_total_value_bytes), (2, 8), "two values, eight bytes");
}

/// Messages carried over by the start event are counted.
pub async fn test_get_instance_stats_carry_forward<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut start = started("carried", 1);
    if let EventKind::OrchestrationStarted { carry_forward_events, .. } = &mut start.kind {
        let carried = ["1", "2", "3"].map(|data| ("inbox".to_string(), data.to_string()));
        *carry_forward_events = Some(carried.to_vec());
    }
    let commit = Commit { events: vec![start], metadata: named(), ..Commit::default() };
    store.start_and_ack("carried", commit).await;
    let stats = stats(&store, "carried").await;
    assert_eq!(stats.queue_pending_count, 3, "three messages were carried over");
    assert!(stats.history_event_count >= 1 && stats.history_size_bytes > 0, "the start event is there");
    assert_eq!(stats.kv_user_key_count, 0, "there are no values");
}

/// Values of the running execution are counted.
pub async fn test_get_instance_stats_kv_delta_only<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("delta");
    commit.events.extend(setting("delta", 2, &[("a", "123"), ("b", "123456")]));
    store.start_and_ack("delta", commit).await;
    let stats = stats(&store, "delta").await;
    assert_eq!((stats.kv_user_key_count, stats.kv_total_value_bytes), (2, 9), "two values, nine bytes");
    assert_eq!(stats.queue_pending_count, 0, "no message was carried over");
}

/// A value that was overwritten is counted once.
pub async fn test_get_instance_stats_kv_merged<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("merged");
    commit.events.extend(setting("merged", 2, &[("a", "123"), ("b", "12")]));
    store.start_and_ack("merged", commit).await;
    let first = stats(&store, "merged").await;
    assert_eq!((first.kv_user_key_count, first.kv_total_value_bytes), (2, 5), "two values, five bytes");

    let commit = Commit {
        events: setting("merged", 4, &[("a", "12345")]),
        metadata: status("Completed"),
        ..Commit::default()
    };
    store.next_turn("merged", commit).await;
    let second = stats(&store, "merged").await;
    assert_eq!((second.kv_user_key_count, second.kv_total_value_bytes), (2, 7), "two values, seven bytes");
    assert_eq!(second.queue_pending_count, 0, "no message was carried over");
}
