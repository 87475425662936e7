//! Races that were decided once, and that every replay must decide the same way.

use std::sync::Arc;

use super::lab::*;
use crate::compat::replay_engine::{ReplayEngine, TurnResult};
use crate::provider_validation::support::*;
use crate::provider_validation::{EventKind, ProviderFactory};
use crate::providers::{WorkItem, current_build_version};
use crate::runtime::registry::OrchestrationRegistry;
use crate::runtime::{FnOrchestration, OrchestrationHandler};
use crate::{Either2, OrchestrationContext};

fn subscribed() -> EventKind {
    EventKind::QueueSubscribed { name: "queue".to_string() }
}

fn delivered(data: &str) -> EventKind {
    EventKind::QueueEventDelivered { name: "queue".to_string(), data: data.to_string() }
}

fn subscription_dropped() -> EventKind {
    EventKind::QueueSubscriptionCancelled { reason: "dropped_future".to_string() }
}

fn waiting(name: &str) -> EventKind {
    EventKind::ExternalSubscribed { name: name.to_string() }
}

fn timer_created() -> EventKind {
    EventKind::TimerCreated { fire_at_ms: 1 }
}

fn timer_fired() -> EventKind {
    EventKind::TimerFired { fire_at_ms: 1 }
}

/// Reads as many messages as the input says, racing each read with a timer.
async fn race_queue(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let wanted: usize = input.parse().map_err(|_| format!("not a number: {input}"))?;
    let mut read = Vec::new();
    while read.len() < wanted {
        let message = ctx.dequeue_event("queue");
        if let Either2::First(message) = ctx.select2(message, ctx.schedule_timer(ms(3_600_000))).await {
            read.push(message);
        }
    }
    Ok(read.join(","))
}

/// A message is not lost with the read that a timer beat, also when the history is replayed.
pub async fn test_queue_race_cancellation_replay<F: ProviderFactory>(factory: &F) {
    // The timer and the first message came together: the second read got it in the same turn.
    let together = Recorded::started("together", NEW_POLICY, "2")
        .then(subscribed())
        .then(timer_created())
        .then_of(3, timer_fired())
        .then(delivered("first"))
        .then(subscribed())
        .then(timer_created())
        .then(subscribed())
        .then(timer_created())
        .then_of(2, subscription_dropped());
    // The first message came a turn after the timer.
    let apart = Recorded::started("apart", NEW_POLICY, "2")
        .then(subscribed())
        .then(timer_created())
        .then_of(3, timer_fired())
        .then(subscribed())
        .then(timer_created())
        .then_of(2, subscription_dropped())
        .then(delivered("first"))
        .then(subscribed())
        .then(timer_created());
    // No message came yet.
    let none_yet = Recorded::started("none-yet", NEW_POLICY, "1")
        .then(subscribed())
        .then(timer_created())
        .then_of(3, timer_fired())
        .then(subscribed())
        .then(timer_created())
        .then_of(2, subscription_dropped());

    let cases = [
        (together, "second", "first,second"),
        (apart, "second", "first,second"),
        (none_yet, "first", "first"),
    ];
    for (recorded, message, expected) in cases {
        let lab = Lab::new(factory).await;
        lab.seed(&recorded).await;
        let stored = lab.store.history_of(recorded.instance, 1).await;
        assert_eq!(stored, recorded.events, "the history of {} should come back as it is", recorded.instance);
        lab.store.send(queue_message(recorded.instance, "queue", message)).await;

        let registry = OrchestrationRegistry::builder().register(NAME, race_queue).build();
        let result = output(lab.run_to_end(recorded.instance, registry).await);
        assert_eq!(result, expected, "the result of {}", recorded.instance);
        let after = lab.store.history_of(recorded.instance, 1).await;
        assert_eq!(after[..stored.len()], stored, "what is recorded stays as it is");
    }
}

/// Continues as new with messages in the queue; the next execution reads the first of them.
async fn carry_queue(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    match input.as_str() {
        "next" => return Ok(ctx.dequeue_event("queue").await),
        "unread" => {
            ctx.schedule_wait("go").await;
        }
        "dropped" => {
            let message = ctx.dequeue_event("queue");
            ctx.select2(message, ctx.schedule_wait("go")).await;
        }
        "unbound" => {
            ctx.schedule_wait("go").await;
            drop(ctx.dequeue_event("queue"));
        }
        _ => {
            let go = ctx.schedule_wait("go");
            ctx.dequeue_event("queue").await;
            go.await;
        }
    }
    ctx.continue_as_new("next").await
}

