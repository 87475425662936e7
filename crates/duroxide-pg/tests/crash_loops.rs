//! User code ends its process (abort) each time it runs: it is poisoned, and the work beside it comes to its end.
//!
//! The process that dies is this test binary, started again. Leases last far longer than a test, so each comes free only because
//! its owner died.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::child_process::run_alone;
use crate::support;

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Client, ErrorDetails, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
    RuntimeOptions,
};
use duroxide_pg::PostgresProvider;
use support::world::World;

const SIGABRT: i32 = 6;
const LEASE: Duration = Duration::from_secs(3_600);
const FAILURE_BOUND: Duration = Duration::from_secs(60);
const MAX_ATTEMPTS: u32 = 5;
const BYSTANDERS: usize = 40;

const CHILD_URL: &str = "DUROXIDE_TEST_CRASH_URL";
const CHILD_SCHEMA: &str = "DUROXIDE_TEST_CRASH_SCHEMA";
const CULPRIT: &str = "DUROXIDE_TEST_CRASH_CULPRIT";

/// The process that dies: a runtime whose user code aborts it.
#[test]
fn child_runs_user_code_that_aborts() {
    let (Ok(url), Ok(culprit)) = (std::env::var(CHILD_URL), std::env::var(CULPRIT)) else { return };
    let schema = std::env::var(CHILD_SCHEMA).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = PostgresProvider::new_with_schema(&url, Some(&schema)).await.unwrap();
        let store = Arc::new(store);
        let activities = ActivityRegistry::builder()
            .register("Attempt", async |ctx: ActivityContext, _: String| Ok(ctx.attempt().to_string()))
            .register("Abort", async |_: ActivityContext, _: String| std::process::abort())
            .build();
        let orchestrations = OrchestrationRegistry::builder()
            .register("Bystander", async |ctx: OrchestrationContext, _: String| {
                ctx.schedule_activity("Attempt", "").await
            })
            .register("activity", async |ctx: OrchestrationContext, _: String| {
                ctx.schedule_activity("Abort", "").await
            })
            .register("turn", async |_: OrchestrationContext, _: String| std::process::abort())
            .build();
        let options = RuntimeOptions {
            orchestration_concurrency: 1,
            worker_concurrency: 1,
            orchestrator_lock_timeout: LEASE,
            worker_lock_timeout: LEASE,
            session_idle_timeout: LEASE * 2,
            max_attempts: MAX_ATTEMPTS,
            ..Default::default()
        };
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        let client = Client::new(store);
        client.wait_for_orchestration(&culprit, FAILURE_BOUND).await.unwrap();
        for n in 0..BYSTANDERS {
            client.wait_for_orchestration(&format!("b{n}"), FAILURE_BOUND).await.unwrap();
        }
        runtime.shutdown(None).await;
    });
}

async fn crash_loop(culprit: &str) {
    let world = World::new(&[]).await;
    let client = Client::new(world.sound_store().await);
    for n in 0..BYSTANDERS {
        if n == BYSTANDERS / 2 {
            client.start_orchestration(culprit, culprit, "").await.unwrap();
        }
        client.start_orchestration(format!("b{n}"), "Bystander", "").await.unwrap();
    }
    let mut crashes = 0;
    loop {
        let run = run_alone(module_path!(), "child_runs_user_code_that_aborts")
            .env(CHILD_URL, world.cluster.url())
            .env(CHILD_SCHEMA, &world.schema)
            .env(CULPRIT, culprit)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        if run.status.success() {
            break;
        }
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.signal(), Some(SIGABRT), "it ended otherwise: {:?}\n{said}", run.status);
        crashes += 1;
        assert!(crashes <= MAX_ATTEMPTS, "it goes on crashing");
    }
    assert_eq!(crashes, MAX_ATTEMPTS);
    let status = client.get_orchestration_status(culprit).await.unwrap();
    let OrchestrationStatus::Failed { details: ErrorDetails::Poison { attempt_count, .. }, .. } = status
    else {
        panic!("{status:?}")
    };
    assert_eq!(attempt_count, MAX_ATTEMPTS + 1);
    let mut tried_again = 0;
    for n in 0..BYSTANDERS {
        let status = client.get_orchestration_status(&format!("b{n}")).await.unwrap();
        let OrchestrationStatus::Completed { output, .. } = status else { panic!("b{n}: {status:?}") };
        tried_again += output.parse::<u32>().unwrap() - 1;
    }
    // Each counts as tried once if it was leased ahead a moment before a crash. After that only what ran or was about to run
    // counts: there is one slot for activities, and one for the turn that takes the result of another.
    let most = u32::try_from(BYSTANDERS).unwrap() + 2 * MAX_ATTEMPTS;
    assert!(tried_again <= most, "bystanders were charged {tried_again} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_crashes_the_process_is_poisoned_and_no_bystander_is() {
    crash_loop("activity").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_crashes_the_process_is_poisoned_and_no_bystander_is() {
    crash_loop("turn").await;
}
