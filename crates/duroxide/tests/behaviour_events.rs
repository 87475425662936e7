//! Signals and queues.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::{Either2, Event, EventKind, OrchestrationContext, OrchestrationStatus};
use runtime_support::logs::Logs;
use runtime_support::{World, activities, kinds, orchestrations, start_of};

fn count(history: &[Event], wanted: &str) -> usize {
    kinds(history).into_iter().filter(|kind| *kind == wanted).count()
}

/// The delivered events, in order.
fn delivered(history: &[Event]) -> Vec<(String, String)> {
    let delivered = history.iter().filter_map(|event| match &event.kind {
        EventKind::QueueEventDelivered { name, data } => Some((name.clone(), data.clone())),
        _ => None,
    });
    delivered.collect()
}

fn waits_for_go() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Go", |ctx: OrchestrationContext, _: String| async move {
        Ok(ctx.schedule_wait("Go").await)
    })
}

// semantics: SIG-1
#[tokio::test]
async fn a_signal_that_was_raised_before_its_instance_is_recorded_and_reaches_no_wait() {
    let world = World::new();
    let runtime = world.start(activities(), waits_for_go()).await;
    world.client.raise_event("i", "Go", "early").await.unwrap();
    world.client.start_orchestration("i", "Go", "").await.unwrap();
    world.waits_for("i", "Go").await;
    assert_eq!(
        kinds(&world.history("i").await),
        ["OrchestrationStarted", "ExternalEvent", "ExternalSubscribed"]
    );
    world.client.raise_event("i", "Go", "in time").await.unwrap();
    assert_eq!(world.output("i").await, "in time");
    runtime.shutdown(None).await;
}

// semantics: TURN-10
#[tokio::test]
async fn a_signal_after_the_end_is_discarded() {
    let world = World::new();
    let runtime = world.start(activities(), waits_for_go()).await;
    world.client.start_orchestration("i", "Go", "").await.unwrap();
    world.waits_for("i", "Go").await;
    world.client.raise_event("i", "Go", "1").await.unwrap();
    world.end("i").await;
    let before = world.history("i").await;
    world.client.raise_event("i", "Go", "2").await.unwrap();
    world.drained().await;
    runtime.shutdown(None).await;
    assert_eq!(world.history("i").await, before);
}

// semantics: SIG-2
#[tokio::test]
async fn equal_signals_are_two_and_an_empty_one_is_delivered() {
    let world = World::new();
    let code = orchestrations().register("Two", |ctx: OrchestrationContext, _: String| async move {
        let first = ctx.schedule_wait("e");
        let second = ctx.schedule_wait("e");
        let other = ctx.schedule_wait("other");
        let (first, second, other) = ctx.join3(first, second, other).await;
        Ok(format!("{first},{second},{other:?}"))
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Two", "").await.unwrap();
    world.waits_for("i", "other").await;
    for (name, data) in [("e", "same"), ("other", ""), ("e", "same")] {
        world.client.raise_event("i", name, data).await.unwrap();
    }
    assert_eq!(world.output("i").await, "same,same,\"\"");
    runtime.shutdown(None).await;
}

// semantics: QUEUE-7
#[tokio::test]
async fn unread_messages_of_the_last_batch_stay_recorded_and_later_ones_are_discarded() {
    let world = World::new();
    let code = || {
        orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
            let first = ctx.dequeue_event("q").await;
            std::mem::forget(ctx.dequeue_event("other"));
            Ok(first)
        })
    };
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("one by one", "One", "").await.unwrap();
    world.recorded("one by one", |kind| matches!(kind, EventKind::QueueSubscribed { .. })).await;
    world.client.enqueue_event("one by one", "q", "1").await.unwrap();
    world.end("one by one").await;
    world.client.enqueue_event("one by one", "q", "2").await.unwrap();
    world.drained().await;
    runtime.shutdown(None).await;
    world.client.start_orchestration("at once", "One", "").await.unwrap();
    world.client.enqueue_event("at once", "q", "1").await.unwrap();
    world.client.enqueue_event("at once", "q", "2").await.unwrap();
    let runtime = world.start(activities(), code()).await;
    for (instance, recorded) in [("one by one", 1), ("at once", 2)] {
        assert_eq!(world.output(instance).await, "1");
        let history = world.history(instance).await;
        assert_eq!(count(&history, "ExternalEventPersistent"), recorded, "{instance}");
        let row = history
            .iter()
            .find_map(|event| match &event.kind {
                EventKind::QueueSubscriptionCancelled { reason } => Some(reason.as_str()),
                _ => None,
            })
            .expect("the dequeue that was left");
        assert_eq!(row, "orchestration_terminal");
    }
    runtime.shutdown(None).await;
}

