//! `ioerr`: the Nth call to the disk fails, for every N: with an error of the device, after half of a write, or for lack of
//! room that comes back later. Whatever was acknowledged is there, and no instance fails for an error that passes.
//!
//! The trial of a seed is one N of one of two workloads, calls on the store and whole orchestrations, with one of five faults.
//! The first seeds are spread over each workload; 9,970 in a row, wherever they begin, meet every call of both with every fault.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use duroxide::providers::SystemClock;
use duroxide::providers::sqlite::{SqliteProvider, WriterFault};
use duroxide::runtime::Runtime;
use duroxide::{Client, OrchestrationRegistry, RuntimeOptions};
use powerloss_vfs::{CallFault, Disk, Survivors};

use super::{Harness, Tier};
use crate::checker::{Ended, Invariant, Leftovers, Trace, Violation, check};
use crate::panics::caught;
use crate::power_loss::{Image, Machine, Watched, run_activity, run_instance};
use crate::report::{Figures, Report, Trial};
use crate::shared::program::{self, Forecast, Input, ORCHESTRATION, Step};

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "ioerr",
    about: "an I/O error, half a write or a full disk at the Nth call, for every N of two workloads",
    trial,
    twins: &["swallows-errors"],
    twin_trials: 60,
    ci: Tier { trials: 2_000, time_limit: Duration::from_secs(30) },
    nightly: Tier { trials: 2 * SEEDS, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: true,
};

/// Every N meets all of them.
const FAULTS: [(CallFault, u64); 5] = [
    (CallFault::IoError, 1),
    (CallFault::IoError, 9),
    (CallFault::ShortWrite, 1),
    (CallFault::DiskFull, 1),
    (CallFault::DiskFull, 40),
];
/// More than the calls to the disk that each workload makes, which a test and every longer run measure; a prime, so that strides
/// meet every number below it.
const PLACES: u64 = 997;
const STRIDE: u64 = 89;
/// Each workload, with each fault, at each place.
const SEEDS: u64 = 2 * FAULTS.len() as u64 * PLACES;

/// What fails in the trial of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Point {
    /// In whole orchestrations, not in calls on the store.
    is_whole: bool,
    /// The call to the disk.
    n: u64,
    fault: CallFault,
    /// So many calls from it on.
    length: u64,
}

impl Point {
    /// Seeds begin again after all points.
    fn of(seed: u64) -> Self {
        let seed = seed % SEEDS;
        let (fault, length) = FAULTS[(seed / 2 % FAULTS.len() as u64) as usize];
        let place = seed / 2 / FAULTS.len() as u64;
        Self { is_whole: seed % 2 == 1, n: place * STRIDE % PLACES, fault, length }
    }

    /// A call that no workload makes.
    fn nowhere(is_whole: bool) -> Self {
        Self { is_whole, n: u64::from(u32::MAX), fault: CallFault::IoError, length: 1 }
    }

    /// Runs the workload. The figures tell how many calls it made.
    fn run(&self, writer: Option<WriterFault>, figures: &Mutex<Figures>) -> Vec<Violation> {
        match self.is_whole {
            true => whole_orchestrations(self.n, self.fault, self.length, writer, figures),
            false => calls(self.n, self.fault, self.length, writer, figures),
        }
    }
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    // The store's own writer, which a twin lets acknowledge what it could not commit.
    let writer = twin.map(|_| WriterFault::SwallowsErrors);
    let point = Point::of(seed);
    let Point { is_whole, n, .. } = point;
    let figures = Mutex::new(Figures::new());
    let found = caught(|| point.run(writer, &figures));
    let mut figures = figures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let is_reached = figures.remove("calls_made").unwrap_or(0) > n;
    figures.insert(
        match (is_whole, is_reached) {
            (true, true) => "points_of_whole_orchestrations",
            (true, false) => "beyond_whole_orchestrations",
            (false, true) => "points_of_calls",
            (false, false) => "beyond_calls",
        },
        1,
    );
    if is_reached {
        figures.insert(if is_whole { "most_n_of_whole_orchestrations" } else { "most_n_of_calls" }, n);
    }
    Trial::new(found.unwrap_or_else(|panic| vec![panic]), figures)
}

