//! Two versions of one orchestration: what runs keeps its version, what starts gets the newest, unless a policy or the
//! caller says otherwise.
//!
//! This example uses the parts by themselves, with names and strings: a store, registries, a runtime and a client. The others
//! let `Duroxide` put them together.

use std::sync::Arc;
use std::time::Duration;

use duroxide::VersionPolicy;
use duroxide::prelude::*;
use semver::Version;

const WAIT: Duration = Duration::from_secs(30);

async fn report(ctx: OrchestrationContext, _input: String) -> Result<String, String> {
    ctx.set_custom_status("ready");
    ctx.schedule_wait("report").await;
    Ok(format!("ran as {}", ctx.orchestration_version()))
}

async fn finish(client: &Client, instance: &str) -> Result<(), Box<dyn std::error::Error>> {
    client.wait_for_status_change(instance, 0, Duration::from_millis(10), WAIT).await?;
    client.raise_event(instance, "report", "").await?;
    println!("{instance} {}", client.wait_for_orchestration_typed::<String>(instance, WAIT).await??);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let client = Client::new(store.clone());
    let activities = ActivityRegistry::default();

    let old =
        OrchestrationRegistry::builder().register_versioned("Report", "1.0.0", report).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities.clone(), old.clone()).await;
    client.start_orchestration("started before the upgrade", "Report", "").await?;
    client.wait_for_status_change("started before the upgrade", 0, Duration::from_millis(10), WAIT).await?;
    runtime.shutdown(None).await;

    let new = OrchestrationRegistry::builder_from(&old)
        .register_versioned("Report", "2.0.0", report)
        .build_result()?;
    let runtime = Runtime::start_with_store(store, activities, new.clone()).await;
    finish(&client, "started before the upgrade").await?;
    client.start_orchestration("started after the upgrade", "Report", "").await?;
    finish(&client, "started after the upgrade").await?;
    client.start_orchestration_versioned("asked for the old version", "Report", "1.0.0", "").await?;
    finish(&client, "asked for the old version").await?;
    new.set_version_policy("Report", VersionPolicy::Exact(Version::new(1, 0, 0)));
    client.start_orchestration("held back by a policy", "Report", "").await?;
    finish(&client, "held back by a policy").await?;
    runtime.shutdown(None).await;
    Ok(())
}
