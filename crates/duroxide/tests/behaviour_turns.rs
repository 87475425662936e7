//! Turns: batches, atomicity, ids, start events, kinds of failure.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::{OrchestrationItem, TagFilter, WorkItem, current_build_version};
use duroxide::{
    ActivityContext, AppErrorKind, ErrorDetails, Event, EventKind, OrchestrationContext, OrchestrationStatus,
    PoisonMessageType, RuntimeOptions,
};
use runtime_support::faulty::Call;
use runtime_support::logs::Logs;
use runtime_support::{
    Stage, World, activities, continued, details, echo, faulty_world, few_attempts, kinds, orchestrations,
    output, plain_world, start_of, successor,
};

fn ids(history: &[Event]) -> Vec<u64> {
    history.iter().map(|event| event.event_id).collect()
}

/// Waits for one signal and returns it.
fn waiting() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Waiting", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.schedule_wait("go").await)
    })
}

// semantics: TURN-4
#[tokio::test]
async fn a_turn_takes_all_messages_of_one_instance_in_the_order_they_were_sent() {
    let (world, faulty) = faulty_world();
    world.client.start_orchestration("i", "Reads", "").await.unwrap();
    world.client.start_orchestration("other", "Reads", "").await.unwrap();
    for text in ["a", "b", "c"] {
        world.client.enqueue_event("i", "q", text).await.unwrap();
        world.client.enqueue_event("other", "q", text.to_uppercase()).await.unwrap();
    }
    let reads = orchestrations().register("Reads", |ctx: OrchestrationContext, _: String| async move {
        let mut all = String::new();
        for _ in 0..3 {
            all.push_str(&ctx.dequeue_event("q").await);
        }
        Ok(all)
    });
    let runtime = world.start(activities(), reads).await;
    assert_eq!(world.output("i").await, "abc");
    assert_eq!(world.output("other").await, "ABC");
    runtime.shutdown(None).await;
    let turns = faulty.acked_turns();
    assert_eq!(turns.len(), 2, "one turn an instance");
    for turn in turns {
        assert!(turn.iter().all(|event| event.instance_id == turn[0].instance_id));
        let first: Vec<_> = kinds(&turn)[..4].to_vec();
        assert_eq!(
            first,
            [
                "OrchestrationStarted",
                "ExternalEventPersistent",
                "ExternalEventPersistent",
                "ExternalEventPersistent"
            ]
        );
        assert_eq!(ids(&turn), (1..=turn.len() as u64).collect::<Vec<_>>());
    }
}

// semantics: TURN-3
#[tokio::test]
async fn an_instance_takes_one_turn_at_a_time_also_with_two_runtimes() {
    let (world, faulty) = faulty_world();
    let gate = faulty.hold(Call::AckTurn);
    let first = world.start(activities(), waiting()).await;
    let second = world.start(activities(), waiting()).await;
    world.client.start_orchestration("i", "Waiting", "").await.unwrap();
    while faulty.count(Call::AckTurn) < 1 {
        tokio::task::yield_now().await;
    }
    world.client.raise_event("i", "go", "early").await.unwrap();
    world.client.start_orchestration("j", "Waiting", "").await.unwrap();
    while faulty.count(Call::AckTurn) < 2 {
        tokio::task::yield_now().await;
    }
    let instances: Vec<_> = faulty.acked_turns().iter().map(|turn| turn[0].instance_id.clone()).collect();
    assert_eq!(instances, ["i", "j"]);
    gate.add_permits(100);
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalEvent { .. })).await;
    assert_eq!(world.client.get_orchestration_status("j").await.unwrap(), running());
    first.shutdown(None).await;
    second.shutdown(None).await;
}

fn running() -> OrchestrationStatus {
    OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 }
}

