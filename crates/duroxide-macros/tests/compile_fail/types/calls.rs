//! Calls that do not fit the function.

#![allow(unused_variables)]

use duroxide::prelude::*;

#[activity]
async fn charge(order: u32, card: String) -> Result<u32, String> {
    Ok(order)
}

#[orchestration]
async fn without_ctx(ctx: OrchestrationContext) -> Result<u32, String> {
    charge(1, "card".to_string()).await
}

#[orchestration]
async fn ctx_by_value(ctx: OrchestrationContext) -> Result<u32, String> {
    charge(ctx, 1, "card".to_string()).await
}

#[orchestration]
async fn wrong_argument(ctx: OrchestrationContext) -> Result<u32, String> {
    charge(&ctx, 1, 2).await
}

#[orchestration]
async fn too_few(ctx: OrchestrationContext) -> Result<u32, String> {
    charge(&ctx, 1).await
}

#[orchestration]
async fn not_awaited(ctx: OrchestrationContext) -> Result<u32, String> {
    charge(&ctx, 1, "card".to_string())
}

#[orchestration]
async fn wrong_result(ctx: OrchestrationContext) -> Result<String, String> {
    charge(&ctx, 1, "card".to_string()).await
}

#[activity]
async fn from_an_activity(ctx: ActivityContext) -> Result<u32, String> {
    charge(&ctx, 1, "card".to_string()).await
}

fn main() {}
