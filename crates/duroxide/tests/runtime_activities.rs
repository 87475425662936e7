//! Activities: outcomes, context, cancellation, leases, attempts, tags and sessions.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::{ProviderError, TagFilter};
use duroxide::{
    ActivityContext, Either2, ErrorDetails, EventKind, OrchestrationContext, PoisonMessageType,
    RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::{
    Stage, World, activities, details, echo, faulty_world, few_attempts, one_activity, orchestrations, output,
};

/// Runs an activity until the test raises `stop`, then gives it up and completes.
fn giving_up() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("GiveUp", |ctx: OrchestrationContext, _: String| async move {
        let work = ctx.schedule_activity("Work", "");
        let stop = ctx.schedule_wait("stop");
        match ctx.select2(work, stop).await {
            Either2::First(result) => result,
            Either2::Second(reason) => {
                ctx.schedule_wait("finish").await;
                Ok(format!("gave up: {reason}"))
            }
        }
    })
}

#[tokio::test]
async fn an_error_reaches_the_orchestration_as_its_text() {
    let world = World::new();
    let runtime = world
        .start(
            activities()
                .register("Fail", |_: ActivityContext, _: String| async move { Err("no stock".to_string()) }),
            one_activity(),
        )
        .await;
    world.client.start_orchestration("a", "One", "Fail").await.unwrap();
    assert_eq!(world.failure("a").await, "no stock");
    let failed = world.recorded("a", |kind| matches!(kind, EventKind::ActivityFailed { .. })).await;
    assert_eq!(failed.source_event_id, Some(2));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_panic_fails_the_activity_with_a_text_that_is_the_same_in_every_run() {
    let world = World::new();
    let runtime = world
        .start(
            activities()
                .register("Panic", |_: ActivityContext, _: String| async move { panic!("boom") })
                .register("Fine", |_: ActivityContext, _: String| async move { Ok("fine".to_string()) }),
            one_activity(),
        )
        .await;
    world.client.start_orchestration("a", "One", "Panic").await.unwrap();
    assert_eq!(world.failure("a").await, "activity panicked with message \"boom\"");
    world.client.start_orchestration("b", "One", "Fine").await.unwrap();
    assert_eq!(world.output("b").await, "fine");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn the_context_tells_who_runs_what_for_whom() {
    let world = World::new();
    let options = RuntimeOptions {
        worker_node_id: Some("node-7".into()),
        worker_concurrency: 1,
        worker_tag_filter: TagFilter::default_and(["gpu"]),
        ..Default::default()
    };
    let runtime = world
        .start_with(
            activities().register("Who", |ctx: ActivityContext, _: String| async move {
                Ok(format!(
                    "{} {} {}@{} {}#{} attempt {} on {} session {:?} tag {:?}",
                    ctx.instance_id(),
                    ctx.execution_id(),
                    ctx.orchestration_name(),
                    ctx.orchestration_version(),
                    ctx.activity_name(),
                    ctx.activity_id(),
                    ctx.attempt(),
                    ctx.worker_id(),
                    ctx.session_id(),
                    ctx.tag()
                ))
            }),
            orchestrations().register_versioned(
                "Ask",
                "1.2.0",
                |ctx: OrchestrationContext, _: String| async move {
                    let tagged = ctx.schedule_activity("Who", "").with_tag("gpu").await?;
                    let bound = ctx.schedule_activity_on_session("Who", "", "s-1").await?;
                    Ok(format!("{tagged}\n{bound}"))
                },
            ),
            options,
        )
        .await;
    world.client.start_orchestration("i", "Ask", "").await.unwrap();
    assert_eq!(
        world.output("i").await,
        "i 1 Ask@1.2.0 Who#2 attempt 1 on work-0-node-7 session None tag Some(\"gpu\")\n\
         i 1 Ask@1.2.0 Who#4 attempt 1 on work-0-node-7 session Some(\"s-1\") tag None"
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_finds_its_orchestration_also_in_a_runtime_that_takes_no_turns() {
    let world = World::new();
    let worker = RuntimeOptions { orchestration_concurrency: 0, ..Default::default() };
    let worker = world
        .start_with(
            activities().register("Who", |ctx: ActivityContext, _: String| async move {
                Ok(format!("{}@{}", ctx.orchestration_name(), ctx.orchestration_version()))
            }),
            orchestrations(),
            worker,
        )
        .await;
    let turns = RuntimeOptions { worker_tag_filter: TagFilter::None, ..Default::default() };
    let turns = world.start_with(activities(), one_activity(), turns).await;
    world.client.start_orchestration("i", "One", "Who").await.unwrap();
    assert_eq!(world.output("i").await, "One@1.0.0");
    worker.shutdown(None).await;
    turns.shutdown(None).await;
}

#[tokio::test]
async fn a_cancelled_activity_of_the_same_process_hears_of_it_at_once() {
    let world = World::new();
    let stage = Stage::default();
    let work = stage.until_cancelled();
    let runtime = world.start(activities().register("Work", work), giving_up()).await;
    world.client.start_orchestration("i", "GiveUp", "").await.unwrap();
    stage.seen("running", 1).await;
    world.client.raise_event("i", "stop", "enough").await.unwrap();
    // No time passes: no lease was renewed.
    stage.seen("cancelled", 1).await;
    world.client.raise_event("i", "finish", "").await.unwrap();
    assert_eq!(world.output("i").await, "gave up: enough");
    let history = world.history("i").await;
    assert!(!history.iter().any(|event| matches!(event.kind, EventKind::ActivityCompleted { .. })));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_cancelled_activity_of_another_runtime_on_the_same_store_hears_of_it_at_once() {
    let world = World::new();
    let stage = Stage::default();
    let work = stage.until_cancelled();
    let worker = RuntimeOptions { orchestration_concurrency: 0, ..Default::default() };
    let worker = world.start_with(activities().register("Work", work), orchestrations(), worker).await;
    let turns = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let turns = world.start_with(activities(), giving_up(), turns).await;
    world.client.start_orchestration("i", "GiveUp", "").await.unwrap();
    stage.seen("running", 1).await;
    world.client.cancel_instance("i", "changed my mind").await.unwrap();
    stage.seen("cancelled", 1).await;
    assert_eq!(world.failure("i").await, "canceled: changed my mind");
    worker.shutdown(None).await;
    turns.shutdown(None).await;
}

#[tokio::test]
async fn a_cancelled_activity_that_does_not_listen_is_aborted_after_the_grace_period() {
    let world = World::new();
    let stage = Stage::default();
    let work = stage.activity(|stage, _, _| async move {
        struct OnDrop(Stage);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.report("aborted");
            }
        }
        let _on_drop = OnDrop(stage.clone());
        stage.report("running");
        std::future::pending::<()>().await;
        Ok(String::new())
    });
    let options = RuntimeOptions {
        activity_cancellation_grace_period: Duration::from_millis(500),
        ..Default::default()
    };
    let runtime = world.start_with(activities().register("Work", work), giving_up(), options).await;
    world.client.start_orchestration("i", "GiveUp", "").await.unwrap();
    stage.seen("running", 1).await;
    world.client.cancel_instance("i", "stop").await.unwrap();
    world.end("i").await;
    // The commit that the end waited for tells the activity; its grace begins soon after.
    loop {
        tokio::task::yield_now().await;
        world.clock.advance(Duration::from_millis(500));
        if stage.log().contains(&"aborted".to_string()) {
            break;
        }
    }
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_retryable_renewal_error_does_not_cancel_a_running_activity() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report("running");
        stage.wait().await;
        Ok(format!("cancelled: {}", ctx.is_cancelled()))
    });
    let runtime = world.start(activities().register("Work", work), giving_up()).await;
    faulty.fail(Call::RenewWork, vec![ProviderError::retryable("renew_work_item_lock", "busy"); 3]);
    world.client.start_orchestration("i", "GiveUp", "").await.unwrap();
    stage.seen("running", 1).await;
    // The lease lasts 30 seconds and is renewed after 15. Three attempts fail; the fourth is in time.
    while faulty.count(Call::RenewWork) < 4 {
        world.clock.advance(Duration::from_millis(500));
        tokio::task::yield_now().await;
    }
    stage.let_go();
    assert_eq!(world.output("i").await, "cancelled: false");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_long_activity_keeps_its_lease_and_runs_once() {
    let world = World::new();
    let stage = Stage::default();
    let work = stage.activity(|stage, _, _| async move {
        stage.report("running");
        stage.wait().await;
        Ok("once".to_string())
    });
    // A lease of less than two seconds, which the documented rule would renew too late.
    let options = RuntimeOptions { worker_lock_timeout: Duration::from_millis(900), ..Default::default() };
    let runtime = world.start_with(activities().register("Work", work), one_activity(), options).await;
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("running", 1).await;
    for _ in 0..100 {
        world.clock.advance(Duration::from_millis(100));
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
    stage.let_go();
    assert_eq!(world.output("i").await, "once");
    assert_eq!(stage.log(), ["running"]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_finished_activity_frees_its_slot_while_its_result_is_being_stored() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let work = stage.activity(|stage, _, input| async move {
        stage.report(input);
        Ok(String::new())
    });
    let both = orchestrations().register("Both", |ctx: OrchestrationContext, _: String| async move {
        let (a, b) = ctx.join2(ctx.schedule_activity("Work", "a"), ctx.schedule_activity("Work", "b")).await;
        Ok(format!("{a:?}{b:?}"))
    });
    let gate = faulty.hold(Call::AckWork);
    let options = RuntimeOptions { worker_concurrency: 1, ..Default::default() };
    let runtime = world.start_with(activities().register("Work", work), both, options).await;
    world.client.start_orchestration("i", "Both", "").await.unwrap();
    // No result can be stored yet, and there is one slot; still both run.
    stage.seen("a", 1).await;
    stage.seen("b", 1).await;
    gate.add_permits(2);
    world.output("i").await;
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_unregistered_activity_waits_for_a_runtime_that_knows_it() {
    let world = World::new();
    let ignorant = world.start(activities(), one_activity()).await;
    world.client.start_orchestration("i", "One", "New").await.unwrap();
    // The runtime gives the first delivery back for a second; then the attempt count decides.
    while world.client.get_queue_depths().await.unwrap().worker_queue == 0 {
        tokio::task::yield_now().await;
    }
    ignorant.shutdown(None).await;
    let knowing = world
        .start(
            activities().register("New", |ctx: ActivityContext, _: String| async move {
                Ok(format!("attempt {}", ctx.attempt()))
            }),
            one_activity(),
        )
        .await;
    let status = world.end_in_time("i", Duration::from_millis(250)).await;
    assert_eq!(output(status), "attempt 2");
    knowing.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_that_nobody_knows_is_poisoned_and_fails_the_orchestration() {
    let world = World::new();
    let runtime = world.start_with(activities(), one_activity(), few_attempts(3)).await;
    world.client.start_orchestration("i", "One", "Nobody").await.unwrap();
    let details = details(world.end_in_time("i", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { attempt_count, max_attempts, message_type, message } = details else {
        panic!("not poison")
    };
    assert_eq!((attempt_count, max_attempts), (4, 3));
    assert!(matches!(message_type, PoisonMessageType::Activity { activity_id: 2, .. }), "{message_type:?}");
    assert!(message.contains("Nobody"));
    let metrics = runtime.metrics_snapshot().unwrap();
    assert_eq!((metrics.activity_poison, metrics.orch_poison), (1, 1));
    runtime.shutdown(None).await;
}

fn on_session(stage: &Stage) -> duroxide::runtime::registry::ActivityRegistryBuilder {
    let stage = stage.clone();
    activities().register("Step", move |ctx: ActivityContext, _: String| {
        let stage = stage.clone();
        async move {
            let _running = stage.enter();
            stage.report(format!("begin {}", ctx.session_id().unwrap_or("-")));
            // Long enough in steps that another slot could begin, if it may.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            Ok(ctx.worker_id().to_string())
        }
    })
}

fn session_steps() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Steps", |ctx: OrchestrationContext, sessions: String| async move {
        let step = |session: &str| ctx.schedule_activity_on_session("Step", "", session);
        let workers = ctx.join(sessions.split(',').map(step).collect::<Vec<_>>()).await;
        let workers: Result<Vec<String>, String> = workers.into_iter().collect();
        Ok(workers?.join(","))
    })
}

#[tokio::test]
async fn activities_of_one_session_run_one_after_another_on_one_slot() {
    let world = World::new();
    let stage = Stage::default();
    let runtime = world.start(on_session(&stage), session_steps()).await;
    world.client.start_orchestration("i", "Steps", "s,s,s,s").await.unwrap();
    let workers = world.output("i").await;
    let workers: Vec<&str> = workers.split(',').collect();
    assert!(workers.iter().all(|worker| *worker == workers[0]), "{workers:?}");
    assert_eq!(stage.peak(), 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn slots_of_a_named_node_share_a_session() {
    let world = World::new();
    let stage = Stage::default();
    let options = RuntimeOptions { worker_node_id: Some("node".into()), ..Default::default() };
    let runtime = world.start_with(on_session(&stage), session_steps(), options).await;
    world.client.start_orchestration("i", "Steps", "s,s,s,s").await.unwrap();
    world.output("i").await;
    assert_eq!(stage.peak(), 2);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn at_the_cap_a_further_session_waits_for_its_turn() {
    let world = World::new();
    let stage = Stage::default();
    let options = RuntimeOptions { max_sessions_per_runtime: 1, ..Default::default() };
    let runtime = world.start_with(on_session(&stage), session_steps(), options).await;
    world.client.start_orchestration("i", "Steps", "a,b,a,b").await.unwrap();
    world.output("i").await;
    assert_eq!(stage.peak(), 1);
    assert_eq!(stage.log().len(), 4);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_tagged_activity_runs_where_its_tag_is_served() {
    let world = World::new();
    let who = |ctx: ActivityContext, _: String| async move { Ok(ctx.worker_id().to_string()) };
    let tagged = orchestrations().register("Tagged", |ctx: OrchestrationContext, _: String| async move {
        let gpu = ctx.schedule_activity("Who", "").with_tag("gpu");
        let plain = ctx.schedule_activity("Who", "");
        let (gpu, plain) = ctx.join2(gpu, plain).await;
        Ok(format!("{} {}", gpu?, plain?))
    });
    let node = |name: &str, filter| RuntimeOptions {
        worker_node_id: Some(name.into()),
        worker_concurrency: 1,
        worker_tag_filter: filter,
        ..Default::default()
    };
    let cpu = world
        .start_with(activities().register("Who", who), tagged, node("cpu", TagFilter::DefaultOnly))
        .await;
    let gpu = world
        .start_with(
            activities().register("Who", who),
            orchestrations(),
            RuntimeOptions { orchestration_concurrency: 0, ..node("gpu", TagFilter::tags(["gpu"])) },
        )
        .await;
    world.client.start_orchestration("i", "Tagged", "").await.unwrap();
    assert_eq!(world.output("i").await, "work-0-gpu work-0-cpu");
    cpu.shutdown(None).await;
    gpu.shutdown(None).await;
}

#[tokio::test]
async fn a_thousand_activities_in_one_join_are_fine() {
    let world = World::new();
    let runtime = world
        .start(
            echo(),
            orchestrations().register("Wide", |ctx: OrchestrationContext, count: String| async move {
                let count: usize = count.parse().unwrap();
                let all = ctx
                    .join((0..count).map(|i| ctx.schedule_activity("Echo", i.to_string())).collect())
                    .await;
                Ok(all.into_iter().filter(Result::is_ok).count().to_string())
            }),
        )
        .await;
    world.client.start_orchestration("i", "Wide", "1000").await.unwrap();
    assert_eq!(world.output("i").await, "1000");
    assert_eq!(runtime.metrics_snapshot().unwrap().activity_success, 1000);
    runtime.shutdown(None).await;
}

// semantics: FAIL-4
#[tokio::test]
async fn one_poisoned_activity_among_many_fails_the_whole_orchestration() {
    let world = World::new();
    let many = orchestrations().register("Many", |ctx: OrchestrationContext, _: String| async move {
        let names = ["Echo", "Echo", "Nobody", "Echo", "Echo"];
        let all = ctx.join(names.map(|name| ctx.schedule_activity(name, "x")).into()).await;
        Ok(format!("{all:?}"))
    });
    let runtime = world.start_with(echo(), many, few_attempts(2)).await;
    world.client.start_orchestration("i", "Many", "").await.unwrap();
    let details = details(world.end_in_time("i", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { message_type: PoisonMessageType::Activity { activity_name, .. }, .. } =
        details
    else {
        panic!("{details:?}")
    };
    assert_eq!(activity_name, "Nobody");
    let history = world.history("i").await;
    let done =
        history.iter().filter(|event| matches!(event.kind, EventKind::ActivityCompleted { .. })).count();
    assert_eq!(done, 4, "what the others gave is recorded");
    runtime.shutdown(None).await;
}
