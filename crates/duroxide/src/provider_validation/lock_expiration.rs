//! Leases end: by time, by abandon, by ack; and can be extended before.

use std::time::Duration;

use super::support::{Commit, ORCHESTRATION, Store, activity, completion_of, fetch_turn, ms, started};
use super::{ExecutionMetadata, ProviderFactory};

const ONE_SECOND: Duration = Duration::from_secs(1);

/// After its lease has run out, a fetch returns the instance again, and the old token is dead.
pub async fn test_lock_expires_after_timeout<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("expiring").await;
    let first = store.turn_for(store.lease()).await;
    store.expect_no_turn("the instance is leased").await;
    store.outlive_lease().await;

    let second = store.turn_of("expiring").await;
    assert_ne!(first.token, second.token, "every fetch should have a token of its own");
    let stale = store.try_ack(&first.token, Commit::creating("expiring")).await;
    assert!(stale.is_err(), "the token of a lease that was taken over should be dead");
}

/// Abandoning a turn makes it available at once.
pub async fn test_abandon_releases_lock_immediately<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("given-back").await;
    let turn = store.turn().await;
    store.expect_no_turn("the instance is leased").await;
    store.abandon(&turn).await;
    store.turn_of("given-back").await;
}

/// An ack frees the instance at once for messages that arrived meanwhile.
pub async fn test_lock_renewal_on_ack<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("busy").await;
    let turn = store.turn().await;
    store.start("busy").await;
    store.expect_no_turn("the instance is leased").await;
    store.ack(&turn, Commit::creating("busy")).await;
    store.turn_of("busy").await;
}

/// However many callers try, none gets a leased instance before its time.
pub async fn test_concurrent_lock_attempts_respect_expiration<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("wanted").await;
    let lease = store.lease();
    store.turn_for(lease).await;

    let mut attempts = Vec::new();
    for _ in 0..5 {
        let provider = store.provider.clone();
        attempts.push(tokio::spawn(async move { fetch_turn(&*provider, lease, None).await }));
    }
    for attempt in attempts {
        assert!(attempt.await.unwrap().is_none(), "nobody should get a leased instance");
    }
    store.outlive_lease().await;
    store.turn_of("wanted").await;
}

/// A live lease on an activity can be extended.
pub async fn test_worker_lock_renewal_success<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    let work = store.work_for(store.lease()).await;
    store.expect_no_work("the activity is leased").await;
    store.pass(ms(100)).await;
    store
        .provider
        .renew_work_item_lock(&work.token, store.lease())
        .await
        .expect("a live lease should be renewable");
    store.expect_no_work("the activity is leased").await;
}

/// An invented token cannot be renewed.
pub async fn test_worker_lock_renewal_invalid_token<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let renewed = store.provider.renew_work_item_lock("no-such-token", ONE_SECOND).await;
    assert!(renewed.is_err(), "an unknown token should not be renewable");
}

/// A lease that ran out cannot be renewed.
pub async fn test_worker_lock_renewal_after_expiration<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    let work = store.work_for(ONE_SECOND).await;
    store.outlive_lease().await;
    let renewed = store.provider.renew_work_item_lock(&work.token, store.lease()).await;
    assert!(renewed.is_err(), "a lease that ran out should not be renewable");
}

/// A renewed lease outlives its first end.
pub async fn test_worker_lock_renewal_extends_timeout<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    let running = ExecutionMetadata {
        status: Some("Running".to_string()),
        orchestration_name: Some(ORCHESTRATION.to_string()),
        ..ExecutionMetadata::default()
    };
    let commit = Commit {
        events: vec![started("renewing", 1)],
        work: vec![activity("renewing", 2)],
        metadata: running,
        ..Commit::default()
    };
    store.start_and_ack("renewing", commit).await;

    let lease = store.lease();
    let work = store.work_for(lease).await;
    store.pass(lease * 6 / 10).await;
    store.provider.renew_work_item_lock(&work.token, lease).await.expect("a live lease should be renewable");
    store.pass(lease * 4 / 10).await;
    store.expect_no_work("the lease was extended past its first end").await;
}

/// An activity that was acked cannot be renewed.
pub async fn test_worker_lock_renewal_after_ack<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    let work = store.work().await;
    store.complete(&work).await;
    let renewed = store.provider.renew_work_item_lock(&work.token, store.lease()).await;
    assert!(renewed.is_err(), "an activity that is gone should not be renewable");
}

/// Abandoning an activity makes it available at once, under a new token.
pub async fn test_abandon_work_item_releases_lock<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    let first = store.work().await;
    store.expect_no_work("the activity is leased").await;
    store.abandon_work(&first, None, false).await;
    let second = store.work().await;
    assert_ne!(first.token, second.token, "every fetch should have a token of its own");
    store.complete(&second).await;
}

/// An activity abandoned with a delay stays hidden that long.
pub async fn test_abandon_work_item_with_delay<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    let work = store.work().await;
    store.abandon_work(&work, Some(ms(500)), false).await;
    store.expect_no_work("the delay has not passed").await;
    store.pass(ms(600)).await;
    store.work().await;
}

/// A lease on an activity that ran out cannot be acked, and the activity is not lost.
pub async fn test_worker_ack_fails_after_lock_expiry<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.send_work(activity("i", 1)).await;
    let work = store.work_for(ONE_SECOND).await;
    store.pass(ms(1200)).await;
    let late = store.provider.ack_work_item(&work.token, Some(completion_of(&work.item, "late"))).await;
    assert!(late.is_err(), "an ack after the lease has run out should be refused");
    store.work().await;
}

/// A lease on a turn that ran out cannot be renewed.
pub async fn test_orchestration_lock_renewal_after_expiration<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("expired").await;
    let turn = store.turn_for(store.lease()).await;
    store.outlive_lease().await;
    let renewed = store.provider.renew_orchestration_item_lock(&turn.token, store.lease()).await;
    assert!(renewed.is_err(), "a lease that ran out should not be renewable");
}
