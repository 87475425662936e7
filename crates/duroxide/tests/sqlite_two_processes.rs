//! Several users of one SQLite file: two handles in one process, two processes, and a program that keeps the file busy.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::child_process::run_alone;
use crate::sqlite_store as support;

use std::collections::HashSet;
use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{
    ExtendedProvider, Provider, ProviderAdmin, SessionFetchConfig, TagFilter, WorkItem, WorkQueue, WorkSignal,
};
use support::{
    LEASE, StoreFile, ack, activity, create, fetch, fetch_work, signal, soon, start, started_event,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_never_get_the_same_item() {
    let file = StoreFile::new();
    let stores = [file.open().await, file.open().await];
    for n in 0..200 {
        stores[n % 2].enqueue_for_orchestrator(start(&format!("i{n}")), None).await.unwrap();
        stores[n % 2].enqueue_for_worker(activity("a", n as u64)).await.unwrap();
    }
    let drain = |store: Arc<SqliteProvider>| async move {
        let (mut instances, mut work) = (Vec::new(), Vec::new());
        while let Some((item, _, attempts)) = fetch(&store).await {
            assert_eq!(attempts, 1);
            instances.push(item.instance);
        }
        while let Some((item, _, attempts)) = fetch_work(&store).await {
            assert_eq!(attempts, 1);
            let WorkItem::ActivityExecute { id, .. } = item else { panic!("{item:?}") };
            work.push(id);
        }
        (instances, work)
    };
    let [one, two] = stores.map(|store| tokio::spawn(drain(store)));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert_eq!((one.0.len() + two.0.len(), one.1.len() + two.1.len()), (200, 200));
    assert_eq!(one.0.iter().chain(&two.0).collect::<HashSet<_>>().len(), 200);
    assert_eq!(one.1.iter().chain(&two.1).collect::<HashSet<_>>().len(), 200);
}

#[tokio::test]
async fn a_lease_of_one_handle_is_respected_by_the_other() {
    let file = StoreFile::new();
    let (here, there) = (file.open().await, file.open().await);
    here.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&here).await.unwrap();
    assert!(fetch(&there).await.is_none());
    there.renew_orchestration_item_lock(&token, LEASE * 2).await.unwrap();
    file.clock.advance(LEASE + LEASE / 2);
    assert!(fetch(&there).await.is_none(), "renewed through the other handle");
    file.clock.advance(LEASE);
    let (_, taken_over, attempts) = fetch(&there).await.unwrap();
    assert_eq!(attempts, 2);
    let stale = ack(&here, &token, vec![started_event("a", 1)], vec![]).await.unwrap_err();
    assert!(!stale.is_retryable(), "{stale}");
    ack(&there, &taken_over, vec![started_event("a", 1)], vec![]).await.unwrap();
}

#[tokio::test]
async fn a_session_of_one_handle_is_respected_by_the_other() {
    let file = StoreFile::new();
    let (here, there) = (file.open().await, file.open().await);
    let owner = |name: &str| SessionFetchConfig { owner_id: name.into(), lock_timeout: LEASE };
    for id in 1..=2 {
        let WorkItem::ActivityExecute { instance, execution_id, id, name, input, tag, .. } =
            activity("a", id)
        else {
            unreachable!()
        };
        let session_id = Some("s".to_string());
        let item = WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag };
        here.enqueue_for_worker(item).await.unwrap();
    }
    let take = async |store: &SqliteProvider, name: &str| {
        store.fetch_work_item(LEASE, Duration::ZERO, Some(&owner(name)), &TagFilter::Any).await.unwrap()
    };
    assert!(take(&here, "here").await.is_some());
    assert!(take(&there, "there").await.is_none());
    assert!(take(&there, "here").await.is_some(), "the owner may come through any handle");
}

async fn assert_woken(mut signal: WorkSignal) {
    soon(signal.wait()).await;
}

#[tokio::test]
async fn work_that_the_other_handle_enqueues_wakes_a_waiter_here() {
    let file = StoreFile::new();
    let (here, there) = (file.open().await, file.open().await);
    for queue in [WorkQueue::Orchestrator, WorkQueue::Worker] {
        // Nothing wakes the waiter before: the store has noticed all writes so far.
        let mut settled = here.work_signal(queue);
        while tokio::time::timeout(Duration::from_millis(300), settled.wait()).await.is_ok() {
            settled.mark_seen();
        }
        let waiter = tokio::spawn(assert_woken(here.work_signal(queue)));
        match queue {
            WorkQueue::Orchestrator => there.enqueue_for_orchestrator(start("a"), None).await.unwrap(),
            WorkQueue::Worker => there.enqueue_for_worker(activity("a", 1)).await.unwrap(),
        }
        waiter.await.unwrap();
    }
}

