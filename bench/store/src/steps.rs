//! Durable steps per second, beside a bare loop that writes the same rows in batches of the same size.

use std::path::Path;
use std::time::Duration;

use duroxide::TagFilter;
use duroxide::providers::Provider;

use crate::args::Args;
use crate::bare::{Bare, Kind};
use crate::cpu::{CpuTime, us_per};
use crate::load::{Counts, Load, Plan, open};
use crate::machine::{self, CommitCounter};
use crate::report::{Report, Table};
use crate::stats::{median, now, ratio};
use crate::{Outcome, new_report, runtime};

/// The share of the bare loop that the store has to reach, and with how many callers.
const GOAL: (f64, usize) = (0.6, 64);
const WARM_UP: Duration = Duration::from_millis(300);
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// What a store did in a stretch of time.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub counts: Counts,
    pub commits: u64,
    pub elapsed: Duration,
    pub cpu: CpuTime,
}

impl Measured {
    pub fn per_second(&self, count: u64) -> f64 {
        ratio(count as f64, self.elapsed.as_secs_f64())
    }

    /// Operations in one commit.
    pub fn mean_batch(&self) -> f64 {
        ratio(self.counts.operations() as f64, self.commits as f64)
    }
}

pub fn run(args: &Args) -> Outcome<Report> {
    let callers: Vec<usize> = args.list("callers", &[1, 8, 64, 256])?;
    let rounds: usize = args.value("rounds", 9)?;
    let duration = Duration::from_secs_f64(args.value("seconds", 1.0)?);
    let steps: u64 = args.value("steps-per-instance", 10)?;
    let dir = args.work_dir()?;
    let mut report = new_report(args);
    machine::describe(&mut report, dir.path())?;
    report.setting("rounds", rounds);
    report.setting("seconds per round", duration.as_secs_f64());
    report.setting(
        "a step",
        "fetch a turn, ack it with three events and an activity, fetch the activity, ack it with its completion; \
         an instance also costs one enqueue and one last turn",
    );
    report.setting("steps per instance", steps);
    report.setting("operations per step", (4 * steps + 3) as f64 / steps as f64);

    let mut results: Vec<Vec<Round>> = callers.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (place, &callers) in callers.iter().enumerate() {
            let name = format!("{round}-{callers}");
            results[place].push(one_round(dir.path(), &name, callers, steps, duration)?);
        }
        report.progress(&format!("round {} of {rounds}", round + 1));
    }
    tabulate(&mut report, &callers, &results);
    Ok(report)
}

/// Both sides, one right after the other, so that what else the machine does hits both.
struct Round {
    store: Measured,
    bare_steps: f64,
    bare_operations: f64,
    bare_commits: f64,
    bare_cpu_us: f64,
}

fn one_round(dir: &Path, name: &str, callers: usize, steps: u64, duration: Duration) -> Outcome<Round> {
    let files = [dir.join(format!("store-{name}.db")), dir.join(format!("bare-{name}.db"))];
    let plan = Plan { callers, steps, lock_timeout: LOCK_TIMEOUT, prefix: String::new(), witness: None };
    let store = runtime()?.block_on(measure(&files[0], &plan, WARM_UP, duration))?;
    runtime()?.block_on(open(&files[1]))?;
    let batch = (store.mean_batch().round() as usize).max(1);
    let mut bare = Bare::open(&files[1], callers, steps, Kind::Load)?;
    bare.run(batch, WARM_UP)?;
    let counts = bare.run(batch, duration)?;
    drop(bare);
    for file in &files {
        std::fs::remove_file(file)?;
    }
    let seconds = counts.elapsed.as_secs_f64();
    Ok(Round {
        store,
        bare_steps: counts.steps as f64 / seconds,
        bare_operations: counts.operations as f64 / seconds,
        bare_commits: counts.commits as f64 / seconds,
        bare_cpu_us: us_per(counts.cpu, counts.operations),
    })
}

