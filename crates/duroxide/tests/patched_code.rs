//! Changes of an orchestration in place: `ctx.patched`.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use duroxide::testing::{Mock, TestEnv, TestEnvBuilder, crash_everywhere, replay};
use duroxide::{EventKind, OrchestrationContext, OrchestrationRegistry};

const HOUR: Duration = Duration::from_secs(3600);

async fn first(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ctx.schedule_activity("Charge", "").await?;
    ctx.schedule_timer(HOUR).await;
    ctx.schedule_activity("Ship", "").await
}

/// Reserves before it charges, and after the timer asks again.
async fn changed(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    let reserves = ctx.patched("reserve");
    if reserves {
        ctx.schedule_activity("Reserve", "").await?;
    }
    ctx.schedule_activity("Charge", "").await?;
    ctx.schedule_timer(HOUR).await;
    assert_eq!(ctx.patched("reserve"), reserves);
    ctx.schedule_activity("Ship", "").await
}

/// The change has become the only way.
async fn settled(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ctx.schedule_activity("Reserve", "").await?;
    ctx.schedule_activity("Charge", "").await?;
    ctx.schedule_timer(HOUR).await;
    ctx.schedule_activity("Ship", "").await
}

fn registry<F, Fut>(f: F) -> OrchestrationRegistry
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    OrchestrationRegistry::builder().register("Order", f).build()
}

fn shop<F, Fut>(f: F) -> TestEnvBuilder
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    let mock = || Mock::returns("ok");
    TestEnv::builder()
        .orchestrations(registry(f))
        .mock("Reserve", mock())
        .mock("Charge", mock())
        .mock("Ship", mock())
}

// semantics: PATCH-1
#[tokio::test]
async fn an_execution_from_before_the_change_goes_on_the_old_way_and_others_take_the_new() {
    let env = shop(first).start().await;
    env.start("old", "Order", "").await;
    env.settle().await;
    env.deploy(registry(changed)).await;
    env.start("new", "Order", "").await;
    assert_eq!(env.output("old").await, "ok");
    assert_eq!(env.output("new").await, "ok");
    let old = env.history("old").await;
    old.assert_steps(&["activity 'Charge'", "a timer", "activity 'Ship'"]);
    let steps =
        ["the change 'reserve'", "activity 'Reserve'", "activity 'Charge'", "a timer", "activity 'Ship'"];
    env.history("new").await.assert_steps(&steps);
}

// semantics: PATCH-1
#[tokio::test]
async fn a_change_is_recorded_as_a_system_call_that_no_worker_runs() {
    let env = shop(changed).start().await;
    env.start("o", "Order", "").await;
    env.output("o").await;
    let history = env.history("o").await;
    match (&history[1].kind, &history[2].kind) {
        (EventKind::ActivityScheduled { name, input, .. }, EventKind::ActivityCompleted { result }) => {
            assert_eq!((name.as_str(), input.as_str()), ("__duroxide_syscall:patched", "reserve"));
            assert_eq!((result.as_str(), history[2].source_event_id), ("true", Some(2)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(env.all_calls().len(), 3);
}

// semantics: PATCH-1
#[tokio::test]
async fn a_change_is_remembered_over_crashes_everywhere() {
    let buy = async |env: &TestEnv| {
        env.start("o", "Order", "").await;
        env.output("o").await;
        env.history("o").await.steps()
    };
    crash_everywhere(|| shop(changed), buy).await.unwrap();
}

// semantics: PATCH-2
#[tokio::test]
async fn the_call_can_be_removed_when_no_old_execution_is_left() {
    let env = shop(changed).start().await;
    env.start("o", "Order", "").await;
    env.settle().await;
    env.deploy(registry(settled)).await;
    assert_eq!(env.output("o").await, "ok");
    let recorded = env.history("o").await.to_json();
    assert_eq!(replay([&recorded], &registry(settled)), Ok(1));
    assert_eq!(replay([&recorded], &registry(changed)), Ok(1));
}

#[tokio::test]
async fn a_change_beside_other_requests_of_one_turn_replays_in_order() {
    let env = shop(|ctx: OrchestrationContext, _: String| async move {
        let charge = ctx.schedule_activity("Charge", "");
        let first = ctx.patched("one");
        ctx.set_custom_status("status");
        let ship = ctx.schedule_activity("Ship", "");
        let second = ctx.patched("two");
        ctx.join(vec![charge, ship]).await;
        let third = ctx.patched("three");
        ctx.schedule_timer(HOUR).await;
        Ok(format!("{first} {second} {third} {}", ctx.patched("one")))
    })
    .start()
    .await;
    env.start("o", "Order", "").await;
    env.settle().await;
    env.crash().await;
    assert_eq!(env.output("o").await, "true true true true");
}

#[tokio::test]
async fn a_change_applies_to_each_execution_for_itself() {
    let env = shop(|ctx: OrchestrationContext, round: String| async move {
        assert!(ctx.patched("x"));
        ctx.schedule_activity("Charge", "").await?;
        match round.as_str() {
            "2" => Ok("done".to_string()),
            _ => ctx.continue_as_new("2").await,
        }
    })
    .start()
    .await;
    env.start("o", "Order", "1").await;
    assert_eq!(env.output("o").await, "done");
}
