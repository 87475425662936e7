//! Queues, under both race policies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::replay_engine::TurnResult;
use duroxide::{Either2, OrchestrationHandler};
use support::*;

fn unread(turn: &Turn) -> Option<Vec<(String, String)>> {
    match &turn.result {
        TurnResult::ContinueAsNew { unconsumed_queue_arrivals, .. } => unconsumed_queue_arrivals.clone(),
        other => panic!("{other:?}"),
    }
}

fn pairs(list: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    Some(list.iter().map(|(name, data)| (name.to_string(), data.to_string())).collect())
}

/// Races a dequeue against a timer, then reads on.
fn race_then_read() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move {
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        let first = match ctx.select2(ctx.dequeue_event("q"), timer).await {
            Either2::First(message) => message,
            Either2::Second(()) => "timer".into(),
        };
        Ok(format!("{first},{}", ctx.dequeue_event("q").await))
    })
}

#[test]
fn messages_are_kept_until_they_are_read_and_read_in_order() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        Ok(format!("{},{}", ctx.dequeue_event("q").await, ctx.dequeue_event("q").await))
    });
    let mut live = Live::start_with(handler, vec![msg::queue("q", "1"), msg::queue("q", "2")]);
    assert_eq!(live.turn(vec![msg::activity(4, "")]).text(), "Completed: 1,2");
}

#[test]
fn a_dequeue_can_resolve_in_the_turn_that_makes_it() {
    let handler = code(|ctx, _| async move { Ok(ctx.dequeue_event("q").await) });
    let live = Live::start_with(handler, vec![msg::queue("q", "early")]);
    assert_eq!(live.last().text(), "Completed: early");
}

#[test]
fn reads_are_in_order_of_binding_though_a_later_dequeue_is_polled_first() {
    let handler = code(|ctx, _| async move {
        let (first, second) = (ctx.dequeue_event("q"), ctx.dequeue_event("q"));
        let (b, a) = ctx.join2(second, first).await;
        Ok(format!("{a},{b}"))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::queue("q", "m1")]);
    assert_eq!(live.turn(vec![msg::queue("q", "m2")]).text(), "Completed: m1,m2");
}

#[test]
fn a_held_dequeue_reserves_its_message() {
    let handler = code(|ctx, _| async move {
        let held = ctx.dequeue_event("q");
        let second = ctx.dequeue_event("q").await;
        Ok(format!("{second},{}", held.await))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::queue("q", "m1")]);
    assert_eq!(live.last().text(), "Continue");
    assert_eq!(live.turn(vec![msg::queue("q", "m2")]).text(), "Completed: m2,m1");
}

#[test]
fn queues_are_independent_streams() {
    let handler = code(|ctx, _| async move {
        let (a, b) = ctx.join2(ctx.dequeue_event("a"), ctx.dequeue_event("b")).await;
        Ok(format!("{a},{b},{}", ctx.dequeue_event("a").await))
    });
    let batch =
        vec![msg::queue("b", "b1"), msg::queue("a", "a1"), msg::queue("b", "b2"), msg::queue("a", "a2")];
    assert_eq!(Live::start_with(handler, batch).last().text(), "Completed: a1,b1,a2");
}

#[test]
fn the_order_of_a_batch_decides_a_race_and_no_message_is_lost() {
    let mut live = Live::start(race_then_read());
    assert_eq!(live.turn(vec![msg::timer(2), msg::queue("q", "m1")]).text(), "Completed: timer,m1");
    let mut live = Live::start(race_then_read());
    live.turn(vec![msg::queue("q", "m1"), msg::timer(2)]);
    assert_eq!(live.last().text(), "Continue");
    assert_eq!(live.turn(vec![msg::queue("q", "m2")]).text(), "Completed: m1,m2");
}

#[test]
fn a_dequeue_dropped_before_it_was_bound_reserves_nothing() {
    let handler = code(|ctx, _| async move {
        drop(ctx.dequeue_event("q"));
        Ok(ctx.dequeue_event("q").await)
    });
    assert_eq!(Live::start_with(handler, vec![msg::queue("q", "m1")]).last().text(), "Completed: m1");
}

#[test]
fn a_message_freed_by_a_cancelled_dequeue_reaches_a_branch_that_was_polled_before() {
    let handler = code(|ctx, _| async move {
        let held = ctx.dequeue_event("q");
        let reader = ctx.dequeue_event("q");
        let branch = async {
            ctx.schedule_wait("go").await;
            drop(held);
        };
        let (message, ()) = ctx.join2(reader, branch).await;
        Ok(message)
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::queue("q", "m1")]);
    assert_eq!(live.turn(vec![msg::signal("go", "")]).text(), "Completed: m1");
}

#[test]
fn cancelling_an_older_dequeue_after_a_newer_one_was_read_neither_loses_nor_repeats_a_message() {
    let handler = code(|ctx, _| async move {
        let held = ctx.dequeue_event("q");
        let second = ctx.dequeue_event("q").await;
        drop(held);
        Ok(format!("{second},{}", ctx.dequeue_event("q").await))
    });
    let live = Live::start_with(handler, vec![msg::queue("q", "m1"), msg::queue("q", "m2")]);
    assert_eq!(live.last().text(), "Completed: m2,m1");
}

