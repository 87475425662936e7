//! A call that nobody awaits.

#![deny(unused_must_use)]

use duroxide::prelude::*;

#[activity]
async fn charge(order: u32) -> Result<u32, String> {
    Ok(order)
}

#[orchestration]
async fn fulfil(ctx: OrchestrationContext) -> Result<u32, String> {
    charge(&ctx, 1);
    fulfil(&ctx);
    Ok(1)
}

fn main() {
    let _ = fulfil;
}