/// How many calls each workload makes on a sound disk: those of the store, and whole orchestrations.
fn calls_on_a_sound_disk() -> [u64; 2] {
    static CALLS: OnceLock<[u64; 2]> = OnceLock::new();
    *CALLS.get_or_init(|| {
        [false, true].map(|is_whole| {
            let figures = Mutex::new(Figures::new());
            let found = Point::nowhere(is_whole).run(None, &figures);
            assert!(found.is_empty(), "without any fault: {found:?}");
            figures.into_inner().unwrap()["calls_made"]
        })
    })
}

/// Notes how many points there are. A breach if a workload makes more calls than seeds reach, or if no seed of a run has reached
/// a call although some should have: then nothing was proven.
pub fn unproven(name: &str, report: &mut Report) -> Option<Violation> {
    // Whoever repeats one seed looks for something else.
    if name != HARNESS.name || report.trials < 2 {
        return None;
    }
    let calls = calls_on_a_sound_disk();
    let names = ["fault_points_there_are_of_calls", "fault_points_there_are_of_whole_orchestrations"];
    for (name, calls) in names.into_iter().zip(calls) {
        report.figures.insert(name.to_string(), calls);
    }
    let reached = ["points_of_calls", "points_of_whole_orchestrations"];
    let has_reached = reached.iter().any(|name| report.figures.get(*name).is_some_and(|count| *count > 0));
    // The last calls may be missing when others come together.
    let is_within = |point: Point| point.n < calls[usize::from(point.is_whole)] / 2;
    let should_reach = (report.seed..report.seed + report.trials).any(|seed| is_within(Point::of(seed)));
    let what = match calls.iter().any(|calls| *calls >= PLACES) {
        true => format!("the workloads make {calls:?} calls to the disk, of which seeds reach {PLACES}"),
        false if should_reach && !has_reached => "no trial has reached a call to the disk".to_string(),
        false => return None,
    };
    Some(Violation::of_store(Invariant::NothingLost, what))
}

/// Calls on the store. Each is tried again while the store says that it may succeed later.
fn calls(
    n: u64,
    fault: CallFault,
    length: u64,
    writer: Option<WriterFault>,
    figures: &Mutex<Figures>,
) -> Vec<Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let machine = Machine::with_fault(writer);
        let open = async || machine.builder().log_pages(30, 4_000).open(&machine.url()).await;
        let mut store = open().await.unwrap();
        let begin = machine.disk.calls();
        machine.disk.fail_calls(n..n + length, fault);
        let mut acknowledged = Vec::new();
        for round in 0..5 {
            let name = format!("i{round}");
            let worked = match round {
                2 => run_activity(&store, &name, &mut acknowledged).await,
                _ => run_instance(&store, &name, &mut acknowledged).await,
            };
            if worked.is_err() {
                *figures.lock().unwrap().entry("refusals").or_default() += 1;
                drop(store);
                // The disk is well again, or will be in a few calls.
                store = reopened(open).await;
            }
        }
        figures.lock().unwrap().insert("calls_made", machine.disk.calls() - begin);
        drop(store);
        let image = Image::of(&machine.disk, Survivors::Nothing);
        let missing = image.missing(&acknowledged);
        let lost = |fact| {
            let what = format!("{fact:?} was acknowledged and is gone; call {n} had failed with {fault:?}");
            Violation::of_store(Invariant::NothingLost, what)
        };
        missing.into_iter().map(lost).collect()
    })
}

async fn reopened<E: std::fmt::Display>(open: impl AsyncFn() -> Result<SqliteProvider, E>) -> SqliteProvider {
    let mut refusal = String::new();
    for _ in 0..60 {
        match open().await {
            Ok(store) => return store,
            Err(error) => refusal = error.to_string(),
        }
    }
    panic!("the store cannot be opened again: {refusal}")
}

/// The program of the whole runs: activities in turn and at once, a timer, a child, a value, a next execution.
fn steps() -> Vec<Step> {
    let label = |n: u32| format!("s{n}");
    vec![
        Step::Activity(label(1)),
        Step::FanOut(vec![label(2), label(3)]),
        Step::Timer(5),
        Step::SetKv("k".into(), label(4)),
        Step::Child(None, vec![Step::Activity(label(5))]),
        Step::ContinueAsNew,
        Step::ReadKv("k".into()),
        Step::Activity(label(6)),
    ]
}