// semantics: QUEUE-6
#[tokio::test]
async fn a_message_that_was_sent_before_the_instance_existed_is_dropped() {
    let world = World::new();
    let code = orchestrations().register("Inbox", |ctx: OrchestrationContext, _: String| async move {
        let message = ctx.dequeue_event("inbox");
        let timer = ctx.schedule_timer(Duration::from_secs(5));
        match ctx.select2(message, timer).await {
            Either2::First(message) => Ok(message),
            Either2::Second(()) => Ok("timeout".to_string()),
        }
    });
    let runtime = world.start(activities(), code).await;
    world.client.enqueue_event("i", "inbox", "too early").await.unwrap();
    world.drained().await;
    world.client.start_orchestration("i", "Inbox", "").await.unwrap();
    world.pass("i", Duration::from_secs(5)).await;
    assert_eq!(world.output("i").await, "timeout");
    runtime.shutdown(None).await;
}

// semantics: QUEUE-1
#[tokio::test]
async fn queues_are_streams_of_their_own_and_never_mix_with_signals() {
    let world = World::new();
    let code = orchestrations().register("Mixed", |ctx: OrchestrationContext, _: String| async move {
        let signal = ctx.schedule_wait("x");
        let mut read = Vec::new();
        for queue in ["x", "y", "x", "y"] {
            read.push(ctx.dequeue_event(queue).await);
        }
        read.push(signal.await);
        Ok(read.join(","))
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Mixed", "").await.unwrap();
    world.waits_for("i", "x").await;
    for (queue, data) in [("y", "y1"), ("y", "y2"), ("x", "x1"), ("x", "x2")] {
        world.client.enqueue_event("i", queue, data).await.unwrap();
    }
    let read_all =
        |kind: &EventKind| matches!(kind, EventKind::QueueEventDelivered { data, .. } if data == "x2");
    world.recorded("i", read_all).await;
    world.client.raise_event("i", "x", "signal").await.unwrap();
    assert_eq!(world.output("i").await, "x1,y1,x2,y2,signal");
    runtime.shutdown(None).await;
}

/// Reads one message an execution, three times.
fn three_executions() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Three", |ctx: OrchestrationContext, read: String| async move {
        if read.is_empty() {
            ctx.schedule_wait("begin").await;
        }
        let next = ctx.dequeue_event("q").await;
        let read = if read.is_empty() { next } else { format!("{read},{next}") };
        if ctx.execution_id() < 3 { ctx.continue_as_new(read).await } else { Ok(read) }
    })
}

// semantics: QUEUE-4
#[tokio::test]
async fn unread_messages_are_carried_from_execution_to_execution() {
    for stamp in [None, Some("0.1.30")] {
        let world = World::new();
        let mut start = start_of("i", 1, "Three", "");
        if let Some(stamp) = stamp {
            start.duroxide_version = stamp.to_string();
        }
        let wait = EventKind::ExternalSubscribed { name: "begin".into() };
        world.seed("i", 1, vec![start, Event::with_event_id(2, "i", 1, None, wait)]).await;
        for data in ["a", "b", "c"] {
            world.client.enqueue_event("i", "q", data).await.unwrap();
        }
        world.client.raise_event("i", "begin", "").await.unwrap();
        let runtime = world.start(activities(), three_executions()).await;
        assert_eq!(world.output("i").await, "a,b,c", "{stamp:?}");
        let pair = |data: &str| ("q".to_string(), data.to_string());
        let second = world.store.read_with_execution("i", 2).await.unwrap();
        let EventKind::OrchestrationStarted { carry_forward_events, .. } = &second[0].kind else {
            panic!("{second:?}")
        };
        assert_eq!(carry_forward_events.as_deref(), Some(&[pair("b"), pair("c")][..]));
        assert_eq!(kinds(&second)[1..3], ["ExternalEventPersistent"; 2]);
        assert_eq!(delivered(&second), [pair("b"), pair("c")]);
        let third = world.store.read_with_execution("i", 3).await.unwrap();
        assert_eq!(delivered(&third), [pair("c")]);
        runtime.shutdown(None).await;
    }
}

