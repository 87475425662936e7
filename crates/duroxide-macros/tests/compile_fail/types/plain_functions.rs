//! Plain functions, called as if they were activities.

use duroxide::prelude::*;

async fn plain(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
async fn calls(ctx: OrchestrationContext, n: u32) -> Result<u32, String> {
    plain(&ctx, n).await
}

#[orchestration]
async fn calls_with_options(ctx: OrchestrationContext, n: u32) -> Result<u32, String> {
    drop(ctx);
    plain(n).retry(RetryPolicy::exponential(3)).await
}

fn main() {}