/// Runs the load on a file, and counts what is done between the end of the warm-up and the end of the run.
pub async fn measure(file: &Path, plan: &Plan, warm_up: Duration, duration: Duration) -> Outcome<Measured> {
    let store = open(file).await?;
    // SQLite makes the file with the counter when the database is first looked at.
    store.fetch_work_item(LOCK_TIMEOUT, Duration::ZERO, None, &TagFilter::DefaultOnly).await?;
    let commits = CommitCounter::new(file);
    let load = Load::start(&store, plan);
    tokio::time::sleep(warm_up).await;
    let (counts_before, commits_before, cpu_before, began) =
        (load.counts(), commits.read()?, CpuTime::read(), now());
    tokio::time::sleep(duration).await;
    let (counts, commits_after, elapsed) = (load.counts(), commits.read()?, now() - began);
    let cpu = CpuTime::read().since(&cpu_before);
    load.finish().await?;
    let commits = u64::from(commits_after.wrapping_sub(commits_before));
    Ok(Measured { counts: counts.since(&counts_before), commits, elapsed, cpu })
}

fn tabulate(report: &mut Report, callers: &[usize], results: &[Vec<Round>]) {
    let mut table = Table::new(
        "store, beside a bare loop that writes the same rows in batches of the same size (medians of all rounds)",
        &[
            "callers",
            "steps/s",
            "operations/s",
            "commits/s",
            "operations per commit",
            "bare steps/s",
            "bare operations/s",
            "bare commits/s",
            "store / bare",
            "lowest",
            "highest",
        ],
    );
    let mut at_goal = None;
    for (&callers, rounds) in callers.iter().zip(results) {
        let middle = |of: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let share = |round: &Round| {
            ratio(round.store.per_second(round.store.counts.operations()), round.bare_operations)
        };
        let shares: Vec<f64> = rounds.iter().map(share).collect();
        if callers == GOAL.1 {
            at_goal = Some(median(&shares));
        }
        table.row(vec![
            callers.into(),
            middle(&|r| r.store.per_second(r.store.counts.steps())).into(),
            middle(&|r| r.store.per_second(r.store.counts.operations())).into(),
            middle(&|r| r.store.per_second(r.store.commits)).into(),
            middle(&|r| r.store.mean_batch()).into(),
            middle(&|r| r.bare_steps).into(),
            middle(&|r| r.bare_operations).into(),
            middle(&|r| r.bare_commits).into(),
            median(&shares).into(),
            shares.iter().copied().fold(f64::INFINITY, f64::min).into(),
            shares.iter().copied().fold(0.0, f64::max).into(),
        ]);
    }
    report.table(table);
    tabulate_cpu(report, callers, results);
    let (refused, empty) = results.iter().flatten().fold((0, 0), |(refused, empty), round| {
        (refused + round.store.counts.refused, empty + round.store.counts.empty_fetches)
    });
    report.setting("refused operations", refused);
    report.setting("empty fetches", empty);
    if let Some(share) = at_goal {
        report.goal("with 64 callers the store does at least 0.6 of the bare loop", share, share >= GOAL.0);
    }
}

/// The same comparison in processor time, which says more on a machine that is busy with other things: the writer is
/// the one thread that every write has to pass through.
fn tabulate_cpu(report: &mut Report, callers: &[usize], results: &[Vec<Round>]) {
    let mut table = Table::new(
        "processor time per operation in microseconds (medians of all rounds)",
        &["callers", "store, all threads", "store, writer thread", "bare", "bare / writer", "bare / all"],
    );
    for (&callers, rounds) in callers.iter().zip(results) {
        let middle = |of: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let writer = |round: &Round| us_per(round.store.cpu.writer, round.store.counts.operations());
        let all = |round: &Round| us_per(round.store.cpu.all, round.store.counts.operations());
        table.row(vec![
            callers.into(),
            middle(&all).into(),
            middle(&writer).into(),
            middle(&|round| round.bare_cpu_us).into(),
            middle(&|round| ratio(round.bare_cpu_us, writer(round))).into(),
            middle(&|round| ratio(round.bare_cpu_us, all(round))).into(),
        ]);
    }
    report.table(table);
}
