//! What the commands that act do and print.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use duroxide::model::{Obstacle, ObstacleKind, WorkerInfo};
use duroxide::prelude::{Duroxide, OrchestrationRegistry};
use duroxide::providers::{Clock, Inspector, WorkerReport};
use duroxide::testing::replay;
use duroxide::{Client, OrchestrationStatus};
use support::{Scene, Terminal};

async fn client(scene: &Scene) -> Client {
    Client::new(scene.store().await)
}

#[tokio::test]
async fn starting() {
    let scene = Scene::empty().await;
    scene.snapshot("start", "start Order --id order-1 --input '3 apples'", Terminal::default()).await;
    scene.snapshot("start-taken", "start Order --id order-1", Terminal::default()).await;
    scene.snapshot("start-if-absent", "start Order --id order-1 --if-absent", Terminal::default()).await;
    scene
        .snapshot("start-json", "start Order --id order-2 --version 2.0.0 --output json", Terminal::default())
        .await;
    scene
        .snapshot("start-timeout", "start Order --id order-3 --wait --timeout 1ms", Terminal::default())
        .await;
    scene.snapshot("start-bad-id", "start Order --id sub::1", Terminal::default()).await;
    let run = scene.run("start Order").await;
    assert!(run.stdout.starts_with("order-") && run.stdout.trim().len() == 14, "{}", run.stdout);
    assert_eq!(client(&scene).await.get_instance_info("order-1").await.unwrap().status, "Pending");
}

