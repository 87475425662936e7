//! Timers on the short path: the runtime that set a timer takes its turn when it is due, in one commit, and whatever comes in
//! between, the instance sees the same as on the long path.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;
use crate::sqlite_store;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, Either2, Event, EventKind, OrchestrationContext, OrchestrationRegistryBuilder,
};
use runtime_support::{World, activities, orchestrations};
use sqlite_store::{StoreFile, soon};

const SECOND: Duration = Duration::from_secs(1);

async fn site() -> (StoreFile, Arc<SqliteProvider>, World) {
    let file = StoreFile::new();
    let store = file.open().await;
    let world = World::on(store.clone(), file.clock.clone());
    (file, store, world)
}

/// Sleeps for a second as often as its input says.
fn sleepers() -> OrchestrationRegistryBuilder {
    orchestrations().register("Sleep", |ctx: OrchestrationContext, times: String| async move {
        for _ in 0..times.parse::<usize>().unwrap() {
            ctx.schedule_timer(SECOND).await;
        }
        Ok(times)
    })
}

fn count(history: &[Event], wanted: fn(&EventKind) -> bool) -> usize {
    history.iter().filter(|event| wanted(&event.kind)).count()
}

fn is_fired(kind: &EventKind) -> bool {
    matches!(kind, EventKind::TimerFired { .. })
}

/// Waits until an instance has so many events of a kind.
async fn has(world: &World, instance: &str, number: usize, wanted: fn(&EventKind) -> bool) {
    while count(&world.history(instance).await, wanted) < number {
        tokio::task::yield_now().await;
    }
}

