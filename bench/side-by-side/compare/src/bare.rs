//! The limit beside `parallel`: a bare SQLite loop that writes the rows that such steps need, in transactions of as
//! many operations as our store had in a commit, each synced. It is the one of `bench/store`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run::Run;
use crate::sides::{Side, build};
use crate::{Outcome, machine};

/// Steps of one orchestration of `parallel`.
const STEPS: f64 = 5.0;
/// What the loop does for one orchestration: a start, four operations for each step, and a last turn of two.
const OPERATIONS: f64 = 4.0 * STEPS + 3.0;
const SECONDS: &str = "2";
const ROUNDS: usize = 3;

pub struct Limit {
    /// Operations in a transaction, on average, of our runs of `parallel`.
    pub batch: u64,
    pub orchestrations_per_s: f64,
}

pub fn measure(dir: &Path, runs: &[Run]) -> Outcome<Limit> {
    let is_parallel = |run: &&Run| run.side == Side::Ours && run.result["workload"] == "parallel";
    let commits: Vec<f64> = runs
        .iter()
        .filter(is_parallel)
        .filter_map(|run| run.result["figures"]["commits_per_step"].as_f64())
        .collect();
    let commits_per_step = machine::median(&commits);
    if commits_per_step == 0.0 {
        return Err("it needs a run of 'parallel' on our side".into());
    }
    let batch = (OPERATIONS / (STEPS * commits_per_step)).round().max(1.0) as u64;
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../store");
    let program = build(&std::path::absolute(package)?, "store-bench")?;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let output = Command::new(&program)
            .args([
                "load",
                "--bare",
                &batch.to_string(),
                "--no-op",
                "--callers",
                "1000",
                "--seconds",
                SECONDS,
            ])
            .args(["--steps-per-instance", &STEPS.to_string(), "--json", "--dir"])
            .arg(dir)
            .output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let figures = &report["tables"][0]["rows"][0];
        rates.push(figures["operations/s"].as_f64().ok_or("the loop printed no operations/s")?);
    }
    Ok(Limit { batch, orchestrations_per_s: machine::median(&rates) / OPERATIONS })
}
