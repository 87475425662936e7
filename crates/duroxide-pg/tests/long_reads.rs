//! Reads that take long: other reads do not wait for them.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::providers::{ExtendedProvider, Provider, ProviderAdmin, QuarantineRetry};
use duroxide::{Client, Event, OrchestrationStatus};
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
async fn long_histories_delay_no_short_read() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    take_turn(&store, "i").await;
    take_turn(&store, "short").await;
    // Three parts. A view stands in for the table, and holds up whoever reads the second part.
    world.close_gate(&[]).await;
    world
        .run(
            "INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
             SELECT 'i', 1, n, h.event_type, jsonb_set(h.event_data::jsonb, '{event_id}', to_jsonb(n))::text, h.created_at
             FROM history h, generate_series(2, 2500) n WHERE h.instance_id = 'i';
             CREATE FUNCTION pass_when_open() RETURNS boolean LANGUAGE plpgsql COST 1000000 AS $$ BEGIN
                WHILE (SELECT closed FROM gate) LOOP PERFORM pg_sleep(0.005); END LOOP;
                RETURN true;
             END $$;
             ALTER TABLE history RENAME TO all_events;
             CREATE VIEW history AS
                SELECT * FROM all_events WHERE CASE WHEN event_id > 1500 THEN pass_when_open() ELSE true END;",
        )
        .await;
    let reading = tokio::spawn({
        let store = store.clone();
        async move { store.read("i").await }
    });
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    let loading = tokio::spawn({
        let store = store.clone();
        async move { store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await }
    });
    world
        .until(
            "(SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND state = 'active') = 2",
        )
        .await;
    let client = Client::new(store.clone());
    let asking = client.get_orchestration_status("short");
    let status = tokio::time::timeout(Duration::from_secs(10), asking).await.expect("it does not wait");
    assert!(matches!(status.unwrap(), OrchestrationStatus::Running { .. }));
    assert_eq!(store.read("short").await.unwrap().len(), 1);
    assert!(!reading.is_finished() && !loading.is_finished());
    world.open_gate().await;
    assert_eq!(reading.await.unwrap().unwrap().len(), 2500);
    let (item, ..) = loading.await.unwrap().unwrap().unwrap();
    assert_eq!(item.history.len(), 2500);
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

// semantics: PG-10
#[tokio::test(flavor = "multi_thread")]
async fn reads_of_long_texts_come_in_bounded_parts() {
    /// A part is a megabyte of texts and one text more; the quarantine's entries have a few columns beside.
    const LARGEST: usize = 2_000_000;
    let world = World::new(&[]).await;
    let store = world.store().await;
    take_turn(&store, "i").await;
    world
        .run(
            "INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
             SELECT 'i', 1, n, h.event_type,
                jsonb_set(jsonb_set(h.event_data::jsonb, '{event_id}', to_jsonb(n)), '{input}',
                    to_jsonb(repeat('x', 700000)))::text, h.created_at
             FROM history h, generate_series(2, 9) n WHERE h.instance_id = 'i' AND h.event_id = 1;
             INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT 'worker_queue', 'i' || n, 'damaged', n, repeat('x', 700000) FROM generate_series(1, 8) n;
             INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item, parked_at)
             SELECT 'parked' || n, 'signal', 0, repeat('x', 700000), n FROM generate_series(1, 8) n;",
        )
        .await;
    world.proxy.take_largest_answer();
    let check = |what: &str| {
        let largest = world.proxy.take_largest_answer();
        assert!(largest > 500_000 && largest < LARGEST, "{what}: an answer of {largest} bytes");
    };
    let ids = |events: Vec<Event>| events.iter().map(|event| event.event_id).collect::<Vec<_>>();
    assert_eq!(ids(store.read_recent("i", 7).await.unwrap()), [3, 4, 5, 6, 7, 8, 9]);
    check("the last events");
    assert_eq!(ids(store.read_recent("i", 2).await.unwrap()), [8, 9]);
    assert_eq!(ids(store.read_recent("i", 100).await.unwrap()), (1..=9).collect::<Vec<_>>());
    assert!(store.read_recent("i", 0).await.unwrap().is_empty());
    check("all events");
    let parked: Vec<String> =
        store.list_parked(7).await.unwrap().into_iter().map(|message| message.instance).collect();
    assert_eq!(parked, (1..=7).map(|n| format!("parked{n}")).collect::<Vec<_>>());
    check("parked messages");
    let quarantined = store.list_quarantine(1, 6).await.unwrap();
    assert_eq!(quarantined.iter().map(|entry| entry.id).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    check("the quarantine");
    // They do not decode, so they stay.
    let kept = store.retry_quarantined(&[1, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
    assert!(kept.iter().all(|retry| matches!(retry, QuarantineRetry::Kept { .. })), "{kept:?}");
    check("rows to put back");
}

// semantics: PG-10
#[tokio::test(flavor = "multi_thread")]
async fn listings_of_any_length_come_in_bounded_parts() {
    const CHILDREN: u64 = 25_000;
    /// Ten thousand ids of this kind.
    const LARGEST: usize = 600_000;
    let world = World::new(&[]).await;
    let store = world.store().await;
    take_turn(&store, "parent").await;
    world
        .run(&format!(
            "INSERT INTO instances (instance_id, orchestration_name, orchestration_version, current_execution_id,
                parent_instance_id, created_at, updated_at)
             SELECT 'child-' || n, 'Order', '1.0.0', 1, 'parent', 0, 0 FROM generate_series(1, {CHILDREN}) n;
             INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at)
             SELECT 'child-' || n, 1, 'Completed', 0, 1 FROM generate_series(1, {CHILDREN}) n;
             INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at)
             SELECT 'child-1', n, 'ContinuedAsNew', 0, 1 FROM generate_series(2, {CHILDREN}) n"
        ))
        .await;
    world.proxy.take_largest_answer();
    let check = |what: &str| {
        let largest = world.proxy.take_largest_answer();
        assert!(largest > 100_000 && largest < LARGEST, "{what}: an answer of {largest} bytes");
    };
    let mut expected: Vec<String> = (1..=CHILDREN).map(|n| format!("child-{n}")).collect();
    assert_eq!(store.list_children("parent").await.unwrap(), expected);
    check("children");
    expected.reverse();
    assert_eq!(store.list_instances_by_status("Completed").await.unwrap(), expected);
    check("instances by status");
    assert_eq!(store.list_instances_by_status("Running").await.unwrap(), ["parent"]);
    assert_eq!(store.list_executions("child-1").await.unwrap(), (1..=CHILDREN).collect::<Vec<_>>());
    check("executions");
}
