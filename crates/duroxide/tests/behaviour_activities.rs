//! Activities, sessions and tags.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{ProviderError, WorkItem};
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, Client, Either2, Event, EventKind, OrchestrationContext, OrchestrationStatus,
    PruneOptions, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::logs::Logs;
use runtime_support::{Stage, World, activities, echo, faulty_world, few_attempts, kinds, orchestrations};

fn scheduled(history: &[Event]) -> Vec<String> {
    let names = history.iter().filter_map(|event| match &event.kind {
        EventKind::ActivityScheduled { name, .. } => Some(name.clone()),
        _ => None,
    });
    names.collect()
}

// semantics: ACT-15
#[tokio::test]
async fn built_in_activities_are_there_in_an_empty_registry_and_recorded_like_others() {
    let world = World::new();
    let code = orchestrations().register("Ids", |ctx: OrchestrationContext, _: String| async move {
        let guid = ctx.new_guid().await?;
        let now = ctx.schedule_activity("__duroxide_syscall:utc_now_ms", "").await?;
        Ok(format!("{guid} {now}"))
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Ids", "").await.unwrap();
    let output = world.output("i").await;
    let (guid, now) = output.split_once(' ').unwrap();
    assert_eq!((guid.len(), guid.matches('-').count()), (36, 4));
    assert!(guid.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c)), "{guid}");
    assert_eq!(guid.as_bytes()[14], b'4', "version 4");
    assert_eq!(now, world.now_ms().to_string());
    assert_eq!(
        scheduled(&world.history("i").await),
        ["__duroxide_syscall:new_guid", "__duroxide_syscall:utc_now_ms"]
    );
    runtime.shutdown(None).await;
}

// semantics: ACT-15
#[tokio::test]
async fn the_built_in_read_of_values_says_what_is_wrong_with_its_input() {
    let (world, faulty) = faulty_world();
    let code = orchestrations().register("Ask", |ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_activity("__duroxide_syscall:get_kv_value", input).await
    });
    let runtime = world.start(activities(), code).await;
    for (number, (input, expected)) in [
        ("nonsense", "get_kv_value: invalid input: "),
        ("{}", "get_kv_value: missing instance_id"),
        (r#"{"instance_id":"x"}"#, "get_kv_value: missing key"),
    ]
    .into_iter()
    .enumerate()
    {
        let instance = format!("i{number}");
        world.client.start_orchestration(&instance, "Ask", input).await.unwrap();
        let error = world.failure(&instance).await;
        assert!(error.starts_with(expected), "{error}");
    }
    faulty.fail(Call::KvValue, [ProviderError::permanent("get_kv_value", "down")]);
    world.client.start_orchestration("j", "Ask", r#"{"instance_id":"x","key":"k"}"#).await.unwrap();
    assert_eq!(world.failure("j").await, "get_kv_value client error: get_kv_value: down");
    world.client.start_orchestration("k", "Ask", r#"{"instance_id":"x","key":"k"}"#).await.unwrap();
    assert_eq!(world.output("k").await, "null");
    runtime.shutdown(None).await;
}

// semantics: ACT-14
#[tokio::test]
async fn an_activity_can_use_a_client_to_prune_its_own_instance() {
    let world = World::new();
    let prune = activities().register("Prune", |ctx: ActivityContext, _: String| async move {
        let copy = ctx.clone();
        assert!(format!("{copy:?}").contains("ActivityContext"));
        let options = PruneOptions { keep_last: Some(1), completed_before: None };
        let result = ctx.get_client().prune_executions(copy.instance_id(), options).await;
        Ok(result.unwrap().executions_deleted.to_string())
    });
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if ctx.execution_id() < 3 {
            ctx.continue_as_new(input).await
        } else {
            ctx.schedule_activity("Prune", "").await
        }
    });
    let runtime = world.start(prune, code).await;
    world.client.start_orchestration("i", "Loop", "").await.unwrap();
    assert_eq!(world.output("i").await, "2");
    assert_eq!(world.client.list_executions("i").await.unwrap(), [3]);
    runtime.shutdown(None).await;
}

