//! What a trial found, and how a run of many tells it: one line of JSON, and for each failure the command that repeats it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::checker::Violation;

/// Numbers by name. Names that begin with `longest_` or `most_` are maxima, all others sums.
pub type Figures = BTreeMap<&'static str, u64>;

/// What one trial found.
#[derive(Debug, Default)]
pub struct Trial {
    /// The breaches.
    pub violations: Vec<Violation>,
    /// What happened how often.
    pub figures: Figures,
}

impl Trial {
    /// A trial with breaches and figures.
    pub fn new(violations: Vec<Violation>, figures: Figures) -> Self {
        Self { violations, figures }
    }
}

/// What a run of many trials found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The harness.
    pub harness: String,
    /// The deliberately broken part, if this run was to catch it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub twin: Option<String>,
    /// The seed of the first trial; the others follow.
    pub seed: u64,
    /// How many trials there were.
    pub trials: u64,
    /// How many of them found a breach. Of a twin, that is in how many it was caught.
    pub failed: u64,
    /// The first breaches, each with its seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// The seeds that found them.
    #[serde(skip)]
    pub failed_seeds: Vec<u64>,
    /// How long it took.
    pub seconds: f64,
    /// What happened how often.
    pub figures: BTreeMap<String, u64>,
    /// The version of the code.
    pub commit: String,
}

/// Breaches beyond this many are only counted.
const SHOWN: usize = 12;

impl Report {
    /// Adds a trial.
    pub fn add(&mut self, seed: u64, trial: Trial) {
        self.trials += 1;
        if !trial.violations.is_empty() {
            self.failed += 1;
            self.failed_seeds.push(seed);
        }
        let room = SHOWN.saturating_sub(self.violations.len());
        self.violations
            .extend(trial.violations.iter().take(room).map(|found| format!("seed {seed}: {found}")));
        for (name, value) in trial.figures {
            let figure = self.figures.entry(name.to_string()).or_default();
            let is_maximum = name.starts_with("longest_") || name.starts_with("most_");
            *figure = if is_maximum { (*figure).max(value) } else { *figure + value };
        }
    }

    /// Tells whether the run is as it should be: a twin is caught, anything else finds nothing.
    pub fn is_good(&self) -> bool {
        if self.twin.is_some() { self.failed > 0 } else { self.failed == 0 && self.trials > 0 }
    }

    /// Notes how long the run took.
    pub fn took(&mut self, time: Duration) {
        self.seconds = (time.as_secs_f64() * 10.0).round() / 10.0;
    }

    /// The one line of the result.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| error.to_string())
    }

    /// The first failures: which harness failed, with which seed, why, and how to repeat it.
    pub fn failures(&self) -> Vec<String> {
        if self.is_good() {
            return Vec::new();
        }
        let name = &self.harness;
        if let Some(twin) = &self.twin {
            return vec![format!(
                "FAILED: {name} did not catch the twin {twin} in {} trials from seed {} on",
                self.trials, self.seed
            )];
        }
        if self.failed_seeds.is_empty() {
            return vec![format!("FAILED: {name} has made no trial")];
        }
        let failure = |(seed, command): (&u64, String)| {
            let begin = format!("seed {seed}: ");
            let found = self.violations.iter().find_map(|violation| violation.strip_prefix(&begin));
            let found = found.and_then(|found| found.lines().next()).unwrap_or("(see above)");
            format!("FAILED: {name} with seed {seed}: {found}\n  repeat with: {command}")
        };
        self.failed_seeds.iter().zip(self.reproductions()).map(failure).collect()
    }

    /// The commands that repeat the first failures.
    pub fn reproductions(&self) -> Vec<String> {
        // A soak has no trials to count, but a length.
        let length =
            self.figures.get("seconds").map_or(String::new(), |seconds| format!(" --time-limit {seconds}"));
        let command = |seed: &u64| {
            format!(
                "cargo run -p duroxide-torture -- {} --seed {seed} --trials 1{length}  # at {}",
                self.harness, self.commit
            )
        };
        self.failed_seeds.iter().take(3).map(command).collect()
    }
}

/// The commit that the code is at, if it is known.
pub fn commit() -> String {
    let asked = std::process::Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let answer = asked.ok().filter(|output| output.status.success());
    let name = answer.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    name.unwrap_or_else(|| "unknown".to_string())
}
