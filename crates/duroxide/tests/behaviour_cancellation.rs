//! Cancelling instances.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::{
    AppErrorKind, ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions,
};
use runtime_support::{Stage, World, activities, details, kinds, orchestrations};

fn waiting() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Waiting", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.schedule_wait("go").await)
    })
}

fn cancelled(reason: &str) -> ErrorDetails {
    ErrorDetails::Application {
        kind: AppErrorKind::Cancelled { reason: reason.into() },
        message: String::new(),
        retryable: false,
    }
}

// semantics: CANCEL-1, CANCEL-2
#[tokio::test]
async fn the_first_of_several_cancellations_counts_and_unknown_instances_are_no_error() {
    let world = World::new();
    let runtime = world.start(activities(), waiting()).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    world.waits_for("i", "go").await;
    for reason in ["test requested cancellation", "cancel-1", "cancel-2"] {
        world.client.cancel_instance("i", reason).await.unwrap();
    }
    assert_eq!(details(world.end("i").await), cancelled("test requested cancellation"));
    world.drained().await;
    world.client.cancel_instance("nobody", "no matter").await.unwrap();
    runtime.shutdown(None).await;
    let history = world.history("i").await;
    assert_eq!(
        kinds(&history),
        [
            "OrchestrationStarted",
            "ExternalSubscribed",
            "OrchestrationCancelRequested",
            "ExternalSubscribedCancelled",
            "OrchestrationFailed"
        ]
    );
}

// semantics: CANCEL-3
#[tokio::test]
async fn an_instance_that_is_started_and_cancelled_at_once_never_completes() {
    let world = World::new();
    world.client.start_orchestration("i", "Quick", "").await.unwrap();
    world.client.cancel_instance("i", "at once").await.unwrap();
    let quick = orchestrations()
        .register("Quick", |_: OrchestrationContext, _: String| async move { Ok("done".to_string()) });
    let runtime = world.start(activities(), quick).await;
    assert_eq!(details(world.end("i").await), cancelled("at once"));
    let history = world.history("i").await;
    assert_eq!(
        kinds(&history),
        ["OrchestrationStarted", "OrchestrationCancelRequested", "OrchestrationFailed"]
    );
    for event in &history {
        assert_eq!((event.instance_id.as_str(), event.execution_id), ("i", 1));
        assert!(event.timestamp_ms > 0);
    }
    runtime.shutdown(None).await;
}

// semantics: CANCEL-3
#[tokio::test]
async fn the_turn_of_a_cancellation_still_runs_and_what_it_asks_for_is_recorded_but_not_done() {
    let world = World::new();
    let code = || {
        waiting().register("Asks", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_wait("go").await;
            std::mem::forget(ctx.schedule_activity("Nobody", ""));
            std::mem::forget(ctx.schedule_timer(Duration::from_secs(1)));
            std::mem::forget(ctx.schedule_sub_orchestration("Waiting", ""));
            ctx.schedule_orchestration("Waiting", "detached", "");
            Ok("done".to_string())
        })
    };
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("i", "Asks", "").await.unwrap();
    world.waits_for("i", "go").await;
    runtime.shutdown(None).await;
    world.client.raise_event("i", "go", "").await.unwrap();
    world.client.cancel_instance("i", "stop").await.unwrap();
    let runtime = world.start(activities(), code()).await;
    assert_eq!(details(world.end("i").await), cancelled("stop"));
    world.waits_for("detached", "go").await;
    let history = world.history("i").await;
    assert_eq!(
        kinds(&history)[2..9],
        [
            "ExternalEvent",
            "OrchestrationCancelRequested",
            "ActivityScheduled",
            "TimerCreated",
            "SubOrchestrationScheduled",
            "OrchestrationChained",
            "OrchestrationFailed"
        ]
    );
    let child = format!("i::sub::{}", history[6].event_id);
    assert_eq!(world.history(&child).await, []);
    let depths = world.client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue), (0, 0));
    assert!(world.store.as_extended().unwrap().list_parked(10).await.unwrap().is_empty());
    runtime.shutdown(None).await;
}

// semantics: CANCEL-6
#[tokio::test]
async fn a_cancellation_hits_the_execution_that_runs() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input.is_empty() { ctx.continue_as_new("second").await } else { Ok(ctx.schedule_wait("go").await) }
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Loop", "").await.unwrap();
    world.waits_for("i", "go").await;
    world.client.cancel_instance("i", "now").await.unwrap();
    assert_eq!(details(world.end("i").await), cancelled("now"));
    let first = world.store.read_with_execution("i", 1).await.unwrap();
    assert_eq!(kinds(&first), ["OrchestrationStarted", "OrchestrationContinuedAsNew"]);
    assert_eq!(world.history("i").await.last().unwrap().execution_id, 2);
    runtime.shutdown(None).await;
}

