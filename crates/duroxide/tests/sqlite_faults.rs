//! The SQLite store when something goes wrong around it: a full disk, callers that go away, a writer that dies.
//!
//! The store always tells the caller the truth: `Ok` means that all of its write is stored, an error that nothing is.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{
    Clock, ExtendedProvider, InstanceRequest, ManualClock, Provider, ProviderAdmin, ProviderError, TagFilter,
    WorkItem, WorkQueue, WorkRequest,
};
use support::{
    LEASE, StoreFile, ack, activity, create, drop_after, fetch, fetch_work, metadata, poll_once, signal,
    soon, start, started_event,
};
use tokio::task::JoinSet;

/// A disk that is full: the file may not grow any more.
async fn fill_up(store: &SqliteProvider) {
    let pages = store.query_number("PRAGMA page_count").await.unwrap();
    store.execute_sql(&format!("PRAGMA max_page_count = {pages}")).await.unwrap();
}

async fn make_room(store: &SqliteProvider) {
    store.execute_sql("PRAGMA max_page_count = 1000000").await.unwrap();
}

fn assert_disk_full(error: &ProviderError) {
    assert!(error.is_retryable(), "{error}");
    assert!(error.message.contains("full"), "{error}");
}

fn large() -> String {
    "x".repeat(3_000)
}

