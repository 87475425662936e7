//! How executions end: what the runtime gives up, what it refuses, and what follows a continue-as-new.

use std::time::Duration;

use duroxide::{
    AppErrorKind, Either2, ErrorDetails, Event, EventKind, OrchestrationContext, OrchestrationStatus,
    PoisonMessageType,
};

use crate::runtime_support::{
    Stage, World, activities, continued, details, echo, family, faulty_world, few_attempts, kinds,
    orchestrations, output, start_of, successor,
};

#[tokio::test]
async fn the_end_of_an_instance_gives_up_what_it_waited_for() {
    let world = World::new();
    let stage = Stage::default();
    let work = stage.activity(|stage, ctx, _| async move {
        stage.report("running");
        ctx.cancelled().await;
        Ok(String::new())
    });
    let runtime = world
        .start(
            activities().register("Work", work),
            orchestrations().register("Leaves", |ctx: OrchestrationContext, _: String| async move {
                std::mem::forget(ctx.schedule_activity("Work", ""));
                std::mem::forget(ctx.schedule_wait("never"));
                std::mem::forget(ctx.dequeue_event("never"));
                ctx.schedule_wait("leave").await;
                Ok("left".to_string())
            }),
        )
        .await;
    world.client.start_orchestration("i", "Leaves", "").await.unwrap();
    stage.seen("running", 1).await;
    world.client.raise_event("i", "leave", "").await.unwrap();
    assert_eq!(world.output("i").await, "left");
    assert_eq!(
        kinds(&world.history("i").await)[6..],
        [
            "ExternalSubscribedCancelled",
            "ExternalSubscribedPersistentCancelled",
            "OrchestrationCompleted",
            "ActivityCancelRequested"
        ]
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_timer_of_a_finished_instance_changes_nothing() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            orchestrations().register("Race", |ctx: OrchestrationContext, _: String| async move {
                let timer = ctx.schedule_timer(Duration::from_secs(10));
                match ctx.select2(ctx.schedule_wait("go"), timer).await {
                    Either2::First(data) => Ok(data),
                    Either2::Second(()) => Err("late".to_string()),
                }
            }),
        )
        .await;
    world.client.start_orchestration("i", "Race", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
    world.client.raise_event("i", "go", "now").await.unwrap();
    assert_eq!(world.output("i").await, "now");
    let before = world.history("i").await;
    world.clock.advance(Duration::from_secs(10));
    world.drained().await;
    assert_eq!(world.history("i").await, before);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_limit_is_checked_before_anything_is_stored() {
    let world = World::new();
    let runtime = world
        .start(
            echo(),
            orchestrations()
                .register("Value", |ctx: OrchestrationContext, size: String| async move {
                    ctx.set_kv_value("key", "x".repeat(size.parse().unwrap()));
                    ctx.schedule_activity("Echo", "hello").await
                })
                .register("Keys", |ctx: OrchestrationContext, count: String| async move {
                    for key in 0..count.parse::<usize>().unwrap() {
                        if key % 50 == 49 {
                            ctx.schedule_activity("Echo", "turn").await?;
                        }
                        ctx.set_kv_value(key.to_string(), "v");
                    }
                    Ok("stored".to_string())
                })
                .register("Tag", |ctx: OrchestrationContext, size: String| async move {
                    let tagged =
                        ctx.schedule_activity("Echo", "").with_tag("t".repeat(size.parse().unwrap()));
                    let timer = ctx.schedule_timer(Duration::ZERO);
                    ctx.select2(tagged, timer).await;
                    Ok("sent".to_string())
                }),
        )
        .await;
    for (name, at_limit, above, text) in [
        ("Value", "65536", "65537", "KV value for key 'key' (65537 bytes) exceeds limit (65536 bytes)"),
        ("Keys", "150", "151", "KV key count (151) exceeds limit (150)"),
        ("Tag", "256", "257", "Activity 'Echo' tag size (257 bytes) exceeds limit (256 bytes)"),
    ] {
        let (fine, over) = (format!("{name}-fine"), format!("{name}-over"));
        let status = world.run(&fine, name, at_limit).await;
        assert!(matches!(status, OrchestrationStatus::Completed { .. }), "{name}: {status:?}");
        let details = details(world.run(&over, name, above).await);
        assert!(matches!(details, ErrorDetails::Application { kind: AppErrorKind::OrchestrationFailed, .. }));
        assert_eq!(details.display_message(), text);
        let history = world.history(&over).await;
        let ids: Vec<u64> = history.iter().map(|event| event.event_id).collect();
        assert_eq!(ids, (1..=history.len() as u64).collect::<Vec<_>>());
        let ends = history.iter().filter(|event| event.is_terminal()).count();
        assert_eq!(ends, 1, "{name}");
    }
    assert_eq!(kinds(&world.history("Value-over").await), ["OrchestrationStarted", "OrchestrationFailed"]);
    assert_eq!(world.client.get_kv_value("Value-over", "key").await.unwrap(), None);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_execution_that_continues_as_new_has_contiguous_ids() {
    let world = World::new();
    let runtime = world.start(activities(), family()).await;
    world.client.start_orchestration("i", "Continues", "in").await.unwrap();
    assert_eq!(world.output("i").await, "again");
    let history = world.client.read_execution_history("i", 1).await.unwrap();
    assert_eq!(kinds(&history), ["OrchestrationStarted", "OrchestrationContinuedAsNew"]);
    assert_eq!(history.iter().map(Event::event_id).collect::<Vec<_>>(), [1, 2]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn inputs_wait_while_the_successor_has_not_begun_and_then_reach_it() {
    let (world, faulty) = faulty_world();
    let code = || {
        orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
            match input.as_str() {
                "first" => ctx.continue_as_new("second").await,
                _ => Ok(ctx.dequeue_event("inbox").await),
            }
        })
    };
    // An execution that ended, and no start of the next.
    world.seed("i", 1, vec![start_of("i", 1, "Loop", "first"), continued("i", 2)]).await;
    world.client.enqueue_event("i", "inbox", "mail").await.unwrap();
    let runtime = world.start_with(activities(), code(), few_attempts(10)).await;
    while faulty.abandoned_turns().is_empty() {
        tokio::task::yield_now().await;
    }
    world.clock.advance(Duration::from_millis(100));
    while faulty.abandoned_turns().len() < 2 {
        tokio::task::yield_now().await;
    }
    let counted = |ms| (Some(Duration::from_millis(ms)), false);
    assert_eq!(faulty.abandoned_turns(), [counted(100), counted(200)]);
    assert_eq!(world.history("i").await.len(), 2);
    world.store.enqueue_for_orchestrator(successor("i", "Loop", &[]), None).await.unwrap();
    assert_eq!(output(world.end_in_time("i", Duration::from_millis(100)).await), "mail");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_successor_that_never_begins_is_poisoned_as_an_execution_of_its_own() {
    let world = World::new();
    world.seed("i", 1, vec![start_of("i", 1, "Loop", "first"), continued("i", 2)]).await;
    world.client.cancel_instance("i", "please").await.unwrap();
    let runtime = world.start_with(activities(), orchestrations(), few_attempts(2)).await;
    let details = details(world.end_in_time("i", Duration::from_millis(100)).await);
    assert!(matches!(
        details,
        ErrorDetails::Poison { message_type: PoisonMessageType::Orchestration { execution_id: 2, .. }, .. }
    ));
    let second = world.store.read_with_execution("i", 2).await.unwrap();
    assert_eq!(kinds(&second), ["OrchestrationStarted", "OrchestrationFailed"]);
    assert!(
        matches!(&second[0].kind, EventKind::OrchestrationStarted { name, input, .. } if name == "Loop" && input.is_empty())
    );
    assert_eq!(world.store.read_with_execution("i", 1).await.unwrap().len(), 2);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn metrics_count_each_fact_once() {
    let world = World::new();
    let runtime = world.start(echo(), family()).await;
    world.run("a", "Echo", "").await;
    world.run("b", "Fails", "").await;
    world.run("c", "Continues", "in").await;
    let metrics = runtime.metrics_snapshot().unwrap();
    assert_eq!(metrics.orch_starts, 4, "three instances, one of them with two executions");
    assert_eq!((metrics.orch_failures, metrics.orch_application_errors), (1, 1));
    assert_eq!(metrics.orch_continue_as_new, 1);
    let provider = runtime.observability_handle().unwrap().metrics_provider();
    assert_eq!(provider.get_active_orchestrations(), 0);
    runtime.shutdown(None).await;
}
