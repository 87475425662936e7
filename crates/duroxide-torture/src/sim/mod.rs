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

use crate::checker::{Ended, Invariant, Leftovers, Violation, check};
use crate::shared::program::{self, Forecast, Generator, Input, ORCHESTRATION, Step};
use crate::shared::random::Random;
use application::Case;
use process::Process;
use twin::Twin;
use world::{Weather, World};

/// Everything ends so long after the storm, in simulated time: a lease has to run out, and the longest timers and
/// activities of the programs have to end.
const LIVENESS_BOUND: Duration = Duration::from_secs(30);

/// An instance that starts when nothing is felt of the storm any more ends so soon. Its activity may be long, and each of its four
/// timers late by as much as clocks are wrong.
const LATE_BOUND: Duration = Duration::from_secs(25);

/// The instance that is started when all has been calm for a while.
const LATE: &str = "late";

/// The figures that count what may end an attempt.
const FAULTS: [&str; 7] =
    ["failed_before", "failed_after", "late_effects", "late_answers", "deaths", "shutdowns", "clock_jumps"];

/// And what is queued or held is gone so long after that.
const QUIET_BOUND: Duration = Duration::from_secs(15);

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
            false => Generator::extended(dice, &instance).program(),
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

    let mut forecast_of_late = Forecast::default();
    forecast_of_late.add(LATE, &late_steps());
    world.note(|trace| trace.expect(&forecast_of_late));
    let outside = store::SimStore::new(&world, "late".into(), world.clock.clone(), false, twin);
    let late_client = Client::new(outside);
    let calm_since = world.clock.monotonic();
    let reader = Client::new(world.memory.clone());
    let rows = async || Leftovers::of_dump(&world.memory.dump());
    let read = async {
        // The starts may still be on their way; the clock of the bound runs from the end of the storm.
        let ended = application::until_ended(&reader, &forecast, &world);
        tokio::time::timeout(LIVENESS_BOUND, ended).await?;
        world.count("longest_calm_ms", (world.clock.monotonic() - calm_since).as_millis() as u64);
        // When nothing is felt of the storm any more, all goes at once.
        tokio::time::sleep(world.aftermath().saturating_sub(world.clock.monotonic() - calm_since)).await;
        late_client.start_orchestration(LATE, ORCHESTRATION, Input::text(&late_steps())).await.unwrap();
        let ended = application::until_ended(&reader, &forecast_of_late, &world);
        tokio::time::timeout(LATE_BOUND, ended).await
    };
    let bound = read.await.map_or(Duration::ZERO, |()| QUIET_BOUND);
    let ended = Ended::read(&reader, &*world.clock, bound, rows).await.unwrap();
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
    let (mut trace, figures, hash, lines) = world.finish();
    trace.note_faults(FAULTS.iter().filter_map(|figure| figures.get(figure)).sum());
    Simulated { violations: check(&trace, &ended, &code), figures, hash, lines }
}

/// The program that runs when all has been calm for a while; its timers must not be late.
fn late_steps() -> Vec<Step> {
    let label = || "late".to_string();
    vec![Step::Timer(40), Step::Activity(label()), Step::Timer(1_500), Step::ContinueAsNew, Step::Timer(200)]
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
        if !is_death {
            // Far ahead as after a long sleep of the machine, or a little back as after a correction.
            let by_ms = [3_600_000, 5_000, -400][dice.below(3) as usize];
            world.count("clock_jumps", 1);
            world.line(|| format!("the clock jumps by {by_ms} ms"));
            world.clock.jump(by_ms);
            continue;
        }
        let victim = dice.below(processes.len() as u64) as usize;
        match dice.below(4) {
            0 => {
                world.count("power_cuts", 1);
                world.count("deaths", processes.len() as u64);
                world.line(|| "the power is cut".to_string());
                // All at once; a task of one process that ends may not store anything after another has lost it.
                processes.iter().for_each(Process::kill);
                world.cut_power();
                for process in processes.iter_mut() {
                    process.die_and_restart(world, twin, dice).await;
                }
            }
            1 => {
                world.count("shutdowns", 1);
                world.line(|| format!("process {victim} shuts down"));
                processes[victim].shut_down_and_restart(world, twin, dice).await;
            }
            _ => {
                world.count("deaths", 1);
                world.line(|| format!("process {victim} dies"));
                processes[victim].die_and_restart(world, twin, dice).await;
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(ms - now)).await;
}