// semantics: ACT-12
#[tokio::test]
async fn a_result_for_an_earlier_execution_is_dropped() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input == "first" {
            return ctx.continue_as_new("second").await;
        }
        ctx.schedule_activity("Echo", "right").await
    });
    let options = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let runtime = world.start_with(activities(), code, options).await;
    world.client.start_orchestration("i", "Loop", "first").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await;
    for execution_id in [1, 3] {
        let stale =
            WorkItem::ActivityCompleted { instance: "i".into(), execution_id, id: 2, result: "wrong".into() };
        world.store.enqueue_for_orchestrator(stale, None).await.unwrap();
    }
    world.drained().await;
    let options = RuntimeOptions { orchestration_concurrency: 0, ..Default::default() };
    let worker = world.start_with(echo(), orchestrations(), options).await;
    assert_eq!(world.output("i").await, "right");
    worker.shutdown(None).await;
    runtime.shutdown(None).await;
}

// semantics: ACT-11
#[tokio::test]
async fn an_activity_of_an_instance_that_ended_first_never_runs() {
    let world = World::new();
    let stage = Stage::default();
    let work = activities().register("Work", stage.naming_instances());
    let code = || {
        orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Work", "").await
        })
    };
    let options = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let turns = world.start_with(activities(), code(), options).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await;
    world.client.cancel_instance("i", "no longer needed").await.unwrap();
    world.end("i").await;
    assert_eq!(world.client.get_queue_depths().await.unwrap().worker_queue, 0);
    let both = world.start(work, code()).await;
    world.run("j", "One", "").await;
    assert_eq!(stage.log(), ["j"]);
    turns.shutdown(None).await;
    both.shutdown(None).await;
}

#[tokio::test]
async fn a_result_that_meets_a_passing_error_is_offered_again_and_no_error_is_counted() {
    let (world, faulty) = faulty_world();
    let code = orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Echo", "in").await
    });
    let runtime = world.start(echo(), code).await;
    faulty.fail(Call::AckWork, [ProviderError::retryable("ack_work_item", "down")]);
    world.client.start_orchestration("i", "One", "").await.unwrap();
    world.end_in_time("i", Duration::from_millis(50)).await;
    assert_eq!((faulty.abandoned_work(), faulty.count(Call::AckWork)), (vec![], 2));
    let metrics = runtime.metrics_snapshot().unwrap();
    assert_eq!((metrics.activity_infra_errors, metrics.activity_success), (0, 1));
    runtime.shutdown(None).await;
}

// semantics: ACT-8
#[tokio::test]
async fn a_token_tells_tasks_that_an_activity_spawned() {
    let world = World::new();
    let stage = Stage::default();
    let reporter = stage.clone();
    let work = activities().register("Work", move |ctx: ActivityContext, _: String| {
        let (stage, token) = (reporter.clone(), ctx.cancellation_token());
        tokio::spawn(async move {
            stage.report("spawned");
            token.cancelled().await;
            stage.report("told");
        });
        async move {
            ctx.cancelled().await;
            Ok(String::new())
        }
    });
    let code = orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Work", "").await
    });
    let runtime = world.start(work, code).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    stage.seen("spawned", 1).await;
    world.client.cancel_instance("i", "stop").await.unwrap();
    stage.seen("told", 1).await;
    runtime.shutdown(None).await;
}

// semantics: FAIL-6
#[tokio::test]
async fn an_unregistered_activity_is_logged_with_its_delay_and_the_attempts_that_are_left() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let code = orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Nobody", "").await
    });
    let runtime = world.start_with(activities(), code, few_attempts(2)).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    world.end_in_time("i", Duration::from_millis(100)).await;
    let texts: Vec<_> =
        logs.with("Activity not registered").into_iter().map(|line| (line.level, line.message)).collect();
    let text = |seconds, left| {
        let text = format!(
            "Activity not registered, abandoning with {seconds}s backoff (will poison in {left} more attempts)"
        );
        (tracing::Level::WARN, text)
    };
    assert_eq!(texts, [text("0.1", 2), text("0.2", 1)]);
    runtime.shutdown(None).await;
}

/// Runs two steps on a session, one before and one after a continuation.
fn session_over_continuation() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Session", |ctx: OrchestrationContext, input: String| async move {
        let node = ctx.schedule_activity_on_session("Where", &input, "session").await?;
        if input.is_empty() { ctx.continue_as_new(node).await } else { Ok(format!("{input} {node}")) }
    })
}

