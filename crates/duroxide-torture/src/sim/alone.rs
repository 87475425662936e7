//! A process for each simulation, in which nothing else has happened before.
//!
//! A seed decides the plan, the faults and all dice of a simulation. What is left is the order of hash maps, and the dice that
//! tokio throws when several tasks are ready at once: both come from the system's randomness, and from what the process has
//! done so far. In a process of its own whose randomness is the seed's as well, the same seed gives the same trace.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::twin::Twin;
use super::{Simulated, simulate};
use crate::checker::{Invariant, Violation};
use crate::harness::kill9::program_file;
use crate::panics::{self, Quiet, caught};

/// The hidden subcommand of the process.
pub const WORKER: &str = "worker-of-sim";
/// Whether two runs of a seed do the same.
pub const IS_REPEATABLE: bool = seeded_randomness::IS_POSSIBLE;
/// The word after the seed that asks for everything that happens.
const WITH_LINES: &str = "with-lines";

/// What the process writes: the lines if they were asked for, and this as the last one.
#[derive(Serialize, Deserialize)]
struct Told {
    violations: Vec<Violation>,
    figures: BTreeMap<String, u64>,
    hash: u64,
}

/// The process's side.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub fn work(seed: &str, words: &[String]) {
    let seed: u64 = seed.parse().unwrap();
    let twin = words.iter().find_map(|word| Twin::named(word));
    let keeps_lines = words.iter().any(|word| word == WITH_LINES);
    panics::watch();
    let _quiet = twin.map(|_| Quiet::begin());
    seeded_randomness::decide_by(seed);
    // This thread may have had a hash map before.
    let simulating = std::thread::spawn(move || caught(|| simulate(seed, twin, keeps_lines)));
    let mut simulated = simulating.join().unwrap().unwrap_or_else(|panic| Simulated {
        violations: vec![panic],
        figures: BTreeMap::new(),
        hash: 0,
        lines: Vec::new(),
    });
    if panics::count() > 0 && simulated.violations.is_empty() {
        // The runtime gets over a panic of its own tasks, or of the store's.
        let what = format!("{} panics in tasks of the runtime", panics::count());
        simulated.violations.push(Violation::of_store(Invariant::LoudFailure, what));
    }
    simulated.lines.iter().for_each(|line| println!("{line}"));
    let figures = simulated.figures.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
    let told = Told { violations: simulated.violations, figures, hash: simulated.hash };
    println!("{}", serde_json::to_string(&told).unwrap());
}

/// Runs the simulation of a seed in a process of its own.
pub fn simulate_alone(seed: u64, twin: Option<&str>, keeps_lines: bool) -> Simulated {
    let lines = keeps_lines.then_some(WITH_LINES);
    let mut command = Command::new(program_file());
    command.arg(WORKER).arg(seed.to_string()).args(twin).args(lines).stderr(Stdio::inherit());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let told = lines.pop().and_then(|line| serde_json::from_str::<Told>(&line).ok());
    match told {
        Some(Told { violations, figures, hash }) => {
            let figures = figures.into_iter().map(|(name, count)| (kept(name), count)).collect();
            Simulated { violations, figures, hash, lines }
        }
        None => {
            let what = format!("the simulation ended with {} and without a result", output.status);
            let violations = vec![Violation::of_store(Invariant::LoudFailure, what)];
            Simulated { violations, figures: BTreeMap::new(), hash: 0, lines }
        }
    }
}

/// A name of a figure, kept for as long as the program runs. There are few.
pub(crate) fn kept(name: String) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap();
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into_boxed_str());
    names.push(name);
    name
}
