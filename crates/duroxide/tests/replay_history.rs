//! Replaying a history: order, matching, settling, results, panics.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::runtime::replay_engine::{ReplayEngine, TurnResult};
use duroxide::{AppErrorKind, ErrorDetails, EventKind, OrchestrationContext, OrchestrationHandler};
use support::*;

fn one_activity() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move { ctx.schedule_activity("A", "in").await })
}

fn never_run() -> Arc<dyn OrchestrationHandler> {
    code(|_, _| async move { panic!("must not run") })
}

// --- before the replay

#[test]
fn a_history_with_an_end_anywhere_is_left_alone() {
    let ends = [
        EventKind::OrchestrationCompleted { output: "x".into() },
        EventKind::OrchestrationFailed { details: app_error("x") },
        EventKind::OrchestrationContinuedAsNew { input: "x".into() },
    ];
    for end in ends {
        let history = History::started().push(None, end.clone()).activity("late", "").push(None, end);
        let turn = history.turn(&never_run(), vec![msg::signal("s", "")]);
        assert_eq!(turn.text(), "Continue");
    }
}

#[test]
fn an_empty_history_is_corrupted() {
    let engine = ReplayEngine::new(INSTANCE.into(), 1, vec![]);
    turn(engine, &never_run(), vec![]).assert_nondeterminism("corrupted history: empty");
}

#[test]
fn a_history_that_does_not_begin_with_a_start_is_corrupted() {
    let history = History { events: vec![], execution_id: 1 }.activity("A", "");
    let text = "corrupted history: first event must be OrchestrationStarted";
    history.replay(&never_run()).assert_nondeterminism(text);
}

#[test]
fn the_carried_status_is_visible_before_the_first_poll() {
    let mut history = History::started();
    let EventKind::OrchestrationStarted { initial_custom_status, .. } = &mut history.events[0].kind else {
        panic!()
    };
    *initial_custom_status = Some("carried".into());
    let handler = code(|ctx, _| async move { Ok(format!("{:?}", ctx.get_custom_status())) });
    assert_eq!(history.replay(&handler).text(), r#"Completed: Some("carried")"#);
}

// --- matching

#[test]
fn a_recorded_request_that_the_code_does_not_make_is_nondeterminism() {
    let handler = code(|_, _| async move { std::future::pending().await });
    let text = "history schedule but no emitted action";
    History::started().activity("A", "in").replay(&handler).assert_nondeterminism(text);
    let chained =
        EventKind::OrchestrationChained { name: "D".into(), instance: "d".into(), input: "".into() };
    let text = "history OrchestrationChained but no emitted action";
    History::started().push(None, chained).replay(&handler).assert_nondeterminism(text);
}

#[test]
fn nondeterminism_says_what_was_recorded_and_what_the_code_asks_for_now() {
    let turn = History::started().activity("Charge", "in").replay(&one_activity());
    turn.assert_nondeterminism(
        "schedule mismatch: action=CallActivity { scheduling_event_id: 0, name: \"A\"",
    );
    turn.assert_nondeterminism("(event 2 recorded activity 'Charge'; the code now asks for activity 'A' at ");
    let turn = History::started().timer().replay(&one_activity());
    turn.assert_nondeterminism("(event 2 recorded a timer; the code now asks for activity 'A' at ");
    let turn = History::started().activity("A", "in").wait("Go").replay(&one_activity());
    turn.assert_nondeterminism("(event 3 recorded a wait for 'Go'; the code now asks for nothing more)");
    let turn = History::started().activity("A", "in").activity_done(9, "").replay(&one_activity());
    turn.assert_nondeterminism(
        "completion without open schedule (event 3 recorded the outcome of an activity",
    );
}

#[test]
fn an_activity_matches_by_name_input_session_and_tag() {
    let scheduled = |session: Option<&str>, tag: Option<&str>| EventKind::ActivityScheduled {
        name: "A".into(),
        input: "in".into(),
        session_id: session.map(Into::into),
        tag: tag.map(Into::into),
    };
    let handler =
        code(|ctx, _| async move { ctx.schedule_activity_on_session("A", "in", "s1").with_tag("gpu").await });
    let ok = History::started().push(None, scheduled(Some("s1"), Some("gpu")));
    assert_eq!(ok.replay(&handler).text(), "Continue");
    for (session, tag) in
        [(None, Some("gpu")), (Some("s1"), None), (Some("s2"), Some("gpu")), (Some("s1"), Some("cpu"))]
    {
        let history = History::started().push(None, scheduled(session, tag));
        history.replay(&handler).assert_nondeterminism("schedule mismatch");
    }
    History::started()
        .activity("A", "other")
        .replay(&one_activity())
        .assert_nondeterminism("schedule mismatch");
}

#[test]
fn a_timer_matches_by_place_and_the_recorded_time_counts() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_timer(Duration::from_secs(9_999)).await;
        Ok("fired".into())
    });
    assert_eq!(History::started().timer().timer_fired(2).replay(&handler).text(), "Completed: fired");
}

