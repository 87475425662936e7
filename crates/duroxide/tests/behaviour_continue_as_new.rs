//! Continue-as-new.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::{ProviderError, WorkItem};
use duroxide::{
    ActivityContext, BackoffStrategy, ErrorDetails, Event, EventKind, OrchestrationContext,
    OrchestrationStatus, PoisonMessageType, RetryPolicy, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::logs::Logs;
use runtime_support::{
    Stage, World, activities, continued, details, echo, faulty_world, few_attempts, kinds, orchestrations,
    output, start_of, successor,
};

/// Reads one message and returns it.
fn reads() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Loop", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.dequeue_event("q").await)
    })
}

async fn execution(world: &World, instance: &str, execution_id: u64) -> Vec<Event> {
    world.store.read_with_execution(instance, execution_id).await.unwrap()
}

// semantics: CAN-1
#[tokio::test]
async fn the_first_continuation_of_a_turn_wins_over_others_and_over_the_return_value() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input == "first" {
            drop(ctx.continue_as_new("wins"));
            drop(ctx.continue_as_new("loses"));
            return Err("not this".to_string());
        }
        Ok(input)
    });
    let runtime = world.start(activities(), code).await;
    assert_eq!(output(world.run("i", "Loop", "first").await), "wins");
    runtime.shutdown(None).await;
}

// semantics: CAN-2
#[tokio::test]
async fn each_execution_keeps_its_history_and_the_current_one_is_read() {
    let world = World::new();
    let code = orchestrations().register("Count", |ctx: OrchestrationContext, input: String| async move {
        let n: u32 = input.parse().unwrap();
        if n < 2 { ctx.continue_as_new((n + 1).to_string()).await } else { Ok(input) }
    });
    let runtime = world.start(activities(), code).await;
    assert_eq!(output(world.run("i", "Count", "0").await), "2");
    for (id, input, next) in [(1, "0", "1"), (2, "1", "2")] {
        let history = execution(&world, "i", id).await;
        assert!(
            matches!(&history[0].kind, EventKind::OrchestrationStarted { input: started, .. } if started == input)
        );
        assert!(
            matches!(&history[1].kind, EventKind::OrchestrationContinuedAsNew { input } if input == next)
        );
        assert_eq!(history.len(), 2);
        let info = world.client.get_execution_info("i", id).await.unwrap();
        assert_eq!((info.status.as_str(), info.output.as_deref()), ("ContinuedAsNew", Some(next)));
        assert_eq!(info.event_count, 2);
        assert!(info.completed_at.is_some());
    }
    let last = execution(&world, "i", 3).await;
    assert_eq!(kinds(&last), ["OrchestrationStarted", "OrchestrationCompleted"]);
    assert_eq!(world.history("i").await, last);
    let info = world.client.get_instance_info("i").await.unwrap();
    assert_eq!((info.current_execution_id, info.status.as_str()), (3, "Completed"));
    runtime.shutdown(None).await;
}

// semantics: CAN-4
#[tokio::test]
async fn a_continuation_gives_up_subscriptions_before_its_row_and_activities_after_it() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input == "second" {
            return Ok(input);
        }
        std::mem::forget(ctx.schedule_activity("Nobody", ""));
        std::mem::forget(ctx.schedule_wait("w"));
        std::mem::forget(ctx.dequeue_event("q"));
        ctx.continue_as_new("second").await
    });
    let runtime = world.start(activities(), code).await;
    world.run("i", "Loop", "first").await;
    let history = execution(&world, "i", 1).await;
    assert_eq!(
        kinds(&history)[4..],
        [
            "ExternalSubscribedCancelled",
            "ExternalSubscribedPersistentCancelled",
            "OrchestrationContinuedAsNew",
            "ActivityCancelRequested"
        ]
    );
    assert!(matches!(
        &history.last().unwrap().kind,
        EventKind::ActivityCancelRequested { reason } if reason == "orchestration_terminal_continued_as_new"
    ));
    assert_eq!(world.client.get_queue_depths().await.unwrap().worker_queue, 0);
    runtime.shutdown(None).await;
}

