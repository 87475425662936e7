//! Turns, event ids, and when the engine records what.
//!
//! Each test drives `ReplayEngine` with a handler and a history, and checks the events that the turn recorded.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duroxide::runtime::replay_engine::{ReplayEngine, TurnResult};
use duroxide::{Action, EventKind};
use support::*;

fn two_activities() -> Arc<dyn duroxide::OrchestrationHandler> {
    code(|ctx, _| async move {
        let a = ctx.schedule_activity("A", "").await?;
        let b = ctx.schedule_activity("B", &a).await?;
        Ok(format!("{a}{b}"))
    })
}

#[test]
fn the_handler_is_invoked_once_per_turn_also_in_replay() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let handler = code(move |ctx, _| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move { ctx.schedule_activity("A", "").await }
    });
    History::started().replay(&handler);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    History::started().activity("A", "").turn(&handler, vec![msg::activity(2, "x")]);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_turn_records_completions_then_requests_then_cancellations() {
    let handler = code(|ctx, _| async move {
        let loser = ctx.schedule_activity("Loser", "");
        let winner = ctx.schedule_activity("Winner", "");
        ctx.select2(loser, winner).await;
        ctx.set_custom_status("won");
        ctx.schedule_activity("Next", "").await
    });
    let mut live = Live::start(handler);
    let turn = live.turn(vec![msg::signal("nobody", "x"), msg::activity(3, "w")]);
    assert_eq!(
        turn.kinds(),
        [
            "ExternalEvent",
            "ActivityCompleted",
            "CustomStatusUpdated",
            "ActivityScheduled",
            "ActivityCancelRequested"
        ]
    );
}

#[test]
fn the_first_request_of_an_execution_has_event_id_2_and_ids_are_contiguous() {
    let handler = code(|ctx, _| async move {
        let all = ["A", "B", "C"].map(|name| ctx.schedule_activity(name, ""));
        ctx.join(all.into()).await;
        Ok(String::new())
    });
    let turn = History::started().replay(&handler);
    let ids: Vec<u64> = turn.delta.iter().map(|event| event.event_id).collect();
    assert_eq!(ids, [2, 3, 4]);
}

#[test]
fn ids_go_on_after_the_last_event_whatever_gaps_there_are() {
    let mut history = History::started().activity("A", "");
    history.events[1].event_id = 5;
    let turn = history.turn(&two_activities(), vec![msg::activity(5, "a")]);
    let ids: Vec<u64> = turn.delta.iter().map(|event| event.event_id).collect();
    assert_eq!(ids, [6, 7]);
}

#[test]
fn a_loaded_history_may_have_zero_and_unordered_ids() {
    let mut history = History::started().activity("A", "").activity_done(2, "a").activity("B", "a");
    history.events[0].event_id = 0;
    history.events[2].event_id = 40;
    history.events[3].event_id = 7;
    let turn = history.turn(&two_activities(), vec![msg::activity(7, "b")]);
    assert_eq!(turn.text(), "Completed: ab");
    assert_eq!(turn.delta[0].event_id, 8);
}

#[test]
fn a_continue_as_new_takes_an_id_and_leaves_a_gap() {
    let handler = code(|ctx, _| async move {
        let _next = ctx.continue_as_new("next");
        ctx.set_custom_status("after");
        Ok(String::new())
    });
    let turn = History::started().replay(&handler);
    assert_eq!(turn.text(), "ContinueAsNew: next");
    assert_eq!(turn.delta.iter().map(|event| event.event_id).collect::<Vec<_>>(), [3]);
}

#[test]
fn pending_actions_carry_the_ids_of_their_events() {
    let turn = History::started().replay(&two_activities());
    let [Action::CallActivity { scheduling_event_id, .. }] = &turn.actions[..] else { panic!() };
    assert_eq!(*scheduling_event_id, 2);
}

#[test]
fn every_kind_of_request_becomes_its_event_without_a_source() {
    let handler = code(|ctx, _| async move {
        let _a = ctx.schedule_activity("A", "");
        let _t = ctx.schedule_timer(Duration::from_secs(1));
        let _w = ctx.schedule_wait("W");
        let _q = ctx.dequeue_event("Q");
        let _c = ctx.schedule_sub_orchestration("C", "");
        ctx.schedule_orchestration("D", "root", "");
        ctx.set_custom_status("s");
        ctx.set_kv_value("k", "v");
        ctx.clear_kv_value("k");
        ctx.clear_all_kv_values();
        std::future::pending().await
    });
    let turn = History::started().replay(&handler);
    assert_eq!(
        turn.kinds(),
        [
            "ActivityScheduled",
            "TimerCreated",
            "ExternalSubscribed",
            "ExternalSubscribedPersistent",
            "SubOrchestrationScheduled",
            "OrchestrationChained",
            "CustomStatusUpdated",
            "KeyValueSet",
            "KeyValueCleared",
            "KeyValuesCleared"
        ]
    );
    assert!(turn.delta.iter().all(|event| event.source_event_id.is_none()));
    assert_eq!(turn.actions.len(), 10);
}

