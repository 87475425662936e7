//! What becomes of a child whose parent gives it up, as the parent's code decides.
#![cfg(all(feature = "testing", feature = "macros"))]

use duroxide::prelude::*;
use duroxide::testing::{TestEnv, TestEnvBuilder, crash_everywhere};
use duroxide::{InstanceState, OnCancel};

/// Takes an hour.
#[orchestration]
async fn transfer(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
    ctx.timer(hours(1)).await;
    Ok(cents)
}

#[orchestration]
async fn pay(ctx: OrchestrationContext, policy: String) -> Result<u64, String> {
    let on_cancel = if policy == "abandon" { OnCancel::Abandon } else { OnCancel::Cancel };
    transfer(&ctx, 300).id("transfer").on_cancel(on_cancel).await
}

#[orchestration]
async fn pay_in_a_saga(ctx: OrchestrationContext) -> Result<u64, String> {
    ctx.saga(async |_| transfer(&ctx, 300).id("transfer").on_cancel(OnCancel::Abandon).await).await
}

/// Has patience for a minute, and ends long after the child.
#[orchestration]
async fn pay_impatiently(ctx: OrchestrationContext) -> Result<String, String> {
    let paid = transfer(&ctx, 300).id("transfer").on_cancel(OnCancel::Abandon).timeout(mins(1)).await;
    ctx.timer(hours(2)).await;
    Ok(format!("{paid:?}"))
}

fn bank() -> TestEnvBuilder {
    let app = Duroxide::open("memory:").orchestration(transfer).orchestration(pay);
    TestEnv::of(app.orchestration(pay_in_a_saga).orchestration(pay_impatiently))
}

async fn cancel_in_a_minute(env: &TestEnv) {
    env.after(mins(1), |client| async move { client.cancel("p").reason("no").await.unwrap() });
    assert!(env.failure("p").await.contains("no"));
}

async fn state_of_the_child(env: &TestEnv) -> InstanceState {
    let _ = env.end("transfer").await.unwrap();
    env.client().describe("transfer", 100).await.unwrap().row.state
}

// semantics: CHILD-11
#[tokio::test]
async fn a_child_is_cancelled_with_its_parent_unless_it_was_called_to_live_on() {
    for (policy, state) in [("cancel", InstanceState::Cancelled), ("abandon", InstanceState::Completed)] {
        let env = bank().start().await;
        env.client().start(pay, "p", policy.to_string()).await.unwrap();
        cancel_in_a_minute(&env).await;
        assert_eq!(state_of_the_child(&env).await, state, "{policy}");
    }
}

// semantics: CHILD-11
#[tokio::test]
async fn a_child_that_lives_on_is_left_alone_by_a_saga_that_is_cancelled() {
    let env = bank().start().await;
    env.client().start(pay_in_a_saga, "p", ()).await.unwrap();
    cancel_in_a_minute(&env).await;
    assert_eq!(state_of_the_child(&env).await, InstanceState::Completed);
    assert_eq!(env.elapsed(), hours(1));
}

// semantics: CHILD-11
#[tokio::test]
async fn a_child_that_lives_on_survives_the_loss_of_a_race_and_its_result_disturbs_nobody() {
    let env = bank().start().await;
    env.client().start(pay_impatiently, "p", ()).await.unwrap();
    assert!(env.output("p").await.contains("Err"));
    assert_eq!(state_of_the_child(&env).await, InstanceState::Completed);
    let cancelled = |event: &duroxide::Event| {
        matches!(event.kind, duroxide::EventKind::SubOrchestrationCancelRequested { .. })
    };
    assert!(!env.history("p").await.iter().any(cancelled));
}

// semantics: CHILD-11
#[tokio::test]
async fn a_child_that_lives_on_does_so_through_a_crash_everywhere() {
    let cancelled = async |env: &TestEnv| {
        env.client().start(pay, "p", "abandon".to_string()).await.unwrap();
        cancel_in_a_minute(env).await;
        state_of_the_child(env).await
    };
    crash_everywhere(bank, cancelled).await.unwrap();
    let impatient = async |env: &TestEnv| {
        env.client().start(pay_impatiently, "p", ()).await.unwrap();
        env.output("p").await
    };
    crash_everywhere(bank, impatient).await.unwrap();
}