#[test]
fn waits_and_dequeues_match_by_name() {
    let wait = code(|ctx, _| async move { Ok(ctx.schedule_wait("W").await) });
    History::started().wait("other").replay(&wait).assert_nondeterminism("schedule mismatch");
    History::started().dequeue("W").replay(&wait).assert_nondeterminism("schedule mismatch");
    let dequeue = code(|ctx, _| async move { Ok(ctx.dequeue_event("Q").await) });
    History::started().dequeue("other").replay(&dequeue).assert_nondeterminism("schedule mismatch");
}

#[test]
fn a_child_matches_by_name_and_input_and_keeps_its_recorded_id() {
    let handler = code(|ctx, _| async move {
        let child = ctx.schedule_sub_orchestration_versioned("C", Some("9.9.9".into()), "in");
        ctx.select2(child, ctx.schedule_wait("stop")).await;
        Ok(String::new())
    });
    let history = History::started().child("C", "sub::old-scheme", "in").wait("stop");
    let turn = history.turn(&handler, vec![msg::signal("stop", "")]);
    assert_eq!(turn.text(), "Completed: ");
    assert_eq!(turn.cancelled_children, ["sub::old-scheme"]);
    History::started()
        .child("C", "sub::2", "other")
        .replay(&handler)
        .assert_nondeterminism("schedule mismatch");
    History::started().child("B", "sub::2", "in").replay(&handler).assert_nondeterminism("schedule mismatch");
}

#[test]
fn a_detached_start_matches_by_name_id_and_input() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_orchestration("D", "d-1", "in");
        Ok("done".into())
    });
    let chained = |name: &str, instance: &str, input: &str| {
        let (name, instance, input) = (name.into(), instance.into(), input.into());
        History::started().push(None, EventKind::OrchestrationChained { name, instance, input }).wait("x")
    };
    // The trailing wait makes the replay go past the start; the handler has returned by then.
    assert_eq!(chained("D", "d-1", "in").replay(&handler).text(), "Completed: done");
    let pending = code(|ctx, _| async move {
        ctx.schedule_orchestration("D", "d-1", "in");
        Ok(ctx.schedule_wait("x").await)
    });
    assert_eq!(chained("D", "d-1", "in").replay(&pending).text(), "Continue");
    for history in [chained("E", "d-1", "in"), chained("D", "d-2", "in"), chained("D", "d-1", "other")] {
        history.replay(&pending).assert_nondeterminism("schedule mismatch");
    }
}

#[test]
fn status_and_key_value_events_have_their_own_texts() {
    let handler = || one_activity();
    let cases = [
        (EventKind::CustomStatusUpdated { status: None }, "custom status mismatch: action="),
        (
            EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 1 },
            "kv set mismatch: action=",
        ),
        (EventKind::KeyValueCleared { key: "k".into() }, "kv clear mismatch: action="),
        (EventKind::KeyValuesCleared, "kv clear_all mismatch: action="),
    ];
    for (kind, text) in cases {
        History::started().push(None, kind).replay(&handler()).assert_nondeterminism(text);
    }
}

#[test]
fn a_status_matches_by_kind_and_a_write_by_key_and_value() {
    let handler = code(|ctx, _| async move {
        ctx.set_custom_status("new text");
        ctx.set_kv_value("k", "v");
        Ok(ctx.schedule_wait("x").await)
    });
    let status = EventKind::CustomStatusUpdated { status: Some("old text".into()) };
    let set =
        |value: &str| EventKind::KeyValueSet { key: "k".into(), value: value.into(), last_updated_at_ms: 7 };
    let history = History::started().push(None, status.clone()).push(None, set("v"));
    assert_eq!(history.wait("x").replay(&handler).text(), "Continue");
    let history = History::started().push(None, status).push(None, set("w"));
    history.replay(&handler).assert_nondeterminism("kv set mismatch");
}

#[test]
fn a_status_or_key_value_event_without_an_action_is_accepted() {
    let handler = code(|_, _| async move { std::future::pending().await });
    let history = History::started()
        .push(None, EventKind::CustomStatusUpdated { status: None })
        .push(None, EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 0 })
        .push(None, EventKind::KeyValueCleared { key: "k".into() })
        .push(None, EventKind::KeyValuesCleared);
    assert_eq!(history.replay(&handler).text(), "Continue");
}

