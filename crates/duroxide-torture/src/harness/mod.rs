//! The harnesses: each takes a seed, tries to break something, and says what it found.

mod broken_worker;
pub mod corrupt;
mod failover;
pub mod interleave;
pub mod ioerr;
pub mod kill9;
pub mod model;
pub mod pgfault;
pub mod powerloss;
pub mod programs;
mod refusals;
pub mod scale;
pub mod sim;
pub mod soak;
pub mod zombie;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

use crate::panics::{Quiet, caught};
use crate::report::{Figures, Report, Trial, commit};

/// How much of a harness to run.
#[derive(Debug, Clone, Copy)]
pub struct Tier {
    /// So many trials,
    pub trials: u64,
    /// but for no longer than this.
    pub time_limit: Duration,
}

/// A way to break the system.
#[derive(Clone, Copy)]
pub struct Harness {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Runs the trial of a seed; with the name of a twin, on that.
    pub trial: fn(u64, Option<&str>) -> Trial,
    /// The deliberately broken parts that it must catch.
    pub twins: &'static [&'static str],
    /// How many trials a twin gets.
    pub twin_trials: u64,
    /// What runs with every change.
    pub ci: Tier,
    /// What runs in a night.
    pub nightly: Tier,
    /// Whether trials may run beside each other.
    pub is_parallel: bool,
}

/// A twin that was caught gets no more time than this; further trials would only tell in how many of them.
const ENOUGH_OF_A_TWIN: Duration = Duration::from_secs(2);

/// All harnesses, in the order in which a tier runs them.
pub const ALL: &[Harness] = &[
    sim::HARNESS,
    interleave::HARNESS,
    programs::HARNESS,
    model::HARNESS,
    model::ON_A_SERVER,
    powerloss::HARNESS,
    ioerr::HARNESS,
    corrupt::HARNESS,
    corrupt::ON_A_SERVER,
    kill9::HARNESS,
    zombie::HARNESS,
    kill9::ON_A_SERVER,
    zombie::ON_A_SERVER,
    pgfault::HARNESS,
    scale::HARNESS,
    soak::HARNESS,
];

impl Harness {
    /// Finds a harness by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|harness| harness.name == name)
    }

    /// Runs the trials of the seeds from `seed` on.
    pub fn run(&self, seed: u64, tier: Tier, twin: Option<&str>) -> Report {
        let begin = SystemClock.monotonic();
        // Its threads are not known, so it is quiet in the whole process; no other run is under way.
        let _quiet = twin.map(|_| Quiet::begin());
        let report = Mutex::new(Report {
            harness: self.name.to_string(),
            twin: twin.map(str::to_string),
            seed,
            commit: commit(),
            ..Report::default()
        });
        let next = AtomicU64::new(0);
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let elapsed = SystemClock.monotonic() - begin;
                let is_caught = twin.is_some() && report.lock().unwrap().failed > 0;
                if number >= tier.trials
                    || elapsed >= tier.time_limit
                    || is_caught && elapsed > ENOUGH_OF_A_TWIN
                {
                    return;
                }
                let seed = seed + number;
                let trial = caught(|| (self.trial)(seed, twin))
                    .unwrap_or_else(|panic| Trial::new(vec![panic], Figures::new()));
                report.lock().unwrap().add(seed, trial);
            }
        };
        let threads = match self.is_parallel {
            true => std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8)),
            false => 1,
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        let mut report = report.into_inner().unwrap();
        if twin.is_none()
            && let Some(found) =
                zombie::unproven(self.name, &report).or_else(|| ioerr::unproven(self.name, &mut report))
        {
            report.add(seed, Trial::new(vec![found], Figures::new()));
            report.trials -= 1;
        }
        report.failed_seeds.sort_unstable();
        report.took(SystemClock.monotonic() - begin);
        report
    }
}
