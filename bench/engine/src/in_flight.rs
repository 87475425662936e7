//! What a step costs with few and with many orchestrations in flight, and with a cache that holds a part of them.
//!
//! All orchestrations are started before the first is done, and each has the same number of steps, so that they take their
//! turns in rounds: the pattern in which a cache that is a little too small may find nothing.

use duroxide::RuntimeOptions;
use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Outcome;
use crate::world::{ProcessFigures, World, resident_mb};

const STEPS: usize = 50;
const FEW: usize = 500;
const STARTS_AT_ONCE: usize = 512;
/// How much more a step may cost than with few in flight: if all fit, and if a tenth does.
const GOALS: (f64, f64) = (1.2, 2.0);

async fn chain(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    for step in 0..STEPS {
        ctx.schedule_activity("Nothing", step.to_string()).await?;
    }
    Ok(String::new())
}

pub async fn run(many: usize) -> Outcome<()> {
    println!("{STEPS} steps each, durability Normal, processor time of the whole process");
    println!(
        "{:>10} {:>10} {:>10} {:>8} {:>10} {:>8}",
        "in flight", "resident", "us/step", "times", "steps/s", "RSS MB"
    );
    let few = measure(FEW, usize::MAX).await?;
    print_row(FEW, "all", &few, &few);
    let all = measure(many, usize::MAX).await?;
    print_row(many, "all", &all, &few);
    let tenth = measure(many, many / 10).await?;
    print_row(many, "a tenth", &tenth, &few);
    let none = measure(many.min(2_000), 0).await?;
    print_row(many.min(2_000), "none", &none, &few);
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    println!(
        "goals: at most {} times if all fit: {}; at most {} times if a tenth does: {}",
        GOALS.0,
        verdict(all.cpu_us <= few.cpu_us * GOALS.0),
        GOALS.1,
        verdict(tenth.cpu_us <= few.cpu_us * GOALS.1)
    );
    Ok(())
}

struct Cost {
    cpu_us: f64,
    steps_per_second: f64,
    resident_mb: f64,
}

fn print_row(in_flight: usize, resident: &str, cost: &Cost, few: &Cost) {
    let Cost { cpu_us, steps_per_second, resident_mb } = cost;
    let times = cpu_us / few.cpu_us;
    println!(
        "{in_flight:>10} {resident:>10} {cpu_us:>10.0} {times:>8.2} {steps_per_second:>10.0} {resident_mb:>8.0}"
    );
}

async fn measure(in_flight: usize, resident_instances: usize) -> Outcome<Cost> {
    let activities = ActivityRegistry::builder()
        .register("Nothing", |_: ActivityContext, _: String| async move { Ok(String::new()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("Chain", chain).build();
    let options = RuntimeOptions { resident_instances, ..Default::default() };
    let world = World::with_options(Durability::Normal, activities, orchestrations, options).await?;
    let (before, began) = (ProcessFigures::read()?, Instant::now());
    let mut starts = JoinSet::new();
    for number in 0..in_flight {
        let client = world.client.clone();
        starts.spawn(async move { client.start_orchestration(format!("chain-{number}"), "Chain", "").await });
        if starts.len() >= STARTS_AT_ONCE {
            starts.join_next().await.transpose()?.transpose()?;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    for number in 0..in_flight {
        world.output(&format!("chain-{number}")).await?;
    }
    let (took, used) = (began.elapsed(), ProcessFigures::read()?.since(&before));
    let (steps, resident_mb) = ((in_flight * STEPS) as f64, resident_mb()?);
    world.runtime.shutdown(None).await;
    Ok(Cost {
        cpu_us: used.cpu.as_secs_f64() * 1e6 / steps,
        steps_per_second: steps / took.as_secs_f64(),
        resident_mb,
    })
}
