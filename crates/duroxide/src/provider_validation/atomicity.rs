//! A store commits a turn wholly or not at all.

use super::support::{Commit, Store, ack_turn, activity, activity_scheduled, event, raised, started, timer};
use super::{EventKind, ProviderFactory};
use crate::model::WorkItem;

/// A refused ack changes nothing, and the turn stays with its holder.
pub async fn test_atomicity_failure_rollback<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start_and_ack("rollback", Commit::of_events(vec![started("rollback", 1)])).await;
    assert_eq!(store.history("rollback").await.len(), 1, "the first turn should have written its event");

    store.start("rollback").await;
    let turn = store.turn_of("rollback").await;
    let again = Commit {
        events: vec![started("rollback", 1)],
        work: vec![activity("rollback", 2)],
        ..Commit::default()
    };
    let refused = store.try_ack(&turn.token, again).await;
    assert!(refused.is_err(), "an event id that is taken should be refused");

    assert_eq!(store.history("rollback").await.len(), 1, "a refused ack should write no event");
    store.expect_no_work("a refused ack should enqueue no activity").await;
    store.expect_no_turn("a refused ack should leave the lease with its holder").await;
}

/// Events, activities, timers and messages of one ack all land, and messages keep their order.
pub async fn test_multi_operation_atomic_ack<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let instance = "many-effects";
    let commit = Commit {
        events: vec![
            started(instance, 1),
            activity_scheduled(instance, 2),
            activity_scheduled(instance, 3),
            activity_scheduled(instance, 4),
            event(instance, 5, EventKind::TimerCreated { fire_at_ms: 1 }),
        ],
        work: vec![activity(instance, 2), activity(instance, 3), activity(instance, 4)],
        messages: vec![timer(instance, 5, 1), raised(instance, "go", "now")],
        ..Commit::default()
    };
    store.start_and_ack(instance, commit).await;

    assert_eq!(store.history(instance).await.len(), 5, "all five events should be stored");
    for id in 2..=4 {
        assert_eq!(store.work().await.id(), id, "the activities should come in the order of the ack");
    }
    store.expect_no_work("the ack scheduled three activities").await;
    let turn = store.turn_of(instance).await;
    assert!(
        matches!(
            turn.item.messages.as_slice(),
            [WorkItem::TimerFired { .. }, WorkItem::ExternalRaised { .. }]
        ),
        "the batch should be the timer, then the signal; got {:?}",
        turn.item.messages
    );
}

/// Only a successful ack, or time, ends a lease.
pub async fn test_lock_released_only_on_successful_ack<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("held").await;
    store.turn_for(store.lease()).await;
    store.expect_no_turn("the instance is leased").await;

    let refused = store.try_ack("no-such-token", Commit::creating("held")).await;
    assert!(refused.is_err(), "an unknown token should be refused");
    store.expect_no_turn("a refused ack should not end the lease").await;

    store.outlive_lease().await;
    store.turn_of("held").await;
}

/// Of two acks with one token, exactly one succeeds.
pub async fn test_concurrent_ack_prevention<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("twice").await;
    let turn = store.turn().await;

    let ack = || {
        let (provider, token) = (store.provider.clone(), turn.token.clone());
        tokio::spawn(async move { ack_turn(&*provider, &token, Commit::creating("twice")).await })
    };
    let (first, second) = (ack(), ack());
    let outcomes = [first.await.unwrap().is_ok(), second.await.unwrap().is_ok()];
    let accepted = outcomes.iter().filter(|accepted| **accepted).count();
    assert_eq!(accepted, 1, "exactly one of two acks with one token should succeed");
    assert_eq!(store.history("twice").await.len(), 1, "the event should be stored once");
}
