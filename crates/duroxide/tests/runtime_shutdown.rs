//! Shutdown: it returns as soon as all work has ended, and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::{ActivityContext, OrchestrationContext, RuntimeOptions};
use runtime_support::faulty::Call;
use runtime_support::{Stage, World, activities, faulty_world, orchestrations};

fn waiting(stage: &Stage) -> duroxide::runtime::registry::ActivityRegistryBuilder {
    let stage = stage.clone();
    activities().register("Wait", move |ctx: ActivityContext, _: String| {
        let stage = stage.clone();
        async move {
            stage.report("running");
            stage.wait().await;
            Ok(format!("attempt {}", ctx.attempt()))
        }
    })
}

fn one() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("One", |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("Wait", "").await
    })
}

#[tokio::test]
async fn an_idle_runtime_stops_at_once_and_lets_go_of_its_store() {
    let world = World::new();
    let runtime = world.start(activities(), one()).await;
    let held = Arc::strong_count(&world.store);
    // No time passes, so the hour is not waited for.
    runtime.shutdown(Some(3_600_000)).await;
    assert!(Arc::strong_count(&world.store) < held);
    assert_eq!(Arc::strong_count(&world.store), 2, "the world and its client");
}

#[tokio::test]
async fn work_in_progress_ends_before_shutdown_returns() {
    let world = World::new();
    let stage = Stage::default();
    let runtime = world.start(waiting(&stage), one()).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    stage.seen("running", 1).await;
    let shutdown = tokio::spawn(runtime.shutdown(Some(60_000)));
    tokio::task::yield_now().await;
    stage.let_go();
    shutdown.await.unwrap();
    // The result is stored; the next turn belongs to the next runtime.
    let next = world.start(waiting(&stage), one()).await;
    assert_eq!(world.output("i").await, "attempt 1");
    assert_eq!(stage.log(), ["running"]);
    next.shutdown(None).await;
}

#[tokio::test]
async fn what_does_not_end_in_time_is_aborted_and_comes_back_when_its_lease_ends() {
    let world = World::new();
    let stage = Stage::default();
    let runtime = world.start(waiting(&stage), one()).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    stage.seen("running", 1).await;
    runtime.shutdown(Some(0)).await;
    assert_eq!(Arc::strong_count(&world.store), 2);
    let next = world.start(waiting(&stage), one()).await;
    world.clock.advance(Duration::from_secs(30));
    stage.seen("running", 2).await;
    stage.let_go();
    assert_eq!(world.output("i").await, "attempt 2");
    next.shutdown(None).await;
}

#[tokio::test]
async fn the_grace_period_is_measured_by_the_clock_of_the_store() {
    let world = World::new();
    let stage = Stage::default();
    let runtime = world.start(waiting(&stage), one()).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    stage.seen("running", 1).await;
    let shutdown = tokio::spawn(runtime.shutdown(None));
    tokio::task::yield_now().await;
    assert!(!shutdown.is_finished());
    world.clock.advance(Duration::from_secs(1));
    shutdown.await.unwrap();
}

#[tokio::test]
async fn a_second_call_with_less_patience_ends_the_first() {
    let world = World::new();
    let stage = Stage::default();
    let runtime = world.start(waiting(&stage), one()).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    stage.seen("running", 1).await;
    let patient = tokio::spawn(runtime.clone().shutdown(Some(3_600_000)));
    tokio::task::yield_now().await;
    runtime.shutdown(Some(0)).await;
    patient.await.unwrap();
    assert_eq!(Arc::strong_count(&world.store), 2);
}

#[tokio::test]
async fn a_shutdown_that_was_dropped_can_be_finished_by_another() {
    let world = World::new();
    let stage = Stage::default();
    let runtime = world.start(waiting(&stage), one()).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    stage.seen("running", 1).await;
    {
        let dropped = runtime.clone().shutdown(Some(3_600_000));
        tokio::pin!(dropped);
        tokio::select! { biased; () = &mut dropped => panic!("still running"), () = tokio::task::yield_now() => {} }
    }
    runtime.shutdown(Some(0)).await;
    assert_eq!(Arc::strong_count(&world.store), 2);
}

#[test]
fn an_abort_works_outside_of_any_executor() {
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let world = World::new();
    let stage = Stage::default();
    let runtime = executor.block_on(async {
        let runtime = world.start(waiting(&stage), one()).await;
        world.client.start_orchestration("i", "One", "").await.unwrap();
        stage.seen("running", 1).await;
        runtime
    });
    // A little executor of our own: park the thread until the future is woken.
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut shutdown = Box::pin(runtime.shutdown(Some(0)));
    while shutdown.as_mut().poll(&mut cx).is_pending() {
        std::thread::park();
    }
    drop(shutdown);
    assert_eq!(Arc::strong_count(&world.store), 2);
}

