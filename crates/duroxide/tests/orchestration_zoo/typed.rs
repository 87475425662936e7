//! Sound and unsound code as the guide writes it: typed functions, `select!`, sagas, requests, cancellation.

use duroxide::prelude::*;
use duroxide::{DuroxideBuilder, Request};
use serde::{Deserialize, Serialize};

#[activity(name = "T")]
async fn step(n: u32) -> Result<u32, String> {
    Ok(n)
}

#[derive(Serialize, Deserialize)]
pub struct Ask;

impl Request for Ask {
    const NAME: &'static str = "ask";
    type Reply = u32;
}

#[orchestration]
async fn chain(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(step(&ctx, 1).await? + step(&ctx, 2).timeout(secs(5)).await?)
}

#[orchestration]
async fn joins(ctx: OrchestrationContext) -> Result<u32, String> {
    let (one, two, three) = join!(step(&ctx, 1), step(&ctx, 2), step(&ctx, 3)).await;
    Ok(one? + two? + three?)
}

#[orchestration]
async fn selects_in_a_loop(ctx: OrchestrationContext) -> Result<u32, String> {
    let mut rounds = 0;
    loop {
        select! {
            event = ctx.event::<String>("Go") => { event.map_err(|error| error.to_string())?; return Ok(rounds); },
            () = ctx.timer(secs(1)) => rounds += 1,
        }
    }
}

#[orchestration]
async fn saga_that_succeeds(ctx: OrchestrationContext) -> Result<u32, String> {
    ctx.saga(async |saga| {
        saga.undo(step(&ctx, 9));
        step(&ctx, 1).await
    })
    .await
}

#[orchestration]
async fn saga_that_undoes(ctx: OrchestrationContext) -> Result<u32, String> {
    let undone: Result<u32, String> = ctx
        .saga(async |saga| {
            saga.undo(step(&ctx, 9));
            step(&ctx, 1).await?;
            Err("no".to_string())
        })
        .await;
    Ok(undone.map_or(3, |n| n))
}

#[orchestration]
async fn listens_for_its_cancellation(ctx: OrchestrationContext) -> Result<u32, String> {
    let mut cancelled = std::pin::pin!(ctx.cancelled());
    for n in 1..=3 {
        select! {
            done = step(&ctx, n) => { done?; },
            _ = &mut cancelled => return Ok(0),
        }
    }
    Ok(3)
}

#[orchestration]
async fn waits_for_a_request_or_a_timer(ctx: OrchestrationContext) -> Result<u32, String> {
    select! {
        ask = ctx.request::<Ask>() => { ask.reply(7); Ok(7) },
        () = ctx.timer(secs(3)) => Ok(3),
    }
}

#[orchestration]
async fn is_patched(ctx: OrchestrationContext) -> Result<u32, String> {
    if ctx.patched("more") { step(&ctx, 2).await } else { step(&ctx, 1).await }
}

#[orchestration]
async fn calls_a_child(ctx: OrchestrationContext) -> Result<u32, String> {
    chain(&ctx).timeout(mins(1)).await
}

#[orchestration]
async fn keeps_state(ctx: OrchestrationContext) -> Result<u32, String> {
    ctx.set_status(&"begun".to_string());
    for n in 1..=4_u32 {
        ctx.set_value("n", &n);
        ctx.timer(secs(1)).await;
    }
    Ok(4)
}

/// The code, and what must come out.
pub const SOUND: [(&str, &str); 10] = [
    ("chain", "3"),
    ("joins", "6"),
    ("selects_in_a_loop", "4"),
    ("saga_that_succeeds", "1"),
    ("saga_that_undoes", "3"),
    ("listens_for_its_cancellation", "3"),
    ("waits_for_a_request_or_a_timer", "3"),
    ("is_patched", "2"),
    ("calls_a_child", "3"),
    ("keeps_state", "4"),
];

/// Changes with each call. The macro does not see what a helper does.
fn tick() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static TICKS: AtomicU32 = AtomicU32::new(0);
    TICKS.fetch_add(1, Ordering::SeqCst)
}

/// Waits for something that no step brings.
async fn waits_on_a_channel() {
    let (held, comes) = tokio::sync::oneshot::channel::<()>();
    let _ = comes.await;
    drop(held);
}

#[orchestration]
async fn another_input_each_time(ctx: OrchestrationContext) -> Result<u32, String> {
    step(&ctx, tick()).await
}

#[orchestration]
async fn another_timer_or_step(ctx: OrchestrationContext) -> Result<u32, String> {
    if tick().is_multiple_of(2) {
        ctx.timer(secs(1)).await;
    }
    step(&ctx, 1).await
}

#[orchestration]
async fn another_child_each_time(ctx: OrchestrationContext) -> Result<u32, String> {
    keeps_state(&ctx).id(format!("child-{}", tick())).await
}

#[orchestration]
async fn waits_in_a_helper(ctx: OrchestrationContext) -> Result<u32, String> {
    step(&ctx, 1).await?;
    waits_on_a_channel().await;
    Ok(1)
}

#[orchestration]
async fn waits_in_a_saga(ctx: OrchestrationContext) -> Result<u32, String> {
    ctx.saga(async |saga| {
        saga.undo(step(&ctx, 9));
        step(&ctx, 1).await?;
        waits_on_a_channel().await;
        Ok(1)
    })
    .await
}

#[orchestration]
async fn waits_at_once(_ctx: OrchestrationContext) -> Result<u32, String> {
    waits_on_a_channel().await;
    Ok(1)
}

#[orchestration]
async fn waits_after_a_value_of_another(ctx: OrchestrationContext) -> Result<u32, Failure> {
    ctx.value_of::<u32>("nobody", "n").await?;
    waits_on_a_channel().await;
    Ok(1)
}

#[orchestration]
async fn another_output_each_time(_ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(tick())
}

/// The code, and what the reason must say: besides the kind, the line of the code that asked last, or of the code itself.
pub const UNSOUND: [(&str, &str); 8] = [
    ("waits_at_once", "before its first request, in the code at"),
    ("waits_after_a_value_of_another", "after its request at"),
    ("another_output_each_time", "does not decide alike"),
    ("another_input_each_time", "mismatch"),
    ("another_timer_or_step", "mismatch"),
    ("another_child_each_time", "mismatch"),
    ("waits_in_a_helper", "foreign wait"),
    ("waits_in_a_saga", "foreign wait"),
];

pub fn functions(app: DuroxideBuilder) -> DuroxideBuilder {
    let app = app.activity(step).orchestration(chain).orchestration(joins).orchestration(selects_in_a_loop);
    let app = app.orchestration(saga_that_succeeds).orchestration(saga_that_undoes);
    let app = app.orchestration(listens_for_its_cancellation).orchestration(waits_for_a_request_or_a_timer);
    let app = app.orchestration(is_patched).orchestration(calls_a_child).orchestration(keeps_state);
    let app = app.orchestration(another_input_each_time).orchestration(another_timer_or_step);
    let app = app.orchestration(waits_at_once).orchestration(waits_after_a_value_of_another);
    let app = app.orchestration(another_output_each_time);
    app.orchestration(another_child_each_time).orchestration(waits_in_a_helper).orchestration(waits_in_a_saga)
}
