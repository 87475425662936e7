//! An import whose process is killed in the middle of an attempt.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, ActivityOptions, ActivityRegistry, OrchestrationContext, OrchestrationRegistry,
    RuntimeOptions, StoredRetry,
};

/// What the queue holds while the second attempt stands still: its heartbeat, and the failure of the first.
pub const STANDS_STILL: &str = r#"%"failed_attempts":1,%"heartbeat":"[20,%"#;

/// Runs an import. Its first attempt fails after 10 rows. Its second one stands still after 20, in the process that dies; the
/// third one says where it goes on. Leases are far longer than a test.
pub async fn import(store: Arc<dyn Provider>) -> Arc<Runtime> {
    let activities = ActivityRegistry::builder()
        .register("Import", |ctx: ActivityContext, _: String| async move {
            let (row, key) = ctx.last_heartbeat::<(u32, String)>().unwrap().unwrap_or_default();
            match ctx.attempt() {
                1 | 2 => ctx.heartbeat(&(row + 10, ctx.idempotency_key())).unwrap(),
                attempt => {
                    assert_eq!(key, ctx.idempotency_key(), "it is the same step");
                    return Ok(format!("attempt {attempt} goes on at row {row}"));
                }
            }
            match ctx.attempt() {
                1 => Err("the first one fails".to_string()),
                _ => std::future::pending().await,
            }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Import", |ctx: OrchestrationContext, _: String| async move {
            let retry = StoredRetry::attempts(5).first_pause(Duration::ZERO);
            let options = ActivityOptions::new().retry(retry).heartbeat(Duration::from_secs(600));
            ctx.schedule_activity("Import", "").with_options(options).await
        })
        .build();
    let options = RuntimeOptions {
        worker_lock_timeout: Duration::from_secs(3600),
        session_idle_timeout: Duration::from_secs(7200),
        ..Default::default()
    };
    Runtime::start_with_options(store, activities, orchestrations, options).await
}
