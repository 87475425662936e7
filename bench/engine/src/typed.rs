//! What the typed interface costs: the same steps by `#[activity]` and by names and strings.
//!
//! The two take turns, so that both meet the same machine, and each figure is the median of its rounds.

use std::time::Duration;

use duroxide::prelude::*;
use duroxide::providers::sqlite::Durability;

use crate::Outcome;
use crate::world::World;
use tokio::time::Instant;

const ROUNDS: usize = 10;

#[activity]
async fn next(n: u64) -> Result<u64, String> {
    Ok(n + 1)
}

#[orchestration]
async fn chain(ctx: OrchestrationContext, steps: u64) -> Result<u64, String> {
    let mut n = 0;
    for _ in 0..steps {
        n = next(&ctx, n).await?;
    }
    Ok(n)
}

#[orchestration]
async fn parallel(ctx: OrchestrationContext, steps: u64) -> Result<u64, String> {
    let ended = ctx.join((0..steps).map(|n| next(&ctx, n)).collect()).await;
    ended.into_iter().try_fold(0, |sum, n| Ok(sum + n?))
}

async fn untyped_next(_: ActivityContext, n: String) -> Result<String, String> {
    Ok((number(&n)? + 1).to_string())
}

async fn untyped_chain(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    let mut n = "0".to_string();
    for _ in 0..number(&steps)? {
        n = ctx.schedule_activity("Next", n).await?;
    }
    Ok(n)
}

async fn untyped_parallel(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    let asked = (0..number(&steps)?).map(|n| ctx.schedule_activity("Next", n.to_string())).collect();
    let ended = ctx.join(asked).await.into_iter();
    let sum = ended.map(|n| number(&n?)).sum::<Result<u64, String>>()?;
    Ok(sum.to_string())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error: std::num::ParseIntError| error.to_string())
}

pub async fn run(steps: usize) -> Outcome<()> {
    let activities =
        ActivityRegistry::builder().activity(next).register("Next", untyped_next).build_result()?;
    let orchestrations = OrchestrationRegistry::builder()
        .orchestration(chain)
        .orchestration(parallel)
        .register("Chain", untyped_chain)
        .register("Parallel", untyped_parallel)
        .build_result()?;
    let world = World::new(Durability::Normal, activities, orchestrations).await?;
    println!("{steps} steps, median of {ROUNDS} rounds, us a step (not synced)");
    for (typed, untyped) in [("chain", "Chain"), ("parallel", "Parallel")] {
        let (mut by_type, mut by_name) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let mut sides = [(typed, &mut by_type), (untyped, &mut by_name)];
            // Neither always comes first, and finds the log as the other has left it.
            sides.rotate_left(round % 2);
            for (name, times) in sides {
                let id = format!("{name}-{round}");
                let started = Instant::now();
                world.client.start_orchestration(&*id, name, steps.to_string()).await?;
                world.output(&id).await?;
                times.push(started.elapsed());
            }
        }
        let (by_type, by_name) = (per_step(by_type, steps), per_step(by_name, steps));
        println!("{typed}: typed {by_type:.1}, untyped {by_name:.1}, ratio {:.3}", by_type / by_name);
    }
    world.runtime.shutdown(None).await;
    Ok(())
}

fn per_step(mut times: Vec<Duration>, steps: usize) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6 / steps as f64
}
