//! A process is killed (SIGKILL) in the middle of an attempt: the next one has its number and goes on where it was.
//!
//! The process that dies is this test binary, started again. The activity comes free only because its owner died.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::child_process::{Victim, run_alone};
use crate::killed_import::{STANDS_STILL, import};
use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::{Client, OrchestrationStatus};
use duroxide_pg::PostgresProvider;
use support::world::World;

const FAILURE_BOUND: Duration = Duration::from_secs(60);
const CHILD_URL: &str = "DUROXIDE_TEST_KILLED_ATTEMPT_URL";
const CHILD_SCHEMA: &str = "DUROXIDE_TEST_KILLED_ATTEMPT_SCHEMA";

/// The process that dies.
#[test]
fn child_imports_until_it_is_killed() {
    let Ok(url) = std::env::var(CHILD_URL) else { return };
    let schema = std::env::var(CHILD_SCHEMA).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = PostgresProvider::new_with_schema(&url, Some(&schema)).await.unwrap();
        let _running = import(Arc::new(store)).await;
        std::future::pending::<()>().await;
    });
}

// semantics: ACT-22
#[tokio::test(flavor = "multi_thread")]
async fn the_attempt_after_a_kill_has_its_number_and_the_last_heartbeat() {
    let world = World::new(&[]).await;
    let client = Client::new(world.sound_store().await);
    let mut child = run_alone(module_path!(), "child_imports_until_it_is_killed");
    let victim = Victim::spawn(child.env(CHILD_URL, world.cluster.url()).env(CHILD_SCHEMA, &world.schema));
    client.start_orchestration("i", "Import", "").await.unwrap();
    world
        .until(&format!(
            "EXISTS (SELECT 1 FROM worker_queue WHERE lock_token IS NOT NULL AND work_item LIKE '{STANDS_STILL}')"
        ))
        .await;
    drop(victim);

    let runtime = import(world.sound_store().await).await;
    let status = client.wait_for_orchestration("i", FAILURE_BOUND).await.unwrap();
    let OrchestrationStatus::Completed { output, .. } = status else { panic!("{status:?}") };
    assert_eq!(output, "attempt 3 goes on at row 20");
    assert_eq!(client.read_execution_history("i", 1).await.unwrap().len(), 4, "attempts add no events");
    runtime.shutdown(None).await;
}
