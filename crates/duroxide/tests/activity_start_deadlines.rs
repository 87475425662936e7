//! Activities that nobody begins in time: they fail without a worker that would take them, and whoever has begun one keeps it.
//!
//! Each test runs on the store in memory and on a file, and moves the time by hand.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

use crate::activity_attempts::on_both;
use crate::runtime_support;
use crate::sqlite_store::soon;

use std::time::Duration;

use duroxide::model::{ActivityStage, WaitFor};
use duroxide::providers::ProviderError;
use duroxide::{
    ActivityContext, ActivityOptions, ActivityRegistryBuilder, EventKind, OrchestrationContext,
    OrchestrationRegistryBuilder, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::{World, activities, faulty_world, kinds, orchestrations};
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const TOO_LATE: &str = "activity timed out: no worker began 'Work' in time (schedule to start)";

/// Runs the activity `Work`, which a worker with this tag must begin within half a minute, and tells how it ended.
fn urgent(tag: Option<&'static str>) -> OrchestrationRegistryBuilder {
    orchestrations().register("Job", move |ctx: OrchestrationContext, input: String| async move {
        let options = ActivityOptions::new().schedule_to_start(SECOND * 30);
        let work = ctx.schedule_activity("Work", input).with_options(options);
        let work = match tag {
            Some(tag) => work.with_tag(tag),
            None => work,
        };
        Ok(match work.await {
            Ok(output) => output,
            Err(error) => format!("failed: {error}"),
        })
    })
}

/// An activity that says that it has begun, and goes on when it is told to.
fn told(
    begun: mpsc::UnboundedSender<u32>,
) -> (ActivityRegistryBuilder, std::sync::Arc<tokio::sync::Semaphore>) {
    let go_on = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let gate = go_on.clone();
    let work = activities().register("Work", move |ctx: ActivityContext, _: String| {
        begun.send(ctx.attempt()).unwrap();
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(format!("attempt {}", ctx.attempt()))
        }
    });
    (work, go_on)
}

