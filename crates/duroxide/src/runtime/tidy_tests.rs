//! The memory of a runtime does not grow with the work that it has done.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use std::sync::Arc;
use std::time::Duration;

use super::Runtime;
use super::core::Core;
use crate::activity::ActivityContext;
use crate::client::Client;
use crate::orchestration::OrchestrationContext;
use crate::providers::memory::MemoryProvider;
use crate::registry::{ActivityRegistry, OrchestrationRegistry};

/// The two dispatchers and the one that takes timers, each with its supervisor.
const OWN_TASKS: usize = 6;
const SOON: Duration = Duration::from_secs(60);

/// Everything that an orchestration can leave behind: a session, a child, a lost activity, a lost timer, a signal.
async fn busy(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    let session = ctx.instance_id();
    ctx.schedule_activity_on_session("Echo", "", session).await?;
    ctx.schedule_sub_orchestration("Child", "").await?;
    let lost = ctx.schedule_activity("Forever", "");
    ctx.select2(lost, ctx.schedule_wait("go on")).await;
    let timer = ctx.schedule_timer(Duration::from_secs(3600));
    ctx.select2(timer, ctx.schedule_activity("Echo", "")).await;
    Ok(String::new())
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
        .register("Forever", |ctx: ActivityContext, _: String| async move {
            ctx.cancelled().await;
            Ok(String::new())
        })
        .build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Busy", busy)
        .register("Child", |_: OrchestrationContext, text: String| async move { Ok(text) })
        .build()
}

/// Residents, running activities, leases, sessions and tasks.
fn held(core: &Core) -> [usize; 5] {
    let (residents, running, leases) = (core.residents.len(), core.running.len(), core.leases.len());
    [residents, running, leases, core.sessions.len(), core.work.count()]
}

#[tokio::test]
async fn after_many_orchestrations_a_runtime_holds_nothing_of_them() {
    let store = Arc::new(MemoryProvider::new());
    let client = Client::new(store.clone());
    let runtime = Runtime::start_with_store(store, activities(), orchestrations()).await;
    let idle = [0, 0, 0, 0, OWN_TASKS];
    let instances: Vec<String> = (0..100).map(|number| format!("busy-{number}")).collect();
    for instance in &instances {
        client.start_orchestration(instance, "Busy", "").await.unwrap();
    }
    for instance in &instances {
        let subscribed = async || client.get_orchestration_stats(instance).await.unwrap();
        while subscribed().await.is_none_or(|stats| stats.history_event_count < 7) {
            tokio::task::yield_now().await;
        }
        client.raise_event(instance, "go on", "").await.unwrap();
    }
    for instance in &instances {
        let status = client.wait_for_orchestration(instance, SOON).await.unwrap();
        assert!(matches!(status, super::OrchestrationStatus::Completed { .. }), "{status:?}");
    }
    // The last acks may still be on their way.
    let quiet = async {
        while held(&runtime.core) != idle {
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(SOON, quiet).await;
    assert!(ended.is_ok(), "{:?} is held, not {idle:?}", held(&runtime.core));
    runtime.shutdown(None).await;
}
