//! The orchestrations and activities of all workloads.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

use super::machine::now_ms;

/// Activities that have run in this process.
pub static ACTIVITIES_RUN: AtomicU64 = AtomicU64::new(0);
/// Orchestrations of [`sleep`] that have gone to sleep in this process.
pub static ASLEEP: AtomicU64 = AtomicU64::new(0);
/// Where `Logged` writes a line for every run.
pub static STEP_LOG: OnceLock<PathBuf> = OnceLock::new();

/// Steps of each of many small orchestrations.
pub const FEW_STEPS: u64 = 5;
const PAYLOAD_BYTES: usize = 64 * 1024;
/// How long a step of `Logged` takes, so that a kill finds some of them running.
const LOGGED_STEP: Duration = Duration::from_millis(2);

pub fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register("Nop", |_: ActivityContext, input: String| async move {
            ACTIVITIES_RUN.fetch_add(1, Ordering::Relaxed);
            Ok(input)
        })
        .register("Big", |_: ActivityContext, _: String| async move {
            ACTIVITIES_RUN.fetch_add(1, Ordering::Relaxed);
            Ok("x".repeat(PAYLOAD_BYTES))
        })
        .register("Logged", |_: ActivityContext, step: String| async move {
            log_step(&step).map_err(|error| error.to_string())?;
            tokio::time::sleep(LOGGED_STEP).await;
            Ok(step)
        })
        .build()
}

pub fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Chain", chain)
        .register("Fanout", fanout)
        .register("Parent", parent)
        .register("One", one)
        .register("Again", again)
        .register("Payload", payload)
        .register("Sleep", sleep)
        .register("SleepUntil", sleep_until)
        .register("Ping", ping)
        .register("LoggedSteps", logged_steps)
        .build()
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number"))
}

async fn chain(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    for step in 0..number(&steps)? {
        ctx.schedule_activity("Nop", step.to_string()).await?;
    }
    Ok(steps)
}

async fn fanout(ctx: OrchestrationContext, width: String) -> Result<String, String> {
    let width = number(&width)?;
    let branches = (0..width).map(|branch| ctx.schedule_activity("Nop", branch.to_string())).collect();
    let results: Result<Vec<String>, String> = ctx.join(branches).await.into_iter().collect();
    Ok(results?.len().to_string())
}

async fn parent(ctx: OrchestrationContext, width: String) -> Result<String, String> {
    let width = number(&width)?;
    let children = (0..width).map(|child| ctx.schedule_sub_orchestration("One", child.to_string())).collect();
    let results: Result<Vec<String>, String> = ctx.join(children).await.into_iter().collect();
    Ok(results?.len().to_string())
}

async fn one(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    ctx.schedule_activity("Nop", input).await
}

async fn again(ctx: OrchestrationContext, rest: String) -> Result<String, String> {
    let rest = number(&rest)?;
    ctx.schedule_activity("Nop", rest.to_string()).await?;
    if rest > 1 {
        return ctx.continue_as_new((rest - 1).to_string()).await;
    }
    Ok(String::new())
}

async fn payload(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    let mut bytes = 0;
    for step in 0..number(&steps)? {
        bytes += ctx.schedule_activity("Big", step.to_string()).await?.len();
    }
    Ok(bytes.to_string())
}

async fn sleep(ctx: OrchestrationContext, ms: String) -> Result<String, String> {
    let delay = Duration::from_millis(number(&ms)?);
    let timer = ctx.schedule_timer(delay);
    ASLEEP.fetch_add(1, Ordering::Relaxed);
    timer.await;
    Ok(ms)
}

/// Sleeps until a moment, however late it was started. A replay takes the due time from the history, so reading the
/// machine's clock is harmless in this one place.
async fn sleep_until(ctx: OrchestrationContext, due_ms: String) -> Result<String, String> {
    let delay = Duration::from_millis(number(&due_ms)?.saturating_sub(now_ms()));
    ctx.schedule_timer(delay).await;
    Ok(due_ms)
}

async fn ping(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    let ball = ctx.schedule_wait("ball");
    ctx.set_custom_status("ready");
    Ok(ball.await)
}

async fn logged_steps(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    for step in 0..FEW_STEPS {
        ctx.schedule_activity("Logged", format!("{name}/{step}")).await?;
    }
    Ok(name)
}

/// One write for the whole line, so that lines stay whole whoever dies.
fn log_step(step: &str) -> std::io::Result<()> {
    let Some(path) = STEP_LOG.get() else { return Ok(()) };
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{step}\n").as_bytes())
}
