//! `kill9` and `kill9-pg`: worker processes on a SQLite file, one or three at a time, and three on a PostgreSQL server,
//! killed and replaced again and again. A ledger outside the store says which activities ran.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Clock, Provider, SystemClock};
use duroxide::{Client, CompleteError, OrchestrationRegistry, OrchestrationStatus};
use duroxide_pg::PostgresProvider;
use tempfile::TempDir;

use super::broken_worker::{Break, BrokenStore};
use super::{Harness, Tier};
use crate::checker::{Ended, Invariant, Leftovers, Look, Run, Trace, Violation, check};
use crate::panics::Quiet;
use crate::report::{Figures, Trial};
use crate::shared::program::{
    self, ASK_ME, CANCEL_ME, CANCEL_REASON, Forecast, Generator, Input, ORCHESTRATION, QUEUE, Question,
    SIGNAL_ME, Step, answer_to, message, messages, signal_data, worked,
};
use crate::shared::random::Random;
use crate::shared::watched_process::WatchedProcess;
use crate::shared::worker;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "kill9",
    about: "worker processes on a SQLite file, killed and replaced again and again",
    trial,
    twins: &["splits-commits"],
    twin_trials: 3,
    ci: Tier { trials: 4, time_limit: Duration::from_secs(30) },
    nightly: Tier { trials: 400, time_limit: Duration::from_secs(2 * 60 * 60) },
    is_parallel: false,
};

/// The harness on a server.
pub const ON_A_SERVER: Harness = Harness {
    name: "kill9-pg",
    about: "three worker processes on a PostgreSQL server, killed and replaced again and again",
    trial: on_a_server,
    twins: &["splits-commits"],
    twin_trials: 3,
    ci: Tier { trials: 2, time_limit: Duration::from_secs(20) },
    nightly: Tier { trials: 60, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: false,
};

/// The hidden subcommand of the workers.
pub const WORKER: &str = "worker-of-kill9";
const KILLS: usize = 10;
const INSTANCES: usize = 60;
/// A worker that shows no progress for this long has nothing to do; it is killed all the same.
const QUIET: Duration = Duration::from_millis(800);
/// All instances must have ended so long after the last kill.
const LIVENESS_BOUND: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Where the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Schema { url: String, schema: String },
}

impl Place {
    pub(super) fn parse(text: &str) -> Self {
        match text.split_once(' ') {
            Some((schema, url)) => Self::Schema { url: url.to_string(), schema: schema.to_string() },
            None => Self::File(PathBuf::from(text)),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Schema { url, schema } => format!("{schema} {url}"),
        }
    }

    /// A place on the server of this process that nobody else uses.
    pub(super) fn on_a_server() -> Self {
        let schema = format!("t_{}", uuid::Uuid::new_v4().simple());
        Self::Schema { url: super::pgfault::server().url(), schema }
    }

    /// Counts the rows that are left over there.
    pub(super) async fn leftovers(&self) -> Leftovers {
        match self {
            Self::File(path) => Leftovers::of_file(path),
            Self::Schema { url, schema } => Leftovers::of_schema(url, schema).await,
        }
    }

    pub(super) async fn open(&self, is_broken: bool) -> Arc<dyn Provider> {
        let store: Arc<dyn Provider> = match self {
            Self::File(path) => {
                let url = format!("sqlite:{}?mode=rwc", path.display());
                Arc::new(SqliteProvider::new(&url, None).await.unwrap())
            }
            Self::Schema { url, schema } => {
                Arc::new(PostgresProvider::new_with_schema(url, Some(schema)).await.unwrap())
            }
        };
        match is_broken {
            true => Arc::new(BrokenStore::new(store, Break::SplitsCommits)),
            false => store,
        }
    }
}