#[test]
fn the_removals_of_a_pruning_match_in_any_order() {
    let handler = code(|ctx, _| async move {
        for key in ["a", "b", "c"] {
            ctx.clear_kv_value(key);
        }
        Ok(ctx.schedule_wait("x").await)
    });
    let cleared = |key: &str| EventKind::KeyValueCleared { key: key.into() };
    let history =
        History::started().push(None, cleared("c")).push(None, cleared("a")).push(None, cleared("b"));
    assert_eq!(history.clone().wait("x").replay(&handler).text(), "Continue");
    History::started().push(None, cleared("d")).replay(&handler).assert_nondeterminism("kv clear mismatch");
}

#[test]
fn a_completion_before_its_request_or_twice_is_nondeterminism() {
    let text = "completion without open schedule";
    History::started()
        .activity_done(3, "x")
        .activity("A", "in")
        .replay(&one_activity())
        .assert_nondeterminism(text);
    let pending = code(|ctx, _| async move {
        let a = ctx.schedule_activity("A", "");
        let t = ctx.schedule_timer(Duration::from_secs(1));
        let c = ctx.schedule_sub_orchestration("C", "");
        let _ = ctx.join3(a, t, c).await;
        std::future::pending().await
    });
    let open = History::started().activity("A", "").timer().child("C", "sub::4", "");
    let twice = [
        open.clone().activity_done(2, "x").activity_done(2, "x"),
        open.clone().activity_failed(2, "x").activity_failed(2, "x"),
        open.clone().timer_fired(3).timer_fired(3),
        open.clone().child_done(4, "x").child_done(4, "x"),
        open.child_failed(4, "x").child_failed(4, "x"),
    ];
    for history in twice {
        history.replay(&pending).assert_nondeterminism(text);
    }
}

#[test]
fn a_recorded_completion_of_the_wrong_kind_is_nondeterminism() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_timer(Duration::from_secs(1)).await;
        Ok(String::new())
    });
    let text = "completion kind mismatch: expected activity";
    History::started().timer().activity_done(2, "x").replay(&handler).assert_nondeterminism(text);
    let text = "completion kind mismatch: expected timer";
    History::started().activity("A", "in").timer_fired(2).replay(&one_activity()).assert_nondeterminism(text);
}

#[test]
fn a_completion_without_a_source_is_ignored() {
    let history = History::started()
        .activity("A", "in")
        .push(None, EventKind::ActivityCompleted { result: "stray".into() });
    assert_eq!(history.replay(&one_activity()).text(), "Continue");
}

#[test]
fn a_failure_reaches_the_code_as_its_display_text() {
    let handler = code(|ctx, _| async move {
        let a = ctx.schedule_activity("A", "").await.unwrap_err();
        let c = ctx.schedule_sub_orchestration("C", "").await.unwrap_err();
        Ok(format!("{a}|{c}"))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity_failed(2, app_error("no luck"))]);
    let cancelled = ErrorDetails::Application {
        kind: AppErrorKind::Cancelled { reason: "by test".into() },
        message: String::new(),
        retryable: false,
    };
    let turn = live.turn(vec![msg::child_failed(4, cancelled)]);
    assert_eq!(turn.text(), "Completed: no luck|canceled: by test");
}

#[test]
fn duplicated_requests_in_a_history_are_nondeterminism() {
    let text = "history schedule but no emitted action";
    let timer = code(|ctx, _| async move {
        ctx.schedule_timer(Duration::from_secs(1)).await;
        Ok(String::new())
    });
    let wait = code(|ctx, _| async move { Ok(ctx.schedule_wait("W").await) });
    History::started()
        .activity("A", "in")
        .activity("A", "in")
        .replay(&one_activity())
        .assert_nondeterminism(text);
    History::started().timer().timer().replay(&timer).assert_nondeterminism(text);
    History::started().wait("W").wait("W").replay(&wait).assert_nondeterminism(text);
}

#[test]
fn any_text_replays_unchanged() {
    for text in [String::new(), "名前 \u{0} \"quoted\"".to_string(), "x".repeat(10_000)] {
        let name = text.clone();
        let handler = code(move |ctx, _| {
            let name = name.clone();
            async move { ctx.schedule_activity(name.clone(), name).await }
        });
        let mut live = Live::start(handler);
        let result = "r".repeat(1_000_000);
        let turn = live.turn(vec![msg::activity(2, &result)]);
        assert!(matches!(&turn.result, TurnResult::Completed(output) if *output == result));
    }
}

