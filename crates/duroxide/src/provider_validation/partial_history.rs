//! A caller can load a claimed instance's history from where it stopped.

use super::support::{
    Commit, Store, TURN_LEASE, Turn, activity_scheduled, assert_refused, event, kv_set, raised, start_item,
    started, status,
};
use super::{Event, ProviderFactory};
use crate::providers::{ExtendedProvider, HistoryPart, InstanceClaim, InstanceRequest, KvEntry};

async fn claim(extended: &dyn ExtendedProvider) -> InstanceClaim {
    let request = InstanceRequest { max: 1, lock_timeout: TURN_LEASE, filter: None };
    let mut claims = extended.claim_instances(&request).await.expect("claim_instances should work");
    claims.pop().expect("an instance should be claimed")
}

async fn load(extended: &dyn ExtendedProvider, token: &str, after: u64) -> HistoryPart {
    extended.load_history(token, after).await.expect("load_history should work with a live token")
}

/// Makes an instance with five events and one message.
async fn five_events(store: &Store<'_>) -> Vec<Event> {
    let mut events = vec![started("i", 1)];
    events.extend((2..=5).map(|id| activity_scheduled("i", id)));
    store.start_and_ack("i", Commit { events: events.clone(), ..Commit::creating("i") }).await;
    store.send(raised("i", "n", "")).await;
    events
}

/// A load returns the events after the one that the caller holds; 0 returns all.
pub async fn load_returns_the_events_after(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let events = five_events(&store).await;
    let claim = claim(extended).await;
    assert_eq!(claim.last_event_id, 5, "the claim should say how far the history goes");
    for (after, expected) in [(0, &events[..]), (3, &events[3..]), (5, &[]), (99, &[])] {
        let part = load(extended, &claim.lock_token, after).await;
        assert_eq!(part.events, expected, "the events after {after} should be loaded");
        assert_eq!(part.history_error, None);
    }
}

/// A load works with the token of an ordinary fetch as well, and loads the current execution only.
pub async fn load_works_after_a_fetch(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("i").await;
    let second = vec![started("i", 2), super::support::event_in("i", 2, 2, kv_set("k", "v"))];
    store.next_turn("i", Commit { execution_id: 2, events: second.clone(), ..Commit::default() }).await;
    store.send(raised("i", "n", "")).await;
    let Turn { item, token, .. } = store.turn_of("i").await;
    assert_eq!(item.history, second, "a fetch returns the current execution");
    assert_eq!(load(extended, &token, 0).await.events, second, "and so does a load");
}

/// The key-value snapshot comes with a full load, and only then.
pub async fn full_load_brings_the_kv_snapshot(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let mut commit = Commit::creating("i");
    commit.events.push(event("i", 2, kv_set("kept", "v")));
    commit.metadata.status = Some("ContinuedAsNew".to_string());
    store.start_and_ack("i", commit).await;
    let second = vec![started("i", 2), super::support::event_in("i", 2, 2, kv_set("later", "v"))];
    store.next_turn("i", Commit { execution_id: 2, events: second, ..Commit::default() }).await;
    store.send(raised("i", "n", "")).await;

    let claim = claim(extended).await;
    let snapshot = load(extended, &claim.lock_token, 0).await.kv_snapshot;
    let snapshot = snapshot.expect("a full load should bring the snapshot");
    let kept = KvEntry { value: "v".to_string(), last_updated_at_ms: 0 };
    assert_eq!(snapshot.get("kept"), Some(&kept), "what earlier executions wrote is in the snapshot");
    assert_eq!(snapshot.len(), 1, "what the running execution wrote is not; got {snapshot:?}");
    let partial = load(extended, &claim.lock_token, 1).await;
    assert_eq!(partial.kv_snapshot, None, "a partial load should not bring the snapshot");
}

/// The incarnation tells an instance from its re-creation under the same id.
pub async fn incarnation_differs_after_recreation(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.create("i").await;
    store.send(raised("i", "n", "")).await;
    let first = claim(extended).await;
    let same = store.try_ack(&first.lock_token, Commit::default()).await;
    same.expect("the ack should work");
    store.send(raised("i", "n", "")).await;
    let second = claim(extended).await;
    assert_eq!(first.incarnation, second.incarnation, "an instance keeps its incarnation");

    store.admin().delete_instance("i", true).await.expect("a forced deletion should work");
    store.create("i").await;
    store.send(raised("i", "n", "")).await;
    let recreated = claim(extended).await;
    assert_ne!(recreated.incarnation, first.incarnation, "a re-created instance is another one");
    let metadata = extended.read_metadata("i").await.expect("read_metadata should work");
    let metadata = metadata.expect("the instance exists");
    assert_eq!(metadata.incarnation, recreated.incarnation, "claim and metadata should agree");
}

/// Only a live token loads.
pub async fn load_needs_a_live_token(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    assert_refused(extended.load_history("no-such-token", 0).await, "a load with an unknown token");

    store.create("i").await;
    store.send(raised("i", "n", "")).await;
    let turn = store.turn_for(store.lease()).await;
    store.outlive_lease().await;
    assert_refused(extended.load_history(&turn.token, 0).await, "a load after the lease has run out");

    let next = store.turn_of("i").await;
    assert_refused(extended.load_history(&turn.token, 0).await, "a load after a takeover");
    store.ack(&next, Commit { metadata: status("Completed"), ..Commit::default() }).await;
    assert_refused(extended.load_history(&next.token, 0).await, "a load after the ack");
}

/// A start has no history to load.
pub async fn load_of_a_new_instance_is_empty(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    store.send(start_item("new")).await;
    let claim = claim(extended).await;
    let part = load(extended, &claim.lock_token, 0).await;
    assert!(part.events.is_empty() && part.history_error.is_none(), "nothing happened yet; got {part:?}");
    assert_eq!(part.kv_snapshot.map(|snapshot| snapshot.len()), Some(0), "the snapshot is empty");
}

/// A load reports a damaged history instead of shortening it, and the lease stays live.
pub async fn load_reports_a_damaged_history(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    five_events(&store).await;
    factory.corrupt_instance_history("i").await;
    let claim = claim(extended).await;
    let part = load(extended, &claim.lock_token, 0).await;
    assert!(part.history_error.is_some(), "a damaged history should be told");
    assert!(part.events.is_empty(), "and no part of it should be returned");
    store.try_ack(&claim.lock_token, Commit::default()).await.expect("the lease should be live");
}
