//! `sim`: the whole runtime on simulated time, over a store that fails; see [`crate::sim`].

use std::time::Duration;

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::report::Trial;
use crate::sim::alone::{IS_REPEATABLE, simulate_alone};
use crate::sim::twin::Twin;

/// Every so many seeds the same seed runs twice, to see whether it decides everything.
const TWICE_EVERY: u64 = 16;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "sim",
    about: "the real runtime on simulated time over a store that fails, delays and loses answers",
    trial,
    twins: &Twin::NAMES,
    twin_trials: 20,
    ci: Tier { trials: 600, time_limit: Duration::from_secs(70) },
    nightly: Tier { trials: 200_000, time_limit: Duration::from_secs(2 * 60 * 60) },
    is_parallel: true,
};

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let mut simulated = simulate_alone(seed, twin, false);
    if IS_REPEATABLE && seed.is_multiple_of(TWICE_EVERY) && twin.is_none() {
        let again = simulate_alone(seed, None, false);
        simulated.figures.insert("seeds_run_twice", 1);
        if again.hash != simulated.hash {
            let what = "two runs of this seed went different ways";
            simulated.violations.push(Violation::of_store(Invariant::Replay, what));
        }
    }
    Trial::new(simulated.violations, simulated.figures)
}
