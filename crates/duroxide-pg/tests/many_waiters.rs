//! Ten thousand waiters in one process: they cost the database little, and all of them hear.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, ExecutionMetadata, Provider, SystemClock};
use duroxide::{Client, OrchestrationStatus};
use duroxide_pg::PostgresProvider;
use support::database::{Database, connect};
use support::world::{metadata, start, started_event};
use tokio::task::JoinSet;

const MANY: usize = 10_000;
const LEASE: Duration = Duration::from_secs(30);

/// Reads that the waiters of a process may make in a second.
const READS_A_SECOND: f64 = 50.0;

/// Returns how many transactions this database has committed, up to about a second ago, and the server's time in seconds.
async fn commits(database: &tokio_postgres::Client) -> (i64, f64) {
    let sql = "SELECT xact_commit, extract(epoch FROM clock_timestamp())::float8 FROM pg_stat_database
        WHERE datname = current_database()";
    let row = database.query_one(sql, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

async fn complete(store: &PostgresProvider, instance: &str) {
    store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
    let (item, token, _) = fetched.expect("its start is there");
    assert_eq!(item.instance, instance);
    let metadata =
        ExecutionMetadata { status: Some("Completed".into()), output: Some(instance.into()), ..metadata() };
    let events = vec![started_event(instance)];
    store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata, vec![]).await.unwrap();
}

// semantics: CLIENT-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_cost_the_database_a_few_reads_a_second() {
    let home = Database::new().await;
    // Without notifications the waiters only poll.
    let deaf = PostgresProvider::builder().notifications(false).open(home.url()).await.unwrap();
    let elsewhere = PostgresProvider::new(home.url()).await.unwrap();
    let client = Client::new(Arc::new(deaf));
    let mut waits = JoinSet::new();
    for n in 0..MANY {
        let client = client.clone();
        waits.spawn(async move {
            client.wait_for_orchestration(&format!("i{n}"), Duration::from_secs(600)).await
        });
    }
    // Once the last waiter has heard, all others have begun to wait.
    complete(&elsewhere, "i9999").await;
    let first = waits.join_next().await.unwrap().unwrap().unwrap();
    let OrchestrationStatus::Completed { output, .. } = first else { panic!("{first:?}") };
    assert_eq!(output, "i9999");
    SystemClock.sleep(Duration::from_secs(2)).await;
    let database = connect(home.url()).await;
    let (before, from) = commits(&database).await;
    SystemClock.sleep(Duration::from_secs(4)).await;
    let (after, to) = commits(&database).await;
    // However long that took: reads of that time, of the second that the server may have counted late, and a few statements
    // of the stores.
    let (spent, allowed) = ((after - before) as f64, READS_A_SECOND * (to - from + 1.0) + 20.0);
    assert!(spent <= allowed, "{spent} transactions in {} s", to - from);
    for n in 0..10 {
        complete(&elsewhere, &format!("i{n}")).await;
    }
    for _ in 0..10 {
        waits.join_next().await.unwrap().unwrap().unwrap();
    }
    eprintln!("{spent} transactions in {} s for {MANY} waiters", to - from);
}
