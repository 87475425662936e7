//! Syncs per operation, as the kernel sees them: `strace` counts them in a process that runs the load.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::args::Args;
use crate::bare::{Bare, Kind};
use crate::load::{Plan, open};
use crate::report::{Report, Table};
use crate::stats::ratio;
use crate::steps::{LOCK_TIMEOUT, measure};
use crate::{Outcome, machine, new_report, runtime};

const GOAL: f64 = 0.1;

pub fn run(args: &Args) -> Outcome<Report> {
    let callers: usize = args.value("callers", 64)?;
    let seconds: f64 = args.value("seconds", 5.0)?;
    let steps: u64 = args.value("steps-per-instance", 10)?;
    let dir = args.work_dir()?;
    let mut report = new_report(args);
    machine::describe(&mut report, dir.path())?;
    report.setting("callers", callers);
    report.setting("seconds", seconds);

    let load = ["load", "--json", "--callers", &callers.to_string(), "--seconds", &seconds.to_string()]
        .map(String::from)
        .into_iter()
        .chain(["--steps-per-instance".into(), steps.to_string()])
        .chain(["--dir".into(), dir.path().display().to_string()])
        .collect::<Vec<_>>();
    let summary = dir.path().join("strace.txt");
    let has_strace = Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success());
    if has_strace {
        report.setting("counted by", "strace, in a process of its own, from its first to its last sync");
        let (figures, syncs) = traced(&load, &summary)?;
        tabulate(&mut report, &figures, syncs, "syncs");
    } else {
        report.setting(
            "counted by",
            "commits, because strace is not installed: an upper bound, checkpoints aside",
        );
        let output = Command::new(std::env::current_exe()?).args(&load).output()?;
        let figures = figures_of(&output)?;
        let commits = figures["commits"].as_u64().unwrap_or(0);
        tabulate(&mut report, &figures, commits, "commits");
    }
    Ok(report)
}

fn traced(load: &[String], summary: &Path) -> Outcome<(Value, u64)> {
    let output = Command::new("strace")
        // Only the syscalls that are asked for stop the process, so that it runs nearly as fast as ever.
        .args(["-f", "--seccomp-bpf", "-c", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(summary)
        .arg(std::env::current_exe()?)
        .args(load)
        .output()?;
    let figures = figures_of(&output)?;
    let text = std::fs::read_to_string(summary)?;
    // Lines are: % time, seconds, usecs/call, calls, [errors,] syscall.
    let calls = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_sync = matches!(fields.last(), Some(&("fsync" | "fdatasync")));
        fields.get(3).filter(|_| is_sync).and_then(|calls| calls.parse::<u64>().ok())
    };
    Ok((figures, text.lines().filter_map(calls).sum()))
}

/// The one row that `load` prints.
fn figures_of(output: &std::process::Output) -> Outcome<Value> {
    if !output.status.success() {
        return Err(format!("the load failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    Ok(report["tables"][0]["rows"][0].clone())
}

fn tabulate(report: &mut Report, figures: &Value, syncs: u64, what: &str) {
    let number = |name: &str| figures[name].as_u64().unwrap_or(0);
    let per_operation = ratio(syncs as f64, number("operations") as f64);
    let mut table = Table::new(
        "syncs",
        &["operations", "steps", "commits", what, "per operation", "per commit", "per step"],
    );
    table.row(vec![
        number("operations").into(),
        number("steps").into(),
        number("commits").into(),
        syncs.into(),
        per_operation.into(),
        ratio(syncs as f64, number("commits") as f64).into(),
        ratio(syncs as f64, number("steps") as f64).into(),
    ]);
    report.table(table);
    report.goal("fewer than 0.1 syncs per operation", per_operation, per_operation < GOAL);
}

/// The load alone, with everything that it does counted; with `--bare`, the bare loop instead.
pub fn run_load(args: &Args) -> Outcome<Report> {
    let callers: usize = args.value("callers", 64)?;
    let duration = Duration::from_secs_f64(args.value("seconds", 10.0)?);
    let steps: u64 = args.value("steps-per-instance", 10)?;
    let dir = args.work_dir()?;
    let file = dir.path().join("load.db");
    let (operations, steps, commits, elapsed) = match args.text("bare") {
        Some(_) => {
            runtime()?.block_on(open(&file))?;
            let kind = if args.flag("no-op") { Kind::NoOp } else { Kind::Load };
            let counts = Bare::open(&file, callers, steps, kind)?.run(args.value("bare", 1)?, duration)?;
            (counts.operations, counts.steps, counts.commits, counts.elapsed)
        }
        None => {
            let plan =
                Plan { callers, steps, lock_timeout: LOCK_TIMEOUT, prefix: String::new(), witness: None };
            let measured = runtime()?.block_on(measure(&file, &plan, Duration::ZERO, duration))?;
            (measured.counts.operations(), measured.counts.steps(), measured.commits, measured.elapsed)
        }
    };
    let mut report = new_report(args);
    let mut table =
        Table::new("load", &["operations", "steps", "commits", "operations/s", "operations per commit"]);
    table.row(vec![
        operations.into(),
        steps.into(),
        commits.into(),
        ratio(operations as f64, elapsed.as_secs_f64()).into(),
        ratio(operations as f64, commits as f64).into(),
    ]);
    report.table(table);
    Ok(report)
}
