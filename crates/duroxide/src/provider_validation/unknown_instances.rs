//! Messages for an instance that does not exist never hold up others.
//!
//! Signals and cancellations may have overtaken the start: they wait for it, for a day. Completions belong to an
//! instance that is gone, and queue messages need one: the store drops both.

use std::time::Duration;

use super::ProviderFactory;
use super::support::{Commit, Store, cancel, completed, queue_message, raised, start_item, started, timer};
use crate::model::{ErrorDetails, WorkItem};
use crate::providers::DEFAULT_PARKING_TIME;

const A_MINUTE: Duration = Duration::from_secs(60);

fn child_completed(parent: &str) -> WorkItem {
    WorkItem::SubOrchCompleted {
        parent_instance: parent.to_string(),
        parent_execution_id: 1,
        parent_id: 2,
        result: String::new(),
    }
}

/// However many messages wait for unknown instances, a fetch finds the instance that exists.
pub async fn signals_for_unknown_instances_block_nobody(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    for n in 0..50 {
        store.send(raised(&format!("ghost-{n}"), "n", "")).await;
        store.send(cancel(&format!("ghost-{n}"))).await;
    }
    store.start("real").await;
    store.turn_of("real").await;
    store.expect_no_turn("unknown instances have no turns").await;
}

/// Parked messages come with the start, in order, and as if they had just arrived.
pub async fn parked_messages_come_with_the_start(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send(raised("early", "n", "1")).await;
    store.expect_no_turn("the instance does not exist").await;
    store.send(cancel("early")).await;
    store.expect_no_turn("the instance does not exist").await;
    store.send(raised("early", "n", "2")).await;
    store.expect_no_turn("the instance does not exist").await;

    store.start("early").await;
    let turn = store.turn_of("early").await;
    let expected =
        [raised("early", "n", "1"), cancel("early"), raised("early", "n", "2"), start_item("early")];
    assert_eq!(turn.item.messages, expected, "all messages should come, in the order of their enqueue");
    assert_eq!(turn.attempts, 1, "waiting should not count as an attempt");
    store.ack(&turn, Commit::creating("early")).await;
    store.expect_no_turn("all messages were acked").await;
}

/// The same when the start comes with another instance's ack.
pub async fn parked_messages_come_with_a_start_by_ack(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send(raised("child", "n", "")).await;
    store.expect_no_turn("the instance does not exist").await;
    let commit = Commit { messages: vec![start_item("child")], ..Commit::creating("parent") };
    store.start_and_ack("parent", commit).await;
    let turn = store.turn_of("child").await;
    assert_eq!(turn.item.messages, [raised("child", "n", ""), start_item("child")]);
    assert_eq!(turn.attempts, 1, "waiting should not count as an attempt");
}

/// A queue message that waits beside a cancellation survives with it.
pub async fn queue_messages_beside_a_signal_survive(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send(queue_message("early", "inbox", "m")).await;
    store.send(cancel("early")).await;
    store.expect_no_turn("the instance does not exist").await;
    store.start("early").await;
    let turn = store.turn_of("early").await;
    let expected = [queue_message("early", "inbox", "m"), cancel("early"), start_item("early")];
    assert_eq!(turn.item.messages, expected, "both should come with the start");
    assert_eq!(turn.attempts, 1, "waiting should not count as an attempt");
}

/// The store drops completions for an unknown instance, so that a re-created one never sees them.
pub async fn completions_for_unknown_instances_are_dropped(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    let details = ErrorDetails::Application {
        kind: crate::model::AppErrorKind::ActivityFailed,
        message: String::new(),
        retryable: false,
    };
    let failed = WorkItem::ActivityFailed { instance: "gone".into(), execution_id: 1, id: 2, details };
    for message in [completed("gone", 2, "r"), failed, timer("gone", 3, 1), child_completed("gone")] {
        store.send(message).await;
    }
    store.expect_no_turn("the instance does not exist").await;
    store.start("gone").await;
    let turn = store.turn_of("gone").await;
    assert_eq!(turn.item.messages, [start_item("gone")], "stale completions should be dropped");
}

