//! Every statement of the SQLite store finds its rows through an index, so that no cost grows with the rest of the
//! store.
//!
//! The test collects the statements from the store's source, so that it checks a new one without a list. It lists those
//! that scan on purpose, each with the reason.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::time::Duration;

use duroxide::providers::{
    ExecutionMetadata, Provider, ProviderAdmin, SessionFetchConfig, StoreLimits, TagFilter, WorkItem,
};
use rusqlite::Connection;
use support::{LEASE, StoreFile, activity, create, fetch, signal, start};

/// Parts of statements that may scan or sort, and why.
const ON_PURPOSE: [(&str, &str); 27] = [
    ("FROM sqlite_schema", "looks at a file once, when it is opened"),
    ("SELECT id, class, attempt_count, work_item FROM orchestrator_queue", "sorts what it hands out"),
    ("SELECT work_item, created_at FROM orchestrator_queue", "sorts the starts of one instance"),
    ("FROM totals", "one row"),
    ("FROM sqlite_sequence", "one row for each of a few tables"),
    ("FROM (SELECT ?1 AS id) LEFT JOIN instance_schedule", "one row, made of a parameter"),
    ("UPDATE totals", "one row"),
    ("FROM instances ORDER BY incarnation DESC", "lists all instances"),
    ("ORDER BY i.incarnation LIMIT ?1", "takes a page of the oldest instances"),
    ("WHERE e.status = ?1 ORDER BY i.incarnation DESC", "lists all instances of a status"),
    ("SELECT (SELECT count(*) FROM orchestrator_queue)", "counts a queue for an operator"),
    ("SELECT (SELECT count(*) FROM worker_queue)", "counts a queue for an operator"),
    ("count(*) OVER ()", "a dump for a person"),
    ("FROM quarantine ORDER BY id", "lists from the start"),
    ("WHERE s.parked = 1", "lists for an operator"),
    ("AND parked_at <= ?2 ORDER BY id", "sorts what it drops"),
    ("FROM dropped_messages", "keeps a thousand rows"),
    ("FROM workers", "a few rows"),
    ("WHERE parent_instance_id = ?1 ORDER BY incarnation", "sorts the children of one instance"),
    ("FROM obstacles WHERE instance_id = ?2", "sorts the obstacles of one instance"),
    ("FROM obstacles WHERE ?2 IS NULL", "sorts obstacles for an operator, of which there are few"),
    ("SELECT key, substr(value, 1, ?4)", "sorts the values of one instance"),
    ("FROM worker_queue WHERE instance_id = ?1 ORDER BY id LIMIT ?2", "sorts the activities of one instance"),
    ("SELECT count(*) FROM (SELECT 1 FROM worker_queue", "counts up to a bound"),
    ("SELECT count(*) FROM (SELECT 1 FROM instances", "counts up to a bound"),
    ("FROM (SELECT tag FROM worker_queue WHERE ready_for IS NOT NULL LIMIT", "counts up to a bound"),
    (
        "FROM (SELECT tag, lock_token, due_at FROM worker_queue WHERE due_at IS NOT NULL",
        "counts up to a bound",
    ),
];

/// Statements that look at all rows of a small or rarely visited table. `cleanup_orphaned_sessions` runs once in minutes,
/// and activities are searched for by a damaged tag once.
const RARE: [&str; 3] = [
    "DELETE FROM sessions WHERE locked_until <= ?1",
    "FROM worker_queue WHERE tag = CAST(?1 AS TEXT)",
    "DELETE FROM quarantine WHERE quarantined_at < ?1",
];

fn sources() -> Vec<(String, String)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/providers/sqlite");
    let mut sources: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rs"))
        .map(|entry| {
            let source = std::fs::read_to_string(entry.path()).unwrap();
            // Tests of a file have tables of their own.
            let source = source.split("#[cfg(test)]").next().unwrap_or_default().to_string();
            (entry.file_name().into_string().unwrap(), source)
        })
        .collect();
    sources.sort();
    sources
}

/// The string literals of a source file that are whole statements, apart from its tests.
fn statements(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    const VERBS: [&str; 5] = ["SELECT ", "SELECT\n", "INSERT ", "UPDATE ", "DELETE "];
    // The store's sources hold neither quotes in characters nor escaped quotes in statements.
    source
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|literal| VERBS.iter().any(|verb| literal.starts_with(verb)))
        .filter(|literal| !literal.contains('{'))
        .map(str::to_string)
        .collect()
}

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
    let rows = statement.raw_query();
    let read = rows.mapped(|row| row.get::<_, String>(3));
    read.collect::<Result<_, _>>().unwrap()
}

fn all_statements() -> Vec<(String, String)> {
    let of_file = |(name, source): (String, String)| {
        statements(&source).into_iter().map(move |sql| (name.clone(), sql)).collect::<Vec<_>>()
    };
    sources().into_iter().flat_map(of_file).collect()
}

