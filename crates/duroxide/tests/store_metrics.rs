//! What a SQLite store tells of itself. The recorder is the process's, since the store writes on a thread of its own.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/metric_recorder.rs"]
mod metric_recorder;
mod runtime_support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Provider, TagFilter, WorkItem};
use duroxide::runtime::Runtime;
use duroxide::{Client, OrchestrationContext};
use metric_recorder::MetricRecorder;
use runtime_support::{SOON, activities, orchestrations};

// semantics: OBS-9
#[tokio::test]
async fn a_sqlite_store_tells_of_its_commits_its_log_and_its_queues() {
    let recorder = Arc::new(MetricRecorder::default());
    metrics::set_global_recorder(recorder.clone()).ok().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", directory.path().join("store.db").display());
    let store = Arc::new(SqliteProvider::new(&url, None).await.unwrap());
    let client = Client::new(store.clone());
    client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert!(recorder.gauges().is_empty(), "nobody takes work yet");

    let code =
        orchestrations().register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) });
    let runtime = Runtime::start_with_store(store.clone(), activities().build(), code.build()).await;
    client.wait_for_orchestration("i", SOON).await.unwrap();
    let histograms = recorder.histograms();
    for name in ["duroxide_commit_batch_size", "duroxide_commit_duration_seconds"] {
        let samples = &histograms[&format!("{name}{{committer=synced,store=sqlite}}")];
        assert!(samples.len() >= 2 && samples.iter().all(|sample| *sample > 0.0), "{name}: {samples:?}");
    }
    assert!(!recorder.counters().contains_key("duroxide_store_failed_syncs_total{store=sqlite}"));
    // The writer tells it between two commits.
    let gauges = loop {
        client.start_orchestration("again", "Echo", "x").await.unwrap();
        let gauges = recorder.gauges();
        if gauges.contains_key("duroxide_store_log_bytes{store=sqlite}") {
            break gauges;
        }
    };
    assert!(gauges["duroxide_store_log_bytes{store=sqlite}"] > 0.0);
    for queue in ["orchestrator", "worker"] {
        let age = gauges[&format!("duroxide_queue_oldest_age_seconds{{queue={queue},store=sqlite}}")];
        assert!((0.0..60.0).contains(&age), "{queue}: {age}");
    }
    runtime.shutdown(None).await;

    client.start_orchestration("damaged", "Echo", "x").await.unwrap();
    store.enqueue_for_worker(activity()).await.unwrap();
    let file = rusqlite::Connection::open(directory.path().join("store.db")).unwrap();
    let spoil = "UPDATE orchestrator_queue SET work_item = '{'; UPDATE worker_queue SET work_item = '{'";
    file.execute_batch(spoil).unwrap();
    let minute = Duration::from_secs(60);
    assert!(store.fetch_orchestration_item(minute, Duration::ZERO, None).await.unwrap().is_none());
    assert!(store.fetch_work_item(minute, Duration::ZERO, None, &TagFilter::Any).await.unwrap().is_none());
    for queue in ["orchestrator", "worker"] {
        let rows = recorder.counters()[&format!("duroxide_quarantined_total{{queue={queue},store=sqlite}}")];
        assert!(rows >= 1, "{queue}: {rows}");
    }
}

fn activity() -> WorkItem {
    WorkItem::ActivityExecute {
        instance: "damaged".into(),
        execution_id: 1,
        id: 2,
        name: "Echo".into(),
        input: "x".into(),
        session_id: None,
        tag: None,
    }
}
