//! Which turns the turn check takes twice: those on the short path too, and those that are stored together.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};

use duroxide::OrchestrationContext;
use duroxide::runtime::TurnCheck;
use duroxide::testing::{Mock, TestEnv};

/// Never the same twice.
fn tick() -> String {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    TICKS.fetch_add(1, Ordering::SeqCst).to_string()
}

/// Why `instance` is blocked, when `Case` has been started. `Child` ends at once, with or without a tick of its own.
async fn blocked<F, Fut>(instance: &str, case: F) -> String
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    let steady = |_: OrchestrationContext, input: String| async move { Ok(input) };
    let undetermined = |_: OrchestrationContext, _: String| async move { Ok(tick()) };
    let slow = |ctx: OrchestrationContext, _: String| async move { ctx.schedule_activity("A", "").await };
    let env = TestEnv::builder()
        .orchestration("Case", case)
        .orchestration("Steady", steady)
        .orchestration("Slow", slow)
        .orchestration("Undetermined", undetermined)
        .mock("A", Mock::returns("a"))
        .start()
        .await;
    env.start("case", "Case", "first").await;
    let end = env.end(instance).await;
    end.map(|status| panic!("it was not caught: {status:?}")).unwrap_err()
}

const TWICE: &str = "does not decide alike";

// semantics: CHECK-1
#[tokio::test]
async fn a_turn_of_an_instance_with_values_is_taken_twice() {
    let why = blocked("case", |ctx, _| async move {
        ctx.set_kv_value("key", "value");
        ctx.schedule_activity("A", "").await?;
        Ok(tick())
    });
    assert!(why.await.contains(TWICE));
}

// semantics: CHECK-1
#[tokio::test]
async fn a_turn_after_values_of_earlier_executions_is_taken_twice_from_those_values() {
    let why = blocked("case", |ctx, input| async move {
        let count = ctx.get_kv_value("count").unwrap_or_default();
        ctx.set_kv_value("count", format!("{count}+"));
        ctx.schedule_activity("A", count.clone()).await?;
        match count.len() {
            3 => Ok(tick()),
            _ => ctx.continue_as_new(input).await,
        }
    });
    let why = why.await;
    assert!(why.contains(TWICE), "{why}");
}

// semantics: CHECK-1
#[tokio::test]
async fn the_first_turn_of_the_next_execution_is_taken_twice() {
    let why = blocked("case", |ctx, input| async move {
        if input == "second" {
            return Ok(tick());
        }
        ctx.schedule_activity("A", "").await?;
        ctx.continue_as_new("second").await
    });
    assert!(why.await.contains(TWICE));
}

// semantics: CHECK-1
#[tokio::test]
async fn the_first_turn_of_a_child_is_taken_twice() {
    let why = blocked("child", |ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        ctx.schedule_sub_orchestration_with_id("Undetermined", "child", "").await
    });
    assert!(why.await.contains(TWICE));
}

// semantics: CHECK-1
#[tokio::test]
async fn a_turn_after_the_result_of_a_child_is_taken_twice() {
    for child in ["Steady", "Slow"] {
        let why = blocked("case", move |ctx, _| async move {
            ctx.set_kv_value("key", "value");
            ctx.schedule_activity("A", "").await?;
            ctx.set_kv_value("key", "another");
            ctx.schedule_sub_orchestration(child, "").await?;
            Ok(tick())
        });
        let why = why.await;
        assert!(why.contains(TWICE), "{child}: {why}");
    }
}

// semantics: CHECK-1
#[tokio::test]
async fn what_a_sampled_check_finds_without_a_lease_blocks_the_instance() {
    let case = |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("A", "").await?;
        Ok(tick())
    };
    // The turn of `Other` is sampled, the first one of `Case` is not, and its second one is, which comes with a result.
    let other = |_: OrchestrationContext, input: String| async move { Ok(input) };
    let env = TestEnv::builder()
        .orchestration("Case", case)
        .orchestration("Other", other)
        .mock("A", Mock::returns("a"))
        .options(|options| options.turn_check = TurnCheck::OneIn(2))
        .start()
        .await;
    env.start("other", "Other", "").await;
    env.output("other").await;
    env.start("case", "Case", "").await;
    let why = env.end("case").await.map(|status| format!("{status:?}")).unwrap_err();
    assert!(why.contains(TWICE), "{why}");
}

// semantics: BLOCK-2
#[tokio::test]
async fn code_that_waits_for_something_foreign_after_a_child_is_blocked() {
    for child in ["Steady", "Slow"] {
        let why = blocked("case", move |ctx, _| async move {
            ctx.schedule_activity("A", "").await?;
            ctx.schedule_sub_orchestration(child, "").await?;
            let (_held, comes) = tokio::sync::oneshot::channel::<()>();
            comes.await.map_err(|error| error.to_string())?;
            Ok("done".to_string())
        });
        let why = why.await;
        assert!(why.contains("foreign wait"), "{child}: {why}");
    }
}

// semantics: CHECK-1
#[tokio::test]
async fn sound_code_with_values_children_and_executions_raises_no_alarm() {
    let case = |ctx: OrchestrationContext, input: String| async move {
        let count = ctx.get_kv_value("count").unwrap_or_default();
        ctx.set_kv_value("count", format!("{count}+"));
        ctx.schedule_activity("A", count.clone()).await?;
        let child = ctx.schedule_sub_orchestration("Child", count.clone()).await?;
        ctx.set_kv_value("child", child);
        ctx.prune_kv_values_updated_before(0);
        match count.len() {
            3 => Ok(format!("{:?}", ctx.get_kv_all_values_sorted())),
            _ => ctx.continue_as_new(input).await,
        }
    };
    let child = |ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_activity("A", "").await?;
        Ok(input)
    };
    let builder = TestEnv::builder()
        .orchestration("Case", case)
        .orchestration("Child", child)
        .mock("A", Mock::returns("a"));
    for residents in [false, true] {
        let env = builder.clone().options(|options| options.check_residents = residents).start().await;
        env.start("case", "Case", "").await;
        let output = env.output("case").await;
        assert!(output.contains(r#""count": "++++""#) && output.contains(r#""child": "+++""#), "{output}");
    }
}
