//! The limit beside `parallel`: a bare loop that writes the rows that such steps need, in transactions of as many
//! operations as our store had in a commit, each synced. It is the one of `bench/store` or of `bench/postgres`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::run::Run;
use crate::sides::{Side, build};
use crate::{Outcome, machine};

/// Steps of one orchestration of `parallel`.
const STEPS: f64 = 5.0;
/// What the loop does for one orchestration: a start, four operations for each step, and a last turn of two.
const OPERATIONS: f64 = 4.0 * STEPS + 3.0;
/// Its turns: one at its start, one after each step.
const TURNS: f64 = STEPS + 1.0;
const SECONDS: &str = "2";

pub struct Limit {
    /// Operations in a transaction, on average, of our runs of `parallel`.
    pub batch: u64,
    pub orchestrations_per_s: f64,
    /// The same without the rows of leases, where that was measured.
    pub without_leases_per_s: Option<f64>,
    /// With the fewest rows that could carry the promises, in tables made for them, where that was measured.
    pub fewest_rows_per_s: Option<f64>,
}

impl Limit {
    /// The medians of several; `None` without any.
    pub fn median(limits: &[Self]) -> Option<Self> {
        let last = limits.last()?;
        let middle = |of: fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = limits.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| machine::median(&values))
        };
        Some(Self {
            batch: last.batch,
            orchestrations_per_s: middle(|limit| Some(limit.orchestrations_per_s))?,
            without_leases_per_s: middle(|limit| limit.without_leases_per_s),
            fewest_rows_per_s: middle(|limit| limit.fewest_rows_per_s),
        })
    }

    /// Says how ours compares with it.
    pub fn text(&self, ours_per_s: f64) -> String {
        let share = |rate: f64| format!("ours is {:.0} % of it", 100.0 * ours_per_s / rate);
        let mut text = format!(
            "{:.0} orchestrations of 5 steps/s with {} operations in a transaction; {}",
            self.orchestrations_per_s,
            self.batch,
            share(self.orchestrations_per_s)
        );
        if let Some(rate) = self.without_leases_per_s {
            text.push_str(&format!("; without leases {rate:.0}/s, {}", share(rate)));
        }
        if let Some(rate) = self.fewest_rows_per_s {
            text.push_str(&format!("; with the fewest rows {rate:.0}/s, {}", share(rate)));
        }
        text
    }
}

/// Measures it once, on files in `dir` or on the server that `server` names.
pub fn measure(dir: &Path, server: Option<&str>, runs: &[Run]) -> Outcome<Limit> {
    match server {
        None => {
            let batch = batch(runs, "commits_per_step")?;
            let program = program("store", "store-bench")?;
            let options = ["load", "--no-op", "--callers", "1000", "--bare", &batch.to_string()];
            let loop_rate = rate(Command::new(&program).args(options).arg("--dir").arg(dir))?;
            // As many turns in a transaction as there were operations of turns in one of ours.
            let turns = (batch as f64 * TURNS / OPERATIONS).round().max(1.0).to_string();
            let fewest = figure(
                Command::new(&program).args(["limit", "--batch", &turns]).arg("--dir").arg(dir),
                "orchestrations/s",
            )?;
            Ok(Limit {
                batch,
                orchestrations_per_s: loop_rate,
                without_leases_per_s: None,
                fewest_rows_per_s: Some(fewest),
            })
        }
        Some(url) => {
            // Transactions that read, or lease without a sync, do not count.
            let batch = batch(runs, "syncs_per_step")?;
            let program = program("postgres", "postgres-bench")?;
            let rate = |flags: &[&str]| {
                let mut command = Command::new(&program);
                rate(
                    command
                        .args(["bare", "--batch", &batch.to_string()])
                        .args(flags)
                        .env("BENCH_DATABASE_URL", url),
                )
            };
            Ok(Limit {
                batch,
                orchestrations_per_s: rate(&[])?,
                without_leases_per_s: Some(rate(&["--no-leases"])?),
                fewest_rows_per_s: None,
            })
        }
    }
}

/// Operations in a commit of our runs of `parallel`, by the figure that counts commits.
fn batch(runs: &[Run], figure: &str) -> Outcome<u64> {
    let is_parallel = |run: &&Run| run.side == Side::Ours && run.result["workload"] == "parallel";
    let commits: Vec<f64> =
        runs.iter().filter(is_parallel).filter_map(|run| run.result["figures"][figure].as_f64()).collect();
    let commits_per_step = machine::median(&commits);
    if commits_per_step == 0.0 {
        return Err("it needs a run of 'parallel' on our side".into());
    }
    Ok((OPERATIONS / (STEPS * commits_per_step)).round().max(1.0) as u64)
}

fn program(package: &str, binary: &str) -> Outcome<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(package);
    build(&std::path::absolute(package)?, binary)
}

/// Runs the loop with the store's rows: orchestrations per second.
fn rate(command: &mut Command) -> Outcome<f64> {
    Ok(figure(command, "operations/s")? / OPERATIONS)
}

/// Runs a loop, and returns one figure of its only row.
fn figure(command: &mut Command, name: &str) -> Outcome<f64> {
    let steps = STEPS.to_string();
    let output = command.args(["--seconds", SECONDS, "--steps-per-instance", &steps, "--json"]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("it failed: {}", String::from_utf8_lossy(&output.stderr)))?;
    let figures = &report["tables"][0]["rows"][0];
    figures[name].as_f64().ok_or_else(|| format!("the loop printed no {name}").into())
}
