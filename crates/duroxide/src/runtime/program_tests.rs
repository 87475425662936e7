//! Executions that stay in memory: what they cost, what remains when they end, and when they may not stay.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::model::{Event, EventKind, WorkItem};
use crate::orchestration::OrchestrationContext;
use crate::replay::{Ending, Execution, Journal, Turn, TurnResult};

use super::FnOrchestration;
use super::program::{Assignment, open_execution};

const NOW: u64 = 1_757_400_000_000;

fn open<F, Fut>(code: F) -> Execution
where
    F: Fn(OrchestrationContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    let assignment = Assignment {
        handler: Arc::new(FnOrchestration(move |ctx, _| code(ctx))),
        orchestration_name: "Orch".into(),
        orchestration_version: "1.0.0".into(),
        input: String::new(),
        kv_snapshot: HashMap::new(),
    };
    open_execution(Journal::new("inst", 1), assignment)
}

fn start() -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "Orch".into(),
        version: "1.0.0".into(),
        input: String::new(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event::with_event_id(1, "inst", 1, None, kind)
}

fn started<F, Fut>(code: F) -> (Execution, Turn)
where
    F: Fn(OrchestrationContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    let mut execution = open(code);
    let turn = execution.turn(vec![start()], vec![], NOW);
    (execution, turn)
}

fn activity(id: u64, result: &str) -> WorkItem {
    WorkItem::ActivityCompleted { instance: "inst".into(), execution_id: 1, id, result: result.into() }
}

fn signal(name: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: "inst".into(), name: name.into(), data: String::new() }
}

fn kinds(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_string();
    events.iter().map(name).collect()
}

/// Counts how often the future inside is polled.
struct Counted<F>(std::pin::Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(cx)
    }
}

#[test]
fn an_execution_can_be_moved_to_another_thread() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    let (execution, _) = started(|ctx| async move { ctx.schedule_activity("A", "").await });
    let mut execution = send(execution);
    let turn =
        std::thread::spawn(move || execution.turn(vec![], vec![activity(2, "x")], NOW)).join().unwrap();
    assert!(matches!(turn.result, TurnResult::Completed(output) if output == "x"));
}

#[test]
fn a_join_of_ten_thousand_polls_each_member_twice_however_its_results_arrive() {
    const MEMBERS: u64 = 10_000;
    let polls = Arc::new(AtomicUsize::new(0));
    let counter = polls.clone();
    let (mut execution, turn) = started(move |ctx| {
        let counter = counter.clone();
        async move {
            let member =
                |i: u64| Counted(Box::pin(ctx.schedule_activity("A", i.to_string())), counter.clone());
            let results = ctx.join((0..MEMBERS).map(member).collect()).await;
            let sum: u64 = results.into_iter().map(|result| result.unwrap().parse::<u64>().unwrap()).sum();
            Ok(sum.to_string())
        }
    });
    assert_eq!(turn.actions.len(), MEMBERS as usize);
    // Half of them one per turn, half of them in one batch.
    let half = MEMBERS / 2 + 2;
    for id in 2..half {
        let turn = execution.turn(vec![], vec![activity(id, "1")], NOW);
        assert!(matches!(turn.result, TurnResult::Continue));
        assert_eq!(turn.events.len(), 1);
    }
    let rest = (half..MEMBERS + 2).map(|id| activity(id, "1")).collect();
    let turn = execution.turn(vec![], rest, NOW);
    assert!(matches!(turn.result, TurnResult::Completed(sum) if sum == MEMBERS.to_string()));
    assert_eq!(polls.load(Ordering::Relaxed), 2 * MEMBERS as usize);
}

#[test]
fn a_history_of_a_hundred_thousand_events_replays_and_goes_on() {
    const STEPS: u64 = 50_000;
    let chain = |ctx: OrchestrationContext| async move {
        for _ in 0..STEPS {
            ctx.schedule_activity("A", "").await?;
        }
        Ok("end".to_string())
    };
    let mut history = vec![start()];
    for step in 0..STEPS {
        let id = 2 + 2 * step;
        let scheduled = EventKind::ActivityScheduled {
            name: "A".into(),
            input: String::new(),
            session_id: None,
            tag: None,
        };
        history.push(Event::with_event_id(id, "inst", 1, None, scheduled));
        let completed = EventKind::ActivityCompleted { result: "x".into() };
        history.push(Event::with_event_id(id + 1, "inst", 1, Some(id), completed));
    }
    history.pop();
    let mut execution = open(chain);
    execution.replay(&history);
    assert_eq!(execution.last_event_id(), 2 * STEPS);
    let turn = execution.turn(vec![], vec![activity(2 * STEPS, "last")], NOW);
    assert!(matches!(turn.result, TurnResult::Completed(output) if output == "end"));
}

