//! Dropped futures: what the history records, what a replay checks, and what the runtime tells other instances.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::replay_engine::ReplayEngine;
use duroxide::{EventKind, OrchestrationHandler};
use support::*;

fn reason(kind: &EventKind) -> &str {
    match kind {
        EventKind::ActivityCancelRequested { reason }
        | EventKind::SubOrchestrationCancelRequested { reason }
        | EventKind::ExternalSubscribedCancelled { reason }
        | EventKind::QueueSubscriptionCancelled { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// Drops one of each kind after a signal.
fn drops_everything() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move {
        let queue = ctx.dequeue_event("q");
        let wait = ctx.schedule_wait("w");
        let child = ctx.schedule_sub_orchestration("C", "");
        let named = ctx.schedule_sub_orchestration_with_id("C", "named", "");
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_wait("go").await;
        drop((queue, wait, child, named, timer, activity));
        ctx.schedule_wait("more").await;
        Ok("done".into())
    })
}

#[test]
fn rows_are_written_in_four_blocks_each_in_ascending_order() {
    let mut live = Live::start(drops_everything());
    let turn = live.turn(vec![msg::signal("go", "")]);
    assert_eq!(
        turn.kinds()[2..],
        [
            "ActivityCancelRequested",
            "SubOrchestrationCancelRequested",
            "SubOrchestrationCancelRequested",
            "ExternalSubscribedCancelled",
            "ExternalSubscribedPersistentCancelled"
        ]
    );
    let sources: Vec<_> = turn.delta[2..].iter().map(|event| event.source_event_id.unwrap()).collect();
    assert_eq!(sources, [7, 4, 5, 3, 2]);
    assert!(turn.delta[2..].iter().all(|event| reason(&event.kind) == "dropped_future"));
    assert_eq!(turn.cancelled_activities, [7]);
    assert_eq!(turn.cancelled_children, ["sub::4", "named"]);
}

#[test]
fn a_row_is_written_and_told_once() {
    let mut live = Live::start(drops_everything());
    live.turn(vec![msg::signal("go", "")]);
    let turn = live.turn(vec![msg::signal("other", "")]);
    assert_eq!(turn.kinds(), ["ExternalEvent"]);
    assert!(turn.cancelled_activities.is_empty() && turn.cancelled_children.is_empty());
    assert_eq!(live.turn(vec![msg::signal("more", "")]).text(), "Completed: done");
}

#[test]
fn a_row_with_another_reason_counts_as_a_row() {
    let row = EventKind::ActivityCancelRequested { reason: "orchestration_terminal_failed".into() };
    let history = History::started().activity("A", "").wait("x").push(Some(2), row);
    let handler = code(|ctx, _| async move {
        drop(ctx.schedule_activity("A", ""));
        Ok(ctx.schedule_wait("x").await)
    });
    let turn = history.turn(&handler, vec![msg::signal("y", "")]);
    assert_eq!(turn.kinds(), ["ExternalEvent"]);
    assert!(turn.cancelled_activities.is_empty());
}

#[test]
fn dropping_after_the_result_was_taken_is_no_cancellation() {
    let handler = code(|ctx, _| async move {
        let mut first = ctx.schedule_activity("A", "");
        (&mut first).await.ok();
        drop(first);
        ctx.schedule_activity("B", "").await
    });
    let mut live = Live::start(handler);
    assert!(live.turn(vec![msg::activity(2, "x")]).cancelled_activities.is_empty());
}

#[test]
fn losing_a_race_going_out_of_scope_and_dropping_are_the_same() {
    let race = code(|ctx, _| async move {
        ctx.select2(ctx.schedule_activity("A", ""), ctx.schedule_wait("w")).await;
        Ok(ctx.schedule_wait("more").await)
    });
    let scope = code(|ctx, _| async move {
        {
            let _held = ctx.schedule_activity("A", "");
            ctx.schedule_wait("w").await;
        }
        Ok(ctx.schedule_wait("more").await)
    });
    let explicit = code(|ctx, _| async move {
        let held = ctx.schedule_activity("A", "");
        ctx.schedule_wait("w").await;
        drop(held);
        Ok(ctx.schedule_wait("more").await)
    });
    for handler in [race, scope, explicit] {
        let mut live = Live::start(handler);
        let turn = live.turn(vec![msg::signal("w", "")]);
        assert_eq!(turn.kinds(), ["ExternalEvent", "ExternalSubscribed", "ActivityCancelRequested"]);
        assert_eq!(turn.cancelled_activities, [2]);
    }
}

#[test]
fn putting_the_suspended_code_away_is_no_cancellation() {
    let handler = code(|ctx, _| async move { ctx.schedule_activity("A", "").await });
    let turn = History::started().replay(&handler);
    assert_eq!(turn.kinds(), ["ActivityScheduled"]);
    assert!(turn.cancelled_activities.is_empty());
}

#[test]
fn a_forgotten_future_is_not_cancelled() {
    let handler = code(|ctx, _| async move {
        std::mem::forget(ctx.schedule_activity("A", ""));
        Ok("done".into())
    });
    let turn = History::started().replay(&handler);
    assert_eq!(
        (turn.text().as_str(), turn.kinds()),
        ("Completed: done", vec!["ActivityScheduled".to_string()])
    );
}

#[test]
fn a_dropped_timer_leaves_no_trace_and_fires_unheard() {
    let handler = code(|ctx, _| async move {
        drop(ctx.schedule_timer(Duration::from_secs(1)));
        Ok(ctx.schedule_wait("w").await)
    });
    let mut live = Live::start(handler);
    assert_eq!(live.last().kinds(), ["TimerCreated", "ExternalSubscribed"]);
    assert_eq!(live.turn(vec![msg::timer(2)]).text(), "Continue");
    assert_eq!(live.turn(vec![msg::signal("w", "x")]).text(), "Completed: x");
}

#[test]
fn a_future_dropped_before_it_was_bound_is_cancelled_at_the_end_of_the_turn() {
    let handler = code(|ctx, _| async move {
        drop(ctx.schedule_activity("A", ""));
        drop(ctx.schedule_sub_orchestration("C", ""));
        Ok(ctx.schedule_wait("w").await)
    });
    let live = Live::start(handler);
    assert_eq!(live.last().cancelled_activities, [2]);
    assert_eq!(live.last().cancelled_children, ["sub::3"]);
    assert_eq!(
        live.last().kinds(),
        [
            "ActivityScheduled",
            "SubOrchestrationScheduled",
            "ExternalSubscribed",
            "ActivityCancelRequested",
            "SubOrchestrationCancelRequested"
        ]
    );
}

#[test]
fn a_refused_child_leaves_no_trace_when_it_is_dropped() {
    let handler = code(|ctx, _| async move {
        drop(ctx.schedule_sub_orchestration_with_id("C", "sub::mine", ""));
        Ok("done".into())
    });
    assert!(History::started().replay(&handler).delta.is_empty());
}

#[test]
fn a_completion_after_the_cancellation_is_recorded_and_reaches_nobody() {
    let mut live = Live::start(drops_everything());
    live.turn(vec![msg::signal("go", "")]);
    let late = vec![msg::activity(7, "late"), msg::child(4, "late"), msg::timer(6)];
    let turn = live.turn(late);
    assert_eq!(turn.kinds(), ["ActivityCompleted", "SubOrchestrationCompleted", "TimerFired"]);
    assert_eq!(turn.text(), "Continue");
    assert_eq!(live.turn(vec![msg::signal("more", "")]).text(), "Completed: done");
}

#[test]
fn a_recorded_drop_that_the_code_does_not_repeat_is_nondeterminism() {
    let keeps_everything = code(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        let child = ctx.schedule_sub_orchestration("C", "");
        let wait = ctx.schedule_wait("w");
        let queue = ctx.dequeue_event("q");
        let _ = ctx.join2(ctx.join2(activity, child), ctx.join2(wait, queue)).await;
        Ok(String::new())
    });
    let open = History::started().activity("A", "").child("C", "sub::3", "").wait("w").dequeue("q");
    let reason = || "dropped_future".to_string();
    let rows = [
        (2, EventKind::ActivityCancelRequested { reason: reason() }, "activities"),
        (3, EventKind::SubOrchestrationCancelRequested { reason: reason() }, "sub-orchestrations"),
        (4, EventKind::ExternalSubscribedCancelled { reason: reason() }, "external waits"),
        (5, EventKind::QueueSubscriptionCancelled { reason: reason() }, "persistent waits"),
    ];
    for (source, row, block) in rows {
        let history = open.clone().push(Some(source), row);
        history.replay(&keeps_everything).assert_nondeterminism(&format!(
            "cancellation mismatch ({block}): baseline_dropped_future_cancel_requests={{{source}}} \
             ctx_cancelled_in_replayed_segment={{}} (the futures of events {{{source}}} were dropped when this was \
             recorded; the code now keeps them)"
        ));
    }
}

