//! Idle processes that let their database sleep: none of them sends a statement.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{ObservabilityConfig, Runtime};
use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus, RuntimeOptions,
};
use duroxide_pg::PostgresProvider;
use support::world::World;

const RARELY: Duration = Duration::from_secs(3_600);
/// Nothing here takes long; a test that waits for so long has failed.
const FAILURE_BOUND: Duration = Duration::from_secs(60);

/// When any process has last sent a statement to the server, in microseconds since the epoch.
const LAST_STATEMENT: &str =
    "SELECT coalesce(max(extract(epoch FROM greatest(query_start, state_change))) * 1000000, 0)::bigint
    FROM pg_stat_activity WHERE application_name LIKE 'duroxide%'";

/// A worker with the settings that `docs/postgres.md` gives for databases that sleep.
async fn worker(world: &World) -> (Arc<PostgresProvider>, Arc<Runtime>) {
    let builder = PostgresProvider::builder().schema(&world.schema).poll_interval(RARELY);
    let store = Arc::new(builder.open(&world.cluster.url()).await.unwrap());
    let options = RuntimeOptions {
        heartbeat_interval: RARELY,
        dispatcher_min_poll_interval: RARELY,
        session_cleanup_interval: RARELY,
        observability: ObservabilityConfig { gauge_poll_interval: RARELY, ..Default::default() },
        ..Default::default()
    };
    let work = |_: ActivityContext, input: String| async move { Ok(input) };
    let activities = ActivityRegistry::builder().register("Work", work).build();
    let code =
        |ctx: OrchestrationContext, input: String| async move { ctx.schedule_activity("Work", input).await };
    let orchestrations = OrchestrationRegistry::builder().register("Job", code).build();
    (store.clone(), Runtime::start_with_options(store, activities, orchestrations, options).await)
}

/// Waits until this time has passed on the server.
async fn pass_time(world: &World, time: Duration) {
    let database = world.connect().await;
    let now: String = database.query_one("SELECT clock_timestamp()::text", &[]).await.unwrap().get(0);
    let ms = time.as_millis();
    world.until(&format!("clock_timestamp() > '{now}'::timestamptz + interval '{ms} ms'")).await;
}

// semantics: PG-27
#[tokio::test(flavor = "multi_thread")]
async fn idle_workers_that_poll_rarely_send_no_statement_and_hear_of_work() {
    let world = World::new(&[]).await;
    let (one, its_runtime) = worker(&world).await;
    let (_other, other_runtime) = worker(&world).await;
    let client = Client::new(one.clone());
    let run = async |instance: &str| {
        client.start_orchestration(instance, "Job", "done").await.unwrap();
        let status = client.wait_for_orchestration(instance, FAILURE_BOUND).await.unwrap();
        assert!(matches!(status, OrchestrationStatus::Completed { .. }), "{status:?}");
    };
    run("before").await;
    // Both have leased something or asked for it, so each looks at the other.
    world.until("(SELECT count(*) FROM lease_holders) = 2").await;
    let quiet = async {
        // Longer than any of the usual intervals but that of the gauges, for which there is a test of its own.
        let mut last = world.number(LAST_STATEMENT).await;
        loop {
            pass_time(&world, Duration::from_secs(7)).await;
            let now = world.number(LAST_STATEMENT).await;
            if std::mem::replace(&mut last, now) == now {
                return;
            }
        }
    };
    tokio::time::timeout(FAILURE_BOUND, quiet).await.expect("idle workers become quiet");
    // A start from another process still reaches them at once, because they listen.
    let elsewhere = Client::new(world.sound_store().await);
    elsewhere.start_orchestration("after", "Job", "done").await.unwrap();
    let status = client.wait_for_orchestration("after", FAILURE_BOUND).await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { .. }), "{status:?}");
    its_runtime.shutdown(None).await;
    other_runtime.shutdown(None).await;
}
