//! Typed activities and orchestrations: arguments, results, retries, time limits, children, continue-as-new, and that they
//! share histories with the untyped interface.

#![cfg(feature = "macros")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::typed_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use duroxide::prelude::*;
use duroxide::{AnyError, EventKind, FailureKind, RunError};
use serde::{Deserialize, Serialize};
use typed_support::on_every_store;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u32,
    items: Vec<String>,
}

impl Order {
    fn new(id: u32) -> Self {
        Self { id, items: vec!["apple".to_string()] }
    }
}

// Arguments: none, one, several, by value, by reference, with a context, with a pattern, with an output that cannot fail.

#[activity]
async fn nothing() -> Result<u32, String> {
    Ok(7)
}

#[activity]
async fn infallible(n: u32) -> u32 {
    n + 1
}

#[activity]
async fn silent(_n: u32) {}

#[activity]
async fn one(order: Order) -> Result<u32, String> {
    Ok(order.id)
}

#[activity]
async fn borrowed(order: &Order, name: &str, counts: &[u32]) -> Result<String, String> {
    Ok(format!("{} {name} {}", order.id, counts.iter().sum::<u32>()))
}

#[activity]
async fn with_context(ctx: ActivityContext, mut n: u32, (a, b): (u32, u32)) -> Result<String, String> {
    n += a * b;
    Ok(format!("{} {} {n}", ctx.activity_name(), ctx.instance_id()))
}

#[activity]
async fn context_by_reference(ctx: &ActivityContext) -> Result<String, String> {
    Ok(ctx.activity_name().to_string())
}

#[activity]
#[allow(clippy::too_many_arguments)]
async fn eight(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> Result<Vec<u8>, String> {
    Ok(vec![a, b, c, d, e, f, g, h])
}

#[orchestration]
async fn all_shapes(ctx: OrchestrationContext, order: Order) -> Result<Vec<String>, String> {
    let mut seen = vec![nothing(&ctx).await?.to_string()];
    seen.push(infallible(&ctx, 1).await?.to_string());
    silent(&ctx, 1).await?;
    seen.push(one(&ctx, order.clone()).await?.to_string());
    seen.push(borrowed(&ctx, &order, "x", &[1, 2]).await?);
    seen.push(with_context(&ctx, 1, (2, 3)).await?);
    seen.push(context_by_reference(&ctx).await?);
    seen.push(format!("{:?}", eight(&ctx, 1, 2, 3, 4, 5, 6, 7, 8).await?));
    Ok(seen)
}

#[tokio::test]
async fn arguments_of_every_shape_arrive_as_they_were() {
    on_every_store(|app| async move {
        let app = app
            .activity(nothing)
            .activity(infallible)
            .activity(silent)
            .activity(one)
            .activity(borrowed)
            .activity(with_context)
            .activity(context_by_reference)
            .activity(eight)
            .orchestration(all_shapes)
            .start()
            .await
            .unwrap();
        let seen = app.start(all_shapes, "shapes", Order::new(5)).await.unwrap().result().await.unwrap();
        assert_eq!(
            seen,
            [
                "7",
                "2",
                "5",
                "5 x 3",
                "with_context shapes 7",
                "context_by_reference",
                "[1, 2, 3, 4, 5, 6, 7, 8]"
            ]
        );
        app.shutdown().await;
    })
    .await;
}

// Texts that look like something else.

#[activity]
async fn echo(text: String) -> Result<String, String> {
    Ok(text)
}

#[activity]
async fn echo_option(text: Option<String>) -> Result<Option<String>, String> {
    Ok(text)
}

#[orchestration]
async fn echoes(ctx: OrchestrationContext, text: String) -> Result<(String, Option<String>), String> {
    Ok((echo(&ctx, text.clone()).await?, echo_option(&ctx, Some(text)).await?))
}

#[tokio::test]
async fn a_text_crosses_whatever_it_looks_like() {
    on_every_store(|app| async move {
        let app = app.activity(echo).activity(echo_option).orchestration(echoes).start().await.unwrap();
        let texts = ["", "plain", "42", "null", "\"quoted\"", "{\"a\":1}", "grüße\n\u{1e}"];
        for (at, text) in texts.into_iter().enumerate() {
            let echoed = app.start(echoes, format!("e{at}"), text.to_string()).await.unwrap();
            assert_eq!(echoed.result().await, Ok((text.to_string(), Some(text.to_string()))));
        }
        app.shutdown().await;
    })
    .await;
}

// The same histories as the untyped interface.

#[activity(name = "Greet")]
async fn greet(name: String) -> Result<String, String> {
    if name.is_empty() { Err("nobody to greet".to_string()) } else { Ok(format!("Hello, {name}!")) }
}

#[orchestration(name = "Hello")]
async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    greet(&ctx, name).await
}

