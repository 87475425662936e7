//! A store that offers the documented contract and nothing more: the runtime polls it and loads whole histories, and
//! works just as correctly.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ProviderError, WorkItem};
use duroxide::{
    Either2, ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus, PoisonMessageType,
    RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::{
    SOON, Stage, activities, echo, few_attempts, kinds, orchestrations, output, plain_world,
};

fn quick() -> RuntimeOptions {
    RuntimeOptions { dispatcher_min_poll_interval: Duration::from_millis(1), ..Default::default() }
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
    let work = stage.until_cancelled();
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

// semantics: SESS-5
#[tokio::test]
async fn of_two_slots_that_race_past_the_cap_the_later_puts_its_session_back_without_counting_an_attempt() {
    let (world, faulty) = plain_world();
    let stage = Stage::default();
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report("running");
        stage.wait().await;
        Ok(format!("attempt {}", ctx.attempt()))
    });
    let both = orchestrations().register("Both", |ctx: OrchestrationContext, _: String| async move {
        let on = |session: &str| ctx.schedule_activity_on_session("Work", "", session);
        let (a, b) = ctx.join2(on("a"), on("b")).await;
        Ok(format!("{}, {}", a?, b?))
    });
    // Both slots see room for a session before either has one.
    let fetches = faulty.hold(Call::FetchWork);
    let options = RuntimeOptions { max_sessions_per_runtime: 1, ..quick() };
    let runtime = world.start_with(activities().register("Work", work), both, options).await;
    while faulty.count(Call::FetchWork) < 2 {
        tokio::task::yield_now().await;
    }
    world.client.start_orchestration("i", "Both", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await;
    faulty.release(Call::FetchWork);
    fetches.add_permits(2);
    stage.seen("running", 1).await;
    while faulty.abandoned_work().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(faulty.abandoned_work(), [(Some(Duration::from_millis(100)), true)]);
    stage.let_go();
    stage.seen("running", 2).await;
    stage.let_go();
    assert_eq!(world.output("i").await, "attempt 1, attempt 1");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn only_a_free_slot_asks_for_an_activity() {
    let (world, faulty) = plain_world();
    let stage = Stage::default();
    let work = stage.activity(|stage, _, _| async move {
        stage.report("running");
        stage.wait().await;
        Ok(String::new())
    });
    let three = steps().register("Three", |ctx: OrchestrationContext, _: String| async move {
        let works: Vec<_> = (0..3).map(|_| ctx.schedule_activity("Work", "")).collect();
        ctx.join(works).await.into_iter().collect::<Result<Vec<_>, _>>().map(|all| all.concat())
    });
    let runtime = world.start_with(activities().register("Work", work), three, quick()).await;
    world.client.start_orchestration("i", "Three", "").await.unwrap();
    stage.seen("running", 2).await;
    let fetches = faulty.count(Call::FetchWork);
    assert_eq!(output(world.run("j", "Echo", "turns go on").await), "turns go on");
    assert_eq!(faulty.count(Call::FetchWork), fetches, "both slots are in use");
    for running in 3..=5 {
        stage.let_go();
        stage.seen("running", running.min(3)).await;
    }
    assert_eq!(world.output("i").await, "");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_stray_item_is_put_aside_longer_each_time_and_then_dropped() {
    let (world, faulty) = plain_world();
    let stray = WorkItem::CancelInstance { instance: "x".into(), reason: "lost its way".into() };
    faulty.inject_work((1..=3).map(|attempt| (stray.clone(), attempt)));
    let options =
        RuntimeOptions { dispatcher_min_poll_interval: Duration::from_millis(1), ..few_attempts(2) };
    let runtime = world.start_with(echo(), steps(), options).await;
    assert_eq!(output(world.run("i", "Echo", "fine").await), "fine");
    let put_aside = |ms| (Some(Duration::from_millis(ms)), false);
    while faulty.count(Call::AckWork) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(faulty.abandoned_work(), [put_aside(100), put_aside(200)]);
    runtime.shutdown(None).await;
}
