//! Order, visibility and exactly-once removal in both queues.

use std::time::Duration;

use super::ProviderFactory;
use super::support::{Commit, Store, activity, completed, ms, queue_message, started, timer};
use crate::model::WorkItem;

/// Activities come first in, first out.
pub async fn test_worker_queue_fifo_ordering<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for id in 0..5 {
        store.send_work(activity("fifo", id)).await;
    }
    for id in 0..5 {
        assert_eq!(store.work().await.id(), id, "activities should come in the order of their enqueue");
    }
    store.expect_no_work("all five are leased").await;
}

/// A fetched activity stays in the queue, hidden, until it is acked.
pub async fn test_worker_peek_lock_semantics<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("peek", 1)).await;
    let work = store.work().await;
    store.expect_no_work("the activity is leased").await;
    store.complete(&work).await;
    store.expect_no_work("an acked activity should be gone").await;
}

/// One ack removes the activity and enqueues its completion.
pub async fn test_worker_ack_atomicity<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    // The instance has history but no row: only its start event names it.
    store.start_and_ack("ack", Commit::of_events(vec![started("ack", 1)])).await;
    store.send_work(activity("ack", 7)).await;
    let work = store.work().await;
    store.complete(&work).await;

    store.expect_no_work("an acked activity should be gone").await;
    let turn = store.turn_of("ack").await;
    assert_eq!(
        turn.item.messages,
        [completed("ack", 7, "done")],
        "the completion should be the only message"
    );
}

/// A timer with a delay is invisible until the delay has passed.
pub async fn test_timer_delayed_visibility<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start_and_ack("timer", Commit::of_events(vec![started("timer", 1)])).await;
    store.send_delayed(timer("timer", 2, 0), Duration::from_secs(5)).await;
    store.expect_no_turn("the timer is not due").await;
    store.pass(ms(5100)).await;
    let turn = store.turn_of("timer").await;
    assert_eq!(turn.item.messages, [timer("timer", 2, 0)], "the timer should be the only message");
}

/// An activity whose holder vanished comes back after the lease.
pub async fn test_lost_lock_token_handling<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("lost", 1)).await;
    store.work_for(store.lease()).await;
    store.expect_no_work("the activity is leased").await;
    store.outlive_lease().await;
    assert_eq!(store.work().await.id(), 1, "the activity should come back");
}

/// An enqueued activity can be fetched at once.
pub async fn test_worker_item_immediate_visibility<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("now", 1)).await;
    let work = store.work().await;
    assert_eq!(work.item, activity("now", 1), "the activity should come back as it was enqueued");
}

/// A delayed activity does not hold up the ones behind it.
pub async fn test_worker_delayed_visibility_skips_future_items<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("delayed", 1)).await;
    store.send_work(activity("delayed", 2)).await;
    let first = store.work().await;
    assert_eq!(first.id(), 1, "the first activity should come first");
    store.abandon_work(&first, Some(ms(500)), false).await;

    let second = store.work().await;
    assert_eq!(second.id(), 2, "the second activity should not wait for the delayed one");
    store.expect_no_work("one is leased, one is delayed").await;
    store.pass(ms(600)).await;
    let first = store.work().await;
    assert_eq!(first.id(), 1, "the delayed activity should be due");
    store.complete(&first).await;
    store.complete(&second).await;
}

/// The store drops queue messages for an instance that does not exist, and delivers them to one that exists.
pub async fn test_orphan_queue_messages_dropped<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send(queue_message("nobody", "inbox", "1")).await;
    store.send(queue_message("nobody", "inbox", "2")).await;
    store.expect_no_turn("queue messages make no instance").await;
    store.expect_no_turn("the messages should have been dropped").await;

    store.create("somebody").await;
    store.send(queue_message("somebody", "inbox", "3")).await;
    let turn = store.turn_of("somebody").await;
    assert!(
        matches!(
            turn.item.messages.as_slice(),
            [WorkItem::QueueMessage { name, data, .. }] if name == "inbox" && data == "3"
        ),
        "the queue message should come as it was sent; got {:?}",
        turn.item.messages
    );
    store.ack(&turn, Commit::default()).await;
}
