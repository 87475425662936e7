//! The SQLite store when one commit stores a turn or a result and claims the work that it leads to: what survives,
//! which waiters wake, and how the store gives back claims that no caller takes over.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::sqlite_store as support;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{
    ExtendedProvider, InstanceRequest, Provider, ProviderError, StoredResult, StoredTurn, TagFilter,
    TurnToStore, WorkItem, WorkQueue, WorkRequest, WorkSignal,
};
use duroxide::{Event, EventKind};
use support::{
    LEASE, StoreFile, ack, activity, commits_in_log, completion, create, drop_after, fetch, fetch_work,
    metadata, poll_once, signal, soon, start, started_event,
};

fn work(max: usize) -> WorkRequest<'static> {
    WorkRequest { max, lock_timeout: LEASE, session: None, tag_filter: &TagFilter::Any }
}

const ONE_INSTANCE: InstanceRequest<'static> = InstanceRequest { max: 1, lock_timeout: LEASE, filter: None };

/// Starts an instance and returns the token of its first turn.
async fn first_turn(store: &SqliteProvider, instance: &str) -> String {
    store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (item, token, _) = fetch(store).await.unwrap();
    assert_eq!(item.instance, instance);
    token
}

/// Stores the first turn of an instance, which schedules these activities.
async fn store_turn(
    store: &SqliteProvider,
    token: &str,
    instance: &str,
    activities: &[WorkItem],
    claim: Option<&WorkRequest<'_>>,
) -> Result<StoredTurn, ProviderError> {
    let turn = TurnToStore {
        activity_options: &[],
        lock_token: token,
        execution_id: 1,
        history_delta: &[started_event(instance, 1)],
        worker_items: activities,
        orchestrator_items: &[],
        metadata: &metadata(),
        cancelled_activities: &[],
    };
    store.store_turn(turn, claim).await
}

/// Creates an instance with an activity, and returns the token of the activity.
async fn running_activity(store: &SqliteProvider, instance: &str) -> String {
    let token = first_turn(store, instance).await;
    ack(store, &token, vec![started_event(instance, 1)], vec![activity(instance, 2)]).await.unwrap();
    fetch_work(store).await.unwrap().1
}

async fn store_result(
    store: &SqliteProvider,
    token: &str,
    instance: &str,
    claim: Option<&InstanceRequest<'_>>,
) -> Result<StoredResult, ProviderError> {
    store.store_result(token, Some(completion(instance, 2)), claim).await
}

#[tokio::test]
async fn a_result_that_nobody_waited_for_is_there_when_the_file_is_opened_again() {
    let file = StoreFile::new();
    let store = file.open().await;
    let token = running_activity(&store, "a").await;
    drop(store_result(&store, &token, "a", None).await.unwrap());
    drop(store);
    let store = file.open().await;
    let (item, _, attempts) = fetch(&store).await.unwrap();
    assert_eq!((item.messages, attempts), (vec![completion("a", 2)], 1));
    assert!(fetch_work(&store).await.is_none());
}

#[tokio::test]
async fn closing_the_store_makes_results_durable_and_says_so() {
    for waits_first in [true, false] {
        let file = StoreFile::new();
        let store = file.open().await;
        let token = running_activity(&store, "a").await;
        let durable = store_result(&store, &token, "a", Some(&ONE_INSTANCE)).await.unwrap().durable;
        let told = tokio::spawn(durable.wait());
        if waits_first {
            tokio::task::yield_now().await;
        }
        drop(store);
        soon(told).await.unwrap().unwrap();
    }
}

