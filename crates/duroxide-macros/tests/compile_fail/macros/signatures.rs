//! Functions that can be neither activities nor orchestrations.

use duroxide::prelude::*;

#[activity]
fn not_async(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
fn orchestration_not_async(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn generic<T>(value: T) -> Result<T, String> {
    Ok(value)
}

#[activity]
async fn const_generic<const N: usize>(values: [u32; N]) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn lifetime<'a>(text: &'a str) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn opaque_argument(text: impl Into<String>) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn trait_object(n: u32, other: &dyn std::fmt::Debug) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn mutable_reference(list: &mut Vec<u32>) -> Result<(), String> {
    Ok(())
}

#[activity]
async fn opaque_result(n: u32) -> impl std::fmt::Display {
    n
}

#[activity]
async fn function_argument(f: fn(u32) -> u32) -> Result<u32, String> {
    Ok(f(1))
}

#[activity]
async unsafe fn is_unsafe() -> Result<u32, String> {
    Ok(1)
}

#[activity]
async extern "C" fn is_extern() -> Result<u32, String> {
    Ok(1)
}

#[activity]
const async fn is_const() -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn variadic(n: u32, rest: ...) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
async fn bounded(ctx: OrchestrationContext) -> Result<u32, String>
where
    u32: Send,
{
    Ok(1)
}

#[activity]
async fn static_reference(text: &'static str) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn pointer(bytes: *const u8) -> Result<u32, String> {
    Ok(1)
}

#[activity]
async fn inferred(n: _) -> Result<u32, String> {
    Ok(n)
}

#[activity]
async fn nine(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8) -> Result<u8, String> {
    Ok(a)
}

#[activity]
async fn attribute_on_argument(#[serde(default)] n: u32) -> Result<u32, String> {
    Ok(n)
}

#[activity]
async fn wrong_context(ctx: OrchestrationContext, n: u32) -> Result<u32, String> {
    Ok(n)
}

#[activity]
async fn context_comes_late(n: u32, ctx: ActivityContext) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
async fn no_context(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
async fn activity_context(ctx: ActivityContext, n: u32) -> Result<u32, String> {
    Ok(n)
}

#[orchestration]
async fn mutable_context(ctx: &mut OrchestrationContext) -> Result<u32, String> {
    Ok(1)
}

#[orchestration]
async fn services(ctx: OrchestrationContext, State(db): State<String>) -> Result<u32, String> {
    Ok(1)
}

#[activity]
struct Charge;

#[orchestration]
mod fulfil {}

struct Shop;

impl Shop {
    #[activity]
    async fn method(&self, n: u32) -> Result<u32, String> {
        Ok(n)
    }

    #[orchestration]
    async fn orchestration_method(self, ctx: OrchestrationContext) -> Result<u32, String> {
        Ok(1)
    }
}

fn main() {}
