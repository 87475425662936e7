//! A store reports misuse and damage as errors.

use super::EventKind;
use super::ProviderFactory;
use super::support::{Commit, Store, activity_scheduled, started};

/// The store refuses an ack with an invented token, and the message says why.
pub async fn test_invalid_lock_token_on_ack<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let refusal = store.try_ack("no-such-token", Commit::default()).await;
    let refusal = refusal.expect_err("an unknown token should be refused");
    assert!(
        refusal.message.contains("Invalid lock token") || refusal.message.contains("lock_token"),
        "the error should speak of an invalid lock token; got: {refusal}"
    );
}

/// The store refuses a taken event id, whatever the event is.
pub async fn test_duplicate_event_id_rejection<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start_and_ack("dup", Commit::of_events(vec![started("dup", 1)])).await;

    store.start("dup").await;
    let turn = store.turn_of("dup").await;
    let refused = store.try_ack(&turn.token, Commit::of_events(vec![activity_scheduled("dup", 1)])).await;
    assert!(refused.is_err(), "an event id that is taken should be refused");

    let history = store.history("dup").await;
    assert_eq!(history.len(), 1, "a refused ack should write no event");
    assert!(
        matches!(history[0].kind, EventKind::OrchestrationStarted { .. }),
        "the first event should be the one that was stored first; got {:?}",
        history[0]
    );
}

/// The history of an instance that does not exist is empty.
pub async fn test_missing_instance_metadata<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    assert!(store.history("nobody").await.is_empty(), "an unknown instance should have no history");
}

/// A fetch from an empty store is no error.
pub async fn test_corrupted_serialization_data<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.expect_no_turn("the store is empty").await;
}

/// A lease that ran out cannot be acked.
pub async fn test_lock_expiration_during_ack<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("late").await;
    let turn = store.turn_for(store.lease()).await;
    store.outlive_lease().await;
    let late = store.try_ack(&turn.token, Commit::creating("late")).await;
    assert!(late.is_err(), "an ack after the lease has run out should be refused");
    assert!(store.history("late").await.is_empty(), "a refused ack should write no event");
}

/// A history that does not decode is an error, not a shorter history.
pub async fn test_read_corrupted_history_returns_error<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("damaged").await;
    assert!(!store.history("damaged").await.is_empty(), "the history should be readable before the damage");
    factory.corrupt_instance_history("damaged").await;
    let read = store.provider.read("damaged").await;
    assert!(read.is_err(), "read should fail on a damaged history; got {read:?}");
}

/// The same for the history of one execution.
pub async fn test_read_with_execution_corrupted_history_returns_error<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("damaged").await;
    assert!(!store.history_of("damaged", 1).await.is_empty(), "it should be readable before the damage");
    factory.corrupt_instance_history("damaged").await;
    let read = store.provider.read_with_execution("damaged", 1).await;
    assert!(read.is_err(), "read_with_execution should fail on a damaged history; got {read:?}");
}