#[test]
fn a_resident_runs_its_code_once() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = begun.clone();
    let (mut execution, _) = started(move |ctx| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move {
            for step in 0..3 {
                ctx.schedule_activity("A", step.to_string()).await?;
            }
            Ok(String::new())
        }
    });
    for id in [2, 4] {
        assert!(execution.can_stay_resident());
        execution.turn(vec![], vec![activity(id, "")], NOW);
    }
    execution.turn(vec![], vec![activity(6, "")], NOW);
    assert!(!execution.can_stay_resident(), "it is over");
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

#[test]
fn a_resident_can_be_fed_what_it_missed() {
    let code = |ctx: OrchestrationContext| async move {
        let a = ctx.schedule_activity("A", "").await?;
        let b = ctx.schedule_activity("B", a).await?;
        ctx.schedule_activity("C", b).await
    };
    let (mut ahead, first) = started(code);
    let mut behind = open(code);
    behind.replay(&first.events);
    for id in [2, 4] {
        let turn = ahead.turn(vec![], vec![activity(id, "x")], NOW);
        behind.replay(&turn.events);
    }
    assert_eq!(behind.last_event_id(), ahead.last_event_id());
    let turn = behind.turn(vec![], vec![activity(6, "end")], NOW);
    assert!(matches!(turn.result, TurnResult::Completed(output) if output == "end"));
}

#[test]
fn replayed_code_is_muted_to_its_last_poll_in_a_rebuilt_execution() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let code = move |ctx: OrchestrationContext| {
        let log = log.clone();
        async move {
            let both = (ctx.schedule_activity("A", ""), ctx.schedule_activity("B", ""));
            both.0.await?;
            log.lock().unwrap().push(ctx.is_replaying());
            both.1.await
        }
    };
    let (mut first, turn) = started(code.clone());
    let mut history = turn.events;
    history.extend(first.turn(vec![], vec![activity(2, "")], NOW).events);
    let mut rebuilt = open(code);
    rebuilt.replay(&history);
    // A batch without news does not make earlier events new.
    rebuilt.turn(vec![], vec![activity(2, "again")], NOW);
    assert_eq!(*seen.lock().unwrap(), [false, true]);
}

#[test]
fn legacy_executions_do_not_stay() {
    let mut start = start();
    start.duroxide_version = "0.1.30".into();
    let mut execution = open(|ctx| async move { ctx.schedule_activity("A", "").await });
    let turn = execution.turn(vec![start], vec![], NOW);
    assert!(matches!(turn.result, TurnResult::Continue));
    assert!(!execution.can_stay_resident());
}

// --- something that is not durable

#[test]
fn code_that_waits_for_something_foreign_is_reported_and_does_not_stay() {
    let (_sender, receiver) = tokio::sync::watch::channel(0);
    let plain = receiver.clone();
    let (execution, turn) = started(move |_| {
        let mut receiver = plain.clone();
        async move {
            receiver.changed().await.ok();
            Ok(String::new())
        }
    });
    assert!(turn.awaits_foreign && !execution.can_stay_resident());
    let (execution, turn) = started(move |ctx| {
        let receiver = receiver.clone();
        async move {
            let foreign = |mut receiver: tokio::sync::watch::Receiver<i32>| async move {
                receiver.changed().await.ok();
            };
            ctx.join(vec![foreign(receiver.clone()), foreign(receiver)]).await;
            Ok(String::new())
        }
    });
    assert!(turn.awaits_foreign && !execution.can_stay_resident(), "inside a join too");
}

#[test]
fn a_foreign_future_inside_a_join_is_polled_whenever_the_join_is() {
    let (sender, receiver) = tokio::sync::watch::channel(0);
    let (mut execution, _) = started(move |ctx| {
        let mut receiver = receiver.clone();
        async move {
            let durable: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(ctx.schedule_activity("A", "").map(|_| ()));
            let foreign: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async move { receiver.changed().await.unwrap_or_default() });
            ctx.join(vec![durable, foreign]).await;
            Ok("both".into())
        }
    });
    sender.send(1).unwrap();
    let turn = execution.turn(vec![], vec![activity(2, "")], NOW);
    assert!(matches!(turn.result, TurnResult::Completed(output) if output == "both"));
}