// semantics: TURN-2
#[tokio::test]
async fn nothing_of_a_turn_is_seen_before_it_is_committed_and_then_all_of_it() {
    let (world, faulty) = faulty_world();
    let gate = faulty.hold(Call::AckTurn);
    let code = waiting().register("All", |ctx: OrchestrationContext, _: String| async move {
        ctx.set_kv_value("key", "value");
        ctx.set_custom_status("busy");
        let _activity = ctx.schedule_activity("Echo", "");
        let _child = ctx.schedule_sub_orchestration("Waiting", "");
        ctx.schedule_orchestration("Waiting", "detached", "");
        Ok(ctx.schedule_wait("end").await)
    });
    let options = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let runtime = world.start_with(activities(), code, options).await;
    world.client.start_orchestration("i", "All", "").await.unwrap();
    while faulty.count(Call::AckTurn) < 1 {
        tokio::task::yield_now().await;
    }
    let client = &world.client;
    assert_eq!(world.history("i").await, []);
    assert_eq!(client.get_orchestration_status("i").await.unwrap(), OrchestrationStatus::NotFound);
    assert_eq!(client.get_kv_value("i", "key").await.unwrap(), None);
    assert_eq!(client.get_queue_depths().await.unwrap().worker_queue, 0);
    assert!(client.list_all_instances().await.unwrap().is_empty());
    gate.add_permits(100);
    for instance in ["i::sub::5", "detached"] {
        world.waits_for(instance, "go").await;
    }
    assert_eq!(client.get_kv_value("i", "key").await.unwrap().as_deref(), Some("value"));
    assert_eq!(client.get_queue_depths().await.unwrap().worker_queue, 1);
    assert!(matches!(
        client.get_orchestration_status("i").await.unwrap(),
        OrchestrationStatus::Running { custom_status: Some(status), custom_status_version: 1 } if status == "busy"
    ));
    runtime.shutdown(None).await;
}

