//! Timers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::providers::TagFilter;
use duroxide::{Either2, Event, EventKind, OrchestrationContext, RuntimeOptions};
use runtime_support::{World, activities, echo, kinds, orchestrations};

fn fired(history: &[Event]) -> Vec<(u64, u64)> {
    let fired = history.iter().filter_map(|event| match event.kind {
        EventKind::TimerFired { fire_at_ms } => Some((event.source_event_id?, fire_at_ms)),
        _ => None,
    });
    fired.collect()
}

fn one_timer() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Timer", |ctx: OrchestrationContext, ms: String| async move {
        ctx.schedule_timer(Duration::from_millis(ms.parse().unwrap())).await;
        Ok("done".to_string())
    })
}

// semantics: TIM-1
#[tokio::test]
async fn a_timer_fires_at_its_recorded_time_and_not_a_millisecond_before() {
    let world = World::new();
    let begun = world.now_ms();
    let runtime = world.start(activities(), one_timer()).await;
    world.client.start_orchestration("i", "Timer", "1500").await.unwrap();
    let created = world.recorded("i", |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
    assert!(matches!(created.kind, EventKind::TimerCreated { fire_at_ms } if fire_at_ms == begun + 1500));
    world.clock.advance(Duration::from_millis(1499));
    // The queue holds the timer's message, and no worker can take it yet.
    let lease = Duration::from_secs(1);
    let early = world.store.fetch_orchestration_item(lease, Duration::ZERO, None).await.unwrap();
    assert!(early.is_none());
    assert_eq!(world.history("i").await.len(), 2);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(world.output("i").await, "done");
    let history = world.history("i").await;
    assert_eq!(fired(&history), [(2, begun + 1500)]);
    assert!(history[2].timestamp_ms >= begun + 1500);
    runtime.shutdown(None).await;
}

// semantics: TIM-2
#[tokio::test]
async fn a_timer_runs_from_its_own_call_and_not_from_an_earlier_event() {
    let world = World::new();
    let code = orchestrations().register("Second", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_timer(Duration::from_secs(10)).await;
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        let work = ctx.schedule_activity("Echo", "in time");
        match ctx.select2(timer, work).await {
            Either2::First(()) => Err("the timer fired early".to_string()),
            Either2::Second(result) => result,
        }
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("i", "Second", "").await.unwrap();
    world.pass("i", Duration::from_secs(10)).await;
    assert_eq!(world.output("i").await, "in time");
    runtime.shutdown(None).await;
}

// semantics: TIM-4
#[tokio::test]
async fn timers_fire_in_the_order_of_their_times_and_equal_ones_in_the_order_of_the_calls() {
    let world = World::new();
    let code = orchestrations().register("Many", |ctx: OrchestrationContext, _: String| async move {
        let timers = [30, 10, 20, 10].map(|s| ctx.schedule_timer(Duration::from_secs(s)));
        ctx.join(timers.into()).await;
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Many", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
    runtime.shutdown(None).await;
    // All are due when the next runtime starts, and come in one batch.
    world.clock.advance(Duration::from_secs(60));
    let code = orchestrations().register("Many", |ctx: OrchestrationContext, _: String| async move {
        let timers = [30, 10, 20, 10].map(|s| ctx.schedule_timer(Duration::from_secs(s)));
        ctx.join(timers.into()).await;
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    world.output("i").await;
    let order: Vec<u64> = fired(&world.history("i").await).into_iter().map(|(id, _)| id).collect();
    assert_eq!(order, [3, 5, 4, 2]);
    runtime.shutdown(None).await;
}

// semantics: TIM-4
#[tokio::test]
async fn timers_that_come_due_one_by_one_fire_one_by_one() {
    let world = World::new();
    let code = orchestrations().register("Many", |ctx: OrchestrationContext, _: String| async move {
        let timers = [30, 10, 20].map(|s| ctx.schedule_timer(Duration::from_secs(s)));
        ctx.join(timers.into()).await;
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("i", "Many", "").await.unwrap();
    world.recorded("i", |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
    for id in [3, 4, 2] {
        world.clock.advance(Duration::from_secs(10));
        loop {
            if fired(&world.history("i").await).last().is_some_and(|last| last.0 == id) {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    world.output("i").await;
    runtime.shutdown(None).await;
}

// semantics: TIM-3
#[tokio::test]
async fn a_timer_goes_on_over_a_restart_before_and_after_its_time() {
    for (while_down, after) in [(Duration::from_secs(4), 6), (Duration::from_secs(15), 0)] {
        let world = World::new();
        let begun = world.now_ms();
        let runtime = world.start(activities(), one_timer()).await;
        world.client.start_orchestration("i", "Timer", "10000").await.unwrap();
        world.recorded("i", |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
        runtime.shutdown(None).await;
        world.clock.advance(while_down);
        let runtime = world.start(activities(), one_timer()).await;
        world.clock.advance(Duration::from_secs(after));
        assert_eq!(world.output("i").await, "done");
        assert_eq!(fired(&world.history("i").await), [(2, begun + 10_000)], "once, at the recorded time");
        runtime.shutdown(None).await;
    }
}

// semantics: RACE-2
#[tokio::test]
async fn the_first_of_signal_and_timer_wins_and_only_its_row_is_there() {
    let world = World::new();
    let code = orchestrations().register("Race", |ctx: OrchestrationContext, _: String| async move {
        let timer = ctx.schedule_timer(Duration::from_millis(100));
        let signal = ctx.schedule_wait("Evt");
        match ctx.select2(timer, signal).await {
            Either2::First(()) => Ok("timer".to_string()),
            Either2::Second(data) => Ok(data),
        }
    });
    let runtime = world.start(activities(), code).await;
    for (instance, is_signalled) in [("signalled", true), ("late", false)] {
        world.client.start_orchestration(instance, "Race", "").await.unwrap();
        world.waits_for(instance, "Evt").await;
        if !is_signalled {
            world.clock.advance(Duration::from_millis(100));
            world.end(instance).await;
        }
        world.client.raise_event(instance, "Evt", "ok").await.unwrap();
        world.end(instance).await;
    }
    assert_eq!((world.output("signalled").await, world.output("late").await), ("ok".into(), "timer".into()));
    world.drained().await;
    runtime.shutdown(None).await;
    assert_eq!(kinds(&world.history("signalled").await)[3..], ["ExternalEvent", "OrchestrationCompleted"]);
    assert_eq!(
        kinds(&world.history("late").await)[3..],
        ["TimerFired", "ExternalSubscribedCancelled", "OrchestrationCompleted"]
    );
}

// semantics: TIM-7
#[tokio::test]
async fn a_losing_timer_leaves_no_row_and_fires_unobserved() {
    let world = World::new();
    let code = orchestrations().register("Race", |ctx: OrchestrationContext, _: String| async move {
        let timer = ctx.schedule_timer(Duration::from_secs(10));
        let work = ctx.schedule_activity("Echo", "quick");
        ctx.select2(timer, work).await;
        Ok(ctx.schedule_wait("end").await)
    });
    let runtime = world.start(echo(), code).await;
    world.client.start_orchestration("i", "Race", "").await.unwrap();
    world.waits_for("i", "end").await;
    assert!(!kinds(&world.history("i").await).iter().any(|kind| kind.contains("Cancel")));
    world.clock.advance(Duration::from_secs(10));
    world.recorded("i", |kind| matches!(kind, EventKind::TimerFired { .. })).await;
    world.client.raise_event("i", "end", "fine").await.unwrap();
    assert_eq!(world.output("i").await, "fine");
    runtime.shutdown(None).await;
}

// semantics: TIM-5
#[tokio::test]
async fn no_slot_is_held_while_timers_wait() {
    let world = World::new();
    let options =
        RuntimeOptions { orchestration_concurrency: 1, worker_concurrency: 1, ..Default::default() };
    let code = one_timer().register("Forever", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_timer(Duration::MAX).await;
        Ok(String::new())
    });
    let runtime = world.start_with(activities(), code, options).await;
    for number in 0..10 {
        world.client.start_orchestration(format!("forever-{number}"), "Forever", "").await.unwrap();
    }
    world.client.start_orchestration("i", "Timer", "1").await.unwrap();
    world.pass("i", Duration::from_millis(1)).await;
    assert_eq!(world.output("i").await, "done");
    assert_eq!(world.history("forever-9").await.len(), 2);
    runtime.shutdown(None).await;
    let work = world
        .store
        .fetch_work_item(Duration::from_secs(1), Duration::ZERO, None, &TagFilter::Any)
        .await
        .unwrap();
    assert!(work.is_none(), "timers are no activities");
}
