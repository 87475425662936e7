//! What `duroxide doctor` finds, and how instances that cannot go on are shown.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use duroxide::model::{Obstacle, ObstacleKind, WorkerInfo};
use duroxide::prelude::*;
use duroxide::providers::{Clock, ExtendedProvider, Inspector, Provider, TagFilter, WorkerReport};
use serde_json::Value;
use support::{Scene, Terminal};

const LEASE: Duration = Duration::from_secs(30);

fn columns(columns: usize) -> Terminal {
    Terminal { columns: Some(columns), ..Terminal::default() }
}

/// What a check has found: the level and the message of each finding.
async fn found(scene: &Scene, check: &str) -> Vec<(String, String)> {
    let run = scene.run("doctor --fast --output jsonl").await;
    let findings = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_string();
    let of_check = findings.filter(|finding| finding["check"] == check);
    of_check.map(|finding| (text(&finding, "level"), text(&finding, "message"))).collect()
}

fn one(level: &str, message: &str) -> Vec<(String, String)> {
    vec![(level.to_string(), message.to_string())]
}

/// An instance whose code no worker has, and one that the store has blocked.
async fn block_two(scene: &Scene) {
    let store = scene.store().await;
    let now = scene.clock.now_ms();
    let mut worker = WorkerInfo::default();
    worker.id = "w-1".into();
    worker.name = "worker-a".into();
    worker.interval_ms = 5_000;
    let reason = "orchestration 'Legacy' is not registered on worker-a";
    let mut obstacle = Obstacle::new("legacy-1", 1, None, ObstacleKind::Unregistered, "Legacy", reason);
    obstacle.attempts = 3;
    obstacle.since_ms = now - 60_000;
    obstacle.next_try_ms = now + 30_000;
    store.report(&WorkerReport::new(worker, vec![obstacle])).await.unwrap();

    let client = Client::new(store.clone());
    client.raise_event("approval-1", "decision", "yes").await.unwrap();
    let until = async |instance: &str| {
        // Whatever else is ready comes first, and stays leased.
        loop {
            let (item, token, _) =
                store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
            if item.instance == instance {
                return token;
            }
        }
    };
    let token = until("approval-1").await;
    let reason = "neither its turn nor its failure can be stored: the payload has 20 MiB";
    store.block_instance(&token, reason).await.unwrap();
}

#[tokio::test]
async fn blocked_instances_are_a_problem_and_their_reasons_are_shown() {
    let scene = Scene::full().await;
    block_two(&scene).await;
    scene.snapshot("doctor-blocked", "doctor --fast", columns(100)).await;
    scene.snapshot("list-blocked", "list --status blocked", columns(120)).await;
    scene.snapshot("list-blocked-json", "list --status blocked --output json", Terminal::default()).await;
    scene.snapshot("show-blocked", "show approval-1", columns(100)).await;
    scene.snapshot("show-blocked-json", "show approval-1 --output json", Terminal::default()).await;
    scene.snapshot("show-obstacle", "show legacy-1", columns(100)).await;
    scene.snapshot("show-obstacle-waiting", "show legacy-1 --waiting", columns(100)).await;
}

#[tokio::test]
async fn an_instance_that_could_take_a_turn_and_takes_none_is_stuck() {
    let scene = Scene::full().await;
    scene.clock.advance(Duration::from_secs(4 * 60));
    assert_eq!(
        found(&scene, "stuck").await,
        one("ok", "every instance that can take a turn took one lately")
    );
    scene.clock.advance(Duration::from_secs(2 * 60));
    let stuck = "1 could take a turn and took none for 10m: legacy-1";
    assert_eq!(found(&scene, "stuck").await, one("problem", stuck));
    assert_eq!(scene.run("doctor --fast").await.exit as u8, 1);
    scene.snapshot("doctor-stuck", "doctor --fast", columns(80)).await;
}

#[tokio::test]
async fn a_worker_is_silent_when_it_has_missed_two_reports() {
    let scene = Scene::empty().await;
    scene.report_worker(scene.clock.now_ms()).await;
    assert_eq!(found(&scene, "workers").await, one("ok", "1 worker alive"));
    scene.clock.advance(Duration::from_secs(10));
    assert_eq!(found(&scene, "workers").await, one("ok", "1 worker alive"));
    scene.clock.advance(Duration::from_secs(1));
    let silent =
        "worker worker-a (process 4711 on host-1) was last heard of 11s ago; its leases are about to run out";
    assert_eq!(found(&scene, "workers").await, one("warning", silent));
    scene.clock.advance(Duration::from_secs(60));
    let gone = "no worker is alive, or none reports itself";
    assert_eq!(found(&scene, "workers").await, one("warning", gone));
}

