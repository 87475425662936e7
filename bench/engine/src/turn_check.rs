//! What the turn check costs: off, on but for no turn in practice, and for every turn.
//!
//! "Off" is to cost nothing. There is no build without the check to compare it with, so it stands beside `OneIn(u32::MAX)`, which
//! decides anew for each turn and checks only the very first.

use std::time::Duration;

use duroxide::prelude::*;
use duroxide::providers::sqlite::Durability;
use duroxide::runtime::TurnCheck;

use crate::Outcome;
use crate::rounds::{Cost, Watch, compare, together};
use crate::world::World;

const FEW_STEPS: u64 = 5;
/// The check leaves out histories of more than 1,000 events, so no chain has more than 400 steps of two events each.
const LONGEST_CHAIN: usize = 400;
const WARM_UP: usize = 20;

#[activity]
async fn nothing() -> Result<(), String> {
    Ok(())
}

#[orchestration]
async fn chain(ctx: OrchestrationContext, steps: u64) -> Result<(), String> {
    for _ in 0..steps {
        nothing(&ctx).await?;
    }
    Ok(())
}

pub async fn run(size: usize, rounds: usize) -> Outcome<()> {
    let checks = [TurnCheck::Off, TurnCheck::OneIn(u32::MAX), TurnCheck::Every];
    let names = ["Off", "OneIn(u32::MAX)", "Every"];
    println!("turn check: {size} a run, {rounds} rounds, durability Normal, a fresh file for each run");
    let (chains, steps) = (size.div_ceil(LONGEST_CHAIN), size.min(LONGEST_CHAIN));
    let text = format!("chain: {chains} times an orchestration of {steps} sequential activities; a step");
    compare(&text, &names, rounds, async |way| run_chains(&world(checks[way]).await?, chains, steps).await)
        .await?;
    let text = format!("parallel: {size} orchestrations of {FEW_STEPS} activities, started together; a step");
    compare(&text, &names, rounds, async |way| run_parallel(&world(checks[way]).await?, size).await).await
}

async fn world(turn_check: TurnCheck) -> Outcome<World> {
    let activities = ActivityRegistry::builder().activity(nothing).build_result()?;
    let orchestrations = OrchestrationRegistry::builder().orchestration(chain).build_result()?;
    let options = RuntimeOptions { turn_check, ..Default::default() };
    let world = World::with_options(Durability::Normal, activities, orchestrations, options).await?;
    together(WARM_UP, |n| one(world.client.clone(), format!("warm-{n}"), FEW_STEPS)).await?;
    Ok(world)
}

async fn run_chains(world: &World, chains: usize, steps: usize) -> Outcome<Cost> {
    let watch = Watch::start();
    for n in 0..chains {
        one(world.client.clone(), format!("i-{n}"), steps as u64).await?;
    }
    let cost = watch.stop(chains * steps);
    world.runtime.clone().shutdown(None).await;
    Ok(cost)
}

async fn run_parallel(world: &World, count: usize) -> Outcome<Cost> {
    let watch = Watch::start();
    together(count, |n| one(world.client.clone(), format!("i-{n}"), FEW_STEPS)).await?;
    let cost = watch.stop(count * FEW_STEPS as usize);
    world.runtime.clone().shutdown(None).await;
    Ok(cost)
}

async fn one(client: Client, id: String, steps: u64) -> Outcome<()> {
    let started = client.start(chain, id, steps).await?;
    Ok(started.result_within(Duration::from_secs(600)).await?)
}