/// Waits until an instance has set its `number`th timer.
async fn has_set(world: &World, instance: &str, number: usize) {
    has(world, instance, number, |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
}

/// Waits until an instance waits for a signal.
async fn waits(world: &World, instance: &str) {
    has(world, instance, 1, |kind| matches!(kind, EventKind::ExternalSubscribed { .. })).await;
}

// One thread, so that the runtime has seen each commit before the test moves the clock.
#[tokio::test]
async fn a_timer_usually_costs_one_commit() {
    const TIMES: usize = 100;
    let (_file, store, world) = site().await;
    let runtime = world.start(activities(), sleepers()).await;
    world.client.start_orchestration("i", "Sleep", TIMES.to_string()).await.unwrap();
    has_set(&world, "i", 1).await;
    let before = store.work_done();
    for number in 1..=TIMES {
        soon(has_set(&world, "i", number)).await;
        // The store answers in order. When the first of these calls is answered, the runtime has heard of its commit, and the
        // dispatcher has been woken; when the last one is, the dispatcher has looked, and waits.
        for _ in 0..3 {
            let nobody: [&str; 1] = ["nobody"];
            assert_eq!(store.renew_session_lock(&nobody, SECOND, SECOND).await.unwrap(), 0);
        }
        world.clock.advance(SECOND);
    }
    soon(world.output("i")).await;
    let done = store.work_done() - before;
    runtime.shutdown(None).await;
    let commits = (done.commits - done.settlements) as usize;
    println!("a timer: {} rows", done.rows as f64 / TIMES as f64);
    // On the long path each takes two. A claim that is under way when the clock moves, and sees the timer first, is rare.
    assert!(commits < TIMES + TIMES / 2, "{done:?}");
    assert_eq!(count(&world.history("i").await, is_fired), TIMES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_that_are_due_together_are_one_turn_in_their_order() {
    let (_file, _store, world) = site().await;
    let code = orchestrations().register("Many", |ctx: OrchestrationContext, _: String| async move {
        let timers = [3, 1, 2, 1].map(|seconds| ctx.schedule_timer(SECOND * seconds));
        ctx.join(timers.into()).await;
        Ok(String::new())
    });
    let runtime = world.start(activities(), code).await;
    for n in 0..20 {
        world.client.start_orchestration(format!("i{n}"), "Many", "").await.unwrap();
    }
    for n in 0..20 {
        soon(has_set(&world, &format!("i{n}"), 4)).await;
    }
    world.clock.advance(SECOND * 5);
    for n in 0..20 {
        let instance = format!("i{n}");
        soon(world.output(&instance)).await;
        let history = world.history(&instance).await;
        let order: Vec<u64> = history
            .iter()
            .filter(|event| is_fired(&event.kind))
            .filter_map(|event| event.source_event_id)
            .collect();
        assert_eq!(order, [3, 5, 4, 2], "{instance}");
    }
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_was_given_up_changes_nothing_when_it_is_due() {
    let (_file, _store, world) = site().await;
    let quick = activities().register("Quick", |_: ActivityContext, _: String| async { Ok("quick".into()) });
    let code = orchestrations().register("Race", |ctx: OrchestrationContext, _: String| async move {
        let race = ctx.select2(ctx.schedule_timer(SECOND), ctx.schedule_activity("Quick", ""));
        let Either2::Second(winner) = race.await else { return Err("the timer won".to_string()) };
        let signal = ctx.schedule_wait("go").await;
        Ok(winner? + &signal + &ctx.schedule_activity("Quick", "").await?)
    });
    let runtime = world.start(quick, code).await;
    for n in 0..20 {
        world.client.start_orchestration(format!("i{n}"), "Race", "").await.unwrap();
    }
    for n in 0..20 {
        soon(waits(&world, &format!("i{n}"))).await;
    }
    world.clock.advance(SECOND * 2);
    soon(world.drained()).await;
    for n in 0..20 {
        let instance = format!("i{n}");
        world.client.raise_event(&instance, "go", " and ").await.unwrap();
        assert_eq!(soon(world.output(&instance)).await, "quick and quick");
        let history = world.history(&instance).await;
        assert_eq!(count(&history, is_fired), 1, "the history says that it came: {instance}");
        let ended = |kind: &EventKind| matches!(kind, EventKind::ActivityCompleted { .. });
        assert_eq!(count(&history, ended), 2, "{instance}");
    }
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_of_an_execution_that_continued_as_new_is_gone() {
    let (_file, _store, world) = site().await;
    let code = orchestrations().register("Again", |ctx: OrchestrationContext, round: String| async move {
        let timer = ctx.schedule_timer(SECOND);
        if round == "first" {
            // In the same turn as the timer, or in a later one.
            let signal = ctx.schedule_wait("go");
            let _ = ctx.select2(timer, signal).await;
            return ctx.continue_as_new("second").await;
        }
        timer.await;
        Ok(round)
    });
    let runtime = world.start(activities(), code).await;
    for n in 0..20 {
        let instance = format!("i{n}");
        world.client.start_orchestration(&instance, "Again", "first").await.unwrap();
        soon(waits(&world, &instance)).await;
        world.client.raise_event(&instance, "go", "").await.unwrap();
    }
    let admin = world.store.as_management_capability().unwrap();
    for n in 0..20 {
        let instance = format!("i{n}");
        soon(async {
            while admin.list_executions(&instance).await.unwrap().len() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        soon(has_set(&world, &instance, 1)).await;
    }
    world.clock.advance(SECOND);
    for n in 0..20 {
        let instance = format!("i{n}");
        assert_eq!(soon(world.output(&instance)).await, "second");
        assert_eq!(count(&world.history(&instance).await, is_fired), 1);
    }
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_that_is_set_back_delays_a_timer_and_loses_none() {
    let (_file, _store, world) = site().await;
    let runtime = world.start(activities(), sleepers()).await;
    world.client.start_orchestration("i", "Sleep", "1").await.unwrap();
    soon(has_set(&world, "i", 1)).await;
    let due = world.now_ms() + 1_000;
    world.clock.set_wall_ms(due - 3_000);
    world.clock.advance(SECOND * 2);
    // Another instance takes a turn meanwhile, so the dispatcher has looked.
    world.client.start_orchestration("j", "Sleep", "0").await.unwrap();
    soon(world.output("j")).await;
    assert_eq!(count(&world.history("i").await, is_fired), 0);
    // Whoever waits looks at the wall again after half a minute at the latest.
    world.clock.advance(SECOND * 60);
    soon(world.output("i")).await;
    let history = world.history("i").await;
    assert!(history.iter().any(|event| is_fired(&event.kind) && event.timestamp_ms >= due));
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_slow_turn_of_a_timer_keeps_no_other_instance_waiting() {
    let (_file, _store, world) = site().await;
    let (release, released) = mpsc::channel::<()>();
    let (began, has_begun) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(Some((began, released))));
    let code = sleepers().register("Slow", move |ctx: OrchestrationContext, _: String| {
        let gate = gate.clone();
        async move {
            ctx.schedule_timer(SECOND).await;
            // The first time, this thread is busy until the test lets it go.
            let first = gate.lock().unwrap().take();
            if let Some((began, released)) = first {
                began.send(()).unwrap();
                let _ = released.recv();
            }
            Ok("done".to_string())
        }
    });
    let runtime = world.start(activities(), code).await;
    world.client.start_orchestration("slow", "Slow", "").await.unwrap();
    soon(has_set(&world, "slow", 1)).await;
    world.clock.advance(SECOND);
    tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
    for n in 0..5 {
        let instance = format!("i{n}");
        world.client.start_orchestration(&instance, "Sleep", "1").await.unwrap();
        soon(has_set(&world, &instance, 1)).await;
        world.clock.advance(SECOND);
        soon(world.output(&instance)).await;
    }
    drop(release);
    assert_eq!(soon(world.output("slow")).await, "done");
    runtime.shutdown(None).await;
}

/// Runs sleepers on several runtimes, and looks at what they leave.
async fn shared(world: &World, runtimes: Vec<Arc<Runtime>>) {
    const INSTANCES: usize = 40;
    const TIMES: usize = 5;
    for n in 0..INSTANCES {
        world.client.start_orchestration(format!("i{n}"), "Sleep", TIMES.to_string()).await.unwrap();
    }
    for number in 1..=TIMES {
        for n in 0..INSTANCES {
            soon(has_set(world, &format!("i{n}"), number)).await;
        }
        world.clock.advance(SECOND);
    }
    for n in 0..INSTANCES {
        let instance = format!("i{n}");
        soon(world.output(&instance)).await;
        let history = world.history(&instance).await;
        assert_eq!(count(&history, is_fired), TIMES, "{instance}: {history:?}");
        let ids: Vec<u64> = history.iter().map(|event| event.event_id).collect();
        assert_eq!(ids, (1..=history.len() as u64).collect::<Vec<_>>(), "{instance}");
    }
    for runtime in runtimes {
        runtime.shutdown(None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_that_two_processes_know_fire_once() {
    let (file, _store, world) = site().await;
    let other = World::on(file.open().await, file.clock.clone());
    let runtimes =
        vec![world.start(activities(), sleepers()).await, other.start(activities(), sleepers()).await];
    shared(&world, runtimes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_that_two_runtimes_of_a_store_in_memory_know_fire_once() {
    let world = World::new();
    let runtimes =
        vec![world.start(activities(), sleepers()).await, world.start(activities(), sleepers()).await];
    shared(&world, runtimes).await;
}
