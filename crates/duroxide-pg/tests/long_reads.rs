//! Reads that take long: other reads do not wait for them.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::Event;
use duroxide::providers::{ExtendedProvider, Provider, ProviderAdmin};
use support::world::{World, signal, take_turn};

const LEASE: Duration = Duration::from_secs(30);

// semantics: PG-10
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_takes_long_delays_no_other_read() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    take_turn(&store, "i").await;
    let mut other = world.connect().await;
    let held = other.transaction().await.unwrap();
    held.batch_execute("LOCK TABLE quarantine IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let slow = tokio::spawn({
        let store = store.clone();
        async move { store.list_quarantined(10).await }
    });
    world.until("EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock')").await;
    assert_eq!(store.read("i").await.unwrap().len(), 1);
    assert_eq!(store.list_instances().await.unwrap(), ["i"]);
    assert_eq!(store.get_queue_depths().await.unwrap().worker_queue, 0);
    assert!(!slow.is_finished());
    held.commit().await.unwrap();
    assert!(slow.await.unwrap().unwrap().is_empty());
}

// semantics: PG-10
#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_read_whole_in_its_order() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    take_turn(&store, "i").await;
    // More events than fit in a part, then events of which two have more bytes than a part.
    world
        .run(
            "INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
             SELECT 'i', 1, n, h.event_type, jsonb_set(h.event_data::jsonb, '{event_id}', to_jsonb(n))::text, h.created_at
             FROM history h, generate_series(2, 2500) n WHERE h.instance_id = 'i';
             INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
             SELECT 'i', 1, n, h.event_type,
                jsonb_set(jsonb_set(h.event_data::jsonb, '{event_id}', to_jsonb(n)), '{input}',
                    to_jsonb(repeat('x', 700000)))::text, h.created_at
             FROM history h, generate_series(2501, 2510) n WHERE h.instance_id = 'i' AND h.event_id = 1;",
        )
        .await;
    let expected: Vec<u64> = (1..=2510).collect();
    let ids = |events: Vec<Event>| events.iter().map(|event| event.event_id).collect::<Vec<_>>();
    assert_eq!(ids(store.read("i").await.unwrap()), expected);
    assert_eq!(ids(store.read_with_execution("i", 1).await.unwrap()), expected);
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    let (item, ..) = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!(ids(item.history), expected);
}
