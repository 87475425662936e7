//! Orchestrations end to end on the store in memory: activities, timers, events, children, continue-as-new.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::{ActivityContext, EventKind, OrchestrationContext, RuntimeOptions};
use runtime_support::{Stage, World, activities, kinds, orchestrations};

#[tokio::test]
async fn an_activity_runs_and_its_result_is_the_output() {
    let world = World::new();
    let runtime = world
        .start(
            activities().register("Greet", |_: ActivityContext, name: String| async move {
                Ok(format!("Hello, {name}!"))
            }),
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

/// One orchestration that uses nearly everything, and the world around it.
async fn all_in_one(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ctx.set_custom_status("started");
    let round = ctx.get_kv_value("round").unwrap_or_default();
    if round.is_empty() {
        ctx.set_kv_value("round", "1");
        let greeting = ctx.schedule_activity("Greet", &input).await?;
        ctx.schedule_timer(Duration::from_secs(60)).await;
        return ctx.continue_as_new(greeting).await;
    }
    let all =
        ctx.join((0..20).map(|i| ctx.schedule_activity("Echo", i.to_string())).collect::<Vec<_>>()).await;
    let sum: u32 = all.into_iter().map(|result| result.unwrap().parse::<u32>().unwrap()).sum();
    let child = ctx.schedule_sub_orchestration("Child", "c").await?;
    ctx.schedule_orchestration("Child", "detached", "d");
    let (signal, message) = ctx.join2(ctx.schedule_wait("go"), ctx.dequeue_event("inbox")).await;
    Ok(format!("{input} {sum} {child} {signal} {message}"))
}

fn all_activities() -> duroxide::runtime::registry::ActivityRegistryBuilder {
    activities()
        .register("Greet", |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) })
        .register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
}

fn all_orchestrations() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("All", all_in_one).register(
        "Child",
        |_: OrchestrationContext, input: String| async move { Ok(format!("child {input}")) },
    )
}