#[tokio::test]
async fn typed_and_untyped_code_call_each_other_and_record_the_same() {
    on_every_store(|app| async move {
        let untyped = OrchestrationRegistry::builder()
            .register("Untyped", |ctx: OrchestrationContext, name: String| async move {
                ctx.schedule_activity("Greet", name).await
            })
            .build();
        let app = app.activity(greet).orchestration(hello).orchestrations(untyped).start().await.unwrap();
        let typed = app.start(hello, "typed", "Ada".to_string()).await.unwrap().result().await.unwrap();
        app.start_orchestration("untyped", "Untyped", "Ada").await.unwrap();
        let untyped = app.wait_for_orchestration_typed::<String>("untyped", secs(30)).await.unwrap();
        assert_eq!(untyped, Ok(typed));
        let steps = |history: Vec<duroxide::Event>| -> Vec<EventKind> {
            let steps = history.into_iter().map(|event| event.kind);
            steps.filter(|kind| !matches!(kind, EventKind::OrchestrationStarted { .. })).collect()
        };
        let typed = app.read_execution_history("typed", 1).await.unwrap();
        let untyped = app.read_execution_history("untyped", 1).await.unwrap();
        assert_eq!(format!("{:?}", steps(typed)), format!("{:?}", steps(untyped)));
        // By name and text, the typed orchestration is one like any other.
        app.start_orchestration("by-name", "Hello", "Bob").await.unwrap();
        let by_name = app.wait_for_orchestration_typed::<String>("by-name", secs(30)).await.unwrap();
        assert_eq!(by_name, Ok("Hello, Bob!".to_string()));
        app.start_orchestration("fails", "Untyped", "").await.unwrap();
        let failed = app.wait_for_orchestration_typed::<String>("fails", secs(30)).await.unwrap();
        assert_eq!(failed, Err("nobody to greet".to_string()));
        app.shutdown().await;
    })
    .await;
}

// Retries and time limits.

struct Attempts(AtomicU32);

#[activity]
async fn flaky(State(attempts): State<Attempts>, succeed_at: u32) -> Result<u32, String> {
    let attempt = attempts.0.fetch_add(1, Ordering::SeqCst) + 1;
    if attempt >= succeed_at { Ok(attempt) } else { Err(format!("attempt {attempt} failed")) }
}

#[orchestration]
async fn persistent(ctx: OrchestrationContext, attempts: u32, succeed_at: u32) -> Result<u32, String> {
    flaky(&ctx, succeed_at).retry(RetryPolicy::fixed(attempts, millis(1))).await
}

#[tokio::test]
async fn a_call_is_retried_as_often_as_its_policy_says() {
    on_every_store(|app| async move {
        let attempts = Arc::new(Attempts(AtomicU32::new(0)));
        let app = app.activity(flaky).orchestration(persistent).shared_state(attempts.clone());
        let app = app.start().await.unwrap();
        let third = app.start(persistent, "third", (5, 3)).await.unwrap().result().await;
        assert_eq!(third, Ok(3));
        attempts.0.store(0, Ordering::SeqCst);
        let never = app.start(persistent, "never", (4, 9)).await.unwrap().result().await;
        assert_eq!(never, Err(RunError::Failed("attempt 4 failed".to_string())));
        assert_eq!(attempts.0.load(Ordering::SeqCst), 4);
        app.shutdown().await;
    })
    .await;
}

#[activity(retry = RetryPolicy::fixed(3, millis(1)))]
async fn flaky_by_default(State(attempts): State<Attempts>) -> Result<u32, String> {
    Err(format!("attempt {} failed", attempts.0.fetch_add(1, Ordering::SeqCst) + 1))
}

#[orchestration]
async fn by_default(ctx: OrchestrationContext, once: bool) -> Result<u32, String> {
    let call = flaky_by_default(&ctx);
    if once { call.no_retry().await } else { call.await }
}

#[tokio::test]
async fn an_activity_can_have_a_policy_of_its_own() {
    on_every_store(|app| async move {
        let app = app.activity(flaky_by_default).orchestration(by_default).state(Attempts(AtomicU32::new(0)));
        let app = app.start().await.unwrap();
        let thrice = app.start(by_default, "thrice", false).await.unwrap().result().await;
        assert_eq!(thrice, Err(RunError::Failed("attempt 3 failed".to_string())));
        let once = app.start(by_default, "once", true).await.unwrap().result().await;
        assert_eq!(once, Err(RunError::Failed("attempt 4 failed".to_string())));
        app.shutdown().await;
    })
    .await;
}

#[activity]
async fn endless(ctx: ActivityContext) -> Result<(), Failure> {
    ctx.cancelled().await;
    Ok(())
}