#[tokio::test]
async fn a_worker_from_the_future_shows_that_clocks_differ() {
    let scene = Scene::empty().await;
    scene.report_worker(scene.clock.now_ms() + 60_000).await;
    let differ =
        "worker worker-a (process 4711 on host-1) was last heard of in the future: clocks differ by 1m";
    assert_eq!(found(&scene, "clock").await, one("warning", differ));
    assert_eq!(found(&scene, "workers").await, one("ok", "1 worker alive"), "nothing else is wrong with it");
    scene.clock.advance(Duration::from_secs(58));
    assert_eq!(found(&scene, "clock").await, [], "two seconds are nothing");
    assert_eq!(scene.run("doctor --fast").await.exit as u8, 0, "warnings do not count");
}

#[tokio::test]
async fn the_doctor_sees_leases_that_run_out() {
    let scene = Scene::full().await;
    let store = scene.store().await;
    let any = TagFilter::Any;
    let leased = store.fetch_work_item(LEASE, Duration::ZERO, None, &any).await.unwrap();
    assert!(leased.is_some(), "the activity with the tag gpu");
    scene.snapshot("doctor-leased", "doctor --fast", columns(80)).await;
    scene.clock.advance(Duration::from_secs(31));
    scene.snapshot("doctor-lease-ran-out", "doctor --fast", columns(80)).await;
}

#[tokio::test]
async fn the_doctor_finds_a_lost_lease_among_many_instances_that_sleep() {
    let scene = Scene::full().await;
    let store = scene.store().await;
    let leased = store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    assert_eq!(leased.map(|(_, _, attempts)| attempts), Some(1), "the activity with the tag gpu");
    scene.clock.advance(Duration::from_secs(31));
    // All have changed less lately than the one that lost its worker.
    let numbers = "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 300)";
    let columns = "instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at, \
                   listed_status, updated_10s, root_instance_id";
    let values = "'sleeper-' || number, 'Sleep', '1.0.0', 1, 1, 1, 'Running', 0, 'sleeper-' || number";
    store
        .execute_sql(&format!("{numbers} INSERT INTO instances ({columns}) SELECT {values} FROM numbers"))
        .await
        .unwrap();
    let lost = "activities of 1 instance lost their worker, and nobody has taken them over: video-1";
    assert_eq!(found(&scene, "leases").await, one("warning", lost));
}

#[tokio::test]
async fn the_doctor_says_how_far_it_looked_for_lost_leases() {
    let scene = Scene::empty().await;
    let store = scene.store().await;
    let numbers = "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 1200)";
    let item = r#"{"ActivityExecute":{"instance":"i","execution_id":1,"id":1,"name":"Pack","input":""}}"#;
    let columns = "instance_id, execution_id, activity_id, created_at, work_item";
    store
        .execute_sql(&format!(
            "{numbers} INSERT INTO worker_queue ({columns}) SELECT 'i', 1, number, 1, '{item}' FROM numbers"
        ))
        .await
        .unwrap();
    let none = "none of the 1,000 activities that have been ready longest lost its worker";
    assert_eq!(found(&scene, "leases").await, one("ok", none));
}

#[tokio::test]
async fn the_doctor_names_instances_whose_activities_no_worker_serves() {
    let scene = Scene::full().await;
    let store = scene.store().await;
    let runtime =
        Runtime::start_with_store(store.clone(), ActivityRegistry::default(), Default::default()).await;
    let client = Client::new(store);
    while client.list_workers().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let unserved = "1 ready in the worker queue, tag 'gpu', and nobody serves it: video-1";
    assert!(found(&scene, "queues").await.contains(&("problem".to_string(), unserved.to_string())));
    let shown = scene.run("show video-1 --output json").await.stdout;
    assert!(shown.contains("no_worker_for_tag"), "{shown}");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn the_doctor_sees_poison_among_many_failures() {
    let scene = Scene::full().await;
    let store = scene.store().await;
    // All were made after it and changed after it, and none is poison.
    let numbers = "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 1200)";
    let instances = "instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at, \
                     listed_status, updated_10s, root_instance_id";
    let copied = instances
        .replace("root_instance_id", "'copy-' || number")
        .replace("created_at", "created_at + 1000")
        .replace("updated_at", "updated_at + 20000")
        .replace("updated_10s", "updated_10s + 2")
        .replacen("instance_id", "'copy-' || number", 1);
    let of = "FROM numbers, (SELECT * FROM instances WHERE instance_id = 'payment-1')";
    store
        .execute_sql(&format!("{numbers} INSERT INTO instances ({instances}) SELECT {copied} {of}"))
        .await
        .unwrap();
    let ends = "execution_id, status, started_at, completed_at, output";
    let of = "FROM numbers, (SELECT * FROM executions WHERE instance_id = 'payment-1')";
    let sql = format!(
        "{numbers} INSERT INTO executions (instance_id, {ends}) SELECT 'copy-' || number, {ends} {of}"
    );
    store.execute_sql(&sql).await.unwrap();
    let poison =
        "UPDATE executions SET output = 'poison: delivered 11 times' WHERE instance_id = 'payment-1'";
    store.execute_sql(poison).await.unwrap();
    let run = scene.run("doctor --fast --output jsonl").await;
    let found = run.stdout.lines().find(|line| line.contains("\"poison\"")).unwrap();
    assert!(found.contains("1 instance given up as poison in the last day: payment-1"), "{found}");
}