// --- the end of the replay

#[test]
fn a_handler_that_returns_early_over_a_longer_history_completes() {
    let handler = code(|_, _| async move { Ok("early".into()) });
    assert_eq!(History::started().activity("A", "").replay(&handler).text(), "Completed: early");
}

#[test]
fn requests_that_no_event_takes_up_are_recorded_when_the_handler_returns() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        ctx.set_custom_status("new");
        Ok("done".into())
    });
    let history = History::started().activity("A", "").activity_done(2, "x").activity("Removed", "");
    let turn = history.replay(&handler);
    assert_eq!(turn.text(), "Completed: done");
    assert_eq!(turn.kinds(), ["CustomStatusUpdated"]);
}

#[test]
fn a_turn_that_was_recorded_in_full_replays_to_nothing_new() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        ctx.continue_as_new("next").await
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity(2, "x")]);
    let again = History { events: live.history.clone(), execution_id: 1 }.replay(&live.handler);
    assert_eq!(again.text(), "ContinueAsNew: next");
    assert!(again.delta.is_empty());
    assert_eq!(again.actions.len(), 1);
}

#[test]
fn one_turn_reads_any_number_of_buffered_messages() {
    let handler = code(|ctx, _| async move {
        let mut sum = 0;
        for _ in 0..250 {
            sum += ctx.dequeue_event("q").await.parse::<u32>().unwrap();
        }
        Ok(sum.to_string())
    });
    let messages = (0..250).map(|_| msg::queue("q", "2")).collect();
    assert_eq!(Live::start_with(handler, messages).last().text(), "Completed: 500");
}

#[test]
fn a_legacy_execution_reads_more_than_a_hundred_messages_in_a_turn_too() {
    let handler = code(|ctx, _| async move {
        for _ in 0..150 {
            ctx.dequeue_event("q").await;
        }
        Ok("read".into())
    });
    let messages = (0..150).map(|_| msg::queue("q", "m")).collect();
    let live = Live::from_start(handler, History::started().stamped(LEGACY), messages);
    assert_eq!(live.last().text(), "Completed: read");
}

#[test]
fn code_that_keeps_waking_itself_without_progress_is_stopped() {
    let handler = code(|ctx, _| async move {
        ctx.set_custom_status("busy");
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            std::task::Poll::<()>::Pending
        })
        .await;
        Ok(String::new())
    });
    let turn = History::started().replay(&handler);
    let TurnResult::Failed(ErrorDetails::Infrastructure { operation, message, retryable }) = &turn.result
    else {
        panic!("{:?}", turn.result)
    };
    assert_eq!((operation.as_str(), *retryable), ("quiescence_loop", false));
    assert!(message.starts_with("quiescence loop exceeded 100 iterations"), "{message}");
}

// --- result priority

#[test]
fn a_recorded_cancellation_wins_over_everything_the_code_does() {
    let handlers = [
        code(|_, _| async move { Ok("done".into()) }),
        code(|_, _| async move { Err("failed".into()) }),
        code(|ctx, _| async move { ctx.continue_as_new("next").await }),
        code(|ctx, _| async move { ctx.schedule_activity("A", "").await }),
    ];
    for handler in handlers {
        let turn = History::started().turn(&handler, vec![msg::cancel("stop")]);
        assert_eq!(turn.text(), "Cancelled: stop");
    }
}

#[test]
fn a_cancellation_in_the_batch_of_the_start_wins_and_the_code_still_runs() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        Ok("never".into())
    });
    let live = Live::start_with(handler, vec![msg::cancel("at once"), msg::cancel("later")]);
    assert_eq!(live.last().text(), "Cancelled: at once");
    assert_eq!(live.last().kinds(), ["OrchestrationCancelRequested", "ActivityScheduled"]);
}

#[test]
fn a_cancelled_turn_hears_the_completions_of_its_batch() {
    let heard = Arc::new(Mutex::new(String::new()));
    let log = heard.clone();
    let handler = code(move |ctx, _| {
        let log = log.clone();
        async move {
            let result = ctx.schedule_activity("A", "").await?;
            log.lock().unwrap().push_str(&result);
            Ok("done".into())
        }
    });
    let history = History::started().activity("A", "");
    let turn = history.turn(&handler, vec![msg::cancel("stop"), msg::activity(2, "heard")]);
    assert_eq!(turn.text(), "Cancelled: stop");
    assert_eq!(*heard.lock().unwrap(), "heard");
}