// semantics: CAN-3
#[tokio::test]
async fn values_status_its_version_and_unread_messages_go_along() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        match input.as_str() {
            "" => {
                ctx.set_kv_value("key", "kept");
                ctx.set_custom_status("step-A");
                ctx.continue_as_new("quiet").await
            }
            "quiet" => {
                assert_eq!(ctx.get_custom_status().as_deref(), Some("step-A"));
                ctx.schedule_wait("go").await;
                ctx.continue_as_new("last").await
            }
            _ => {
                let seen = format!("{:?} {:?}", ctx.get_kv_value("key"), ctx.get_custom_status());
                ctx.reset_custom_status();
                Ok(format!("{seen} {}", ctx.dequeue_event("q").await))
            }
        }
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Loop", "").await.unwrap();
    world.waits_for("i", "go").await;
    let status = world.client.get_orchestration_status("i").await.unwrap();
    let running =
        OrchestrationStatus::Running { custom_status: Some("step-A".into()), custom_status_version: 1 };
    assert_eq!(status, running);
    world.client.enqueue_event("i", "q", "mail").await.unwrap();
    world.client.raise_event("i", "go", "").await.unwrap();
    let status = world.end("i").await;
    assert_eq!(
        status,
        OrchestrationStatus::Completed {
            output: "Some(\"kept\") Some(\"step-A\") mail".into(),
            custom_status: None,
            custom_status_version: 2
        }
    );
    runtime.shutdown(None).await;
}

// semantics: TIM-8, CAN-4
#[tokio::test]
async fn timers_and_results_of_the_execution_before_do_not_reach_the_successor() {
    let world = World::new();
    let stage = Stage::default();
    let slow = activities().register("Slow", stage.until_cancelled());
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input.is_empty() {
            std::mem::forget(ctx.schedule_activity("Slow", ""));
            std::mem::forget(ctx.schedule_timer(Duration::from_secs(10)));
            ctx.schedule_wait("go").await;
            return ctx.continue_as_new("second").await;
        }
        ctx.schedule_timer(Duration::from_secs(20)).await;
        Ok(input)
    });
    let runtime = world.start(slow, code).await;
    world.client.start_orchestration("i", "Loop", "").await.unwrap();
    stage.seen("running", 1).await;
    world.client.raise_event("i", "go", "").await.unwrap();
    stage.seen("cancelled", 1).await;
    let second =
        |kind: &EventKind| matches!(kind, EventKind::OrchestrationStarted { input, .. } if input == "second");
    world.recorded("i", second).await;
    world.clock.advance(Duration::from_secs(20));
    assert_eq!(world.output("i").await, "second");
    let history = world.history("i").await;
    assert_eq!(
        kinds(&history),
        ["OrchestrationStarted", "TimerCreated", "TimerFired", "OrchestrationCompleted"]
    );
    runtime.shutdown(None).await;
}

// semantics: CAN-5
#[tokio::test]
async fn a_child_of_the_execution_before_runs_on_and_its_result_disturbs_nobody() {
    let world = World::new();
    let code = orchestrations()
        .register(
            "Child",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .register("Loop", |ctx: OrchestrationContext, input: String| async move {
            if input.is_empty() {
                let child = ctx.schedule_sub_orchestration("Child", "");
                let continues = ctx.schedule_wait("continue");
                let both = ctx.join2(child, async {
                    continues.await;
                    ctx.continue_as_new("second").await
                });
                return both.await.1;
            }
            Ok(ctx.schedule_wait("end").await)
        });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("p", "Loop", "").await.unwrap();
    world.waits_for("p::sub::2", "go").await;
    world.client.raise_event("p", "continue", "").await.unwrap();
    world.waits_for("p", "end").await;
    world.client.raise_event("p::sub::2", "go", "on its own").await.unwrap();
    assert_eq!(world.output("p::sub::2").await, "on its own");
    world.drained().await;
    world.client.raise_event("p", "end", "fine").await.unwrap();
    assert_eq!(world.output("p").await, "fine");
    assert!(!kinds(&world.history("p").await).iter().any(|kind| kind.starts_with("SubOrchestration")));
    runtime.shutdown(None).await;
}

// semantics: CAN-7
#[tokio::test]
async fn an_instance_between_two_executions_is_running() {
    let (world, faulty) = faulty_world();
    world.seed("i", 1, vec![start_of("i", 1, "Loop", "first"), continued("i", 2)]).await;
    let running = OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 };
    assert_eq!(world.client.get_orchestration_status("i").await.unwrap(), running);
    world.store.enqueue_for_orchestrator(successor("i", "Loop", &[("q", "carried")]), None).await.unwrap();
    let gate = faulty.hold(Call::AckTurn);
    let runtime = world.start(activities(), reads()).await;
    while faulty.count(Call::AckTurn) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.client.get_orchestration_status("i").await.unwrap(), running);
    gate.add_permits(10);
    assert_eq!(world.output("i").await, "carried");
    runtime.shutdown(None).await;
}

// semantics: CAN-8
#[tokio::test]
async fn hundreds_of_executions_are_fine() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if ctx.execution_id() < 300 { ctx.continue_as_new(input).await } else { Ok("end".to_string()) }
    });
    let runtime = world.start(activities(), code).await;
    assert_eq!(output(world.run("i", "Loop", "").await), "end");
    assert_eq!(world.client.list_executions("i").await.unwrap().len(), 300);
    runtime.shutdown(None).await;
}