// semantics: REPLAY-7
#[tokio::test]
async fn an_orchestration_that_awaits_a_channel_stays_pending_until_a_message_makes_a_turn() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let (sender, receiver) = tokio::sync::watch::channel(false);
    let code = waiting().register("Foreign", move |ctx: OrchestrationContext, _: String| {
        let mut receiver = receiver.clone();
        async move {
            let _never = ctx.schedule_wait("never");
            receiver.wait_for(|ready| *ready).await.ok();
            Ok("after the channel".to_string())
        }
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Foreign", "").await.unwrap();
    world.waits_for("i", "never").await;
    assert!(logs.with("not durable").iter().any(|line| line.field("instance") == "i"));
    sender.send(true).unwrap();
    // The channel wakes no instance: others take their turns, this one has none to take.
    world.client.start_orchestration("j", "Waiting", "").await.unwrap();
    world.waits_for("j", "go").await;
    world.client.raise_event("j", "go", "1").await.unwrap();
    assert_eq!(world.output("j").await, "1");
    assert_eq!(world.history("i").await.len(), 2);
    world.client.enqueue_event("i", "any", "").await.unwrap();
    assert_eq!(world.output("i").await, "after the channel");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn rows_at_the_end_take_the_next_ids_also_after_a_gap() {
    let world = World::new();
    let wait = EventKind::ExternalSubscribed { name: "go".into() };
    let kept = EventKind::QueueSubscribed { name: "kept".into() };
    world
        .seed(
            "i",
            1,
            vec![
                start_of("i", 1, "Leaves", ""),
                Event::with_event_id(4, "i", 1, None, kept),
                Event::with_event_id(7, "i", 1, None, wait),
            ],
        )
        .await;
    let code = orchestrations().register("Leaves", |ctx: OrchestrationContext, _: String| async move {
        std::mem::forget(ctx.dequeue_event("kept"));
        Ok(ctx.schedule_wait("go").await)
    });
    let runtime = world.start(activities(), code).await;
    world.client.raise_event("i", "go", "on").await.unwrap();
    assert_eq!(world.output("i").await, "on");
    let history = world.history("i").await;
    assert_eq!(
        kinds(&history)[3..],
        ["ExternalEvent", "ExternalSubscribedPersistentCancelled", "OrchestrationCompleted"]
    );
    assert_eq!(ids(&history), [1, 4, 7, 8, 9, 10]);
    runtime.shutdown(None).await;
}

// semantics: TURN-9
#[tokio::test]
async fn the_start_event_has_the_resolved_version_the_input_the_parent_and_the_stamp() {
    let world = World::new();
    let code =
        orchestrations()
            .register_versioned("Child", "2.3.4", |_: OrchestrationContext, input: String| async move {
                Ok(input)
            })
            .register("Parent", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_sub_orchestration("Child", "hello").await
            });
    let runtime = world.start(activities(), code).await;
    world.run("p", "Parent", "in").await;
    let child = world.history("p::sub::2").await.remove(0);
    assert_eq!(child.event_id, 1);
    assert_eq!(child.duroxide_version, current_build_version().to_string());
    let EventKind::OrchestrationStarted {
        name,
        version,
        input,
        parent_instance,
        parent_id,
        parent_execution_id,
        ..
    } = child.kind
    else {
        panic!("{child:?}")
    };
    assert_eq!((name.as_str(), version.as_str(), input.as_str()), ("Child", "2.3.4", "hello"));
    assert_eq!((parent_instance.as_deref(), parent_id, parent_execution_id), (Some("p"), Some(2), Some(1)));
    let EventKind::OrchestrationStarted { parent_instance: None, version, .. } =
        world.history("p").await.remove(0).kind
    else {
        panic!("a root has no parent")
    };
    assert_eq!(version, "1.0.0");
    runtime.shutdown(None).await;
}

// semantics: CAN-2
#[tokio::test]
async fn executions_are_numbered_from_one_without_gaps() {
    let world = World::new();
    let code = orchestrations().register("Count", |ctx: OrchestrationContext, input: String| async move {
        if ctx.execution_id() < 4 { ctx.continue_as_new(input).await } else { Ok(input) }
    });
    let runtime = world.start(activities(), code).await;
    world.run("i", "Count", "").await;
    assert_eq!(world.client.list_executions("i").await.unwrap(), [1, 2, 3, 4]);
    for execution in 1..=4 {
        let history = world.client.read_execution_history("i", execution).await.unwrap();
        assert!(history.iter().all(|event| event.execution_id == execution));
    }
    runtime.shutdown(None).await;
}

// semantics: ACT-12
#[tokio::test]
async fn work_carries_the_execution_that_asked_for_it() {
    let world = World::new();
    let code = waiting().register("Second", |ctx: OrchestrationContext, input: String| async move {
        if input == "first" {
            return ctx.continue_as_new("second").await;
        }
        let _work = ctx.schedule_activity("Echo", "");
        let _child = ctx.schedule_sub_orchestration("Waiting", "");
        ctx.schedule_timer(Duration::from_secs(5)).await;
        Ok(String::new())
    });
    let options = RuntimeOptions { worker_concurrency: 0, ..Default::default() };
    let runtime = world.start_with(activities(), code, options).await;
    world.client.start_orchestration("i", "Second", "first").await.unwrap();
    world.waits_for("i::sub::2_3", "go").await;
    runtime.shutdown(None).await;
    let lease = Duration::from_secs(30);
    let (work, _, _) = world
        .store
        .fetch_work_item(lease, Duration::ZERO, None, &TagFilter::DefaultOnly)
        .await
        .unwrap()
        .expect("the activity");
    assert!(matches!(work, WorkItem::ActivityExecute { execution_id: 2, id: 2, .. }), "{work:?}");
    world.clock.advance(Duration::from_secs(5));
    let (item, _, _) =
        world.store.fetch_orchestration_item(lease, Duration::ZERO, None).await.unwrap().expect("the timer");
    assert!(
        matches!(item.messages[..], [WorkItem::TimerFired { execution_id: 2, id: 4, .. }]),
        "{:?}",
        item.messages
    );
    let child = world.history("i::sub::2_3").await.remove(0);
    assert!(matches!(child.kind, EventKind::OrchestrationStarted { parent_execution_id: Some(2), .. }));
}

// semantics: CANCEL-1, FAIL-1
#[tokio::test]
async fn each_kind_of_failure_is_told_by_its_details() {
    let world = World::new();
    let code = waiting()
        .register("Errs", |_: OrchestrationContext, _: String| async move { Err("boom".to_string()) })
        .register("Panics", |_: OrchestrationContext, _: String| async move { panic!("kaboom") })
        .register("Activity", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Fails", "").await
        });
    let fails =
        activities().register("Fails", |_: ActivityContext, _: String| async move { Err("no".to_string()) });
    let runtime = world.start(fails, code).await;
    let application =
        |kind, message: &str| ErrorDetails::Application { kind, message: message.into(), retryable: false };
    let errs = details(world.run("a", "Errs", "").await);
    assert_eq!(errs, application(AppErrorKind::OrchestrationFailed, "boom"));
    assert_eq!(kinds(&world.history("a").await), ["OrchestrationStarted", "OrchestrationFailed"]);
    let panics = details(world.run("b", "Panics", "").await);
    assert_eq!(panics, application(AppErrorKind::Panicked, "kaboom"));
    assert_eq!(panics.display_message(), "orchestration panicked: kaboom");
    world.client.start_orchestration("c", "Waiting", "").await.unwrap();
    world.client.cancel_instance("c", "enough").await.unwrap();
    let cancelled = details(world.end("c").await);
    assert_eq!(cancelled, application(AppErrorKind::Cancelled { reason: "enough".into() }, ""));
    // An activity's failure has its own kind in the row, and is an ordinary error of the code that passes it on.
    let passed_on = details(world.run("d", "Activity", "").await);
    assert_eq!(passed_on, application(AppErrorKind::OrchestrationFailed, "no"));
    let row = world.recorded("d", |kind| matches!(kind, EventKind::ActivityFailed { .. })).await;
    let expected = application(AppErrorKind::ActivityFailed, "no");
    assert!(matches!(row.kind, EventKind::ActivityFailed { details } if details == expected));
    runtime.shutdown(None).await;
}