/// Only a commit that is written is synced.
#[tokio::test]
async fn a_result_is_called_durable_only_after_a_later_commit_was_written() {
    for meanwhile in ["nothing", "a refusal", "a write", "no change"] {
        let file = StoreFile::new();
        let store = file.open().await;
        let token = running_activity(&store, "a").await;
        let before = commits_in_log(&file);
        let durable = store_result(&store, &token, "a", None).await.unwrap().durable;
        match meanwhile {
            "a refusal" => drop(ack(&store, "lock_invented", vec![], vec![]).await.unwrap_err()),
            "a write" => store.enqueue_for_worker(activity("other", 1)).await.unwrap(),
            "no change" => drop(store.execute_sql("UPDATE totals SET instances = instances").await.unwrap()),
            _ => {}
        }
        soon(durable.wait()).await.unwrap();
        let commits = commits_in_log(&file) - before;
        assert!(commits >= 2, "{meanwhile} in between: {commits} commits, for the result and for its sync");
    }
}

#[tokio::test]
async fn a_result_is_not_kept_waiting_by_a_stream_of_leases() {
    let file = StoreFile::new();
    let store = file.open().await;
    let token = running_activity(&store, "a").await;
    create(&store, "b").await;
    store.enqueue_for_worker(activity("b", 9)).await.unwrap();
    let durable = store_result(&store, &token, "a", None).await.unwrap().durable;
    for _ in 0..20 {
        let (_, token, _) = fetch_work(&store).await.unwrap();
        store.abandon_work_item(&token, None, true).await.unwrap();
    }
    poll_once(durable.wait()).await.expect("it was durable before the last of them").unwrap();
}

/// Waits until the writer has done the jobs that were left for it, and the jobs that those left.
async fn writer_is_idle(store: &SqliteProvider) {
    for _ in 0..2 {
        store.execute_sql("SELECT 1").await.unwrap();
    }
}

#[tokio::test]
async fn a_turn_whose_caller_goes_away_at_any_point_gives_its_claims_back() {
    for _ in 0..100 {
        if turn_whose_caller_goes_away().await {
            return;
        }
    }
    panic!("a commit takes more than one poll");
}

/// Drops the call after more and more polls, until it comes through. Returns false if it came through at the first poll, so
/// that none was dropped: the writer may commit while the machine runs something else than the caller.
async fn turn_whose_caller_goes_away() -> bool {
    let file = StoreFile::new();
    let store = file.open().await;
    let mut dropped_after_commit = 0;
    for n in 0..200 {
        let instance = format!("i{n}");
        let token = first_turn(&store, &instance).await;
        // One row that does not decode makes the call take several steps after the commit.
        store.enqueue_for_worker(activity("bad", 7)).await.unwrap();
        store
            .execute_sql("UPDATE worker_queue SET work_item = '{\"Cut' WHERE activity_id = 7")
            .await
            .unwrap();
        let scheduled = [activity(&instance, 2), activity(&instance, 3)];
        let request = work(3);
        let stored =
            drop_after(n + 1, store_turn(&store, &token, &instance, &scheduled, Some(&request))).await;
        if let Some(stored) = stored {
            let ids: Vec<_> = stored.unwrap().claims.into_iter().map(|claim| claim.item).collect();
            assert_eq!(ids, scheduled, "what does not decode is left out");
            return n > 0;
        }
        writer_is_idle(&store).await;
        if store.read(&instance).await.unwrap().is_empty() {
            ack(&store, &token, vec![started_event(&instance, 1)], scheduled.to_vec()).await.unwrap();
        } else {
            dropped_after_commit += 1;
        }
        while let Some((item, token, attempts)) = fetch_work(&store).await {
            assert_eq!(attempts, 1, "after {n} polls and {dropped_after_commit} commits: {item:?}");
            store.ack_work_item(&token, None).await.unwrap();
        }
        let left = store.query_number("SELECT count(*) FROM worker_queue").await.unwrap();
        assert_eq!(left, 0, "every activity can be taken at once");
    }
    panic!("it takes no more than a few polls");
}

#[tokio::test]
async fn a_result_whose_caller_goes_away_at_any_point_gives_its_claim_back() {
    for _ in 0..100 {
        if result_whose_caller_goes_away().await {
            return;
        }
    }
    panic!("a commit takes more than one poll");
}

