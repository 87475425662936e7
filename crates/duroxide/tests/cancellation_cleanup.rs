//! Cancellation that the code hears of: cleanup, reasons, grace periods.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use duroxide::testing::{Mock, TestEnv, TestEnvBuilder, crash_everywhere};
use duroxide::{Either2, OrchestrationContext};

const MINUTE: Duration = Duration::from_secs(60);

async fn order(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    let (ctx, order) = (&ctx, &order);
    ctx.saga(|saga| async move {
        ctx.schedule_activity("Reserve", order).await?;
        saga.defer("Release", order);
        let receipt = ctx.schedule_activity("Charge", order).await?;
        saga.defer("Refund", receipt);
        ctx.schedule_wait("Packed").await;
        ctx.schedule_activity("Ship", order).await
    })
    .await
}

fn shop() -> TestEnvBuilder {
    let echo = || Mock::with(Ok);
    TestEnv::builder()
        .orchestration("Order", order)
        .mock("Reserve", echo())
        .mock("Release", echo())
        .mock("Charge", Mock::returns("receipt"))
        .mock("Refund", echo())
        .mock("Ship", Mock::returns("shipped"))
}

fn undone(env: &TestEnv) -> Vec<String> {
    let calls =
        env.all_calls().into_iter().filter(|call| ["Release", "Refund"].contains(&call.name.as_str()));
    calls.map(|call| format!("{} {}", call.name, call.input)).collect()
}

// semantics: CANCEL-8
#[tokio::test]
async fn a_cancelled_order_is_undone_in_reverse_and_ends_as_cancelled() {
    let env = shop().start().await;
    env.start("o", "Order", "book").await;
    env.after(MINUTE, |client| async move {
        client.cancel("o").reason("changed my mind").await.unwrap();
    });
    let failure = env.failure("o").await;
    assert!(failure.contains("changed my mind"), "{failure}");
    assert_eq!(undone(&env), ["Refund receipt", "Release book"]);
    assert!(env.calls("Ship").is_empty());
}

// semantics: CANCEL-8
#[tokio::test]
async fn the_published_call_to_cancel_is_heard_too() {
    let env = shop().start().await;
    env.start("o", "Order", "book").await;
    env.settle().await;
    env.client().cancel_instance("o", "no").await.unwrap();
    // A second request does not end the cleanup.
    env.client().cancel_instance("o", "no, really").await.unwrap();
    let failure = env.failure("o").await;
    assert!(failure.contains("no") && !failure.contains("really"), "{failure}");
    assert_eq!(undone(&env).len(), 2);
}

// semantics: CANCEL-8
#[tokio::test]
async fn an_error_and_a_panic_are_undone_and_success_is_not() {
    let env = shop().mock("Ship", Mock::fails("no lorry")).start().await;
    env.start("o", "Order", "book").await;
    env.raise_after(MINUTE, "o", "Packed", "");
    assert_eq!(env.failure("o").await, "no lorry");
    assert_eq!(undone(&env).len(), 2);

    let env = shop().start().await;
    env.start("o", "Order", "book").await;
    env.raise_after(MINUTE, "o", "Packed", "");
    assert_eq!(env.output("o").await, "shipped");
    assert!(undone(&env).is_empty());

    let env = shop()
        .orchestration("Panics", |ctx: OrchestrationContext, _: String| async move {
            let ctx = &ctx;
            ctx.saga(|saga| async move {
                saga.defer("Release", "all");
                ctx.schedule_activity("Reserve", "").await?;
                panic!("boom");
            })
            .await
        })
        .start()
        .await;
    env.start("p", "Panics", "").await;
    let failure = env.failure("p").await;
    assert!(failure.contains("boom"), "{failure}");
    assert_eq!(undone(&env), ["Release all"]);
}

// semantics: CANCEL-8
#[tokio::test]
async fn cleanup_survives_a_crash_everywhere() {
    let cancel = async |env: &TestEnv| {
        env.start("o", "Order", "book").await;
        env.after(MINUTE, |client| async move {
            client.cancel("o").reason("no").grace(60 * MINUTE).await.unwrap();
        });
        env.failure("o").await
    };
    crash_everywhere(shop, cancel).await.unwrap();
}

// semantics: CANCEL-9
#[tokio::test]
async fn cleanup_that_outlasts_its_grace_period_is_ended() {
    let env = shop().mock("Refund", Mock::never()).start().await;
    env.start("o", "Order", "book").await;
    env.settle().await;
    env.client().cancel("o").reason("no").grace(5 * MINUTE).await.unwrap();
    let failure = env.failure("o").await;
    assert!(failure.contains("no"), "{failure}");
    assert_eq!(env.elapsed(), 5 * MINUTE);
    assert!(env.calls("Release").is_empty());
}

// semantics: CANCEL-9
#[tokio::test]
async fn no_grace_at_all_ends_an_instance_at_once() {
    let env = shop().start().await;
    env.start("o", "Order", "book").await;
    env.settle().await;
    env.client().cancel("o").reason("now").grace(Duration::ZERO).await.unwrap();
    let failure = env.failure("o").await;
    assert!(failure.contains("now"), "{failure}");
    assert!(undone(&env).is_empty());
}

// semantics: CANCEL-10
#[tokio::test]
async fn a_cancellation_can_be_awaited_and_refused() {
    let env = TestEnv::builder()
        .orchestration("Stubborn", |ctx: OrchestrationContext, _: String| async move {
            match ctx.select2(ctx.schedule_timer(10 * MINUTE), ctx.cancelled()).await {
                Either2::First(()) => Ok("in peace".to_string()),
                Either2::Second(cancellation) => Ok(format!("asked to go: {}", cancellation.reason)),
            }
        })
        .orchestration("Deaf", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_timer(10 * MINUTE).await;
            Ok("in peace".to_string())
        })
        .start()
        .await;
    env.start("s", "Stubborn", "").await;
    env.start("d", "Deaf", "").await;
    env.settle().await;
    env.client().cancel("s").reason("please").await.unwrap();
    env.client().cancel("d").reason("please").await.unwrap();
    assert_eq!(env.output("s").await, "asked to go: please");
    assert!(env.failure("d").await.contains("please"));
    assert_eq!(env.elapsed(), Duration::ZERO);
}

// semantics: CANCEL-10
#[tokio::test]
async fn an_instance_that_waits_for_its_cancellation_alone_is_not_blocked() {
    let env = TestEnv::builder()
        .orchestration("Server", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.cancelled().await.reason)
        })
        .start()
        .await;
    env.start("s", "Server", "").await;
    env.after(MINUTE, |client| async move { client.cancel("s").reason("over").await.unwrap() });
    assert_eq!(env.output("s").await, "over");
}

// semantics: CANCEL-8
#[tokio::test]
async fn a_child_of_a_cancelled_scope_is_cancelled_and_cleans_up_itself() {
    let env = shop()
        .orchestration("Parent", |ctx: OrchestrationContext, _: String| async move {
            let ctx = &ctx;
            ctx.saga(|saga| async move {
                saga.defer("Release", "parent");
                ctx.schedule_sub_orchestration_with_id("Order", "child", "book").await
            })
            .await
        })
        .start()
        .await;
    env.start("p", "Parent", "").await;
    env.settle().await;
    env.client().cancel("p").reason("all of it").await.unwrap();
    assert!(env.failure("p").await.contains("all of it"));
    env.settle().await;
    assert!(undone(&env).contains(&"Refund receipt".to_string()), "{:?}", undone(&env));
    assert!(undone(&env).contains(&"Release parent".to_string()), "{:?}", undone(&env));
}