/// Whole orchestrations, by a runtime that hears of the errors and has to get over them.
fn whole_orchestrations(
    n: u64,
    fault: CallFault,
    length: u64,
    writer: Option<WriterFault>,
    figures: &Mutex<Figures>,
) -> Vec<Violation> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::new(directory.path());
        let file = disk.directory().join("store.db");
        let url = format!("sqlite:{}?mode=rwc", file.display());
        let builder = SqliteProvider::builder().disk(Arc::new(Watched { disk: disk.clone(), fault: writer }));
        let store = Arc::new(builder.open(&url).await.unwrap());
        let client = Client::new(store.clone());
        let mut forecast = Forecast::default();
        for instance in ["a", "b"] {
            forecast.add(instance, &steps());
            client.start_orchestration(instance, ORCHESTRATION, Input::text(&steps())).await.unwrap();
        }
        let begin = disk.calls();
        disk.fail_calls(n..n + length, fault);
        let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
        let runs = Arc::default();
        let activities = super::programs::activities(&runs, false);
        let options = RuntimeOptions { max_attempts: 1_000, ..RuntimeOptions::default() };
        let worker = Runtime::start_with_options(store, activities, code.clone(), options).await;
        // Nobody waits long for a twin: what it has lost does not come.
        let soon = Duration::from_secs(if writer.is_some() { 2 } else { 30 });
        for instance in forecast.endings.keys() {
            let _ = client.wait_for_orchestration(instance, soon).await;
        }
        // The rest of the faults, if the work was done before they came, must not hit the reader.
        disk.fail_calls(0..0, fault);
        figures.lock().unwrap().insert("calls_made", disk.calls() - begin);
        let mut trace = Trace::default();
        trace.expect(&forecast);
        runs.lock().unwrap().iter().cloned().for_each(|run| trace.note_run(run));
        let ended = match Ended::read(&client, &SystemClock, soon, async || Leftovers::of_file(&file)).await {
            Ok(ended) => ended,
            Err(error) => {
                worker.shutdown(Some(0)).await;
                let what = format!("the store cannot be read after call {n} failed with {fault:?}: {error}");
                return vec![Violation::of_store(Invariant::Liveness, what)];
            }
        };
        worker.shutdown(Some(0)).await;
        check(&trace, &ended, &code)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The first seed of a night.
    const NIGHTLY: u64 = 20_776 * 1_000_000;

    #[test]
    fn the_seeds_of_a_night_reach_calls() {
        let points = (NIGHTLY..NIGHTLY + 40).map(Point::of);
        let calls = calls_on_a_sound_disk();
        let reached = points.filter(|point| point.n < calls[usize::from(point.is_whole)]).count();
        assert!(reached > 10, "{reached} of 40");
        let found = trial(NIGHTLY, None);
        assert!(found.violations.is_empty(), "{:?}", found.violations);
        assert!(!found.figures.contains_key("seeds_without_a_place"), "{:?}", found.figures);
    }

    #[test]
    fn all_seeds_in_a_row_meet_every_call_with_every_fault() {
        let shown = |point: Point| format!("{point:?}");
        let points: BTreeSet<String> =
            (NIGHTLY..NIGHTLY + SEEDS).map(|seed| shown(Point::of(seed))).collect();
        assert_eq!(points.len() as u64, SEEDS);
        let first: BTreeSet<String> = (0..SEEDS).map(|seed| shown(Point::of(seed))).collect();
        assert_eq!(points, first);
    }

    #[test]
    fn no_workload_makes_more_calls_than_seeds_reach() {
        let calls = calls_on_a_sound_disk();
        // What the second one makes differs a little from run to run.
        assert!(calls.iter().all(|calls| (100..PLACES * 9 / 10).contains(calls)), "{calls:?}");
    }

    #[test]
    fn a_run_that_reached_no_call_has_proven_nothing() {
        let name = HARNESS.name;
        let mut report = Report { seed: NIGHTLY, trials: 120, ..Report::default() };
        assert!(unproven(name, &mut report).is_some());
        report.figures.insert("points_of_calls".into(), 1);
        assert!(unproven(name, &mut report).is_none());
        assert!(report.figures["fault_points_there_are_of_calls"] > 0);
    }
}
