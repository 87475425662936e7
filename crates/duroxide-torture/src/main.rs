//! The command line of the harnesses; see the library.

#![allow(clippy::print_stdout, reason = "a program prints its results")]

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duroxide_torture::arguments::{Arguments, USAGE};
use duroxide_torture::harness::{ALL, Harness, Tier, kill9, scale, soak, zombie};
use duroxide_torture::panics;
use duroxide_torture::report::Report;
use duroxide_torture::sim::alone;

/// Seeds that once found a bug, as lines `HARNESS SEED`. The short tier runs them first.
const REGRESSIONS: &str = include_str!("../regressions.txt");

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => return refuse(&reason),
    };
    if std::env::var_os("RUST_LOG").is_some() {
        // For those who look into a failure.
        let _ = duroxide::runtime::observability::init_logging(&Default::default());
    }
    let full = if arguments.command == "nightly" { 1_000_000 } else { 10_000 };
    scale::MILLIONTHS.store(arguments.scale.unwrap_or(full), Ordering::Relaxed);
    match (arguments.command.as_str(), arguments.rest.as_slice()) {
        (kill9::WORKER, [file, ledger, round, twin @ ..]) => {
            kill9::work(file, ledger, round, !twin.is_empty())
        }
        (alone::WORKER, [seed, words @ ..]) => alone::work(seed, words),
        (zombie::WORKER, [file, ledger, twin @ ..]) => zombie::work(file, ledger, !twin.is_empty()),
        ("help" | "--help" | "-h", _) => println!("{USAGE}"),
        ("list", []) => list(),
        ("trace", []) => {
            let simulated = alone::simulate_alone(arguments.seed, arguments.twin.as_deref(), true);
            simulated.lines.iter().for_each(|line| println!("{line}"));
            simulated.violations.iter().for_each(|violation| println!("{violation}"));
        }
        ("ci", []) => return tier(&arguments, |harness| harness.ci, true),
        ("nightly", []) => return tier(&arguments, |harness| harness.nightly, true),
        ("twins", []) => {
            let caught: Vec<bool> = ALL.iter().map(|harness| twins(harness, arguments.seed)).collect();
            return code(caught.into_iter().all(|caught| caught));
        }
        (name, []) => match Harness::named(name) {
            Some(harness) => return one(harness, &arguments),
            None => return refuse(&format!("there is no command {name}")),
        },
        _ => return refuse("too many words"),
    }
    ExitCode::SUCCESS
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("duroxide-torture: {reason}\n\n{USAGE}");
    ExitCode::from(2)
}

fn list() {
    for harness in ALL {
        println!("{:10} {}", harness.name, harness.about);
        if !harness.twins.is_empty() {
            println!("{:10} twins: {}", "", harness.twins.join(", "));
        }
    }
}

fn one(harness: &Harness, arguments: &Arguments) -> ExitCode {
    let tier = Tier {
        trials: arguments.trials.unwrap_or(harness.ci.trials),
        time_limit: arguments.time_limit.unwrap_or(match arguments.trials {
            Some(_) => Duration::MAX,
            None => harness.ci.time_limit,
        }),
    };
    if let Some(twin) = &arguments.twin
        && !harness.twins.contains(&twin.as_str())
    {
        return refuse(&format!("{} has no twin {twin}; it has: {}", harness.name, harness.twins.join(", ")));
    }
    code(run(harness, arguments.seed, tier, arguments.twin.as_deref()))
}

/// Runs all harnesses, and then their twins.
fn tier(arguments: &Arguments, of: impl Fn(&Harness) -> Tier, with_twins: bool) -> ExitCode {
    let mut is_good = regressions();
    for harness in ALL {
        let tier = of(harness);
        let trials = arguments.trials.map_or(tier.trials, |trials| trials.min(tier.trials));
        let time_limit = arguments.time_limit.map_or(tier.time_limit, |limit| limit.min(tier.time_limit));
        is_good &= run(harness, arguments.seed, Tier { trials, time_limit }, None);
        is_good &= !with_twins || twins(harness, arguments.seed);
    }
    code(is_good)
}

fn regressions() -> bool {
    let mut is_good = true;
    for line in REGRESSIONS.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let harness = words.next().and_then(Harness::named);
        let seed = words.next().and_then(|seed| seed.parse().ok());
        let (Some(harness), Some(seed)) = (harness, seed) else {
            eprintln!("duroxide-torture: regressions.txt has a line that is no harness and seed: {line}");
            return false;
        };
        is_good &= run(harness, seed, Tier { trials: 1, time_limit: Duration::MAX }, None);
    }
    is_good
}

fn twins(harness: &Harness, seed: u64) -> bool {
    let tier = Tier { trials: harness.twin_trials, time_limit: Duration::from_secs(60) };
    let caught: Vec<bool> = harness.twins.iter().map(|twin| run(harness, seed, tier, Some(twin))).collect();
    caught.into_iter().all(|caught| caught)
}

/// Runs trials, and prints the line of the result.
fn run(harness: &Harness, seed: u64, tier: Tier, twin: Option<&str>) -> bool {
    if harness.name == soak::HARNESS.name {
        let seconds = if twin.is_some() { 12 } else { tier.time_limit.as_secs().clamp(3, 24 * 60 * 60) };
        soak::SECONDS.store(seconds, Ordering::Relaxed);
    }
    panics::watch();
    let mut report = harness.run(seed, tier, twin);
    if twin.is_some() {
        // What a twin did wrong is its purpose.
        report.violations.clear();
    }
    println!("{}", report.line());
    if !report.is_good() {
        explain(&report);
    }
    report.is_good()
}

fn explain(report: &Report) {
    match &report.twin {
        Some(twin) => {
            eprintln!("{}: the twin {twin} was not caught in {} trials", report.harness, report.trials)
        }
        None => {
            report.violations.iter().for_each(|violation| eprintln!("{}: {violation}", report.harness));
            report.reproductions().iter().for_each(|command| eprintln!("repeat with: {command}"));
        }
    }
}

fn code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