#[test]
fn continue_as_new_wins_over_a_return_value_and_the_first_call_counts() {
    let handler = code(|ctx, _| async move {
        let _first = ctx.continue_as_new("first");
        let _second = ctx.continue_as_new_versioned("2.0.0", "second");
        Err("ignored".into())
    });
    assert_eq!(History::started().replay(&handler).text(), "ContinueAsNew: first");
}

#[test]
fn an_error_of_the_handler_is_an_application_failure() {
    let handler = code(|_, _| async move { Err("no".into()) });
    let turn = History::started().replay(&handler);
    let TurnResult::Failed(details) = turn.result else { panic!() };
    assert_eq!(details, orch_error("no"));
}

// --- is_replaying

type Seen = Arc<Mutex<Vec<(&'static str, bool)>>>;

fn watching(seen: &Seen) -> Arc<dyn OrchestrationHandler> {
    let seen = seen.clone();
    code(move |ctx, _| {
        let seen = seen.clone();
        async move {
            let note = |ctx: &OrchestrationContext, at| seen.lock().unwrap().push((at, ctx.is_replaying()));
            note(&ctx, "start");
            let first = ctx.schedule_activity("A", "");
            let second = ctx.schedule_activity("B", "");
            let third = ctx.schedule_activity("C", "");
            first.await?;
            note(&ctx, "after A");
            second.await?;
            note(&ctx, "after B");
            third.await?;
            note(&ctx, "after C");
            Ok(String::new())
        }
    })
}

fn three_scheduled() -> History {
    History::started().activity("A", "").activity("B", "").activity("C", "")
}

#[test]
fn a_first_turn_is_never_a_replay() {
    let seen = Seen::default();
    let engine =
        ReplayEngine::new(INSTANCE.into(), 1, History::started().events).with_persisted_history_len(0);
    turn(engine, &watching(&seen), vec![]);
    assert_eq!(*seen.lock().unwrap(), [("start", false)]);
}

#[test]
fn the_first_poll_over_a_stored_start_is_a_replay() {
    let seen = Seen::default();
    History::started().replay(&watching(&seen));
    assert_eq!(*seen.lock().unwrap(), [("start", true)]);
}

#[test]
fn after_the_last_stored_completion_without_news_the_code_is_not_replaying() {
    let seen = Seen::default();
    three_scheduled().activity_done(2, "").replay(&watching(&seen));
    assert_eq!(*seen.lock().unwrap(), [("start", true), ("after A", false)]);
}

#[test]
fn code_that_ran_in_an_earlier_turn_is_replaying_so_that_its_traces_do_not_repeat() {
    let seen = Seen::default();
    let history = three_scheduled().activity_done(2, "");
    history.turn(&watching(&seen), vec![msg::activity(3, "")]);
    // "after A" ran when A's result was new; only "after B" is new now.
    assert_eq!(*seen.lock().unwrap(), [("start", true), ("after A", true), ("after B", false)]);
}

#[test]
fn logging_is_never_said_to_be_enabled() {
    let ctx = OrchestrationContext::new(vec![], 1, "i".into(), "n".into(), "v".into(), None);
    assert!(!ctx.is_logging_enabled());
    assert!(ctx.is_replaying());
}

// --- panics

#[test]
fn a_panic_fails_the_orchestration_with_its_text() {
    let building: Arc<dyn OrchestrationHandler> =
        code(|_, _| -> std::future::Ready<Result<String, String>> { panic!("while building") });
    let polling = code(|_, _| async move { panic!("number {}", 7) });
    let odd = code(|_, _| async move { std::panic::panic_any(42_u8) });
    for (handler, text) in
        [(building, "while building"), (polling, "number 7"), (odd, "orchestration panicked")]
    {
        let turn = History::started().replay(&handler);
        let TurnResult::Failed(details) = &turn.result else { panic!("{:?}", turn.result) };
        let expected = ErrorDetails::Application {
            kind: AppErrorKind::Panicked,
            message: text.into(),
            retryable: false,
        };
        assert_eq!(details, &expected);
        assert!(turn.text().starts_with("Failed: orchestration panicked: "), "{}", turn.text());
    }
}

#[test]
fn a_panic_keeps_the_completions_and_loses_the_requests_of_its_turn() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        ctx.set_custom_status("lost");
        panic!("boom")
    });
    let turn = History::started().activity("A", "").turn(&handler, vec![msg::activity(2, "x")]);
    assert_eq!(turn.kinds(), ["ActivityCompleted"]);
    assert!(turn.actions.is_empty());
}