// semantics: QUEUE-4
#[tokio::test]
async fn a_successor_without_carried_messages_says_nothing_of_them() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input.is_empty() { ctx.continue_as_new("again").await } else { Ok(input) }
    });
    let runtime = world.start(activities(), code).await;
    world.run("i", "Loop", "").await;
    let start = world.history("i").await.remove(0);
    let text = serde_json::to_string(&start).unwrap();
    assert!(!text.contains("carry_forward_events"), "{text}");
    runtime.shutdown(None).await;
}

// semantics: QUEUE-5
#[tokio::test]
async fn a_hundred_messages_are_carried_and_each_dropped_one_is_logged() {
    for sent in [100, 101] {
        let world = World::new();
        let (logs, _guard) = Logs::keep();
        world.client.start_orchestration("i", "Loop", "").await.unwrap();
        for number in 0..sent {
            let queue = if number % 2 == 0 { "even" } else { "odd" };
            world.client.enqueue_event("i", queue, number.to_string()).await.unwrap();
        }
        let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
            if input.is_empty() {
                return ctx.continue_as_new("read").await;
            }
            // More than a hundred reads in one turn are fine.
            for _ in 0..50 {
                ctx.dequeue_event("even").await;
                ctx.dequeue_event("odd").await;
            }
            Ok("read all".to_string())
        });
        let runtime = world.start(activities(), code).await;
        assert_eq!(world.output("i").await, "read all");
        let dropped = logs.with("Dropping carry-forward event beyond limit of 100 during continue-as-new");
        let fields: Vec<_> = dropped
            .iter()
            .map(|line| (line.field("instance"), line.field("name"), line.field("data")))
            .collect();
        let summary = "3 bytes, hash 4568b718181c937c";
        let expected = if sent == 100 { vec![] } else { vec![("i", "even", summary)] };
        assert_eq!(fields, expected);
        assert!(dropped.iter().all(|line| line.level == tracing::Level::WARN));
        runtime.shutdown(None).await;
    }
}

// semantics: TURN-4
#[tokio::test]
async fn what_is_sent_while_no_runtime_runs_comes_in_one_batch() {
    let world = World::new();
    let code = || {
        orchestrations().register("Three", |ctx: OrchestrationContext, _: String| async move {
            let mut read = String::new();
            for _ in 0..3 {
                read += &ctx.dequeue_event("q").await;
            }
            Ok(read)
        })
    };
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("i", "Three", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::QueueSubscribed { .. })).await;
    runtime.shutdown(None).await;
    for data in ["1", "2", "3"] {
        world.client.enqueue_event("i", "q", data).await.unwrap();
    }
    let runtime = world.start(activities(), code()).await;
    assert_eq!(world.output("i").await, "123");
    let kinds = kinds(&world.history("i").await);
    assert_eq!(kinds[2..5], ["ExternalEventPersistent"; 3], "recorded before the code went on");
    runtime.shutdown(None).await;
}

// semantics: SIG-4
#[tokio::test]
async fn an_early_signal_is_recorded_in_the_execution_that_it_reaches_and_ignored() {
    let world = World::new();
    let code = orchestrations().register("Loop", |ctx: OrchestrationContext, input: String| async move {
        if input.is_empty() {
            ctx.schedule_wait("continue").await;
            return ctx.continue_as_new("second").await;
        }
        ctx.schedule_wait("ready").await;
        Ok(ctx.schedule_wait("Go").await)
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Loop", "").await.unwrap();
    world.waits_for("i", "continue").await;
    world.client.raise_event("i", "continue", "").await.unwrap();
    world.waits_for("i", "ready").await;
    world.client.raise_event("i", "Go", "early").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::ExternalEvent { name, .. } if name == "Go")).await;
    world.client.raise_event("i", "ready", "").await.unwrap();
    world.waits_for("i", "Go").await;
    world.client.raise_event("i", "Go", "in time").await.unwrap();
    assert_eq!(world.output("i").await, "in time");
    let signals = |history: Vec<Event>| count(&history, "ExternalEvent");
    assert_eq!(signals(world.store.read_with_execution("i", 1).await.unwrap()), 1);
    assert_eq!(signals(world.store.read_with_execution("i", 2).await.unwrap()), 3);
    runtime.shutdown(None).await;
}

