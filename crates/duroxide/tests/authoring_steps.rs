//! Timers, typed steps, retries, children, continue-as-new and system calls as authors use them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use duroxide::runtime::replay_engine::TurnResult;
use duroxide::{Action, BackoffStrategy, EventKind, OrchestrationContext, OrchestrationHandler, RetryPolicy};
use serde::{Deserialize, Serialize};
use support::*;

fn context() -> OrchestrationContext {
    OrchestrationContext::new(vec![], 1, INSTANCE.into(), "Orch".into(), "1.0.0".into(), None)
}

fn count(live: &Live, kind: &str) -> usize {
    kinds(&live.history).iter().filter(|found| *found == kind).count()
}

// --- timers

fn fire_at(ctx: &OrchestrationContext, delay: Duration) -> u64 {
    let timer = ctx.schedule_timer(delay);
    let [(_, Action::CreateTimer { fire_at_ms, .. })] = ctx.drain_emitted_actions()[..] else { panic!() };
    drop(timer);
    fire_at_ms
}

#[test]
fn a_timer_is_set_to_now_plus_whole_milliseconds() {
    let ctx = context();
    let zero = fire_at(&ctx, Duration::ZERO);
    let later = fire_at(&ctx, Duration::from_micros(2_000_999));
    assert!((2_000..3_000).contains(&(later - zero)), "{zero} {later}");
}

#[test]
fn a_timer_of_the_longest_duration_never_fires_instead_of_at_once() {
    let ctx = context();
    assert_eq!(fire_at(&ctx, Duration::MAX), i64::MAX as u64);
    assert_eq!(fire_at(&ctx, Duration::from_millis(u64::MAX)), i64::MAX as u64);
    let year = Duration::from_secs(365 * 24 * 3600);
    assert!(fire_at(&ctx, year) < i64::MAX as u64);
}

#[test]
fn a_timer_that_new_code_adds_to_an_old_history_runs_from_now_on() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_timer(Duration::from_secs(60)).await;
        Ok(String::new())
    });
    let mut history = History::started();
    history.events[0].timestamp_ms = 1_000;
    let turn = history.replay(&handler);
    let EventKind::TimerCreated { fire_at_ms } = turn.delta[0].kind else { panic!() };
    assert_eq!(fire_at_ms, turn.delta[0].timestamp_ms + 60_000);
}

#[test]
fn a_zero_timer_takes_a_round_trip() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_timer(Duration::ZERO).await;
        Ok("zero-timer-fired".into())
    });
    let mut live = Live::start(handler);
    assert_eq!(live.last().text(), "Continue");
    assert!(matches!(live.last().actions[0], Action::CreateTimer { scheduling_event_id: 2, .. }));
    assert_eq!(live.turn(vec![msg::timer(2)]).text(), "Completed: zero-timer-fired");
}

#[test]
fn a_repeated_timer_message_is_recorded_once() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_timer(Duration::ZERO).await;
        Ok(ctx.schedule_wait("w").await)
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::timer(2), msg::timer(2)]);
    live.turn(vec![msg::timer(2)]);
    assert_eq!(count(&live, "TimerFired"), 1);
}

// --- typed steps

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Order {
    zeta: u32,
    alpha: String,
}

