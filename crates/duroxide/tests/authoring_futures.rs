//! Durable futures and their combinators.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::support;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::{Action, DurableFuture, Either2, Either3, EventKind, OrchestrationContext};
use support::*;

fn context() -> OrchestrationContext {
    OrchestrationContext::new(vec![], 1, INSTANCE.into(), "Orch".into(), "1.0.0".into(), None)
}

// --- scheduling

#[test]
fn requests_are_made_by_the_call_in_the_order_of_the_calls() {
    let ctx = context();
    let _a = ctx.schedule_activity("A", "");
    let _g = ctx.new_guid();
    let _n = ctx.utc_now();
    let _k = ctx.get_kv_value_from_instance("other", "key");
    let _w = ctx.schedule_wait("W");
    let _q = ctx.dequeue_event("Q");
    let _t = ctx.schedule_timer(Duration::ZERO);
    let _c = ctx.schedule_sub_orchestration("C", "");
    let tokens: Vec<u64> = ctx.get_emitted_actions().iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6, 7, 8]);
    let names: Vec<String> = ctx
        .drain_emitted_actions()
        .into_iter()
        .filter_map(|(_, action)| match action {
            Action::CallActivity { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(
        names,
        [
            "A",
            "__duroxide_syscall:new_guid",
            "__duroxide_syscall:utc_now_ms",
            "__duroxide_syscall:get_kv_value"
        ]
    );
    assert!(ctx.get_emitted_actions().is_empty());
}

#[test]
fn an_activity_that_nobody_awaits_yet_runs_and_can_be_awaited_later() {
    let handler = code(|ctx, _| async move {
        let a = ctx.schedule_activity("A", "");
        let b = ctx.schedule_activity("B", "").await?;
        Ok(format!("{b}{}", a.await?))
    });
    let mut live = Live::start(handler);
    let names: Vec<_> = live.last().delta.iter().map(|event| (event.event_id, &event.kind)).collect();
    assert!(matches!(names[0], (2, EventKind::ActivityScheduled { name, .. }) if name == "A"));
    live.turn(vec![msg::activity(2, "a")]);
    assert_eq!(live.turn(vec![msg::activity(3, "b")]).text(), "Completed: ba");
}

#[test]
fn a_future_resolves_only_when_it_is_bound_and_a_result_was_laid_down() {
    let ctx = context();
    let mut activity = ctx.schedule_activity("A", "");
    assert!(poll(&mut activity).is_none());
    ctx.deliver_result(2, duroxide::CompletionResult::ActivityOk("lost".into()));
    ctx.bind_token(1, 2);
    assert!(poll(&mut activity).is_none());
    ctx.deliver_result(2, duroxide::CompletionResult::ActivityOk("x".into()));
    assert_eq!(poll(&mut activity), Some(Ok("x".into())));
    assert!(poll(&mut activity).is_none(), "its result is given once");
}

#[test]
fn waits_and_dequeues_resolve_after_binding() {
    let ctx = context();
    let (mut wait, mut queue) = (ctx.schedule_wait("w"), ctx.dequeue_event("q"));
    ctx.deliver_queue_message("q".into(), "m".into());
    ctx.deliver_external_event("w".into(), "early".into());
    assert!(poll(&mut wait).is_none() && poll(&mut queue).is_none());
    ctx.bind_token(1, 2);
    ctx.bind_external_subscription(2, "w");
    ctx.bind_token(2, 3);
    ctx.bind_queue_subscription(3, "q");
    assert_eq!(poll(&mut queue).as_deref(), Some("m"));
    assert!(poll(&mut wait).is_none());
    ctx.deliver_external_event("w".into(), "d".into());
    assert_eq!(poll(&mut wait).as_deref(), Some("d"));
}

#[test]
fn timers_and_children_resolve_with_their_results() {
    let ctx = context();
    let (mut timer, mut child) =
        (ctx.schedule_timer(Duration::ZERO), ctx.schedule_sub_orchestration("C", ""));
    ctx.bind_token(1, 2);
    ctx.bind_token(2, 3);
    ctx.deliver_result(2, duroxide::CompletionResult::TimerFired);
    ctx.deliver_result(3, duroxide::CompletionResult::SubOrchErr("no".into()));
    assert_eq!(poll(&mut timer), Some(()));
    assert_eq!(poll(&mut child), Some(Err("no".into())));
}

#[test]
fn the_context_can_be_cloned_into_nested_functions() {
    async fn nested(ctx: OrchestrationContext, input: String) -> Result<String, String> {
        let helper = |name: &'static str| {
            let ctx = ctx.clone();
            async move { ctx.schedule_activity(name, "").await }
        };
        Ok(format!("{input}{}{}", helper("A").await?, helper("B").await?))
    }
    let mut live = Live::start(code(|ctx, _| nested(ctx, ">".into())));
    live.turn(vec![msg::activity(2, "a")]);
    assert_eq!(live.turn(vec![msg::activity(4, "b")]).text(), "Completed: >ab");
}

fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match Pin::new(future).poll(&mut cx) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

// --- join

#[test]
fn join_keeps_the_order_of_arguments_and_a_failure_ends_nothing() {
    let handler = code(|ctx, _| async move {
        let all = ctx.join(["A", "B", "C"].map(|name| ctx.schedule_activity(name, "")).into()).await;
        Ok(format!("{all:?}"))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity(4, "c"), msg::activity_failed(2, app_error("division by zero"))]);
    let turn = live.turn(vec![msg::activity(3, "b")]);
    assert_eq!(turn.text(), r#"Completed: [Err("division by zero"), Ok("b"), Ok("c")]"#);
}

#[test]
fn join_of_nothing_is_ready_at_once() {
    let handler = code(|ctx, _| async move {
        let none: Vec<String> = ctx.join(Vec::<DurableFuture<String>>::new()).await;
        Ok(none.len().to_string())
    });
    assert_eq!(History::started().replay(&handler).text(), "Completed: 0");
}

#[test]
fn join_of_1024_recorded_children_completes_in_one_turn_without_anything_new() {
    let handler = code(|ctx, _| async move {
        let children = (0..1024).map(|i| ctx.schedule_sub_orchestration("C", i.to_string())).collect();
        Ok(ctx.join(children).await.len().to_string())
    });
    let mut history = History::started();
    for i in 0..1024 {
        history = history.child("C", &format!("sub::{}", i + 2), &i.to_string());
    }
    for i in 0..1024 {
        history = history.child_done(i + 2, "ok");
    }
    let turn = history.replay(&handler);
    assert_eq!(turn.text(), "Completed: 1024");
    assert!(turn.delta.is_empty() && turn.actions.is_empty());
}

#[test]
fn join2_and_join3_take_members_of_different_types() {
    let handler = code(|ctx, _| async move {
        let pair = ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_wait("w")).await;
        let triple = ctx.join3(ctx.schedule_timer(Duration::ZERO), ctx.dequeue_event("q"), async { 7 }).await;
        Ok(format!("{pair:?} {triple:?}"))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("w", "s"), msg::activity(2, "a"), msg::queue("q", "m")]);
    let turn = live.turn(vec![msg::timer(7)]);
    assert_eq!(turn.text(), r#"Completed: (Ok("a"), "s") ((), "m", 7)"#);
}

#[test]
fn joins_and_races_nest() {
    let handler = code(|ctx, _| async move {
        let branch = |name: &'static str| {
            let ctx = ctx.clone();
            async move {
                let inner = vec![ctx.schedule_activity(name, "1"), ctx.schedule_activity(name, "2")];
                let results = ctx.join(inner).await;
                match ctx.select2(ctx.schedule_wait(name), ctx.schedule_timer(Duration::ZERO)).await {
                    Either2::First(data) => format!("{results:?}{data}"),
                    Either2::Second(()) => format!("{results:?}timeout"),
                }
            }
        };
        Ok(ctx.join(vec![branch("A"), branch("B")]).await.join("|"))
    });
    let mut live = Live::start(handler);
    live.turn((2..=5).map(|id| msg::activity(id, "r")).collect());
    let ids: Vec<u64> = live.last().delta.iter().map(|event| event.event_id).collect();
    assert_eq!(ids, [6, 7, 8, 9, 10, 11, 12, 13]);
    let turn = live.turn(vec![msg::timer(13), msg::signal("A", "!")]);
    let expected = r#"Completed: [Ok("r"), Ok("r")]!|[Ok("r"), Ok("r")]timeout"#;
    assert_eq!(turn.text(), expected);
}

// --- select

#[test]
fn the_first_recorded_completion_wins_also_among_three() {
    let handler = code(|ctx, _| async move {
        let (a, b) = (ctx.schedule_wait("A"), ctx.schedule_wait("B"));
        let won = ctx.select3(a, b, ctx.schedule_timer(Duration::from_secs(1))).await;
        Ok(format!("{won:?}"))
    });
    let open = History::started().wait("A").wait("B").timer();
    assert_eq!(open.clone().timer_fired(4).signal("A", "x").replay(&handler).text(), "Completed: Third(())");
    assert_eq!(open.signal("B", "y").timer_fired(4).replay(&handler).text(), r#"Completed: Second("y")"#);
}

#[test]
fn the_order_of_arguments_breaks_a_tie() {
    let handler = code(|ctx, _| async move {
        let both = ctx.select2(async { 1 }, async { 2 }).await;
        let three = ctx.select3(std::future::pending::<()>(), async { 2 }, async { 3 }).await;
        Ok(format!("{both:?} {three:?}"))
    });
    assert_eq!(History::started().replay(&handler).text(), "Completed: First(1) Second(2)");
}

#[test]
fn a_future_raced_by_reference_survives_the_race() {
    let handler = code(|ctx, _| async move {
        let mut work = ctx.schedule_activity("Work", "");
        let mut rounds = 0;
        loop {
            match ctx.select2(&mut work, ctx.schedule_timer(Duration::from_secs(1))).await {
                Either2::First(result) => return Ok(format!("{} after {rounds}", result?)),
                Either2::Second(()) => rounds += 1,
            }
        }
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::timer(3)]);
    live.turn(vec![msg::timer(5)]);
    let turn = live.turn(vec![msg::activity(2, "done")]);
    assert_eq!(turn.text(), "Completed: done after 2");
    assert!(live.turns.iter().all(|turn| turn.cancelled_activities.is_empty()));
}

#[test]
fn a_losing_block_is_dropped_whole() {
    let handler = code(|ctx, _| async move {
        let inner = ctx.clone();
        let block = async move {
            let _child = inner.schedule_sub_orchestration("C", "");
            inner.schedule_activity("A", "").await
        };
        ctx.select2(block, ctx.schedule_wait("stop")).await;
        Ok("stopped".into())
    });
    let mut live = Live::start(handler);
    // Making the arguments asked for the wait; the first poll of the block asked for its steps.
    assert_eq!(live.last().kinds(), ["ExternalSubscribed", "SubOrchestrationScheduled", "ActivityScheduled"]);
    let turn = live.turn(vec![msg::signal("stop", "")]);
    assert_eq!(
        (turn.cancelled_activities.as_slice(), turn.cancelled_children.as_slice()),
        (&[4][..], &["sub::3".to_string()][..])
    );
}

#[test]
fn losers_are_dropped_before_the_caller_sees_the_result() {
    struct Noisy(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Noisy {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("dropped");
        }
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let handler = code(move |ctx, _| {
        let log = log.clone();
        async move {
            let noisy = Noisy(log.clone());
            let loser = async move {
                let _noisy = noisy;
                std::future::pending::<()>().await
            };
            ctx.select2(loser, async {}).await;
            log.lock().unwrap().push("returned");
            Ok(String::new())
        }
    });
    History::started().replay(&handler);
    assert_eq!(*seen.lock().unwrap(), ["dropped", "returned"]);
}

#[test]
fn work_scheduled_after_a_race_replays_though_the_loser_completes_later() {
    let handler = code(|ctx, _| async move {
        let (a, b) = (ctx.schedule_activity("A", ""), ctx.schedule_activity("B", ""));
        let won = ctx.select2(a, b).await;
        ctx.schedule_activity("Next", format!("{won:?}")).await
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::activity(3, "b")]);
    let EventKind::ActivityScheduled { input, .. } = &live.last().delta[1].kind else { panic!() };
    assert_eq!(input, r#"Second(Ok("b"))"#);
    live.turn(vec![msg::activity(2, "late")]);
    assert_eq!(live.turn(vec![msg::activity(5, "done")]).text(), "Completed: done");
}

// --- adaptors of others

/// Polls both members every time, as many adaptors do.
struct PollBoth<A, B>(A, B);

impl<A: Future + Unpin, B: Future<Output = A::Output> + Unpin> Future for PollBoth<A, B> {
    type Output = A::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        match Pin::new(&mut self.0).poll(cx) {
            std::task::Poll::Pending => Pin::new(&mut self.1).poll(cx),
            ready => ready,
        }
    }
}

#[test]
fn adaptors_of_others_work_alone_and_inside_a_join() {
    let handler = code(|ctx, _| async move {
        let race = |name: &str| PollBoth(ctx.schedule_wait(name), ctx.schedule_wait("any"));
        let all = ctx.join(vec![race("A"), race("B"), race("C")]).await;
        Ok(all.join(","))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("B", "b")]);
    live.turn(vec![msg::signal("any", "1")]);
    // The race that is over gave up its wait, so the second signal goes to the third.
    assert_eq!(live.turn(vec![msg::signal("any", "2")]).text(), "Completed: 1,b,2");
}

// --- map and with_tag

#[test]
fn a_mapped_future_is_the_same_step() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = code(move |ctx, _| {
        let counted = counted.clone();
        async move {
            let mapped = ctx.schedule_activity("A", "").map(move |result| {
                counted.fetch_add(1, Ordering::SeqCst);
                result.map(|text| text.len())
            });
            let lost = ctx.schedule_activity("B", "").map(|_| ());
            let winner = ctx.select2(mapped, lost).await;
            Ok(format!("{winner:?}"))
        }
    });
    let turn =
        History::started().activity("A", "").activity("B", "").turn(&handler, vec![msg::activity(2, "four")]);
    assert_eq!(turn.text(), "Completed: First(Ok(4))");
    assert_eq!(turn.cancelled_activities, [3]);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn a_tag_is_set_on_the_activity_and_the_last_one_counts() {
    let ctx = context();
    let _plain = ctx.schedule_activity("A", "");
    let _tagged = ctx.schedule_activity("B", "").with_tag("cpu").map(|_| ()).with_tag("gpu");
    let _typed = ctx.schedule_activity_typed::<_, u32>("C", &1).with_tag("gpu");
    let tags: Vec<_> = ctx
        .get_emitted_actions()
        .into_iter()
        .map(|(_, action)| match action {
            Action::CallActivity { tag, .. } => tag,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tags, [None, Some("gpu".into()), Some("gpu".into())]);
}

#[test]
#[should_panic(expected = "with_tag() can only be called on activity futures, got Timer")]
fn a_timer_cannot_be_tagged() {
    drop(context().schedule_timer(Duration::ZERO).with_tag("x"));
}

#[test]
#[should_panic(
    expected = "with_tag() can only be called on activity futures, got SubOrchestration { token: 1 }"
)]
fn a_child_cannot_be_tagged() {
    drop(context().schedule_sub_orchestration("C", "").with_tag("x"));
}

#[test]
fn an_activity_that_was_handed_over_cannot_be_tagged() {
    let handler = code(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_wait("go").await;
        activity.with_tag("late").await
    });
    let mut live = Live::start(handler);
    let turn = live.turn(vec![msg::signal("go", "")]);
    let text = "Failed: orchestration panicked: with_tag(): token 1 not found in emitted_actions";
    assert!(turn.text().starts_with(text), "{}", turn.text());
}

// --- small types

#[test]
fn eithers_tell_which_branch_won() {
    let first: Either2<i32, i32> = Either2::First(1);
    let second: Either2<i32, i32> = Either2::Second(2);
    assert!(first.is_first() && !first.is_second() && second.is_second());
    assert_eq!((first.index(), second.index()), (0, 1));
    assert_eq!((first.into_tuple(), second.into_tuple()), ((0, 1), (1, 2)));
    let third: Either3<(), (), Result<&str, ()>> = Either3::Third(Ok("A"));
    assert_eq!((third.index(), format!("{third:?}").as_str()), (2, "Third(Ok(\"A\"))"));
    assert_eq!(Either3::<u8, u8, u8>::Second(5).into_tuple(), (1, 5));
}

#[test]
fn futures_and_contexts_can_be_sent_to_other_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    fn unpin<T: Unpin>() {}
    send::<DurableFuture<String>>();
    unpin::<DurableFuture<std::marker::PhantomPinned>>();
    send::<OrchestrationContext>();
    sync::<OrchestrationContext>();
}

