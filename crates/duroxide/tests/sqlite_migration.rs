//! A file of the published crate: the store takes it over whole, its work goes on, and a failed migration changes
//! nothing.
//!
//! `fixtures/README.md` describes the file. Times are those of its making.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duroxide::EventKind;
use duroxide::providers::sqlite::{SqliteError, SqliteProvider};
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ExtendedProvider, Provider, ProviderAdmin, SemverRange,
    SessionFetchConfig, TagFilter, WorkItem, WorkQueue,
};
use support::{LEASE, StoreFile, completion, fetch};

const MADE_MS: u64 = 1_794_783_091_000;
const OPENED_MS: u64 = 1_794_783_092_000;

fn fixture() -> StoreFile {
    let file = StoreFile::new();
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/published-0.1.32.db");
    std::fs::copy(published, file.path()).unwrap();
    file.clock.set_wall_ms(OPENED_MS);
    file
}

async fn migrated() -> (StoreFile, Arc<SqliteProvider>) {
    let file = fixture();
    let store = file.open().await;
    (file, store)
}

/// Moves the clock to a moment.
fn at(file: &StoreFile, ms: u64) {
    use duroxide::providers::Clock;
    file.clock.advance(Duration::from_millis(ms - file.clock.now_ms()));
}

#[tokio::test]
async fn every_instance_is_there_with_its_metadata() {
    let (_file, store) = migrated().await;
    let expected = [
        ("done-1", "Greeter", "1.0.0", "Completed", Some("Hello, World!")),
        ("failed-1", "Charger", "1.0.0", "Failed", Some("card declined")),
        ("session-1", "InSession", "1.0.0", "Completed", Some("Hello, Anna!")),
        ("signal-1", "WaitForGo", "1.1.0", "Running", None),
        ("locked-turn-1", "WaitForGo", "1.1.0", "Running", None),
        ("cancel-1", "WaitForGo", "1.1.0", "Running", None),
        ("timer-1", "Sleeper", "1.0.0", "Running", None),
        ("timer-due-1", "Sleeper", "1.0.0", "Running", None),
        ("tagged-1", "Renderer", "1.0.0", "Running", None),
        ("chain-1", "Chain", "1.0.0", "Running", None),
        ("parent-1", "Parent", "1.0.0", "Running", None),
        ("inbox-1", "Inbox", "1.0.0", "Running", None),
        ("carry-1", "Carry", "1.0.0", "Running", None),
        ("pinned-1", "WaitForGo", "1.0.0", "Running", None),
        ("parent-1::sub::2", "Child", "1.0.0", "Running", None),
        ("completion-1", "Greeter", "1.0.0", "Running", None),
        ("locked-activity-1", "Greeter", "1.0.0", "Running", None),
        ("pending-1", "Greeter", "1.0.0", "Running", None),
        ("pending-session-1", "InSession", "1.0.0", "Running", None),
    ];
    for (instance, name, version, status, output) in expected {
        let found = store.read_metadata(instance).await.unwrap().expect(instance);
        assert_eq!(found.orchestration_name, name, "{instance}");
        assert_eq!(found.orchestration_version, version, "{instance}");
        assert_eq!((found.status.as_str(), found.output.as_deref()), (status, output), "{instance}");
        assert_eq!((found.created_at, found.updated_at), (MADE_MS, MADE_MS), "{instance}");
        let parent = (instance == "parent-1::sub::2").then(|| "parent-1".to_string());
        assert_eq!(found.parent_instance_id, parent);
    }
    // Newest first, in the order in which they were made.
    let mut listed = store.list_instances().await.unwrap();
    listed.reverse();
    assert_eq!(listed, expected.map(|(instance, ..)| instance));
    assert_eq!(store.list_children("parent-1").await.unwrap(), ["parent-1::sub::2"]);
    let metrics = store.get_system_metrics().await.unwrap();
    assert_eq!((metrics.total_instances, metrics.total_executions), (19, 22));
    assert_eq!(
        (metrics.running_instances, metrics.completed_instances, metrics.failed_instances),
        (16, 2, 1)
    );
    let depths = store.get_queue_depths().await.unwrap();
    assert_eq!(
        (depths.orchestrator_queue, depths.worker_queue),
        (9, 4),
        "leases of the dead are not taken over"
    );
}

