//! `model` and `model-pg`: random sequences of calls on a store, every answer and everything readable compared with the
//! reference.
//!
//! The SQLite store takes part in two ways: in memory, and as several handles on one file, some of which are opened in the
//! middle and some of which never come back, as processes that died.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{ExtendedProvider, ManualClock, Provider, ProviderAdmin};
use duroxide_pg::PostgresProvider;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::faulty::{Fault, FaultyProvider};
use crate::forwarding::forwarding_provider;
use crate::report::{Figures, Trial};
use crate::shared::database::Database;
use crate::shared::random::Random;
use crate::{compare, steps};

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "model",
    about: "random calls on the SQLite store, in memory and through several handles on a file, against the reference",
    trial,
    twins: &[
        "loses-messages",
        "keeps-cancelled-activities",
        "counts-ignored-attempts",
        "forgets-delays",
        "shares-sessions",
        "holds-turns-too-long",
        "forgets-key-times",
        "loses-failures",
        "ignores-versions",
    ],
    twin_trials: 96,
    ci: Tier { trials: 160, time_limit: Duration::from_secs(40) },
    nightly: Tier { trials: 50_000, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: true,
};

/// The harness on a server.
pub const ON_A_SERVER: Harness = Harness {
    name: "model-pg",
    about: "random calls on the PostgreSQL store against the reference",
    trial: on_a_server,
    twins: &["loses-messages", "keeps-cancelled-activities", "forgets-key-times"],
    twin_trials: 24,
    ci: Tier { trials: 12, time_limit: Duration::from_secs(30) },
    nightly: Tier { trials: 20_000, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: false,
};

fn on_a_server(seed: u64, twin: Option<&str>) -> Trial {
    let (sequence, mut figures) = sequence(seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let compared = runtime.block_on(async {
        let clock = Arc::new(ManualClock::default());
        let reference = Arc::new(MemoryProvider::with_clock(clock.clone()));
        // A copy of one that has the tables already: making them takes longer than a sequence.
        let database = Database::new().await;
        let store: Arc<dyn Provider> =
            Arc::new(PostgresProvider::builder().clock(clock.clone()).open(database.url()).await.unwrap());
        let store = match twin.and_then(fault) {
            Some(fault) => Arc::new(FaultyProvider::new(store, fault)),
            None => store,
        };
        // A look asks the server more than a hundred times.
        compare::run(reference, store, &clock, &sequence, 4 * look_every(seed)).await
    });
    figures.insert("sequences_on_a_server", 1);
    let violations = compared.err().map(|difference| Violation::of_store(Invariant::RightAnswer, difference));
    Trial::new(violations.into_iter().collect(), figures)
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let (sequence, mut figures) = sequence(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let is_file = seed.is_multiple_of(2);
    let compared = runtime.block_on(async {
        let clock = Arc::new(ManualClock::default());
        let reference = Arc::new(MemoryProvider::with_clock(clock.clone()));
        let store: Arc<dyn Provider> = match twin.and_then(fault) {
            Some(fault) => {
                Arc::new(FaultyProvider::new(Arc::new(MemoryProvider::with_clock(clock.clone())), fault))
            }
            None if is_file => {
                let calls_of_a_handle = CALLS_OF_A_HANDLE / look_every(seed);
                let path = directory.path().join("store.db");
                Arc::new(SharedFile::new(path, clock.clone(), calls_of_a_handle))
            }
            None => Arc::new(
                SqliteProvider::builder().clock(clock.clone()).open("sqlite::memory:").await.unwrap(),
            ),
        };
        compare::run(reference, store, &clock, &sequence, look_every(seed)).await
    });
    figures.insert(if is_file { "sequences_on_files" } else { "sequences_in_memory" }, 1);
    let violations = compared.err().map(|difference| Violation::of_store(Invariant::RightAnswer, difference));
    Trial::new(violations.into_iter().collect(), figures)
}

fn fault(name: &str) -> Option<Fault> {
    HARNESS.twins.iter().position(|twin| *twin == name).and_then(|place| Fault::ALL.get(place).copied())
}

/// After how many calls everything is read: a look costs as much as a hundred calls, and shows where a difference began.
fn look_every(seed: u64) -> usize {
    [1, 4, 16][(seed % 3) as usize]
}

/// Whether the clock is set back now and then.
fn is_set_back(seed: u64) -> bool {
    seed.is_multiple_of(5)
}

/// The sequence of a seed, and what there is to count in it.
fn sequence(seed: u64) -> (Vec<steps::Step>, Figures) {
    let mut dice = Random::new(seed);
    let bytes: Vec<u8> = (0..32).map(|_| dice.below(256) as u8).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = steps::sequence().new_tree(&mut runner).unwrap().current();
    let steps = if is_set_back(seed) { steps::with_set_backs(steps) } else { steps };
    let steps = [steps, steps::drain()].concat();
    let figures = Figures::from([("operations", steps.len() as u64)]);
    (steps, figures)
}

/// After so many calls the oldest handle is not used any more, and another one is opened; fewer where looks are rare.
const CALLS_OF_A_HANDLE: usize = 900;
const HANDLES: usize = 4;

/// A file that several handles use in turn.
struct SharedFile {
    handles: Handles,
}

struct Handles {
    path: PathBuf,
    clock: Arc<ManualClock>,
    opened: [OnceLock<SqliteProvider>; HANDLES],
    calls: AtomicUsize,
    calls_of_a_handle: usize,
}

impl SharedFile {
    fn new(path: PathBuf, clock: Arc<ManualClock>, calls_of_a_handle: usize) -> Self {
        let calls = AtomicUsize::new(0);
        Self { handles: Handles { path, clock, opened: Default::default(), calls, calls_of_a_handle } }
    }
}

impl Handles {
    fn next(&self) -> &SqliteProvider {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // Two at a time; each that was given up stays open, for a process that died closes nothing in order.
        let oldest = (call / self.calls_of_a_handle).min(HANDLES - 2);
        let handle = oldest + call % 2;
        self.opened[handle].get_or_init(|| {
            let open = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let url = format!("sqlite:{}?mode=rwc", self.path.display());
                runtime.block_on(SqliteProvider::builder().clock(self.clock.clone()).open(&url)).unwrap()
            };
            // A runtime cannot block inside another one, so it gets a thread of its own.
            std::thread::scope(|scope| scope.spawn(open).join().unwrap())
        })
    }
}

impl Deref for Handles {
    type Target = SqliteProvider;

    fn deref(&self) -> &SqliteProvider {
        self.next()
    }
}

forwarding_provider! {
    SharedFile => handles;
    forwards: [
        fetch_orchestration_item, ack_orchestration_item, abandon_orchestration_item, renew_orchestration_item_lock,
        read, read_with_execution, append_with_execution, enqueue_for_worker, fetch_work_item, ack_work_item,
        renew_work_item_lock, abandon_work_item, renew_session_lock, cleanup_orphaned_sessions,
        enqueue_for_orchestrator, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.handles.next().as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        self.handles.next().as_extended()
    }
}