/// Drops the call after more and more polls, until it comes through. Returns false if it came through at the first poll, so
/// that none was dropped: the writer may commit while the machine runs something else than the caller.
async fn result_whose_caller_goes_away() -> bool {
    let file = StoreFile::new();
    let store = file.open().await;
    for n in 0..200 {
        let instance = format!("i{n}");
        let token = running_activity(&store, &instance).await;
        let stored = drop_after(n + 1, store_result(&store, &token, &instance, Some(&ONE_INSTANCE))).await;
        if let Some(stored) = stored {
            assert_eq!(stored.unwrap().claims[0].instance, instance);
            return n > 0;
        }
        writer_is_idle(&store).await;
        // Not stored at all, or stored and given back.
        if store.query_number("SELECT count(*) FROM worker_queue").await.unwrap() == 1 {
            store.ack_work_item(&token, Some(completion(&instance, 2))).await.unwrap();
        }
        let (item, token, attempts) = fetch(&store).await.unwrap();
        assert_eq!((item.instance.as_str(), attempts), (instance.as_str(), 1), "after {n} polls");
        ack(&store, &token, vec![], vec![]).await.unwrap();
    }
    panic!("it takes no more than a few polls");
}

#[tokio::test]
async fn a_store_that_is_closed_gives_back_what_its_callers_have_not_seen() {
    for _ in 0..20 {
        let file = StoreFile::new();
        let store = file.open().await;
        let result = running_activity(&store, "a").await;
        let turn = first_turn(&store, "b").await;
        let seen;
        {
            let (store, scheduled) = (&store, [activity("b", 2)]);
            let claim = work(1);
            let turn = poll_once(store_turn(store, &turn, "b", &scheduled, Some(&claim))).await;
            let result = poll_once(store_result(store, &result, "a", Some(&ONE_INSTANCE))).await;
            // The writer may commit while the machine runs something else than the caller.
            seen = (i64::from(turn.is_some()), i64::from(result.is_some()));
        }
        drop(store);
        let leased = "SELECT count(*) FROM worker_queue WHERE lock_token IS NOT NULL AND instance_id = 'b'";
        assert_eq!(file.number(leased), seen.0);
        let leased =
            "SELECT count(*) FROM instance_schedule WHERE lock_token IS NOT NULL AND instance_id = 'a'";
        assert_eq!(file.number(leased), seen.1);
    }
}

async fn rests(signal: &mut WorkSignal) -> bool {
    poll_once(signal.wait()).await.is_none()
}

#[tokio::test]
async fn workers_are_woken_for_what_a_turn_did_not_hand_over_and_for_nothing_else() {
    let file = StoreFile::new();
    let store = file.open().await;
    let mut ready = store.work_signal(WorkQueue::Worker);
    let token = first_turn(&store, "all").await;
    ready.mark_seen();
    let two = |instance: &str| [activity(instance, 2), activity(instance, 3)];
    store_turn(&store, &token, "all", &two("all"), Some(&work(2))).await.unwrap();
    assert!(rests(&mut ready).await, "both activities were handed over");

    let token = first_turn(&store, "some").await;
    let stored = store_turn(&store, &token, "some", &two("some"), Some(&work(1))).await.unwrap();
    assert_eq!(stored.claims.len(), 1);
    assert!(!rests(&mut ready).await, "one is left for others");
    assert!(fetch_work(&store).await.is_some());

    ready.mark_seen();
    let token = first_turn(&store, "none").await;
    store_turn(&store, &token, "none", &two("none"), None).await.unwrap();
    assert!(!rests(&mut ready).await, "nothing was handed over");
}

