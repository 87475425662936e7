//! Arguments, results and errors that cannot be recorded.

#![allow(unused_variables)]

use duroxide::prelude::*;

struct Plain;

#[derive(serde::Serialize)]
struct OnlySerialize;

#[activity]
async fn argument(plain: Plain) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn half(half: OnlySerialize) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn output() -> Result<Plain, String> {
    Ok(Plain)
}

#[orchestration]
async fn orchestration_argument(ctx: OrchestrationContext, plain: Plain) -> Result<u32, String> {
    Ok(1)
}

fn main() {}