#[test]
fn completions_name_their_request_and_inputs_from_outside_name_none() {
    let history = History::started().activity("A", "").timer().child("C", "sub::4", "").wait("W");
    let handler = code(|ctx, _| async move {
        let a = ctx.schedule_activity("A", "");
        let t = ctx.schedule_timer(Duration::from_secs(1));
        let c = ctx.schedule_sub_orchestration("C", "");
        let w = ctx.schedule_wait("W");
        let _ = ctx.join2(ctx.join2(a, t), ctx.join2(c, w)).await;
        std::future::pending().await
    });
    let messages = vec![
        msg::activity_failed(2, app_error("no")),
        msg::timer(3),
        msg::child(4, "c"),
        msg::signal("W", "w"),
        msg::queue("Q", "q"),
        msg::cancel("stop"),
    ];
    let turn = history.turn(&handler, messages);
    let sources: Vec<_> = turn.delta.iter().map(|event| event.source_event_id).collect();
    assert_eq!(sources, [Some(2), Some(3), Some(4), None, None, None]);
}

#[test]
fn requests_are_recorded_though_the_handler_returns_and_nobody_awaits_them() {
    let handler = code(|ctx, _| async move {
        for name in ["A", "B", "C"] {
            drop(ctx.schedule_activity(name, ""));
        }
        Ok("done".into())
    });
    let turn = History::started().replay(&handler);
    assert_eq!(turn.text(), "Completed: done");
    assert_eq!(turn.actions.len(), 3);
    assert_eq!(turn.cancelled_activities, [2, 3, 4]);
    assert_eq!(turn.kinds()[3..], ["ActivityCancelRequested"; 3]);
}

#[test]
fn the_engine_tells_what_it_did() {
    let baseline = History::started().events;
    let mut engine = ReplayEngine::new(INSTANCE.into(), 1, baseline.clone());
    assert!(!engine.made_progress());
    let result =
        engine.execute_orchestration(two_activities(), String::new(), "Orch".into(), "1".into(), "w");
    assert!(matches!(result, TurnResult::Continue));
    assert!(engine.made_progress());
    assert_eq!(engine.final_history().len(), baseline.len() + engine.history_delta().len());
    assert!(
        engine.cancelled_activity_ids().is_empty() && engine.cancelled_sub_orchestration_ids().is_empty()
    );
}

#[test]
fn turn_results_print_their_fields_in_order() {
    let result = TurnResult::ContinueAsNew {
        input: "i".into(),
        version: None,
        unconsumed_queue_arrivals: Some(vec![("q".into(), "m1".into())]),
    };
    assert_eq!(
        format!("{result:?}"),
        r#"ContinueAsNew { input: "i", version: None, unconsumed_queue_arrivals: Some([("q", "m1")]) }"#
    );
}

#[test]
fn a_four_step_chain_records_requests_and_results_alternately() {
    let handler = code(|ctx, _| async move {
        for step in 1..=4 {
            ctx.schedule_activity("Step", step.to_string()).await?;
        }
        Ok("done".into())
    });
    let mut live = Live::start(handler);
    for id in [2, 4, 6, 8] {
        live.turn(vec![msg::activity(id, "ok")]);
    }
    assert_eq!(live.last().text(), "Completed: done");
    assert_eq!(live.history.len(), 9);
    assert_eq!(live.history[2].source_event_id, Some(2));
}

#[test]
fn identical_requests_get_their_results_by_id() {
    let handler = code(|ctx, _| async move {
        let first = ctx.schedule_activity("Same", "x").await?;
        ctx.schedule_timer(Duration::from_millis(1)).await;
        let second = ctx.schedule_activity("Same", "x").await?;
        Ok(format!("{first},{second}"))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity(2, "R1")]);
    live.turn(vec![msg::timer(4)]);
    assert_eq!(live.turn(vec![msg::activity(6, "R2")]).text(), "Completed: R1,R2");
}

#[test]
fn the_start_event_carries_the_running_version_and_a_new_event_too() {
    let turn = History::started().replay(&two_activities());
    assert_eq!(turn.delta[0].duroxide_version, env!("CARGO_PKG_VERSION"));
    assert!(matches!(turn.delta[0].kind, EventKind::ActivityScheduled { .. }));
    assert_eq!((turn.delta[0].instance_id.as_str(), turn.delta[0].execution_id), (INSTANCE, 1));
}
