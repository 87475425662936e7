//! What a runtime costs that has nothing to do: processor time, calls of the store, reads and writes of its file.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Outcome;
use crate::calls::StoreCalls;
use crate::world::{ProcessFigures, World};

/// Longer than the interval at which a runtime updates its gauges from the store, so that this is always seen.
const WATCHED: Duration = Duration::from_secs(70);
/// Until the threads that helped with the start have ended.
const SETTLING: Duration = Duration::from_secs(12);
/// Enough to fill the store's group commits.
const STARTS_AT_ONCE: usize = 512;
/// The processor time that an idle runtime may take, in percent of a core.
const GOAL_PERCENT: f64 = 0.2;

async fn sleeper(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ctx.schedule_timer(Duration::from_secs(24 * 60 * 60)).await;
    Ok(String::new())
}

pub async fn run(sleepers: usize) -> Outcome<()> {
    let calls = StoreCalls::count_all()?;
    let orchestrations = OrchestrationRegistry::builder().register("Sleeper", sleeper).build();
    let world = World::new(Durability::Normal, ActivityRegistry::builder().build(), orchestrations).await?;
    watch("no instances", &calls).await?;
    let began = Instant::now();
    start(&world, sleepers).await?;
    println!("\n{sleepers} sleepers started in {:.1} s", began.elapsed().as_secs_f64());
    watch(&format!("{sleepers} sleeping instances"), &calls).await?;
    world.runtime.shutdown(None).await;
    Ok(())
}

async fn start(world: &World, sleepers: usize) -> Outcome<()> {
    let mut starts = JoinSet::new();
    for n in 0..sleepers {
        let client = world.client.clone();
        starts.spawn(async move { client.start_orchestration(format!("sleeper-{n}"), "Sleeper", "").await });
        if starts.len() >= STARTS_AT_ONCE {
            starts.join_next().await.transpose()?.transpose()?;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    // All sleep when each has had its first turn, and its history is a start and a timer.
    while world.client.get_system_metrics().await?.total_events < 2 * sleepers as u64 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

async fn watch(name: &str, calls: &Arc<StoreCalls>) -> Outcome<()> {
    tokio::time::sleep(SETTLING).await;
    // Reading the figures is reading, too.
    let own = ProcessFigures::read()?;
    let (before, calls_before) = (ProcessFigures::read()?, calls.read());
    let own_reads = before.since(&own).reads;
    tokio::time::sleep(WATCHED).await;
    let used = ProcessFigures::read()?.since(&before);
    let share = used.cpu.as_secs_f64() / WATCHED.as_secs_f64() * 100.0;
    let verdict = if share < GOAL_PERCENT { "met" } else { "MISSED" };
    println!("\n{name}, watched for {} s", WATCHED.as_secs());
    println!("  processor time        {:>6} ms", used.cpu.as_millis());
    println!("  share of a core       {share:>6.3} % (goal: below {GOAL_PERCENT} %: {verdict})");
    println!("  reads, writes (calls) {:>6}, {}", used.reads.saturating_sub(own_reads), used.writes);
    println!("  threads woken         {:>6} times", used.wake_ups);
    let during: Vec<String> = calls
        .read()
        .into_iter()
        .filter_map(|(operation, count)| {
            let new = count - calls_before.get(&operation).copied().unwrap_or(0);
            (new > 0).then(|| format!("{operation} {new}"))
        })
        .collect();
    println!(
        "  calls of the store    {:>6}",
        if during.is_empty() { "none".into() } else { during.join(", ") }
    );
    Ok(())
}
