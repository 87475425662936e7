//! The real runtime on simulated time, over a store that fails, delays and forgets to answer.
//!
//! One thread runs one to four runtimes, each with a handle of its own on the store, as processes would have. While the
//! storm lasts, calls fail before or after they took effect or are late, processes die at any point where they wait and
//! are replaced, the store's clock jumps, and the clocks of processes are wrong. Then the weather is calm, everything has
//! to end within a bound, and the checker looks at what is left. All that happens comes from the seed; [`alone`] sees to what
//! hash maps and executors decide.

pub mod activities;
pub mod alone;
pub mod application;
pub mod clock;
pub mod process;
pub mod store;
pub mod twin;
pub mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Clock;
use duroxide::providers::memory::MemoryProvider;
use duroxide::{Client, OrchestrationRegistry};

use crate::checker::{Ended, Invariant, Violation, check};
use crate::shared::program::{self, Forecast, Generator, Step};
use crate::shared::random::Random;
use application::Case;
use process::Process;
use twin::Twin;
use world::{Weather, World};

/// Everything ends so long after the storm, in simulated time: a lease has to run out, and the longest timers and
/// activities of the programs have to end.
const LIVENESS_BOUND: Duration = Duration::from_secs(30);

/// What a simulation found.
pub struct Simulated {
    /// The breaches.
    pub violations: Vec<Violation>,
    /// What happened how often.
    pub figures: BTreeMap<&'static str, u64>,
    /// Two runs of a seed have the same.
    pub hash: u64,
    /// Everything that happened, if it was asked for.
    pub lines: Vec<String>,
}

/// Runs the simulation of a seed. It does the same again if this process has done nothing else before.
pub fn simulate(seed: u64, twin: Option<Twin>, keeps_lines: bool) -> Simulated {
    MemoryProvider::number_tokens_of_this_thread();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, run(seed, twin, keeps_lines))
}

/// What the seed says about a simulation.
struct Plan {
    processes: usize,
    storm: Duration,
    deaths: u64,
    jumps: u64,
    weather: Weather,
    cases: Vec<Case>,
}

impl Plan {
    fn new(dice: &mut Random) -> Self {
        let weather = Weather {
            faults_per_mille: [0, 20, 60, 150][dice.below(4) as usize],
            longest_delay: Duration::from_millis([20, 400, 6_000][dice.below(3) as usize]),
        };
        let cases = (0..2 + dice.below(4)).map(|n| Self::case(dice, n)).collect();
        Self {
            processes: 1 + dice.below(4) as usize,
            storm: Duration::from_secs(2 + dice.below(20)),
            deaths: dice.below(8),
            jumps: dice.below(3),
            weather,
            cases,
        }
    }

    fn case(dice: &mut Random, n: u64) -> Case {
        let instance = format!("i{n}");
        let is_cancelled_early = dice.below(20) == 0;
        let steps = match is_cancelled_early {
            true => vec![Step::AwaitCancel(None)],
            false => Generator::new(dice, &instance).program(),
        };
        Case { instance, steps, is_cancelled_early }
    }
}

async fn run(seed: u64, twin: Option<Twin>, keeps_lines: bool) -> Simulated {
    let mut dice = Random::new(seed);
    let mut plan = Plan::new(&mut dice);
    if twin == Some(Twin::IgnoresLeases) {
        // Where hardly anybody loses a lease, nobody can ignore that.
        plan.weather = Weather { faults_per_mille: 150, longest_delay: Duration::from_secs(6) };
    }
    let world = World::new(Random::new(dice.below(u64::MAX)), plan.weather, keeps_lines);
    world.line(|| {
        let Plan { processes, storm, deaths, jumps, weather, .. } = &plan;
        format!("{processes} processes, storm {storm:?}, {deaths} deaths, {jumps} jumps, {weather:?}")
    });
    let mut forecast = Forecast::default();
    for case in &plan.cases {
        forecast.add(&case.instance, &case.steps);
    }
    world.note(|trace| trace.expect(&forecast));

    let mut processes = Vec::new();
    for n in 0..plan.processes {
        processes.push(Process::start(&world, n, twin, &mut dice).await);
    }
    let outside = store::SimStore::new(&world, "outside".into(), world.clock.clone(), false, twin);
    let client = Client::new(outside);
    let application = tokio::task::spawn_local(application::run(client, world.clone(), plan.cases));
    storm(&world, &plan.storm, plan.deaths, plan.jumps, &mut processes, twin, &mut dice).await;
    world.calm();
    world.line(|| "calm".to_string());

    let calm_since = world.clock.monotonic();
    let reader = Client::new(world.memory.clone());
    let read = async {
        // The starts may still be on their way; the clock of the bound runs from the end of the storm.
        application::until_ended(&reader, &forecast, &world).await;
        Ended::read(&reader, &*world.clock, Duration::from_secs(5)).await
    };
    let ended = match tokio::time::timeout(LIVENESS_BOUND, read).await {
        Ok(ended) => ended.unwrap(),
        Err(_) => Ended::read(&reader, &*world.clock, Duration::ZERO).await.unwrap(),
    };
    let took = world.clock.monotonic() - calm_since;
    world.count("longest_calm_ms", took.as_millis() as u64);
    application.abort();
    if let Err(error) = application.await
        && error.is_panic()
    {
        world.note(|trace| {
            trace.note(Violation::of_store(Invariant::LoudFailure, "the application panicked"))
        });
    }
    for process in processes {
        process.stop().await;
    }
    let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
    let (trace, figures, hash, lines) = world.finish();
    Simulated { violations: check(&trace, &ended, &code), figures, hash, lines }
}

/// Lets processes die and clocks jump, at moments that the dice pick.
async fn storm(
    world: &Arc<World>,
    length: &Duration,
    deaths: u64,
    jumps: u64,
    processes: &mut [Process],
    twin: Option<Twin>,
    dice: &mut Random,
) {
    let mut moments: Vec<(u64, bool)> = Vec::new();
    let ms = length.as_millis() as u64;
    moments.extend((0..deaths).map(|_| (dice.below(ms), true)));
    moments.extend((0..jumps).map(|_| (dice.below(ms), false)));
    moments.sort_unstable();
    let mut now = 0;
    for (moment, is_death) in moments {
        tokio::time::sleep(Duration::from_millis(moment - now)).await;
        now = moment;
        if is_death {
            let victim = dice.below(processes.len() as u64) as usize;
            world.count("deaths", 1);
            world.line(|| format!("process {victim} dies"));
            processes[victim].die_and_restart(world, twin, dice).await;
        } else {
            // Far ahead as after a long sleep of the machine, or a little back as after a correction.
            let by_ms = [3_600_000, 5_000, -400][dice.below(3) as usize];
            world.count("clock_jumps", 1);
            world.line(|| format!("the clock jumps by {by_ms} ms"));
            world.clock.jump(by_ms);
        }
    }
    tokio::time::sleep(Duration::from_millis(ms - now)).await;
}
