//! Many activities at once: the orchestration schedules them all, and goes on when the last has returned.

use std::sync::Arc;
use std::time::Duration;

use duroxide::prelude::*;

async fn count_words(ctx: OrchestrationContext, pages: Vec<String>) -> Result<usize, String> {
    let counts: Vec<_> = pages.iter().map(|page| ctx.schedule_activity_typed("Count", page)).collect();
    let counts: Result<Vec<usize>, String> = ctx.join(counts).await.into_iter().collect();
    Ok(counts?.into_iter().sum())
}

async fn count(_ctx: ActivityContext, page: String) -> Result<usize, String> {
    Ok(page.split_whitespace().count())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let activities = ActivityRegistry::builder().register_typed("Count", count).build_result()?;
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("CountWords", count_words).build_result()?;
    let options = RuntimeOptions { worker_concurrency: 8, ..Default::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;

    let pages: Vec<String> = (1..=100).map(|page| "word ".repeat(page)).collect();
    let client = Client::new(store);
    client.start_orchestration_typed("book", "CountWords", pages).await?;
    let words = client.wait_for_orchestration_typed::<usize>("book", Duration::from_secs(30)).await??;
    println!("{words} words on 100 pages");
    runtime.shutdown(None).await;
    Ok(())
}
