//! Runtimes on the short path: what an execution that continues as new, a child and a timer cost, counted by the functions that
//! the server ran.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::LONGEST_OVERTAKING;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
};
use duroxide_pg::PostgresProvider;
use support::world::World;

const FAILURE_BOUND: Duration = Duration::from_secs(60);

async fn start(store: Arc<PostgresProvider>) -> Arc<Runtime> {
    let activities = ActivityRegistry::builder()
        .register("Step", async |_: ActivityContext, input: String| Ok(input))
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Loop", async |ctx: OrchestrationContext, left: String| {
            ctx.schedule_activity("Step", "").await?;
            match left.parse::<usize>().unwrap() {
                0 => Ok("done".to_string()),
                left => ctx.continue_as_new((left - 1).to_string()).await,
            }
        })
        .register("Parent", async |ctx: OrchestrationContext, children: String| {
            for child in 0..children.parse::<usize>().unwrap() {
                let said = ctx.schedule_sub_orchestration("Child", child.to_string()).await?;
                assert_eq!(said, child.to_string());
            }
            Ok("done".to_string())
        })
        .register("Child", async |ctx: OrchestrationContext, input: String| {
            ctx.schedule_activity("Step", input).await
        })
        .register("Sleep", async |ctx: OrchestrationContext, times: String| {
            for _ in 0..times.parse::<usize>().unwrap() {
                ctx.schedule_timer(Duration::from_millis(20)).await;
            }
            Ok("done".to_string())
        })
        .register("SleepLong", async |ctx: OrchestrationContext, _: String| {
            ctx.schedule_timer(Duration::from_secs(3_600)).await;
            Ok("done".to_string())
        })
        .build();
    Runtime::start_with_store(store, activities, orchestrations).await
}

const COMMITS: &str = "SELECT coalesce(sum(batch), 0)::bigint FROM committers";

/// The calls that the server ran.
struct Calls {
    /// Turns under a lease, a batch of them.
    leased: i64,
    /// Turns with their causes, a batch or a round of them.
    steps: i64,
    /// Of these, starts and ends with a function of their own.
    starts: i64,
    ends: i64,
    /// Transactions that stored anything.
    commits: i64,
}

/// Runs one instance to its end, on a store of its own.
async fn run(world: &World, orchestration: &str, input: usize) -> Calls {
    let store = world.sound_store().await;
    let runtime = start(store.clone()).await;
    let client = Client::new(store.clone());
    client.start_orchestration("i", orchestration, input.to_string()).await.unwrap();
    let status = client.wait_for_orchestration("i", FAILURE_BOUND).await.unwrap();
    assert!(
        matches!(&status, OrchestrationStatus::Completed { output, .. } if output == "done"),
        "{status:?}"
    );
    let commits = world.number(COMMITS).await;
    runtime.shutdown(None).await;
    drop((client, store));
    Calls { commits, ..calls(world).await }
}

