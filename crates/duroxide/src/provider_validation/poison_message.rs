//! A store counts attempts per message.

use std::time::Duration;

use super::ProviderFactory;
use super::support::{Commit, Store, activity, completed, ms, queue_message};

const ONE_SECOND: Duration = Duration::from_secs(1);

/// The first fetch of a turn is attempt 1.
pub async fn orchestration_attempt_count_starts_at_one(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("first").await;
    let turn = store.turn().await;
    assert_eq!(turn.attempts, 1, "the first fetch should be attempt 1");
    store.ack(&turn, Commit::default()).await;
}

/// Each fetch after an abandon counts one more.
pub async fn orchestration_attempt_count_increments_on_refetch(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("again").await;
    for attempt in 1..=3 {
        let turn = store.turn().await;
        assert_eq!(turn.attempts, attempt, "an abandoned attempt should count");
        store.abandon(&turn).await;
    }
}

/// The first fetch of an activity is attempt 1.
pub async fn worker_attempt_count_starts_at_one(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    assert_eq!(store.work().await.attempts, 1, "the first fetch should be attempt 1");
}

/// An attempt whose lease ran out counts.
pub async fn worker_attempt_count_increments_on_lock_expiry(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    assert_eq!(store.work_for(ONE_SECOND).await.attempts, 1, "the first fetch should be attempt 1");
    store.pass(ms(1100)).await;
    assert_eq!(store.work().await.attempts, 2, "an attempt that ran out should count");
}

/// Each activity has its own attempts.
pub async fn attempt_count_is_per_message(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    store.send_work(activity("i", 2)).await;
    let (first, second) = (store.work().await, store.work().await);
    assert_ne!(first.id(), second.id(), "two activities should be handed out");
    assert_eq!((first.attempts, second.attempts), (1, 1), "each should be at its own attempt 1");
}

/// An ignored attempt at an activity does not count.
pub async fn abandon_work_item_ignore_attempt_decrements(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    for (attempt, ignore) in [(1, false), (2, true), (2, false)] {
        let work = store.work().await;
        assert_eq!(work.attempts, attempt, "only attempts that are not ignored should count");
        store.abandon_work(&work, None, ignore).await;
    }
}

/// An ignored attempt at a turn does not count.
pub async fn abandon_orchestration_item_ignore_attempt_decrements(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("ignored").await;
    for (attempt, ignore) in [(1, false), (2, true), (2, false)] {
        let turn = store.turn().await;
        assert_eq!(turn.attempts, attempt, "only attempts that are not ignored should count");
        store.abandon_with(&turn, None, ignore).await;
    }
}

/// Ignoring attempts again and again never counts below zero.
pub async fn ignore_attempt_never_goes_negative(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    for _ in 0..3 {
        let work = store.work().await;
        assert_eq!(work.attempts, 1, "an ignored attempt should leave the count at zero");
        store.abandon_work(&work, None, true).await;
    }
}

/// A batch reports the highest count among its messages.
pub async fn max_attempt_count_across_message_batch(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.start("batch").await;
    let turn = store.turn().await;
    store.abandon(&turn).await;
    let turn = store.turn().await;
    assert_eq!(turn.attempts, 2, "the start should be at its second attempt");

    store.send(completed("batch", 1, "r")).await;
    store.abandon(&turn).await;
    let turn = store.turn().await;
    assert_eq!(turn.item.messages.len(), 2, "start and completion should come together");
    assert_eq!(turn.attempts, 3, "the batch should report its highest count");
}

/// Ignoring an attempt changes only the messages of that turn, not a hidden one.
pub async fn orchestration_ignore_attempt_preserves_hidden_start(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("hidden").await;
    store.start("hidden").await;
    let turn = store.turn().await;
    assert_eq!(turn.attempts, 1, "the second start should be at its first attempt");
    store.abandon(&turn).await;
    let turn = store.turn().await;
    assert_eq!(turn.attempts, 2, "an abandoned attempt should count");
    store.abandon_with(&turn, Some(ONE_SECOND), false).await;

    store.send(queue_message("hidden", "inbox", "m")).await;
    let turn = store.turn().await;
    assert_eq!(turn.item.messages, [queue_message("hidden", "inbox", "m")], "the start is still hidden");
    assert_eq!(turn.attempts, 1, "the queue message should be at its first attempt");
    store.abandon_with(&turn, None, true).await;

    store.pass(ms(1100)).await;
    let turn = store.turn().await;
    assert_eq!(turn.attempts, 3, "the hidden start should have kept its two attempts");
    store.ack(&turn, Commit::default()).await;
}

/// A delay hides only the messages of that turn, not one that came later.
pub async fn orchestration_delayed_abandon_preserves_unlocked_rows(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    store.create("delayed").await;
    store.send(queue_message("delayed", "inbox", "locked")).await;
    let turn = store.turn().await;
    store.send(queue_message("delayed", "inbox", "unlocked")).await;
    store.abandon_with(&turn, Some(Duration::from_secs(5)), false).await;

    let turn = store.turn_of("delayed").await;
    let expected = [queue_message("delayed", "inbox", "unlocked")];
    assert_eq!(turn.item.messages, expected, "the message that came later should not be delayed");
    store.ack(&turn, Commit::default()).await;
}
