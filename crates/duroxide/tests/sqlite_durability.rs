//! A write that the SQLite store has answered is stored: visible to others at once, committed in groups, and there
//! after a kill of the process in the middle of its work.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::child_process::run_alone;
use crate::sqlite_store as support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, ProviderAdmin, SystemClock};
use support::{
    StoreFile, ack, activity, commits_in_log, completion, create, fetch, fetch_work, start, started_event,
};
use tokio::task::JoinSet;

#[tokio::test]
async fn an_answer_comes_only_after_the_commit() {
    let file = StoreFile::new();
    let store = file.open().await;
    let outside = file.connection();
    let count = |sql: &str| -> i64 { outside.query_row(sql, [], |row| row.get(0)).unwrap() };
    for n in 1..=50 {
        let instance = format!("i{n}");
        store.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        assert_eq!(count("SELECT count(*) FROM orchestrator_queue"), 1);
        let (_, token, _) = fetch(&store).await.unwrap();
        assert_eq!(count("SELECT count(*) FROM instance_locks"), 1, "leases are seen by others as well");
        ack(&store, &token, vec![started_event(&instance, 1)], vec![activity(&instance, 2)]).await.unwrap();
        assert_eq!(count("SELECT count(*) FROM history"), n);
        assert_eq!(count("SELECT count(*) FROM orchestrator_queue"), 0);
        let (_, token, _) = fetch_work(&store).await.unwrap();
        store.ack_work_item(&token, None).await.unwrap();
        assert_eq!(count("SELECT count(*) FROM worker_queue"), 0);
    }
}

#[tokio::test]
async fn writes_that_come_together_are_committed_together() {
    let file = StoreFile::new();
    let store = file.open().await;
    let before = commits_in_log(&file);
    let mut calls = JoinSet::new();
    for n in 0..1_000_u64 {
        let store = store.clone();
        calls.spawn(async move { store.enqueue_for_worker(activity("a", n)).await.unwrap() });
    }
    calls.join_all().await;
    let commits = commits_in_log(&file) - before;
    assert!((2..=100).contains(&commits), "{commits} commits for 1,000 writes");
}

#[tokio::test]
async fn what_one_handle_wrote_is_there_for_the_next_in_the_same_order() {
    let file = StoreFile::new();
    let store = file.open().await;
    create(&store, "a").await;
    for n in 0..5 {
        store.enqueue_for_orchestrator(start(&format!("q{n}")), None).await.unwrap();
    }
    drop(store);
    let store = file.open().await;
    assert_eq!(store.read("a").await.unwrap().len(), 1);
    for n in 0..5 {
        assert_eq!(fetch(&store).await.unwrap().0.instance, format!("q{n}"));
    }
    assert_eq!(store.get_system_metrics().await.unwrap().total_instances, 1);
}

#[tokio::test]
async fn a_checkpoint_leaves_everything_in_the_one_file() {
    let file = StoreFile::new();
    let store = file.open().await;
    for n in 0..100 {
        store.enqueue_for_worker(activity("a", n)).await.unwrap();
    }
    store.checkpoint().await.unwrap();
    let copy = StoreFile::new();
    std::fs::copy(file.path(), copy.path()).unwrap();
    assert_eq!(copy.number("SELECT count(*) FROM worker_queue"), 100);
}

