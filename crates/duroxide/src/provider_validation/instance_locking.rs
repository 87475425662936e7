//! One instance, one holder.

use std::collections::HashSet;

use super::ProviderFactory;
use super::support::{Commit, Store, TURN_LEASE, Turn, completed, completion_ids, fetch_turn, ms};
use crate::providers::Provider;

/// No other caller gets a leased instance until the lease has run out; then it comes with a new token.
pub async fn test_exclusive_instance_lock<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("one").await;
    let first = store.turn_for(store.lease()).await;
    store.expect_no_turn("the instance is leased").await;
    store.outlive_lease().await;
    let second = store.turn_of("one").await;
    assert_ne!(first.token, second.token, "every fetch should have a token of its own");
}

/// No two fetches get the same token.
pub async fn test_lock_token_uniqueness<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for n in 0..5 {
        store.start(&format!("token-{n}")).await;
    }
    let mut tokens = HashSet::new();
    for _ in 0..5 {
        tokens.insert(store.turn().await.token);
    }
    assert_eq!(tokens.len(), 5, "five fetches should have five tokens");
}

/// Ack and abandon refuse an invented token, and the real lease stays.
pub async fn test_invalid_lock_token_rejection<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("held").await;
    store.turn().await;

    let ack = store.try_ack("no-such-token", Commit::creating("held")).await;
    assert!(ack.is_err(), "ack should refuse an unknown token");
    let abandon = store.provider.abandon_orchestration_item("no-such-token", None, false).await;
    assert!(abandon.is_err(), "abandon should refuse an unknown token");
    store.expect_no_turn("refused calls should not end the lease").await;
}

/// Ten concurrent fetches get ten instances.
pub async fn test_concurrent_instance_fetching<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for n in 0..10 {
        store.start(&format!("parallel-{n}")).await;
    }
    let fetched = fetch_from_many_tasks(&store, 10, 30).await;
    let distinct: HashSet<&str> = fetched.iter().map(|turn| turn.item.instance.as_str()).collect();
    assert_eq!(fetched.len(), 10, "each of ten fetches should get an instance");
    assert_eq!(distinct.len(), 10, "no instance should be fetched twice");
}

/// Messages that arrive during a lease wait for its end, and then come in order, with the messages before them.
pub async fn test_completions_arriving_during_lock_blocked<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("busy").await;
    store.turn_for(store.lease()).await;
    for id in 1..=3 {
        store.send(completed("busy", id, "r")).await;
    }
    store.expect_no_turn("messages for a leased instance should wait").await;

    store.outlive_lease().await;
    let turn = store.turn_of("busy").await;
    assert_eq!(turn.item.messages.len(), 4, "the start and the three completions should come together");
    assert_eq!(completion_ids(&turn.item.messages), [1, 2, 3], "the completions should keep their order");
}

/// A lease on one instance does not touch another.
pub async fn test_cross_instance_lock_isolation<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("a").await;
    store.create("b").await;
    store.start("a").await;
    store.start("b").await;

    store.turn_of("a").await;
    let turn_of_b = store.turn_of("b").await;
    store.ack(&turn_of_b, Commit::default()).await;
    store.send(completed("b", 1, "r")).await;
    store.turn_of("b").await;
}

/// An ack removes the messages of its turn and leaves one that came later.
pub async fn test_message_tagging_during_lock<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("tagging").await;
    store.send(completed("tagging", 1, "r")).await;
    store.send(completed("tagging", 2, "r")).await;
    let turn = store.turn_of("tagging").await;
    assert_eq!(completion_ids(&turn.item.messages), [1, 2], "both waiting messages should be in the batch");

    store.send(completed("tagging", 3, "r")).await;
    store.ack(&turn, Commit::default()).await;
    let next = store.turn_of("tagging").await;
    assert_eq!(completion_ids(&next.item.messages), [3], "only the late message should be left");
    assert_eq!(next.item.messages.len(), 1, "nothing else should be in the batch");
}

/// The same with several late messages.
pub async fn test_ack_only_affects_locked_messages<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.create("late").await;
    store.send(completed("late", 1, "r")).await;
    let turn = store.turn_of("late").await;
    store.send(completed("late", 2, "r")).await;
    store.send(completed("late", 3, "r")).await;
    store.expect_no_turn("messages for a leased instance should wait").await;

    store.ack(&turn, Commit::default()).await;
    let next = store.turn_of("late").await;
    assert_eq!(completion_ids(&next.item.messages), [2, 3], "the late messages should come in order");
}

/// Of ten fetchers from several threads, one gets the only instance.
pub async fn test_multi_threaded_lock_contention<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("contended").await;
    let fetched = fetch_from_many_tasks(&store, 10, 5).await;
    assert_eq!(fetched.len(), 1, "exactly one of ten fetchers should get the instance");
    store.expect_no_turn("the winner holds the instance").await;
}

/// Twice as many fetchers as instances: the store hands no instance out twice.
pub async fn test_multi_threaded_no_duplicate_processing<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    for n in 0..20 {
        store.start(&format!("once-{n}")).await;
    }
    let mut tasks = Vec::new();
    for _ in 0..40 {
        let provider = store.provider.clone();
        tasks.push(tokio::spawn(async move { fetch_with_retries(&*provider).await }));
    }
    let mut seen = HashSet::new();
    for task in tasks {
        if let Some(instance) = task.await.unwrap() {
            assert!(seen.insert(instance.clone()), "instance {instance} was handed out twice");
        }
    }
    assert!(seen.len() <= 20, "there are only 20 instances");
}

/// Another thread finds an instance after its lease has run out, and not before.
pub async fn test_multi_threaded_lock_expiration_recovery<F: ProviderFactory>(factory: &F) {
    let store = Store::new(factory).await;
    store.start("forgotten").await;
    let lease = store.lease();
    let fetch = || {
        let provider = store.provider.clone();
        tokio::spawn(async move { fetch_turn(&*provider, lease, None).await })
    };

    assert!(fetch().await.unwrap().is_some(), "the first thread should get the instance");
    store.pass(ms(200)).await;
    assert!(fetch().await.unwrap().is_none(), "the instance is leased");
    store.pass(lease - ms(100)).await;
    let recovered = fetch().await.unwrap().expect("the lease has run out, so another thread should get it");
    assert_eq!(recovered.item.instance, "forgotten");
}

/// Fetches once from each of `tasks` tasks and returns their results.
///
/// On real time they start a little apart, because the published contract lets a fetch that lost a race come back with
/// nothing. On a clock that a test moves by hand they all start at once.
async fn fetch_from_many_tasks(store: &Store<'_>, tasks: u64, step_ms: u64) -> Vec<Turn> {
    let step = if store.factory.clock().is_some() { 0 } else { step_ms };
    let mut running = Vec::new();
    for n in 0..tasks {
        let provider = store.provider.clone();
        running.push(tokio::spawn(async move {
            if step > 0 {
                tokio::time::sleep(ms(n * step)).await;
            }
            fetch_turn(&*provider, TURN_LEASE, None).await
        }));
    }
    let mut fetched = Vec::new();
    for task in running {
        fetched.extend(task.await.unwrap());
    }
    fetched
}

async fn fetch_with_retries(provider: &dyn Provider) -> Option<String> {
    for _ in 0..3 {
        match provider.fetch_orchestration_item(TURN_LEASE, ms(0), None).await {
            Ok(fetched) => return fetched.map(|(item, _, _)| item.instance),
            Err(error) => assert!(error.is_retryable(), "contention should be retryable; got {error}"),
        }
    }
    None
}
