//! A store keeps the executions of one instance apart.

use super::support::{Commit, Store, continue_as_new, event_in, start_item, started};
use super::{Event, EventKind, ProviderFactory};
use crate::model::WorkItem;

fn scheduled_activity(instance: &str, execution_id: u64, event_id: u64, name: &str) -> Event {
    let kind = EventKind::ActivityScheduled {
        name: name.to_string(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    event_in(instance, execution_id, event_id, kind)
}

fn activity_name(history: &[Event]) -> &str {
    match history {
        [Event { kind: EventKind::ActivityScheduled { name, .. }, .. }] => name,
        other => panic!("the history should be one scheduled activity; got {other:?}"),
    }
}

/// Starts the instance, and commits events to one of its executions without naming it.
async fn run_execution(store: &Store<'_>, instance: &str, execution_id: u64, events: Vec<Event>) {
    store.start_and_ack(instance, Commit { execution_id, events, ..Commit::default() }).await;
}

/// Each execution has a history of its own, with event ids from 1.
pub async fn test_execution_isolation<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let first = vec![
        started("iso", 1),
        scheduled_activity("iso", 1, 2, "A"),
        event_in("iso", 1, 3, EventKind::OrchestrationContinuedAsNew { input: String::new() }),
    ];
    let second = vec![
        started("iso", 2),
        event_in("iso", 2, 2, EventKind::OrchestrationCompleted { output: "end".to_string() }),
    ];
    run_execution(&store, "iso", 1, first.clone()).await;
    run_execution(&store, "iso", 2, second.clone()).await;

    assert_eq!(store.history_of("iso", 1).await, first, "execution 1 should keep its three events");
    assert_eq!(store.history_of("iso", 2).await, second, "execution 2 should have its two events");
    assert_eq!(store.history("iso").await, second, "read should return the latest execution");
}

/// `read` returns the execution with the highest id.
pub async fn test_latest_execution_detection<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    run_execution(&store, "latest", 1, vec![scheduled_activity("latest", 1, 1, "A")]).await;
    run_execution(&store, "latest", 2, vec![scheduled_activity("latest", 2, 1, "B")]).await;
    assert_eq!(activity_name(&store.history("latest").await), "B", "read should return execution 2");
    assert_eq!(activity_name(&store.history_of("latest", 1).await), "A", "execution 1 should be kept");
}

/// The current execution is the one that was acked, not the one that a start names.
pub async fn test_execution_id_sequencing<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("seq").await;
    let turn = store.turn_of("seq").await;
    assert_eq!(turn.item.execution_id, 1, "the first execution should be 1");
    store.ack(&turn, Commit::creating("seq")).await;

    let second = Commit { execution_id: 2, events: vec![started("seq", 2)], ..Commit::default() };
    store.next_turn("seq", second).await;

    let mut start = start_item("seq");
    if let WorkItem::StartOrchestration { execution_id, .. } = &mut start {
        *execution_id = 3;
    }
    store.send(start).await;
    let turn = store.turn_of("seq").await;
    assert_eq!(turn.item.execution_id, 2, "a start should not move the instance to another execution");
}

/// The ack that carries its id creates the next execution.
pub async fn test_continue_as_new_creates_new_execution<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("chain").await;
    store.send(continue_as_new("chain")).await;
    let turn = store.turn_of("chain").await;
    assert_eq!(turn.item.execution_id, 1, "a fetch should not begin the next execution");
    let commit = Commit { execution_id: 2, events: vec![started("chain", 2)], ..Commit::default() };
    store.ack(&turn, commit).await;

    assert_eq!(store.history("chain").await.len(), 1, "the new execution should have its start event");
    store.start("chain").await;
    let turn = store.turn_of("chain").await;
    assert_eq!(turn.item.execution_id, 2, "the acked execution should be the current one");
}

/// Finished executions stay readable.
pub async fn test_execution_history_persistence<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for (execution_id, name) in [(1, "A"), (2, "B"), (3, "C")] {
        let events = vec![scheduled_activity("kept", execution_id, 1, name)];
        run_execution(&store, "kept", execution_id, events).await;
    }
    for (execution_id, name) in [(1, "A"), (2, "B"), (3, "C")] {
        let history = store.history_of("kept", execution_id).await;
        assert_eq!(activity_name(&history), name, "execution {execution_id} should be readable");
    }
    assert_eq!(activity_name(&store.history("kept").await), "C", "read should return execution 3");
}