// semantics: CAN-6
#[tokio::test]
async fn a_continuation_runs_the_version_that_it_names_or_the_one_of_the_policy() {
    let world = World::new();
    let step = |ctx: OrchestrationContext, input: String| async move {
        let seen = format!("{input}{}", ctx.orchestration_version());
        match ctx.execution_id() {
            1 => ctx.continue_as_new(format!("{seen},")).await,
            2 => ctx.continue_as_new_versioned("1.0.0", format!("{seen},")).await,
            _ => Ok(seen),
        }
    };
    let code = orchestrations().register_versioned("V", "1.0.0", step).register_versioned("V", "2.0.0", step);
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration_versioned("i", "V", "1.0.0", "").await.unwrap();
    assert_eq!(world.output("i").await, "1.0.0,2.0.0,1.0.0");
    runtime.shutdown(None).await;
}

// semantics: CAN-9
#[tokio::test]
async fn a_successor_of_a_version_that_nobody_has_is_poisoned_with_what_it_would_have_begun_with() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, _: String| async move {
        ctx.continue_as_new_versioned("9.0.0", "next").await
    });
    let runtime = world.start_with(activities(), code, few_attempts(2)).await;
    world.client.start_orchestration("i", "Loop", "").await.unwrap();
    let found = details(world.end_in_time("i", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { attempt_count: 3, max_attempts: 2, message_type, .. } = found else {
        panic!("{found:?}")
    };
    assert_eq!(message_type, PoisonMessageType::Orchestration { instance: "i".into(), execution_id: 2 });
    let second = execution(&world, "i", 2).await;
    assert_eq!(kinds(&second), ["OrchestrationStarted", "OrchestrationFailed"]);
    assert!(matches!(
        &second[0].kind,
        EventKind::OrchestrationStarted { input, version, .. } if input == "next" && version == "9.0.0"
    ));
    assert_eq!(kinds(&execution(&world, "i", 1).await)[1], "OrchestrationContinuedAsNew");
    runtime.shutdown(None).await;
}

// semantics: CAN-9
#[tokio::test]
async fn what_comes_after_a_poisoned_successor_is_drained_without_effect() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    world.seed("i", 1, vec![start_of("i", 1, "Loop", "first"), continued("i", 2)]).await;
    world.client.enqueue_event("i", "q", "waits").await.unwrap();
    let runtime = world.start_with(activities(), reads(), few_attempts(1)).await;
    world.end_in_time("i", Duration::from_millis(100)).await;
    let line = logs.one("CAN successor start not visible");
    assert_eq!(
        line.message,
        "CAN successor start not visible, abandoning instance inputs with 0.1s backoff (will poison in 1 more attempts)"
    );
    world.client.enqueue_event("i", "q", "late").await.unwrap();
    world.client.raise_event("i", "s", "late").await.unwrap();
    world.client.cancel_instance("i", "late").await.unwrap();
    world.drained().await;
    runtime.shutdown(None).await;
    assert_eq!(execution(&world, "i", 2).await.len(), 2);
    assert_eq!(execution(&world, "i", 1).await.len(), 2);
}

// semantics: CAN-9
#[tokio::test]
async fn a_failure_behind_a_continuation_is_an_end_and_nothing_waits_for_a_successor() {
    let (world, faulty) = faulty_world();
    let failure =
        ErrorDetails::Infrastructure { operation: "ack".into(), message: "refused".into(), retryable: false };
    let failed = EventKind::OrchestrationFailed { details: failure };
    let events = vec![
        start_of("i", 1, "Loop", "first"),
        continued("i", 2),
        Event::with_event_id(3, "i", 1, None, failed),
    ];
    world.seed("i", 1, events).await;
    world.client.enqueue_event("i", "q", "late").await.unwrap();
    world.client.raise_event("i", "s", "late").await.unwrap();
    let runtime = world.start_with(activities(), reads(), few_attempts(2)).await;
    world.drained().await;
    runtime.shutdown(None).await;
    assert_eq!(faulty.abandoned_turns(), []);
    assert_eq!(execution(&world, "i", 1).await.len(), 3);
    assert_eq!(execution(&world, "i", 2).await, []);
}

// semantics: CAN-7
#[tokio::test]
async fn a_stale_result_among_the_waiting_inputs_is_dropped_when_the_successor_begins() {
    let world = World::new();
    world.seed("i", 1, vec![start_of("i", 1, "Loop", "first"), continued("i", 2)]).await;
    let stale = WorkItem::TimerFired { instance: "i".into(), execution_id: 1, id: 2, fire_at_ms: 1 };
    world.store.enqueue_for_orchestrator(stale, None).await.unwrap();
    world.store.enqueue_for_orchestrator(successor("i", "Loop", &[("q", "carried")]), None).await.unwrap();
    let runtime = world.start(activities(), reads()).await;
    assert_eq!(world.output("i").await, "carried");
    assert!(!kinds(&world.history("i").await).contains(&"TimerFired"));
    runtime.shutdown(None).await;
}