/// Continue-as-new carries unread messages over, and no message that was read.
pub async fn test_continue_as_new_queue_race_replay<F: ProviderFactory>(factory: &F) {
    let stamp = current_build_version().to_string();
    let recorded = |shape| Recorded::started(shape, &stamp, shape);
    let message = |shape, data| queue_message(shape, "queue", data);
    let go = |shape| raised(shape, "go", "");
    let cases: [(Recorded, Vec<WorkItem>, &str); 4] = [
        (recorded("unread").then(waiting("go")), vec![message("unread", "m1"), go("unread")], "m1"),
        (
            recorded("dropped").then(subscribed()).then(waiting("go")),
            vec![go("dropped"), message("dropped", "m1")],
            "m1",
        ),
        (recorded("unbound").then(waiting("go")), vec![go("unbound"), message("unbound", "m1")], "m1"),
        (
            recorded("consumed").then(waiting("go")).then(subscribed()),
            vec![message("consumed", "m1"), message("consumed", "m2"), go("consumed")],
            "m2",
        ),
    ];
    for (recorded, messages, expected) in cases {
        let lab = Lab::new(factory).await;
        lab.seed(&recorded).await;
        lab.send_all(messages).await;
        let registry = OrchestrationRegistry::builder().register(NAME, carry_queue).build();
        let result = output(lab.run_to_end(recorded.instance, registry).await);
        assert_eq!(result, expected, "what the next execution of {} should read", recorded.instance);
        let executions = lab.store.admin().list_executions(recorded.instance).await;
        assert_eq!(executions, Ok(vec![1, 2]), "{} should have continued as new once", recorded.instance);
    }
}

/// The store keeps the version that recorded an event, and never replaces it by its own.
pub async fn test_queue_replay_version_stamp_roundtrip<F: ProviderFactory>(factory: &F) {
    let lab = Lab::new(factory).await;
    let recorded = Recorded::started("stamped", OLD_POLICY, "1");
    lab.seed(&recorded).await;
    assert_eq!(lab.store.history_of("stamped", 1).await, recorded.events, "the event should come back");
    lab.store.send(queue_message("stamped", "queue", "m")).await;
    let turn = lab.store.turn_of("stamped").await;
    let stamps: Vec<_> = turn.item.history.iter().map(|event| event.duroxide_version.as_str()).collect();
    assert_eq!(stamps, [OLD_POLICY], "a turn should be given the stamp as it was recorded");
}

/// Races a signal with a timer.
async fn race_signal(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    let signal = ctx.schedule_wait("go");
    match ctx.select2(signal, ctx.schedule_timer(ms(3_600_000))).await {
        Either2::First(data) => Ok(format!("signal {data}")),
        Either2::Second(()) => Ok("timeout".to_string()),
    }
}

/// Every replay decides a race of a signal and a timer as the live turn did.
pub async fn test_positional_wait_race_replay<F: ProviderFactory>(factory: &F) {
    let lab = Lab::new(factory).await;
    let registry = OrchestrationRegistry::builder().register(NAME, race_signal).build();
    let runtime = lab.start(registry, options()).await;
    lab.client.start_orchestration("race", NAME, "").await.expect("the instance should start");
    let is_waiting = async || {
        let history = lab.store.history("race").await;
        history.iter().any(|event| matches!(event.kind, EventKind::ExternalSubscribed { .. }))
    };
    lab.until("the instance waits for the signal", is_waiting).await;
    lab.client.raise_event("race", "go", "data").await.expect("the signal should be sent");
    let live = output(lab.end_of("race").await);
    lab.stop(runtime).await;
    assert_eq!(live, "signal data", "the signal should win");

    let mut recorded = lab.store.history("race").await;
    recorded.retain(|event| !event.is_terminal());
    for round in 1..=2 {
        let handler: Arc<dyn OrchestrationHandler> = Arc::new(FnOrchestration(race_signal));
        let mut engine = ReplayEngine::new("race".to_string(), 1, recorded.clone());
        let result = engine.execute_orchestration(
            handler,
            String::new(),
            NAME.to_string(),
            VERSION.to_string(),
            "kit",
        );
        match result {
            TurnResult::Completed(output) => assert_eq!(output, live, "replay {round} should decide alike"),
            other => panic!("replay {round} should complete, not end as {other:?}"),
        }
        assert!(engine.history_delta().is_empty(), "replay {round} should record nothing new");
    }
}

/// Reads a message, racing a timer, twice.
async fn race_twice(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    for _ in 0..2 {
        let message = ctx.dequeue_event("queue");
        if let Either2::First(message) = ctx.select2(message, ctx.schedule_timer(ms(3_600_000))).await {
            return Ok(message);
        }
    }
    Ok("second-timeout".to_string())
}

/// An execution keeps the rules of the version that started it: there a dropped read keeps its place in the queue.
pub async fn test_legacy_queue_race_decision_preserved<F: ProviderFactory>(factory: &F) {
    for (stamp, expected) in [(OLD_POLICY, "second-timeout"), (NEW_POLICY, "first")] {
        let lab = Lab::new(factory).await;
        let recorded = Recorded::started("legacy", stamp, "")
            .then(subscribed())
            .then(timer_created())
            .then_of(3, timer_fired())
            .then(subscribed())
            .then(timer_created());
        lab.seed(&recorded).await;
        lab.send_all([queue_message("legacy", "queue", "first"), timer("legacy", 6, 1)]).await;
        let registry = OrchestrationRegistry::builder().register(NAME, race_twice).build();
        let result = output(lab.run_to_end("legacy", registry).await);
        assert_eq!(result, expected, "the decision under the rules of {stamp}");
    }
}
