//! What the commands that look print, on a store with an instance of every kind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use duroxide::providers::Clock;
use support::{Scene, Terminal};

fn columns(columns: usize) -> Terminal {
    Terminal { columns: Some(columns), ..Terminal::default() }
}

#[tokio::test]
async fn lists() {
    let scene = Scene::full().await;
    scene.snapshot("list", "list", Terminal::default()).await;
    scene.snapshot("list-80", "list", columns(80)).await;
    scene.snapshot("list-120", "list", columns(120)).await;
    scene.snapshot("list-colour", "--color always list --status failed,waiting", columns(80)).await;
    scene.snapshot("list-json", "list --name Order --output json", Terminal::default()).await;
    scene.snapshot("list-jsonl", "list --id order --output jsonl", Terminal::default()).await;
    scene.snapshot("list-page", "list --limit 3", Terminal::default()).await;
    scene.snapshot("list-children", "list --parent basket-1", columns(100)).await;
    scene.snapshot("list-count", "list --status completed --count", Terminal::default()).await;
    scene.snapshot("list-live", "list --status live", Terminal::default()).await;
    scene.snapshot("list-live-count", "list --status live,waiting --count", Terminal::default()).await;
    scene.snapshot("list-nothing", "list --name Nothing", Terminal::default()).await;
    scene.snapshot("list-bad-state", "list --status sideways", Terminal::default()).await;
    scene.snapshot("list-bad-cursor", "list --cursor nonsense", Terminal::default()).await;
}

#[tokio::test]
async fn pages_follow_each_other_and_all_is_all() {
    let scene = Scene::full().await;
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let run = scene.run(&format!("list --limit 2 --output jsonl {cursor}")).await;
        for line in run.stdout.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            ids.push(row["instance"].as_str().unwrap().to_string());
        }
        match run.stderr.rsplit_once("--cursor ") {
            Some((_, next)) => cursor = format!("--cursor {}", next.trim()),
            None => break,
        }
    }
    let all = scene.run("list --all --output jsonl").await;
    assert_eq!(ids.len(), all.stdout.lines().count());
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 10, "{ids:?}");
}

#[tokio::test]
async fn an_empty_store_says_what_to_do() {
    let scene = Scene::empty().await;
    scene.snapshot("list-empty", "list", Terminal::default()).await;
    scene.snapshot("queues-empty", "queues", Terminal::default()).await;
    scene.snapshot("workers-empty", "workers", Terminal::default()).await;
    scene.snapshot("stats-empty", "stats", Terminal::default()).await;
    scene.snapshot("doctor-healthy", "doctor", columns(80)).await;
    scene.snapshot("quarantine-empty", "quarantine list", Terminal::default()).await;
    scene.snapshot("list-empty-json", "list --output json", Terminal::default()).await;
}

#[tokio::test]
async fn shows() {
    let scene = Scene::full().await;
    scene.snapshot("show-completed", "show order-7", columns(80)).await;
    scene.snapshot("show-history", "show order-7 --history", columns(100)).await;
    scene.snapshot("show-failed", "show payment-1", columns(80)).await;
    scene.snapshot("show-waiting", "show approval-1", columns(100)).await;
    scene.snapshot("show-waiting-only", "show approval-1 --waiting", columns(80)).await;
    scene.snapshot("show-tag", "show video-1", columns(100)).await;
    scene.snapshot("show-pending", "show legacy-1", columns(80)).await;
    scene.snapshot("show-continued", "show monitor --history --execution 1", columns(100)).await;
    scene.snapshot("show-colour", "--color always show payment-1 --history", columns(100)).await;
    scene.snapshot("show-json", "show payment-1 --output json", Terminal::default()).await;
    scene
        .snapshot("show-waiting-jsonl", "show approval-1 --waiting --output jsonl", Terminal::default())
        .await;
    scene.snapshot("show-unknown", "show nobody", Terminal::default()).await;
    scene.snapshot("show-no-execution", "show monitor --history --execution 9", Terminal::default()).await;
    scene.snapshot("follow", "show basket-1 --follow", columns(100)).await;
    scene.snapshot("follow-too-long", "show approval-1 --follow --timeout 0s", columns(100)).await;
}