#[tokio::test]
async fn executions_keep_their_outcomes_and_times() {
    let (_file, store) = migrated().await;
    assert_eq!(store.list_executions("chain-1").await.unwrap(), [1, 2, 3]);
    for (execution, status, output, completed_at) in [
        (1, "ContinuedAsNew", Some("2"), Some(1_794_783_091_074)),
        (2, "ContinuedAsNew", Some("3"), Some(1_794_783_091_097)),
        (3, "Running", None, None),
    ] {
        let info = store.get_execution_info("chain-1", execution).await.unwrap();
        assert_eq!((info.status.as_str(), info.output.as_deref()), (status, output));
        assert_eq!((info.started_at, info.completed_at), (MADE_MS, completed_at));
    }
    let done = store.get_execution_info("done-1", 1).await.unwrap();
    assert_eq!((done.completed_at, done.event_count), (Some(1_794_783_091_252), 4));
}

#[tokio::test]
async fn every_history_decodes_and_has_its_events() {
    let (file, store) = migrated().await;
    let mut events = 0;
    for instance in store.list_instances().await.unwrap() {
        for execution in store.list_executions(&instance).await.unwrap() {
            let history = store.read_with_execution(&instance, execution).await.unwrap();
            assert!(matches!(history[0].kind, EventKind::OrchestrationStarted { .. }), "{instance}");
            assert!(history.iter().all(|event| event.instance_id == instance));
            events += history.len();
        }
    }
    assert_eq!(store.get_system_metrics().await.unwrap().total_events, events as u64);
    assert_eq!(file.number(&format!("SELECT count(*) FROM history WHERE created_at <> {MADE_MS}")), 0);
    let carried = store.get_instance_stats("carry-1").await.unwrap().unwrap();
    assert_eq!(carried.queue_pending_count, 2);
}

#[tokio::test]
async fn values_and_custom_status_are_as_they_were() {
    let (_file, store) = migrated().await;
    assert_eq!(store.get_custom_status("chain-1", 0).await.unwrap(), Some((Some("round 3".into()), 3)));
    assert_eq!(store.get_custom_status("chain-1", 3).await.unwrap(), None);
    let values: HashMap<String, String> = [("last", "3"), ("round-2", "value 2"), ("round-3", "value 3")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    assert_eq!(store.get_kv_all_values("chain-1").await.unwrap(), values);
    assert_eq!(store.get_kv_value("chain-1", "round-1").await.unwrap(), None);

    // A turn sees the values as they were when its execution began.
    let go = WorkItem::ExternalRaised { instance: "chain-1".into(), name: "Finish".into(), data: "x".into() };
    store.enqueue_for_orchestrator(go, None).await.unwrap();
    let item = loop {
        let (item, _, _) = fetch(&store).await.unwrap();
        if item.instance == "chain-1" {
            break item;
        }
    };
    assert_eq!(item.execution_id, 3);
    let snapshot: HashMap<_, _> = item
        .kv_snapshot
        .into_iter()
        .map(|(key, entry)| (key, (entry.value, entry.last_updated_at_ms)))
        .collect();
    let expected = [
        ("last", ("2", 1_794_783_091_096)),
        ("round-1", ("value 1", 1_794_783_091_072)),
        ("round-2", ("value 2", 1_794_783_091_096)),
    ];
    assert_eq!(snapshot, expected.map(|(k, (v, at))| (k.to_string(), (v.to_string(), at))).into());
}

#[tokio::test]
async fn queued_messages_are_delivered_in_order_and_nobody_stands_in_the_way() {
    let (file, store) = migrated().await;
    let mut order = Vec::new();
    while let Some((item, token, attempts)) = fetch(&store).await {
        assert_eq!(item.messages.len(), 1, "{}", item.instance);
        assert!(item.history_error.is_none());
        let next_event = item.history.last().map_or(1, |event| event.event_id + 1);
        let event = support::started_event(&item.instance, next_event);
        store
            .ack_orchestration_item(
                &token,
                item.execution_id,
                vec![event],
                vec![],
                vec![],
                support::metadata(),
                vec![],
            )
            .await
            .unwrap();
        order.push((item.instance, attempts));
    }
    let expected = [
        ("locked-turn-1", 2),
        ("completion-1", 1),
        ("inbox-1", 1),
        ("cancel-1", 1),
        ("queued-1", 1),
        ("queued-versioned-1", 1),
    ];
    assert_eq!(order, expected.map(|(instance, attempts)| (instance.to_string(), attempts)));
    let parked = store.list_parked(10).await.unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].instance, "nobody-1");
    assert!(store.list_quarantined(10).await.unwrap().is_empty());
    assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue"), 3, "two timers and what is parked");
}

