//! The calls that a store must refuse: the refusal is permanent, names its operation, and leaves nothing behind.

use std::fmt::Debug;

use super::ProviderFactory;
use super::scenario::*;
use super::support::*;
use crate::providers::{ProviderError, WorkItem};

/// Asserts a permanent error of this operation.
fn expect_permanent<T: Debug>(operation: &str, result: Result<T, ProviderError>, why: &str) {
    match result {
        Ok(value) => panic!("{operation} should refuse: {why}; it returned {value:?}"),
        Err(error) => {
            assert!(!error.is_retryable(), "{operation} should refuse for good: {why}; got {error:?}");
            assert_eq!(error.operation, operation, "the error should name the operation: {error}");
        }
    }
}

/// Asserts that the store refuses every use of a turn's token.
async fn expect_dead_turn_token(store: &Store<'_>, token: &str, why: &str) {
    let provider = &store.provider;
    expect_permanent("ack_orchestration_item", store.try_ack(token, Commit::default()).await, why);
    let abandoned = provider.abandon_orchestration_item(token, None, false).await;
    expect_permanent("abandon_orchestration_item", abandoned, why);
    let renewed = provider.renew_orchestration_item_lock(token, TURN_LEASE).await;
    expect_permanent("renew_orchestration_item_lock", renewed, why);
}

/// Asserts that the store refuses every use of an activity's token.
async fn expect_dead_work_token(store: &Store<'_>, token: &str, why: &str) {
    let provider = &store.provider;
    let acked = provider.ack_work_item(token, Some(completed("dead", 1, ""))).await;
    expect_permanent("ack_work_item", acked, why);
    expect_permanent("abandon_work_item", provider.abandon_work_item(token, None, false).await, why);
    expect_permanent("renew_work_item_lock", provider.renew_work_item_lock(token, WORK_LEASE).await, why);
}

/// The store refuses an invented token everywhere.
pub async fn an_invented_token_is_refused_everywhere(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for token in ["", "lock_invented", "'; --"] {
        expect_dead_turn_token(&store, token, "the token was never given out").await;
        expect_dead_work_token(&store, token, "the token was never given out").await;
    }
    store.expect_no_turn("a refused ack enqueues nothing").await;
}

/// The store refuses a token that an ack or an abandon has consumed; nothing is idempotent by accident.
pub async fn a_used_token_is_refused_everywhere(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("used").await;
    let turn = store.turn_of("used").await;
    store.abandon(&turn).await;
    expect_dead_turn_token(&store, &turn.token, "the turn was given back").await;
    let turn = store.turn_of("used").await;
    store.ack(&turn, Commit::creating("used")).await;
    expect_dead_turn_token(&store, &turn.token, "the turn was committed").await;

    store.send_work(activity("used", 2)).await;
    let work = store.work().await;
    store.abandon_work(&work, None, false).await;
    expect_dead_work_token(&store, &work.token, "the activity was given back").await;
    let work = store.work().await;
    store.discard(&work).await;
    expect_dead_work_token(&store, &work.token, "the activity was acked").await;
    store.expect_no_turn("a refused ack enqueues nothing").await;
}

/// The store refuses a token whose lease another caller took over, also for abandoning.
pub async fn a_token_that_was_taken_over_is_refused_everywhere(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("taken").await;
    store.send_work(activity("taken", 2)).await;
    let (turn, work) = (store.turn_for(store.lease()).await, store.work_for(store.lease()).await);
    store.outlive_lease().await;
    let (new_turn, new_work) = (store.turn_of("taken").await, store.work().await);

    expect_dead_turn_token(&store, &turn.token, "somebody else has the turn").await;
    expect_dead_work_token(&store, &work.token, "somebody else has the activity").await;
    store.expect_no_turn("the new holder still has the turn").await;
    store.expect_no_work("the new holder still has the activity").await;
    store.ack(&new_turn, Commit::creating("taken")).await;
    store.discard(&new_work).await;
}

