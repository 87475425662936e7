//! Calls with very many items.

use super::ProviderFactory;
use super::support::{
    Commit, Store, activity, activity_scheduled, completed, completion_ids, scheduled, started,
};

/// One ack schedules ten thousand activities and another cancels them; one that is not listed stays.
pub async fn ten_thousand_activities_are_cancelled_at_once(factory: &dyn ProviderFactory) {
    const MANY: u64 = 10_000;
    let store = Store::new(factory).await;
    store.create_with_work("i", (1..=MANY + 1).map(|id| activity("i", id)).collect()).await;
    let held = store.work().await;
    let cancelled = (1..=MANY).map(|id| scheduled("i", id)).collect();
    store.next_turn("i", Commit { cancelled, ..Commit::default() }).await;
    let renewed = store.provider.renew_work_item_lock(&held.token, store.lease()).await;
    assert!(renewed.is_err(), "a cancelled activity should be gone, also if somebody holds it");
    assert_eq!(store.work().await.id(), MANY + 1, "the activity that was not listed should stay");
    store.expect_no_work("all others were cancelled").await;
}

/// Thousands of messages come in one batch or in several, in order, and each is acked once.
pub async fn thousands_of_messages_keep_their_order(factory: &dyn ProviderFactory) {
    const MANY: u64 = 3_000;
    let store = Store::new(factory).await;
    let messages = (1..=MANY).map(|id| completed("i", id, "r")).collect();
    store.start_and_ack("i", Commit { messages, ..Commit::creating("i") }).await;
    let mut received = Vec::new();
    while let Some(turn) = store.try_turn().await {
        assert_eq!(turn.attempts, 1, "no message should be handed out twice");
        received.extend(completion_ids(&turn.item.messages));
        store.ack(&turn, Commit::default()).await;
    }
    let sent: Vec<u64> = (1..=MANY).collect();
    assert!(received == sent, "each message should come once, in order; got {} of them", received.len());
}

/// One ack writes thousands of events, and they come back in order.
pub async fn thousands_of_events_in_one_turn(factory: &dyn ProviderFactory) {
    const MANY: u64 = 5_000;
    let store = Store::new(factory).await;
    let mut commit = Commit::creating("i");
    commit.events = vec![started("i", 1)];
    commit.events.extend((2..=MANY).map(|id| activity_scheduled("i", id)));
    let written = commit.events.clone();
    store.start_and_ack("i", commit).await;
    assert!(store.history("i").await == written, "all events should come back, in order");
    store.start("i").await;
    assert!(store.turn_of("i").await.item.history == written, "also with a fetch");
}