#[orchestration]
async fn impatient(ctx: OrchestrationContext, in_all: bool) -> Result<(), Failure> {
    let call = endless(&ctx);
    match in_all {
        true => {
            call.retry(RetryPolicy::fixed(1_000, millis(10)))
                .timeout(millis(5))
                .total_timeout(millis(60))
                .await
        }
        false => call.retry(RetryPolicy::fixed(2, millis(1))).timeout(millis(10)).await,
    }
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_cancelled_and_tried_again() {
    on_every_store(|app| async move {
        let app = app.activity(endless).orchestration(impatient).start().await.unwrap();
        for (id, in_all, words) in [("attempts", false, "for one attempt"), ("all", true, "in all")] {
            let Err(RunError::Failed(failure)) =
                app.start(impatient, id, in_all).await.unwrap().result().await
            else {
                panic!("it cannot succeed")
            };
            assert_eq!(failure.kind(), FailureKind::TimedOut);
            assert!(failure.message().ends_with(words), "{failure}");
        }
        let history = app.read_execution_history("attempts", 1).await.unwrap();
        let scheduled =
            history.iter().filter(|event| matches!(event.kind, EventKind::ActivityScheduled { .. }));
        assert_eq!(scheduled.count(), 2);
        app.shutdown().await;
    })
    .await;
}

// Started before awaited; sessions and tags.

#[activity]
async fn where_am_i(ctx: ActivityContext) -> Result<(Option<String>, Option<String>), String> {
    Ok((ctx.session_id().map(str::to_string), ctx.tag().map(str::to_string)))
}

#[orchestration]
async fn eager(ctx: OrchestrationContext) -> Result<Vec<(Option<String>, Option<String>)>, String> {
    let session = where_am_i(&ctx).session("printer").start();
    let tagged = where_am_i(&ctx).tag("gpu").retry(RetryPolicy::fixed(2, millis(1))).start();
    ctx.timer(millis(1)).await;
    let (session, tagged) = join!(session, tagged).await;
    Ok(vec![session?, tagged?])
}

#[tokio::test]
async fn a_started_call_is_scheduled_at_once_with_its_session_and_tag() {
    on_every_store(|app| async move {
        let tags = duroxide::TagFilter::default_and(["gpu"]);
        let app = app.activity(where_am_i).orchestration(eager);
        let app = app.options(|options| options.worker_tag_filter = tags).start().await.unwrap();
        let places = app.start(eager, "eager", ()).await.unwrap().result().await.unwrap();
        assert_eq!(places, [(Some("printer".to_string()), None), (None, Some("gpu".to_string()))]);
        let history = app.read_execution_history("eager", 1).await.unwrap();
        assert!(matches!(history[1].kind, EventKind::ActivityScheduled { .. }));
        assert!(matches!(history[2].kind, EventKind::ActivityScheduled { .. }));
        assert!(matches!(history[3].kind, EventKind::TimerCreated { .. }));
        app.shutdown().await;
    })
    .await;
}

// Children, detached starts, continue-as-new, versions.

#[orchestration]
async fn factorial(ctx: OrchestrationContext, n: u64) -> Result<u64, String> {
    match n {
        0 => Ok(1),
        n => Ok(n * factorial(&ctx, n - 1).await?),
    }
}

#[tokio::test]
async fn an_orchestration_can_be_its_own_child() {
    on_every_store(|app| async move {
        let app = app.orchestration(factorial).start().await.unwrap();
        assert_eq!(app.start(factorial, "5", 5).await.unwrap().result().await, Ok(120));
        app.shutdown().await;
    })
    .await;
}

#[orchestration]
async fn waits_for_ever(ctx: OrchestrationContext) -> Result<String, Failure> {
    ctx.event("never").await
}

#[orchestration]
async fn family(ctx: OrchestrationContext) -> Result<String, Failure> {
    let late = waits_for_ever(&ctx).id("late-child").timeout(millis(5)).await;
    assert_eq!(late.map_err(|failure| failure.kind()), Err(FailureKind::TimedOut));
    factorial(&ctx, 3).detached("three");
    let clash = factorial(&ctx, 1).id("late-child").await;
    clash.map(|_| String::new()).map_err(|text| Failure::new(FailureKind::Other, text))
}

#[tokio::test]
async fn children_have_ids_and_limits_and_detached_ones_live_on() {
    on_every_store(|app| async move {
        let app = app.orchestration(waits_for_ever).orchestration(factorial).orchestration(family);
        let app = app.start().await.unwrap();
        let Err(RunError::Failed(clash)) = app.start(family, "parent", ()).await.unwrap().result().await
        else {
            panic!("the id is taken")
        };
        assert!(clash.message().contains("already exists"), "{clash}");
        assert_eq!(app.instance(factorial, "three").result_within(secs(30)).await, Ok(6));
        // The child whose time was up was cancelled.
        let Err(RunError::Failed(late)) =
            app.instance(waits_for_ever, "late-child").result_within(secs(30)).await
        else {
            panic!("the child was cancelled")
        };
        assert_eq!(late.kind(), FailureKind::Cancelled);
        app.shutdown().await;
    })
    .await;
}

#[orchestration]
async fn count_to(ctx: OrchestrationContext, at: u32, end: u32) -> Result<u32, AnyError> {
    let sum = ctx.value::<u32>("sum")?.unwrap_or(0) + at;
    ctx.set_value("sum", &sum);
    if at == end {
        return Ok(sum);
    }
    count_to(&ctx, at + 1, end).continue_as_new().await
}

#[tokio::test]
async fn the_next_execution_gets_typed_arguments_and_the_values() {
    on_every_store(|app| async move {
        let app = app.orchestration(count_to).start().await.unwrap();
        assert_eq!(app.start(count_to, "c", (1, 10)).await.unwrap().result().await, Ok(55));
        assert_eq!(app.list_executions("c").await.unwrap().len(), 10);
        assert_eq!(app.query_value::<u32>("c", "sum").await.unwrap(), Some(55));
        app.shutdown().await;
    })
    .await;
}

#[orchestration(name = "Versioned", version = "1.1.0")]
async fn versioned_1(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.orchestration_version())
}

