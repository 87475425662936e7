//! Many activities at once: the orchestration schedules them all, and goes on when the last has returned.

use duroxide::prelude::*;

#[activity]
async fn count(page: &str) -> Result<usize, String> {
    Ok(page.split_whitespace().count())
}

#[orchestration]
async fn count_words(ctx: OrchestrationContext, pages: Vec<String>) -> Result<usize, String> {
    let counts: Vec<_> = pages.iter().map(|page| count(&ctx, page)).collect();
    let counts: Result<Vec<usize>, String> = ctx.join(counts).await.into_iter().collect();
    Ok(counts?.into_iter().sum())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Duroxide::open("sqlite::memory:")
        .max_activities(8)
        .activity(count)
        .orchestration(count_words)
        .start()
        .await?;
    let pages: Vec<String> = (1..=100).map(|page| "word ".repeat(page)).collect();
    let words = app.start(count_words, "book", pages).await?.result().await?;
    println!("{words} words on 100 pages");
    app.shutdown().await;
    Ok(())
}
