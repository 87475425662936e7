//! The file can be read with `sqlite3`: the documented tables and columns are there, times are numbers, payloads JSON.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

#[path = "support/sqlite_store.rs"]
mod support;

use duroxide::providers::{Clock, Provider};
use support::{LEASE, StoreFile, ack, activity, create, fetch, fetch_work, signal, start, started_event};

/// A store with a bit of everything.
async fn busy_store() -> StoreFile {
    let file = StoreFile::new();
    let store = file.open().await;
    create(&store, "a").await;
    store.enqueue_for_orchestrator(start("b"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    ack(&store, &token, vec![started_event("b", 1)], vec![activity("b", 2), activity("b", 3)]).await.unwrap();
    store.enqueue_for_orchestrator(signal("a", "it's \"quoted\""), None).await.unwrap();
    fetch(&store).await.unwrap();
    store.enqueue_for_orchestrator(signal("b", "later"), Some(LEASE)).await.unwrap();
    fetch_work(&store).await.unwrap();
    file
}

#[tokio::test]
async fn the_documented_tables_and_columns_are_there() {
    let file = busy_store().await;
    for (table, columns) in [
        (
            "instances",
            "instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at,
             parent_instance_id, custom_status, custom_status_version",
        ),
        (
            "executions",
            "instance_id, execution_id, status, output, started_at, completed_at, duroxide_version_major,
             duroxide_version_minor, duroxide_version_patch",
        ),
        ("history", "instance_id, execution_id, event_id, event_type, event_data, created_at"),
        (
            "orchestrator_queue",
            "id, instance_id, work_item, visible_at, lock_token, locked_until, created_at, attempt_count",
        ),
        (
            "worker_queue",
            "id, work_item, visible_at, lock_token, locked_until, attempt_count, created_at, instance_id,
             execution_id, activity_id, session_id, tag",
        ),
        ("instance_locks", "instance_id, lock_token, locked_until, locked_at"),
        ("sessions", "session_id, worker_id, locked_until, last_activity_at"),
        ("kv_store", "instance_id, key, value, last_updated_at_ms"),
        ("kv_delta", "instance_id, key, value, last_updated_at_ms"),
    ] {
        let connection = file.connection();
        let readable = connection.prepare(&format!("SELECT {columns} FROM {table}"));
        assert!(readable.is_ok(), "{table}: {:?}", readable.err());
    }
}

#[tokio::test]
async fn payloads_are_json_that_sqlite_can_look_into() {
    let file = busy_store().await;
    for (table, column) in
        [("history", "event_data"), ("orchestrator_queue", "work_item"), ("worker_queue", "work_item")]
    {
        assert!(file.number(&format!("SELECT count(*) FROM {table}")) > 0, "{table}");
        assert_eq!(file.number(&format!("SELECT min(json_valid({column})) FROM {table}")), 1, "{table}");
    }
    assert_eq!(
        file.text(
            "SELECT json_extract(work_item, '$.ExternalRaised.data') FROM orchestrator_queue WHERE instance_id = 'a'"
        ),
        "it's \"quoted\""
    );
    assert_eq!(
        file.text("SELECT json_extract(event_data, '$.type') FROM history WHERE instance_id = 'a'"),
        file.text("SELECT event_type FROM history WHERE instance_id = 'a'")
    );
}

#[tokio::test]
async fn times_are_milliseconds_and_leases_say_who_holds_what() {
    let file = busy_store().await;
    let now = i64::try_from(file.clock.now_ms()).unwrap();
    let lease_ms = i64::try_from(LEASE.as_millis()).unwrap();
    for time in [
        "SELECT created_at FROM instances WHERE instance_id = 'a'",
        "SELECT updated_at FROM instances WHERE instance_id = 'a'",
        "SELECT started_at FROM executions WHERE instance_id = 'a'",
        "SELECT created_at FROM history WHERE instance_id = 'a'",
        "SELECT locked_at FROM instance_locks WHERE instance_id = 'a'",
    ] {
        assert_eq!(file.number(time), now, "{time}");
    }
    assert_eq!(
        file.number("SELECT locked_until FROM instance_locks WHERE instance_id = 'a'"),
        now + lease_ms
    );
    assert_eq!(file.number("SELECT count(*) FROM instance_locks"), 1);
    assert_eq!(
        file.number("SELECT locked_until FROM worker_queue WHERE lock_token IS NOT NULL"),
        now + lease_ms
    );
    assert_eq!(
        file.number("SELECT visible_at FROM orchestrator_queue WHERE instance_id = 'b'"),
        now + lease_ms
    );
}