async fn run_all_in_one(world: &World, instance: &str) -> String {
    world.client.start_orchestration(instance, "All", "Ada").await.unwrap();
    world.pass(instance, Duration::from_secs(60)).await;
    world.recorded(instance, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.raise_event(instance, "go", "now").await.unwrap();
    world.client.enqueue_event(instance, "inbox", "mail").await.unwrap();
    world.output(instance).await
}

const ALL_IN_ONE: &str = "Hello, Ada! 190 child c now mail";

#[tokio::test]
async fn everything_works_together_on_a_current_thread_executor() {
    let world = World::new();
    let runtime = world.start(all_activities(), all_orchestrations()).await;
    assert_eq!(run_all_in_one(&world, "all").await, ALL_IN_ONE);
    assert_eq!(world.output("detached").await, "child d");
    assert_eq!(world.client.list_executions("all").await.unwrap(), [1, 2]);
    assert_eq!(world.client.get_kv_value("all", "round").await.unwrap().as_deref(), Some("1"));
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_together_on_a_multi_thread_executor() {
    let world = World::new();
    let runtime = world.start(all_activities(), all_orchestrations()).await;
    assert_eq!(run_all_in_one(&world, "all").await, ALL_IN_ONE);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn one_slot_of_each_kind_is_enough() {
    let world = World::new();
    let options =
        RuntimeOptions { worker_concurrency: 1, orchestration_concurrency: 1, ..Default::default() };
    let runtime = world.start_with(all_activities(), all_orchestrations(), options).await;
    assert_eq!(run_all_in_one(&world, "all").await, ALL_IN_ONE);
    runtime.shutdown(None).await;
}

/// Histories without the part that differs from run to run: the order in which concurrent activities ended.
async fn history_of(resident_instances: usize) -> Vec<Vec<String>> {
    let world = World::new();
    let options = RuntimeOptions { resident_instances, worker_concurrency: 1, ..Default::default() };
    let runtime = world.start_with(all_activities(), all_orchestrations(), options).await;
    assert_eq!(run_all_in_one(&world, "all").await, ALL_IN_ONE);
    runtime.shutdown(None).await;
    let mut executions = Vec::new();
    for execution in [1, 2] {
        let events = world.client.read_execution_history("all", execution).await.unwrap();
        let mut lines: Vec<String> =
            events.iter().map(|event| format!("{:?} {:?}", event.source_event_id, event.kind)).collect();
        lines.sort();
        executions.push(lines);
    }
    executions
}

#[tokio::test]
async fn histories_are_the_same_with_and_without_residents() {
    assert_eq!(history_of(1000).await, history_of(0).await);
}

#[tokio::test]
async fn a_resident_instance_is_not_run_again_from_the_beginning() {
    async fn runs(resident_instances: usize) -> usize {
        let world = World::new();
        let begun = Stage::default();
        let reporter = begun.clone();
        let orchestrations =
            orchestrations().register("Steps", move |ctx: OrchestrationContext, _: String| {
                reporter.report("begun");
                async move {
                    for i in 0..10 {
                        ctx.schedule_activity("Echo", i.to_string()).await?;
                    }
                    Ok("done".to_string())
                }
            });
        let options = RuntimeOptions { resident_instances, ..Default::default() };
        let runtime = world.start_with(all_activities(), orchestrations, options).await;
        world.client.start_orchestration("steps", "Steps", "").await.unwrap();
        assert_eq!(world.output("steps").await, "done");
        runtime.shutdown(None).await;
        begun.log().len()
    }
    assert_eq!(runs(0).await, 11);
    // Once when it is new, once more when the store has told its incarnation.
    assert!(runs(1000).await <= 2);
}

#[tokio::test]
async fn residents_can_be_checked_against_their_histories_turn_by_turn() {
    let world = World::new();
    let options = RuntimeOptions { check_residents: true, ..Default::default() };
    let runtime = world.start_with(all_activities(), all_orchestrations(), options).await;
    assert_eq!(run_all_in_one(&world, "all").await, ALL_IN_ONE);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_resident_that_disagrees_with_its_history_is_found_and_the_history_decides() {
    let world = World::new();
    let stage = Stage::default();
    let counter = stage.clone();
    // Code that does something else each time it is run from the beginning.
    let erratic = orchestrations().register("Erratic", move |ctx: OrchestrationContext, _: String| {
        counter.report("run");
        let run = counter.log().len();
        async move {
            ctx.schedule_activity("Echo", "1").await?;
            ctx.schedule_activity("Echo", "2").await?;
            ctx.schedule_activity("Echo", format!("run {run}")).await
        }
    });
    let options = RuntimeOptions { check_residents: true, ..Default::default() };
    let runtime = world.start_with(all_activities(), erratic, options).await;
    let status = world.run("e", "Erratic", "").await;
    let duroxide::OrchestrationStatus::Failed { details, .. } = status else { panic!("{status:?}") };
    assert!(details.display_message().contains("nondeterministic"), "{details:?}");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_resident_that_another_runtime_overtook_is_made_again() {
    let world = World::new();
    let first = world.start(all_activities(), all_orchestrations()).await;
    let second = world.start(all_activities(), all_orchestrations()).await;
    for n in 0..5 {
        assert_eq!(run_all_in_one(&world, &format!("all-{n}")).await, ALL_IN_ONE);
    }
    first.shutdown(None).await;
    second.shutdown(None).await;
}

#[tokio::test]
async fn system_calls_give_ids_and_times_that_stay_the_same() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            orchestrations().register("System", |ctx: OrchestrationContext, _: String| async move {
                let id = ctx.new_guid().await?;
                let now = ctx.utc_now().await?;
                ctx.schedule_timer(Duration::from_secs(1)).await;
                let ms = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
                let other = ctx.get_kv_value_from_instance("nobody", "key").await?;
                Ok(format!("{} {ms} {other:?}", id.len()))
            }),
        )
        .await;
    let now_ms = world.now_ms();
    world.client.start_orchestration("sys", "System", "").await.unwrap();
    world.pass("sys", Duration::from_secs(1)).await;
    assert_eq!(world.output("sys").await, format!("36 {now_ms} None"));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_descriptor_tells_name_version_and_parent() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            all_orchestrations().register_versioned(
                "Parent",
                "2.1.0",
                |ctx: OrchestrationContext, _: String| async move {
                    ctx.schedule_sub_orchestration("Child", "x").await
                },
            ),
        )
        .await;
    world.run("p", "Parent", "").await;
    let parent = runtime.get_orchestration_descriptor("p").await.unwrap();
    assert_eq!(
        (parent.name.as_str(), parent.version.as_str(), parent.parent_instance),
        ("Parent", "2.1.0", None)
    );
    let child = runtime.get_orchestration_descriptor("p::sub::2").await.unwrap();
    assert_eq!((child.parent_instance.as_deref(), child.parent_id), (Some("p"), Some(2)));
    assert!(runtime.get_orchestration_descriptor("nobody").await.is_none());
    runtime.shutdown(None).await;
}