#[tokio::test]
async fn timers_fire_at_their_time() {
    let (file, store) = migrated().await;
    let mut others = 0;
    while fetch(&store).await.is_some() {
        others += 1;
    }
    assert_eq!(others, 6);
    store.execute_sql("DELETE FROM orchestrator_queue WHERE visible_at < 1794783200000").await.unwrap();
    let signal = store.work_signal(WorkQueue::Orchestrator);
    for (instance, due_ms) in [("timer-due-1", 1_794_783_211_063), ("timer-1", 1_794_786_691_058)] {
        at(&file, due_ms - 1);
        assert!(fetch(&store).await.is_none(), "{instance} is early");
        assert_eq!(signal.next_due_ms(), Some(due_ms));
        at(&file, due_ms);
        let (item, token, attempts) = fetch(&store).await.unwrap();
        assert_eq!((item.instance.as_str(), attempts), (instance, 1));
        assert!(
            matches!(item.messages[..], [WorkItem::TimerFired { fire_at_ms, .. }] if fire_at_ms == due_ms)
        );
        store
            .ack_orchestration_item(&token, 1, vec![], vec![], vec![], ExecutionMetadata::default(), vec![])
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn activities_keep_their_tags_sessions_and_attempts() {
    let (file, store) = migrated().await;
    let take = async |filter: TagFilter, owner: Option<&str>| {
        let session = owner.map(|owner| SessionFetchConfig { owner_id: owner.into(), lock_timeout: LEASE });
        let taken = store.fetch_work_item(LEASE, Duration::ZERO, session.as_ref(), &filter).await.unwrap();
        taken.map(|(item, token, attempts)| match item {
            WorkItem::ActivityExecute { instance, id, .. } => (instance, id, token, attempts),
            other => panic!("{other:?}"),
        })
    };
    let default = TagFilter::DefaultOnly;
    let (instance, _, _, attempts) = take(default.clone(), None).await.unwrap();
    assert_eq!((instance.as_str(), attempts), ("locked-activity-1", 2));
    let (instance, id, token, attempts) = take(default.clone(), None).await.unwrap();
    assert_eq!((instance.as_str(), attempts), ("pending-1", 1));
    store.ack_work_item(&token, Some(completion(&instance, id))).await.unwrap();
    assert!(take(default.clone(), None).await.is_none(), "the rest has a tag or a session");
    assert_eq!(take(TagFilter::tags(["gpu"]), None).await.unwrap().0, "tagged-1");

    assert!(take(default.clone(), Some("somebody-else")).await.is_none(), "the session is fixture-node's");
    let (instance, _, token, _) = take(default.clone(), Some("fixture-node")).await.unwrap();
    assert_eq!(instance, "pending-session-1");
    store.abandon_work_item(&token, None, true).await.unwrap();
    at(&file, 1_794_783_121_244 + 60_000);
    let (instance, ..) = take(default, Some("somebody-else")).await.unwrap();
    assert_ne!(instance, "completion-1");
}

#[tokio::test]
async fn executions_stay_pinned_to_the_version_that_began_them() {
    let (_file, store) = migrated().await;
    let supports = |from: &str, to: &str| DispatcherCapabilityFilter {
        supported_duroxide_versions: vec![SemverRange::new(from.parse().unwrap(), to.parse().unwrap())],
    };
    let newer = supports("0.1.33", "0.2.0");
    let (item, ..) =
        store.fetch_orchestration_item(LEASE, Duration::ZERO, Some(&newer)).await.unwrap().unwrap();
    assert_eq!(item.instance, "queued-1", "the first that is not pinned yet");
    let ours = supports("0.0.0", "0.1.100");
    let (item, ..) =
        store.fetch_orchestration_item(LEASE, Duration::ZERO, Some(&ours)).await.unwrap().unwrap();
    assert_eq!(item.instance, "locked-turn-1");
}

/// The definitions of all tables, indexes, triggers and views.
fn schema(file: &StoreFile) -> Vec<String> {
    file.texts(
        "SELECT type || ' ' || name || ' on ' || tbl_name || ': ' || ifnull(sql, '') FROM sqlite_schema ORDER BY 1",
    )
}

#[tokio::test]
async fn a_migrated_file_has_the_same_schema_as_a_new_one() {
    let (migrated, _store) = migrated().await;
    let new = StoreFile::new();
    let _store = new.open().await;
    assert_eq!(schema(&migrated), schema(&new));
    for pragma in ["application_id", "user_version", "journal_mode", "auto_vacuum", "encoding"] {
        let read =
            |file: &StoreFile| file.text(&format!("SELECT CAST({pragma} AS TEXT) FROM pragma_{pragma}"));
        assert_eq!(read(&migrated), read(&new), "{pragma}");
    }
    migrated.assert_sound();
    assert!(migrated.texts("SELECT name FROM sqlite_sequence WHERE name LIKE 'published%'").is_empty());
}

/// The rows of every table, as text.
fn rows(file: &StoreFile) -> Vec<String> {
    let mut all = Vec::new();
    for table in file.texts("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
        let columns =
            file.texts(&format!("SELECT 'quote(' || name || ')' FROM pragma_table_info('{table}')"));
        all.extend(file.texts(&format!(
            "SELECT '{table}: ' || {} FROM {table} ORDER BY 1",
            columns.join(" || ',' || ")
        )));
    }
    all
}

#[tokio::test]
async fn a_second_opening_changes_nothing() {
    let (file, store) = migrated().await;
    drop(store);
    let before = (schema(&file), rows(&file));
    drop(file.open().await);
    assert!((schema(&file), rows(&file)) == before);
}

#[tokio::test]
async fn a_migration_that_fails_leaves_the_file_as_the_published_crate_wrote_it() {
    for obstacle in [
        "CREATE TABLE quarantine (mine)",
        "DROP TABLE sessions",
        "INSERT INTO kv_store VALUES ('chain-1', 'odd', x'00FF', 'not a time')",
    ] {
        let file = fixture();
        file.connection().execute_batch(obstacle).unwrap();
        let before = std::fs::read(file.path()).unwrap();
        let error = file.builder().open(&file.url()).await.err().expect(obstacle);
        assert!(matches!(error, SqliteError::Sqlite { .. }), "{error}");
        assert!(error.to_string().contains("migrate a file of the published crate"), "{error}");
        assert!(std::fs::read(file.path()).unwrap() == before, "{obstacle}: the file was changed");
        assert_eq!(file.number("SELECT count(*) FROM instance_locks"), 1);
        assert_eq!(file.number("SELECT count(*) FROM _sqlx_migrations"), 12);
        file.assert_sound();
    }
}

#[tokio::test]
async fn a_newly_created_instance_comes_after_the_migrated_ones() {
    let (_file, store) = migrated().await;
    while fetch(&store).await.is_some() {}
    support::create(&store, "new-1").await;
    assert_eq!(store.list_instances().await.unwrap()[0], "new-1");
    let old = store.read_metadata("pending-session-1").await.unwrap().unwrap().incarnation;
    assert!(store.read_metadata("new-1").await.unwrap().unwrap().incarnation > old);
}

#[tokio::test]
async fn older_builds_are_kept_out_of_a_migrated_and_of_a_new_file() {
    let (migrated, _store) = migrated().await;
    let new = StoreFile::new();
    let store = new.open().await;
    support::create(&store, "a").await;
    store.enqueue_for_orchestrator(support::signal("a", "1"), None).await.unwrap();
    store.enqueue_for_worker(support::activity("a", 1)).await.unwrap();
    for file in [&migrated, &new] {
        let before = (schema(file), rows(file));
        // The actions of an older build: opening, fetching and enqueueing.
        for statement in [
            "SELECT version FROM _sqlx_migrations",
            "CREATE INDEX IF NOT EXISTS idx_instances_parent ON instances (parent_instance_id)",
            "INSERT INTO instance_locks (instance_id, lock_token, locked_until, locked_at) VALUES ('a', 't', 1, 1)",
            "DELETE FROM instance_locks WHERE instance_id = 'a'",
            "UPDATE worker_queue SET lock_token = 't', locked_until = 9000000000000, attempt_count = attempt_count + 1",
            "INSERT INTO orchestrator_queue (instance_id, work_item, visible_at) VALUES ('a', '{}', 1)",
            "INSERT INTO worker_queue (work_item, visible_at, instance_id, execution_id, activity_id)
                VALUES ('{}', 1, 'a', 1, 1)",
            "INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data) VALUES ('a', 1, 9, 'x', '{}')",
        ] {
            assert!(file.connection().execute_batch(statement).is_err(), "{statement}");
        }
        assert!((schema(file), rows(file)) == before);
    }
}
