//! The runtime on the embedded store: many instances at once, and a file that outlives its runtime.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::Runtime;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationStatus, RuntimeOptions};
use runtime_support::{SOON, Stage, activities, orchestrations};

fn steps() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations().register("Steps", |ctx: OrchestrationContext, input: String| async move {
        let mut out = input;
        for _ in 0..3 {
            out = ctx.schedule_activity("Step", out).await?;
            ctx.schedule_timer(Duration::from_millis(1)).await;
        }
        Ok(out)
    })
}

fn step(stage: &Stage) -> duroxide::runtime::registry::ActivityRegistryBuilder {
    let stage = stage.clone();
    activities().register("Step", move |_: ActivityContext, input: String| {
        stage.report("step");
        async move { Ok(format!("{input}.")) }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_instances_at_once_run_each_step_once() {
    let store = Arc::new(SqliteProvider::new_in_memory().await.unwrap());
    let stage = Stage::default();
    let options = RuntimeOptions { check_residents: true, ..Default::default() };
    let runtime =
        Runtime::start_with_options(store.clone(), step(&stage).build(), steps().build(), options).await;
    let client = Client::new(store);
    for n in 0..200 {
        client.start_orchestration(format!("i-{n}"), "Steps", n.to_string()).await.unwrap();
    }
    for n in 0..200 {
        let status = client.wait_for_orchestration(&format!("i-{n}"), SOON).await.unwrap();
        assert!(
            matches!(status, OrchestrationStatus::Completed { output, .. } if output == format!("{n}..."))
        );
    }
    assert_eq!(stage.log().len(), 600);
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_goes_on_where_an_aborted_runtime_left_it() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", directory.path().join("state.db").display());
    let stage = Stage::default();
    for round in 0..5 {
        let store = Arc::new(SqliteProvider::new(&url, None).await.unwrap());
        let client = Client::new(store.clone());
        if round == 0 {
            for n in 0..20 {
                client.start_orchestration(format!("i-{n}"), "Steps", "x").await.unwrap();
            }
        }
        let options = RuntimeOptions {
            orchestrator_lock_timeout: Duration::from_millis(200),
            worker_lock_timeout: Duration::from_millis(200),
            ..Default::default()
        };
        let runtime =
            Runtime::start_with_options(store.clone(), step(&stage).build(), steps().build(), options).await;
        if round < 4 {
            // Some way into the work, and in the middle of something.
            stage.seen("step", 10 * (round + 1)).await;
            runtime.shutdown(Some(0)).await;
            continue;
        }
        for n in 0..20 {
            let status = client.wait_for_orchestration(&format!("i-{n}"), SOON).await.unwrap();
            assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "x..."));
        }
        runtime.shutdown(None).await;
    }
}

#[tokio::test]
async fn a_runtime_can_bring_a_store_of_its_own() {
    let runtime = Runtime::start(activities().build(), orchestrations().build()).await;
    assert!(runtime.metrics_snapshot().is_some());
    runtime.shutdown(None).await;
}
