//! Orchestrations that keep a store busy, and the checks that all of them went right.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::{ActivityRegistry, ActivityRegistryBuilder};
use duroxide::{
    ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationRegistryBuilder, OrchestrationStatus, RuntimeOptions,
};
use duroxide_pg::PostgresProvider;

/// Steps of each orchestration: activities one after the other, a timer, then activities at once.
const STEPS: usize = 4;
/// All jobs must have ended so long after the last fault.
const LIVENESS_BOUND: Duration = Duration::from_secs(60);

/// Starts a runtime that runs jobs.
pub async fn runtime(store: Arc<PostgresProvider>) -> Arc<Runtime> {
    Runtime::start_with_options(store, activities().build(), orchestrations().build(), options()).await
}

/// Returns the activities of the jobs.
pub fn activities() -> ActivityRegistryBuilder {
    ActivityRegistry::builder().register("Work", |_: ActivityContext, input: String| async move {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(input)
    })
}

/// Returns the orchestrations of the jobs.
pub fn orchestrations() -> OrchestrationRegistryBuilder {
    OrchestrationRegistry::builder().register("Job", job)
}

/// Returns options with short leases, so that a lost connection's work is soon free again.
pub fn options() -> RuntimeOptions {
    RuntimeOptions {
        orchestrator_lock_timeout: Duration::from_secs(2),
        worker_lock_timeout: Duration::from_secs(2),
        worker_concurrency: 8,
        // A message is not to blame for a fault.
        max_attempts: 1_000,
        ..Default::default()
    }
}

async fn job(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    for step in 0..STEPS {
        ctx.schedule_activity("Work", format!("{input}/{step}")).await?;
    }
    ctx.schedule_timer(Duration::from_millis(5)).await;
    let together = (0..STEPS).map(|step| ctx.schedule_activity("Work", format!("{input}+{step}"))).collect();
    let results: Result<Vec<String>, String> = ctx.join(together).await.into_iter().collect();
    Ok(results?.len().to_string())
}

/// Starts jobs; an acknowledged start must take effect, and the test retries the others.
pub async fn start(client: &Client, from: usize, count: usize) {
    for n in from..from + count {
        let instance = format!("job-{n}");
        let deadline = SystemClock.monotonic() + LIVENESS_BOUND;
        while let Err(error) = client.start_orchestration(&instance, "Job", n.to_string()).await {
            assert!(error.is_retryable(), "{instance}: {error}");
            assert!(SystemClock.monotonic() < deadline, "{instance} cannot be started: {error}");
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits for the end of all jobs and checks that each step is in the history once.
pub async fn check(client: &Client, count: usize) {
    let deadline = SystemClock.monotonic() + LIVENESS_BOUND;
    for n in 0..count {
        let instance = format!("job-{n}");
        let status = loop {
            let left = deadline.saturating_sub(SystemClock.monotonic());
            match client.wait_for_orchestration(&instance, left).await {
                Ok(status) => break status,
                Err(error) => {
                    assert!(error.is_retryable(), "{instance}: {error}");
                    assert!(SystemClock.monotonic() < deadline, "{instance} does not end: {error}");
                    SystemClock.sleep(Duration::from_millis(20)).await;
                }
            }
        };
        check_end(client, &instance, &status).await;
    }
    check_queues(client).await;
}

/// Waits until the queues are empty and checks the jobs that the store knows, when they end; returns how many it does
/// not know.
pub async fn check_known(client: &Client, count: usize) -> usize {
    check_queues(client).await;
    let mut unknown = 0;
    for n in 0..count {
        let instance = format!("job-{n}");
        if client.get_orchestration_status(&instance).await.unwrap() == OrchestrationStatus::NotFound {
            unknown += 1;
            continue;
        }
        // Work that a worker holds is not in the queues.
        let status = client.wait_for_orchestration(&instance, LIVENESS_BOUND).await.unwrap();
        check_end(client, &instance, &status).await;
    }
    unknown
}

async fn check_end(client: &Client, instance: &str, status: &OrchestrationStatus) {
    assert!(
        matches!(status, OrchestrationStatus::Completed { output, .. } if output == &STEPS.to_string()),
        "{instance}: {status:?}"
    );
    check_history(client, instance).await;
}

async fn check_history(client: &Client, instance: &str) {
    let events = client.read_execution_history(instance, 1).await.unwrap();
    let ids: Vec<u64> = events.iter().map(|event| event.event_id).collect();
    let expected: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(ids, expected, "{instance} has gaps or repetitions");
    let last = events.last().map(|event| &event.kind);
    assert!(
        matches!(last, Some(EventKind::OrchestrationCompleted { .. })),
        "{instance} goes on after its end"
    );
    let count = |wanted: fn(&EventKind) -> bool| events.iter().filter(|event| wanted(&event.kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::ActivityScheduled { .. })), 2 * STEPS, "{instance}");
    assert_eq!(count(|kind| matches!(kind, EventKind::ActivityCompleted { .. })), 2 * STEPS, "{instance}");
    assert_eq!(count(|kind| matches!(kind, EventKind::TimerFired { .. })), 1, "{instance}");
    let mut ended: Vec<_> = events.iter().filter_map(|event| event.source_event_id).collect();
    let all = ended.len();
    ended.sort_unstable();
    ended.dedup();
    assert_eq!(ended.len(), all, "{instance}: a step ended twice");
}

async fn check_queues(client: &Client) {
    let deadline = SystemClock.monotonic() + LIVENESS_BOUND;
    loop {
        let depths = client.get_queue_depths().await.unwrap();
        if (depths.orchestrator_queue, depths.worker_queue) == (0, 0) {
            return;
        }
        assert!(SystemClock.monotonic() < deadline, "the queues are not empty at the end: {depths:?}");
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
}
