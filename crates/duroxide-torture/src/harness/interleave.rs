//! `interleave`: the small concurrent parts of the library under a scheduler that tries interleavings.
//!
//! A trial is a hundred schedules of one scenario. The first twin is a bug that the library once had: a dispatcher that found
//! its free slot taken believed that the store had nothing for it, and slept beside work that nobody announced again.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::kill9::program_file;
use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::interleave::{SCENARIOS, Scenario, set_twin};
use crate::panics::caught;
use crate::report::{Figures, Trial};
use crate::sim::alone::kept;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "interleave",
    about: "worker slots, signals, the writer and waiting dispatchers under a scheduler that tries interleavings",
    trial,
    twins: &[
        "asks-nobody",
        "frees-silently",
        "forgets-owners",
        "forgets-due-times",
        "ends-foreign-watches",
        "wakes-nobody",
        "promises-unsynced",
        "keeps-untaken-leases",
    ],
    twin_trials: 20,
    ci: Tier { trials: 140, time_limit: Duration::from_secs(20) },
    nightly: Tier { trials: 100_000, time_limit: Duration::from_secs(30 * 60) },
    is_parallel: true,
};

/// So many schedules are a trial.
const SCHEDULES: usize = 100;
/// A schedule that takes so many steps does not end.
const MOST_STEPS: usize = 100_000;
/// How often the scheduler that keeps to priorities changes them.
const CHANGES: usize = 3;

/// The hidden subcommand of the process.
pub const WORKER: &str = "worker-of-interleave";

/// What the process writes.
#[derive(Serialize, Deserialize)]
struct Told {
    violations: Vec<Violation>,
    figures: BTreeMap<String, u64>,
}

/// Makes the scheduler set its panic hook now, which it does when it first runs. Other hooks are then above it.
pub fn set_hook_of_scheduler() {
    Runner::new(RandomScheduler::new_from_seed(0, 1), config()).run(|| ());
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    match twin {
        None => explore(seed, None),
        Some(twin) => in_a_process(seed, twin),
    }
}

/// Runs the trial of a twin in a process: the scheduler writes about each schedule that fails to the standard error.
fn in_a_process(seed: u64, twin: &str) -> Trial {
    let mut command = Command::new(program_file());
    let output = command.args([WORKER, &seed.to_string(), twin]).stderr(Stdio::null()).output().unwrap();
    let Told { violations, figures } = serde_json::from_slice(&output.stdout).unwrap();
    Trial::new(violations, figures.into_iter().map(|(name, count)| (kept(name), count)).collect())
}

/// The process's side.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub fn work(seed: &str, twin: &str) {
    let Trial { violations, figures } = explore(seed.parse().unwrap(), Some(twin));
    let figures = figures.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
    println!("{}", serde_json::to_string(&Told { violations, figures }).unwrap());
}

fn config() -> Config {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    config
}

fn explore(seed: u64, twin: Option<&str>) -> Trial {
    let twin = twin.and_then(|twin| HARNESS.twins.iter().copied().find(|name| *name == twin));
    let candidates: Vec<&Scenario> =
        SCENARIOS.iter().filter(|scenario| twin.is_none_or(|twin| scenario.twins.contains(&twin))).collect();
    let scenario = candidates[seed as usize % candidates.len()];
    let is_by_priority = !scenario.is_impatient && seed / SCENARIOS.len() as u64 % 2 == 1;
    let schedules = Arc::new(AtomicU64::new(0));
    let begun = schedules.clone();
    let run = scenario.run;
    let schedule = move || {
        begun.fetch_add(1, Ordering::Relaxed);
        run();
    };
    set_twin(twin);
    let outcome = caught(|| match is_by_priority {
        true => Runner::new(PctScheduler::new_from_seed(seed, CHANGES, SCHEDULES), config()).run(schedule),
        false => Runner::new(RandomScheduler::new_from_seed(seed, SCHEDULES), config()).run(schedule),
    });
    set_twin(None);
    let count = schedules.load(Ordering::Relaxed);
    let violations = outcome.err().map(|panic| {
        let text = format!("{} of {}: {}", count, scenario.name, panic.what);
        Violation::of_store(Invariant::Liveness, text)
    });
    let mut figures = Figures::from([("schedules", count), (scenario.name, count)]);
    if violations.is_some() {
        figures.insert("most_schedules_until_caught", count);
    }
    Trial::new(violations.into_iter().collect(), figures)
}
