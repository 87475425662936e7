//! Turns: starting, versions, children, cancellation, continue-as-new, limits, poison, and stores that fail.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

mod runtime_support;

use std::time::Duration;

use duroxide::providers::{ProviderError, SemverRange, WorkItem};
use duroxide::runtime::{UnregisteredBackoffConfig, VersionPolicy};
use duroxide::{
    ActivityContext, AppErrorKind, Either2, ErrorDetails, Event, EventKind, OrchestrationContext,
    OrchestrationStatus, PoisonMessageType, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::{Stage, World, activities, faulty_world, kinds, orchestrations};
use semver::Version;

fn quick_backoff(max_attempts: u32) -> RuntimeOptions {
    RuntimeOptions {
        max_attempts,
        unregistered_backoff: UnregisteredBackoffConfig {
            base_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(1),
        },
        ..Default::default()
    }
}

fn echo() -> duroxide::runtime::registry::ActivityRegistryBuilder {
    activities().register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
}

/// Waits for two signals one after the other.
async fn two_signals(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    let first = ctx.schedule_wait("a").await;
    let second = ctx.schedule_wait("b").await;
    Ok(format!("{first}{second}"))
}

/// Lets time pass in small steps until the instance has ended.
async fn end_in_time(world: &World, instance: &str, step: Duration) -> OrchestrationStatus {
    loop {
        if let Ok(status) = world.client.wait_for_orchestration(instance, Duration::ZERO).await {
            return status;
        }
        world.clock.advance(step);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

fn details(status: OrchestrationStatus) -> ErrorDetails {
    match status {
        OrchestrationStatus::Failed { details, .. } => details,
        other => panic!("not failed: {other:?}"),
    }
}

// Starting.

#[tokio::test]
async fn a_second_start_of_an_instance_has_no_effect() {
    let world = World::new();
    let runtime = world.start(echo(), orchestrations().register("Two", two_signals)).await;
    world.client.start_orchestration("i", "Two", "first").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.start_orchestration("i", "Two", "second").await.unwrap();
    world.client.raise_event("i", "a", "1").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { name } if name == "b")).await;
    world.client.raise_event("i", "b", "2").await.unwrap();
    assert_eq!(world.output("i").await, "12");
    world.client.start_orchestration("i", "Two", "third").await.unwrap();
    let starts = world.history("i").await.iter().filter(|event| event.event_id == 1).count();
    assert_eq!(starts, 1);
    assert_eq!(world.output("i").await, "12");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_unregistered_orchestration_is_deferred_longer_each_time_and_then_poisoned() {
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(activities(), orchestrations(), quick_backoff(3)).await;
    world.client.start_orchestration("i", "Nobody", "in").await.unwrap();
    let details = details(end_in_time(&world, "i", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { attempt_count: 4, max_attempts: 3, message_type, message } = details else {
        panic!("{details:?}")
    };
    assert_eq!(message_type, PoisonMessageType::Orchestration { instance: "i".into(), execution_id: 1 });
    assert!(message.contains("StartOrchestration"));
    let counted = |ms| (Some(Duration::from_millis(ms)), false);
    assert_eq!(faulty.abandoned_turns(), [counted(100), counted(200), counted(400)]);
    let history = world.history("i").await;
    assert_eq!(kinds(&history), ["OrchestrationStarted", "OrchestrationFailed"]);
    let info = world.client.get_instance_info("i").await.unwrap();
    assert_eq!((info.orchestration_name.as_str(), info.status.as_str()), ("Nobody", "Failed"));
    assert_eq!(runtime.metrics_snapshot().unwrap().orch_poison, 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_unregistered_orchestration_is_taken_by_a_runtime_that_knows_it() {
    let world = World::new();
    let ignorant = world.start_with(activities(), orchestrations(), quick_backoff(10)).await;
    world.client.start_orchestration("i", "Two", "").await.unwrap();
    ignorant.shutdown(None).await;
    let knowing = world
        .start_with(
            activities(),
            orchestrations()
                .register("Two", |_: OrchestrationContext, _: String| async { Ok("done".into()) }),
            quick_backoff(10),
        )
        .await;
    let status = end_in_time(&world, "i", Duration::from_millis(100)).await;
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "done"));
    knowing.shutdown(None).await;
}

#[tokio::test]
async fn an_execution_keeps_the_version_that_it_began_with() {
    let world = World::new();
    let version = |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_wait("go").await;
        Ok(ctx.orchestration_version())
    };
    let old = orchestrations().register_versioned("V", "1.0.2", version);
    let first = world.start(activities(), old).await;
    world.client.start_orchestration("i", "V", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    first.shutdown(None).await;
    let both =
        orchestrations().register_versioned("V", "1.0.2", version).register_versioned("V", "1.0.3", version);
    let second = world.start(activities(), both).await;
    world.client.raise_event("i", "go", "").await.unwrap();
    assert_eq!(world.output("i").await, "1.0.2");
    world.client.start_orchestration("j", "V", "").await.unwrap();
    world.client.start_orchestration_versioned("k", "V", "1.0.2", "").await.unwrap();
    for (instance, expected) in [("j", "1.0.3"), ("k", "1.0.2")] {
        world.recorded(instance, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
        world.client.raise_event(instance, "go", "").await.unwrap();
        assert_eq!(world.output(instance).await, expected);
    }
    second.shutdown(None).await;
}

#[tokio::test]
async fn a_policy_that_is_set_later_decides_which_version_starts() {
    let world = World::new();
    let version = |ctx: OrchestrationContext, _: String| async move { Ok(ctx.orchestration_version()) };
    let registry = orchestrations()
        .register("V", version)
        .register_versioned("V", "2.0.0", version)
        .build_result()
        .unwrap();
    let runtime = duroxide::runtime::Runtime::start_with_store(
        world.store.clone(),
        activities().build(),
        registry.clone(),
    )
    .await;
    world.client.start_orchestration("a", "V", "").await.unwrap();
    assert_eq!(world.output("a").await, "2.0.0");
    registry.set_version_policy("V", VersionPolicy::Exact(Version::new(1, 0, 0)));
    world.client.start_orchestration("b", "V", "").await.unwrap();
    assert_eq!(world.output("b").await, "1.0.0");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_execution_outside_of_the_supported_versions_is_left_alone() {
    let world = World::new();
    let runtime = world.start(activities(), orchestrations().register("Two", two_signals)).await;
    world.client.start_orchestration("i", "Two", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    runtime.shutdown(None).await;
    let range = SemverRange::new(Version::new(9, 0, 0), Version::new(9, 9, 9));
    let options = RuntimeOptions { supported_replay_versions: Some(range), ..Default::default() };
    let other = world.start_with(activities(), orchestrations().register("Two", two_signals), options).await;
    world.client.raise_event("i", "a", "1").await.unwrap();
    world.client.start_orchestration("j", "Two", "").await.unwrap();
    world.recorded("j", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    assert_eq!(world.history("i").await.len(), 2);
    other.shutdown(None).await;
}

// Children.

fn family() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations()
        .register("Parent", |ctx: OrchestrationContext, child: String| async move {
            match ctx.schedule_sub_orchestration(child, "in").await {
                Ok(output) => Ok(format!("child said {output}")),
                Err(error) => Ok(format!("child failed: {error}")),
            }
        })
        .register("Named", |ctx: OrchestrationContext, id: String| async move {
            let result = ctx.schedule_sub_orchestration_with_id("Waiting", id, "in").await;
            Ok(format!("{result:?}"))
        })
        .register("Waiting", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Fails", |_: OrchestrationContext, _: String| async move { Err("bad".to_string()) })
        .register("TooMuchStatus", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("x".repeat(262_145));
            Ok("never".to_string())
        })
        .register("Continues", |ctx: OrchestrationContext, input: String| async move {
            if input == "in" { ctx.continue_as_new("again").await } else { Ok(input) }
        })
}

#[tokio::test]
async fn a_child_tells_its_parent_how_it_ended() {
    let world = World::new();
    let runtime = world.start(activities(), family()).await;
    for (child, expected) in [
        ("Echo", "child said in"),
        ("Fails", "child failed: bad"),
        ("Continues", "child said again"),
        ("TooMuchStatus", "child failed: Custom status size (262145 bytes) exceeds limit (262144 bytes)"),
    ] {
        world.client.start_orchestration(child, "Parent", child).await.unwrap();
        assert_eq!(world.output(child).await, expected);
    }
    let metrics = runtime.metrics_snapshot().unwrap();
    assert_eq!(metrics.suborchestration_calls, 4);
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
async fn a_cancelled_parent_cancels_its_child() {
    let world = World::new();
    let runtime = world.start(activities(), family()).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    world.recorded("p::sub::2", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.cancel_instance("p", "by test").await.unwrap();
    world.client.cancel_instance("p", "again").await.unwrap();
    assert_eq!(world.failure("p").await, "canceled: by test");
    assert_eq!(world.failure("p::sub::2").await, "canceled: parent canceled");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_child_whose_id_is_taken_fails_fast_and_leaves_the_other_alone() {
    let world = World::new();
    let runtime = world.start(activities(), family()).await;
    world.client.start_orchestration("first", "Named", "shared").await.unwrap();
    world.recorded("shared", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.start_orchestration("second", "Named", "shared").await.unwrap();
    assert_eq!(
        world.output("second").await,
        "Err(\"sub-orchestration instance id 'shared' already exists\")"
    );
    world.client.raise_event("shared", "go", "on").await.unwrap();
    assert_eq!(world.output("first").await, "Ok(\"on\")");
    world.client.start_orchestration("third", "Named", "shared").await.unwrap();
    assert_eq!(
        world.output("third").await,
        "Err(\"sub-orchestration instance id 'shared' already exists and is terminal\")"
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn two_starts_of_one_child_in_one_batch_leave_nobody_waiting() {
    let world = World::new();
    let parents = orchestrations().register("Named", |ctx: OrchestrationContext, id: String| async move {
        let result = ctx.schedule_sub_orchestration_with_id("Waiting", id, "in").await;
        Ok(format!("{result:?}"))
    });
    // The child's code is not there yet, so both starts wait for it and come in one batch.
    let first = world.start(activities(), parents).await;
    world.client.start_orchestration("a", "Named", "shared").await.unwrap();
    world.client.start_orchestration("b", "Named", "shared").await.unwrap();
    for parent in ["a", "b"] {
        world.recorded(parent, |kind| matches!(kind, EventKind::SubOrchestrationScheduled { .. })).await;
    }
    first.shutdown(None).await;
    let second = world.start(activities(), family()).await;
    world.clock.advance(Duration::from_secs(5));
    world.recorded("shared", |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    world.client.raise_event("shared", "go", "on").await.unwrap();
    let mut outputs = [world.output("a").await, world.output("b").await];
    outputs.sort();
    assert_eq!(outputs, ["Err(\"sub-orchestration instance id 'shared' already exists\")", "Ok(\"on\")"]);
    second.shutdown(None).await;
}

#[tokio::test]
async fn a_child_that_never_came_to_be_is_not_cancelled_into_being_an_orphan() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            family().register("Hasty", |ctx: OrchestrationContext, _: String| async move {
                drop(ctx.schedule_sub_orchestration_with_id("Waiting", "unborn", ""));
                Ok("done".to_string())
            }),
        )
        .await;
    world.client.start_orchestration("h", "Hasty", "").await.unwrap();
    assert_eq!(world.output("h").await, "done");
    let extended = world.store.as_extended().unwrap();
    assert_eq!(extended.list_parked(10).await.unwrap(), []);
    assert_eq!(world.client.get_queue_depths().await.unwrap().orchestrator_queue, 0);
    runtime.shutdown(None).await;
}

// Detached starts.

#[tokio::test]
async fn a_detached_start_goes_out_however_the_turn_ends() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            family()
                .register("CompletesNow", |ctx: OrchestrationContext, _: String| async move {
                    ctx.schedule_orchestration("Echo", "of-completed", "1");
                    Ok(String::new())
                })
                .register("FailsNow", |ctx: OrchestrationContext, _: String| async move {
                    ctx.schedule_orchestration("Echo", "of-failed", "2");
                    Err("bad".to_string())
                })
                .register("ContinuesNow", |ctx: OrchestrationContext, input: String| async move {
                    if input == "again" {
                        return Ok(input);
                    }
                    ctx.schedule_orchestration("Echo", "of-continued", "3");
                    ctx.continue_as_new("again").await
                })
                .register("CancelledNow", |ctx: OrchestrationContext, _: String| async move {
                    ctx.schedule_orchestration("Echo", "of-cancelled", "4");
                    ctx.schedule_wait("never").await;
                    Ok(String::new())
                }),
        )
        .await;
    world.run("a", "CompletesNow", "").await;
    world.run("b", "FailsNow", "").await;
    world.run("c", "ContinuesNow", "").await;
    // Start and cancellation in one batch: the turn that starts the instance ends it.
    runtime.shutdown(None).await;
    world.client.start_orchestration("d", "CancelledNow", "").await.unwrap();
    world.client.cancel_instance("d", "at once").await.unwrap();
    let runtime = world
        .start(
            activities(),
            family().register("CancelledNow", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_orchestration("Echo", "of-cancelled", "4");
                ctx.schedule_wait("never").await;
                Ok(String::new())
            }),
        )
        .await;
    assert_eq!(world.failure("d").await, "canceled: at once");
    for (instance, output) in
        [("of-completed", "1"), ("of-failed", "2"), ("of-continued", "3"), ("of-cancelled", "4")]
    {
        assert_eq!(world.output(instance).await, output);
    }
    runtime.shutdown(None).await;
}

// Endings.

#[tokio::test]
async fn the_end_of_an_instance_gives_up_what_it_waited_for() {
    let world = World::new();
    let stage = Stage::default();
    let reporter = stage.clone();
    let work = move |ctx: ActivityContext, _: String| {
        let stage = reporter.clone();
        async move {
            stage.report("running");
            ctx.cancelled().await;
            Ok(String::new())
        }
    };
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
    while world.client.get_queue_depths().await.unwrap().orchestrator_queue > 0 {
        tokio::task::yield_now().await;
    }
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

// Continue-as-new.

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
    let start = |execution| {
        Event::with_event_id(
            1,
            "i",
            execution,
            None,
            EventKind::OrchestrationStarted {
                name: "Loop".into(),
                version: "1.0.0".into(),
                input: "first".into(),
                parent_instance: None,
                parent_id: None,
                parent_execution_id: None,
                carry_forward_events: None,
                initial_custom_status: None,
            },
        )
    };
    let ended = Event::with_event_id(
        2,
        "i",
        1,
        None,
        EventKind::OrchestrationContinuedAsNew { input: "second".into() },
    );
    world.store.append_with_execution("i", 1, vec![start(1), ended]).await.unwrap();
    world.client.enqueue_event("i", "inbox", "mail").await.unwrap();
    let runtime = world.start_with(activities(), code(), quick_backoff(10)).await;
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
    let successor = WorkItem::ContinueAsNew {
        instance: "i".into(),
        orchestration: "Loop".into(),
        input: "second".into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![],
        initial_custom_status: None,
    };
    world.store.enqueue_for_orchestrator(successor, None).await.unwrap();
    let status = end_in_time(&world, "i", Duration::from_millis(100)).await;
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "mail"));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_successor_that_never_begins_is_poisoned_as_an_execution_of_its_own() {
    let world = World::new();
    let start = Event::with_event_id(
        1,
        "i",
        1,
        None,
        EventKind::OrchestrationStarted {
            name: "Loop".into(),
            version: "1.0.0".into(),
            input: "first".into(),
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            carry_forward_events: None,
            initial_custom_status: None,
        },
    );
    let ended = Event::with_event_id(
        2,
        "i",
        1,
        None,
        EventKind::OrchestrationContinuedAsNew { input: "second".into() },
    );
    world.store.append_with_execution("i", 1, vec![start, ended]).await.unwrap();
    world.client.cancel_instance("i", "please").await.unwrap();
    let runtime = world.start_with(activities(), orchestrations(), quick_backoff(2)).await;
    let details = details(end_in_time(&world, "i", Duration::from_millis(100)).await);
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

// Poison.

#[tokio::test]
async fn a_poisoned_child_fails_its_parent_with_the_same_details() {
    let world = World::new();
    let runtime = world.start_with(activities(), family(), quick_backoff(2)).await;
    world.client.start_orchestration("p", "Parent", "Nobody").await.unwrap();
    let details = details(end_in_time(&world, "p", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { attempt_count: 3, message_type, .. } = details else { panic!("{details:?}") };
    assert_eq!(
        message_type,
        PoisonMessageType::Orchestration { instance: "p::sub::2".into(), execution_id: 1 }
    );
    runtime.shutdown(None).await;
}

#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn the_parent_of_a_child_whose_history_cannot_be_decoded_is_told() {
    use duroxide::providers::{ManualClock, memory::MemoryProvider};
    let clock = std::sync::Arc::new(ManualClock::default());
    let memory = std::sync::Arc::new(MemoryProvider::with_clock(clock.clone()));
    let world = World::on(memory.clone(), clock);
    let runtime = world.start_with(activities(), family(), quick_backoff(2)).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    let child = "p::sub::2";
    world.recorded(child, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    runtime.shutdown(None).await;
    memory.corrupt_history(child);
    world.client.raise_event(child, "go", "on").await.unwrap();
    let runtime = world.start_with(activities(), family(), quick_backoff(2)).await;
    let details = details(end_in_time(&world, "p", Duration::from_millis(500)).await);
    assert!(details.display_message().contains("deserialization"), "{details:?}");
    let status = world.client.get_orchestration_status(child).await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Failed { .. }));
    let recent = memory_recent(&world, child).await;
    assert_eq!(recent.event_id, 99_999);
    // What comes later is taken note of, and in nobody's way.
    world.client.raise_event(child, "go", "again").await.unwrap();
    while world.client.get_queue_depths().await.unwrap().orchestrator_queue > 0 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown(None).await;
}

#[cfg(feature = "test-hooks")]
async fn memory_recent(world: &World, instance: &str) -> Event {
    world.store.as_extended().unwrap().read_recent(instance, 1).await.unwrap().remove(0)
}

// Stores that fail.

#[tokio::test]
async fn a_commit_that_fails_for_a_moment_is_tried_again() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    faulty.fail(Call::AckTurn, vec![ProviderError::retryable("ack_orchestration_item", "busy"); 5]);
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    let status = end_in_time(&world, "i", Duration::from_millis(10)).await;
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "fine"));
    assert_eq!(faulty.count(Call::AckTurn), 6);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_turn_that_the_store_refuses_fails_the_instance_and_tells_its_parent() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    world.client.start_orchestration("p", "Parent", "Waiting").await.unwrap();
    let child = "p::sub::2";
    world.recorded(child, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
    faulty.fail(Call::AckTurn, [ProviderError::permanent("ack_orchestration_item", "refused")]);
    world.client.raise_event(child, "go", "on").await.unwrap();
    let details = details(world.end("p").await);
    assert_eq!(
        details,
        ErrorDetails::Infrastructure {
            operation: "ack_orchestration_item".into(),
            message: "refused".into(),
            retryable: false
        }
    );
    let history = world.history(child).await;
    assert_eq!(kinds(&history), ["OrchestrationStarted", "ExternalSubscribed", "OrchestrationFailed"]);
    assert!(runtime.metrics_snapshot().unwrap().orch_infrastructure_errors >= 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_first_turn_that_the_store_refuses_leaves_an_instance_that_can_be_found() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    faulty.fail(Call::AckTurn, [ProviderError::permanent("ack_orchestration_item", "refused")]);
    world.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(world.failure("i").await, "infrastructure:ack_orchestration_item: refused");
    assert_eq!(kinds(&world.history("i").await), ["OrchestrationStarted", "OrchestrationFailed"]);
    assert_eq!(world.client.get_instance_info("i").await.unwrap().status, "Failed");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_turn_that_cannot_even_be_failed_is_given_back_and_taken_again() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(echo(), family()).await;
    faulty.fail(Call::AckTurn, vec![ProviderError::permanent("ack_orchestration_item", "refused"); 2]);
    world.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(world.output("i").await, "x");
    assert_eq!(faulty.abandoned_turns(), [(None, false)]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_refused_turn_drops_the_resident_and_the_next_turn_is_right() {
    let (world, faulty) = faulty_world();
    let runtime = world
        .start(
            echo(),
            orchestrations().register("Sum", |ctx: OrchestrationContext, _: String| async move {
                let mut sum = 0;
                for _ in 0..4 {
                    let next = ctx.dequeue_event("numbers").await;
                    sum += next.parse::<u32>().unwrap();
                    ctx.set_custom_status(sum.to_string());
                }
                Ok(sum.to_string())
            }),
        )
        .await;
    world.client.start_orchestration("i", "Sum", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::QueueSubscribed { .. })).await;
    for number in 1..=4 {
        if number == 3 {
            // The turn and its failure are both refused: the message comes again, to an instance that is rebuilt.
            faulty.fail(Call::AckTurn, vec![ProviderError::permanent("ack_orchestration_item", "no"); 2]);
        }
        world.client.enqueue_event("i", "numbers", number.to_string()).await.unwrap();
        let version = number as u64;
        world
            .client
            .wait_for_status_change("i", version - 1, Duration::ZERO, runtime_support::SOON)
            .await
            .unwrap();
    }
    assert_eq!(world.output("i").await, "10");
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

#[tokio::test]
async fn messages_for_instances_that_do_not_exist_are_in_nobodys_way() {
    let world = World::new();
    let runtime = world.start(echo(), family()).await;
    world.client.raise_event("nobody", "go", "").await.unwrap();
    world.client.cancel_instance("nobody", "why").await.unwrap();
    world.client.enqueue_event("nobody", "inbox", "").await.unwrap();
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    assert_eq!(world.output("i").await, "fine");
    runtime.shutdown(None).await;
}