/// Activities belong to the worker queue, everything else to the orchestrator queue.
pub async fn items_of_the_other_queue_are_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let enqueued = store.provider.enqueue_for_orchestrator(activity("i", 1), None).await;
    expect_permanent("enqueue_for_orchestrator", enqueued, "an activity is no message");
    let enqueued = store.provider.enqueue_for_worker(start_item("i")).await;
    expect_permanent("enqueue_for_worker", enqueued, "a start is no activity");
    store.expect_no_turn("nothing should be enqueued").await;
    store.expect_no_work("nothing should be enqueued").await;
}

/// The store refuses a turn with an item for the wrong queue as a whole, and its lease stays.
pub async fn a_turn_with_a_misplaced_item_changes_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("misplaced").await;
    let turn = store.turn_of("misplaced").await;
    let wrong_message = Commit::creating("misplaced").message(activity("misplaced", 2));
    let wrong_activity = Commit::creating("misplaced").schedule(raised("misplaced", "x", ""));
    for commit in [wrong_message, wrong_activity] {
        let acked = store.try_ack(&turn.token, commit).await;
        expect_permanent("ack_orchestration_item", acked, "an item is in the wrong list");
        assert!(store.history("misplaced").await.is_empty(), "a refused turn should write nothing");
        store.expect_gone(&["misplaced"]).await;
    }
    store.expect_no_turn("the turn is still held").await;
    store.ack(&turn, Commit::creating("misplaced")).await;
}

/// A worker reports the end of its activity and nothing else; after a wrong report it still holds the activity.
pub async fn a_wrong_completion_is_refused_and_the_activity_kept(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("worker").await;
    store.send_work(activity("worker", 2)).await;
    let work = store.work().await;
    let acked = store.provider.ack_work_item(&work.token, Some(raised("worker", "x", ""))).await;
    expect_permanent("ack_work_item", acked, "a signal is no completion");
    store.expect_no_turn("a refused ack enqueues nothing").await;
    store.expect_no_work("the activity is still held").await;
    store.complete(&work).await;
    store.turn_of("worker").await;
}

/// Event ids come from the runtime: the store refuses an event without one.
pub async fn an_event_without_an_id_is_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("unnumbered").await;
    let turn = store.turn_of("unnumbered").await;
    let mut commit = Commit::creating("unnumbered").schedule(activity("unnumbered", 2));
    commit.events.push(activity_scheduled("unnumbered", 0));
    expect_permanent("ack_orchestration_item", store.try_ack(&turn.token, commit).await, "an id is 0");
    store.expect_no_work("a refused turn should schedule nothing").await;
    let events = vec![started("unnumbered", 1), activity_scheduled("unnumbered", 0)];
    let appended = store.provider.append_with_execution("unnumbered", 1, events).await;
    expect_permanent("append_with_execution", appended, "an id is 0");
    assert!(store.history("unnumbered").await.is_empty(), "nothing should be written");
}

/// An execution uses each event id once; the store refuses a delta with a taken id as a whole.
pub async fn a_taken_event_id_is_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("numbered").await;
    store.send(raised("numbered", "next", "")).await;
    let turn = store.turn_of("numbered").await;
    let taken = vec![activity_scheduled("numbered", 2), activity_scheduled("numbered", 1)];
    let twice = vec![activity_scheduled("numbered", 2), activity_scheduled("numbered", 2)];
    for events in [taken, twice] {
        let acked = store.try_ack(&turn.token, Commit::of_events(events.clone())).await;
        expect_permanent("ack_orchestration_item", acked, "an event id is taken");
        let appended = store.provider.append_with_execution("numbered", 1, events).await;
        expect_permanent("append_with_execution", appended, "an event id is taken");
        assert_eq!(store.history("numbered").await.len(), 1, "nothing should be written");
    }
    store.ack(&turn, Commit::of_events(vec![activity_scheduled("numbered", 2)])).await;
}