/// The worker's side.
pub fn work(place: &str, ledger: &str, round: &str, is_broken: bool) {
    let _quiet = is_broken.then(Quiet::begin);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Place::parse(place).open(is_broken).await;
        worker::work(store, Path::new(ledger), round.parse().unwrap(), true).await;
    });
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let files = TempDir::new().unwrap();
    // A single worker, or three that share the file.
    let at_once = if seed.is_multiple_of(2) { 1 } else { 3 };
    run(seed, twin, &Place::File(files.path().join("store.db")), at_once)
}

fn on_a_server(seed: u64, twin: Option<&str>) -> Trial {
    run(seed, twin, &Place::on_a_server(), 3)
}

fn run(seed: u64, twin: Option<&str>, place: &Place, at_once: usize) -> Trial {
    let mut dice = Random::new(seed);
    let files = TempDir::new().unwrap();
    let ledger_file = files.path().join("ledger");
    let mut forecast = Forecast::default();
    let mut cases = Vec::new();
    for n in 0..INSTANCES {
        let instance = format!("i{n}");
        let steps = Generator::extended(&mut dice, &instance).program();
        forecast.add(&instance, &steps);
        cases.push((instance, steps));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = Client::new(runtime.block_on(place.open(false)));
    let application = runtime.spawn(apply(client.clone(), cases, ledger_file.clone()));

    let mut workers: Vec<WatchedProcess> =
        (0..at_once).map(|n| spawn_worker(place, &ledger_file, n, twin)).collect();
    let average = (forecast.activities as u64 * 2 * 8 / 10) / KILLS as u64;
    let mut at_work = 0;
    for kill in 0..KILLS {
        let victim = dice.below(at_once as u64) as usize;
        let lines = (average / 3 + dice.below(average * 4 / 3)) / at_once as u64;
        at_work += u64::from(workers[victim].progress(lines, QUIET));
        // Not always right after an activity has begun or ended.
        std::thread::sleep(Duration::from_micros(dice.below(20_000)));
        let next = spawn_worker(place, &ledger_file, kill + at_once, twin);
        std::mem::replace(&mut workers[victim], next).kill();
    }
    let killed = SystemClock.monotonic();
    // Of a twin, the rest of the time would tell nothing more.
    let bound = if twin.is_some() { Duration::from_secs(6) } else { LIVENESS_BOUND };
    let ended = runtime.block_on(async {
        for instance in forecast.endings.keys() {
            let left = (killed + bound).saturating_sub(SystemClock.monotonic());
            let _ = client.wait_for_orchestration(instance, left).await;
        }
        Ended::read(&client, &SystemClock, bound / 3, async || place.leftovers().await).await.unwrap()
    });
    let calm_ms = (SystemClock.monotonic() - killed).as_millis() as u64;
    workers.into_iter().for_each(WatchedProcess::kill);
    application.abort();
    let mut trace = match runtime.block_on(application) {
        Err(error) if error.is_cancelled() => Trace::default(),
        other => {
            let mut trace = Trace::default();
            let what = format!("the application beside the workers ended: {other:?}");
            trace.note(Violation::of_store(Invariant::LoudFailure, what));
            trace
        }
    };
    trace.expect(&forecast);
    let mut runs = ledger(&ledger_file);
    if matches!(place, Place::Schema { .. }) {
        // Events bear the database's time, which a process knows up to the time that an answer takes.
        runs.iter_mut().for_each(|run| run.began_ms = run.began_ms.map(|ms| ms - 100));
    }
    let repeated = runs.len() - distinct(&runs);
    let figures = Figures::from([
        ("kills", KILLS as u64),
        ("kills_at_work", at_work),
        ("instances", ended.statuses.len() as u64),
        ("runs", runs.len() as u64),
        ("repeated_runs", repeated as u64),
        ("longest_calm_ms", calm_ms),
    ]);
    runs.into_iter().for_each(|run| trace.note_run(run));
    trace.note_faults(KILLS as u64);
    let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
    let mut violations = check(&trace, &ended, &code);
    for ((instance, _), events) in &ended.histories {
        violations.extend(crate::checker::check_due_times(instance, events));
    }
    if let Place::File(file) = place {
        violations.extend(integrity(file));
    }
    Trial::new(violations, figures)
}

fn distinct(runs: &[Run]) -> usize {
    runs.iter().map(|run| (&run.instance, run.execution, run.event)).collect::<BTreeSet<_>>().len()
}

/// Reads the ledger that workers leave.
pub(super) fn ledger(file: &Path) -> Vec<Run> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let parse = |line: &str| -> Option<Run> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["begin", time, instance, execution, event, attempt] = words[..] else { return None };
        Some(Run {
            instance: instance.to_string(),
            execution: execution.parse().ok()?,
            event: event.parse().ok()?,
            attempt: attempt.parse().ok()?,
            began_ms: Some(time.parse().ok()?),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// The activities that wait for somebody to complete them: tokens and labels. The last line may still be without its end.
fn announced(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.filter_map(|line| line.trim_end().strip_prefix("pends ").map(str::to_string)).collect()
}

/// What SQLite itself says about the file.
fn integrity(file: &PathBuf) -> Option<Violation> {
    let connection = rusqlite::Connection::open(file).unwrap();
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    (sound != "ok").then(|| Violation::of_store(Invariant::History, format!("the file is damaged: {sound}")))
}

/// The application beside the workers, which nobody kills: it starts everything and answers requests, each once.
async fn apply(client: Client, cases: Vec<(String, Vec<Step>)>, ledger: PathBuf) {
    for (instance, steps) in &cases {
        client.start_orchestration(instance, ORCHESTRATION, Input::text(steps)).await.unwrap();
        for data in (0..messages(steps)).map(message) {
            client.enqueue_event(instance, QUEUE, data).await.unwrap();
        }
    }
    let mut seen = Trace::default();
    let mut answered: BTreeSet<(String, String)> = BTreeSet::new();
    let mut completed: BTreeSet<String> = BTreeSet::new();
    loop {
        for (instance, _) in &cases {
            let status = client.get_orchestration_status(instance).await.unwrap();
            seen.note_look("the application", instance, Look::of(&status));
            assert!(seen.violations().is_empty(), "{:?}", seen.violations());
            let OrchestrationStatus::Running { custom_status: Some(request), .. } = status else { continue };
            if !answered.insert((instance.clone(), request.clone())) {
                continue;
            }
            if request == CANCEL_ME {
                client.cancel_instance(instance, CANCEL_REASON).await.unwrap();
            } else if let Some(name) = request.strip_prefix(SIGNAL_ME) {
                client.raise_event(instance, name, signal_data(name)).await.unwrap();
            } else if let Some(label) = request.strip_prefix(ASK_ME) {
                let answer = client.ask(instance, Question { label: label.to_string() }).id(label).await;
                assert_eq!(answer.unwrap(), answer_to(label));
            }
        }
        for line in announced(&ledger) {
            if !completed.insert(line.clone()) {
                continue;
            }
            let (token, label) = line.split_once(' ').unwrap();
            match client.complete_activity(&token.parse().unwrap(), Ok(worked(label))).await {
                // One that was begun twice is announced twice.
                Ok(()) | Err(CompleteError::Ended { .. }) => {}
                Err(error) => panic!("{token}: {error}"),
            }
        }
        SystemClock.sleep(BETWEEN_LOOKS).await;
    }
}

/// Starts a process that works on the store.
fn spawn_worker(place: &Place, ledger: &Path, round: usize, twin: Option<&str>) -> WatchedProcess {
    let round = round.to_string();
    WatchedProcess::spawn(
        Command::new(program_file()).arg(WORKER).arg(place.text()).arg(ledger).arg(round).args(twin),
    )
}

/// The program with the workers' side, if it is not this one: tests name it.
pub static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn program_file() -> PathBuf {
    PROGRAM.get().cloned().unwrap_or_else(|| std::env::current_exe().unwrap())
}