#[tokio::test]
async fn starting_and_waiting_for_the_end() {
    let scene = Scene::empty().await;
    let runtime = scene.start_worker().await;
    let plain = Terminal::default;
    scene.snapshot("start-wait", "start Order --id order-1 --input '3 apples' --wait", plain()).await;
    scene.snapshot("start-wait-json", "start Order --id order-2 --wait --output json", plain()).await;
    scene
        .snapshot("start-wait-failed", "start Payment --id payment-1 --input 'card 9995' --wait", plain())
        .await;
    let json = "start Payment --id payment-2 --input 'card 9995' --wait --output json";
    scene.snapshot("start-wait-failed-json", json, plain()).await;
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn payloads_come_from_arguments_files_and_pipes() {
    let scene = Scene::empty().await;
    std::fs::write(scene.path("input.json"), "{\"apples\":3}\n").unwrap();
    let piped = Terminal { piped: "from a pipe\n", ..Terminal::default() };
    scene.run(&format!("start Order --id file --input @{}", scene.path("input.json").display())).await;
    scene.run_on("start Order --id pipe --input -", piped).await;
    let run = scene.run("start Order --id missing --input @/nowhere/at/all").await;
    assert_eq!(run.exit as u8, 2);
    for (id, input) in [("file", "{\"apples\":3}"), ("pipe", "from a pipe")] {
        let run = scene.run(&format!("show {id} --output json")).await;
        let messages = client(&scene).await.list_queued_messages(id, 1, 1_000).await.unwrap();
        let queued = serde_json::to_string(&messages).unwrap();
        assert!(
            queued.contains(&input.replace('"', "\\\"")) || queued.contains(input),
            "{queued} {}",
            run.stdout
        );
    }
}

#[tokio::test]
async fn sending() {
    let scene = Scene::full().await;
    scene.snapshot("raise", "raise approval-1 decision yes", Terminal::default()).await;
    scene.snapshot("raise-json", "raise approval-1 decision yes --output json", Terminal::default()).await;
    scene.snapshot("raise-unknown", "raise nobody decision yes", Terminal::default()).await;
    scene.snapshot("raise-parked", "raise nobody decision yes --park", Terminal::default()).await;
    scene.snapshot("raise-ended", "raise order-7 decision yes", Terminal::default()).await;
    scene.snapshot("enqueue", "enqueue inbox messages 'hello there'", Terminal::default()).await;
    scene.snapshot("enqueue-unknown", "enqueue nobody messages hello", Terminal::default()).await;
    scene.snapshot("enqueue-ended", "enqueue order-7 messages hello", Terminal::default()).await;
    scene.snapshot("cancel", "cancel video-1 --reason 'no longer needed'", Terminal::default()).await;
    scene.snapshot("cancel-grace", "cancel legacy-1 --grace 5m", Terminal::default()).await;
    scene.snapshot("cancel-at-once", "cancel approval-1 --grace 0s", Terminal::default()).await;
    scene.snapshot("cancel-bad-grace", "cancel inbox --grace soon", Terminal::default()).await;
    let looking = client(&scene).await;
    // What is asked for, and what ends it after the grace period.
    for (id, whens) in
        [("legacy-1", vec![false, true]), ("approval-1", vec![false]), ("video-1", vec![false])]
    {
        let queued = looking.list_queued_messages(id, 10, 100).await.unwrap();
        let requests = queued.iter().filter(|message| message.kind == "CancelInstance");
        let mut is_later: Vec<bool> = requests.map(|message| message.delayed_until_ms.is_some()).collect();
        is_later.sort_unstable();
        assert_eq!(is_later, whens, "{id}: {queued:?}");
    }
    scene.snapshot("cancel-ended", "cancel order-7", Terminal::default()).await;
    scene.snapshot("cancel-which", "cancel", Terminal::default()).await;
    scene.snapshot("retry", "retry approval-1", Terminal::default()).await;
    scene.snapshot("retry-unknown", "retry nobody", Terminal::default()).await;
    scene.snapshot("retry-all", "retry --all", Terminal::default()).await;
    let messages = client(&scene).await.list_queued_messages("inbox", 10, 100).await.unwrap();
    assert_eq!(messages.len(), 1);
}

/// What a worker could not do, and tries again: no command is needed, and `retry` says so instead of failing.
#[tokio::test]
async fn retrying_what_workers_try_by_themselves() {
    let scene = Scene::full().await;
    let mut obstacle =
        Obstacle::new("legacy-1", 1, None, ObstacleKind::Unregistered, "Legacy", "Legacy is not registered");
    obstacle.next_try_ms = scene.clock.now_ms() + 60_000;
    let report = WorkerReport::new(WorkerInfo::default(), vec![obstacle]);
    scene.store().await.report(&report).await.unwrap();
    scene.snapshot("retry-by-itself", "retry legacy-1", Terminal::default()).await;
    scene.snapshot("retry-all-by-itself", "retry --all", Terminal::default()).await;
    scene.snapshot("retry-by-itself-json", "retry legacy-1 --output json", Terminal::default()).await;
}

#[tokio::test]
async fn a_question_has_a_count_and_only_yes_is_yes() {
    let scene = Scene::full().await;
    let typed = |typed| Terminal { typed: Some(typed), ..Terminal::default() };
    scene.snapshot("cancel-ask-no", "cancel --name Approval", typed("no\n")).await;
    scene.snapshot("cancel-nobody", "cancel --name Approval", Terminal::default()).await;
    assert!(client(&scene).await.list_queued_messages("approval-1", 10, 100).await.unwrap().len() <= 1);
    scene.snapshot("cancel-ask-yes", "cancel --name Approval", typed("yes\n")).await;
    scene.snapshot("delete-ask-no", "delete order-7", typed("n\n")).await;
    scene.snapshot("delete-nobody", "delete --status completed", Terminal::default()).await;
    assert!(client(&scene).await.get_instance_info("order-7").await.is_ok());
}

#[tokio::test]
async fn deleting() {
    let scene = Scene::full().await;
    scene.snapshot("delete", "delete order-7 --yes", Terminal::default()).await;
    scene.snapshot("delete-gone", "delete order-7 --yes", Terminal::default()).await;
    scene.snapshot("delete-running", "delete approval-1 --yes", Terminal::default()).await;
    scene.snapshot("delete-child", "delete basket-1::sub::2 --yes", Terminal::default()).await;
    scene
        .snapshot("delete-force", "delete approval-1 --force --yes --output json", Terminal::default())
        .await;
    scene.snapshot("delete-living", "delete --status waiting --yes", Terminal::default()).await;
    scene.snapshot("delete-filter", "delete --status failed --yes", Terminal::default()).await;
    scene.snapshot("delete-nothing", "delete --name Nothing --yes", Terminal::default()).await;
    let left = scene.run("list --output jsonl --sort created --ascending").await;
    assert_eq!(left.stdout.lines().count(), 7, "{}", left.stdout);
}

#[tokio::test]
async fn pruning() {
    let scene = Scene::full().await;
    scene.snapshot("prune-how", "prune", Terminal::default()).await;
    scene.snapshot("prune-nothing", "prune --older-than 1d --yes", Terminal::default()).await;
    scene
        .snapshot("prune-executions", "prune --executions monitor --keep-last 1 --yes", Terminal::default())
        .await;
    scene
        .snapshot(
            "prune-all-executions",
            "prune --executions --keep-last 1 --yes --output json",
            Terminal::default(),
        )
        .await;
    scene.snapshot("prune", "prune --older-than 1m --yes", Terminal::default()).await;
    let left = scene.run("list --output jsonl --status completed,failed").await;
    assert_eq!(left.stdout, "");
}

#[tokio::test]
async fn histories_are_exported_whole() {
    let scene = Scene::full().await;
    let run = scene.run("history export order-7").await;
    let events: Vec<duroxide::Event> = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(events.first().unwrap().event_id, 1);
    assert!(events.last().unwrap().is_terminal());
    scene
        .snapshot(
            "history-export",
            "history export monitor --execution 1 --output jsonl",
            Terminal::default(),
        )
        .await;
    scene.snapshot("history-unknown", "history export nobody", Terminal::default()).await;
    scene.snapshot("history-no-execution", "history export monitor --execution 9", Terminal::default()).await;
    scene.snapshot("history-pending", "history export legacy-1", Terminal::default()).await;
    let file = scene.path("history.json");
    let command = format!("history export monitor --all-executions --to {}", file.display());
    scene.snapshot("history-file", &command, Terminal::default()).await;
    scene.snapshot("history-file-again", &command, Terminal::default()).await;
    let events: Vec<duroxide::Event> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(events.iter().map(|event| event.execution_id).max(), Some(3));
}

mod yesterday {
    use duroxide::prelude::*;

    #[activity]
    pub async fn charge(order: String) -> Result<String, String> {
        Ok(format!("receipt for {order}"))
    }

    #[orchestration]
    pub async fn fulfil(ctx: OrchestrationContext, order: String) -> Result<String, String> {
        ctx.timer(millis(1)).await;
        charge(&ctx, order).await
    }
}

mod tomorrow {
    use duroxide::prelude::*;

    #[orchestration]
    pub async fn fulfil(ctx: OrchestrationContext, order: String) -> Result<String, String> {
        ctx.timer(millis(1)).await;
        ctx.timer(secs(30)).await;
        super::yesterday::charge(&ctx, order).await
    }
}

#[tokio::test]
async fn an_exported_history_is_replayed_with_the_code_of_today() {
    let scene = Scene::empty().await;
    let app = Duroxide::open(&scene.url).activity(yesterday::charge).orchestration(yesterday::fulfil);
    let app = app.start().await.unwrap();
    let order = app.start(yesterday::fulfil, "order-1", "3 apples".to_string()).await.unwrap();
    assert_eq!(order.result().await.unwrap(), "receipt for 3 apples");
    app.shutdown().await;
    let (file, lines) = (scene.path("order-1.json"), "history export order-1 --output jsonl");
    scene.run(&format!("history export order-1 --to {}", file.display())).await;
    let exported = [std::fs::read_to_string(file).unwrap(), scene.run(lines).await.stdout];

    for exported in exported {
        let same = OrchestrationRegistry::builder().orchestration(yesterday::fulfil).build();
        assert_eq!(replay([&exported], &same), Ok(1), "{exported}");
        let changed = OrchestrationRegistry::builder().orchestration(tomorrow::fulfil).build();
        let difference = replay([&exported], &changed).unwrap_err();
        assert_eq!(
            (difference.recorded.as_str(), difference.code_now.as_str()),
            ("activity 'charge'", "a timer of 30s")
        );
        let place = difference.place.clone().unwrap();
        assert!(place.contains("acting.rs:"), "{place}");
        let shown = difference.to_string();
        assert!(shown.starts_with("'order-1', execution 1 (fulfil 1.0.0), event "), "{shown}");
        assert!(
            shown.contains(&format!(
                "  - recorded: activity 'charge'\n  + code now: a timer of 30s at {place}"
            ))
        );
    }
}

#[tokio::test]
async fn an_event_that_is_raised_arrives() {
    let scene = Scene::full().await;
    let run = scene.run("start Echo --id echo-1").await;
    assert_eq!(run.exit as u8, 0);
    let store = scene.store().await;
    let orchestrations = duroxide::OrchestrationRegistry::builder()
        .register("Echo", |ctx: duroxide::OrchestrationContext, _: String| async move {
            let said = ctx.schedule_wait("said");
            ctx.set_custom_status("listening");
            Ok(said.await)
        })
        .build_result()
        .unwrap();
    let runtime =
        duroxide::Runtime::start_with_store(store.clone(), Default::default(), orchestrations).await;
    let client = Client::new(store);
    client
        .wait_for_status_change("echo-1", 0, Duration::from_millis(5), Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(scene.run("raise echo-1 said hello").await.exit as u8, 0);
    let status = client.wait_for_orchestration("echo-1", Duration::from_secs(60)).await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "hello"));
    let run = scene.run("start Echo --id echo-1 --if-absent --wait").await;
    assert_eq!((run.exit as u8, run.stdout.as_str()), (0, "hello\n"));
    runtime.shutdown(None).await;
}