#[tokio::test]
async fn a_lease_is_renewed_until_the_result_is_stored_also_during_shutdown() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let gate = faulty.hold(Call::AckWork);
    let runtime = world.start(waiting(&stage), one()).await;
    world.client.start_orchestration("i", "One", "").await.unwrap();
    stage.seen("running", 1).await;
    stage.let_go();
    while faulty.count(Call::AckWork) == 0 {
        tokio::task::yield_now().await;
    }
    let shutdown = tokio::spawn(runtime.shutdown(Some(3_600_000)));
    while faulty.count(Call::RenewWork) < 3 {
        world.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    shutdown.await.unwrap();
    let next = world.start(waiting(&stage), one()).await;
    assert_eq!(world.output("i").await, "attempt 1");
    next.shutdown(None).await;
}

#[tokio::test]
async fn what_was_claimed_ahead_is_given_back_without_counting_an_attempt() {
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let quick = |stage: &Stage| {
        waiting(stage)
            .register("Quick", |ctx: ActivityContext, _: String| async move { Ok(ctx.attempt().to_string()) })
    };
    let many = || {
        orchestrations().register("Many", |ctx: OrchestrationContext, _: String| async move {
            // Quick ones first, so that the workers find it worth while to claim ahead.
            for _ in 0..5 {
                ctx.schedule_activity("Quick", "").await?;
            }
            let blocker = ctx.schedule_activity("Wait", "");
            let rest = (0..10).map(|_| ctx.schedule_activity("Quick", "")).collect::<Vec<_>>();
            let (_, rest) = ctx.join2(blocker, ctx.join(rest)).await;
            Ok(rest.into_iter().map(Result::unwrap).collect::<String>())
        })
    };
    let options = RuntimeOptions { worker_concurrency: 1, ..Default::default() };
    let runtime = world.start_with(quick(&stage), many(), options.clone()).await;
    world.client.start_orchestration("i", "Many", "").await.unwrap();
    stage.seen("running", 1).await;
    let shutdown = tokio::spawn(runtime.shutdown(Some(60_000)));
    while faulty.abandoned_work().len() < 10 {
        tokio::task::yield_now().await;
    }
    assert!(faulty.abandoned_work().iter().all(|abandon| *abandon == (None, true)));
    stage.let_go();
    shutdown.await.unwrap();
    let next = world.start_with(quick(&stage), many(), options).await;
    assert_eq!(world.output("i").await, "1111111111");
    next.shutdown(None).await;
}

/// Runs a shutdown while user code blocks every thread of the executor, and tells whether it came back.
fn shutdown_of_a_blocked_executor(orchestration: &'static str) -> bool {
    let executor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // By the machine's clock: the test could not move another while the threads are blocked.
    let store: Arc<dyn duroxide::providers::Provider> =
        Arc::new(duroxide::providers::memory::MemoryProvider::new());
    let world = World::on(store, Arc::new(duroxide::providers::ManualClock::default()));
    let (blocked, is_blocked) = std::sync::mpsc::channel::<()>();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let block = move || {
        blocked.send(()).unwrap();
        // Ends when the test drops the other end.
        let _ = released.lock().unwrap().recv();
    };
    let (in_turn, in_activity) = (block.clone(), block);
    let orchestrations = one().register("Blocks", move |_: OrchestrationContext, _: String| {
        let block = in_turn.clone();
        async move {
            block();
            Ok(String::new())
        }
    });
    let activities = activities().register("Wait", move |_: ActivityContext, _: String| {
        let block = in_activity.clone();
        async move {
            block();
            Ok(String::new())
        }
    });
    let runtime = executor.block_on(async {
        let runtime = world.start(activities, orchestrations).await;
        world.client.start_orchestration("i", orchestration, "").await.unwrap();
        runtime
    });
    is_blocked.recv().unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let handle = executor.handle().clone();
    let caller = std::thread::spawn(move || {
        handle.block_on(runtime.shutdown(Some(100)));
        done.send(()).unwrap();
    });
    // Far more than it may take; the test waits this long only if it fails.
    let came_back = is_done.recv_timeout(Duration::from_secs(20)).is_ok();
    drop(release);
    caller.join().unwrap();
    came_back
}

#[test]
fn shutdown_returns_although_an_activity_blocks_every_thread_of_the_executor() {
    assert!(shutdown_of_a_blocked_executor("One"));
}

#[test]
fn shutdown_returns_although_an_orchestration_blocks_every_thread_of_the_executor() {
    assert!(shutdown_of_a_blocked_executor("Blocks"));
}
