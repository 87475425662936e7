//! The processor time of a runtime that has nothing to do.

use std::time::Duration;

use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::world::{World, cpu_time};

const WATCHED: Duration = Duration::from_secs(20);

async fn sleeper(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ctx.schedule_timer(Duration::from_secs(24 * 60 * 60)).await;
    Ok(String::new())
}

pub async fn run(sleepers: usize) -> Outcome<()> {
    let orchestrations = OrchestrationRegistry::builder().register("Sleeper", sleeper).build();
    let world = World::new(Durability::Normal, ActivityRegistry::builder().build(), orchestrations).await?;
    report("empty", &world).await?;

    let mut starts = JoinSet::new();
    for n in 0..sleepers {
        let client = world.client.clone();
        starts.spawn(async move { client.start_orchestration(format!("sleeper-{n}"), "Sleeper", "").await });
        if starts.len() >= 256 {
            starts.join_next().await.transpose()?.transpose()?;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    // All sleep when each has had its first turn and only its timer is left.
    while world.client.get_system_metrics().await?.total_events < 2 * sleepers as u64 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    report(&format!("{sleepers} sleepers"), &world).await?;
    world.runtime.shutdown(None).await;
    Ok(())
}

async fn report(name: &str, _world: &World) -> Outcome<()> {
    let before = cpu_time()?;
    tokio::time::sleep(WATCHED).await;
    let used = cpu_time()? - before;
    let share = used.as_secs_f64() / WATCHED.as_secs_f64() * 100.0;
    println!(
        "{name}: {} ms of processor time in {} s, {share:.2} % of a core",
        used.as_millis(),
        WATCHED.as_secs()
    );
    Ok(())
}