/// Counts the calls, when nobody works with the store any more.
async fn calls(world: &World) -> Calls {
    let commits = world.number(COMMITS).await;
    // A session reports what it has called when it ends.
    world.until("NOT EXISTS (SELECT 1 FROM lease_holders)").await;
    let others = "backend_type = 'client backend' AND pid <> pg_backend_pid() AND query ~ 'store_|ack_'";
    world.until(&format!("NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE {others})")).await;
    let calls = async |name: &str| {
        let sql = format!(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions WHERE funcname = '{name}'"
        );
        world.number(&sql).await
    };
    let (starts, middles) = (calls("store_start_1").await, calls("store_step_1").await);
    let (ends, others) = (calls("store_end_1").await, calls("store_steps_1").await);
    Calls {
        leased: calls("ack_turns_3").await,
        steps: starts + middles + ends + others,
        starts,
        ends,
        commits,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_continues_as_new_costs_one_commit() {
    const EXECUTIONS: usize = 40;
    let world = World::new(&["track_functions = pl"]).await;
    let Calls { leased, steps, commits, .. } = run(&world, "Loop", EXECUTIONS - 1).await;
    println!("{EXECUTIONS} executions of one step: {commits} commits, {steps} steps, {leased} leased");
    // Its end and the next one's first turn are two calls of one transaction.
    assert!(commits <= EXECUTIONS as i64 * 5 / 4 + 8, "{EXECUTIONS} executions took {commits} commits");
    assert!(leased <= EXECUTIONS as i64 / 4 + 4, "{leased} turns took the long way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_one_step_costs_one_commit() {
    const CHILDREN: usize = 40;
    let world = World::new(&["track_functions = pl"]).await;
    let Calls { leased, steps, commits, .. } = run(&world, "Parent", CHILDREN).await;
    println!("{CHILDREN} children of one step: {commits} commits, {steps} steps, {leased} leased");
    assert!(commits <= CHILDREN as i64 * 5 / 4 + 8, "{CHILDREN} children took {commits} commits");
    assert!(leased <= CHILDREN as i64 / 4 + 4, "{leased} turns took the long way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_is_stored_with_its_turn() {
    const TIMES: usize = 40;
    let world = World::new(&["track_functions = pl"]).await;
    let Calls { leased, steps, commits, .. } = run(&world, "Sleep", TIMES).await;
    println!("{TIMES} timers: {commits} commits, {steps} steps, {leased} leased");
    assert!(steps >= TIMES as i64 / 2, "{steps} steps for {TIMES} timers, and {leased} leased turns");
    let store = world.sound_store().await;
    let history = Client::new(store).read_execution_history("i", 1).await.unwrap();
    let fired = history.iter().filter(|event| matches!(event.kind, EventKind::TimerFired { .. }));
    assert_eq!(fired.count(), TIMES);
}

// semantics: TIM-11
#[tokio::test(flavor = "multi_thread")]
async fn others_see_a_moment_later_that_a_timer_is_due() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let runtime = start(store.clone()).await;
    let client = Client::new(store);
    // On a busy machine a start may go through the queue, and its timer with it.
    for number in 0..20 {
        client.start_orchestration(&format!("i-{number}"), "SleepLong", "").await.unwrap();
    }
    world.until("(SELECT count(*) FROM instance_schedule WHERE lock_token IS NULL) = 20").await;
    let head_start = "SELECT max(s.due_at - q.visible_at)
        FROM instance_schedule s JOIN orchestrator_queue q USING (instance_id)";
    // A process that stores more steps at once has more of a head start.
    assert_eq!(world.number(head_start).await, 22);
    // However many they are, it is a moment.
    let started = (0..400).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            client.start_orchestration(&format!("many-{number}"), "SleepLong", "").await.unwrap();
        })
    });
    for started in started.collect::<Vec<_>>() {
        started.await.unwrap();
    }
    world.until("(SELECT count(*) FROM instance_schedule WHERE lock_token IS NULL) = 420").await;
    let longest = i64::try_from(LONGEST_OVERTAKING.as_millis()).unwrap();
    let head_start = world.number(head_start).await;
    assert!(head_start <= longest, "a head start of {head_start} ms");
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_one_activity_costs_a_commit_for_its_start_and_one_for_its_end() {
    const INSTANCES: i64 = 20;
    let world = World::new(&["track_functions = pl"]).await;
    let store = world.sound_store().await;
    let runtime = start(store.clone()).await;
    let client = Client::new(store.clone());
    for number in 0..INSTANCES {
        let instance = format!("i-{number}");
        client.start_orchestration(&instance, "Loop", "0").await.unwrap();
        client.wait_for_orchestration(&instance, FAILURE_BOUND).await.unwrap();
    }
    runtime.shutdown(None).await;
    drop((client, store));
    let Calls { leased, steps, starts, ends, commits } = calls(&world).await;
    println!(
        "{INSTANCES} instances: {commits} commits, {starts} starts, {ends} ends, {steps} steps, {leased} leased"
    );
    // On a busy machine a start may go through the queue.
    assert!(starts >= INSTANCES / 2 && ends >= INSTANCES / 2, "{starts} starts and {ends} ends");
    let listed =
        "SELECT count(*) FROM instances WHERE listed_status = 'Completed' AND updated_at >= created_at";
    assert_eq!(world.number(listed).await, INSTANCES);
    for (column, expected) in [
        ("instances", INSTANCES),
        ("executions", INSTANCES),
        ("events", 4 * INSTANCES),
        ("running_instances", 0),
        ("completed_instances", INSTANCES),
        ("failed_instances", 0),
    ] {
        let all = format!("SELECT {column} FROM totals UNION ALL SELECT {column} FROM committers");
        let sum = format!("SELECT coalesce(sum(n), 0)::bigint FROM ({all}) every (n)");
        assert_eq!(world.number(&sum).await, expected, "{column}");
    }
}
