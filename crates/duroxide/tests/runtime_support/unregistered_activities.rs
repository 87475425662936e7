//! An activity that nobody has registered, as whoever looks at the store sees it; on any store.

use std::sync::Arc;
use std::time::Duration;

use duroxide::model::BlockedReason;
use duroxide::providers::{InstanceQuery, Provider};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OnUnregistered, Runtime};
use duroxide::{
    ActivityContext, Client, InstanceState, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
    RuntimeOptions,
};

/// Longer than anything that happens at all; no test waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reports at once what it cannot do, and tries again after a moment, as a runtime of the front door does after seconds.
fn options() -> RuntimeOptions {
    let mut options = RuntimeOptions {
        on_unregistered: OnUnregistered::Block,
        heartbeat_interval: Duration::from_millis(20),
        ..RuntimeOptions::default()
    };
    options.unregistered_backoff.base_delay = Duration::from_millis(5);
    options
}

async fn greet(ctx: OrchestrationContext, who: String) -> Result<String, String> {
    ctx.schedule_activity("Greet", who).await
}

async fn start(store: &Arc<dyn Provider>, activities: ActivityRegistry) -> Arc<Runtime> {
    let orchestrations = OrchestrationRegistry::builder().register("Greeting", greet).build();
    Runtime::start_with_options(store.clone(), activities, orchestrations, options()).await
}

/// Shows that an instance is blocked wherever somebody looks while its activity is missing, and goes on when it is there.
pub async fn shown_blocked(store: Arc<dyn Provider>) {
    let client = Client::new(store.clone());
    let forgetful = start(&store, ActivityRegistry::default()).await;
    client.start_orchestration("g", "Greeting", "Ada").await.unwrap();
    let blocked = InstanceQuery::new().state(InstanceState::Blocked);
    while client.list(&blocked).await.unwrap().rows.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.count(&blocked, 10).await.unwrap().value, 1);
    assert_eq!(client.overview(5).await.unwrap().totals.blocked.value, 1);
    let described = client.describe("g", 1_000).await.unwrap();
    assert_eq!(described.row.state, InstanceState::Blocked);
    let reason = described.blocked.unwrap().reason;
    assert_eq!(reason, BlockedReason::UnregisteredActivity { name: "Greet".to_string() });
    let obstacles = client.list_obstacles(10).await.unwrap();
    assert_eq!((obstacles[0].instance.as_str(), obstacles[0].activity_id.is_some()), ("g", true));
    assert!(obstacles[0].reason.contains("Greet is not registered"), "{obstacles:?}");
    forgetful.shutdown(None).await;

    let echo = |_: ActivityContext, who: String| async move { Ok(format!("Hello, {who}")) };
    let mended = start(&store, ActivityRegistry::builder().register("Greet", echo).build()).await;
    let ended = client.wait_for_orchestration("g", PATIENCE).await.unwrap();
    assert!(matches!(ended, OrchestrationStatus::Completed { output, .. } if output == "Hello, Ada"));
    assert_eq!(client.count(&blocked, 10).await.unwrap().value, 0);
    mended.shutdown(None).await;
}