#[orchestration(name = "Versioned", version = "2.0.0-beta.1")]
async fn versioned_2(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.orchestration_version())
}

#[orchestration]
async fn both(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    Ok(vec![
        versioned_1(&ctx).await?,
        versioned_2(&ctx).await?,
        versioned_1(&ctx).any_version().await?,
        versioned_2(&ctx).version("1.1.0").await?,
    ])
}

#[tokio::test]
async fn versions_live_side_by_side_and_a_call_runs_the_function_it_names() {
    on_every_store(|app| async move {
        let app = app.orchestration(versioned_2).orchestration(versioned_1).orchestration(both);
        let app = app.start().await.unwrap();
        let ran = app.start(both, "both", ()).await.unwrap().result().await.unwrap();
        assert_eq!(ran, ["1.1.0", "2.0.0-beta.1", "2.0.0-beta.1", "1.1.0"]);
        let first = app.start(versioned_1, "one", ()).await.unwrap().result().await.unwrap();
        assert_eq!(first, "1.1.0");
        app.shutdown().await;
    })
    .await;
}

// The body alone.

#[tokio::test]
async fn a_body_runs_on_its_own() {
    assert_eq!(nothing.run().await, Ok(7));
    assert_eq!(one.run(Order::new(3)).await, Ok(3));
    assert_eq!(borrowed.run(&Order::new(3), "y", &[4]).await, Ok("3 y 4".to_string()));
    assert_eq!(with_context.run(1, (1, 1)).await, Ok("with_context test 2".to_string()));
    assert_eq!(flaky.run_with(Attempts(AtomicU32::new(4)), 5).await, Ok(5));
    let missing = flaky.run(1).await.unwrap_err();
    assert!(missing.contains("`flaky` needs a `authoring::typed_calls::Attempts`"), "{missing}");
}

/// A name made by `#[activity]` is a function and nothing else: it can be shadowed, and a module may have the same name.
mod one_module_per_function {
    use duroxide::prelude::*;

    pub mod double {
        use duroxide::prelude::*;

        #[activity]
        pub async fn double(n: u32) -> Result<u32, String> {
            Ok(n * 2)
        }
    }

    pub use double::double;

    #[orchestration]
    pub async fn four(ctx: OrchestrationContext) -> Result<u32, String> {
        let double = double(&ctx, 2).await?;
        Ok(double)
    }
}

#[tokio::test]
async fn a_name_can_be_shadowed_and_be_that_of_a_module() {
    use one_module_per_function::{double, four};
    let app = Duroxide::open("memory:").activity(double).orchestration(four).start().await.unwrap();
    assert_eq!(app.start(four, "four", ()).await.unwrap().result().await, Ok(4));
    app.shutdown().await;
}

/// The types of calls, handles and applications may move to other threads.
#[test]
fn calls_and_handles_are_send() {
    fn is_send<T: Send>(_: &T) {}
    let ctx = OrchestrationContext::new(Vec::new(), 1, "i".into(), "o".into(), "1.0.0".into(), None);
    is_send(&one(&ctx, Order::new(1)).retry(RetryPolicy::exponential(3)));
    is_send(&factorial(&ctx, 1));
    is_send(&join!(one(&ctx, Order::new(1)), ctx.timer(secs(1))));
}
