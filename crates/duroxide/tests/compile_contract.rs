//! A program written for the 0.1 interface, a custom store included, compiles and runs unchanged.

#![cfg(feature = "sqlite")]
#![allow(dead_code, reason = "the contract declares more than it runs")]

use async_trait::async_trait;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::*;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{
    self, ActivityHandler, LogFormat, ObservabilityConfig, RuntimeOptions, VersionPolicy,
};
use duroxide::{
    ActivityContext, BackoffStrategy, Client, Either2, Event, OrchestrationContext, OrchestrationHandler,
    OrchestrationRegistry, OrchestrationStatus, RetryPolicy, SystemStats,
};
use std::{collections::HashMap, sync::Arc, time::Duration};

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    id: u32,
}

async fn order_flow(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ctx.set_custom_status("start");
    let pay = ctx.schedule_activity("Pay", &input).with_tag("gpu").map(|r| r.map(|s| s.len()));
    let limit = ctx.schedule_timer(Duration::from_secs(5));
    let n = match ctx.select2(pay, limit).await {
        Either2::First(r) => r?,
        Either2::Second(()) => return Err("late".into()),
    };
    let all =
        ctx.join((0..n).map(|i| ctx.schedule_activity("Echo", i.to_string())).collect::<Vec<_>>()).await;
    let (a, b) = ctx.join2(ctx.schedule_wait("Go"), async { ctx.dequeue_event("inbox").await }).await;
    let typed: Order = ctx.schedule_activity_typed("Typed", &Order { id: 1 }).await?;
    let retried = ctx
        .schedule_activity_with_retry(
            "Pay",
            "x",
            RetryPolicy::new(3).with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(5) }),
        )
        .await;
    let _id = ctx.new_guid().await?;
    let _now = ctx.utc_now().await?;
    if typed.id > 9 {
        return ctx.continue_as_new(format!("{a}{b}")).await;
    }
    ctx.schedule_orchestration("Other", "other-1", "");
    ctx.schedule_sub_orchestration("Child", format!("{}{:?}", all.len(), retried)).await
}

struct Direct;
#[async_trait]
impl OrchestrationHandler for Direct {
    async fn invoke(&self, ctx: OrchestrationContext, _input: String) -> Result<String, String> {
        Ok(ctx.instance_id())
    }
}
#[async_trait]
impl ActivityHandler for Direct {
    async fn invoke(&self, ctx: ActivityContext, _input: String) -> Result<String, String> {
        Ok(ctx.worker_id().to_string())
    }
}

struct Wrap(Arc<dyn Provider>); // a custom provider: every required method
#[async_trait]
impl Provider for Wrap {
    async fn fetch_orchestration_item(
        &self,
        l: Duration,
        p: Duration,
        f: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        self.0.fetch_orchestration_item(l, p, f).await
    }
    async fn ack_orchestration_item(
        &self,
        t: &str,
        e: u64,
        h: Vec<Event>,
        w: Vec<WorkItem>,
        o: Vec<WorkItem>,
        m: ExecutionMetadata,
        c: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        self.0.ack_orchestration_item(t, e, h, w, o, m, c).await
    }
    async fn abandon_orchestration_item(
        &self,
        t: &str,
        d: Option<Duration>,
        i: bool,
    ) -> Result<(), ProviderError> {
        self.0.abandon_orchestration_item(t, d, i).await
    }
    async fn renew_orchestration_item_lock(&self, t: &str, x: Duration) -> Result<(), ProviderError> {
        self.0.renew_orchestration_item_lock(t, x).await
    }
    async fn read(&self, i: &str) -> Result<Vec<Event>, ProviderError> {
        self.0.read(i).await
    }
    async fn read_with_execution(&self, i: &str, e: u64) -> Result<Vec<Event>, ProviderError> {
        self.0.read_with_execution(i, e).await
    }
    async fn append_with_execution(&self, i: &str, e: u64, v: Vec<Event>) -> Result<(), ProviderError> {
        self.0.append_with_execution(i, e, v).await
    }
    async fn enqueue_for_worker(&self, w: WorkItem) -> Result<(), ProviderError> {
        self.0.enqueue_for_worker(w).await
    }
    async fn fetch_work_item(
        &self,
        l: Duration,
        p: Duration,
        s: Option<&SessionFetchConfig>,
        f: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        self.0.fetch_work_item(l, p, s, f).await
    }
    async fn ack_work_item(&self, t: &str, c: Option<WorkItem>) -> Result<(), ProviderError> {
        self.0.ack_work_item(t, c).await
    }
    async fn renew_work_item_lock(&self, t: &str, x: Duration) -> Result<(), ProviderError> {
        self.0.renew_work_item_lock(t, x).await
    }
    async fn abandon_work_item(&self, t: &str, d: Option<Duration>, i: bool) -> Result<(), ProviderError> {
        self.0.abandon_work_item(t, d, i).await
    }
    async fn renew_session_lock(&self, o: &[&str], x: Duration, i: Duration) -> Result<usize, ProviderError> {
        self.0.renew_session_lock(o, x, i).await
    }
    async fn cleanup_orphaned_sessions(&self, i: Duration) -> Result<usize, ProviderError> {
        self.0.cleanup_orphaned_sessions(i).await
    }
    async fn enqueue_for_orchestrator(&self, w: WorkItem, d: Option<Duration>) -> Result<(), ProviderError> {
        self.0.enqueue_for_orchestrator(w, d).await
    }
    async fn get_custom_status(
        &self,
        i: &str,
        v: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.0.get_custom_status(i, v).await
    }
    async fn get_kv_value(&self, i: &str, k: &str) -> Result<Option<String>, ProviderError> {
        self.0.get_kv_value(i, k).await
    }
    async fn get_kv_all_values(&self, i: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.0.get_kv_all_values(i).await
    }
    async fn get_instance_stats(&self, i: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.0.get_instance_stats(i).await
    }
}

#[tokio::test]
async fn a_program_for_the_published_interface_compiles_and_runs() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(Wrap(Arc::new(SqliteProvider::new_in_memory().await?)));
    let activities = ActivityRegistry::builder()
        .register("Pay", |_c: ActivityContext, s: String| async move { Ok(s) })
        .register_typed("Typed", |_c: ActivityContext, o: Order| async move { Ok(o) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Order", order_flow)
        .register_versioned("Order", "1.1.0", order_flow)
        .set_policy("Order", VersionPolicy::Latest)
        .register_typed("Child", |_c: OrchestrationContext, s: String| async move { Ok::<_, String>(s) })
        .build();
    let rt = runtime::Runtime::start_with_options(
        store.clone(),
        activities,
        orchestrations,
        RuntimeOptions {
            worker_tag_filter: TagFilter::default_and(["gpu"]),
            observability: ObservabilityConfig { log_format: LogFormat::Compact, ..Default::default() },
            ..Default::default()
        },
    )
    .await;
    let client = Client::new(store.clone());
    client.start_orchestration("o-1", "Child", "hi").await?;
    match client.wait_for_orchestration("o-1", Duration::from_secs(5)).await? {
        OrchestrationStatus::Completed { output, .. } => assert_eq!(output, "hi"),
        other => panic!("{other:?}"),
    }
    let _: (Arc<dyn OrchestrationHandler>, Arc<dyn ActivityHandler>) = (Arc::new(Direct), Arc::new(Direct));
    assert!(!client.has_management_capability());
    rt.shutdown(None).await;
    Ok(())
}
