//! Repeats short runs of every kind of work, each on a store of its own, and watches that none of them stops.
//!
//! A lost wake-up shows once in hundreds of runs and then for ever, so what counts is how many runs there were, and how
//! many programs ran side by side. A run that makes no progress for [`STOPPED_AFTER`] has stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, RuntimeOptions};
use tokio::time::Instant;

use crate::Outcome;
use crate::world::World;

/// Shorter than the time after which a dispatcher asks its store without a signal, so that a lost signal shows.
const STOPPED_AFTER: Duration = Duration::from_secs(20);

const WORKLOADS: [&str; 8] =
    ["fanout", "chain", "parallel", "sessions", "timers", "events", "children", "continued"];

/// Counts everything that user code does.
#[derive(Clone, Default)]
struct Progress(Arc<AtomicU64>);

impl Progress {
    fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when nothing has happened for too long.
    async fn stops(&self) {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(STOPPED_AFTER).await;
            let now = self.0.load(Ordering::Relaxed);
            if now == seen {
                return;
            }
            seen = now;
        }
    }
}

/// Runs each workload `runs` times, or only the one that is named.
pub async fn run(runs: usize, only: Option<&str>) -> Outcome<()> {
    println!("{runs} runs of each workload; stopped means {} s without progress", STOPPED_AFTER.as_secs());
    println!("{:>10}  {:>8}  {:>8}  {:>10}", "workload", "runs", "stopped", "ms a run");
    let mut all_stopped = 0;
    for workload in WORKLOADS.into_iter().filter(|name| only.is_none_or(|only| only == *name)) {
        let (mut stopped, began) = (0, Instant::now());
        for number in 0..runs {
            stopped += usize::from(!once(workload, number).await?);
        }
        let ms = began.elapsed().as_millis() as f64 / runs as f64;
        println!("{workload:>10}  {runs:>8}  {stopped:>8}  {ms:>10.1}");
        all_stopped += stopped;
    }
    if all_stopped > 0 { Err(format!("{all_stopped} runs stopped").into()) } else { Ok(()) }
}

/// Does one run; returns false if it stopped.
async fn once(workload: &str, number: usize) -> Outcome<bool> {
    let progress = Progress::default();
    // Narrow as by default, and wide.
    let options = match number % 2 {
        0 => RuntimeOptions::default(),
        _ => RuntimeOptions { worker_concurrency: 32, orchestration_concurrency: 4, ..Default::default() },
    };
    let world =
        World::with_options(Durability::Full, activities(&progress), orchestrations(&progress), options)
            .await?;
    let work = drive(workload, &world.client);
    let ended = tokio::select! {
        ended = work => { ended?; true }
        () = progress.stops() => {
            let depths = world.client.get_queue_depths().await?;
            println!("{workload} stopped in run {number}: {depths:?}");
            false
        }
    };
    world.runtime.shutdown(None).await;
    Ok(ended)
}

async fn drive(workload: &str, client: &Client) -> Outcome<()> {
    let instances = match workload {
        "fanout" => vec![("FanOut", "1000".to_string())],
        "chain" => vec![("Chain", "50".to_string())],
        "parallel" => vec![("Chain", "5".to_string()); 50],
        "sessions" => (0..20).map(|n| ("Sessions", format!("s{}", n % 7))).collect(),
        "timers" => (1..=50).map(|ms| ("Timer", (ms % 10).to_string())).collect(),
        "events" => vec![("Event", String::new()); 20],
        "children" => vec![("Children", "30".to_string())],
        _ => vec![("Continued", "10".to_string()); 5],
    };
    for (number, (orchestration, input)) in instances.iter().enumerate() {
        client.start_orchestration(format!("i{number}"), *orchestration, input.clone()).await?;
    }
    if workload == "events" {
        for number in 0..instances.len() {
            client.enqueue_event(format!("i{number}"), "go", "").await?;
        }
    }
    for number in 0..instances.len() {
        client.wait_for_orchestration(&format!("i{number}"), Duration::from_secs(3600)).await?;
    }
    Ok(())
}

fn activities(progress: &Progress) -> ActivityRegistry {
    let progress = progress.clone();
    ActivityRegistry::builder()
        .register("Nothing", move |_: ActivityContext, _: String| {
            progress.note();
            async { Ok(String::new()) }
        })
        .build()
}

fn orchestrations(progress: &Progress) -> OrchestrationRegistry {
    let noted = |progress: &Progress| {
        let progress = progress.clone();
        move |ctx: OrchestrationContext, input: String| {
            progress.note();
            (ctx, input)
        }
    };
    let count = |text: &str| text.parse::<usize>().map_err(|_| "not a number".to_string());
    let (fan_out, chain, sessions, timer, event, children, continued) = (
        noted(progress),
        noted(progress),
        noted(progress),
        noted(progress),
        noted(progress),
        noted(progress),
        noted(progress),
    );
    OrchestrationRegistry::builder()
        .register("FanOut", move |ctx, input| {
            let (ctx, input) = fan_out(ctx, input);
            async move {
                let steps = (0..count(&input)?).map(|n| ctx.schedule_activity("Nothing", n.to_string()));
                let steps: Vec<_> = steps.collect();
                ctx.join(steps)
                    .await
                    .into_iter()
                    .collect::<Result<Vec<_>, _>>()
                    .map(|all| all.len().to_string())
            }
        })
        .register("Chain", move |ctx, input| {
            let (ctx, input) = chain(ctx, input);
            async move {
                for step in 0..count(&input)? {
                    ctx.schedule_activity("Nothing", step.to_string()).await?;
                }
                Ok(String::new())
            }
        })
        .register("Sessions", move |ctx, session| {
            let (ctx, session) = sessions(ctx, session);
            async move {
                for _ in 0..5 {
                    let free = ctx.schedule_activity("Nothing", "");
                    let bound = ctx.schedule_activity_on_session("Nothing", "", &session);
                    let both = ctx.join2(free, bound).await;
                    both.0.and(both.1)?;
                }
                Ok(String::new())
            }
        })
        .register("Timer", move |ctx, ms| {
            let (ctx, ms) = timer(ctx, ms);
            async move {
                for _ in 0..3 {
                    ctx.schedule_timer(Duration::from_millis(count(&ms)? as u64)).await;
                }
                Ok(String::new())
            }
        })
        .register("Event", move |ctx, input| {
            let (ctx, _) = event(ctx, input);
            async move { Ok(ctx.dequeue_event("go").await) }
        })
        .register("Children", move |ctx, input| {
            let (ctx, input) = children(ctx, input);
            async move {
                let started = (0..count(&input)?).map(|_| ctx.schedule_sub_orchestration("Chain", "1"));
                let started: Vec<_> = started.collect();
                ctx.join(started)
                    .await
                    .into_iter()
                    .collect::<Result<Vec<_>, _>>()
                    .map(|all| all.len().to_string())
            }
        })
        .register("Continued", move |ctx, left| {
            let (ctx, left) = continued(ctx, left);
            async move {
                ctx.schedule_activity("Nothing", "").await?;
                match count(&left)? {
                    0 => Ok(String::new()),
                    more => ctx.continue_as_new((more - 1).to_string()).await,
                }
            }
        })
        .build()
}
