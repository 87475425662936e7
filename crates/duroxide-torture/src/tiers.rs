//! The tiers: which harnesses run, how much of each, for how long, and what they found together.

use std::collections::BTreeMap;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

use crate::harness::{ALL, Harness, Tier, soak};
use crate::report::Report;

/// The tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// What runs with every change.
    Short,
    /// What runs in a night.
    Long,
}

/// What to run of a tier.
#[derive(Clone)]
pub struct Plan {
    /// Which tier.
    pub length: Length,
    /// The harnesses, in their order.
    pub harnesses: Vec<Harness>,
    /// The seed of the first trial of each.
    pub seed: u64,
    /// No harness makes more trials.
    pub trials: Option<u64>,
    /// No harness takes longer, beside its twins.
    pub time_limit: Option<Duration>,
    /// This part of the trials and of the time.
    pub share: f64,
}

/// For how long the short tier goes on, with all twins. What a slow machine does not reach by then, it leaves; but no harness
/// has fewer trials than its least.
const SHORT_TIER: Duration = Duration::from_secs(480);
/// How long the twins of a harness get.
pub const FOR_TWINS: Duration = Duration::from_secs(60);
/// A twin gets at least so long, on a slow machine too.
const LEAST_FOR_A_TWIN: Duration = Duration::from_secs(30);

/// Finds the harnesses with these names, in the order in which tiers run them; all if there are no names.
///
/// # Errors
/// Says which name is of no harness.
pub fn chosen(names: &[String]) -> Result<Vec<Harness>, String> {
    match names.iter().find(|name| Harness::named(name).is_none()) {
        Some(name) => Err(format!("there is no harness {name}")),
        None => {
            let is_chosen =
                |harness: &&Harness| names.is_empty() || names.iter().any(|name| name == harness.name);
            Ok(ALL.iter().filter(is_chosen).copied().collect())
        }
    }
}

/// Runs harnesses, tells the result of each, and adds up what they found.
pub struct Runs<'a> {
    tell: &'a mut dyn FnMut(&Report),
    rows: Vec<Row>,
    failures: Vec<String>,
}

/// What all runs of a harness found together.
#[derive(Default)]
struct Row {
    name: String,
    trials: u64,
    failed: u64,
    seconds: f64,
    twins: BTreeMap<String, bool>,
    is_bad: bool,
}

impl<'a> Runs<'a> {
    /// Begins with nothing; `tell` hears of every run.
    pub fn new(tell: &'a mut dyn FnMut(&Report)) -> Self {
        Self { tell, rows: Vec::new(), failures: Vec::new() }
    }

    /// Runs the seeds of old bugs, then all harnesses of the plan, after each its twins. Tells whether all was good.
    pub fn tier(&mut self, plan: &Plan, regressions: &[(Harness, u64)]) -> bool {
        let mut is_good = true;
        for (harness, seed) in regressions {
            is_good &= self.run(harness, *seed, ONE, None).is_good();
        }
        let begin = SystemClock.monotonic();
        let wanted: Duration = plan.harnesses.iter().map(|harness| harness.ci.time_limit).sum();
        let mut planned = Duration::ZERO;
        for harness in &plan.harnesses {
            // The part of the time that this harness may have, and of which those before it have left or taken something.
            planned += harness.ci.time_limit;
            let part = planned.as_secs_f64() / wanted.as_secs_f64().max(f64::MIN_POSITIVE);
            let left = SHORT_TIER.mul_f64(part * plan.share).saturating_sub(SystemClock.monotonic() - begin);
            let (tier, least, for_twins) = plan.limits(harness, left);
            is_good &= self.run_at_least(harness, plan.seed, tier, least);
            is_good &= self.twins(harness, plan.seed, for_twins);
        }
        is_good
    }

    /// Runs the twins of a harness, and tells whether all were caught.
    pub fn twins(&mut self, harness: &Harness, seed: u64, time_limit: Duration) -> bool {
        let tier = Tier { trials: harness.twin_trials, time_limit };
        let run = |twin: &&str| self.run(harness, seed, tier, Some(twin)).is_good();
        let caught: Vec<bool> = harness.twins.iter().map(run).collect();
        caught.into_iter().all(|caught| caught)
    }

