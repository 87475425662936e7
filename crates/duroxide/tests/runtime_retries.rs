//! Retries: after which failures another attempt follows.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::WorkItem;
use duroxide::{
    ActivityContext, AppErrorKind, BackoffStrategy, ErrorDetails, Event, EventKind, OrchestrationContext,
    RetryPolicy,
};
use runtime_support::{Stage, World, activities, orchestrations, output, start_of};

fn policy() -> RetryPolicy {
    RetryPolicy::new(3).with_backoff(BackoffStrategy::None)
}

/// Retries an activity that takes a number, with the input of the orchestration.
fn doubling() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Double", |ctx: OrchestrationContext, input: String| async move {
        match ctx.schedule_activity_with_retry("Double", input, policy()).await {
            Ok(result) => Ok(result),
            Err(error) => Ok(format!("caught: {error}")),
        }
    })
}

fn double() -> duroxide::runtime::registry::ActivityRegistryBuilder {
    activities().register_typed("Double", |_: ActivityContext, number: u32| async move {
        if number == 0 { Err("nothing to double".to_string()) } else { Ok(2 * number) }
    })
}

async fn attempts(world: &World, instance: &str) -> usize {
    let history = world.history(instance).await;
    history.iter().filter(|event| matches!(event.kind, EventKind::ActivityScheduled { .. })).count()
}

#[tokio::test]
async fn an_input_that_does_not_decode_is_not_tried_again_and_other_errors_are() {
    let world = World::new();
    let runtime = world.start(double(), doubling()).await;
    let caught = output(world.run("typo", "Double", "two").await);
    assert!(caught.contains("input of activity 'Double'") && caught.contains("does not decode"), "{caught}");
    assert_eq!(attempts(&world, "typo").await, 1);
    assert_eq!(output(world.run("zero", "Double", "0").await), "caught: nothing to double");
    assert_eq!(attempts(&world, "zero").await, 3);
    assert_eq!(output(world.run("fine", "Double", "2").await), "4");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_execution_that_did_try_an_undecodable_input_again_goes_on() {
    let world = World::new();
    let scheduled = |id| {
        let kind = EventKind::ActivityScheduled {
            name: "Double".into(),
            input: "two".into(),
            session_id: None,
            tag: None,
        };
        Event::with_event_id(id, "i", 1, None, kind)
    };
    // As earlier versions worded it, and went on.
    let details = ErrorDetails::Application {
        kind: AppErrorKind::ActivityFailed,
        message: "invalid type: string \"two\", expected u32".into(),
        retryable: false,
    };
    let failed = Event::with_event_id(3, "i", 1, Some(2), EventKind::ActivityFailed { details });
    world.seed("i", 1, vec![start_of("i", 1, "Double", "two"), scheduled(2), failed, scheduled(4)]).await;
    let result =
        WorkItem::ActivityCompleted { instance: "i".into(), execution_id: 1, id: 4, result: "4".into() };
    world.store.enqueue_for_orchestrator(result, None).await.unwrap();
    let runtime = world.start(double(), doubling()).await;
    assert_eq!(world.output("i").await, "4");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn attempts_that_took_too_long_are_tried_again_if_the_policy_says_so() {
    let world = World::new();
    let stage = Stage::default();
    let work = stage.activity(|stage, ctx, input| async move {
        stage.report("run");
        if stage.log().len() < 4 {
            ctx.cancelled().await;
        }
        Ok(input)
    });
    let code = orchestrations()
        .register_typed("Patient", |ctx: OrchestrationContext, attempts: u32| async move {
            let policy = RetryPolicy::new(attempts).with_timeout(Duration::from_secs(10));
            ctx.schedule_activity_with_retry_options("Work", "in", policy.retry_timeouts()).await
        })
        .register("Strict", |ctx: OrchestrationContext, _: String| async move {
            let policy = RetryPolicy::new(5).with_timeout(Duration::from_secs(10));
            ctx.schedule_activity_with_retry_options("Work", "in", policy).await
        });
    let runtime = world.start(activities().register("Work", work), code).await;
    let step = Duration::from_millis(500);
    world.client.start_orchestration("strict", "Strict", "").await.unwrap();
    let ended = world.end_in_time("strict", step).await;
    assert_eq!(runtime_support::details(ended).display_message(), "timeout: activity timed out");
    assert_eq!(attempts(&world, "strict").await, 1);
    world.client.start_orchestration("impatient", "Patient", "1").await.unwrap();
    let ended = world.end_in_time("impatient", step).await;
    assert_eq!(runtime_support::details(ended).display_message(), "timeout: activity timed out");
    world.client.start_orchestration("patient", "Patient", "5").await.unwrap();
    assert_eq!(output(world.end_in_time("patient", step).await), "in");
    // The fourth run of all is the first that returns.
    assert_eq!(attempts(&world, "patient").await, 2);
    runtime.shutdown(None).await;
}
