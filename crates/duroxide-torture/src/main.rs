//! The command line of the harnesses; see the library.

#![allow(clippy::print_stdout, reason = "a program prints its results")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
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
    let seed = arguments.first_seed(SystemClock.now_ms() / (24 * 60 * 60 * 1_000));
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
            let simulated = alone::simulate_alone(seed, arguments.twin.as_deref(), true);
            simulated.lines.iter().for_each(|line| println!("{line}"));
            simulated.violations.iter().for_each(|violation| println!("{violation}"));
        }
        ("ci", []) => return tier(&arguments, seed, Short),
        ("nightly", []) => return tier(&arguments, seed, Long),
        ("twins", []) => {
            let caught: Vec<bool> =
                ALL.iter().map(|harness| twins(harness, seed, Duration::from_secs(60))).collect();
            return code(caught.into_iter().all(|caught| caught));
        }
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
    code(run(harness, seed, tier, arguments.twin.as_deref()))
}

/// The tiers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Short,
    Long,
}

use Length::{Long, Short};

/// For how long the short tier goes on, with all twins. What a slow machine does not reach by then, it leaves; but no harness
/// has fewer trials than its least.
const SHORT_TIER: Duration = Duration::from_secs(480);

/// Runs all harnesses, and after each its twins.
fn tier(arguments: &Arguments, seed: u64, length: Length) -> ExitCode {
    let begin = SystemClock.monotonic();
    let mut is_good = regressions();
    let wanted: Duration = ALL.iter().map(|harness| harness.ci.time_limit).sum();
    let mut planned = Duration::ZERO;
    for harness in ALL {
        let Tier { mut trials, mut time_limit } = if length == Short { harness.ci } else { harness.nightly };
        let mut for_twins = Duration::from_secs(60);
        if length == Short {
            // The part of the time that this harness may have, and of which those before it have left or taken something.
            planned += harness.ci.time_limit;
            let until = SHORT_TIER.mul_f64(planned.as_secs_f64() / wanted.as_secs_f64());
            let left = until.saturating_sub(SystemClock.monotonic() - begin);
            time_limit = time_limit.min(left.mul_f64(0.8));
            for_twins = for_twins.min(left).max(LEAST_FOR_A_TWIN);
        }
        trials = arguments.trials.map_or(trials, |asked| asked.min(trials));
        time_limit = arguments.time_limit.map_or(time_limit, |asked| asked.min(time_limit));
        let least = least(harness, trials);
        is_good &= run_at_least(harness, seed, Tier { trials, time_limit }, least);
        is_good &= twins(harness, seed, for_twins);
    }
    code(is_good)
}

/// A twin gets at least so long, on a slow machine too.
const LEAST_FOR_A_TWIN: Duration = Duration::from_secs(30);

/// How many trials of a harness make a tier: a tenth of those that it wants, so that a slow machine fails only where it has
/// shown next to nothing.
fn least(harness: &Harness, trials: u64) -> u64 {
    // The servers of these take seconds to start.
    let is_slow = ["pgfault", "scale"].contains(&harness.name);
    if is_slow { 1 } else { trials.div_ceil(10) }
}

/// Runs trials, and more of them if there was time for fewer than the least.
fn run_at_least(harness: &Harness, seed: u64, tier: Tier, least: u64) -> bool {
    let is_good = run(harness, seed, tier, None);
    let done = DONE.load(Ordering::Relaxed);
    if done >= least {
        return is_good;
    }
    let rest = Tier { trials: least - done, time_limit: Duration::MAX };
    is_good & run(harness, seed + done, rest, None)
}

/// How many trials the last run made.
static DONE: AtomicU64 = AtomicU64::new(0);

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

fn twins(harness: &Harness, seed: u64, time_limit: Duration) -> bool {
    let tier = Tier { trials: harness.twin_trials, time_limit };
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
    DONE.store(report.trials, Ordering::Relaxed);
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
