//! `interleave`: the small concurrent parts of the library under a scheduler that tries interleavings.
//!
//! A trial is a hundred schedules of one scenario. The first twin is a bug that the library once had: a dispatcher that found
//! its free slot taken believed that the store had nothing for it, and slept beside work that nobody announced again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::interleave::{SCENARIOS, Scenario, set_twin};
use crate::panics;
use crate::report::{Figures, Trial};

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

fn trial(seed: u64, twin: Option<&str>) -> Trial {
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
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    set_twin(twin);
    let outcome = panics::caught_quietly(twin.is_some(), || match is_by_priority {
        true => Runner::new(PctScheduler::new_from_seed(seed, CHANGES, SCHEDULES), config).run(schedule),
        false => Runner::new(RandomScheduler::new_from_seed(seed, SCHEDULES), config).run(schedule),
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
