//! Orchestrations end to end on the store in memory: activities, timers, events, children, continue-as-new.

mod runtime_support;

use std::time::Duration;

use duroxide::{ActivityContext, OrchestrationContext};
use runtime_support::{World, activities, kinds, orchestrations};

#[tokio::test]
async fn an_activity_runs_and_its_result_is_the_output() {
    let world = World::new();
    let runtime = world
        .start(
            activities().register("Greet", |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) }),
            orchestrations().register("Hello", |ctx: OrchestrationContext, name: String| async move {
                ctx.schedule_activity("Greet", name).await
            }),
        )
        .await;
    world.client.start_orchestration("h-1", "Hello", "Ada").await.unwrap();
    assert_eq!(world.output("h-1").await, "Hello, Ada!");
    assert_eq!(
        kinds(&world.history("h-1").await),
        ["OrchestrationStarted", "ActivityScheduled", "ActivityCompleted", "OrchestrationCompleted"]
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_timer_fires_when_its_time_has_come() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            orchestrations().register("Sleep", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_timer(Duration::from_secs(3600)).await;
                Ok("awake".to_string())
            }),
        )
        .await;
    world.client.start_orchestration("s-1", "Sleep", "").await.unwrap();
    world.pass("s-1", Duration::from_secs(3600)).await;
    assert_eq!(world.output("s-1").await, "awake");
    runtime.shutdown(None).await;
}
