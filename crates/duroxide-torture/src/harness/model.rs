//! `model` and `model-pg`: random sequences of calls on a store, every answer and everything readable compared with the
//! reference.
//!
//! The SQLite store takes part in two ways: in memory, and as several handles on one file, some of which are opened in the
//! middle and some of which never come back. Now and then the process dies: the file is copied as it is, with its log and the
//! notes of the owners of leases, and other handles go on with the copy. The PostgreSQL store takes part through one handle,
//! and through several: two work at a time, and those that were given up stay open and hold what they have leased. Its
//! processes do not die here: their leases end by the real time, which these sequences do not wait for.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{ExtendedProvider, ManualClock, Provider, ProviderAdmin, RunningMark, TagFilter};
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
use crate::steps::Step;
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
    nightly: Tier { trials: 2_000, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: true,
};

fn on_a_server(seed: u64, twin: Option<&str>) -> Trial {
    let parts = parts_on_a_server(seed);
    let (sequence, mut figures) = sequences_on_a_server(seed, parts);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let compared = runtime.block_on(async {
        let clock = Arc::new(ManualClock::default());
        let reference = Arc::new(MemoryProvider::with_clock(clock.clone()));
        // A copy of one that has the tables already: making them takes longer than a sequence.
        let database = Database::new().await;
        let open =
            async || PostgresProvider::builder().clock(clock.clone()).open(database.url()).await.unwrap();
        let store: Arc<dyn Provider> = match seed % 3 {
            0 => Arc::new(open().await),
            // Handles of different ages.
            _ => {
                let handles = [open().await, open().await, open().await, open().await];
                let calls_of_a_handle = sequence.len() / HANDLES;
                Arc::new(SharedServer { handles: InTurn::new(handles, calls_of_a_handle) })
            }
        };
        let store = match twin.and_then(fault) {
            Some(fault) => Arc::new(FaultyProvider::new(store, fault)),
            None => store,
        };
        compare::run(reference, store, &clock, &sequence, look_at_a_server_every(seed)).await
    });
    figures.insert("sequences_on_a_server", parts);
    let violations = compared.err().map(|difference| Violation::of_store(Invariant::RightAnswer, difference));
    Trial::new(violations.into_iter().collect(), figures)
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    // Nothing of the twins is about files, and without one the sequences are many more.
    let is_file = seed.is_multiple_of(2) && twin.is_none();
    let crashes = is_file.then(|| Crashes::of(seed));
    let (sequence, mut figures) = sequence(seed, &FIRST_SEEDS, crashes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let compared = runtime.block_on(async {
        let clock = Arc::new(ManualClock::default());
        let reference = Arc::new(MemoryProvider::with_clock(clock.clone()));
        let fault = twin.and_then(fault);
        let broken = |store: Arc<dyn Provider>| match fault {
            Some(fault) => Arc::new(FaultyProvider::new(store, fault)),
            None => store,
        };
        if let Some(crashes) = crashes {
            let calls_of_a_handle = CALLS_OF_A_HANDLE / look_every(seed);
            let path = directory.path().to_path_buf();
            let file = Arc::new(SharedFile::new(path, &clock, calls_of_a_handle, crashes.are_marked));
            let process = Process { reference: reference.clone(), file: file.clone() };
            compare::run_in(&process, reference, broken(file), &clock, &sequence, look_every(seed)).await
        } else {
            let store = SqliteProvider::builder().clock(clock.clone()).open("sqlite::memory:").await.unwrap();
            compare::run(reference, broken(Arc::new(store)), &clock, &sequence, look_every(seed)).await
        }
    });
    figures.insert(if is_file { "sequences_on_files" } else { "sequences_in_memory" }, 1);
    let violations = compared.err().map(|difference| Violation::of_store(Invariant::RightAnswer, difference));
    Trial::new(violations.into_iter().collect(), figures)
}

/// The seeds of `regressions.txt` that are older than some calls. They keep the sequences in which they found bugs.
const FIRST_SEEDS: [u64; 3] = [38, 40, 144];
const FIRST_SEEDS_ON_A_SERVER: [u64; 1] = [6];

/// Those of the time when a trial on a server was one sequence.
const OLD_SEEDS_ON_A_SERVER: [u64; 2] = [1, 6];
/// So many sequences follow each other in one database, because making it and connecting to it takes longer than one of them.
const SEQUENCES_ON_A_SERVER: u64 = 8;

fn parts_on_a_server(seed: u64) -> u64 {
    if OLD_SEEDS_ON_A_SERVER.contains(&seed) { 1 } else { SEQUENCES_ON_A_SERVER }
}

/// The sequences of a trial on a server, one after the other; each ends by taking out everything that is still there.
fn sequences_on_a_server(seed: u64, parts: u64) -> (Vec<Step>, Figures) {
    let (mut steps, mut figures) = (Vec::new(), Figures::new());
    for part in 0..parts {
        let (sequence, of_part) = sequence(seed + (part << 40), &FIRST_SEEDS_ON_A_SERVER, None);
        steps.extend(steps::without_leased_steps(sequence));
        of_part.into_iter().for_each(|(name, count)| *figures.entry(name).or_default() += count);
    }
    (steps, figures)
}

/// A look asks the server more than a hundred times: that is rare in most sequences, and frequent in some, which show where a
/// difference began.
fn look_at_a_server_every(seed: u64) -> usize {
    if OLD_SEEDS_ON_A_SERVER.contains(&seed) {
        return 4 * look_every(seed);
    }
    match seed % 12 {
        0 => 8,
        1 | 2 => 64,
        3..=5 => 128,
        _ => 256,
    }
}

/// How processes die in the sequence of a seed.
#[derive(Clone, Copy)]
struct Crashes {
    most: usize,
    /// The processes tell what runs, so that only the attempts of that count.
    are_marked: bool,
}

impl Crashes {
    fn of(seed: u64) -> Self {
        Self { most: (seed / 2 % LIVES as u64) as usize, are_marked: (seed / 8).is_multiple_of(2) }
    }
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
fn sequence(seed: u64, first: &[u64], crashes: Option<Crashes>) -> (Vec<Step>, Figures) {
    let mut dice = Random::new(seed);
    let bytes: Vec<u8> = (0..32).map(|_| dice.below(256) as u8).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let is_first = first.contains(&seed);
    let steps = match is_first {
        true => steps::first_sequence().new_tree(&mut runner).unwrap().current(),
        false => steps::sequence().new_tree(&mut runner).unwrap().current(),
    };
    let steps = if is_set_back(seed) { steps::with_set_backs(steps) } else { steps };
    let steps = [steps, steps::drain()].concat();
    let steps = match crashes {
        Some(Crashes { most, are_marked }) if !is_first => steps::with_crashes(steps, most, are_marked),
        _ => steps,
    };
    let crashes = steps.iter().filter(|step| matches!(step, Step::Crash)).count();
    let figures = Figures::from([("operations", steps.len() as u64), ("crashes", crashes as u64)]);
    (steps, figures)
}

/// After so many calls the oldest handle is not used any more, and another one is opened; fewer where looks are rare.
const CALLS_OF_A_HANDLE: usize = 900;
const HANDLES: usize = 4;
/// How many files there are, each but the first a copy of the one before when the process died.
const LIVES: usize = 4;

/// A file that several handles use in turn.
struct SharedFile {
    handles: Lives,
}

/// The files that were copied when a process died.
struct Lives {
    files: [Handles; LIVES],
    current: AtomicUsize,
}

/// The handles on a file.
struct Handles {
    path: PathBuf,
    clock: Arc<ManualClock>,
    opened: [OnceLock<SqliteProvider>; HANDLES],
    calls: AtomicUsize,
    calls_of_a_handle: usize,
    is_marked: bool,
}

impl SharedFile {
    fn new(directory: PathBuf, clock: &Arc<ManualClock>, calls_of_a_handle: usize, is_marked: bool) -> Self {
        let files = std::array::from_fn(|life| {
            let path = directory.join(life.to_string()).join("store.db");
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            let (clock, calls) = (clock.clone(), AtomicUsize::new(0));
            Handles { path, clock, opened: Default::default(), calls, calls_of_a_handle, is_marked }
        });
        Self { handles: Lives { files, current: AtomicUsize::new(0) } }
    }
}

impl Lives {
    fn current(&self) -> &Handles {
        &self.files[self.current.load(Ordering::Relaxed)]
    }
}

impl Handles {
    fn next(&self) -> &SqliteProvider {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // Two at a time; each that was given up stays open, for a process that died closes nothing in order.
        let oldest = (call / self.calls_of_a_handle).min(HANDLES - 2);
        let handle = oldest + call % 2;
        self.opened[handle].get_or_init(|| {
            let open = async || {
                let url = format!("sqlite:{}?mode=rwc", self.path.display());
                let store = SqliteProvider::builder().clock(self.clock.clone()).open(&url).await.unwrap();
                // The writer begins with what processes that died have left.
                let before = store.renew_work_item_lock("lock_of_nobody", Duration::ZERO).await;
                assert!(before.is_err(), "nobody has this lease");
                if !self.is_marked {
                    // A caller of the plain contract says nothing of what runs.
                    let (second, nothing) = (Duration::from_secs(1), TagFilter::None);
                    store.fetch_work_item(second, Duration::ZERO, None, &nothing).await.unwrap();
                }
                store
            };
            let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            // A runtime cannot block inside another one, so it gets a thread of its own.
            std::thread::scope(|scope| scope.spawn(|| runtime().block_on(open())).join().unwrap())
        })
    }

    /// Copies the file as it is. The log comes first: what is moved out of it meanwhile is in the copy then, too.
    fn copy_to(&self, next: &Self) {
        for suffix in ["-wal", ""] {
            let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
            std::fs::copy(name(&self.path), name(&next.path)).unwrap();
        }
        let owners = |path: &Path| PathBuf::from(format!("{}-owners", path.display()));
        std::fs::create_dir(owners(&next.path)).unwrap();
        for owner in std::fs::read_dir(owners(&self.path)).unwrap() {
            let owner = owner.unwrap();
            std::fs::copy(owner.path(), owners(&next.path).join(owner.file_name())).unwrap();
        }
    }
}

/// The process that has the file open.
struct Process {
    reference: Arc<MemoryProvider>,
    file: Arc<SharedFile>,
}

impl compare::Mortal for Process {
    fn begin(&self, token: &str) -> Vec<RunningMark> {
        // Each handle knows its own leases.
        let opened = self.file.handles.current().opened.iter().filter_map(OnceLock::get);
        opened.map(|handle| handle.mark_running(token)).collect()
    }

    async fn crash(&self, begun: Vec<String>) {
        let lives = &self.file.handles;
        let dead = lives.current();
        // A file that nobody has opened yet cannot be copied.
        let _ = dead.next();
        let next = lives.current.load(Ordering::Relaxed) + 1;
        dead.copy_to(&lives.files[next]);
        lives.current.store(next, Ordering::Relaxed);
        let _ = lives.current().next();
        self.reference
            .release_leases_of_the_dead(|token| !dead.is_marked || begun.iter().any(|one| one == token));
    }
}

impl Deref for Lives {
    type Target = SqliteProvider;

    fn deref(&self) -> &SqliteProvider {
        self.current().next()
    }
}

/// Handles on a server, of which two at a time are used in turn.
struct SharedServer {
    handles: InTurn,
}

struct InTurn {
    handles: [PostgresProvider; HANDLES],
    calls: AtomicUsize,
    calls_of_a_handle: usize,
}

impl InTurn {
    fn new(handles: [PostgresProvider; HANDLES], calls_of_a_handle: usize) -> Self {
        Self { handles, calls: AtomicUsize::new(0), calls_of_a_handle: calls_of_a_handle.max(1) }
    }
}

impl Deref for InTurn {
    type Target = PostgresProvider;

    fn deref(&self) -> &PostgresProvider {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // The oldest one is given up, and stays open.
        let oldest = (call / self.calls_of_a_handle).min(HANDLES - 2);
        &self.handles[oldest + call % 2]
    }
}

forwarding_provider! {
    SharedServer => handles;
    forwards: [
        fetch_orchestration_item, ack_orchestration_item, abandon_orchestration_item, renew_orchestration_item_lock,
        read, read_with_execution, append_with_execution, enqueue_for_worker, fetch_work_item, ack_work_item,
        renew_work_item_lock, abandon_work_item, renew_session_lock, cleanup_orphaned_sessions,
        enqueue_for_orchestrator, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        (*self.handles).as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        (*self.handles).as_extended()
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
        (*self.handles).as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        (*self.handles).as_extended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sequences of seeds that found bugs, by what they are made of.
    const KEPT: [(&str, u64, u64); 14] = [
        ("model", 38, 161657261315275031),
        ("model", 144, 3166729718580208401),
        ("model-pg", 6, 12219550259789579534),
        ("model", 40, 17201051035464973117),
        ("model", 1150, 9533124501301011188),
        ("model", 1025, 5322595745060010884),
        ("model-pg", 1, 2074670108016934551),
        ("model-pg", 11, 15896277096256172669),
        ("model-pg", 30, 30156081657896132),
        ("model-pg", 33, 10042313322533267538),
        ("model-pg", 48, 18205259136380752135),
        ("model-pg", 24, 10803429211931406086),
        ("model-pg", 29, 9920599908988847238),
        ("model-pg", 97, 15913011585451326847),
    ];

    /// A fingerprint of a sequence.
    fn fingerprint(steps: &[Step]) -> u64 {
        // A set shows its parts in any order.
        let text = format!("{steps:?}").replace(r#""gpu", "cpu""#, r#""cpu", "gpu""#);
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }

    /// A generator that learns new calls makes other sequences. It then gets a name of its own, and these seeds keep the one
    /// that they were found with: see `FIRST_SEEDS`. If steps only show themselves in other words, these numbers are to change.
    #[test]
    fn seeds_that_found_bugs_keep_their_sequences() {
        let regressions = crate::tiers::regressions(include_str!("../../regressions.txt")).unwrap();
        let mut found = Vec::new();
        for (harness, seed) in regressions {
            let steps = match harness.name {
                "model" => {
                    let crashes = seed.is_multiple_of(2).then(|| Crashes::of(seed));
                    sequence(seed, &FIRST_SEEDS, crashes).0
                }
                "model-pg" => sequences_on_a_server(seed, parts_on_a_server(seed)).0,
                _ => continue,
            };
            found.push((harness.name, seed, fingerprint(&steps)));
        }
        assert_eq!(found, KEPT);
    }
}
