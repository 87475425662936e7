//! Signals and waits, under both race policies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::{Either2, Event, EventKind, OrchestrationHandler};
use support::*;

fn two_waits() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move {
        let (a, b) = ctx.join2(ctx.schedule_wait("s"), ctx.schedule_wait("s")).await;
        Ok(format!("{a},{b}"))
    })
}

#[test]
fn signals_and_waits_of_a_name_pair_in_order() {
    let mut live = Live::start(two_waits());
    let turn = live.turn(vec![msg::signal("s", "first"), msg::signal("s", "second")]);
    assert_eq!(turn.text(), "Completed: first,second");
    let mut live = Live::start(two_waits());
    live.turn(vec![msg::signal("s", "same_payload")]);
    assert_eq!(
        live.turn(vec![msg::signal("s", "same_payload")]).text(),
        "Completed: same_payload,same_payload"
    );
}

#[test]
fn wait_then_signal_records_exactly_three_events_before_the_end() {
    let mut live = Live::start(code(|ctx, _| async move { Ok(ctx.schedule_wait("Go").await) }));
    assert_eq!(live.turn(vec![msg::signal("Go", "x")]).text(), "Completed: x");
    assert_eq!(kinds(&live.history), ["OrchestrationStarted", "ExternalSubscribed", "ExternalEvent"]);
}

#[test]
fn a_signal_that_nobody_waits_for_is_recorded_and_lost() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        match ctx.select2(ctx.schedule_wait("s"), ctx.schedule_timer(Duration::from_secs(1))).await {
            Either2::First(data) => Ok(data),
            Either2::Second(()) => Ok("early-event-dropped".into()),
        }
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("s", "too early")]);
    // In the batch that makes the wait, but before the engine bound it.
    live.turn(vec![msg::activity(2, ""), msg::signal("s", "still too early")]);
    assert_eq!(live.turn(vec![msg::timer(7)]).text(), "Completed: early-event-dropped");
    assert_eq!(kinds(&live.history).iter().filter(|kind| *kind == "ExternalEvent").count(), 2);
}

#[test]
fn a_signal_in_the_batch_of_the_start_is_lost() {
    let mut live = Live::start_with(
        code(|ctx, _| async move { Ok(ctx.schedule_wait("Go").await) }),
        vec![msg::signal("Go", "early")],
    );
    assert_eq!(live.last().text(), "Continue");
    assert_eq!(live.turn(vec![msg::signal("Go", "in time")]).text(), "Completed: in time");
}

#[test]
fn names_are_independent_of_each_other_and_of_queues() {
    let handler = code(|ctx, _| async move {
        let (a, b) = ctx.join2(ctx.schedule_wait("n"), ctx.dequeue_event("n")).await;
        Ok(format!("{a},{b}"))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("other", "x"), msg::queue("n", "queued")]);
    assert_eq!(live.last().text(), "Continue");
    assert_eq!(live.turn(vec![msg::signal("n", "")]).text(), "Completed: ,queued");
}

#[test]
fn a_wait_that_lost_takes_its_signal_with_it() {
    // The held wait gets the first signal and is dropped unread: the next wait needs a signal of its own.
    let handler = code(|ctx, _| async move {
        let held = ctx.schedule_wait("s");
        ctx.schedule_wait("go").await;
        drop(held);
        Ok(ctx.schedule_wait("s").await)
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("s", "stale")]);
    live.turn(vec![msg::signal("go", "")]);
    assert_eq!(live.last().text(), "Continue");
    assert_eq!(live.turn(vec![msg::signal("s", "fresh")]).text(), "Completed: fresh");
}

#[test]
fn a_cancelled_wait_leaves_its_place_to_the_next() {
    let handler = code(|ctx, _| async move {
        let first = ctx.schedule_wait("s");
        let second = ctx.schedule_wait("s");
        ctx.schedule_wait("go").await;
        drop(first);
        Ok(second.await)
    });
    let mut live = Live::start(handler);
    let turn = live.turn(vec![msg::signal("go", ""), msg::signal("s", "x")]);
    assert_eq!(turn.text(), "Completed: x");
}

#[test]
fn a_wait_dropped_before_it_was_bound_takes_no_signal() {
    let handler = code(|ctx, _| async move {
        drop(ctx.schedule_wait("s"));
        Ok(ctx.schedule_wait("s").await)
    });
    let mut live = Live::start(handler);
    assert_eq!(live.turn(vec![msg::signal("s", "x")]).text(), "Completed: x");
}

#[test]
fn a_replacement_wait_needs_a_signal_of_a_later_turn() {
    let handler = code(|ctx, _| async move {
        let mut votes = Vec::new();
        for _ in 0..2 {
            let wait = ctx.schedule_wait("vote");
            match ctx.select2(wait, ctx.schedule_timer(Duration::from_secs(1))).await {
                Either2::First(vote) => votes.push(vote),
                Either2::Second(()) => break,
            }
        }
        votes.push(ctx.schedule_wait("vote").await);
        Ok(votes.join("|"))
    });
    let mut live = Live::start(handler);
    let turn = live.turn(vec![msg::signal("vote", "x"), msg::signal("vote", "stale"), msg::timer(3)]);
    assert_eq!(turn.text(), "Continue");
    live.turn(vec![msg::timer(8)]);
    assert_eq!(live.turn(vec![msg::signal("vote", "b")]).text(), "Completed: x|b");
}

