//! What the typed interface costs: the same steps by `#[activity]` and by names and strings, each on a fresh store.

use std::time::Duration;

use duroxide::prelude::*;
use duroxide::providers::sqlite::Durability;

use crate::Outcome;
use crate::rounds::{Cost, Watch, compare, together};
use crate::world::World;

/// The steps of an orchestration of `parallel`.
const FEW_STEPS: usize = 5;
/// Orchestrations that run before the watch starts.
const WARM_UP: usize = 20;
const TIME_LIMIT: Duration = Duration::from_secs(600);

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
async fn fanout(ctx: OrchestrationContext, steps: u64) -> Result<u64, String> {
    let ended = ctx.join((0..steps).map(|_| next(&ctx, 0)).collect()).await;
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

async fn untyped_fanout(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    let asked = (0..number(&steps)?).map(|_| ctx.schedule_activity("Next", "0")).collect();
    let ended = ctx.join(asked).await.into_iter();
    let sum = ended.map(|n| number(&n?)).sum::<Result<u64, String>>()?;
    Ok(sum.to_string())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error: std::num::ParseIntError| error.to_string())
}

#[derive(Clone, Copy)]
enum Interface {
    Strings,
    Typed,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Workload {
    /// One orchestration of sequential steps.
    Chain,
    /// Orchestrations of [`FEW_STEPS`] sequential steps, started together.
    Parallel,
    /// One orchestration that joins its steps.
    Fanout,
}

pub async fn run(size: usize, rounds: usize) -> Outcome<()> {
    println!(
        "typed beside strings: {size} a run, {rounds} rounds, durability Normal, a fresh file for each run"
    );
    for (workload, text) in [
        (Workload::Chain, format!("chain: one orchestration of {size} sequential activities; a step")),
        (Workload::Parallel, format!("parallel: {size} orchestrations of {FEW_STEPS} activities; a step")),
        (Workload::Fanout, format!("fanout: one orchestration that joins {size} activities; an activity")),
    ] {
        let interfaces = [Interface::Strings, Interface::Typed];
        compare(&text, &["strings", "typed"], rounds, async |way| {
            let world = world(RuntimeOptions::default()).await?;
            let cost = measure(&world, interfaces[way], workload, size).await?;
            world.runtime.shutdown(None).await;
            Ok(cost)
        })
        .await?;
    }
    Ok(())
}

/// A runtime that knows both interfaces.
async fn world(options: RuntimeOptions) -> Outcome<World> {
    let activities =
        ActivityRegistry::builder().activity(next).register("Next", untyped_next).build_result()?;
    let orchestrations = OrchestrationRegistry::builder()
        .orchestration(chain)
        .orchestration(fanout)
        .register("Chain", untyped_chain)
        .register("Fanout", untyped_fanout)
        .build_result()?;
    World::with_options(Durability::Normal, activities, orchestrations, options).await
}

async fn measure(world: &World, interface: Interface, workload: Workload, size: usize) -> Outcome<Cost> {
    let warm_up = |n| one(world.client.clone(), interface, Workload::Chain, format!("warm-{n}"), FEW_STEPS);
    together(WARM_UP, warm_up).await?;
    let watch = Watch::start();
    if workload == Workload::Parallel {
        let one = |n| one(world.client.clone(), interface, workload, format!("i-{n}"), FEW_STEPS);
        together(size, one).await?;
        return Ok(watch.stop(size * FEW_STEPS));
    }
    one(world.client.clone(), interface, workload, "i".to_string(), size).await?;
    Ok(watch.stop(size))
}

/// Runs one orchestration, by the client calls of the interface.
async fn one(
    client: Client,
    interface: Interface,
    workload: Workload,
    id: String,
    steps: usize,
) -> Outcome<()> {
    let wanted = steps as u64;
    let sum = match (interface, workload) {
        (Interface::Typed, Workload::Fanout) => {
            client.start(fanout, id, wanted).await?.result_within(TIME_LIMIT).await?
        }
        (Interface::Typed, _) => client.start(chain, id, wanted).await?.result_within(TIME_LIMIT).await?,
        (Interface::Strings, workload) => {
            let name = if workload == Workload::Fanout { "Fanout" } else { "Chain" };
            client.start_orchestration(&*id, name, steps.to_string()).await?;
            match client.wait_for_orchestration(&id, TIME_LIMIT).await? {
                OrchestrationStatus::Completed { output, .. } => number(&output)?,
                other => return Err(format!("{id} did not complete: {other:?}").into()),
            }
        }
    };
    if sum == wanted { Ok(()) } else { Err(format!("{sum} instead of {wanted} steps").into()) }
}