// semantics: SESS-3
#[tokio::test]
async fn a_session_stays_where_it_is_over_a_continuation() {
    let world = World::new();
    let place = || {
        activities().register("Where", |ctx: ActivityContext, _: String| async move {
            Ok(ctx.worker_id().rsplit('-').next().unwrap().to_string())
        })
    };
    let node = |id: &str| RuntimeOptions { worker_node_id: Some(id.into()), ..Default::default() };
    let first = world.start_with(place(), session_over_continuation(), node("north")).await;
    let second = world.start_with(place(), session_over_continuation(), node("south")).await;
    for instance in ["a", "b", "c"] {
        world.client.start_orchestration(instance, "Session", "").await.unwrap();
    }
    let mut nodes = BTreeSet::new();
    for instance in ["a", "b", "c"] {
        let output = world.output(instance).await;
        nodes.extend(output.split(' ').map(str::to_string));
    }
    assert_eq!(nodes.len(), 1, "one session, one node: {nodes:?}");
    first.shutdown(None).await;
    second.shutdown(None).await;
}

// semantics: SESS-5
#[tokio::test]
async fn two_runtimes_split_sessions_and_each_session_lives_on_one_of_them() {
    let world = World::new();
    let seen: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>> = Arc::default();
    let stage = Stage::default();
    let step = |node: &'static str| {
        let (seen, stage) = (seen.clone(), stage.clone());
        activities().register("Step", move |ctx: ActivityContext, _: String| {
            let (seen, stage) = (seen.clone(), stage.clone());
            async move {
                let session = ctx.session_id().unwrap().to_string();
                let first = {
                    let mut seen = seen.lock().unwrap();
                    let nodes = seen.entry(session.clone()).or_default();
                    let first = nodes.is_empty();
                    nodes.insert(node.to_string());
                    first
                };
                if first {
                    stage.report("first");
                    // Both sessions are open at once, and a runtime has room for one.
                    stage.wait().await;
                }
                Ok(session)
            }
        })
    };
    let code = || {
        orchestrations().register("Steps", |ctx: OrchestrationContext, session: String| async move {
            for _ in 0..4 {
                ctx.schedule_activity_on_session("Step", "", &session).await?;
            }
            Ok(session)
        })
    };
    let node = |id: &str| RuntimeOptions {
        worker_node_id: Some(id.into()),
        max_sessions_per_runtime: 1,
        ..Default::default()
    };
    let north = world.start_with(step("north"), code(), node("north")).await;
    let south = world.start_with(step("south"), code(), node("south")).await;
    world.client.start_orchestration("a", "Steps", "one").await.unwrap();
    world.client.start_orchestration("b", "Steps", "two").await.unwrap();
    stage.seen("first", 2).await;
    stage.let_go();
    stage.let_go();
    while stage.log().len() < 2 {
        tokio::task::yield_now().await;
    }
    tokio::join!(
        async {
            world.output("a").await;
            stage.let_go();
        },
        async {
            world.output("b").await;
            stage.let_go();
        }
    );
    let seen = seen.lock().unwrap().clone();
    let nodes: Vec<_> = seen.values().map(|nodes| nodes.iter().cloned().collect::<Vec<_>>()).collect();
    assert!(nodes == [["north"], ["south"]] || nodes == [["south"], ["north"]], "{seen:?}");
    north.shutdown(None).await;
    south.shutdown(None).await;
}

// semantics: SESS-6
#[tokio::test]
async fn sessions_that_nobody_uses_are_swept_at_the_interval_of_the_options() {
    let (world, faulty) = faulty_world();
    let options = RuntimeOptions { session_cleanup_interval: Duration::from_secs(60), ..Default::default() };
    let code = orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity_on_session("Echo", "in", "session").await
    });
    let runtime = world.start_with(echo(), code, options).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    world.output("i").await;
    for sweeps in 1..=3 {
        while faulty.count(Call::SweepSessions) < sweeps {
            world.clock.advance(Duration::from_secs(20));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    }
    runtime.shutdown(None).await;
}

