//! Error types that cannot be those of a step.

use duroxide::prelude::*;

#[derive(Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
enum NoPlaceForFailures {
    #[error("declined")]
    Declined,
}

#[activity]
async fn no_place() -> Result<u32, NoPlaceForFailures> {
    Ok(1)
}

#[activity]
async fn io() -> Result<u32, std::io::Error> {
    Ok(1)
}

#[derive(Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
enum FulfilError {
    #[error(transparent)]
    Failed(#[from] Failure),
}

#[activity]
async fn charge() -> Result<u32, String> {
    Ok(1)
}

#[orchestration]
async fn fulfil(ctx: OrchestrationContext) -> Result<u32, FulfilError> {
    Ok(charge(&ctx).await?)
}

fn main() {}