/// Waits until the activity of an instance is in the queue.
async fn queued(world: &World, instance: &str) {
    soon(async {
        loop {
            let described = world.client.describe(instance, 1000).await;
            let waits = described.map(|description| description.waits).unwrap_or_default();
            if waits.iter().any(
                |wait| matches!(&wait.what, WaitFor::Activity(wait) if wait.stage == ActivityStage::Queued),
            ) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Waits until an instance has only a reminder that is due later.
async fn reminded(world: &World, instance: &str) {
    let inspector = world.store.as_extended().unwrap().as_inspector().unwrap();
    soon(async {
        loop {
            let messages = inspector.list_messages(instance, 10, 100).await.unwrap();
            if let [reminder] = &messages[..]
                && reminder.delayed_until_ms.is_some()
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_fails_in_time_although_no_worker_serves_its_tag() {
    on_both(|world| async move {
        let (begun, mut heard) = mpsc::unbounded_channel();
        let runtime = world.start(told(begun).0, urgent(Some("gpu"))).await;
        for instance in ["i", "j"] {
            world.client.start_orchestration(instance, "Job", "").await.unwrap();
            queued(&world, instance).await;
        }
        // At the very end of its time it may still be begun.
        world.clock.advance(SECOND * 30);
        queued(&world, "i").await;
        world.clock.advance(SECOND);
        for instance in ["i", "j"] {
            assert_eq!(soon(world.output(instance)).await, format!("failed: {TOO_LATE}"));
            let recorded = world.history(instance).await;
            let expected =
                ["OrchestrationStarted", "ActivityScheduled", "ActivityFailed", "OrchestrationCompleted"];
            assert_eq!(kinds(&recorded), expected, "nothing else is recorded");
        }
        assert!(heard.try_recv().is_err(), "it must not run");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_comes_later_fails_what_nobody_began() {
    on_both(|world| async move {
        let (begun, mut heard) = mpsc::unbounded_channel();
        let no_worker = || RuntimeOptions { worker_concurrency: 0, ..Default::default() };
        let (work, _) = told(begun);
        let runtime = world.start_with(work, urgent(None), no_worker()).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        queued(&world, "i").await;
        runtime.shutdown(None).await;
        world.clock.advance(HOUR);
        let runtime = world.start_with(activities(), urgent(None), no_worker()).await;
        assert_eq!(soon(world.output("i")).await, format!("failed: {TOO_LATE}"));
        assert!(heard.try_recv().is_err(), "it must not run");
        runtime.shutdown(None).await;
    })
    .await;
}

// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_begun_in_time_goes_on() {
    on_both(|world| async move {
        let (begun, mut heard) = mpsc::unbounded_channel();
        let (work, go_on) = told(begun);
        let long_leases = RuntimeOptions {
            worker_lock_timeout: HOUR * 100,
            session_idle_timeout: HOUR * 200,
            ..Default::default()
        };
        let runtime = world.start_with(work, urgent(None), long_leases).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        assert_eq!(soon(heard.recv()).await, Some(1));
        // Reminders come, and come again at longer and longer intervals.
        for _ in 0..8 {
            world.clock.advance(HOUR);
            reminded(&world, "i").await;
        }
        go_on.add_permits(1);
        assert_eq!(soon(world.output("i")).await, "attempt 1");
        let recorded = world.history("i").await;
        assert!(recorded.iter().all(|event| !matches!(event.kind, EventKind::TimerFired { .. })));
        runtime.shutdown(None).await;
    })
    .await;
}

/// The store does not answer, before or after it has failed the activity: it is asked again, or the failure comes anyway.
// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_meets_passing_errors_comes_once() {
    for call in [Call::Unbegun, Call::UnbegunDone] {
        let (world, faulty) = faulty_world();
        let (begun, mut heard) = mpsc::unbounded_channel();
        let runtime = world.start(told(begun).0, urgent(Some("gpu"))).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        world.recorded("i", |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await;
        let busy = || ProviderError::retryable("fail_unbegun", "busy");
        faulty.fail(call, [busy(), busy()]);
        let end = soon(world.end_in_time("i", SECOND)).await;
        assert_eq!(runtime_support::output(end), format!("failed: {TOO_LATE}"), "{call:?}");
        let recorded = world.history("i").await;
        let failures = recorded.iter().filter(|event| matches!(event.kind, EventKind::ActivityFailed { .. }));
        assert_eq!(failures.count(), 1, "{call:?}");
        assert!(heard.try_recv().is_err(), "it must not run");
        runtime.shutdown(None).await;
    }
}

/// An orchestration that gives the activity up, or goes on to its next execution, is not reminded of it.
// semantics: ACT-21
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_reminded_of_what_was_given_up() {
    on_both(|world| async move {
        let orchestrations =
            orchestrations().register("Job", |ctx: OrchestrationContext, input: String| async move {
                let options = ActivityOptions::new().schedule_to_start(SECOND * 30);
                let work = ctx.schedule_activity("Work", "").with_options(options).with_tag("gpu");
                let timer = ctx.schedule_timer(SECOND * 10);
                ctx.select2(work, timer).await;
                if input.is_empty() {
                    return ctx.continue_as_new("again").await;
                }
                ctx.schedule_timer(HOUR).await;
                Ok("undisturbed".to_string())
            });
        let runtime = world.start(activities(), orchestrations).await;
        world.client.start_orchestration("i", "Job", "").await.unwrap();
        let end = soon(world.end_in_time("i", SECOND * 5)).await;
        assert_eq!(runtime_support::output(end), "undisturbed");
        for execution in [1, 2] {
            let recorded = world.client.read_execution_history("i", execution).await.unwrap();
            assert!(
                recorded.iter().all(|event| !matches!(event.kind, EventKind::ActivityFailed { .. })),
                "execution {execution}: {recorded:?}"
            );
        }
        runtime.shutdown(None).await;
    })
    .await;
}
