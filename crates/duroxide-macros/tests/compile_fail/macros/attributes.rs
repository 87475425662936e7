//! Attributes that say what cannot be.

use duroxide::prelude::*;

#[activity(nam = "Charge")]
async fn misspelt() -> Result<u32, String> {
    Ok(1)
}

#[orchestration(retries = 3)]
async fn unknown(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(1)
}

#[activity(name = "")]
async fn empty_name() -> Result<u32, String> {
    Ok(1)
}

#[activity(name = "__duroxide_syscall:new_guid")]
async fn reserved_name() -> Result<u32, String> {
    Ok(1)
}

#[activity(name = Charge)]
async fn name_is_no_text() -> Result<u32, String> {
    Ok(1)
}

#[activity(name)]
async fn name_without_value() -> Result<u32, String> {
    Ok(1)
}

#[activity(name = "a", name = "b")]
async fn named_twice() -> Result<u32, String> {
    Ok(1)
}

#[activity(version = "2.0.0")]
async fn activity_with_version() -> Result<u32, String> {
    Ok(1)
}

#[orchestration(version = "2")]
async fn bad_version(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(1)
}

#[orchestration(version = "1.02.0")]
async fn leading_zero(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(1)
}

#[orchestration(retry = RetryPolicy::exponential(3))]
async fn retried_orchestration(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(1)
}

#[activity(non_retryable = is_final)]
async fn pattern_that_matches_all() -> Result<u32, String> {
    Ok(1)
}

#[activity(non_retryable)]
async fn pattern_missing() -> Result<u32, String> {
    Ok(1)
}

#[activity(unchecked)]
async fn unchecked_activity() -> Result<u32, String> {
    Ok(1)
}

#[activity(crate)]
async fn crate_without_path() -> Result<u32, String> {
    Ok(1)
}

#[orchestration(crate = "my_duroxide")]
async fn crate_as_text(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(1)
}

#[activity(crate = ::duroxide, crate = my_duroxide)]
async fn crate_twice() -> Result<u32, String> {
    Ok(1)
}

fn main() {}