#[test]
fn durable_futures_and_combinators_are_not_foreign() {
    let (execution, turn) = started(|ctx| async move {
        let race = ctx.select2(ctx.schedule_wait("w"), ctx.schedule_timer(Duration::from_secs(1)));
        let all = ctx.join(vec![ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")]);
        ctx.join3(race, all, ctx.dequeue_event("q")).await;
        Ok(String::new())
    });
    assert!(!turn.awaits_foreign && execution.can_stay_resident());
}

#[test]
fn a_foreign_future_in_a_set_is_found_when_it_wakes_the_code_between_two_turns() {
    let (sender, receiver) = tokio::sync::watch::channel(0);
    let (mut execution, turn) = started(move |ctx| {
        let mut receiver = receiver.clone();
        async move {
            let mut set = FuturesUnordered::new();
            set.push(async move { receiver.changed().await.is_ok() }.boxed());
            set.push(ctx.schedule_activity("A", "").map(|_| false).boxed());
            set.push(ctx.schedule_activity("B", "").map(|_| false).boxed());
            while set.next().await.is_some() {}
            Ok(String::new())
        }
    });
    assert!(!turn.awaits_foreign && execution.can_stay_resident(), "the set keeps its waker for the steps");
    let turn = execution.turn(vec![], vec![activity(2, "")], NOW);
    assert!(!turn.woken_by_foreign && execution.can_stay_resident(), "so far nothing else woke the code");
    sender.send(1).unwrap();
    let turn = execution.turn(vec![], vec![activity(3, "")], NOW);
    assert!(turn.woken_by_foreign && !execution.can_stay_resident());
}

#[test]
fn a_foreign_future_that_ends_between_two_polls_of_a_turn_is_found() {
    // Wakes nobody, and is ready when it is polled again: as a sleep that is over by then.
    let (_, turn) = started(|ctx| async move {
        let mut kept = None;
        std::future::poll_fn(|cx| match kept.replace(cx.waker().clone()) {
            None => std::task::Poll::Pending,
            Some(_) => std::task::Poll::Ready(()),
        })
        .await;
        ctx.schedule_activity("A", "").await
    });
    assert!(turn.woken_by_foreign);
}

#[test]
fn a_member_of_a_join_counts_as_foreign_only_as_long_as_it_waits_for_something_foreign() {
    let (sender, receiver) = tokio::sync::watch::channel(0);
    let (mut execution, turn) = started(move |ctx| {
        let mut receiver = receiver.clone();
        async move {
            let foreign = async {
                receiver.changed().await.ok();
            };
            let race = ctx.select2(ctx.schedule_wait("w"), ctx.join(vec![foreign]));
            race.await;
            // In a set, where the join is not polled each time.
            let mut receiver = receiver.clone();
            let join = ctx.join(vec![async move { drop(receiver.changed().await) }]).map(drop).boxed();
            let steps = ["A", "B"].map(|name| ctx.schedule_activity(name, "").map(drop).boxed());
            let mut set: FuturesUnordered<_> = steps.into_iter().chain([join]).collect();
            while set.next().await.is_some() {}
            ctx.schedule_activity("C", "").await
        }
    });
    assert!(turn.awaits_foreign);
    let turn = execution.turn(vec![], vec![signal("w")], NOW);
    assert!(turn.awaits_foreign);
    let turn = execution.turn(vec![], vec![activity(4, "")], NOW);
    assert!(turn.awaits_foreign, "the join was not polled in this turn");
    sender.send(1).unwrap();
    let turn = execution.turn(vec![], vec![activity(5, "")], NOW);
    assert!(turn.woken_by_foreign && !turn.awaits_foreign);
}

#[test]
fn an_adaptor_that_has_nothing_left_is_not_foreign() {
    let (mut execution, _) = started(|ctx| async move {
        let mut set: FuturesUnordered<_> = (0..3).map(|_| ctx.schedule_activity("A", "")).collect();
        while set.next().await.is_some() {}
        ctx.schedule_wait("w").await;
        drop(set);
        Ok(String::new())
    });
    let turn = execution.turn(vec![], vec![activity(2, ""), activity(3, ""), activity(4, "")], NOW);
    assert!(!turn.awaits_foreign && !turn.woken_by_foreign && execution.can_stay_resident());
}

/// An adaptor with a waker of its own, which polls its future only after that waker was woken.
struct Lazy<F> {
    future: std::pin::Pin<Box<F>>,
    own: Arc<LazyWaker>,
}

struct LazyWaker {
    woken: std::sync::atomic::AtomicBool,
    above: Mutex<Option<std::task::Waker>>,
}

impl std::task::Wake for LazyWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if let Some(above) = self.above.lock().unwrap().take() {
            above.wake();
        }
    }
}