#[test]
fn the_order_of_recorded_signals_decides_a_race_not_the_order_of_arguments() {
    let handler = code(|ctx, _| async move {
        let (a, b) = (ctx.schedule_wait("A"), ctx.schedule_wait("B"));
        match ctx.select2(a, b).await {
            Either2::First(data) => Ok(format!("A:{data}")),
            Either2::Second(data) => Ok(format!("B:{data}")),
        }
    });
    let history = History::started().wait("A").wait("B").signal("B", "vb").signal("A", "va");
    assert_eq!(history.replay(&handler).text(), "Completed: B:vb");
    let mut live = Live::start(handler);
    assert_eq!(live.turn(vec![msg::signal("B", "vb"), msg::signal("A", "va")]).text(), "Completed: B:vb");
}

#[test]
fn a_duplicate_signal_is_recorded_and_the_first_delivered() {
    let handler = code(|ctx, _| async move {
        let first = ctx.schedule_wait("s").await;
        ctx.schedule_activity("A", first).await
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("s", "one"), msg::signal("s", "one")]);
    assert_eq!(live.turn(vec![msg::activity(5, "done")]).text(), "Completed: done");
    assert_eq!(kinds(&live.history).iter().filter(|kind| *kind == "ExternalEvent").count(), 2);
}

#[test]
fn legacy_a_dropped_wait_keeps_its_place_and_a_stale_signal_shifts_to_the_next() {
    let handler = code(|ctx, _| async move {
        let held = ctx.schedule_wait("s");
        ctx.schedule_wait("go").await;
        drop(held);
        Ok(ctx.schedule_wait("s").await)
    });
    let mut live = Live::from_start(handler, History::started().stamped(LEGACY), vec![]);
    live.turn(vec![msg::signal("s", "stale")]);
    live.turn(vec![msg::signal("go", "")]);
    assert_eq!(live.last().text(), "Continue");
    // The next replay applies the cancellation row, and the stale signal falls to the second wait.
    assert_eq!(live.turn(vec![msg::queue("unrelated", "")]).text(), "Completed: stale");
}

#[test]
fn legacy_signals_pair_in_order_too() {
    let mut live = Live::from_start(two_waits(), History::started().stamped("not a version"), vec![]);
    let turn = live.turn(vec![msg::signal("s", "1"), msg::signal("s", "2"), msg::signal("s", "3")]);
    assert_eq!(turn.text(), "Completed: 1,2");
}

#[test]
fn same_batch_signals_for_lazily_created_waits_are_early() {
    let handler = code(|ctx, _| async move {
        let branch = |name: &'static str| {
            let ctx = ctx.clone();
            async move {
                ctx.schedule_activity("Gate", name).await?;
                Ok::<_, String>(ctx.schedule_wait(name).await)
            }
        };
        Ok(format!("{:?}", ctx.select2(branch("A"), branch("B")).await))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity(2, ""), msg::activity(3, ""), msg::signal("A", "1"), msg::signal("B", "2")]);
    assert_eq!(live.last().text(), "Continue");
    assert_eq!(live.turn(vec![msg::signal("A", "fresh-A")]).text(), "Completed: First(Ok(\"fresh-A\"))");
}

/// Loses a race against a deadline, makes a wait and gives it up at once, and then takes note of the next vote.
fn after_a_lost_race() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move {
        let (vote, deadline) = (ctx.schedule_wait("vote"), ctx.schedule_timer(Duration::from_secs(1)));
        if let Either2::First(vote) = ctx.select2(vote, deadline).await {
            return Err(format!("in time: {vote}"));
        }
        drop(ctx.schedule_wait("vote"));
        let vote = ctx.schedule_wait("vote").await;
        ctx.schedule_activity("Checkpoint", vote).await
    })
}

// semantics: SIG-3
#[test]
fn a_wait_dropped_before_it_was_bound_does_not_keep_the_next_from_its_signal_except_in_legacy() {
    for (stamp, expected) in [("0.1.31", vec!["b"]), (LEGACY, vec![])] {
        let mut live = Live::from_start(after_a_lost_race(), History::started().stamped(stamp), vec![]);
        live.turn(vec![msg::timer(3), msg::signal("vote", "a")]);
        let turn = live.turn(vec![msg::signal("vote", "b")]);
        let noted = |event: &Event| match &event.kind {
            EventKind::ActivityScheduled { input, .. } => Some(input.clone()),
            _ => None,
        };
        let noted: Vec<String> = turn.delta.iter().filter_map(noted).collect();
        assert_eq!(noted, expected, "{stamp}");
    }
}