/// A refused turn leaves custom status and key-value store as they were.
pub async fn a_refused_turn_changes_no_status_and_no_values(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("kept").await;
    store.next_turn("kept", Commit::appending("kept", 1, 2, [kv_set("k", "old")])).await;
    store.send(raised("kept", "next", "")).await;
    let turn = store.turn_of("kept").await;
    let status = super::EventKind::CustomStatusUpdated { status: Some("new".to_string()) };
    let mut refused = Commit::appending("kept", 1, 3, [kv_set("k", "new"), status]).status("Completed");
    refused.events.push(activity_scheduled("kept", 1));
    expect_permanent("ack_orchestration_item", store.try_ack(&turn.token, refused).await, "an id is taken");

    let value = store.provider.get_kv_value("kept", "k").await;
    assert_eq!(value, Ok(Some("old".to_string())), "the value should be kept");
    assert_eq!(store.provider.get_custom_status("kept", 0).await, Ok(None), "no status should be set");
    let info = store.admin().get_instance_info("kept").await.expect("get_instance_info should work");
    assert_eq!(info.status, "Running", "the execution should go on");
    store.ack(&turn, Commit::default()).await;
    store.send(raised("kept", "look", "")).await;
    let turn = store.turn_of("kept").await;
    assert!(turn.item.kv_snapshot.is_empty(), "a refused end should settle nothing");
}

/// A store answers a request for something unknown with a permanent "not found".
pub async fn unknown_instances_are_not_found(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let admin = store.admin();
    let not_found = ["not found"];
    expect_refusal(admin.get_instance_info("nobody").await, &not_found);
    expect_refusal(admin.get_execution_info("nobody", 1).await, &not_found);
    expect_refusal(admin.get_parent_id("nobody").await, &not_found);
    expect_refusal(admin.delete_instance("nobody", true).await, &not_found);
    expect_refusal(admin.prune_executions("nobody", Default::default()).await, &not_found);
    store.create("somebody").await;
    expect_refusal(admin.get_execution_info("somebody", 2).await, &not_found);
}

/// Reading about what does not exist is no error: there is nothing to read.
pub async fn reading_about_unknown_instances_is_empty(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let admin = store.admin();
    assert_eq!(store.provider.read("nobody").await, Ok(vec![]), "no history");
    assert_eq!(store.provider.read_with_execution("nobody", 3).await, Ok(vec![]), "no history");
    assert_eq!(admin.read_history("nobody").await, Ok(vec![]), "no history");
    assert_eq!(admin.read_history_with_execution_id("nobody", 2).await, Ok(vec![]), "no history");
    assert_eq!(admin.list_executions("nobody").await, Ok(vec![]), "no executions");
    assert_eq!(admin.latest_execution_id("nobody").await, Ok(1), "the first execution is yet to come");
    assert_eq!(admin.list_children("nobody").await, Ok(vec![]), "no children");
    assert_eq!(admin.list_instances_by_status("NoSuchStatus").await, Ok(vec![]), "no such status");
    let values = store.provider.get_kv_all_values("nobody").await.expect("get_kv_all_values should work");
    assert!(values.is_empty(), "no values");
}

/// A start inside a turn creates no instance, nor does a start in the queue.
pub async fn starts_create_no_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let child = WorkItem::StartOrchestration {
        instance: "child".to_string(),
        orchestration: ORCHESTRATION.to_string(),
        input: "{}".to_string(),
        version: None,
        parent_instance: Some("parent".to_string()),
        parent_id: Some(2),
        parent_execution_id: Some(1),
        execution_id: 1,
    };
    store.start_and_ack("parent", Commit::creating("parent").message(child)).await;
    store.expect_gone(&["child"]).await;
    let listed = store.admin().list_instances().await.expect("list_instances should work");
    assert_eq!(listed, ["parent"], "only the instance that took a turn is there");
    store.turn_of("child").await;
    store.expect_gone(&["child"]).await;
}

/// Name and version create an instance only together.
pub async fn half_a_name_creates_no_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for (instance, with_name) in [("name-only", true), ("version-only", false)] {
        let mut commit = Commit::creating(instance);
        if with_name {
            commit.metadata.orchestration_version = None;
        } else {
            commit.metadata.orchestration_name = None;
        }
        store.start_and_ack(instance, commit).await;
        store.expect_gone(&[instance]).await;
        assert_eq!(store.history(instance).await.len(), 1, "the turn itself should be stored");
    }
}
