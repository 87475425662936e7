//! The cost of the next step of a chain, when its history is short and when it is long.
//!
//! Each step's completion carries the time at which it was recorded, so one run shows the whole curve.

use duroxide::providers::Provider;
use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, EventKind, OrchestrationContext, OrchestrationRegistry};

use crate::Outcome;
use crate::world::World;

async fn chain(ctx: OrchestrationContext, steps: String) -> Result<String, String> {
    let steps: usize = steps.parse().map_err(|_| "not a number")?;
    for step in 0..steps {
        ctx.schedule_activity("Nothing", step.to_string()).await?;
    }
    Ok(String::new())
}

pub async fn run(steps: usize) -> Outcome<()> {
    let activities = ActivityRegistry::builder()
        .register("Nothing", |_: ActivityContext, _: String| async move { Ok(String::new()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("Chain", chain).build();
    for durability in [Durability::Normal, Durability::Full] {
        let world = World::new(durability, activities.clone(), orchestrations.clone()).await?;
        world.client.start_orchestration("chain", "Chain", steps.to_string()).await?;
        world.output("chain").await?;
        let times: Vec<u64> = world
            .store
            .read("chain")
            .await?
            .iter()
            .filter(|event| matches!(event.kind, EventKind::ActivityCompleted { .. }))
            .map(|event| event.timestamp_ms)
            .collect();
        println!("\nchain of {steps} steps, durability {durability:?}");
        println!("{:>22}  {:>8}", "steps", "us/step");
        let window = steps.min(1_000);
        let cost =
            |from: usize, to: usize| (times[to - 1] - times[from]) as f64 * 1e3 / (to - 1 - from) as f64;
        for from in (0..steps).step_by(window) {
            let to = (from + window).min(steps);
            println!("{:>22}  {:>8.0}", format!("{from} to {to}"), cost(from, to));
        }
        let (early, late) = (cost(100, window), cost(steps - window + 100, steps));
        println!("the last thousand cost {:.2} times the first", late / early);
        world.runtime.shutdown(None).await;
    }
    Ok(())
}