// semantics: TAG-2
#[tokio::test]
async fn a_tagged_activity_without_a_worker_loses_against_a_timer_and_is_cancelled() {
    let world = World::new();
    let code = orchestrations().register("Gpu", |ctx: OrchestrationContext, _: String| async move {
        let work = ctx.schedule_activity("Echo", "").with_tag("gpu");
        let timer = ctx.schedule_timer(Duration::from_secs(5));
        match ctx.select2(work, timer).await {
            Either2::First(result) => result,
            Either2::Second(()) => Ok("timeout:no_gpu_worker".to_string()),
        }
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("i", "Gpu", "").await.unwrap();
    world.pass("i", Duration::from_secs(5)).await;
    assert_eq!(world.output("i").await, "timeout:no_gpu_worker");
    assert!(kinds(&world.history("i").await).contains(&"ActivityCancelRequested"));
    assert_eq!(world.client.get_queue_depths().await.unwrap().worker_queue, 0);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_workflow_of_one_activity_takes_less_than_half_a_second_with_default_options() {
    let store = Arc::new(MemoryProvider::new());
    let code = orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Echo", "in").await
    });
    let runtime = Runtime::start_with_store(store.clone(), echo().build(), code.build()).await;
    let client = Client::new(store);
    client.start_orchestration("i", "One", "").await.unwrap();
    let status = client.wait_for_orchestration("i", Duration::from_millis(500)).await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { .. }));
    runtime.shutdown(None).await;
}

// semantics: ACT-15
#[tokio::test]
async fn recorded_ids_and_times_can_be_inputs_of_other_steps_in_every_replay() {
    let world = World::new();
    let code = orchestrations().register("Uses", |ctx: OrchestrationContext, _: String| async move {
        let guid = ctx.new_guid().await?;
        let same = ctx.schedule_activity("Echo", &guid).await?;
        let other = ctx.new_guid().await?;
        let now = ctx.utc_now().await?.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let echoed = ctx.schedule_activity("Echo", now.to_string()).await?;
        Ok(format!("{} {} {}", guid == same, guid == other, echoed == now.to_string()))
    });
    let options = RuntimeOptions { resident_instances: 0, ..Default::default() };
    let runtime = world.start_with(echo(), code, options).await;
    world.client.start_orchestration("i", "Uses", "").await.unwrap();
    assert_eq!(world.output("i").await, "true false true");
    runtime.shutdown(None).await;
}

// semantics: MGMT-3
#[tokio::test]
async fn an_instance_that_is_deleted_by_force_disturbs_nobody() {
    let world = World::new();
    let stage = Stage::default();
    let work = echo().register(
        "Work",
        stage.activity(|stage, _, _| async move {
            stage.report("running");
            stage.wait().await;
            Ok(String::new())
        }),
    );
    let code = orchestrations()
        .register("Work", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Work", "").await
        })
        .register("Timer", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_timer(Duration::from_secs(10)).await;
            Ok(String::new())
        })
        .register(
            "Wait",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .register("Echo", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Echo", "fine").await
        });
    let runtime = world.start(work, code).await;
    for name in ["Work", "Timer", "Wait"] {
        world.client.start_orchestration(name, name, "").await.unwrap();
        world.recorded(name, |kind| !matches!(kind, EventKind::OrchestrationStarted { .. })).await;
    }
    stage.seen("running", 1).await;
    for name in ["Work", "Timer", "Wait"] {
        world.client.delete_instance(name, true).await.unwrap();
    }
    // A message on its way reaches no instance.
    stage.let_go();
    world.clock.advance(Duration::from_secs(10));
    world.client.raise_event("Wait", "go", "").await.unwrap();
    for number in 0..5 {
        let instance = format!("later-{number}");
        world.client.start_orchestration(&instance, "Echo", "").await.unwrap();
        assert_eq!(world.output(&instance).await, "fine");
    }
    for name in ["Work", "Timer", "Wait"] {
        let status = world.client.get_orchestration_status(name).await.unwrap();
        assert_eq!(status, OrchestrationStatus::NotFound);
    }
    // The ids are free again.
    world.client.start_orchestration("Wait", "Echo", "").await.unwrap();
    assert_eq!(world.output("Wait").await, "fine");
    runtime.shutdown(None).await;
}
