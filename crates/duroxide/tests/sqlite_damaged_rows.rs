//! Rows that do not decode: the store sets each aside or reports it, and it never holds up the others.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::time::Duration;

use duroxide::providers::{
    ExtendedProvider, Provider, ProviderAdmin, SessionFetchConfig, TagFilter, WorkItem,
};
use support::{LEASE, StoreFile, activity, create, fetch, fetch_work, signal, start};

/// Payloads that a damaged file may hold. The second is JSON except for one byte that is not UTF-8.
const DAMAGES: [&str; 5] = [
    "'{\"Cut'",
    "CAST(replace(CAST(work_item AS BLOB), x'31', x'FF') AS TEXT)",
    "CAST(x'FFFE00' AS TEXT)",
    "''",
    "'{\"SomethingNew\":{}}'",
];

#[tokio::test]
async fn a_damaged_message_is_set_aside_and_the_next_instance_is_fetched() {
    for damage in DAMAGES {
        let file = StoreFile::new();
        let store = file.open().await;
        for instance in ["a1", "b1"] {
            store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
        }
        let spoil = format!("UPDATE orchestrator_queue SET work_item = {damage} WHERE instance_id = 'a1'");
        store.execute_sql(&spoil).await.unwrap();
        assert_eq!(fetch(&store).await.unwrap().0.instance, "b1", "{damage}");
        let aside = store.list_quarantined(10).await.unwrap();
        assert_eq!(aside.len(), 1, "{damage}");
        assert_eq!(aside[0].instance.as_deref(), Some("a1"));
        assert_eq!(file.number("SELECT count(*) FROM quarantine"), 1);
        assert!(store.debug_dump().await.contains("orchestrator_queue: 1 rows"));
    }
}

#[tokio::test]
async fn a_damaged_activity_is_set_aside_and_the_next_is_fetched() {
    for damage in DAMAGES {
        let file = StoreFile::new();
        let store = file.open().await;
        for id in [11, 22] {
            store.enqueue_for_worker(activity("a", id)).await.unwrap();
        }
        let spoil = format!("UPDATE worker_queue SET work_item = {damage} WHERE activity_id = 11");
        store.execute_sql(&spoil).await.unwrap();
        let (item, _, _) = fetch_work(&store).await.unwrap();
        assert!(matches!(item, WorkItem::ActivityExecute { id: 22, .. }), "{damage}: {item:?}");
        assert_eq!(store.list_quarantined(10).await.unwrap().len(), 1, "{damage}");
    }
}

#[tokio::test]
async fn a_damaged_history_is_reported_with_the_fetch_and_blocks_nobody() {
    for damage in ["'{\"Cut'", "CAST(replace(CAST(event_data AS BLOB), 'Order', x'4FFF646572') AS TEXT)"] {
        let file = StoreFile::new();
        let store = file.open().await;
        create(&store, "a").await;
        create(&store, "b").await;
        for instance in ["a", "b"] {
            store.enqueue_for_orchestrator(signal(instance, "1"), None).await.unwrap();
        }
        store
            .execute_sql(&format!("UPDATE history SET event_data = {damage} WHERE instance_id = 'a'"))
            .await
            .unwrap();
        let (item, _, _) = fetch(&store).await.unwrap();
        assert_eq!(item.instance, "a");
        assert!(item.history.is_empty());
        let error = item.history_error.expect("it is reported");
        assert!(error.starts_with("Failed to deserialize history"), "{error}");
        assert_eq!(fetch(&store).await.unwrap().0.instance, "b");
        assert!(!store.read("a").await.unwrap_err().is_retryable());
        assert!(!store.get_instance_stats("a").await.unwrap_err().is_retryable());
        assert!(!store.read_recent("a", 5).await.unwrap_err().is_retryable());
    }
}