// semantics: CANCEL-4
#[tokio::test]
async fn everything_that_a_cancelled_instance_has_open_is_given_up_with_its_reason() {
    let world = World::new();
    let stage = Stage::default();
    let work = activities().register("Work", stage.until_cancelled());
    let code = waiting().register("All", |ctx: OrchestrationContext, _: String| async move {
        let work = ctx.schedule_activity("Work", "");
        let child = ctx.schedule_sub_orchestration("Waiting", "");
        let message = ctx.dequeue_event("q");
        let signal = ctx.schedule_wait("s");
        let (_, _, _) = ctx.join3(work, child, ctx.join2(message, signal)).await;
        Ok(String::new())
    });
    let runtime = world.start(work, code).await;
    world.client.start_orchestration("p", "All", "").await.unwrap();
    stage.seen("running", 1).await;
    world.waits_for("p::sub::3", "go").await;
    world.client.cancel_instance("p", "enough").await.unwrap();
    assert_eq!(details(world.end("p").await), cancelled("enough"));
    // The clock stands still, so the activity did not wait for a renewal.
    stage.seen("cancelled", 1).await;
    assert_eq!(details(world.end("p::sub::3").await), cancelled("parent canceled"));
    world.drained().await;
    runtime.shutdown(None).await;
    let history = world.history("p").await;
    let reasons: Vec<_> = history
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ExternalSubscribedCancelled { reason }
            | EventKind::QueueSubscriptionCancelled { reason }
            | EventKind::ActivityCancelRequested { reason } => {
                Some((event.source_event_id.unwrap(), reason.as_str()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        reasons,
        [(5, "orchestration_terminal"), (4, "orchestration_terminal"), (2, "orchestration_terminal_failed")]
    );
    assert_eq!(kinds(&history).last(), Some(&"ActivityCancelRequested"), "the result came too late");
}

// semantics: TURN-11
#[tokio::test]
async fn an_activity_in_flight_is_given_up_with_a_reason_that_tells_how_its_instance_ended() {
    let world = World::new();
    let code = orchestrations().register("Ends", |ctx: OrchestrationContext, how: String| async move {
        std::mem::forget(ctx.schedule_activity("Nobody", ""));
        ctx.schedule_timer(Duration::from_secs(1)).await;
        if how == "completed" { Ok(how) } else { Err(how) }
    });
    let options = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let runtime = world.start_with(activities(), code, options).await;
    for how in ["completed", "failed"] {
        world.client.start_orchestration(how, "Ends", how).await.unwrap();
        world.pass(how, Duration::from_secs(1)).await;
        world.end(how).await;
        let last = world.history(how).await.pop().unwrap();
        let expected = format!("orchestration_terminal_{how}");
        assert!(matches!(last.kind, EventKind::ActivityCancelRequested { reason } if reason == expected));
    }
    assert_eq!(world.client.get_queue_depths().await.unwrap().worker_queue, 0);
    runtime.shutdown(None).await;
}

// semantics: CANCEL-4
#[tokio::test]
async fn all_children_of_a_cancelled_parent_are_cancelled_whatever_their_ids() {
    let world = World::new();
    let code = waiting().register("Parent", |ctx: OrchestrationContext, _: String| async move {
        let mut children: Vec<_> = (0..4).map(|_| ctx.schedule_sub_orchestration("Waiting", "")).collect();
        children.push(ctx.schedule_sub_orchestration_with_id("Waiting", "chosen", ""));
        ctx.join(children).await;
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    let mut children: Vec<String> = (2..=5).map(|id| format!("p::sub::{id}")).collect();
    children.push("chosen".to_string());
    for child in &children {
        world.waits_for(child, "go").await;
    }
    // One that has ended before is left alone.
    world.client.raise_event("p::sub::2", "go", "done").await.unwrap();
    world.recorded("p", |kind| matches!(kind, EventKind::SubOrchestrationCompleted { .. })).await;
    world.client.cancel_instance("p", "stop").await.unwrap();
    assert_eq!(details(world.end("p").await), cancelled("stop"));
    assert_eq!(world.output("p::sub::2").await, "done");
    for child in &children[1..] {
        assert_eq!(details(world.end(child).await), cancelled("parent canceled"));
    }
    runtime.shutdown(None).await;
}

// semantics: CANCEL-7
#[tokio::test]
async fn a_cancellation_while_a_built_in_activity_waits_is_a_cancellation() {
    let world = World::new();
    let code = orchestrations()
        .register("Guid", |ctx: OrchestrationContext, _: String| async move { ctx.new_guid().await });
    let options = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let runtime = world.start_with(activities(), code, options).await;
    world.client.start_orchestration("i", "Guid", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await;
    world.client.cancel_instance("i", "stop").await.unwrap();
    let status = world.end("i").await;
    assert!(matches!(status, OrchestrationStatus::Failed { .. }));
    assert_eq!(details(status), cancelled("stop"));
    runtime.shutdown(None).await;
}