#[tokio::test]
async fn orchestrators_are_woken_for_what_a_result_did_not_hand_over_and_for_nothing_else() {
    let file = StoreFile::new();
    let store = file.open().await;
    let first = running_activity(&store, "a").await;
    let second = running_activity(&store, "b").await;
    let third = running_activity(&store, "c").await;
    let mut ready = store.work_signal(WorkQueue::Orchestrator);
    ready.mark_seen();
    let stored = store_result(&store, &first, "a", Some(&ONE_INSTANCE)).await.unwrap();
    assert_eq!(stored.claims.len(), 1);
    soon(stored.durable.wait()).await.unwrap();
    assert!(rests(&mut ready).await, "the instance was handed over, and its sync is nobody's business");

    store.enqueue_for_orchestrator(start("older"), None).await.unwrap();
    ready.mark_seen();
    let stored = store_result(&store, &second, "b", Some(&ONE_INSTANCE)).await.unwrap();
    assert_eq!(stored.claims[0].instance, "older");
    assert!(!rests(&mut ready).await, "the instance of the result is left for others");
    assert_eq!(fetch(&store).await.unwrap().0.instance, "b");

    ready.mark_seen();
    store_result(&store, &third, "c", None).await.unwrap();
    assert!(!rests(&mut ready).await, "nothing was handed over");
}

#[tokio::test]
async fn a_result_of_one_handle_is_found_by_the_other() {
    let file = StoreFile::new();
    let (here, there) = (file.open().await, file.open().await);
    let token = running_activity(&here, "a").await;
    store_result(&here, &token, "a", None).await.unwrap();
    let (item, token, _) = fetch(&there).await.unwrap();
    assert_eq!(item.messages, [completion("a", 2)]);
    ack(&there, &token, vec![], vec![activity("a", 2)]).await.unwrap();

    let mut ready = there.work_signal(WorkQueue::Orchestrator);
    ready.mark_seen();
    let (_, token, _) = fetch_work(&here).await.unwrap();
    let result = store_result(&here, &token, "a", None).await.unwrap();
    soon(async {
        while fetch(&there).await.is_none() {
            ready.wait().await;
            ready.mark_seen();
        }
    })
    .await;
    result.durable.wait().await.unwrap();
}

#[tokio::test]
async fn what_one_handle_was_given_along_with_a_commit_is_not_given_to_the_other() {
    let file = StoreFile::new();
    let (here, there) = (file.open().await, file.open().await);
    let token = first_turn(&here, "a").await;
    let stored = store_turn(&here, &token, "a", &[activity("a", 2)], Some(&work(1))).await.unwrap();
    assert!(fetch_work(&there).await.is_none());
    let stored = store_result(&here, &stored.claims[0].lock_token, "a", Some(&ONE_INSTANCE)).await.unwrap();
    assert!(fetch(&there).await.is_none());
    there.enqueue_for_orchestrator(signal("a", "1"), None).await.unwrap();
    assert!(fetch(&there).await.is_none(), "a message for an instance in a turn waits");
    let done =
        Event::with_event_id(2, "a", 1, Some(2), EventKind::ActivityCompleted { result: "paid".into() });
    ack(&here, &stored.claims[0].lock_token, vec![done], vec![]).await.unwrap();
    assert_eq!(fetch(&there).await.unwrap().0.messages, [signal("a", "1")]);
}

#[tokio::test]
async fn a_result_that_finds_the_file_busy_is_told_so_and_can_be_stored_again() {
    let file = StoreFile::new();
    let store = file.builder().busy_timeout(std::time::Duration::ZERO).open(&file.url()).await.unwrap();
    let token = running_activity(&store, "a").await;
    let outside = file.connection();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store_result(&store, &token, "a", Some(&ONE_INSTANCE)).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    outside.execute_batch("ROLLBACK").unwrap();
    let stored = store_result(&store, &token, "a", Some(&ONE_INSTANCE)).await.unwrap();
    assert_eq!(stored.claims[0].messages, [completion("a", 2)]);
    soon(stored.durable.wait()).await.unwrap();
}