#[tokio::test]
async fn on_a_full_disk_an_enqueue_fails_for_now_and_goes_on_when_there_is_room() {
    let file = StoreFile::new();
    let store = file.open().await;
    fill_up(&store).await;
    let mut stored = 0;
    let refused = loop {
        match store.enqueue_for_orchestrator(signal("a", &large()), None).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_disk_full(&refused);
    assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue"), stored);
    make_room(&store).await;
    store.enqueue_for_orchestrator(signal("a", &large()), None).await.unwrap();
    assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue"), stored + 1);
    file.assert_sound();
}

#[tokio::test]
async fn on_a_full_disk_every_caller_of_a_batch_is_told_the_truth_about_its_own_write() {
    let file = StoreFile::new();
    let store = file.open().await;
    fill_up(&store).await;
    let mut calls = JoinSet::new();
    for n in 0..400 {
        let store = store.clone();
        calls.spawn(async move {
            // Small ones fit into free space of pages that are there; large ones do not.
            let data = if n % 7 == 0 { large() } else { String::new() };
            (n, store.enqueue_for_orchestrator(signal(&format!("i{n}"), &data), None).await)
        });
    }
    let mut failed = 0;
    for (n, answer) in calls.join_all().await {
        let rows =
            file.number(&format!("SELECT count(*) FROM orchestrator_queue WHERE instance_id = 'i{n}'"));
        assert_eq!(rows, i64::from(answer.is_ok()), "i{n}: {answer:?}");
        if let Err(error) = answer {
            assert_disk_full(&error);
            failed += 1;
        }
    }
    assert!(failed > 0);
    file.assert_sound();
}

#[tokio::test]
async fn on_a_full_disk_no_turn_and_no_result_is_stored_by_half() {
    let file = StoreFile::new();
    let store = file.open().await;
    let (mut turns, mut work) = (Vec::new(), Vec::new());
    for n in 0..60 {
        let instance = format!("i{n}");
        store.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        store.enqueue_for_worker(activity(&instance, 7)).await.unwrap();
        let (item, token, _) = fetch(&store).await.unwrap();
        turns.push((item.instance, token));
        let (item, token, _) = fetch_work(&store).await.unwrap();
        let WorkItem::ActivityExecute { instance, .. } = item else { panic!("{item:?}") };
        work.push((instance, token));
    }
    fill_up(&store).await;

    let mut calls = JoinSet::new();
    for ((turn_of, turn), (work_of, held)) in turns.iter().cloned().zip(work.iter().cloned()) {
        let (turns, results) = (store.clone(), store.clone());
        calls.spawn(async move {
            let events = vec![started_event(&turn_of, 1)];
            (true, turn_of.clone(), ack(&turns, &turn, events, vec![activity(&turn_of, 2)]).await)
        });
        calls.spawn(async move {
            let done = WorkItem::ActivityCompleted {
                instance: work_of.clone(),
                execution_id: 1,
                id: 7,
                result: large(),
            };
            (false, work_of, results.ack_work_item(&held, Some(done)).await)
        });
    }
    let count = |sql: &str, instance: &str| file.number(&format!("{sql} AND instance_id = '{instance}'"));
    let mut failed = 0;
    for (is_turn, instance, answer) in calls.join_all().await {
        if let Err(error) = &answer {
            assert_disk_full(error);
            failed += 1;
        }
        let (done, undone) = (i64::from(answer.is_ok()), i64::from(answer.is_err()));
        if is_turn {
            assert_eq!(count("SELECT count(*) FROM history WHERE true", &instance), done, "{instance}");
            assert_eq!(count("SELECT count(*) FROM instances WHERE true", &instance), done, "{instance}");
            assert_eq!(count("SELECT count(*) FROM worker_queue WHERE activity_id = 2", &instance), done);
            assert_eq!(
                count("SELECT count(*) FROM orchestrator_queue WHERE class = 'start'", &instance),
                undone
            );
        } else {
            assert_eq!(count("SELECT count(*) FROM worker_queue WHERE activity_id = 7", &instance), undone);
            let completions = "SELECT count(*) FROM orchestrator_queue WHERE class = 'completion'";
            assert_eq!(count(completions, &instance), done);
        }
    }
    assert!(failed > 0);

    make_room(&store).await;
    for (instance, token) in &turns {
        // A refused caller may try again with the same lease; an accepted one learns that its lease is over.
        let _ = ack(&store, token, vec![started_event(instance, 1)], vec![]).await;
    }
    for (instance, token) in &work {
        let _ = store.ack_work_item(token, Some(support::completion(instance, 7))).await;
    }
    assert_eq!(file.number("SELECT count(*) FROM instances"), 60);
    assert_eq!(file.number("SELECT count(*) FROM orchestrator_queue WHERE class = 'completion'"), 60);
    assert_eq!(store.get_system_metrics().await.unwrap().total_instances, 60);
    file.assert_sound();
}

/// Fetches as soon as there is something.
async fn fetch_when_ready(store: &SqliteProvider) -> (String, String, u32) {
    let mut ready = store.work_signal(WorkQueue::Orchestrator);
    loop {
        ready.mark_seen();
        if let Some((item, token, attempts)) = fetch(store).await {
            return (item.instance, token, attempts);
        }
        ready.wait().await;
    }
}

async fn fetch_work_when_ready(store: &SqliteProvider) -> (WorkItem, String, u32) {
    let mut ready = store.work_signal(WorkQueue::Worker);
    loop {
        ready.mark_seen();
        if let Some(work) = fetch_work(store).await {
            return work;
        }
        ready.wait().await;
    }
}

#[tokio::test]
async fn a_fetch_that_is_dropped_at_any_point_gives_its_lease_back_at_once() {
    let file = StoreFile::new();
    let store = file.open().await;
    create(&store, "a").await;
    store.enqueue_for_orchestrator(signal("a", "1"), None).await.unwrap();
    for polls in 1.. {
        let fetched = drop_after(polls, store.fetch_orchestration_item(LEASE, Duration::ZERO, None)).await;
        if let Some(fetched) = fetched {
            let (_, token, attempts) = fetched.unwrap().unwrap();
            assert_eq!(attempts, 1, "what nobody saw is not an attempt");
            store.abandon_orchestration_item(&token, None, true).await.unwrap();
            break;
        }
        let (instance, token, attempts) = soon(fetch_when_ready(&store)).await;
        assert_eq!((instance.as_str(), attempts), ("a", 1), "after {polls} polls");
        store.abandon_orchestration_item(&token, None, true).await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_that_is_dropped_at_any_point_gives_its_leases_back_at_once() {
    let file = StoreFile::new();
    let store = file.open().await;
    for n in 0..5 {
        create(&store, &format!("i{n}")).await;
    }
    for n in 0..5 {
        store.enqueue_for_orchestrator(signal(&format!("i{n}"), "1"), None).await.unwrap();
    }
    // Rows that do not decode make the claim take several steps.
    let cut = "UPDATE orchestrator_queue SET work_item = '{\"Cut' WHERE instance_id IN ('i1', 'i3')";
    store.execute_sql(cut).await.unwrap();
    let request = InstanceRequest { max: 5, lock_timeout: LEASE, filter: None };
    for polls in 1.. {
        if let Some(claims) = drop_after(polls, store.claim_instances(&request)).await {
            let mut instances: Vec<_> = claims.unwrap().into_iter().map(|claim| claim.instance).collect();
            instances.sort();
            assert_eq!(instances, ["i0", "i2", "i4"]);
            break;
        }
        let mut tokens = Vec::new();
        for _ in 0..3 {
            let (_, token, attempts) = soon(fetch_when_ready(&store)).await;
            assert_eq!(attempts, 1, "after {polls} polls");
            tokens.push(token);
        }
        for token in tokens {
            store.abandon_orchestration_item(&token, None, true).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_work_fetch_that_is_dropped_at_any_point_gives_its_leases_back_at_once() {
    let file = StoreFile::new();
    let store = file.open().await;
    for id in 0..4 {
        store.enqueue_for_worker(activity("a", id)).await.unwrap();
    }
    store.execute_sql("UPDATE worker_queue SET work_item = '{\"Cut' WHERE activity_id = 1").await.unwrap();
    let request = WorkRequest { max: 4, lock_timeout: LEASE, session: None, tag_filter: &TagFilter::Any };
    for polls in 1.. {
        if let Some(claims) = drop_after(polls, store.claim_work(&request)).await {
            assert_eq!(claims.unwrap().len(), 3);
            break;
        }
        let mut tokens = Vec::new();
        for _ in 0..3 {
            let (_, token, attempts) = soon(fetch_work_when_ready(&store)).await;
            assert_eq!(attempts, 1, "after {polls} polls");
            tokens.push(token);
        }
        for token in tokens {
            store.abandon_work_item(&token, None, true).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_write_whose_caller_goes_away_happens_wholly_or_not_at_all() {
    let file = StoreFile::new();
    let store = file.open().await;
    for n in 0..40 {
        let instance = format!("i{n}");
        store.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        let (_, token, _) = fetch(&store).await.unwrap();
        let events = vec![started_event(&instance, 1)];
        let _ = poll_once(ack(&store, &token, events, vec![activity(&instance, 2)])).await;
    }
    // Whatever was left in the queue in front of the writer has been dealt with when this is answered.
    store.execute_sql("SELECT 1").await.unwrap();
    let odd = file.texts(
        "WITH RECURSIVE numbers (value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM numbers WHERE value < 39)
         SELECT 'i' || value FROM numbers WHERE NOT (
            (SELECT count(*) FROM instances WHERE instance_id = 'i' || value) = 1
            AND (SELECT count(*) FROM history WHERE instance_id = 'i' || value) = 1
            AND (SELECT count(*) FROM worker_queue WHERE instance_id = 'i' || value) = 1
            AND (SELECT count(*) FROM orchestrator_queue WHERE instance_id = 'i' || value) = 0)
        AND NOT (
            (SELECT count(*) FROM instances WHERE instance_id = 'i' || value) = 0
            AND (SELECT count(*) FROM history WHERE instance_id = 'i' || value) = 0
            AND (SELECT count(*) FROM worker_queue WHERE instance_id = 'i' || value) = 0
            AND (SELECT count(*) FROM orchestrator_queue WHERE instance_id = 'i' || value) = 1)",
    );
    assert!(odd.is_empty(), "{odd:?}");
}

#[tokio::test]
async fn ten_thousand_callers_at_once_are_all_answered() {
    let file = StoreFile::new();
    let store = file.open().await;
    let mut calls = JoinSet::new();
    for n in 0..10_000_u64 {
        let store = store.clone();
        calls.spawn(async move { store.enqueue_for_worker(activity("a", n)).await });
    }
    let answers = soon(calls.join_all()).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(store.get_queue_depths().await.unwrap().worker_queue, 10_000);
}

#[test]
fn a_runtime_that_ends_with_calls_in_flight_takes_the_store_down_without_hanging() {
    let file = StoreFile::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = runtime.block_on(file.open());
    for n in 0..2_000_u64 {
        let store = store.clone();
        runtime.spawn(async move {
            let _ = store.enqueue_for_worker(activity("a", n)).await;
            let _ = fetch_work(&store).await;
            let _ = store.read("a").await;
        });
    }
    drop(store);
    drop(runtime);
    // The last handle has gone with the last task, and the writer with it: a sound file remains.
    file.assert_sound();
    assert!(!file.directory().join("store.db-wal").exists(), "the log was moved into the file");
}

#[test]
fn a_runtime_that_ends_gives_back_what_its_callers_have_not_seen() {
    let file = StoreFile::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = runtime.block_on(file.open());
    runtime.block_on(async {
        for id in 0..300 {
            store.enqueue_for_worker(activity("a", id)).await.unwrap();
        }
    });
    let seen = Arc::new(AtomicUsize::new(0));
    for _ in 0..300 {
        let (store, seen) = (store.clone(), seen.clone());
        runtime.spawn(async move {
            if fetch_work(&store).await.is_some() {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    drop(store);
    drop(runtime);
    let leased = file.number("SELECT count(*) FROM worker_queue WHERE lock_token IS NOT NULL");
    assert_eq!(leased, i64::try_from(seen.load(Ordering::SeqCst)).unwrap());
}

/// A clock that fails on the writer's thread on request: user code that panics where no caller expects it.
struct FaultyClock {
    clock: ManualClock,
    broken: AtomicBool,
}

impl Clock for FaultyClock {
    fn now_ms(&self) -> u64 {
        let on_writer = std::thread::current().name() == Some("duroxide-sqlite");
        assert!(!(on_writer && self.broken.load(Ordering::SeqCst)), "the clock is broken");
        self.clock.now_ms()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep_until(&self, deadline: Duration) -> duroxide::model::ClockSleep {
        self.clock.sleep_until(deadline)
    }
}

#[tokio::test]
async fn a_panic_in_the_writer_fails_its_callers_and_leaves_a_sound_file() {
    let file = StoreFile::new();
    let clock = Arc::new(FaultyClock { clock: ManualClock::default(), broken: AtomicBool::new(false) });
    let store = SqliteProvider::builder().clock(clock.clone()).open(&file.url()).await.unwrap();
    let store = Arc::new(store);
    store.enqueue_for_worker(activity("a", 1)).await.unwrap();
    clock.broken.store(true, Ordering::SeqCst);
    let mut calls = JoinSet::new();
    for n in 2..100 {
        let store = store.clone();
        calls.spawn(async move { store.enqueue_for_worker(activity("a", n)).await });
    }
    for answer in soon(calls.join_all()).await {
        let error = answer.unwrap_err();
        assert!(error.message.contains("closed"), "{error}");
    }
    let late = soon(store.enqueue_for_orchestrator(start("b"), None)).await;
    assert!(late.is_err());
    drop(store);
    assert_eq!(file.number("SELECT count(*) FROM worker_queue"), 1);
    file.assert_sound();
}

#[tokio::test]
async fn a_refused_write_does_not_disturb_its_neighbours() {
    let file = StoreFile::new();
    let store = file.open().await;
    let mut tokens = Vec::new();
    for n in 0..40 {
        store.enqueue_for_orchestrator(start(&format!("i{n}")), None).await.unwrap();
        let (item, token, _) = fetch(&store).await.unwrap();
        tokens.push((item.instance, token));
    }
    let mut calls = JoinSet::new();
    for (n, (instance, token)) in tokens.into_iter().enumerate() {
        let store = store.clone();
        calls.spawn(async move {
            // Every second one has the same event twice, every third a token that is not known.
            let mut events = vec![started_event(&instance, 1)];
            if n % 2 == 0 {
                events.push(started_event(&instance, 1));
            }
            let token = if n % 3 == 0 { format!("{token}x") } else { token };
            let answer =
                store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]).await;
            (n, answer)
        });
    }
    for (n, answer) in calls.join_all().await {
        let expected = n % 2 != 0 && n % 3 != 0;
        assert_eq!(answer.is_ok(), expected, "{n}: {answer:?}");
        assert!(answer.is_ok() || answer.is_err_and(|error| !error.is_retryable()));
        let stored = file.number(&format!("SELECT count(*) FROM history WHERE instance_id = 'i{n}'"));
        assert_eq!(stored, i64::from(expected));
    }
}

#[tokio::test]
async fn a_due_time_that_cannot_be_read_is_looked_at_again_and_not_forgotten() {
    let file = StoreFile::new();
    let store = file.open().await;
    let signal_of_turns = store.work_signal(WorkQueue::Orchestrator);
    let later = Some(Duration::from_secs(10));
    store.enqueue_for_orchestrator(start("i"), later).await.unwrap();
    assert!(signal_of_turns.next_due_ms().is_some());
    // An activity falls due in the other queue, so that the next commit reads all due times anew.
    store.enqueue_for_worker(activity("a", 1)).await.unwrap();
    let (_, token, _) = fetch_work(&store).await.unwrap();
    store.abandon_work_item(&token, Some(Duration::from_secs(1)), true).await.unwrap();
    file.clock.advance(Duration::from_secs(2));
    store.execute_sql("ALTER TABLE instance_schedule RENAME TO hidden").await.unwrap();
    store.enqueue_for_worker(activity("a", 2)).await.unwrap();
    let due = signal_of_turns.next_due_ms().expect("the message is still due some time");
    assert!(due <= file.clock.now_ms() + 8_000, "no later than it was due");
    store.execute_sql("ALTER TABLE hidden RENAME TO instance_schedule").await.unwrap();
}
