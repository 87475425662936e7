//! What cannot be registered or started.

use duroxide::prelude::*;

async fn plain(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[activity]
async fn charge(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
async fn fulfil(ctx: OrchestrationContext, n: u32) -> Result<u32, String> {
    charge(&ctx, n).await
}

fn plain_as_activity() {
    let _ = Duroxide::open("memory:").activity(plain);
}

fn plain_as_orchestration() {
    let _ = Duroxide::open("memory:").orchestration(plain);
}

fn activity_as_orchestration() {
    let _ = Duroxide::open("memory:").orchestration(charge);
}

fn orchestration_as_activity() {
    let _ = Duroxide::open("memory:").activity(fulfil);
}

async fn wrong_input(app: Duroxide) {
    let _ = app.start(fulfil, "id", "text").await;
}

async fn start_of_an_activity(app: Duroxide) {
    let _ = app.start(charge, "id", 1).await;
}

fn main() {}