// semantics: FAIL-2
#[tokio::test]
async fn what_arrived_before_a_panic_stays_recorded_and_what_was_asked_for_is_lost() {
    let world = World::new();
    let code = orchestrations().register("Panics", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_wait("go").await;
        let _lost = ctx.schedule_activity("Echo", "");
        panic!("boom")
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("i", "Panics", "").await.unwrap();
    world.waits_for("i", "go").await;
    world.client.raise_event("i", "go", "").await.unwrap();
    assert_eq!(world.failure("i").await, "orchestration panicked: boom");
    assert_eq!(
        kinds(&world.history("i").await),
        ["OrchestrationStarted", "ExternalSubscribed", "ExternalEvent", "OrchestrationFailed"]
    );
    runtime.shutdown(None).await;
}

// semantics: FAIL-4
#[tokio::test]
async fn the_failure_of_a_grandparent_names_the_poisoned_activity() {
    let world = World::new();
    let code = orchestrations()
        .register("Top", |ctx: OrchestrationContext, _: String| async move {
            let caught = ctx.schedule_sub_orchestration("Middle", "").await;
            Ok(format!("{caught:?}"))
        })
        .register("Middle", |ctx: OrchestrationContext, _: String| async move {
            let caught = ctx.schedule_sub_orchestration("Bottom", "").await;
            Ok(format!("{caught:?}"))
        })
        .register("Bottom", |ctx: OrchestrationContext, _: String| async move {
            let caught = ctx.schedule_activity("Nobody", "in").await;
            Ok(format!("{caught:?}"))
        });
    let runtime = world.start_with(activities(), code, few_attempts(2)).await;
    world.client.start_orchestration("t", "Top", "").await.unwrap();
    let found = details(world.end_in_time("t", Duration::from_millis(100)).await);
    let ErrorDetails::Poison { attempt_count: 3, max_attempts: 2, message_type, .. } = found else {
        panic!("{found:?}")
    };
    assert_eq!(
        message_type,
        PoisonMessageType::Activity {
            instance: "t::sub::2::sub::2".into(),
            execution_id: 1,
            activity_name: "Nobody".into(),
            activity_id: 2
        }
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_commit_tells_of_the_instance_only_what_it_changes() {
    let (world, faulty) = faulty_world();
    let code = waiting().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        ctx.schedule_wait("go").await;
        ctx.schedule_wait("end").await;
        if input == "first" { ctx.continue_as_new("second").await } else { Err("bad".to_string()) }
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Loop", "first").await.unwrap();
    for execution in [1, 2] {
        while world.history("i").await.last().map(|event| event.execution_id) != Some(execution) {
            tokio::task::yield_now().await;
        }
        for signal in ["go", "end"] {
            world.waits_for("i", signal).await;
            world.client.raise_event("i", signal, "").await.unwrap();
        }
    }
    world.end("i").await;
    runtime.shutdown(None).await;
    let told: Vec<_> = faulty
        .acked_metadata()
        .into_iter()
        .map(|told| {
            assert_eq!(told.parent_instance_id, None);
            assert_eq!(told.pinned_duroxide_version.is_some(), told.orchestration_name.is_some());
            (told.orchestration_name, told.orchestration_version, told.status, told.output)
        })
        .collect();
    let text = |text: &str| Some(text.to_string());
    let started = (text("Loop"), text("1.0.0"), None, None);
    let nothing = (None, None, None, None);
    let continued = (None, None, text("ContinuedAsNew"), text("second"));
    let failed = (None, None, text("Failed"), text("bad"));
    assert_eq!(told, [started.clone(), nothing.clone(), continued, started, nothing, failed]);
}

// semantics: TURN-11
#[tokio::test]
async fn what_the_last_turn_asks_for_is_recorded_and_never_runs() {
    let world = World::new();
    let stage = Stage::default();
    let reporter = stage.clone();
    let work = activities().register("Work", move |_: ActivityContext, _: String| {
        reporter.report("ran");
        async { Ok(String::new()) }
    });
    let code = waiting().register("Last", |ctx: OrchestrationContext, input: String| async move {
        std::mem::forget(ctx.schedule_activity("Work", ""));
        std::mem::forget(ctx.schedule_timer(Duration::from_secs(1)));
        std::mem::forget(ctx.schedule_sub_orchestration("Waiting", ""));
        if input == "ok" { Ok(input) } else { Err(input) }
    });
    let runtime = world.start(work, code).await;
    for input in ["ok", "bad"] {
        world.run(input, "Last", input).await;
        let history = world.history(input).await;
        assert_eq!(kinds(&history)[1..4], ["ActivityScheduled", "TimerCreated", "SubOrchestrationScheduled"]);
        assert_eq!(world.history(&format!("{input}::sub::4")).await, []);
    }
    let depths = world.client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue, depths.timer_queue), (0, 0, 0));
    assert_eq!(stage.log(), [""; 0]);
    runtime.shutdown(None).await;
}

// semantics: TURN-10, CANCEL-2
#[tokio::test]
async fn whatever_reaches_a_finished_instance_changes_nothing() {
    let world = World::new();
    let code = waiting()
        .register("Done", |_: OrchestrationContext, _: String| async move { Ok("done".to_string()) })
        .register("Bad", |_: OrchestrationContext, _: String| async move { Err("bad".to_string()) });
    let runtime = world.start(activities(), code).await;
    for name in ["Done", "Bad"] {
        let end = world.run(name, name, "").await;
        world.client.raise_event(name, "late", "").await.unwrap();
        world.client.enqueue_event(name, "late", "").await.unwrap();
        world.client.cancel_instance(name, "late").await.unwrap();
        world.client.start_orchestration(name, "Waiting", "").await.unwrap();
        world.drained().await;
        assert_eq!(world.history(name).await.len(), 2);
        assert_eq!(world.end(name).await, end);
    }
    runtime.shutdown(None).await;
    for name in ["Done", "Bad"] {
        assert_eq!(world.history(name).await.len(), 2);
    }
}

// semantics: CLIENT-2
#[tokio::test]
async fn the_first_of_several_starts_in_one_batch_wins() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    for input in ["first", "second", "third"] {
        world.client.start_orchestration("i", "Echo", input).await.unwrap();
    }
    let code =
        orchestrations().register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) });
    let runtime = world.start(activities(), code).await;
    assert_eq!(world.output("i").await, "first");
    let ignored = logs.with("Ignoring duplicate StartOrchestration for an existing instance");
    assert!(!ignored.is_empty() && ignored.iter().all(|line| line.field("instance") == "i"));
    runtime.shutdown(None).await;
}

