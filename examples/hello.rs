//! The smallest durable program: one orchestration, one activity.
//!
//! `cargo run --example hello` keeps its state in memory. With `-- 'sqlite:hello.db?mode=rwc'` it keeps it in a file, and
//! a second run then finds the first one's result.

use std::sync::Arc;
use std::time::Duration;

use duroxide::prelude::*;

async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    ctx.schedule_activity("Greet", name).await
}

async fn greet(_ctx: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite::memory:".to_string());
    let store = Arc::new(SqliteProvider::new(&url, None).await?);
    let activities = ActivityRegistry::builder().register("Greet", greet).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().register("Hello", hello).build_result()?;
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;

    let client = Client::new(store);
    let started = client.start_orchestration_with("hello-1", "Hello", "Ada", StartOptions::new()).await?;
    println!("new: {}", started.is_new());
    match started.wait(Duration::from_secs(10)).await? {
        OrchestrationStatus::Completed { output, .. } => println!("{output}"),
        other => println!("{other:?}"),
    }
    runtime.shutdown(None).await;
    Ok(())
}
