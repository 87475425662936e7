//! Running the programs in turn.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::database::Postgres;
use crate::machine::{WorkDir, now};
use crate::plan::{Case, SYNCS_GROUP};
use crate::sides::{Programs, Side};
use crate::{Outcome, bare};

/// What a program may take beyond its own cap before it is killed: opening, and building up what is to be watched.
const GRACE: Duration = Duration::from_secs(60);
/// How long a runtime without work is watched: long enough that what it does once does not count.
const IDLE_SECONDS: u64 = 20;
const LOOK: Duration = Duration::from_millis(5);

/// The figures of one run of one program.
pub struct Run {
    pub case: usize,
    pub side: Side,
    pub round: usize,
    /// What the disk took to sync a page just before, or the server to commit a row.
    pub sync_us: f64,
    /// What the program printed, or `{"error": …}`.
    pub result: Value,
}

/// Everything that was measured.
pub struct Measured {
    pub runs: Vec<Run>,
    pub bare: Option<bare::Limit>,
    /// What the server is, if there is one.
    pub server: Option<String>,
}

pub struct Runs<'a> {
    programs: &'a Programs,
    dir: &'a WorkDir,
    server: Option<Postgres>,
    runs: Vec<Run>,
    bare: Vec<bare::Limit>,
}

impl<'a> Runs<'a> {
    pub fn new(programs: &'a Programs, dir: &'a WorkDir, server: Option<Postgres>) -> Self {
        Self { programs, dir, server, runs: Vec::new(), bare: Vec::new() }
    }

    /// Runs every case once on each of its sides, one beside the other; the side that goes first changes.
    pub fn round(&mut self, round: usize, cases: &[Case]) -> Outcome<()> {
        for (index, case) in cases.iter().enumerate() {
            if case.is_once && round > 0 {
                continue;
            }
            let mut sides = case.sides.to_vec();
            if round % 2 == 1 {
                sides.reverse();
            }
            for side in sides {
                eprint!("round {} {} {}: ", round + 1, case.label(), side.name());
                let sync_us = match &mut self.server {
                    None => self.dir.sync_us()?,
                    Some(server) => server.commit_us()?,
                };
                let began = now();
                let result = self.one(case, side)?;
                eprintln!("{:.1} s {}", began.elapsed().as_secs_f64(), brief(case, &result));
                self.runs.push(Run { case: index, side, round, sync_us, result });
                self.dir.clear();
            }
        }
        Ok(())
    }

    /// Measures the bare loop, once for every round.
    pub fn add_bare_limit(&mut self) {
        let url = self.server.as_ref().map(Postgres::url);
        match bare::measure(self.dir.path(), url.as_deref(), &self.runs) {
            Ok(limit) => self.bare.push(limit),
            Err(error) => eprintln!("the bare loop could not be measured: {error}"),
        }
    }

    pub fn finish(mut self) -> Outcome<Measured> {
        let server = self.server.as_mut().map(Postgres::description).transpose()?;
        Ok(Measured { bare: bare::Limit::median(&self.bare), runs: self.runs, server })
    }

    fn one(&mut self, case: &Case, side: Side) -> Outcome<Value> {
        let file = self.dir.fresh_database(self.runs.len());
        let program = self.programs.path(side);
        if let Some(server) = &mut self.server {
            return on_server(server, program, case, &file);
        }
        if case.group != SYNCS_GROUP {
            return execute(Command::new(program), case, &file);
        }
        let trace = file.with_extension("strace");
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-e", "trace=fsync,fdatasync", "-o"]).arg(&trace).arg(program);
        let mut result = execute(command, case, &file)?;
        let syncs = count_syncs(&trace);
        if let Some(figures) = result.get_mut("figures").and_then(Value::as_object_mut) {
            figures.insert("syncs_per_step".to_string(), json!(syncs / case.size as f64));
        }
        Ok(result)
    }
}

/// Runs a program on the server, with what the server did for it among the figures; opening the store is part of that.
fn on_server(server: &mut Postgres, program: &Path, case: &Case, file: &Path) -> Outcome<Value> {
    let before = server.counters()?;
    let mut command = Command::new(program);
    command.env("BENCH_DATABASE_URL", server.url());
    let mut result = execute(command, case, file)?;
    server.disconnect_others()?;
    let after = server.counters()?;
    if let Some(figures) = result.get_mut("figures").and_then(Value::as_object_mut)
        && let Some(steps) = figures.get("steps_run").and_then(Value::as_f64)
    {
        for (name, value) in after.per_step(&before, steps) {
            figures.insert(name.to_string(), json!(value));
        }
    }
    server.clear()?;
    Ok(result)
}

/// Runs one program to its end and reads its line of figures. A program that fails or hangs is a result too.
fn execute(mut command: Command, case: &Case, file: &Path) -> Outcome<Value> {
    command
        .arg(case.workload)
        .args(["--size", &case.size.to_string(), "--cap", &case.cap_s.to_string(), "--sync", case.sync])
        .args(["--seconds", &IDLE_SECONDS.to_string()])
        .args(["--workers", &case.workers.to_string()])
        .arg("--file")
        .arg(file)
        // Neither side shall spend its time on writing logs.
        .env("RUST_LOG", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(json!({"error": format!("cannot be run: {error}")})),
    };
    let limit = Duration::from_secs(case.cap_s) * 2 + GRACE;
    let began = now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(json!({"error": format!("killed after {} s", limit.as_secs())}));
        }
        std::thread::sleep(LOOK);
    };
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text)?;
    }
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    match line.and_then(|line| serde_json::from_str(line).ok()) {
        Some(result) => Ok(result),
        None => Ok(json!({"error": format!("no figures, {status}")})),
    }
}

/// Adds up the calls in a summary of `strace -c`: share, seconds, microseconds per call, calls, errors, name.
fn count_syncs(summary: &PathBuf) -> f64 {
    let text = std::fs::read_to_string(summary).unwrap_or_default();
    let calls = |line: &str| -> Option<f64> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields.last(), Some(&"fsync" | &"fdatasync")).then(|| fields.get(3)?.parse().ok()).flatten()
    };
    text.lines().filter_map(calls).sum()
}

/// The first figures of a run, for the one who waits.
fn brief(case: &Case, result: &Value) -> String {
    if let Some(error) = result.get("error") {
        return error.to_string();
    }
    let mut text = String::new();
    for figure in case.figures.iter().take(2) {
        let value = result["figures"][figure.name].as_f64().unwrap_or(0.0);
        text.push_str(&format!("| {} {value:.1} {} ", figure.label, figure.unit));
    }
    let failed = result["failed"].as_u64().unwrap_or(0);
    if failed > 0 {
        text.push_str(&format!("| {failed} failed "));
    }
    if result["capped"] == true {
        text.push_str("| time was up");
    }
    text
}
