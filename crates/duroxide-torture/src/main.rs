//! The command line of the harnesses; see the library.

#![allow(clippy::print_stdout, reason = "a program prints its results")]

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use duroxide_torture::arguments::{Arguments, USAGE};
use duroxide_torture::harness::{ALL, Harness, Tier, interleave, kill9, scale, zombie};
use duroxide_torture::panics;
use duroxide_torture::report::Report;
use duroxide_torture::sim::alone;
use duroxide_torture::tiers::{self, FOR_TWINS, Length, Plan, Runs};

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
    let seed = arguments.first_seed(SystemClock.now_ms() / (24 * 60 * 60 * 1_000));
    let full = if arguments.command == "nightly" { 1_000_000 } else { 10_000 };
    scale::MILLIONTHS.store(arguments.scale.unwrap_or(full), Ordering::Relaxed);
    match (arguments.command.as_str(), arguments.rest.as_slice()) {
        (kill9::WORKER, [file, ledger, round, twin @ ..]) => {
            kill9::work(file, ledger, round, !twin.is_empty())
        }
        (interleave::WORKER, [seed, twin]) => interleave::work(seed, twin),
        (alone::WORKER, [seed, words @ ..]) => alone::work(seed, words),
        (zombie::WORKER, [file, ledger, twin @ ..]) => zombie::work(file, ledger, !twin.is_empty()),
        ("help" | "--help" | "-h", _) => println!("{USAGE}"),
        ("list", []) => list(),
        ("trace", []) => {
            let simulated = alone::simulate_alone(seed, arguments.twin.as_deref(), true);
            simulated.lines.iter().for_each(|line| println!("{line}"));
            simulated.violations.iter().for_each(|violation| println!("{violation}"));
        }
        ("ci", []) => return tier(&arguments, seed, Length::Short),
        ("nightly", []) => return tier(&arguments, seed, Length::Long),
        ("twins", []) => return twins(&arguments, seed),
        (name, []) => match Harness::named(name) {
            Some(harness) => return one(harness, &arguments, seed),
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

fn one(harness: &Harness, arguments: &Arguments, seed: u64) -> ExitCode {
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
    watch_panics();
    let mut tell = tell;
    let mut runs = Runs::new(&mut tell);
    let is_good = runs.run(harness, seed, tier, arguments.twin.as_deref()).is_good();
    end(&runs, is_good)
}

/// Runs all harnesses, or the chosen ones, and after each its twins.
fn tier(arguments: &Arguments, seed: u64, length: Length) -> ExitCode {
    let plan = match (tiers::chosen(&arguments.only), tiers::regressions(REGRESSIONS)) {
        (Ok(harnesses), Ok(regressions)) => {
            let is_chosen = |harness: &Harness| harnesses.iter().any(|chosen| chosen.name == harness.name);
            let regressions: Vec<_> =
                regressions.into_iter().filter(|(harness, _)| is_chosen(harness)).collect();
            let share = arguments.share.map_or(1.0, |millionths| millionths as f64 / 1_000_000.0);
            let Arguments { trials, time_limit, .. } = *arguments;
            (Plan { length, harnesses, seed, trials, time_limit, share }, regressions)
        }
        (Err(reason), _) => return refuse(&reason),
        (_, Err(reason)) => return refuse(&format!("regressions.txt: {reason}")),
    };
    with_table(|runs| runs.tier(&plan.0, &plan.1))
}

/// Runs the twins of all harnesses, or of the chosen ones.
fn twins(arguments: &Arguments, seed: u64) -> ExitCode {
    match tiers::chosen(&arguments.only) {
        Ok(harnesses) => with_table(|runs| {
            let caught: Vec<bool> =
                harnesses.iter().map(|harness| runs.twins(harness, seed, FOR_TWINS)).collect();
            caught.into_iter().all(|caught| caught)
        }),
        Err(reason) => refuse(&reason),
    }
}

/// Counts panics, and prints them unless a twin makes them.
fn watch_panics() {
    // It prints every panic in its own way, so it comes first.
    interleave::set_hook_of_scheduler();
    panics::watch();
}

/// Runs harnesses, and prints a table of them at the end; the lines of the results stay alone on the standard output.
fn with_table(work: impl FnOnce(&mut Runs) -> bool) -> ExitCode {
    watch_panics();
    let mut tell = tell;
    let mut runs = Runs::new(&mut tell);
    let is_good = work(&mut runs);
    eprintln!("\n{}", runs.table());
    end(&runs, is_good)
}

/// Prints the line of a result, and what it found.
fn tell(report: &Report) {
    println!("{}", report.line());
    report.violations.iter().for_each(|violation| eprintln!("{}: {violation}", report.harness));
}

/// Says last what failed, so that nobody has to look for it.
fn end(runs: &Runs, is_good: bool) -> ExitCode {
    runs.failures().iter().for_each(|failure| eprintln!("{failure}"));
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
