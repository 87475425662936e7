//! The metrics of a PostgreSQL store.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../../duroxide/tests/support/metric_recorder.rs"]
mod metric_recorder;
mod support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Clock, Provider, ProviderAdmin, SystemClock, TagFilter};
use duroxide_pg::PostgresProvider;
use metric_recorder::MetricRecorder;
use support::database::{Database, connect};
use support::load;
use support::world::{activity, start};

// semantics: OBS-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_tells_of_its_commits_its_connections_and_its_queues() {
    let recorder = Arc::new(MetricRecorder::default());
    metrics::set_global_recorder(recorder.clone()).ok().unwrap();
    let home = Database::new().await;
    let builder = PostgresProvider::builder().figures_every(Some(Duration::from_millis(20)));
    let store = Arc::new(builder.open(home.url()).await.unwrap());
    let client = Client::new(store.clone());
    load::start(&client, 0, 1).await;
    assert!(recorder.gauges().is_empty(), "nobody takes work yet");

    let runtime = load::runtime(store.clone()).await;
    load::check(&client, 1).await;
    runtime.shutdown(None).await;
    store.enqueue_for_worker(activity("nobody")).await.unwrap();
    let oldest = "duroxide_queue_oldest_age_seconds{queue=worker,store=postgres}";
    let deadline = SystemClock.monotonic() + Duration::from_secs(60);
    while recorder.gauges().get(oldest).is_none_or(|age| *age == 0.0) {
        assert!(SystemClock.monotonic() < deadline, "{:?}", recorder.gauges());
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    let gauges = recorder.gauges();
    assert!(gauges["duroxide_store_connections{store=postgres}"] >= 3.0, "{gauges:?}");
    assert_eq!(gauges["duroxide_store_arrivals_depth{store=postgres}"], 0.0);
    assert!(gauges.contains_key("duroxide_store_dead_rows{store=postgres,table=worker_queue}"), "{gauges:?}");
    let histograms = recorder.histograms();
    for committer in ["synced", "unsynced"] {
        let sizes =
            &histograms[&format!("duroxide_commit_batch_size{{committer={committer},store=postgres}}")];
        assert!(sizes.iter().all(|size| *size >= 1.0), "{sizes:?}");
        let durations =
            &histograms[&format!("duroxide_commit_duration_seconds{{committer={committer},store=postgres}}")];
        assert_eq!(durations.len(), sizes.len(), "each commit has a size and a duration");
        assert!(durations.iter().all(|took| *took > 0.0 && *took < 60.0), "{durations:?}");
    }
    assert!(recorder.counters()["duroxide_store_connects_total{purpose=commits,store=postgres}"] >= 1);
    assert!(gauges["duroxide_store_figures_age_seconds{store=postgres}"] < 60.0, "{gauges:?}");

    store.enqueue_for_orchestrator(start("damaged"), None).await.unwrap();
    let spoil = "UPDATE orchestrator_queue SET work_item = '{'; UPDATE worker_queue SET work_item = '{'";
    connect(home.url()).await.batch_execute(spoil).await.unwrap();
    let minute = Duration::from_secs(60);
    assert!(store.fetch_orchestration_item(minute, Duration::ZERO, None).await.unwrap().is_none());
    assert!(store.fetch_work_item(minute, Duration::ZERO, None, &TagFilter::Any).await.unwrap().is_none());
    for queue in ["orchestrator", "worker"] {
        let rows =
            recorder.counters()[&format!("duroxide_quarantined_total{{queue={queue},store=postgres}}")];
        assert_eq!(rows, 1, "{queue}");
    }

    // A call that meets a lock is made again.
    let retries = || recorder.counters().get("duroxide_store_retries_total{store=postgres}").copied();
    let before = retries().unwrap_or(0);
    let held = connect(home.url()).await;
    held.batch_execute("BEGIN; LOCK TABLE instances IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let reading = tokio::spawn(async move { store.get_instance_info("job-0").await });
    let deadline = SystemClock.monotonic() + Duration::from_secs(60);
    while retries().unwrap_or(0) == before {
        assert!(SystemClock.monotonic() < deadline, "nothing was tried again");
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    held.batch_execute("COMMIT").await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap().status, "Completed");
}