#[tokio::test]
async fn a_timer_that_the_other_handle_sets_wakes_a_waiter_here_when_it_is_due() {
    let file = StoreFile::new();
    let (here, there) = (file.open().await, file.open().await);
    create(&there, "a").await;
    let mut ready = here.work_signal(WorkQueue::Orchestrator);
    there.enqueue_for_orchestrator(signal("a", "1"), Some(LEASE)).await.unwrap();
    // The other's write is noticed; then there is nothing to do until the time has come.
    soon(async {
        while ready.next_due_ms().is_none() {
            ready.wait().await;
            ready.mark_seen();
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(fetch(&here).await.is_none());
    ready.mark_seen();
    let waiter = tokio::spawn(assert_woken(ready));
    file.clock.advance(LEASE);
    waiter.await.unwrap();
    assert!(fetch(&here).await.is_some());
}

#[tokio::test]
async fn an_ack_through_the_other_handle_wakes_who_watches_the_instance_here() {
    let file = StoreFile::new();
    let (here, there) = (file.open().await, file.open().await);
    there.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&there).await.unwrap();
    let mut watch = here.watch_instance("a");
    ack(&there, &token, vec![started_event("a", 1)], vec![]).await.unwrap();
    soon(async {
        while here.read_metadata("a").await.unwrap().is_none() {
            watch.changed().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_busy_for_a_moment_only_delays() {
    let file = StoreFile::new();
    let store = file.open().await;
    let outside = file.connection();
    for lock in ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"] {
        outside.execute_batch(lock).unwrap();
        let enqueuing = {
            let store = store.clone();
            tokio::spawn(async move { store.enqueue_for_orchestrator(start("a"), None).await })
        };
        let fetching = {
            let store = store.clone();
            tokio::spawn(
                async move { store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::Any).await },
            )
        };
        // Reads do not wait at all.
        soon(store.get_system_metrics()).await.unwrap();
        assert!(!enqueuing.is_finished());
        outside.execute_batch("COMMIT").unwrap();
        soon(enqueuing).await.unwrap().unwrap();
        soon(fetching).await.unwrap().unwrap();
    }
    assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue"), 2);
}

#[tokio::test]
async fn a_file_that_stays_busy_is_an_error_for_now_and_nothing_is_lost() {
    let file = StoreFile::new();
    let store = file.builder().busy_timeout(Duration::from_millis(50)).open(&file.url()).await.unwrap();
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, token, _) = fetch(&store).await.unwrap();
    let outside = file.connection();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    for answer in [
        store.enqueue_for_orchestrator(signal("a", "1"), None).await,
        ack(&store, &token, vec![started_event("a", 1)], vec![]).await,
        store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.map(drop),
        store.renew_orchestration_item_lock(&token, LEASE).await,
    ] {
        let error = answer.unwrap_err();
        assert!(error.is_retryable() && error.message.contains("locked"), "{error}");
    }
    outside.execute_batch("COMMIT").unwrap();
    ack(&store, &token, vec![started_event("a", 1)], vec![]).await.unwrap();
    assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue"), 0);
    file.assert_sound();
}

const CHILD_URL: &str = "DUROXIDE_TEST_SECOND_URL";

/// Takes any work, as another process, and says what it was.
#[test]
fn child_takes_what_it_can() {
    let Ok(url) = std::env::var(CHILD_URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteProvider::new(&url, None).await.unwrap();
        store.enqueue_for_orchestrator(signal("hello", "from the child"), None).await.unwrap();
        while let Some((item, token, _)) = fetch(&store).await {
            let events = vec![started_event(&item.instance, 1)];
            ack(&store, &token, events, vec![]).await.unwrap();
            let _ = std::io::stdout().write_all(format!("took {}\n", item.instance).as_bytes());
        }
    });
}

fn spawn_taker(url: &str) -> Child {
    run_alone(module_path!(), "child_takes_what_it_can")
        .env(CHILD_URL, url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn processes_share_a_file_and_every_turn_is_taken_once() {
    let file = StoreFile::new();
    // A clock of the machine, as the other processes have it.
    let store = SqliteProvider::new(&file.url(), None).await.unwrap();
    for n in 0..300 {
        store.enqueue_for_orchestrator(start(&format!("i{n}")), None).await.unwrap();
    }
    let children = [spawn_taker(&file.url()), spawn_taker(&file.url())];
    let mut taken = Vec::new();
    while let Some((item, token, _)) = fetch(&store).await {
        ack(&store, &token, vec![started_event(&item.instance, 1)], vec![]).await.unwrap();
        taken.push(item.instance);
    }
    for child in children {
        let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        taken.extend(
            text.lines().filter_map(|line| line.split_once("took ")).map(|(_, name)| name.to_string()),
        );
    }
    assert_eq!(taken.len(), 300);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 300);
    assert_eq!(file.number("SELECT count(*) FROM history"), 300);
    // The children's signals wait for an instance that no client has started.
    assert_eq!(store.list_parked(10).await.unwrap().len(), 2);
    file.assert_sound();
}

#[tokio::test]
async fn what_one_handle_dropped_the_next_one_lists() {
    let file = StoreFile::new();
    let store = SqliteProvider::new(&file.url(), None).await.unwrap();
    let early =
        WorkItem::QueueMessage { instance: "ghost".into(), name: "inbox".into(), data: "early".into() };
    store.enqueue_for_orchestrator(early, None).await.unwrap();
    assert!(fetch(&store).await.is_none());
    drop(store);
    let store = SqliteProvider::new(&file.url(), None).await.unwrap();
    let dropped = store.list_dropped(10).await.unwrap();
    assert_eq!((dropped.total, dropped.newest.len()), (1, 1));
    assert!(dropped.newest[0].raw.contains("early"), "{dropped:?}");
}