#[test]
fn continue_as_new_carries_exactly_the_unread_messages_in_the_order_of_arrival() {
    let handler = code(|ctx, _| async move {
        let held = ctx.dequeue_event("q");
        let _second = ctx.dequeue_event("q").await;
        std::mem::forget(held);
        ctx.continue_as_new("").await
    });
    let batch = vec![
        msg::queue("q2", "other-first"),
        msg::queue("q", "m1"),
        msg::queue("q2", "other-second"),
        msg::queue("q", "m2"),
    ];
    let turn = Live::start_with(handler, batch);
    assert_eq!(unread(turn.last()), pairs(&[("q2", "other-first"), ("q", "m1"), ("q2", "other-second")]));
}

#[test]
fn continue_as_new_carries_a_dropped_dequeues_message_and_legacy_does_not_tell() {
    let handler = || {
        code(|ctx, _| async move {
            let timer = ctx.schedule_timer(Duration::from_secs(1));
            ctx.select2(ctx.dequeue_event("q"), timer).await;
            ctx.continue_as_new("").await
        })
    };
    let batch = || vec![msg::timer(2), msg::queue("q", "m1")];
    let mut live = Live::start(handler());
    assert_eq!(unread(live.turn(batch())), pairs(&[("q", "m1")]));
    let mut legacy = Live::from_start(handler(), History::started().stamped(LEGACY), vec![]);
    assert_eq!(unread(legacy.turn(batch())), None);
}

#[test]
fn lazily_created_dequeues_decide_in_replay_as_they_did_live() {
    let handler = code(|ctx, _| async move {
        let branch = |queue: &'static str| {
            let ctx = ctx.clone();
            async move {
                ctx.schedule_activity("Gate", queue).await?;
                Ok::<_, String>(ctx.dequeue_event(queue).await)
            }
        };
        let winner = ctx.select2(branch("A"), branch("B")).await;
        ctx.schedule_activity("After", format!("{winner:?}")).await
    });
    let mut live = Live::start(handler);
    // Both activities and both messages in one batch; the driver replays after the turn and compares.
    live.turn(vec![msg::activity(2, ""), msg::activity(3, ""), msg::queue("B", "b"), msg::queue("A", "a")]);
    let scheduled = live.history.iter().rev().find_map(|event| match &event.kind {
        duroxide::EventKind::ActivityScheduled { input, .. } => Some((event.event_id, input.clone())),
        _ => None,
    });
    let (id, input) = scheduled.unwrap();
    assert_eq!(input, "First(Ok(\"a\"))");
    assert_eq!(live.turn(vec![msg::activity(id, "done")]).text(), "Completed: done");
}

// --- executions started before 0.1.31

fn legacy(handler: Arc<dyn OrchestrationHandler>) -> Live {
    Live::from_start(handler, History::started().stamped(LEGACY), vec![])
}

#[test]
fn legacy_a_timer_and_a_message_in_one_batch_do_not_replay() {
    let handler = code(|ctx, _| async move {
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        ctx.select2(ctx.dequeue_event("q"), timer).await;
        let message = ctx.dequeue_event("q").await;
        ctx.schedule_activity("Next", message).await
    });
    let mut live = legacy(handler);
    // Live, the place of the dropped dequeue is free at the end of the turn, and the message goes to the next one. In
    // replay it is free only when the row is reached, which comes after the request that the message led to.
    assert_eq!(live.turn(vec![msg::timer(2), msg::queue("q", "m1")]).text(), "Continue");
    let history = History { events: live.history.clone(), execution_id: 1 };
    let text = "Failed: nondeterministic: history schedule but no emitted action";
    assert_eq!(history.replay(&live.handler).text(), text, "the bare text, as it is recorded");
}

#[test]
fn legacy_a_dequeue_dropped_before_it_was_bound_swallows_a_message() {
    let handler = || {
        code(|ctx, _| async move {
            drop(ctx.dequeue_event("q"));
            Ok(ctx.dequeue_event("q").await)
        })
    };
    let batch = vec![msg::queue("q", "m1"), msg::queue("q", "m2")];
    let live = Live::from_start(handler(), History::started().stamped(LEGACY), batch.clone());
    assert_eq!(live.last().text(), "Completed: m2");
    assert_eq!(Live::start_with(handler(), batch).last().text(), "Completed: m1");
}

#[test]
fn legacy_reads_are_in_order_when_nothing_is_cancelled() {
    let handler = code(|ctx, _| async move {
        let (a, b) = ctx.join2(ctx.dequeue_event("q"), ctx.dequeue_event("q")).await;
        Ok(format!("{a},{b},{}", ctx.dequeue_event("q").await))
    });
    let mut live = legacy(handler);
    live.turn(vec![msg::queue("q", "1")]);
    live.turn(vec![msg::queue("q", "2")]);
    assert_eq!(live.turn(vec![msg::queue("q", "3")]).text(), "Completed: 1,2,3");
}

#[test]
fn legacy_a_race_of_timers_only_replays() {
    let handler = code(|ctx, _| async move {
        let short = ctx.schedule_timer(Duration::from_secs(1));
        ctx.select2(short, ctx.schedule_timer(Duration::from_secs(2))).await;
        ctx.schedule_activity("Next", "").await
    });
    let mut live = legacy(handler);
    live.turn(vec![msg::timer(3), msg::timer(2)]);
    let history = History { events: live.history.clone(), execution_id: 1 };
    let replay = history.replay(&live.handler);
    assert_eq!((replay.text().as_str(), replay.delta.len()), ("Continue", 0));
}
