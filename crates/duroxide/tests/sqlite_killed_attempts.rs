//! A process is killed (SIGKILL) in the middle of an attempt: the next one has its number and goes on where it was.
//!
//! The process that dies is this test binary, started again. The activity comes free only because its owner died.

#![cfg(all(feature = "sqlite", feature = "test-hooks", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::child_process::{Victim, run_alone};
use crate::killed_import::{STANDS_STILL, import};
use crate::sqlite_store::{FAILURE_BOUND, StoreFile, soon};

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Clock, SystemClock};
use duroxide::{Client, OrchestrationStatus};

const URL: &str = "DUROXIDE_TEST_KILLED_ATTEMPT_URL";

async fn open(url: &str) -> Arc<SqliteProvider> {
    // The clock of the machine, as the other process has it.
    Arc::new(SqliteProvider::new(url, None).await.unwrap())
}

/// The process that dies.
#[test]
fn child_imports_until_it_is_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let _running = import(open(&url).await).await;
        std::future::pending::<()>().await;
    });
}

// semantics: ACT-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attempt_after_a_kill_has_its_number_and_the_last_heartbeat() {
    let file = StoreFile::new();
    let store = open(&file.url()).await;
    let client = Client::new(store.clone());
    let mut child = run_alone(module_path!(), "child_imports_until_it_is_killed");
    let victim = Victim::spawn(child.env(URL, file.url()));
    client.start_orchestration("i", "Import", "").await.unwrap();
    soon(async {
        let is_there =
            format!("SELECT count(*) FROM worker_queue WHERE lock_token IS NOT NULL AND work_item LIKE '{STANDS_STILL}'");
        while file.number(&is_there) == 0 {
            SystemClock.sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    drop(victim);

    let runtime = import(store).await;
    let status = client.wait_for_orchestration("i", FAILURE_BOUND).await.unwrap();
    let OrchestrationStatus::Completed { output, .. } = status else { panic!("{status:?}") };
    assert_eq!(output, "attempt 3 goes on at row 20");
    assert_eq!(client.read_execution_history("i", 1).await.unwrap().len(), 4, "attempts add no events");
    runtime.shutdown(None).await;
    file.assert_sound();
}
