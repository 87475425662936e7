//! Heartbeats of runtimes on the embedded store: under load they are part of the commits of others.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::sqlite_store as support;

use duroxide::model::WorkerInfo;
use duroxide::providers::{Inspector, Provider, WorkerReport};
use support::{StoreFile, ack, fetch, start, started_event};

/// Turns that are stored while runtimes report themselves.
const TURNS: u32 = 20;

fn report(worker: u32, slots_used: u32) -> WorkerReport {
    let mut info = WorkerInfo::default();
    info.id = format!("w-{worker:02}");
    info.name = info.id.clone();
    info.interval_ms = 5_000;
    info.turn_slots_used = slots_used;
    WorkerReport::new(info, Vec::new())
}

// semantics: LOOK-8
#[tokio::test]
async fn heartbeats_are_part_of_the_commits_of_others_under_load() {
    let file = StoreFile::new();
    let store = file.open().await;
    let mut tokens = Vec::new();
    for turn in 0..TURNS {
        store.enqueue_for_orchestrator(start(&format!("i-{turn}")), None).await.unwrap();
        let (item, token, _) = fetch(&store).await.unwrap();
        tokens.push((item.instance, token));
    }
    let before = store.work_done();
    // Another process writes, so that all this arrives while a commit is under way: turns, and between them heartbeats.
    let other = file.connection();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut turns = Vec::new();
    for (number, (instance, token)) in (0..).zip(tokens) {
        let (of_turn, of_worker) = (store.clone(), store.clone());
        turns.push(tokio::spawn(async move {
            ack(&of_turn, &token, vec![started_event(&instance, 1)], vec![]).await.unwrap();
        }));
        turns.push(tokio::spawn(async move { of_worker.report(&report(number, number)).await.unwrap() }));
    }
    // Each of these tasks has sent its request before this one goes on: there is one thread.
    tokio::task::yield_now().await;
    other.execute_batch("COMMIT").unwrap();
    for turn in turns {
        turn.await.unwrap();
    }

    let done = store.work_done() - before;
    // The writer may have begun with the first turn before the others were there; the rest is one commit.
    assert!((1..=2).contains(&(done.commits - done.settlements)), "{done:?}");
    let workers = store.list_workers().await.unwrap();
    let reported: Vec<u32> = workers.iter().map(|worker| worker.turn_slots_used).collect();
    assert_eq!(reported, (0..TURNS).collect::<Vec<_>>());
    assert_eq!(file.number("SELECT count(*) FROM history"), i64::from(TURNS));
}