#[tokio::test]
async fn an_activity_that_is_completed_from_elsewhere_is_shown_as_such() {
    let scene = Scene::awaiting_completions().await;
    scene.snapshot("show-awaiting", "show contract-1", columns(100)).await;
    scene.snapshot("show-awaiting-only", "show contract-2 --waiting", columns(100)).await;
    scene
        .snapshot("show-awaiting-jsonl", "show contract-1 --waiting --output jsonl", Terminal::default())
        .await;
}

#[tokio::test]
async fn trees() {
    let scene = Scene::full().await;
    scene.snapshot("tree", "tree basket-1", columns(80)).await;
    scene
        .snapshot("tree-from-root", "tree basket-1::sub::2 --from-root --depth 0", Terminal::default())
        .await;
    scene.snapshot("tree-json", "tree order-7 --output json", Terminal::default()).await;
    scene.snapshot("tree-unknown", "tree nobody", Terminal::default()).await;
}

#[tokio::test]
async fn figures() {
    let scene = Scene::full().await;
    scene.snapshot("stats", "stats", columns(80)).await;
    scene.snapshot("stats-json", "stats --minutes 1 --output json", Terminal::default()).await;
    scene.snapshot("queues", "queues", columns(80)).await;
    scene.snapshot("queues-jsonl", "queues --output jsonl", Terminal::default()).await;
    scene.snapshot("doctor", "doctor", columns(80)).await;
    scene.snapshot("doctor-json", "doctor --fast --output jsonl", Terminal::default()).await;
}

#[tokio::test]
async fn workers_that_report_themselves() {
    let scene = Scene::empty().await;
    scene.report_worker(scene.clock.now_ms()).await;
    scene.snapshot("workers", "workers", columns(80)).await;
    scene.snapshot("workers-long", "workers --long", columns(80)).await;
    scene.snapshot("workers-jsonl", "workers --output jsonl", Terminal::default()).await;
}

#[tokio::test]
async fn a_worker_is_shown_with_the_activities_that_it_runs() {
    let scene = Scene::empty().await;
    let now = scene.clock.now_ms();
    let running = serde_json::json!([
        { "instance": "order-7", "execution_id": 1, "activity_id": 2, "name": "Charge", "attempt": 1, "since_ms": now - 3_000 },
        { "instance": "order-8", "execution_id": 1, "activity_id": 4, "name": "Ship", "attempt": 3, "since_ms": now - 90_000 },
    ]);
    scene.report_worker_with(now, running).await;
    scene.snapshot("workers-long-running", "workers --long", columns(80)).await;
}

#[tokio::test]
async fn watching_draws_again_and_again() {
    let scene = Scene::empty().await;
    let terminal =
        Terminal { is_terminal: true, drawings: Some(1), columns: Some(80), ..Terminal::default() };
    scene.snapshot("watch", "queues --watch", terminal).await;
}

#[tokio::test]
async fn texts_of_others_do_not_steer_the_terminal() {
    let scene = Scene::empty().await;
    let client = duroxide::Client::new(scene.store().await);
    client.start_orchestration("a\u{1b}[2Jb\u{202e}c\nd", "\u{7}Bell", "\u{1b}]0;title\u{7}").await.unwrap();
    for command in
        ["list", "tree 'a\u{1b}[2Jb\u{202e}c\nd'", "show 'a\u{1b}[2Jb\u{202e}c\nd'", "stats", "doctor"]
    {
        let run = scene.run_on(command, Terminal { is_terminal: false, ..Terminal::default() }).await;
        let text = run.stdout + &run.stderr;
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{command}: {text:?}");
    }
}
