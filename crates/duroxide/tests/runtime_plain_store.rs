//! A store that offers the documented contract and nothing more: polled, loaded in full, and just as correct.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

mod runtime_support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::ProviderError;
use duroxide::{
    ActivityContext, Either2, ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus,
    PoisonMessageType, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::{SOON, Stage, activities, kinds, orchestrations, plain_world};

fn quick() -> RuntimeOptions {
    RuntimeOptions { dispatcher_min_poll_interval: Duration::from_millis(1), ..Default::default() }
}

fn echo() -> duroxide::runtime::registry::ActivityRegistryBuilder {
    activities().register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
}

fn steps() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations()
        .register("Steps", |ctx: OrchestrationContext, input: String| async move {
            if input == "begin" {
                ctx.schedule_timer(Duration::from_millis(1)).await;
                return ctx.continue_as_new("go on").await;
            }
            let echoed = ctx.schedule_activity("Echo", input).await?;
            let child = ctx.schedule_sub_orchestration("Child", echoed).await?;
            Ok(format!("{child} {}", ctx.schedule_wait("signal").await))
        })
        .register(
            "Child",
            |_: OrchestrationContext, input: String| async move { Ok(format!("child {input}")) },
        )
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
}

#[tokio::test]
async fn orchestrations_run_on_a_store_that_must_be_polled() {
    let (world, faulty) = plain_world();
    let runtime = world.start_with(echo(), steps(), quick()).await;
    world.client.start_orchestration("i", "Steps", "begin").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.raise_event("i", "signal", "done").await.unwrap();
    assert_eq!(world.output("i").await, "child go on done");
    assert!(!world.client.has_management_capability());
    runtime.shutdown(None).await;
    assert_eq!(Arc::strong_count(&faulty), 3, "the test, the world and its client");
}

#[tokio::test]
async fn the_history_is_the_same_as_on_a_store_that_signals() {
    let histories = [true, false].map(|plain| async move {
        let world = if plain { plain_world().0 } else { runtime_support::World::new() };
        let runtime = world.start_with(echo(), steps(), quick()).await;
        world.client.start_orchestration("i", "Steps", "middle").await.unwrap();
        world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
        world.client.raise_event("i", "signal", "done").await.unwrap();
        world.output("i").await;
        runtime.shutdown(None).await;
        kinds(&world.history("i").await).join(" ")
    });
    let [plain, signalled] = histories;
    assert_eq!(plain.await, signalled.await);
}

#[tokio::test]
async fn a_fetch_that_fails_is_tried_again() {
    let (world, faulty) = plain_world();
    faulty.fail(Call::FetchTurn, [ProviderError::permanent("fetch_orchestration_item", "once")]);
    faulty.fail(Call::FetchWork, [ProviderError::permanent("fetch_work_item", "once")]);
    let runtime = world.start_with(echo(), steps(), quick()).await;
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(world.output("i").await, "fine");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn the_attempt_count_that_the_store_reports_decides() {
    let (world, faulty) = plain_world();
    faulty.report_attempts(11);
    let runtime = world.start_with(echo(), steps(), quick()).await;
    let OrchestrationStatus::Failed { details, .. } = world.run("i", "Echo", "x").await else { panic!() };
    let ErrorDetails::Poison { attempt_count: 11, max_attempts: 10, message_type, .. } = details else {
        panic!("{details:?}")
    };
    assert_eq!(message_type, PoisonMessageType::Orchestration { instance: "i".into(), execution_id: 1 });
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_cancelled_activity_hears_of_it_at_once_here_too() {
    let (world, _) = plain_world();
    let stage = Stage::default();
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report("running");
        ctx.cancelled().await;
        stage.report("cancelled");
        Ok(String::new())
    });
    let race = orchestrations().register("Race", |ctx: OrchestrationContext, _: String| async move {
        match ctx.select2(ctx.schedule_activity("Work", ""), ctx.schedule_wait("stop")).await {
            Either2::First(result) => result,
            Either2::Second(data) => Ok(data),
        }
    });
    let runtime = world.start_with(activities().register("Work", work), race, quick()).await;
    world.client.start_orchestration("i", "Race", "").await.unwrap();
    stage.seen("running", 1).await;
    world.client.raise_event("i", "stop", "stopped").await.unwrap();
    assert_eq!(world.output("i").await, "stopped");
    stage.seen("cancelled", 1).await;
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_blocked_fetch_does_not_hold_up_the_shutdown() {
    let (world, faulty) = plain_world();
    let _gates = (faulty.hold(Call::FetchTurn), faulty.hold(Call::FetchWork));
    let runtime = world.start_with(echo(), steps(), quick()).await;
    while faulty.count(Call::FetchTurn) < 2 || faulty.count(Call::FetchWork) < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::timeout(SOON, runtime.shutdown(Some(3_600_000))).await.unwrap();
}
