//! Order among instances: what waits in a queue is not held up for long by the short path, whose turns go past the queue.
//!
//! The clock of the executor stands still as long as anybody is busy, and then moves on to the next moment for which somebody
//! waits. So what it shows is how long the runtime has waited, and nothing of how fast the machine is.

#![cfg(feature = "test-hooks")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duroxide::providers::{LONGEST_OVERTAKING, WorkItem};
use duroxide::{
    ActivityContext, EventKind, INITIAL_EXECUTION_ID, OrchestrationContext, OrchestrationRegistryBuilder,
    RuntimeOptions,
};
use runtime_support::faulty::{Call, Faulty};
use runtime_support::{World, activities, orchestrations};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const TIMERS: usize = 200;
/// As much as the clock of the executor is coarse.
const TICK: Duration = Duration::from_millis(2);

/// A world with the short path, whose store can be held up.
fn world() -> (World, Arc<Faulty>) {
    let world = World::new();
    let faulty = Faulty::whole(world.store.clone());
    (World::on(faulty.clone(), world.clock), faulty)
}

fn code() -> OrchestrationRegistryBuilder {
    orchestrations()
        .register("Sleep", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_timer(SECOND).await;
            Ok(String::new())
        })
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register(
            "Ask",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
}

/// Past the client, so that the runtime learns of it by the queue alone.
async fn queue(world: &World, message: WorkItem) {
    world.store.enqueue_for_orchestrator(message, None).await.unwrap();
}

fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Echo".into(),
        input: instance.into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: INITIAL_EXECUTION_ID,
    }
}

fn signal(instance: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "go".into(), data: instance.into() }
}

/// Starts instances that sleep until the same moment, and waits until all of them do.
async fn sleepers(world: &World) {
    for n in 0..TIMERS {
        world.client.start_orchestration(format!("sleeper{n}"), "Sleep", "").await.unwrap();
    }
    for n in 0..TIMERS {
        world.recorded(&format!("sleeper{n}"), |kind| matches!(kind, EventKind::TimerCreated { .. })).await;
    }
}

// semantics: TIM-12
#[tokio::test(start_paused = true)]
async fn timers_that_the_store_is_slow_to_store_keep_others_waiting_for_a_moment() {
    let (world, faulty) = world();
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("asking", "Ask", "").await.unwrap();
    world.waits_for("asking", "go").await;
    sleepers(&world).await;
    let gate = faulty.hold(Call::Step);
    // The dispatcher is to find both at once: messages that came before, and timers.
    queue(&world, start("started")).await;
    queue(&world, signal("asking")).await;
    world.clock.advance(SECOND);
    let due = Instant::now();
    for instance in ["started", "asking"] {
        assert_eq!(world.output(instance).await, instance);
        let waited = due.elapsed();
        assert!(waited <= LONGEST_OVERTAKING + TICK, "{instance} waited for {waited:?}");
    }
    faulty.release(Call::Step);
    gate.add_permits(TIMERS * 2);
    for n in 0..TIMERS {
        world.output(&format!("sleeper{n}")).await;
    }
    runtime.shutdown(None).await;
}

// semantics: TIM-11, TIM-12
#[tokio::test(start_paused = true)]
async fn messages_that_come_while_timers_are_being_stored_wait_for_a_moment() {
    let (world, faulty) = world();
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("asking", "Ask", "").await.unwrap();
    world.waits_for("asking", "go").await;
    sleepers(&world).await;
    let gate = faulty.hold(Call::Step);
    world.clock.advance(SECOND);
    // Their turns are with the store.
    while faulty.count(Call::Step) < TIMERS {
        tokio::task::yield_now().await;
    }
    let came = Instant::now();
    queue(&world, start("started")).await;
    queue(&world, signal("asking")).await;
    for instance in ["started", "asking"] {
        assert_eq!(world.output(instance).await, instance);
        let waited = came.elapsed();
        assert!(waited <= LONGEST_OVERTAKING + TICK, "{instance} waited for {waited:?}");
    }
    faulty.release(Call::Step);
    gate.add_permits(TIMERS * 2);
    for n in 0..TIMERS {
        world.output(&format!("sleeper{n}")).await;
    }
    runtime.shutdown(None).await;
}

// semantics: TURN-13
#[tokio::test(start_paused = true)]
async fn chains_on_the_short_path_keep_nobody_waiting() {
    const CHAINS: usize = 10;
    const STEPS: usize = 200;
    let (world, faulty) = world();
    let turns = Arc::new(AtomicUsize::new(0));
    let (counted, seen, turns_of_chains) = (turns.clone(), turns.clone(), turns.clone());
    let step = activities().register("Step", |_: ActivityContext, _: String| async { Ok(String::new()) });
    let code = orchestrations()
        .register("Chain", move |ctx: OrchestrationContext, _: String| {
            let turns = counted.clone();
            async move {
                for _ in 0..STEPS {
                    ctx.schedule_activity("Step", "").await?;
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                Ok(String::new())
            }
        })
        .register("Echo", move |_: OrchestrationContext, _: String| {
            let seen = seen.load(Ordering::Relaxed).to_string();
            async move { Ok(seen) }
        })
        .register("Ask", move |ctx: OrchestrationContext, _: String| {
            let turns = turns.clone();
            async move {
                ctx.schedule_wait("go").await;
                Ok(turns.load(Ordering::Relaxed).to_string())
            }
        });
    // One slot for all: whoever goes first keeps the others waiting.
    let options =
        RuntimeOptions { orchestration_concurrency: 1, worker_concurrency: CHAINS, ..Default::default() };
    let runtime = world.start_with(step, code, options).await;
    world.client.start_orchestration("asking", "Ask", "").await.unwrap();
    world.waits_for("asking", "go").await;
    for n in 0..CHAINS {
        world.client.start_orchestration(format!("chain{n}"), "Chain", "").await.unwrap();
    }
    while faulty.count(Call::Step) < CHAINS * STEPS / 10 {
        tokio::task::yield_now().await;
    }
    let before = turns_of_chains.load(Ordering::Relaxed);
    queue(&world, start("started")).await;
    queue(&world, signal("asking")).await;
    for instance in ["started", "asking"] {
        let turns: usize = world.output(instance).await.parse().unwrap();
        let ahead = turns.saturating_sub(before);
        println!("{ahead} turns of chains before that of {instance}");
        assert!(ahead <= CHAINS * 4, "{ahead} turns of {CHAINS} chains went ahead of {instance}");
    }
    for n in 0..CHAINS {
        world.output(&format!("chain{n}")).await;
    }
    runtime.shutdown(None).await;
}