impl<F: Future> Future for Lazy<F> {
    type Output = F::Output;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        *self.own.above.lock().unwrap() = Some(cx.waker().clone());
        if !self.own.woken.swap(false, Ordering::SeqCst) {
            return std::task::Poll::Pending;
        }
        let waker = std::task::Waker::from(self.own.clone());
        self.future.as_mut().poll(&mut std::task::Context::from_waker(&waker))
    }
}

#[test]
fn an_adaptor_that_relies_on_wakers_works_and_is_not_foreign() {
    fn lazy<F: Future>(future: F) -> Lazy<F> {
        let own = LazyWaker { woken: true.into(), above: Mutex::new(None) };
        Lazy { future: Box::pin(future), own: Arc::new(own) }
    }
    let (mut execution, turn) = started(|ctx| async move {
        let inside =
            ctx.join(vec![lazy(ctx.schedule_activity("A", "")), lazy(ctx.schedule_activity("B", ""))]);
        let (outside, inside) = ctx.join2(lazy(ctx.schedule_wait("w")), inside).await;
        Ok(format!("{outside}{inside:?}"))
    });
    assert!(!turn.awaits_foreign && execution.can_stay_resident());
    execution.turn(vec![], vec![activity(3, "b")], NOW);
    execution.turn(vec![], vec![signal("w")], NOW);
    let turn = execution.turn(vec![], vec![activity(2, "a")], NOW);
    assert!(matches!(turn.result, TurnResult::Completed(output) if output == r#"[Ok("a"), Ok("b")]"#));
}

#[test]
fn yielding_once_is_no_wait() {
    let (_, turn) = started(|_| async move {
        let mut yielded = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
        Ok("went on".into())
    });
    assert!(matches!(turn.result, TurnResult::Completed(output) if output == "went on"));
}

// --- the end of an execution

#[test]
fn the_last_events_are_subscriptions_then_the_end_then_activities_in_flight() {
    let (mut execution, _) = started(|ctx| async move {
        let all = (
            ctx.schedule_activity("Done", ""),
            ctx.schedule_activity("InFlight", ""),
            ctx.dequeue_event("q"),
            ctx.schedule_wait("open"),
            ctx.schedule_wait("served"),
            ctx.schedule_sub_orchestration("C", ""),
        );
        ctx.schedule_wait("never").await;
        drop(all);
        Ok(String::new())
    });
    let cancel = WorkItem::CancelInstance { instance: "inst".into(), reason: "stop".into() };
    let turn = execution.turn(vec![], vec![activity(2, ""), signal("served"), cancel], NOW);
    assert!(matches!(turn.result, TurnResult::Cancelled(reason) if reason == "stop"));
    assert_eq!(execution.open_activities(), [3]);
    assert_eq!(execution.open_children().into_values().collect::<Vec<_>>(), ["sub::7"]);
    let events = execution.close(Ending::Completed { output: "x".into() }, NOW);
    assert_eq!(
        kinds(&events),
        [
            "ExternalSubscribedCancelled",
            "ExternalSubscribedCancelled",
            "ExternalSubscribedPersistentCancelled",
            "OrchestrationCompleted",
            "ActivityCancelRequested"
        ]
    );
    let sources: Vec<_> = events.iter().map(|event| event.source_event_id).collect();
    assert_eq!(sources, [Some(5), Some(8), Some(4), None, Some(3)]);
    let reasons: Vec<_> =
        events.iter().map(|event| serde_json::to_value(event).unwrap()["reason"].clone()).collect();
    assert_eq!(reasons[0], "orchestration_terminal");
    assert_eq!(reasons[4], "orchestration_terminal_completed");
    assert_eq!(events[0].event_id, turn.events.last().unwrap().event_id + 1);
}

#[test]
fn status_and_key_count_are_those_that_the_code_sees() {
    let (execution, _) = started(|ctx| async move {
        ctx.set_custom_status("s");
        ctx.set_kv_value("a", "1");
        ctx.set_kv_value("b", "2");
        ctx.clear_kv_value("a");
        Ok(ctx.schedule_wait("w").await)
    });
    assert_eq!((execution.custom_status().as_deref(), execution.kv_len()), (Some("s"), 1));
}

#[test]
fn putting_a_resident_away_cancels_nothing() {
    struct Noise(OrchestrationContext);
    impl Drop for Noise {
        fn drop(&mut self) {
            // Nothing hears even code that asks for a step while it is dropped.
            drop(self.0.schedule_activity("Late", ""));
        }
    }
    let (execution, _) = started(|ctx| async move {
        let _noise = Noise(ctx.clone());
        ctx.schedule_activity("A", "").await
    });
    drop(execution);
}