#[tokio::test]
async fn a_count_beyond_all_measure_is_clamped() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    store.enqueue_for_worker(activity("a", 1)).await.unwrap();
    for queue in ["orchestrator_queue", "worker_queue"] {
        store.execute_sql(&format!("UPDATE {queue} SET attempt_count = 1 << 40")).await.unwrap();
    }
    assert_eq!(fetch(&store).await.unwrap().2, u32::MAX);
    assert_eq!(fetch_work(&store).await.unwrap().2, u32::MAX);
}

#[tokio::test]
async fn messages_whose_schedule_is_gone_are_found_again_when_the_next_one_arrives() {
    let file = StoreFile::new();
    let store = file.open().await;
    create(&store, "a").await;
    store.enqueue_for_orchestrator(signal("a", "1"), None).await.unwrap();
    store.execute_sql("DELETE FROM instance_schedule").await.unwrap();
    assert!(fetch(&store).await.is_none());
    store.enqueue_for_orchestrator(signal("a", "2"), None).await.unwrap();
    assert_eq!(fetch(&store).await.unwrap().0.messages.len(), 2);
}

#[tokio::test]
async fn messages_that_somebody_deleted_by_hand_leave_nothing_that_blocks() {
    let file = StoreFile::new();
    let store = file.open().await;
    for instance in ["a", "b"] {
        store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    }
    store.execute_sql("DELETE FROM orchestrator_queue WHERE instance_id = 'a'").await.unwrap();
    assert_eq!(fetch(&store).await.unwrap().0.instance, "b");
    assert_eq!(store.get_queue_depths().await.unwrap().orchestrator_queue, 0);
}

/// A text that is not UTF-8.
const DAMAGED_ID: &str = "CAST(x'61FF31' AS TEXT)";

#[tokio::test]
async fn a_damaged_instance_id_stops_no_other_claim() {
    let queue = format!("UPDATE orchestrator_queue SET instance_id = {DAMAGED_ID} WHERE instance_id = 'a1'");
    let schedule =
        format!("UPDATE instance_schedule SET instance_id = {DAMAGED_ID} WHERE instance_id = 'a1'");
    for (damage, is_lost) in
        [(queue.clone(), true), (schedule.clone(), false), (format!("{queue}; {schedule}"), true)]
    {
        let file = StoreFile::new();
        let store = file.open().await;
        for instance in ["a1", "b1"] {
            store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
        }
        store.execute_sql(&damage).await.unwrap();
        let mut fetched = Vec::new();
        while let Some((item, _, _)) = fetch(&store).await {
            fetched.push(item.instance);
        }
        let aside = store.list_quarantined(10).await.unwrap();
        match is_lost {
            true => {
                assert_eq!(fetched, ["b1"], "{damage}");
                assert_eq!(aside.len(), 1, "{damage}");
                assert!(aside[0].raw.contains("StartOrchestration"), "{damage}");
                assert!(aside[0].reason.contains("id"), "{}", aside[0].reason);
            }
            // Only the note on where it stands was damaged: the message says it again.
            false => {
                fetched.sort();
                assert_eq!(fetched, ["a1", "b1"], "{damage}");
                assert_eq!(aside.len(), 0, "{damage}");
            }
        }
    }
}