// semantics: CAN-7
#[tokio::test]
async fn inputs_that_cannot_be_given_back_return_when_their_lease_ends() {
    let (world, faulty) = faulty_world();
    world.seed("i", 1, vec![start_of("i", 1, "Loop", "first"), continued("i", 2)]).await;
    world.client.raise_event("i", "s", "waits").await.unwrap();
    faulty.fail(Call::AbandonTurn, [ProviderError::retryable("abandon_orchestration_item", "down")]);
    let runtime = world.start_with(activities(), reads(), few_attempts(10)).await;
    while faulty.abandoned_turns().is_empty() {
        tokio::task::yield_now().await;
    }
    // The delay passes, and nothing happens; then the lease ends, and the second attempt waits twice as long.
    world.clock.advance(Duration::from_millis(100));
    assert_eq!(faulty.abandoned_turns().len(), 1);
    while faulty.abandoned_turns().len() < 2 {
        world.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    let delays: Vec<_> = faulty.abandoned_turns().into_iter().take(2).collect();
    assert_eq!(
        delays,
        [(Some(Duration::from_millis(100)), false), (Some(Duration::from_millis(200)), false)]
    );
    world.store.enqueue_for_orchestrator(successor("i", "Loop", &[("q", "carried")]), None).await.unwrap();
    let status = world.end_in_time("i", Duration::from_millis(500)).await;
    assert_eq!(output(status), "carried");
    runtime.shutdown(None).await;
}

// semantics: CAN-8
#[tokio::test]
async fn chains_run_side_by_side_and_their_executions_end_with_the_continuation() {
    let world = World::new();
    let code = orchestrations().register("Chain", |ctx: OrchestrationContext, _: String| async move {
        let execution = ctx.execution_id();
        let next = ctx.schedule_activity("Echo", execution.to_string()).await?;
        if execution < 5 { ctx.continue_as_new(next).await } else { Ok(next) }
    });
    let runtime = world.start(echo(), code).await;
    let instances = ["a", "b", "c"];
    for instance in instances {
        world.client.start_orchestration(instance, "Chain", "").await.unwrap();
    }
    for instance in instances {
        assert_eq!(world.output(instance).await, "5");
        for id in 1..=4 {
            let history = execution(&world, instance, id).await;
            assert_eq!(kinds(&history).last(), Some(&"OrchestrationContinuedAsNew"));
            assert!(matches!(
                &history[0].kind,
                EventKind::OrchestrationStarted { version, .. } if version.starts_with("1.")
            ));
        }
    }
    runtime.shutdown(None).await;
}

// semantics: RETRY-6
#[tokio::test]
async fn three_executions_with_retries_run_their_activity_three_times() {
    let world = World::new();
    let stage = Stage::default();
    let reporter = stage.clone();
    let work = activities().register("Work", move |_: ActivityContext, _: String| {
        reporter.report("ran");
        async { Ok(String::new()) }
    });
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        let policy = RetryPolicy::new(3)
            .with_timeout(Duration::from_secs(5))
            .with_backoff(BackoffStrategy::Fixed { delay: Duration::from_secs(1) });
        ctx.schedule_activity_with_retry("Work", "", policy).await?;
        if ctx.execution_id() < 3 { ctx.continue_as_new(input).await } else { Ok("done".to_string()) }
    });
    let runtime = world.start_with(work, code, RuntimeOptions::default()).await;
    assert_eq!(output(world.run("i", "Loop", "").await), "done");
    world.clock.advance(Duration::from_secs(60));
    world.drained().await;
    runtime.shutdown(None).await;
    assert_eq!(stage.log(), ["ran"; 3]);
}

// semantics: CHILD-9, CAN-3
#[tokio::test]
async fn the_last_execution_of_a_child_reports_to_the_parent_of_the_first() {
    let world = World::new();
    let code = orchestrations()
        .register("Child", |ctx: OrchestrationContext, _: String| async move {
            let n = ctx.execution_id();
            if n < 4 { ctx.continue_as_new("").await } else { Ok(format!("execution {n}")) }
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration("Child", "").await
        });
    let runtime = world.start(activities(), code).await;
    assert_eq!(output(world.run("p", "Parent", "").await), "execution 4");
    let row = world.recorded("p", |kind| matches!(kind, EventKind::SubOrchestrationCompleted { .. })).await;
    assert_eq!(row.source_event_id, Some(2));
    runtime.shutdown(None).await;
}
