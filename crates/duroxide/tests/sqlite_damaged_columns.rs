//! Any text of any row may be damaged: what belongs to other instances is claimed all the same.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use support::{LEASE, StoreFile, activity, signal, start, started_event};

/// A text that is not UTF-8.
const DAMAGED: &str = "CAST(x'61FF31' AS TEXT)";

const TABLES: [&str; 8] = [
    "instances",
    "executions",
    "history",
    "orchestrator_queue",
    "instance_schedule",
    "worker_queue",
    "sessions",
    "kv_store",
];

fn bound_to(instance: &str, id: u64, session: Option<&str>, tag: Option<&str>) -> WorkItem {
    let mut item = activity(instance, id);
    if let WorkItem::ActivityExecute { session_id, tag: of, .. } = &mut item {
        (*session_id, *of) = (session.map(String::from), tag.map(String::from));
    }
    item
}

async fn claim_work(store: &SqliteProvider) -> Option<(String, u64, String)> {
    let owner = SessionFetchConfig { owner_id: "A".into(), lock_timeout: Duration::from_secs(10) };
    let taken = store.fetch_work_item(LEASE, Duration::ZERO, Some(&owner), &TagFilter::Any).await.unwrap();
    taken.map(|(item, token, _)| match item {
        WorkItem::ActivityExecute { instance, id, .. } => (instance, id, token),
        other => panic!("{other:?}"),
    })
}

/// Two instances that are alike: with messages, timers, activities with and without sessions and tags, some of them leased.
async fn two_alike(store: &SqliteProvider) {
    for instance in ["bad", "good"] {
        store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    }
    for _ in 0..2 {
        let (item, token, _) = support::fetch(store).await.unwrap();
        let (instance, session) = (item.instance.as_str(), format!("{}-session", item.instance));
        let work = vec![
            bound_to(instance, 2, Some(&session), None),
            bound_to(instance, 3, None, None),
            bound_to(instance, 4, None, Some(instance)),
            bound_to(instance, 5, Some(&session), None),
        ];
        support::ack(store, &token, vec![started_event(instance, 1)], work).await.unwrap();
    }
    // The first activity of each session is leased, so that the sessions are somebody's.
    for _ in 0..2 {
        claim_work(store).await.unwrap();
    }
    for instance in ["bad", "good"] {
        store.enqueue_for_orchestrator(signal(instance, "now"), None).await.unwrap();
        let later = Some(Duration::from_secs(5));
        store.enqueue_for_orchestrator(signal(instance, "later"), later).await.unwrap();
    }
}

async fn check(table: &str, column: &str, is_leased: bool) {
    let context = format!("{table}.{column}, leased: {is_leased}");
    let file = StoreFile::new();
    let store = file.open().await;
    two_alike(&store).await;
    if is_leased {
        for _ in 0..2 {
            support::fetch(&store).await.unwrap();
        }
    }
    let key = if table == "sessions" { "session_id = 'bad-session'" } else { "instance_id = 'bad'" };
    let damage = format!("UPDATE {table} SET {column} = {DAMAGED} WHERE {key} AND {column} IS NOT NULL");
    store.execute_sql(&damage).await.unwrap();

    file.clock.advance(Duration::from_secs(120));
    let (mut turns, mut work) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..20 {
        let lease = Duration::from_secs(3_600);
        let fetched = store.fetch_orchestration_item(lease, Duration::ZERO, None).await;
        let Some((item, token, _)) = fetched.unwrap_or_else(|error| panic!("{context}: {error}")) else {
            break;
        };
        if item.instance == "good" {
            support::ack(&store, &token, vec![started_event("good", 2)], vec![]).await.unwrap();
        }
        turns.insert(item.instance);
    }
    for _ in 0..20 {
        let Some((instance, id, token)) = claim_work(&store).await else { break };
        if instance == "good" {
            store.ack_work_item(&token, None).await.unwrap();
        }
        work.insert((instance, id));
    }
    assert!(turns.contains("good"), "{context}: {turns:?}");
    let of_good: Vec<u64> = work.iter().filter(|(of, _)| of == "good").map(|(_, id)| *id).collect();
    assert_eq!(of_good, [2, 3, 4, 5], "{context}");
    let admin = store.as_management_capability().unwrap();
    admin.list_instances().await.unwrap_or_else(|error| panic!("{context}: {error}"));
    admin.get_system_metrics().await.unwrap_or_else(|error| panic!("{context}: {error}"));
    admin.get_queue_depths().await.unwrap_or_else(|error| panic!("{context}: {error}"));
    admin.delete_instance("good", true).await.unwrap_or_else(|error| panic!("{context}: {error}"));
}

// semantics: FAIL-7
#[tokio::test]
async fn any_damaged_text_leaves_the_work_of_others_alone() {
    let file = StoreFile::new();
    drop(file.open().await);
    for table in TABLES {
        let sql = format!("SELECT name FROM pragma_table_info('{table}') WHERE type = 'TEXT'");
        for column in file.texts(&sql) {
            let is_of_queue = table.ends_with("_queue") || table.ends_with("_schedule");
            for is_leased in [false, true].into_iter().take(1 + usize::from(is_of_queue)) {
                check(table, &column, is_leased).await;
            }
        }
    }
}