/// The store drops queue messages for an unknown instance, so that a later one never sees them.
pub async fn queue_messages_for_unknown_instances_are_dropped(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send(queue_message("late", "inbox", "m")).await;
    store.expect_no_turn("the instance does not exist").await;
    store.start("late").await;
    let turn = store.turn_of("late").await;
    assert_eq!(turn.item.messages, [start_item("late")], "the queue message should be dropped");
}

/// A completion reported for a deleted instance does not reach its successor.
pub async fn completions_for_deleted_instances_are_dropped(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    if store.extended().is_none() {
        return;
    }
    store.create("reborn").await;
    store.admin().delete_instance("reborn", true).await.expect("a forced deletion should work");
    store.send(completed("reborn", 2, "stale")).await;
    store.expect_no_turn("the instance does not exist").await;
    store.start("reborn").await;
    assert_eq!(store.turn_of("reborn").await.item.messages, [start_item("reborn")]);
}

/// The store lists parked messages, oldest first, with their text.
pub async fn parked_messages_are_listed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send(raised("ghost-1", "first-signal", "")).await;
    store.send(raised("ghost-2", "second-signal", "")).await;
    store.expect_no_turn("the instances do not exist").await;
    let now = extended.clock().now_ms();

    let parked = extended.list_parked(10).await.expect("list_parked should work");
    let listed: Vec<&str> = parked.iter().map(|message| message.instance.as_str()).collect();
    assert_eq!(listed, ["ghost-1", "ghost-2"], "both should be listed, oldest first");
    assert!(parked[0].raw.contains("first-signal"), "with the message's text; got {:?}", parked[0]);
    assert!(parked[0].expires_at > now, "and a time in the future at which it is dropped");
    let first = extended.list_parked(1).await.expect("list_parked should work");
    assert_eq!(first, parked[..1], "a limit cuts off the newest");

    store.start("ghost-1").await;
    store.turn_of("ghost-1").await;
    let parked = extended.list_parked(10).await.expect("list_parked should work");
    let listed: Vec<&str> = parked.iter().map(|message| message.instance.as_str()).collect();
    assert_eq!(listed, ["ghost-2"], "what was delivered waits no longer");
}

/// The store drops messages that have waited for a day.
pub async fn parked_messages_expire(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let Some(clock) = factory.clock() else { return };
    store.send(raised("ghost", "n", "")).await;
    store.expect_no_turn("the instance does not exist").await;
    clock.advance(DEFAULT_PARKING_TIME - A_MINUTE);
    store.expect_no_turn("the instance does not exist").await;
    let parked = extended.list_parked(10).await.expect("list_parked should work");
    assert_eq!(parked.len(), 1, "the signal should wait for a day");

    clock.advance(A_MINUTE * 2);
    store.expect_no_turn("the instance does not exist").await;
    let parked = extended.list_parked(10).await.expect("list_parked should work");
    assert!(parked.is_empty(), "after a day it should be dropped; got {parked:?}");
    store.start("ghost").await;
    assert_eq!(store.turn_of("ghost").await.item.messages, [start_item("ghost")]);
}

/// An append without events makes no history: parked messages stay parked until there is one.
pub async fn appending_nothing_makes_no_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send(raised("ghost", "n", "")).await;
    store.expect_no_turn("the instance does not exist").await;
    let append = async |events| {
        let appended = store.provider.append_with_execution("ghost", 1, events).await;
        appended.expect("append_with_execution should work");
    };
    append(vec![]).await;
    let parked = extended.list_parked(10).await.expect("list_parked should work");
    assert_eq!(parked.len(), 1, "nothing was appended, so the instance still does not exist");
    store.expect_no_turn("the instance does not exist").await;
    append(vec![started("ghost", 1)]).await;
    assert_eq!(store.turn_of("ghost").await.item.messages, [raised("ghost", "n", "")]);
}