#[test]
fn nothing_is_left_of_a_turn_that_is_over() {
    struct Payload(Arc<()>);
    let alive = Arc::new(());
    let kept = alive.clone();
    let handler = code(move |ctx, _| {
        let payload = Payload(kept.clone());
        async move {
            let held = ctx.schedule_activity("A", "").map(move |_| payload.0.clone());
            ctx.schedule_wait("never").await;
            drop(held.await);
            Ok(String::new())
        }
    });
    for _ in 0..100 {
        History::started().replay(&handler);
    }
    drop(handler);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn actions_print_their_fields_in_the_documented_order() {
    let ctx = context();
    let _activity = ctx.schedule_activity_on_session("A", "in", "s").with_tag("gpu");
    let _wait = ctx.schedule_wait("W");
    ctx.schedule_orchestration_versioned("D", Some("2.0.0".into()), "d-1", "in");
    let _child = ctx.schedule_sub_orchestration_versioned_with_id("C", None::<String>, "c-1", "in");
    let _next = ctx.continue_as_new_versioned("2.0.0", "in");
    ctx.set_custom_status("busy");
    let _dequeue = ctx.dequeue_event("Q");
    ctx.clear_kv_value("k");
    ctx.clear_all_kv_values();
    let printed: Vec<String> =
        ctx.get_emitted_actions().iter().map(|(_, action)| format!("{action:?}")).collect();
    assert_eq!(
        printed,
        [
            r#"CallActivity { scheduling_event_id: 0, name: "A", input: "in", session_id: Some("s"), tag: Some("gpu") }"#,
            r#"WaitExternal { scheduling_event_id: 0, name: "W" }"#,
            r#"StartOrchestrationDetached { scheduling_event_id: 0, name: "D", version: Some("2.0.0"), instance: "d-1", input: "in" }"#,
            r#"StartSubOrchestration { scheduling_event_id: 0, name: "C", version: None, instance: "c-1", input: "in" }"#,
            r#"ContinueAsNew { input: "in", version: Some("2.0.0") }"#,
            r#"UpdateCustomStatus { status: Some("busy") }"#,
            r#"DequeueEvent { scheduling_event_id: 0, name: "Q" }"#,
            r#"ClearKeyValue { key: "k" }"#,
            "ClearKeyValues",
        ]
    );
    let timer = Action::CreateTimer { scheduling_event_id: 2, fire_at_ms: 5 };
    assert_eq!(format!("{timer:?}"), "CreateTimer { scheduling_event_id: 2, fire_at_ms: 5 }");
    let set = Action::SetKeyValue { key: "k".into(), value: "v".into(), last_updated_at_ms: 5 };
    assert_eq!(format!("{set:?}"), r#"SetKeyValue { key: "k", value: "v", last_updated_at_ms: 5 }"#);
}

/// A dequeue that is bound to the event after its token.
fn bound_dequeue(ctx: &OrchestrationContext, token: u64) -> DurableFuture<String> {
    let dequeue = ctx.dequeue_event("q");
    ctx.bind_token(token, token + 1);
    ctx.bind_queue_subscription(token + 1, "q");
    dequeue
}

#[test]
fn a_context_of_its_own_keeps_to_the_legacy_policy() {
    let ctx = context();
    assert!(ctx.is_replaying());
    let loser = bound_dequeue(&ctx, 1);
    drop(loser);
    ctx.deliver_queue_message("q".into(), "first".into());
    ctx.deliver_queue_message("q".into(), "second".into());
    // The dropped dequeue keeps its place, and with it the first message.
    assert_eq!(poll(&mut bound_dequeue(&ctx, 2)).as_deref(), Some("second"));
}