#[tokio::test]
async fn no_statement_scans_a_table_or_sorts_but_those_that_are_meant_to() {
    let file = StoreFile::new();
    let _store = file.open().await;
    let connection = file.connection();
    let statements = all_statements();
    assert!(statements.len() > 70, "only {} statements were found", statements.len());
    let mut wrong = Vec::new();
    for (name, sql) in &statements {
        let excused = ON_PURPOSE.iter().any(|(part, _)| sql.contains(part))
            || RARE.iter().any(|part| sql.contains(part));
        let steps = plan(&connection, sql);
        let costly = |step: &&String| {
            step.starts_with("SCAN") && *step != "SCAN CONSTANT ROW" || step.contains("TEMP B-TREE")
        };
        if let Some(step) = steps.iter().find(costly).filter(|_| !excused) {
            wrong.push(format!("{name}: {step}\n{sql}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test]
async fn the_statements_of_a_fetch_use_the_indexes_that_are_meant_for_them() {
    let file = StoreFile::new();
    let _store = file.open().await;
    let connection = file.connection();
    let statements = all_statements();
    for (part, index) in [
        ("FROM instance_schedule WHERE due_at <= ?1", "instance_schedule_due (due_at<?)"),
        ("WHERE ready_seq IS NOT NULL AND class >= ?1", "instance_schedule_ready (class>?)"),
        ("SELECT min(due_at) FROM instance_schedule", "instance_schedule_due"),
        ("FROM worker_queue WHERE due_at <= ?1", "worker_queue_due (due_at<?)"),
        (
            "SELECT id, tag FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL",
            "worker_queue_ready (tag=?)",
        ),
        ("SELECT min(tag) FROM worker_queue WHERE due_at IS NULL", "worker_queue_ready (tag>?)"),
        (
            "FROM worker_queue WHERE ready_for = ?1 AND tag IS ?2",
            "worker_queue_seated (ready_for=? AND tag=?)",
        ),
        (
            "SELECT min(tag) FROM worker_queue WHERE ready_for = ?2",
            "worker_queue_seated (ready_for=? AND tag>?)",
        ),
        ("SELECT session_id FROM sessions WHERE due_at <= ?1", "sessions_due (due_at<?)"),
        (
            "parked_at IS NULL AND visible_at = 0 ORDER BY id LIMIT 1)",
            "orchestrator_queue_by_instance (instance_id=? AND parked_at=? AND visible_at=?)",
        ),
        (
            "DELETE FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2",
            "orchestrator_queue_by_instance (instance_id=? AND parked_at=? AND visible_at<?)",
        ),
        (
            "visible_at = 0 AND id <= max(?3, ?4)",
            "orchestrator_queue_by_instance (instance_id=? AND parked_at=? AND visible_at=? AND rowid<?)",
        ),
        (
            "FROM orchestrator_queue WHERE parent_instance_id = ?1",
            "orchestrator_queue_by_parent (parent_instance_id=?)",
        ),
        (
            "DELETE FROM worker_queue WHERE instance_id = ?1 AND execution_id = ?2 AND activity_id = ?3",
            "worker_queue_by_identity (instance_id=? AND execution_id=? AND activity_id=?)",
        ),
    ] {
        let (_, sql) = statements.iter().find(|(_, sql)| sql.contains(part)).expect(part);
        let steps = plan(&connection, sql);
        assert!(steps.iter().any(|step| step.contains(index)), "{sql}\n{steps:?}");
    }
}

#[tokio::test]
async fn work_that_nobody_may_take_is_not_looked_at_one_by_one() {
    let file = StoreFile::new();
    let store = file.open().await;
    create(&store, "a").await;
    store.enqueue_for_orchestrator(signal("a", "1"), None).await.unwrap();
    fetch(&store).await.unwrap();
    // A hundred thousand messages for a leased instance, sleeping timers, and work with a tag that no worker serves.
    store
        .execute_sql(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
             INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item) SELECT 'a', 'signal', 0, '{}' FROM n;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
             INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
                SELECT 't' || i, 'completion', 9000000000000 + i, 0, '{}' FROM n;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
             INSERT INTO worker_queue (instance_id, execution_id, activity_id, tag, created_at, work_item)
                SELECT 'a', 1, i, 'gpu', 0, '{}' FROM n;",
        )
        .await
        .unwrap();
    for n in 0..20 {
        assert!(fetch(&store).await.is_none());
        let default = TagFilter::DefaultOnly;
        assert!(store.fetch_work_item(LEASE, Duration::ZERO, None, &default).await.unwrap().is_none());
        store.enqueue_for_orchestrator(start(&format!("i{n}")), None).await.unwrap();
        store.enqueue_for_worker(activity("b", n)).await.unwrap();
        assert_eq!(fetch(&store).await.unwrap().0.instance, format!("i{n}"));
        assert!(store.fetch_work_item(LEASE, Duration::ZERO, None, &default).await.unwrap().is_some());
    }
    assert_eq!(store.get_queue_depths().await.unwrap().worker_queue, 100_000);
}

/// The steps that SQLite's machine takes for ten turns of an instance that has so many messages.
async fn cost_of_ten_turns(backlog: usize) -> u64 {
    let file = StoreFile::new();
    let limits = StoreLimits { max_turn_messages: 10, ..StoreLimits::default() };
    let store = file.builder().limits(limits).open(&file.url()).await.unwrap();
    create(&store, "a").await;
    let text = serde_json::to_string(&signal("a", "1")).unwrap();
    store
        .execute_sql(&format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {backlog})
             INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item) SELECT 'a', 'signal', 0, '{text}' FROM n",
        ))
        .await
        .unwrap();
    let before = store.work_done().vm_steps;
    for _ in 0..10 {
        let (item, token, _) = fetch(&store).await.unwrap();
        assert_eq!(item.messages.len(), 10);
        store
            .ack_orchestration_item(&token, 1, vec![], vec![], vec![], ExecutionMetadata::default(), vec![])
            .await
            .unwrap();
    }
    store.work_done().vm_steps - before
}

#[tokio::test]
async fn a_turn_costs_the_same_however_many_messages_are_left_for_the_next() {
    let (few, many) = (cost_of_ten_turns(200).await, cost_of_ten_turns(20_000).await);
    assert!(many <= few + few / 10, "{few} machine steps with 200 messages, {many} with 20,000");
}

#[tokio::test]
async fn a_fetch_finds_what_is_for_it_behind_any_number_of_due_rows_that_are_not() {
    let file = StoreFile::new();
    let store = file.open().await;
    create(&store, "a").await;
    let second = Duration::from_secs(1);
    for n in 0..600 {
        store.enqueue_for_orchestrator(signal(&format!("nobody-{n}"), "1"), Some(second)).await.unwrap();
        store.enqueue_for_worker(tagged("gpu", n)).await.unwrap();
    }
    store.enqueue_for_orchestrator(signal("a", "1"), Some(second * 2)).await.unwrap();
    let gpu = TagFilter::tags(["gpu"]);
    while let Some((_, token, _)) = store.fetch_work_item(LEASE, Duration::ZERO, None, &gpu).await.unwrap() {
        store.abandon_work_item(&token, Some(second), true).await.unwrap();
    }
    store.enqueue_for_worker(activity("a", 1)).await.unwrap();
    let default = TagFilter::DefaultOnly;
    let (_, token, _) = store.fetch_work_item(LEASE, Duration::ZERO, None, &default).await.unwrap().unwrap();
    store.abandon_work_item(&token, Some(second * 2), true).await.unwrap();

    file.clock.advance(second * 3);
    assert_eq!(fetch(&store).await.expect("its signal is due").0.instance, "a");
    assert!(store.fetch_work_item(LEASE, Duration::ZERO, None, &default).await.unwrap().is_some());
}

#[tokio::test]
async fn a_fetch_finds_the_freed_session_behind_any_number_of_others() {
    let file = StoreFile::new();
    let store = file.open().await;
    let owner = |name: &str| SessionFetchConfig { owner_id: name.into(), lock_timeout: LEASE };
    for n in 0..600 {
        let tag = if n == 599 { "wanted" } else { "other" };
        store.enqueue_for_worker(in_session(&format!("s{n}"), tag, 0)).await.unwrap();
        // A worker takes the first of each session for good, so that the session has an owner and its second item
        // waits.
        let first = Some(&owner("first"));
        let taken = store.fetch_work_item(LEASE * 100, Duration::ZERO, first, &TagFilter::Any).await.unwrap();
        assert!(taken.is_some());
        file.clock.advance(Duration::from_millis(1));
    }
    for n in 0..600 {
        let tag = if n == 599 { "wanted" } else { "other" };
        store.enqueue_for_worker(in_session(&format!("s{n}"), tag, 1)).await.unwrap();
    }
    file.clock.advance(LEASE * 2);
    let wanted = TagFilter::tags(["wanted"]);
    let found = store.fetch_work_item(LEASE, Duration::ZERO, Some(&owner("second")), &wanted).await.unwrap();
    assert!(found.is_some());
}

fn tagged(tag: &str, id: u64) -> WorkItem {
    match activity("a", id) {
        WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, .. } => {
            WorkItem::ActivityExecute {
                instance,
                execution_id,
                id,
                name,
                input,
                session_id,
                tag: Some(tag.into()),
            }
        }
        other => other,
    }
}

fn in_session(session: &str, tag: &str, id: u64) -> WorkItem {
    match tagged(tag, id) {
        WorkItem::ActivityExecute { instance, execution_id, id, name, input, tag, .. } => {
            let session_id = Some(session.to_string());
            WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
        }
        other => other,
    }
}
