//! Heartbeats of runtimes: part of the commits of others under load, and commits of their own without it.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::model::{Obstacle, ObstacleKind, WorkerInfo};
use duroxide::providers::{Inspector, Provider, WorkerReport};
use duroxide_pg::PostgresProvider;
use support::world::{World, metadata, signal, start, started_event};

const LEASE: Duration = Duration::from_secs(30);

fn report(slots_used: u32) -> WorkerReport {
    let mut worker = WorkerInfo::default();
    worker.id = "w".into();
    worker.name = "worker".into();
    worker.interval_ms = 5_000;
    worker.turn_slots_used = slots_used;
    WorkerReport::new(worker, Vec::new())
}

/// Takes the turn of a new instance.
async fn taken_turn(store: &PostgresProvider, instance: &str) -> String {
    store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap().1
}

async fn store_turn(store: &PostgresProvider, token: &str, instance: &str) {
    let events = vec![started_event(instance)];
    store.ack_orchestration_item(token, 1, events, vec![], vec![], metadata(), vec![]).await.unwrap();
}

/// How many events the transaction stored that stored the heartbeat.
const EVENTS_OF_COMMIT: &str = "SELECT count(*) FROM workers w JOIN history h ON h.xmin::text = w.xmin::text";

async fn slots_used(store: &PostgresProvider) -> Option<u32> {
    store.list_workers().await.unwrap().first().map(|worker| worker.turn_slots_used)
}

// semantics: LOOK-8
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_is_part_of_a_commit_of_others_under_load() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let turn = taken_turn(&store, "one").await;
    tokio::join!(store_turn(&store, &turn, "one"), async { store.report(&report(1)).await.unwrap() });
    assert_eq!(world.number(EVENTS_OF_COMMIT).await, 0, "the first waits for nobody");

    for round in 2..5 {
        let instance = format!("instance-{round}");
        let turn = taken_turn(&store, &instance).await;
        let report = report(round);
        // The turn is stored after the heartbeat has begun to wait.
        let (reported, ()) = tokio::join!(store.report(&report), store_turn(&store, &turn, &instance));
        reported.unwrap();
        assert_eq!(world.number(EVENTS_OF_COMMIT).await, 1, "in the transaction of the turn");
        assert_eq!(slots_used(&store).await, Some(round));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_is_a_commit_of_its_own_if_there_are_no_others() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for round in 1..4 {
        store.report(&report(round)).await.unwrap();
        assert_eq!(slots_used(&store).await, Some(round), "at once: nothing was committed in between");
    }
    // Somebody has committed something, and then nobody does.
    store.enqueue_for_orchestrator(signal("nobody"), None).await.unwrap();
    store.report(&report(9)).await.unwrap();
    assert_eq!(slots_used(&store).await, Some(9));
    assert_eq!(
        world.number("SELECT count(*) FROM workers w JOIN orchestrator_queue q ON q.xmin = w.xmin").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_commit_waits_for_obstacles() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    store.report(&report(1)).await.unwrap();
    let turn = taken_turn(&store, "one").await;
    let mut full = report(2);
    full.obstacles =
        vec![Obstacle::new("one", 1, None, ObstacleKind::Unregistered, "Order", "nobody knows it")];
    let (reported, ()) = tokio::join!(store.report(&full), store_turn(&store, &turn, "one"));
    reported.unwrap();
    assert_eq!(world.number(EVENTS_OF_COMMIT).await, 0, "in a transaction of its own");
    assert_eq!(world.number("SELECT count(*) FROM obstacles").await, 1);
}

/// The tasks of a runtime end before it takes its leave; a heartbeat that a commit has taken along must not outlive it.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_has_left_does_not_come_back_with_a_commit_under_way() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    store.report(&report(1)).await.unwrap();
    let turn = taken_turn(&store, "one").await;
    world.close_gate(&["TRIGGER held_up BEFORE INSERT ON history"]).await;
    let last = report(2);
    let mut heartbeat = store.report(&last);
    tokio::select! {
        biased;
        reported = &mut heartbeat => panic!("{reported:?}"),
        () = std::future::ready(()) => {}
    }
    let storing = store.clone();
    let storing = tokio::spawn(async move { store_turn(&storing, &turn, "one").await });
    world.until_held_up().await;
    drop(heartbeat);
    let leaving = store.clone();
    let leaving = tokio::spawn(async move { leaving.retire("w").await });
    world.open_gate().await;
    storing.await.unwrap();
    leaving.await.unwrap().unwrap();
    assert_eq!(world.number("SELECT count(*) FROM workers").await, 0);
}
