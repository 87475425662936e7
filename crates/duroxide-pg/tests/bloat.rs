//! Queue tables do not grow with the rows that have passed through them.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Clock, SystemClock};
use duroxide_pg::PostgresProvider;
use support::cluster::{Cluster, Kind};
use support::load;

const QUEUES: &str =
    "('orchestrator_queue', 'worker_queue', 'instance_schedule', 'arrivals', 'committers', 'totals')";
/// Rows that passed through each of the queues, about: eight activities and about as many turns for each job.
const JOBS: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_are_cleared_while_the_queues_are_busy() {
    let cluster = Cluster::own(Kind::Forgetful, &["autovacuum_naptime = 1s"]);
    let schema = support::fresh_schema();
    let store = Arc::new(PostgresProvider::new_with_schema(&cluster.url(), Some(&schema)).await.unwrap());
    let runtime = load::runtime(store.clone()).await;
    let client = Client::new(store.clone());
    load::start(&client, 0, JOBS).await;
    load::check(&client, JOBS).await;
    let dead = format!(
        "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = '{schema}' AND relname IN {QUEUES}"
    );
    let deadline = SystemClock.monotonic() + Duration::from_secs(60);
    loop {
        let left = store.query_number(&dead).await.unwrap();
        // Vacuum clears each of the six tables when it has a thousand dead rows.
        if left < 6_000 {
            break;
        }
        assert!(SystemClock.monotonic() < deadline, "{left} dead rows are left");
        SystemClock.sleep(Duration::from_millis(200)).await;
    }
    let pages = format!(
        "SELECT sum(pg_relation_size(c.oid))::bigint / 8192 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = '{schema}' AND c.relname IN {QUEUES}"
    );
    let pages = store.query_number(&pages).await.unwrap();
    assert!(pages < 600, "the queues take {pages} pages");
    runtime.shutdown(None).await;
}
