//! From messages to events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::sync::Arc;

use duroxide::providers::WorkItem;
use duroxide::runtime::replay_engine::{ReplayEngine, TurnResult};
use duroxide::{ErrorDetails, Event, EventKind, OrchestrationHandler, PoisonMessageType};
use support::*;

/// The events that a batch becomes, without running any code.
fn admitted(history: &History, messages: Vec<WorkItem>) -> Vec<Event> {
    let mut engine = ReplayEngine::new(INSTANCE.into(), 1, history.events.clone());
    engine.prep_completions(messages);
    engine.history_delta().to_vec()
}

/// One open activity (2), timer (3) and child (4).
fn three_open() -> History {
    History::started().activity("A", "").timer().child("C", "sub::4", "")
}

fn forever() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move {
        let a = ctx.schedule_activity("A", "");
        let t = ctx.schedule_timer(std::time::Duration::from_secs(1));
        let c = ctx.schedule_sub_orchestration("C", "");
        let _ = ctx.join3(a, t, c).await;
        std::future::pending().await
    })
}

#[test]
fn messages_become_events_in_batch_order() {
    let events =
        admitted(&three_open(), vec![msg::child(4, "c"), msg::signal("s", "1"), msg::activity(2, "a")]);
    assert_eq!(kinds(&events), ["SubOrchestrationCompleted", "ExternalEvent", "ActivityCompleted"]);
    assert_eq!(events.iter().map(|event| event.event_id).collect::<Vec<_>>(), [5, 6, 7]);
}

#[test]
fn completions_of_another_execution_are_dropped_and_never_fail_the_instance() {
    for other in [0, 2, 9] {
        let batch = [
            msg::activity(2, "a"),
            msg::activity_failed(2, app_error("x")),
            msg::timer(3),
            msg::child(4, "c"),
            msg::child_failed(4, app_error("x")),
            msg::activity(999, "unknown"),
        ];
        let batch = batch.map(|item| msg::in_execution(item, other)).to_vec();
        let turn = three_open().turn(&forever(), batch);
        assert_eq!(turn.text(), "Continue");
        assert!(turn.delta.is_empty());
    }
}

#[test]
fn completions_that_are_recorded_already_are_dropped() {
    let history = three_open().activity_done(2, "a").timer_fired(3).child_done(4, "c");
    let again = vec![
        msg::activity(2, "again"),
        msg::timer(3),
        msg::child(4, "again"),
        msg::child_failed(4, app_error("late")),
    ];
    let turn = history.turn(&forever(), again);
    assert_eq!(turn.text(), "Continue");
    assert!(turn.delta.is_empty());
}

#[test]
fn a_repeated_activity_failure_is_dropped_like_any_other_repetition() {
    let history = three_open().activity_failed(2, "no").timer_fired(3).child_failed(4, "no");
    let again = vec![msg::activity_failed(2, app_error("no")), msg::activity(2, "late success")];
    let turn = history.turn(&forever(), again);
    assert_eq!(turn.text(), "Continue");
    assert!(turn.delta.is_empty());
}

#[test]
fn the_first_of_several_results_in_a_batch_wins() {
    let batch = vec![
        msg::activity(2, "first"),
        msg::activity_failed(2, app_error("second")),
        msg::activity(2, "third"),
        msg::timer(3),
        msg::timer(3),
        msg::child_failed(4, app_error("first")),
        msg::child(4, "second"),
    ];
    let events = admitted(&three_open(), batch);
    assert_eq!(kinds(&events), ["ActivityCompleted", "TimerFired", "SubOrchestrationFailed"]);
    assert_eq!(events[0].kind, EventKind::ActivityCompleted { result: "first".into() });
}

#[test]
fn equal_signals_and_messages_are_all_recorded() {
    let history = History::started().signal("s", "x").message("q", "x");
    let batch =
        vec![msg::signal("s", "x"), msg::signal("s", "x"), msg::queue("q", "x"), msg::queue("q", "x")];
    assert_eq!(admitted(&history, batch).len(), 4);
}

#[test]
fn a_completion_of_the_wrong_kind_is_nondeterminism() {
    let cases = [
        (msg::timer(2), "completion kind mismatch for id=2, expected 'activity', got 'timer'"),
        (msg::activity(3, ""), "completion kind mismatch for id=3, expected 'timer', got 'activity'"),
        (msg::child(2, ""), "completion kind mismatch for id=2, expected 'activity', got 'suborchestration'"),
        (
            msg::activity(4, ""),
            "completion kind mismatch for id=4, expected 'suborchestration', got 'activity'",
        ),
    ];
    for (message, text) in cases {
        let turn = three_open().turn(&forever(), vec![message]);
        turn.assert_nondeterminism(text);
        assert!(turn.delta.is_empty(), "the misfit is not recorded");
    }
}