// semantics: QUEUE-3
#[tokio::test]
async fn a_message_that_lost_a_race_goes_to_the_next_reader_and_is_not_lost() {
    let world = World::new();
    let code = || {
        orchestrations().register("Race", |ctx: OrchestrationContext, _: String| async move {
            let first = ctx.dequeue_event("q");
            let stop = ctx.schedule_wait("stop");
            match ctx.select2(stop, first).await {
                Either2::First(_) => Ok(format!("then {}", ctx.dequeue_event("q").await)),
                Either2::Second(message) => Ok(format!("at once {message}")),
            }
        })
    };
    let runtime = world.start(activities(), code()).await;
    for instance in ["stop first", "message first"] {
        world.client.start_orchestration(instance, "Race", "").await.unwrap();
        world.waits_for(instance, "stop").await;
    }
    runtime.shutdown(None).await;
    // One batch each, in these orders.
    world.client.raise_event("stop first", "stop", "").await.unwrap();
    world.client.enqueue_event("stop first", "q", "m").await.unwrap();
    world.client.enqueue_event("message first", "q", "m").await.unwrap();
    world.client.raise_event("message first", "stop", "").await.unwrap();
    let runtime = world.start(activities(), code()).await;
    assert_eq!(world.output("stop first").await, "then m");
    assert_eq!(world.output("message first").await, "at once m");
    runtime.shutdown(None).await;
}

// semantics: VER-9
#[tokio::test]
async fn a_stamp_that_is_no_version_is_warned_of_in_every_turn_and_the_execution_goes_on() {
    let world = World::new();
    let (logs, _guard) = Logs::keep();
    let mut start = start_of("i", 1, "Two", "");
    start.duroxide_version = "not a version".into();
    let wait = EventKind::ExternalSubscribed { name: "a".into() };
    world.seed("i", 1, vec![start, Event::with_event_id(2, "i", 1, None, wait)]).await;
    let code = orchestrations().register("Two", |ctx: OrchestrationContext, _: String| async move {
        let first = ctx.schedule_wait("a").await;
        Ok(first + &ctx.schedule_wait("b").await)
    });
    let runtime = world.start(activities(), code).await;
    world.client.raise_event("i", "a", "1").await.unwrap();
    world.waits_for("i", "b").await;
    world.client.raise_event("i", "b", "2").await.unwrap();
    assert_eq!(world.output("i").await, "12");
    let warnings = logs.with("Invalid pinned version; retaining legacy race cancellation semantics");
    assert_eq!(warnings.len(), 2);
    for line in warnings {
        assert_eq!((line.field("instance"), line.field("version")), ("i", "not a version"));
        assert!(!line.field("error").is_empty());
        assert_eq!(line.level, tracing::Level::WARN);
    }
    runtime.shutdown(None).await;
}

// semantics: VER-8
#[tokio::test]
async fn an_execution_of_an_old_version_goes_on_and_keeps_its_stamp() {
    let world = World::new();
    let mut start = start_of("i", 1, "Two", "");
    start.duroxide_version = "0.1.30".into();
    let dequeue = EventKind::QueueSubscribed { name: "q".into() };
    world.seed("i", 1, vec![start, Event::with_event_id(2, "i", 1, None, dequeue)]).await;
    let code = orchestrations().register("Two", |ctx: OrchestrationContext, _: String| async move {
        let first = ctx.dequeue_event("q").await;
        Ok(first + &ctx.dequeue_event("q").await)
    });
    let runtime = world.start(activities(), code).await;
    world.client.enqueue_event("i", "q", "1").await.unwrap();
    world.client.enqueue_event("i", "q", "2").await.unwrap();
    assert_eq!(world.output("i").await, "12");
    assert_eq!(world.history("i").await[0].duroxide_version, "0.1.30");
    let status = world.client.get_orchestration_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { .. }));
    runtime.shutdown(None).await;
}

// semantics: SIG-6
#[tokio::test]
async fn typed_signals_and_messages_make_the_round_trip() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Payload {
        id: u32,
        msg: String,
    }
    let world = World::new();
    let code = orchestrations().register("Typed", |ctx: OrchestrationContext, _: String| async move {
        let signal: Payload = ctx.schedule_wait_typed("s").await;
        let message: (String, u32) = ctx.dequeue_event_typed("q").await;
        Ok(format!("id={},msg={} {}:{}", signal.id, signal.msg, message.0, message.1))
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Typed", "").await.unwrap();
    world.waits_for("i", "s").await;
    world.client.raise_event_typed("i", "s", &Payload { id: 42, msg: "hello".into() }).await.unwrap();
    world.client.enqueue_event_typed("i", "q", &("increment", 99)).await.unwrap();
    assert_eq!(world.output("i").await, "id=42,msg=hello increment:99");
    runtime.shutdown(None).await;
}