    /// Runs trials, and more of them if there was time for fewer than the least: judged are all of them together.
    fn run_at_least(&mut self, harness: &Harness, seed: u64, tier: Tier, least: u64) -> bool {
        let mut done = 0;
        if !tier.time_limit.is_zero() {
            let report = self.run(harness, seed, tier, None);
            if report.trials >= least {
                return report.is_good();
            }
            if report.failed > 0 {
                return false;
            }
            done = report.trials;
        }
        let rest = Tier { trials: least - done, time_limit: Duration::MAX };
        self.run(harness, seed + done, rest, None).is_good()
    }

    /// Runs trials, and tells of the result.
    pub fn run(&mut self, harness: &Harness, seed: u64, tier: Tier, twin: Option<&str>) -> Report {
        if harness.name == soak::HARNESS.name {
            soak::set_length(tier.time_limit, twin.is_some());
        }
        let mut report = harness.run(seed, tier, twin);
        if twin.is_some() {
            // What a twin did wrong is its purpose.
            report.violations.clear();
        }
        (self.tell)(&report);
        self.note(&report);
        report
    }

    fn note(&mut self, report: &Report) {
        self.failures.extend(report.failures());
        let place = self.rows.iter().position(|row| row.name == report.harness).unwrap_or_else(|| {
            self.rows.push(Row { name: report.harness.clone(), ..Row::default() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        row.seconds += report.seconds;
        match &report.twin {
            Some(twin) => *row.twins.entry(twin.clone()).or_default() |= report.is_good(),
            None => {
                row.trials += report.trials;
                row.failed += report.failed;
            }
        }
        row.is_bad |= report.failed > 0 && report.twin.is_none();
        row.is_bad |= report.twin.is_some() && !report.is_good();
    }

    /// What failed, in a line for each seed.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// All runs as a table.
    pub fn table(&self) -> String {
        let mut lines = vec![format!(
            "{:<12}{:>10}{:>12}{:>10}  twins caught",
            "harness", "trials", "violations", "seconds"
        )];
        for row in &self.rows {
            let caught = row.twins.values().filter(|caught| **caught).count();
            let end = if row.is_bad { "  FAILED" } else { "" };
            lines.push(format!(
                "{:<12}{:>10}{:>12}{:>10.1}  {caught} of {}{end}",
                row.name,
                row.trials,
                row.failed,
                row.seconds,
                row.twins.len()
            ));
        }
        lines.join("\n")
    }
}

/// A single trial, however long it takes.
const ONE: Tier = Tier { trials: 1, time_limit: Duration::MAX };

impl Plan {
    /// How much of a harness to run, how many trials at least, and how long for its twins. `left` is what the short tier has
    /// left for the harness.
    fn limits(&self, harness: &Harness, left: Duration) -> (Tier, u64, Duration) {
        let Tier { trials, time_limit } = match self.length {
            Length::Short => harness.ci,
            Length::Long => harness.nightly,
        };
        let trials = ((trials as f64 * self.share).ceil() as u64).max(1);
        let trials = self.trials.map_or(trials, |asked| asked.min(trials));
        let time_limit = time_limit.mul_f64(self.share);
        let time_limit = self.time_limit.map_or(time_limit, |asked| asked.min(time_limit));
        match self.length {
            Length::Short => {
                let time_limit = time_limit.min(left.mul_f64(0.8));
                let least = least(harness, trials);
                (Tier { trials, time_limit }, least, FOR_TWINS.min(left).max(LEAST_FOR_A_TWIN))
            }
            // A limit of the long tier is one: a single trial shows that the harness works.
            Length::Long => (Tier { trials, time_limit }, 1, FOR_TWINS),
        }
    }
}

/// How many trials of a harness make a short tier: a tenth of those that it wants, so that a slow machine fails only where it
/// has shown next to nothing.
fn least(harness: &Harness, trials: u64) -> u64 {
    // The servers of these take seconds to start.
    let is_slow = ["pgfault", "scale"].contains(&harness.name);
    if is_slow { 1 } else { trials.div_ceil(10) }
}

/// Reads lines `HARNESS SEED`; those that begin with `#` say something else.
///
/// # Errors
/// Says which line is something else.
pub fn regressions(lines: &str) -> Result<Vec<(Harness, u64)>, String> {
    let lines = lines.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let harness = words.next().and_then(Harness::named);
            let seed = words.next().and_then(|seed| seed.parse().ok());
            harness.copied().zip(seed).ok_or(format!("this is no harness and seed: {line}"))
        })
        .collect()
}

#[cfg(test)]
#[path = "tiers_tests.rs"]
mod tests;