// semantics: CLIENT-2
#[tokio::test]
async fn a_continuation_wins_over_a_start_by_a_client_in_either_order() {
    for client_first in [true, false] {
        let world = World::new();
        world.seed("i", 1, vec![start_of("i", 1, "Echo", "first"), continued("i", 2)]).await;
        if client_first {
            world.client.start_orchestration("i", "Other", "client").await.unwrap();
        }
        world.store.enqueue_for_orchestrator(successor("i", "Echo", &[]), None).await.unwrap();
        world.client.start_orchestration("i", "Other", "client").await.unwrap();
        let code = orchestrations()
            .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
            .register("Other", |_: OrchestrationContext, _: String| async move { Ok("other".to_string()) });
        let runtime = world.start(activities(), code).await;
        assert_eq!(world.output("i").await, "second");
        let first = world.store.read_with_execution("i", 1).await.unwrap();
        assert_eq!(kinds(&first), ["OrchestrationStarted", "OrchestrationContinuedAsNew"]);
        let second = world.store.read_with_execution("i", 2).await.unwrap();
        assert_eq!(kinds(&second), ["OrchestrationStarted", "OrchestrationCompleted"]);
        runtime.shutdown(None).await;
    }
}

// semantics: FAIL-3
#[tokio::test]
async fn a_version_that_nobody_has_is_waited_for_and_then_poisoned_with_its_name_and_version() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    for (instance, version) in [("missing", "9.9.9"), ("nonsense", "not a version")] {
        let runtime = world.start_with(activities(), waiting(), few_attempts(1)).await;
        world.client.start_orchestration_versioned(instance, "Waiting", version, "in").await.unwrap();
        let found = details(world.end_in_time(instance, Duration::from_millis(100)).await);
        assert!(matches!(found, ErrorDetails::Poison { attempt_count: 2, max_attempts: 1, .. }));
        let history = world.history(instance).await;
        assert_eq!(ids(&history), [1, 2]);
        let EventKind::OrchestrationStarted { name, version: recorded, input, .. } = &history[0].kind else {
            panic!("{history:?}")
        };
        assert_eq!((name.as_str(), recorded.as_str(), input.as_str()), ("Waiting", version, "in"));
        runtime.shutdown(None).await;
    }
    let text = "Orchestration not registered, abandoning with 0.1s backoff (will poison in 1 more attempts)";
    let line = logs.with("Orchestration not registered").remove(0);
    assert_eq!((line.message.as_str(), line.level), (text, tracing::Level::WARN));
}