/// Reads without a pause: one snapshot ends only when the next has begun.
fn read_for_ever(connections: [rusqlite::Connection; 2], is_over: &AtomicBool) {
    let read = "BEGIN; SELECT count(*) FROM worker_queue";
    connections[0].execute_batch(read).unwrap();
    for n in 1.. {
        let (next, last) = (&connections[n % 2], &connections[(n + 1) % 2]);
        next.execute_batch(read).unwrap();
        last.execute_batch("COMMIT").unwrap();
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[tokio::test]
async fn a_log_from_which_somebody_always_reads_stays_bounded() {
    const MOVE_AFTER: u64 = 20;
    const RESTART_AFTER: u64 = 60;
    let file = StoreFile::new();
    let builder = file.builder().log_pages(MOVE_AFTER, RESTART_AFTER);
    let store = builder.open(&file.url()).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (connections, is_over) = ([file.connection(), file.connection()], is_over.clone());
        std::thread::spawn(move || read_for_ever(connections, &is_over))
    };
    let mut longest = 0;
    for n in 0..1_000 {
        store.enqueue_for_worker(activity("a", n)).await.unwrap();
        longest =
            longest.max(std::fs::metadata(file.directory().join("store.db-wal")).unwrap().len() / 4_120);
    }
    is_over.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    // Some attempts to wait for the reader are in vain, but not all of them.
    assert!(longest < 10 * RESTART_AFTER, "the log had {longest} pages");
    assert_eq!(file.number("SELECT count(*) FROM worker_queue"), 1_000);
}

const CHILD_URL: &str = "DUROXIDE_TEST_CRASH_URL";

/// Works on the store until it is killed, and says which writes were answered.
#[test]
fn child_works_until_it_is_killed() {
    let Ok(url) = std::env::var(CHILD_URL) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store =
            Arc::new(SqliteProvider::builder().clock(Arc::new(SystemClock)).open(&url).await.unwrap());
        let mut workers = JoinSet::new();
        for worker in 0..16 {
            let store = store.clone();
            workers.spawn(async move {
                for n in 0.. {
                    one_step(&store, &format!("w{worker}-{n}")).await;
                }
            });
        }
        workers.join_all().await;
    });
}

/// One durable step: an instance is started and takes a turn, its activity is run and its result is enqueued.
async fn one_step(store: &SqliteProvider, instance: &str) {
    store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    answered("start", instance);
    if let Some((item, token, _)) = fetch(store).await {
        let is_first = item.history.is_empty();
        let events = (1..=3).filter(|_| is_first).map(|id| started_event(&item.instance, id)).collect();
        let activities = Vec::from_iter(is_first.then(|| activity(&item.instance, 2)));
        ack(store, &token, events, activities).await.unwrap();
        answered("turn", &item.instance);
    }
    if let Some((duroxide::providers::WorkItem::ActivityExecute { instance, .. }, token, _)) =
        fetch_work(store).await
    {
        store.ack_work_item(&token, Some(completion(&instance, 2))).await.unwrap();
        answered("work", &instance);
    }
}

fn answered(what: &str, instance: &str) {
    // One write for the line, so that a kill cannot leave half of it among the lines of other threads.
    let _ = std::io::stdout().write_all(format!("{what} {instance}\n").as_bytes());
}

fn spawn_worker(url: &str) -> Child {
    run_alone(module_path!(), "child_works_until_it_is_killed")
        .env(CHILD_URL, url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn after_a_kill_every_answered_write_is_there_and_the_file_is_sound() {
    for round in 0..3 {
        let file = StoreFile::new();
        let mut child = spawn_worker(&file.url());
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut answers: Vec<String> = output.by_ref().take(400 + 300 * round).map(Result::unwrap).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        answers.extend(output.map_while(Result::ok));

        file.assert_sound();
        let connection = file.connection();
        let mut there = connection
            .prepare(
                "SELECT CASE ?1
                    WHEN 'start' THEN EXISTS (SELECT 1 FROM orchestrator_queue WHERE instance_id = ?2 AND class = 'start')
                        OR EXISTS (SELECT 1 FROM instances WHERE instance_id = ?2)
                    WHEN 'turn' THEN (SELECT count(*) FROM history WHERE instance_id = ?2) = 3
                        AND EXISTS (SELECT 1 FROM instances WHERE instance_id = ?2)
                    WHEN 'work' THEN NOT EXISTS (SELECT 1 FROM worker_queue WHERE instance_id = ?2)
                    ELSE 1 END",
            )
            .unwrap();
        let mut checked = 0;
        for answer in &answers {
            let Some((what, instance)) = answer.split_once(' ').filter(|(_, rest)| rest.starts_with('w'))
            else {
                continue;
            };
            let is_there: bool = there.query_row([what, instance], |row| row.get(0)).unwrap();
            assert!(is_there, "answered and lost: {answer}");
            checked += 1;
        }
        assert!(checked >= 300, "only {checked} answers");
        // A write without an answer is there wholly or not at all.
        let halves = file.number(
            "SELECT count(*) FROM instances i WHERE (SELECT count(*) FROM history h WHERE h.instance_id = i.instance_id) <> 3
             OR EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i.instance_id AND q.class = 'start')",
        );
        assert_eq!(halves, 0);
    }
}
