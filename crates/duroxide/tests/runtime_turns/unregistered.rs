//! Work without a registered handler: the failure and the log say what is missing, and what is registered.

use std::time::Duration;

use duroxide::ErrorDetails;

use crate::runtime_support::logs::Logs;
use crate::runtime_support::{
    World, activities, details, echo, family, few_attempts, one_activity, orchestrations,
};

const STEP: Duration = Duration::from_millis(100);

#[tokio::test]
async fn an_orchestration_that_nobody_registered_fails_with_the_names_that_are() {
    let (logs, _guard) = Logs::keep();
    let world = World::new();
    let runtime = world.start_with(echo(), family(), few_attempts(2)).await;
    world.client.start_orchestration("i", "Ecko", "input").await.unwrap();
    let details = details(world.end_in_time("i", STEP).await);
    let reason = "Ecko is not registered on any worker that tried; registered: Echo, ";
    let text = details.display_message();
    assert!(text.starts_with("poison: orchestration i exceeded 3 attempts (max 2): "), "{text}");
    assert!(text.contains(reason), "{text}");
    let ErrorDetails::Poison { message, .. } = &details else { panic!("{details:?}") };
    assert!(message.contains("\"input\":\"input\""), "the messages are still there: {message}");
    let line = logs.one("Orchestration failed");
    assert!(line.field("error").contains(reason) && line.message.contains("poison"), "{line:?}");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_version_that_nobody_registered_fails_with_the_versions_that_are() {
    let world = World::new();
    let code = |_: duroxide::OrchestrationContext, input: String| async move { Ok(input) };
    let registry = orchestrations()
        .register_versioned("Order", "2.0.0", code)
        .register_versioned("Order", "3.0.0", code);
    let runtime = world.start_with(activities(), registry, few_attempts(2)).await;
    world.client.start_orchestration_versioned("i", "Order", "1.0.0", "").await.unwrap();
    let text = details(world.end_in_time("i", STEP).await).display_message();
    assert!(
        text.ends_with("Order 1.0.0 is not registered on any worker that tried; registered: 3.0.0, 2.0.0"),
        "{text}"
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_that_nobody_registered_fails_with_the_names_that_are() {
    let (logs, _guard) = Logs::keep();
    let world = World::new();
    let runtime = world.start_with(echo(), one_activity(), few_attempts(2)).await;
    world.client.start_orchestration("i", "One", "Ecko").await.unwrap();
    let text = details(world.end_in_time("i", STEP).await).display_message();
    let reason = "Ecko is not registered on any worker that tried; registered: Echo";
    assert!(text.starts_with("poison: activity Ecko#2 exceeded 3 attempts (max 2): "), "{text}");
    assert!(text.ends_with(reason), "{text}");
    assert!(logs.one("Orchestration failed").field("error").contains(reason));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_runtime_that_starts_says_which_running_instances_it_cannot_serve() {
    let (logs, _guard) = Logs::keep();
    let world = World::new();
    let runtime = world.start(echo(), family()).await;
    for instance in ["a", "b", "c", "d"] {
        world.client.start_orchestration(instance, "Waiting", "").await.unwrap();
        world.waits_for(instance, "go").await;
    }
    world.run("ended", "Echo", "").await;
    runtime.shutdown(None).await;
    assert_eq!(logs.with("not registered here").len(), 0);
    let registry = orchestrations()
        .register("Other", |_: duroxide::OrchestrationContext, input: String| async move { Ok(input) });
    let runtime = world.start(echo(), registry).await;
    while logs.with("not registered here").is_empty() {
        tokio::task::yield_now().await;
    }
    let line = logs.one("not registered here");
    assert_eq!(line.message, "4 running instances of Waiting 1.0.0, not registered here");
    assert_eq!(line.level, tracing::Level::WARN);
    runtime.shutdown(None).await;
}