#[tokio::test]
async fn a_batch_for_an_instance_that_nobody_started_is_acked_without_effect() {
    let (world, faulty) = plain_world();
    let (logs, _guard) = Logs::keep();
    let signal = WorkItem::ExternalRaised { instance: "i".into(), name: "go".into(), data: String::new() };
    faulty.inject_turn(OrchestrationItem {
        instance: "i".into(),
        orchestration_name: String::new(),
        execution_id: 1,
        version: String::new(),
        history: vec![],
        messages: vec![signal],
        history_error: None,
        kv_snapshot: Default::default(),
    });
    let runtime = world.start(activities(), waiting()).await;
    while faulty.acked_turns().is_empty() {
        tokio::task::yield_now().await;
    }
    runtime.shutdown(None).await;
    assert_eq!(faulty.acked_turns(), [vec![]]);
    assert_eq!(faulty.acked_metadata()[0].orchestration_name, None);
    assert_eq!(logs.one("empty effective batch - this should not happen").field("instance"), "i");
}

// semantics: REPLAY-9
#[tokio::test]
async fn a_completion_that_nobody_asked_for_fails_the_instance_with_its_id() {
    let world = World::new();
    let runtime = world.start(activities(), waiting()).await;
    let (execution_id, result) = (1, String::new());
    for (instance, completion, text) in [
        (
            "activity",
            WorkItem::ActivityCompleted {
                instance: "activity".into(),
                execution_id,
                id: 999,
                result: result.clone(),
            },
            "no matching schedule for completion id=999",
        ),
        (
            "start",
            WorkItem::ActivityCompleted { instance: "start".into(), execution_id, id: 1, result },
            "no matching schedule for completion id=1",
        ),
        (
            "timer",
            WorkItem::TimerFired { instance: "timer".into(), execution_id, id: 123, fire_at_ms: 1 },
            "no matching schedule for timer id=123",
        ),
    ] {
        world.client.start_orchestration(instance, "Waiting", "").await.unwrap();
        world.waits_for(instance, "go").await;
        world.store.enqueue_for_orchestrator(completion, None).await.unwrap();
        let failed = details(world.end(instance).await);
        assert!(matches!(&failed, ErrorDetails::Configuration { .. }), "{failed:?}");
        assert!(failed.display_message().contains(text), "{failed:?}");
        let last = world.history(instance).await.pop().unwrap();
        assert!(last.is_terminal());
    }
    runtime.shutdown(None).await;
}

