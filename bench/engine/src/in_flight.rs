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
use crate::calls::StoreCalls;
use crate::world::{ProcessFigures, World, resident_mb};

const STEPS: usize = 50;
const FEW: usize = 500;
const STARTS_AT_ONCE: usize = 512;
/// How much more a step may cost than with few in flight: if all fit, and if a tenth does.
const GOALS: (f64, f64) = (1.2, 2.0);
/// More than that the process may not take for what is in memory, beside the budget: the store's own caches and the work
/// that is under way.
const BESIDE_THE_BUDGET_MB: f64 = 96.0;

async fn chain(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    for step in 0..STEPS {
        ctx.schedule_activity("Nothing", step.to_string()).await?;
    }
    Ok(String::new())
}

/// What stays in memory.
#[derive(Clone, Copy)]
enum Residents {
    All,
    Instances(usize),
    Megabytes(usize),
}

pub async fn run(many: usize) -> Outcome<()> {
    let calls = StoreCalls::count_all()?;
    println!("{STEPS} steps each, durability Normal, processor time of the whole process");
    println!(
        "{:>10} {:>12} {:>10} {:>8} {:>10} {:>12} {:>10}",
        "in flight", "resident", "us/step", "times", "steps/s", "loads/step", "RSS MB"
    );
    let few = measure(FEW, Residents::All, &calls).await?;
    let print = |in_flight: usize, resident: &str, cost: &Cost| {
        let Cost { cpu_us, steps_per_second, loads, resident_mb } = cost;
        let times = cpu_us / few.cpu_us;
        println!(
            "{in_flight:>10} {resident:>12} {cpu_us:>10.0} {times:>8.2} {steps_per_second:>10.0} {loads:>12.3} {resident_mb:>10.0}"
        );
    };
    print(FEW, "all", &few);
    // Before those that take more, because the process keeps what it once had.
    let budget_mb = (many / 1_000).max(1);
    let budget = measure(many, Residents::Megabytes(budget_mb), &calls).await?;
    print(many, &format!("{budget_mb} MiB"), &budget);
    let tenth = measure(many, Residents::Instances(many / 10), &calls).await?;
    print(many, "a tenth", &tenth);
    let all = measure(many, Residents::All, &calls).await?;
    print(many, "all", &all);
    let none = measure(many.min(2_000), Residents::Instances(0), &calls).await?;
    print(many.min(2_000), "none", &none);
    let goal = |what: &str, met: bool| println!("{what}: {}", if met { "met" } else { "MISSED" });
    goal(&format!("at most {} times if all fit", GOALS.0), all.cpu_us <= few.cpu_us * GOALS.0);
    goal(&format!("at most {} times if a tenth does", GOALS.1), tenth.cpu_us <= few.cpu_us * GOALS.1);
    goal("no more loads than turns of what does not fit", tenth.loads <= 0.9 + 1.0 / STEPS as f64);
    let beside = budget.resident_mb - budget_mb as f64;
    goal(&format!("at most {BESIDE_THE_BUDGET_MB} MB beside the budget"), beside <= BESIDE_THE_BUDGET_MB);
    Ok(())
}

struct Cost {
    cpu_us: f64,
    steps_per_second: f64,
    /// How often an instance was made anew from its history, for each step.
    loads: f64,
    /// How much more memory the process held at the most than before.
    resident_mb: f64,
}

async fn measure(in_flight: usize, residents: Residents, calls: &StoreCalls) -> Outcome<Cost> {
    let activities = ActivityRegistry::builder()
        .register("Nothing", |_: ActivityContext, _: String| async move { Ok(String::new()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("Chain", chain).build();
    let mut options = RuntimeOptions { resident_bytes: Some(usize::MAX), ..Default::default() };
    match residents {
        Residents::All => {}
        Residents::Instances(instances) => options.resident_instances = instances,
        Residents::Megabytes(megabytes) => options.resident_bytes = Some(megabytes << 20),
    }
    let world = World::with_options(Durability::Normal, activities, orchestrations, options).await?;
    let (mb_before, loads_before) = (resident_mb()?, calls.rebuilt());
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
    let mut most_mb = resident_mb()?;
    for number in 0..in_flight {
        world.output(&format!("chain-{number}")).await?;
        most_mb = most_mb.max(resident_mb()?);
    }
    let (took, used) = (began.elapsed(), ProcessFigures::read()?.since(&before));
    let steps = (in_flight * STEPS) as f64;
    world.runtime.shutdown(None).await;
    Ok(Cost {
        cpu_us: used.cpu.as_secs_f64() * 1e6 / steps,
        steps_per_second: steps / took.as_secs_f64(),
        loads: (calls.rebuilt() - loads_before) as f64 / steps,
        resident_mb: most_mb - mb_before,
    })
}
