//! Memory while many typed orchestrations with large payloads run, one wave after the other.
//!
//! A leak is told from caches that fill by the bytes that are allocated and not freed, read when nothing is under way. The
//! library's own are counted by the allocator. What SQLite holds is seen in the resident set only. There it is hidden by
//! what the C library's allocator keeps for later, in an arena for each of many threads, so the program runs itself with
//! one arena.

use std::alloc::System;
use std::os::unix::process::CommandExt;
use std::process::Command;

use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, InstanceFilter, OrchestrationContext, OrchestrationRegistry};
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::Outcome;
use crate::world::{World, resident_mb};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Serialize, Deserialize)]
struct Document {
    text: String,
}

const PAYLOAD_BYTES: usize = 100 * 1024;
const AT_ONCE: usize = 50;
/// How often the memory is looked at.
const SAMPLES: usize = 20;
/// Growth of the live heap in the second half of the run that counts as flat: a wave ends at a random moment.
const FLAT: f64 = 1.05;
/// What SQLite's page caches can hold: 16 MB for each of five connections, which are opened when they are first needed.
const CACHES_MB: f64 = 5.0 * 16.0;
/// How many arenas the C library uses; it reads this when a program starts.
const ARENAS: &str = "MALLOC_ARENA_MAX";

struct Sample {
    finished: usize,
    live_mb: f64,
    resident_mb: f64,
}

async fn review(ctx: OrchestrationContext, document: Document) -> Result<usize, String> {
    let back: Document = ctx.schedule_activity_typed("Echo", &document).await?;
    Ok(back.text.len())
}

/// Starts the program again with one arena, unless the caller has decided how many.
fn with_one_arena() -> Outcome<()> {
    if std::env::var_os(ARENAS).is_some() {
        return Ok(());
    }
    let arguments = std::env::args_os().skip(1);
    Err(Command::new(std::env::current_exe()?).args(arguments).env(ARENAS, "1").exec().into())
}

pub async fn run(count: usize) -> Outcome<()> {
    with_one_arena()?;
    let activities = ActivityRegistry::builder()
        .register_typed("Echo", |_: ActivityContext, document: Document| async move { Ok(document) })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("Review", review).build();
    let world = World::new(Durability::Normal, activities, orchestrations).await?;
    println!("payload: {PAYLOAD_BYTES} bytes, {AT_ONCE} at once, finished instances are deleted");
    println!("{:>10}  {:>14}  {:>8}", "finished", "live heap MB", "RSS MB");
    let waves = (count / AT_ONCE).max(4);
    let mut samples = Vec::new();
    for wave in 0..waves {
        run_wave(&world, wave).await?;
        // A sample whenever another twentieth is done.
        if (wave + 1) * SAMPLES / waves > wave * SAMPLES / waves {
            let sample =
                Sample { finished: (wave + 1) * AT_ONCE, live_mb: live_mb(), resident_mb: resident_mb()? };
            println!("{:>10}  {:>14.2}  {:>8.1}", sample.finished, sample.live_mb, sample.resident_mb);
            samples.push(sample);
        }
    }
    world.runtime.shutdown(None).await;
    conclude(&samples);
    Ok(())
}

async fn run_wave(world: &World, wave: usize) -> Outcome<()> {
    let ids: Vec<String> = (0..AT_ONCE).map(|n| format!("review-{wave}-{n}")).collect();
    for id in &ids {
        let document = Document { text: "x".repeat(PAYLOAD_BYTES) };
        world.client.start_orchestration_typed(id.as_str(), "Review", document).await?;
    }
    for id in &ids {
        world.output(id).await?;
    }
    world.client.delete_instance_bulk(InstanceFilter::default()).await?;
    Ok(())
}

/// What the program has allocated and not freed, SQLite's own memory aside.
fn live_mb() -> f64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated) as f64 / 1e6
}

fn conclude(samples: &[Sample]) {
    println!();
    let at = |quarter: usize| &samples[(samples.len() * quarter / 4).max(1) - 1];
    for quarter in 1..=4 {
        let sample = at(quarter);
        println!(
            "at {:>3} %: {:>7} finished, {:>6.2} MB live, {:>6.1} MB resident",
            quarter * 25,
            sample.finished,
            sample.live_mb,
            sample.resident_mb
        );
    }
    let (half, end) = (at(2), at(4));
    let runs = (end.finished - half.finished).max(1) as f64;
    println!(
        "in the second half {:+.0} bytes live and {:+.0} bytes resident for each orchestration",
        (end.live_mb - half.live_mb) * 1e6 / runs,
        (end.resident_mb - half.resident_mb) * 1024.0 * 1024.0 / runs
    );
    let live = end.live_mb / half.live_mb;
    let grown_mb = end.resident_mb - samples[0].resident_mb;
    let verdict = if live <= FLAT && grown_mb <= CACHES_MB { "flat" } else { "NOT flat" };
    println!(
        "{verdict}: {live:.3} times the live heap in the second half (goal: at most {FLAT}); {grown_mb:.1} MB more resident \
         since the first sample (goal: no more than the {CACHES_MB} MB of page caches)"
    );
}