// semantics: TURN-6
#[tokio::test]
async fn histories_have_exactly_the_events_of_what_happened() {
    let world = World::new();
    let code = waiting().register("Four", |ctx: OrchestrationContext, _: String| async move {
        for step in 0..4 {
            ctx.schedule_activity("Echo", step.to_string()).await?;
        }
        Ok(String::new())
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("w", "Waiting", "").await.unwrap();
    world.waits_for("w", "go").await;
    world.client.raise_event("w", "go", "").await.unwrap();
    world.end("w").await;
    assert_eq!(
        kinds(&world.history("w").await),
        ["OrchestrationStarted", "ExternalSubscribed", "ExternalEvent", "OrchestrationCompleted"]
    );
    world.run("f", "Four", "").await;
    let history = world.history("f").await;
    assert_eq!(history.len(), 10);
    assert_eq!(history[2].source_event_id, Some(2));
    runtime.shutdown(None).await;
}

// semantics: TURN-8
#[tokio::test]
async fn equal_activities_get_their_own_results_over_restarts() {
    let world = World::new();
    let code = || {
        orchestrations().register("Twice", |ctx: OrchestrationContext, _: String| async move {
            let first = ctx.schedule_activity("Same", "in").await?;
            ctx.schedule_timer(Duration::from_secs(1)).await;
            let second = ctx.schedule_activity("Same", "in").await?;
            Ok(format!("{first},{second}"))
        })
    };
    let stage = Stage::default();
    let same = || {
        let stage = stage.clone();
        activities().register("Same", move |_: ActivityContext, _: String| {
            stage.report("ran");
            let result = format!("R{}", stage.log().len());
            async move { Ok(result) }
        })
    };
    world.client.start_orchestration("i", "Twice", "").await.unwrap();
    let runtime = world.start(same(), code()).await;
    world.recorded("i", |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
    runtime.shutdown(None).await;
    let runtime = world.start(activities(), code()).await;
    world.clock.advance(Duration::from_secs(1));
    world.recorded("i", |kind| matches!(kind, EventKind::TimerFired { .. })).await;
    runtime.shutdown(None).await;
    let runtime = world.start(same(), code()).await;
    let status = world.end_in_time("i", Duration::from_secs(1)).await;
    assert_eq!(output(status), "R1,R2");
    assert_eq!(stage.log().len(), 2);
    runtime.shutdown(None).await;
}