#[tokio::test]
async fn a_damaged_id_of_an_instance_whose_time_has_come_stops_no_other_claim() {
    let file = StoreFile::new();
    let store = file.open().await;
    store.enqueue_for_orchestrator(start("a1"), Some(LEASE)).await.unwrap();
    store.enqueue_for_orchestrator(start("b1"), Some(LEASE)).await.unwrap();
    for table in ["orchestrator_queue", "instance_schedule"] {
        let damage = format!("UPDATE {table} SET instance_id = {DAMAGED_ID} WHERE instance_id = 'a1'");
        store.execute_sql(&damage).await.unwrap();
    }
    file.clock.advance(2 * LEASE);
    assert_eq!(fetch(&store).await.unwrap().0.instance, "b1");
    assert!(fetch(&store).await.is_none());
    assert_eq!(store.list_quarantined(10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_damaged_class_name_or_version_stops_no_claim() {
    for damage in [
        format!("UPDATE instance_schedule SET class = {DAMAGED_ID} WHERE instance_id = 'a1'"),
        format!("UPDATE orchestrator_queue SET class = {DAMAGED_ID} WHERE instance_id = 'a1'"),
        format!("UPDATE instances SET orchestration_name = {DAMAGED_ID} WHERE instance_id = 'a1'"),
        format!("UPDATE instances SET orchestration_version = {DAMAGED_ID} WHERE instance_id = 'a1'"),
        format!("UPDATE executions SET status = {DAMAGED_ID} WHERE instance_id = 'a1'"),
    ] {
        let file = StoreFile::new();
        let store = file.open().await;
        create(&store, "a1").await;
        create(&store, "b1").await;
        for instance in ["a1", "b1"] {
            store.enqueue_for_orchestrator(signal(instance, "1"), None).await.unwrap();
        }
        store.execute_sql(&damage).await.unwrap();
        let mut fetched = Vec::new();
        while let Some((item, _, _)) = fetch(&store).await {
            fetched.push(item.instance);
        }
        fetched.sort();
        assert_eq!(fetched, ["a1", "b1"], "{damage}");
    }
}

fn in_session(instance: &str, id: u64) -> WorkItem {
    let mut item = activity(instance, id);
    if let WorkItem::ActivityExecute { session_id, tag, .. } = &mut item {
        (*session_id, *tag) = (Some(format!("session {id}")), Some(format!("tag {id}")));
    }
    item
}

#[tokio::test]
async fn a_damaged_session_or_tag_of_an_activity_is_set_aside_and_the_next_is_fetched() {
    for (column, is_due) in [("session_id", false), ("tag", false), ("session_id", true), ("tag", true)] {
        let file = StoreFile::new();
        let store = file.open().await;
        let session = SessionFetchConfig { owner_id: "me".into(), lock_timeout: LEASE };
        for id in [11, 22] {
            store.enqueue_for_worker(in_session("a", id)).await.unwrap();
        }
        let fetch = || store.fetch_work_item(LEASE, Duration::ZERO, Some(&session), &TagFilter::Any);
        if is_due {
            fetch().await.unwrap().unwrap();
        }
        let damage = format!("UPDATE worker_queue SET {column} = {DAMAGED_ID} WHERE activity_id = 11");
        store.execute_sql(&damage).await.unwrap();
        file.clock.advance(2 * LEASE);
        let (item, _, _) = fetch().await.unwrap().unwrap();
        assert!(matches!(item, WorkItem::ActivityExecute { id: 22, .. }), "{damage}: {item:?}");
        assert!(fetch().await.unwrap().is_none(), "{damage}");
        assert_eq!(store.list_quarantined(10).await.unwrap().len(), 1, "{damage}");
    }
}

#[tokio::test]
async fn a_damaged_session_is_dropped_and_its_activities_are_anybodys() {
    let file = StoreFile::new();
    let store = file.open().await;
    let session = |owner: &str| SessionFetchConfig { owner_id: owner.into(), lock_timeout: LEASE };
    store.enqueue_for_worker(in_session("a", 11)).await.unwrap();
    let fetch = |owner| {
        let (store, config) = (store.clone(), session(owner));
        async move { store.fetch_work_item(LEASE, Duration::ZERO, Some(&config), &TagFilter::Any).await.unwrap() }
    };
    fetch("one").await.unwrap();
    store.execute_sql(&format!("UPDATE sessions SET session_id = {DAMAGED_ID}")).await.unwrap();
    file.clock.advance(2 * LEASE);
    assert!(fetch("two").await.is_some());
    assert_eq!(file.number("SELECT count(*) FROM sessions"), 1, "that of the new owner");
}
