//! `sim`: the whole runtime on simulated time, over a store that fails; see [`crate::sim`].

use std::time::Duration;

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::report::Trial;
use crate::sim::{IS_REPEATABLE, simulate};
use crate::sim::twin::Twin;

/// Every so many seeds the same seed runs twice, to see that it decides everything.
const TWICE_EVERY: u64 = 16;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "sim",
    about: "the real runtime on simulated time over a store that fails, delays and loses answers",
    trial,
    twins: &Twin::NAMES,
    twin_trials: 40,
    ci: Tier { trials: 600, time_limit: Duration::from_secs(90) },
    nightly: Tier { trials: 200_000, time_limit: Duration::from_secs(2 * 60 * 60) },
    is_parallel: true,
};

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let simulated = simulate(seed, twin.and_then(Twin::named), false);
    let mut violations = simulated.violations;
    if IS_REPEATABLE && seed.is_multiple_of(TWICE_EVERY) && twin.is_none() {
        let again = simulate(seed, None, false);
        if again.hash != simulated.hash {
            let what = "the seed did not decide everything: a second run of it went another way";
            violations.push(Violation::of_store(Invariant::Replay, what));
        }
    }
    Trial::new(violations, simulated.figures)
}