#[test]
fn a_completion_that_nobody_asked_for_is_nondeterminism() {
    let cases = [
        (msg::activity(999, ""), "no matching schedule for completion id=999"),
        (msg::activity_failed(998, app_error("")), "no matching schedule for completion id=998"),
        (msg::timer(123), "no matching schedule for timer id=123"),
        (msg::child(77, ""), "no matching schedule for sub-orchestration id=77"),
        (msg::child_failed(78, app_error("")), "no matching schedule for sub-orchestration id=78"),
        (msg::activity(1, ""), "no matching schedule for completion id=1"),
    ];
    for (message, text) in cases {
        three_open().turn(&forever(), vec![message]).assert_nondeterminism(text);
    }
}

#[test]
fn a_later_misfit_of_a_batch_replaces_an_earlier_one() {
    let turn =
        three_open().turn(&forever(), vec![msg::timer(123), msg::activity(2, "ok"), msg::activity(999, "")]);
    turn.assert_nondeterminism("no matching schedule for completion id=999");
    assert_eq!(turn.kinds(), ["ActivityCompleted"]);
}

#[test]
fn application_failures_are_results_and_system_failures_end_the_turn() {
    let poison = ErrorDetails::Poison {
        attempt_count: 11,
        max_attempts: 10,
        message_type: PoisonMessageType::Activity {
            instance: INSTANCE.into(),
            execution_id: 1,
            activity_name: "A".into(),
            activity_id: 2,
        },
        message: "{}".into(),
    };
    for details in [infra_error("disk"), poison] {
        for message in [msg::activity_failed(2, details.clone()), msg::child_failed(4, details.clone())] {
            let turn = three_open().turn(&forever(), vec![message]);
            let TurnResult::Failed(failed) = &turn.result else { panic!("{:?}", turn.result) };
            assert_eq!(failed, &details);
            assert_eq!(turn.delta.len(), 1, "the failure is recorded");
        }
    }
    let turn = three_open().turn(&forever(), vec![msg::activity_failed(2, app_error("no"))]);
    assert_eq!(turn.text(), "Continue");
}

#[test]
fn the_first_system_failure_of_a_batch_counts_unless_there_is_a_misfit() {
    let batch = vec![msg::activity_failed(2, infra_error("one")), msg::child_failed(4, infra_error("two"))];
    assert_eq!(three_open().turn(&forever(), batch).text(), "Failed: infrastructure:op: one");
    let batch = vec![msg::activity_failed(2, infra_error("one")), msg::timer(99)];
    three_open().turn(&forever(), batch).assert_nondeterminism("timer id=99");
}

#[test]
fn a_cancellation_is_recorded_once_and_the_first_reason_wins() {
    let batch = vec![msg::cancel("cancel-0"), msg::cancel("cancel-1")];
    let events = admitted(&History::started(), batch);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, EventKind::OrchestrationCancelRequested { reason: "cancel-0".into() });
    let requested = History::started().push(None, events[0].kind.clone());
    assert!(admitted(&requested, vec![msg::cancel("cancel-2")]).is_empty());
}

#[test]
fn a_finished_history_takes_no_cancellation() {
    let completed =
        History::started().push(None, EventKind::OrchestrationCompleted { output: String::new() });
    let failed = History::started().push(None, EventKind::OrchestrationFailed { details: app_error("x") });
    for history in [completed, failed] {
        assert!(admitted(&history, vec![msg::cancel("late")]).is_empty());
    }
}

#[test]
fn signals_and_messages_are_recorded_though_nobody_waits() {
    let events = admitted(&History::started(), vec![msg::signal("s", "1"), msg::queue("q", "2")]);
    assert_eq!(kinds(&events), ["ExternalEvent", "ExternalEventPersistent"]);
}

#[test]
fn a_timer_event_repeats_the_time_of_its_message() {
    let events = admitted(&three_open(), vec![msg::timer(3)]);
    assert_eq!(events[0].kind, EventKind::TimerFired { fire_at_ms: 1_000 });
    assert_eq!(events[0].source_event_id, Some(3));
}

#[test]
fn starts_and_activities_in_a_batch_are_no_completions() {
    let execute = WorkItem::ActivityExecute {
        instance: INSTANCE.into(),
        execution_id: 1,
        id: 2,
        name: "A".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    assert!(admitted(&three_open(), vec![execute]).is_empty());
}