#[test]
fn rows_with_other_reasons_are_not_checked() {
    let handler = code(|ctx, _| async move { ctx.schedule_activity("A", "").await });
    let row = EventKind::ActivityCancelRequested { reason: "orchestration_terminal_failed".into() };
    let history = History::started().activity("A", "").push(Some(2), row);
    assert_eq!(history.replay(&handler).text(), "Continue");
}

#[test]
fn additional_drops_are_allowed_and_only_they_are_told() {
    let handler = code(|ctx, _| async move {
        drop(ctx.schedule_activity("Old", ""));
        ctx.schedule_wait("go").await;
        drop(ctx.schedule_activity("New", ""));
        Ok(ctx.schedule_wait("more").await)
    });
    let history = History::started().activity("Old", "").wait("go").activity_cancelled(2);
    let turn = history.turn(&handler, vec![msg::signal("go", "")]);
    assert_eq!(turn.text(), "Continue");
    assert_eq!(turn.cancelled_activities, [6]);
}

#[test]
fn rows_of_one_kind_may_be_recorded_in_any_order_and_repeated() {
    let handler = code(|ctx, _| async move {
        drop((ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")));
        Ok(ctx.schedule_wait("go").await)
    });
    for stamp in ["0.1.31", LEGACY] {
        let history = History::started().stamped(stamp).activity("A", "").activity("B", "").wait("go");
        let history = history.activity_cancelled(3).activity_cancelled(2).activity_cancelled(3);
        let turn = history.turn(&handler, vec![msg::signal("go", "x")]);
        assert_eq!(turn.text(), "Completed: x");
        assert!(turn.cancelled_activities.is_empty());
    }
}

#[test]
fn a_turn_that_continues_as_new_or_is_cancelled_tells_nobody_of_drops() {
    let handler = code(|ctx, _| async move {
        let all = (
            ctx.schedule_activity("A", ""),
            ctx.schedule_sub_orchestration("C", ""),
            ctx.schedule_wait("w"),
            ctx.dequeue_event("q"),
        );
        ctx.schedule_wait("go").await;
        drop(all);
        ctx.continue_as_new("next").await
    });
    for (message, text) in
        [(msg::signal("go", ""), "ContinueAsNew: next"), (msg::cancel("stop"), "Cancelled: stop")]
    {
        let mut live = Live::start(handler.clone());
        let turn = live.turn(vec![message]);
        assert_eq!(turn.text(), text);
        assert_eq!(turn.delta.len(), 1);
        assert!(turn.cancelled_activities.is_empty() && turn.cancelled_children.is_empty());
    }
}

#[test]
fn a_losing_activity_is_cancelled_once_over_two_turns_and_a_losing_timer_never() {
    let handler = code(|ctx, _| async move {
        let (slow, fast) = (ctx.schedule_activity("Slow", ""), ctx.schedule_timer(Duration::from_secs(1)));
        ctx.select2(slow, fast).await;
        let (quick, late) = (ctx.schedule_activity("Quick", ""), ctx.schedule_timer(Duration::from_secs(1)));
        ctx.select2(quick, late).await;
        Ok("done".into())
    });
    let mut live = Live::start(handler);
    assert_eq!(live.turn(vec![msg::timer(3)]).cancelled_activities, [2]);
    let turn = live.turn(vec![msg::activity(5, "")]);
    assert_eq!(turn.text(), "Completed: done");
    assert!(turn.cancelled_activities.is_empty());
}

#[test]
fn both_losers_of_three_are_cancelled() {
    let handler = code(|ctx, _| async move {
        let (a, b) = (ctx.schedule_activity("A", ""), ctx.schedule_activity("B", ""));
        ctx.select3(a, b, ctx.schedule_timer(Duration::from_secs(1))).await;
        Ok("done".into())
    });
    let mut live = Live::start(handler);
    assert_eq!(live.turn(vec![msg::timer(4)]).cancelled_activities, [2, 3]);
}

#[test]
fn a_loser_whose_result_is_in_the_same_batch_is_cancelled_all_the_same() {
    let handler = code(|ctx, _| async move {
        let (a, b) = (ctx.schedule_activity("A", ""), ctx.schedule_activity("B", ""));
        let won = ctx.select2(a, b).await.index();
        ctx.schedule_activity("After", won.to_string()).await
    });
    let mut live = Live::start(handler);
    let turn = live.turn(vec![msg::activity(3, "b"), msg::activity(2, "a")]);
    assert_eq!(turn.cancelled_activities, [2]);
    let EventKind::ActivityScheduled { input, .. } = &turn.delta[2].kind else { panic!() };
    assert_eq!(input, "1");
}

#[test]
fn two_dequeues_that_lose_to_a_timer_leave_their_messages_to_the_next() {
    let handler = code(|ctx, _| async move {
        let (a, b) = (ctx.dequeue_event("q"), ctx.dequeue_event("q"));
        ctx.select3(a, b, ctx.schedule_timer(Duration::from_secs(1))).await;
        Ok(ctx.dequeue_event("q").await)
    });
    let mut live = Live::start(handler);
    let turn = live.turn(vec![msg::timer(4), msg::queue("q", "m1")]);
    assert_eq!(turn.text(), "Completed: m1");
    let sources: Vec<_> = turn.delta.iter().rev().take(2).rev().map(|event| event.source_event_id).collect();
    assert_eq!(sources, [Some(2), Some(3)]);
}

#[test]
fn a_turn_over_an_unstored_start_behaves_like_any_other() {
    let handler = drops_everything();
    let engine =
        ReplayEngine::new(INSTANCE.into(), 1, History::started().events).with_persisted_history_len(0);
    let turn = turn(engine, &handler, vec![msg::signal("go", "early")]);
    assert_eq!(turn.text(), "Continue");
    assert_eq!(turn.delta.len(), 8);
}