#[test]
fn typed_values_travel_as_json_with_sorted_keys_and_strings_as_they_are() {
    let ctx = context();
    let _a = ctx.schedule_activity_typed::<_, Order>("A", &Order { zeta: 1, alpha: "x".into() });
    let _b = ctx.schedule_activity_on_session_typed::<_, ()>("B", &"plain", "s");
    let _c = ctx.schedule_sub_orchestration_typed::<_, ()>("C", &7);
    let _d = ctx.schedule_sub_orchestration_with_id_typed::<_, ()>("D", "id", &vec![1, 2]);
    let inputs: Vec<String> = ctx
        .get_emitted_actions()
        .into_iter()
        .map(|(_, action)| match action {
            Action::CallActivity { input, .. } | Action::StartSubOrchestration { input, .. } => input,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(inputs, [r#"{"alpha":"x","zeta":1}"#, "plain", "7", "[1,2]"]);
}

#[test]
fn a_typed_result_that_does_not_decode_is_an_error_that_code_can_handle() {
    let handler = code(|ctx, _| async move {
        let bad = ctx.schedule_activity_typed::<_, u32>("A", &1).await;
        let good = ctx.schedule_sub_orchestration_typed::<_, Order>("C", &1).await?;
        Ok(format!("{} {good:?}", bad.is_err()))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity(2, "not-json")]);
    let turn = live.turn(vec![msg::child(4, r#"{"zeta":3,"alpha":"y"}"#)]);
    assert_eq!(turn.text(), r#"Completed: true Order { zeta: 3, alpha: "y" }"#);
}

#[test]
fn typed_signals_and_messages_decode() {
    let handler = code(|ctx, _| async move {
        let order = ctx.schedule_wait_typed::<Order>("order").await;
        let amount: u32 = ctx.dequeue_event_typed("amount").await;
        Ok(format!("{}:{amount}", order.zeta))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("order", r#"{"zeta":42,"alpha":""}"#), msg::queue("amount", "99")]);
    assert_eq!(live.last().text(), "Completed: 42:99");
}

#[test]
fn a_signal_or_message_that_does_not_decode_fails_the_orchestration() {
    let wait = code(|ctx, _| async move { Ok(ctx.schedule_wait_typed::<u32>("n").await.to_string()) });
    let dequeue = code(|ctx, _| async move { Ok(ctx.dequeue_event_typed::<u32>("n").await.to_string()) });
    let cases = [
        (History::started().wait("n"), wait, msg::signal("n", "no number")),
        (History::started().dequeue("n"), dequeue, msg::queue("n", "no number")),
    ];
    for (history, handler, message) in cases {
        let text = history.turn(&handler, vec![message]).text();
        assert!(text.starts_with("Failed: orchestration panicked: decode"), "{text}");
    }
}

struct Unserializable;

impl Serialize for Unserializable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("cannot"))
    }
}

#[test]
#[should_panic(expected = "encode")]
fn an_input_that_cannot_be_serialized_panics() {
    drop(context().schedule_activity_typed::<_, ()>("A", &Unserializable));
}

#[test]
#[should_panic(expected = "Serialization should never fail for valid input")]
fn a_continuation_input_that_cannot_be_serialized_panics() {
    drop(context().continue_as_new_typed(&Unserializable));
}

#[test]
#[allow(deprecated)]
fn the_deprecated_names_are_dequeues() {
    let ctx = context();
    let _a = ctx.schedule_wait_persistent("q");
    let _b = ctx.schedule_wait_persistent_typed::<u32>("q");
    let actions = ctx.get_emitted_actions();
    assert!(
        actions.iter().all(|(_, action)| matches!(action, Action::DequeueEvent { name, .. } if name == "q"))
    );
    assert_eq!(actions.len(), 2);
}

// --- retries

fn retrying(policy: RetryPolicy) -> Arc<dyn OrchestrationHandler> {
    code(move |ctx, _| {
        let policy = policy.clone();
        async move { ctx.schedule_activity_with_retry("A", "in", policy).await }
    })
}

fn fixed(attempts: u32) -> RetryPolicy {
    RetryPolicy::new(attempts).with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(5) })
}

#[test]
fn a_failed_attempt_is_followed_by_a_pause_and_the_last_error_is_returned() {
    let mut live = Live::start(retrying(fixed(3)));
    live.turn(vec![msg::activity_failed(2, app_error("one"))]);
    live.turn(vec![msg::timer(4)]);
    live.turn(vec![msg::activity_failed(6, app_error("two"))]);
    live.turn(vec![msg::timer(8)]);
    let turn = live.turn(vec![msg::activity_failed(10, app_error("fail on attempt 3"))]);
    assert_eq!(turn.text(), "Failed: fail on attempt 3");
    assert_eq!((count(&live, "ActivityScheduled"), count(&live, "TimerCreated")), (3, 2));
}

#[test]
fn a_success_ends_the_attempts() {
    let mut live = Live::start(retrying(fixed(3)));
    live.turn(vec![msg::activity_failed(2, app_error("one"))]);
    live.turn(vec![msg::timer(4)]);
    assert_eq!(live.turn(vec![msg::activity(6, "ok")]).text(), "Completed: ok");
}

#[test]
fn without_a_backoff_there_is_no_timer() {
    let mut live = Live::start(retrying(RetryPolicy::new(2).with_backoff(BackoffStrategy::None)));
    live.turn(vec![msg::activity_failed(2, app_error("one"))]);
    assert_eq!(live.turn(vec![msg::activity(4, "ok")]).text(), "Completed: ok");
    assert_eq!(count(&live, "TimerCreated"), 0);
}

#[test]
fn an_attempt_that_takes_too_long_ends_the_call_and_is_cancelled() {
    let mut live = Live::start(retrying(fixed(3).with_timeout(Duration::from_secs(1))));
    assert_eq!(live.last().kinds(), ["ActivityScheduled", "TimerCreated"]);
    let turn = live.turn(vec![msg::timer(3)]);
    assert_eq!(turn.text(), "Failed: timeout: activity timed out");
    assert_eq!(turn.cancelled_activities, [2]);
    assert_eq!((count(&live, "ActivityScheduled"), count(&live, "TimerFired")), (1, 1));
}

#[test]
fn an_error_within_the_timeout_is_retried_and_the_next_attempt_can_time_out() {
    let mut live = Live::start(retrying(fixed(3).with_timeout(Duration::from_secs(1))));
    live.turn(vec![msg::activity_failed(2, app_error("one"))]);
    live.turn(vec![msg::timer(5)]);
    live.turn(vec![msg::timer(3)]);
    let turn = live.turn(vec![msg::timer(8)]);
    assert_eq!(turn.text(), "Failed: timeout: activity timed out");
    assert_eq!((count(&live, "ActivityScheduled"), count(&live, "ActivityFailed")), (2, 1));
}

#[test]
fn a_policy_literal_without_attempts_schedules_nothing() {
    let policy = RetryPolicy { max_attempts: 0, ..RetryPolicy::default() };
    let live = Live::start(retrying(policy));
    assert_eq!(live.last().text(), "Failed: ");
    assert!(live.last().delta.is_empty());
}

#[test]
fn every_attempt_runs_on_the_same_session_and_typed_retries_decode() {
    let handler = code(|ctx, _| async move {
        let policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::None);
        let sum: u32 = ctx
            .schedule_activity_with_retry_on_session_typed(
                "A",
                &Order { zeta: 1, alpha: "x".into() },
                policy,
                "s",
            )
            .await?;
        let policy = RetryPolicy::new(1);
        let text: String = ctx.schedule_activity_with_retry_typed("B", &sum, policy.clone()).await?;
        ctx.schedule_activity_with_retry_on_session("C", text, policy, "t").await
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity_failed(2, app_error("one"))]);
    live.turn(vec![msg::activity(4, "5")]);
    live.turn(vec![msg::activity(6, "text")]);
    assert_eq!(live.turn(vec![msg::activity(8, "end")]).text(), "Completed: end");
    let sessions: Vec<_> = live
        .history
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ActivityScheduled { session_id, input, .. } => {
                Some((session_id.as_deref(), input.as_str()))
            }
            _ => None,
        })
        .collect();
    let order = r#"{"alpha":"x","zeta":1}"#;
    assert_eq!(sessions, [(Some("s"), order), (Some("s"), order), (None, "5"), (Some("t"), "text")]);
}

// --- children and detached starts

fn child_ids(turn: &Turn) -> Vec<String> {
    turn.delta
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::SubOrchestrationScheduled { instance, .. } => Some(instance.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn generated_child_ids_name_the_event_and_later_executions() {
    let handler = code(|ctx, _| async move {
        let all = vec![ctx.schedule_sub_orchestration("C", "1"), ctx.schedule_sub_orchestration("C", "2")];
        ctx.join(all).await;
        Ok(String::new())
    });
    assert_eq!(child_ids(&History::started().replay(&handler)), ["sub::2", "sub::3"]);
    assert_eq!(child_ids(&History::started().in_execution(3).replay(&handler)), ["sub::3_2", "sub::3_3"]);
    let ctx = context();
    let _child = ctx.schedule_sub_orchestration("C", "");
    let (_, Action::StartSubOrchestration { instance, .. }) = &ctx.get_emitted_actions()[0] else { panic!() };
    assert!(instance.starts_with("sub::pending_"));
}

#[test]
fn a_chosen_child_id_is_used_as_it_is() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_sub_orchestration_versioned_with_id("C", Some("2.0.0".into()), "tenant::sub::99", "in")
            .await
    });
    let turn = History::started().replay(&handler);
    assert_eq!(child_ids(&turn), ["tenant::sub::99"]);
    let Action::StartSubOrchestration { version, instance, .. } = &turn.actions[0] else { panic!() };
    assert_eq!((version.as_deref(), instance.as_str()), (Some("2.0.0"), "tenant::sub::99"));
}

#[test]
fn a_child_id_that_looks_generated_is_refused_and_uses_up_a_token() {
    let ctx = context();
    let refused = ctx.schedule_sub_orchestration_with_id("C", "sub::7", "");
    let versioned = ctx.schedule_sub_orchestration_versioned_with_id("C", None, "sub::8", "");
    let _activity = ctx.schedule_activity("A", "");
    assert_eq!(ctx.get_emitted_actions()[0].0, 3);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for (mut future, id) in [(refused, "sub::7"), (versioned, "sub::8")] {
        let polled = std::pin::Pin::new(&mut future);
        let std::task::Poll::Ready(Err(text)) = std::future::Future::poll(polled, &mut cx) else { panic!() };
        assert_eq!(
            text,
            format!(
                "sub-orchestration instance id '{id}' starts with the reserved marker 'sub::', which the runtime uses \
                 to mark auto-generated child ids; use an id that does not begin with it"
            )
        );
    }
}

#[test]
fn a_detached_start_is_recorded_with_its_root_id() {
    let handler = code(|ctx, _| async move {
        ctx.schedule_orchestration("D", "tenant-7::order-42", "in");
        ctx.schedule_orchestration_typed("D", "typed", &5);
        ctx.schedule_orchestration_versioned("D", Some("1.1.0".into()), "versioned", "");
        ctx.schedule_orchestration_versioned_typed("D", None, "both", &"text");
        Ok(String::new())
    });
    let turn = History::started().replay(&handler);
    assert_eq!(turn.kinds(), ["OrchestrationChained"; 4]);
    let starts: Vec<_> = turn
        .actions
        .iter()
        .map(|action| match action {
            Action::StartOrchestrationDetached { scheduling_event_id, version, instance, input, .. } => {
                (*scheduling_event_id, version.as_deref(), instance.as_str(), input.as_str())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        starts,
        [
            (2, None, "tenant-7::order-42", "in"),
            (3, None, "typed", "5"),
            (4, Some("1.1.0"), "versioned", ""),
            (5, None, "both", "text")
        ]
    );
}

#[test]
fn a_detached_start_with_an_id_of_a_child_fails_the_orchestration() {
    for id in ["sub::1", "parent::sub::2"] {
        let handler = code(move |ctx, _| async move {
            ctx.schedule_orchestration("D", id, "");
            Ok(String::new())
        });
        let expected = format!(
            "Failed: orchestration panicked: detached orchestration instance id '{id}' uses the reserved \
             sub-orchestration marker 'sub::'; root instance ids must not start with it or contain '::sub::'"
        );
        assert_eq!(History::started().replay(&handler).text(), expected);
    }
}

// --- continue as new

#[test]
fn continue_as_new_takes_effect_awaited_or_not_and_can_name_a_version() {
    let awaited = code(|ctx, _| async move { ctx.continue_as_new_versioned("2.0.0", "n").await });
    let TurnResult::ContinueAsNew { input, version, unconsumed_queue_arrivals } =
        History::started().replay(&awaited).result
    else {
        panic!()
    };
    assert_eq!((input.as_str(), version.as_deref()), ("n", Some("2.0.0")));
    assert_eq!(unconsumed_queue_arrivals, Some(vec![]));
    let ignored = code(|ctx, _| async move {
        let _unawaited = ctx.continue_as_new_typed(&Order { zeta: 1, alpha: "a".into() });
        ctx.schedule_activity("A", "").await
    });
    assert_eq!(History::started().replay(&ignored).text(), r#"ContinueAsNew: {"alpha":"a","zeta":1}"#);
}

#[test]
fn the_future_of_a_continuation_outlives_the_context() {
    fn make() -> impl Future<Output = Result<String, String>> + Send + 'static {
        context().continue_as_new("x")
    }
    drop(make());
    fn queue() -> impl Future<Output = u32> + Send + 'static {
        context().dequeue_event_typed::<u32>("q")
    }
    drop(queue());
}

// --- system calls

#[test]
fn ids_and_times_are_activities_with_empty_input_and_their_recorded_values_are_used_again() {
    let handler = code(|ctx, _| async move {
        let id = ctx.new_guid().await?;
        let now = ctx.utc_now().await?;
        let ms = now.duration_since(UNIX_EPOCH).unwrap().as_millis();
        ctx.schedule_activity("Use", format!("{id}@{ms}")).await
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity(2, "some-guid")]);
    live.turn(vec![msg::activity(4, "1700000000123")]);
    let EventKind::ActivityScheduled { input, .. } = &live.last().delta[1].kind else { panic!() };
    assert_eq!(input, "some-guid@1700000000123");
    assert_eq!(live.turn(vec![msg::activity(6, "done")]).text(), "Completed: done");
}

#[test]
fn a_time_that_is_no_number_is_an_error() {
    let handler = code(|ctx, _| async move {
        Ok(match ctx.utc_now().await {
            Ok(_) => "time".into(),
            Err(error) => error,
        })
    });
    for bad in ["soon", "-1", ""] {
        let turn = Live::start(handler.clone()).turn(vec![msg::activity(2, bad)]).text();
        assert!(turn.starts_with("Completed: ") && turn != "Completed: time", "{turn}");
    }
}
