//! `ioerr`: the Nth call to the disk fails, for every N: with an error of the device, after half of a write, or for lack of
//! room that comes back later. Whatever was acknowledged is there, and no instance fails for an error that passes.
//!
//! The trial of a seed is one N of one of two workloads, calls on the store and whole orchestrations, with one of five faults.
//! The first seeds are spread over each workload; all together meet every call of both with every fault.

use std::sync::{Arc, Mutex};
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
use crate::report::{Figures, Trial};
use crate::shared::program::{self, Forecast, Input, ORCHESTRATION, Step};

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "ioerr",
    about: "an I/O error, half a write or a full disk at the Nth call, for every N of two workloads",
    trial,
    twins: &["swallows-errors"],
    twin_trials: 60,
    ci: Tier { trials: 2_000, time_limit: Duration::from_secs(30) },
    nightly: Tier { trials: 20_000, time_limit: Duration::from_secs(60 * 60) },
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
/// More than the calls to the disk that each workload makes, which the figures `beyond_` show; primes, so that strides meet
/// every number below them.
const CALLS_OF_CALLS: u64 = 997;
const CALLS_OF_WHOLE: u64 = 997;
const STRIDE: u64 = 89;

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    // The store's own writer, which a twin lets acknowledge what it could not commit.
    let writer = twin.map(|_| WriterFault::SwallowsErrors);
    let is_whole = seed % 2 == 1;
    let (fault, length) = FAULTS[(seed / 2 % FAULTS.len() as u64) as usize];
    let place = seed / 2 / FAULTS.len() as u64;
    let places = if is_whole { CALLS_OF_WHOLE } else { CALLS_OF_CALLS };
    if place >= places {
        return Trial::new(Vec::new(), Figures::from([("seeds_without_a_place", 1)]));
    }
    let n = place * STRIDE % places;
    let figures = Mutex::new(Figures::new());
    let found = caught(|| match is_whole {
        true => whole_orchestrations(n, fault, length, writer, &figures),
        false => calls(n, fault, length, writer, &figures),
    });
    let mut figures = figures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let is_reached = figures.remove("reached").unwrap_or(0) > 0;
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
        let reached = machine.disk.calls() - begin > n;
        figures.lock().unwrap().insert("reached", u64::from(reached));
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
        let url = format!("sqlite:{}?mode=rwc", disk.directory().join("store.db").display());
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
        figures.lock().unwrap().insert("reached", u64::from(disk.calls() - begin > n));
        let mut trace = Trace::default();
        trace.expect(&forecast);
        runs.lock().unwrap().iter().cloned().for_each(|run| trace.note_run(run));
        let ended = match Ended::read(&client, &SystemClock, soon, async || Leftovers::default()).await {
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
