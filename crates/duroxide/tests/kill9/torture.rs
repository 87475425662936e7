//! The run: starts the instances, kills the worker again and again, lets it finish, and checks everything that is left.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Clock, SystemClock};
use duroxide::{AppErrorKind, Client, ErrorDetails, Event, OrchestrationStatus};
use rusqlite::Connection;
use tempfile::TempDir;

use super::check::{Entry, Histories, check_history, check_ledger, repeated_runs};
use super::outside::{self, Case};
use super::program::{Ending, Forecast, Generator, Step};
use super::random::Random;
use super::watched_process::WatchedProcess;

pub const CHILD_FILE: &str = "DUROXIDE_TEST_KILL9_FILE";
pub const CHILD_LEDGER: &str = "DUROXIDE_TEST_KILL9_LEDGER";
pub const CHILD_ROUND: &str = "DUROXIDE_TEST_KILL9_ROUND";

/// A worker that shows no progress for this long has nothing to do; the run kills it all the same.
const QUIET: Duration = Duration::from_secs(5);
/// All instances must have ended so long after the last kill.
const LIVENESS_BOUND: Duration = Duration::from_secs(60);

/// How large a run is.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub instances: usize,
    pub kills: usize,
    pub seed: u64,
}

pub fn url(file: &str) -> String {
    format!("sqlite:{file}?mode=rwc")
}

/// One run and its files.
pub struct Torture {
    plan: Plan,
    directory: TempDir,
    random: Random,
    forecast: Forecast,
    kills_in_mid_step: usize,
    /// How long the ledger was at each kill.
    written: Vec<usize>,
    seen: BTreeMap<(String, u64, u64), String>,
    wrong: Vec<String>,
}

impl Torture {
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            directory: TempDir::new().unwrap(),
            random: Random::new(plan.seed),
            forecast: Forecast::default(),
            kills_in_mid_step: 0,
            written: Vec::new(),
            seen: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    fn ledger_file(&self) -> PathBuf {
        self.directory.path().join("ledger")
    }

    /// Runs everything, and returns the figures, or all that was found wrong.
    pub fn run(mut self) -> Result<String, String> {
        let cases = self.cases();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = runtime.block_on(SqliteProvider::new(&url(&self.file().display().to_string()), None));
        let client = Client::new(Arc::new(store.unwrap()));
        let (outside, file) = (client.clone(), self.file());
        let application = runtime.spawn(async move {
            outside::start(&outside, &cases).await;
            outside::answer(outside, &file).await;
        });
        let begin = SystemClock.monotonic();
        self.kill_again_and_again();
        let killed = SystemClock.monotonic();
        let worker = spawn_worker(&self, self.plan.kills);
        runtime.block_on(self.check_endings(&client));
        runtime.block_on(self.check_queues(&client));
        let finished = SystemClock.monotonic();
        worker.finish();
        if application.is_finished() {
            self.wrong.push("the application beside the worker failed".into());
        }
        application.abort();
        drop(client);
        runtime.shutdown_timeout(Duration::from_secs(5));
        let figures = self.check_files();
        let times = format!("{:?} with kills, {:?} to finish after", killed - begin, finished - killed);
        if self.wrong.is_empty() {
            return Ok(format!("{:?}: {figures}; {times}", self.plan));
        }
        let first: Vec<_> = self.wrong.iter().take(20).cloned().collect();
        let (count, plan) = (self.wrong.len(), self.plan);
        let kept = self.directory.keep();
        Err(format!(
            "{count} faults with {plan:?} (KILL9_SEED={}); {figures}; files kept in {}; the first:\n{}",
            plan.seed,
            kept.display(),
            first.join("\n")
        ))
    }

    fn cases(&mut self) -> Vec<Case> {
        let mut cases = Vec::new();
        for n in 0..self.plan.instances {
            let instance = format!("i{n}");
            let is_cancelled_early = self.random.below(20) == 0;
            let steps = if is_cancelled_early {
                vec![Step::AwaitCancel(None)]
            } else {
                Generator::new(&mut self.random, &instance).program()
            };
            self.forecast.add(&instance, &steps);
            cases.push(Case { instance, steps, is_cancelled_early });
        }
        cases
    }

    /// Lets a worker make some progress, kills it, and checks what it left; then the next worker, and so on.
    fn kill_again_and_again(&mut self) {
        // Each run of an activity writes two lines. Most of the work is done under fire, the rest without.
        let lines = self.forecast.activities as u64 * 2 * 8 / 10;
        let average = lines / self.plan.kills.max(1) as u64;
        for round in 0..self.plan.kills {
            let worker = spawn_worker(self, round);
            worker.progress(average / 3 + self.random.below(average * 4 / 3), QUIET);
            // Not always right after an activity has begun or ended.
            std::thread::sleep(Duration::from_micros(self.random.below(20_000)));
            worker.kill();
            let ledger = self.ledger();
            let written = self.written.last().copied().unwrap_or(0);
            let begun = ledger[written..].iter().filter(|entry| entry.is_begin).count();
            self.kills_in_mid_step += usize::from(2 * begun > ledger.len() - written);
            self.written.push(ledger.len());
            self.check_append_only();
        }
    }

    /// Recorded events never change.
    fn check_append_only(&mut self) {
        let now = self.history_rows();
        for (key, row) in &self.seen {
            if now.get(key) != Some(row) {
                self.wrong.push(format!("event {key:?} was {row}, is {:?}", now.get(key)));
            }
        }
        self.seen = now;
    }

    fn connection(&self) -> Connection {
        let connection = Connection::open(self.file()).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }

    fn history_rows(&self) -> BTreeMap<(String, u64, u64), String> {
        let connection = self.connection();
        let sql = "SELECT instance_id, execution_id, event_id, event_data FROM history";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| {
            let (execution, event): (i64, i64) = (row.get(1)?, row.get(2)?);
            Ok(((row.get(0)?, execution as u64, event as u64), row.get(3)?))
        });
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn ledger(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(self.ledger_file()).unwrap_or_default();
        text.lines().map(|line| Entry::parse(line).unwrap_or_else(|| panic!("ledger: {line}"))).collect()
    }

    async fn check_endings(&mut self, client: &Client) {
        let deadline = SystemClock.monotonic() + LIVENESS_BOUND;
        for (instance, expected) in &self.forecast.endings {
            let left = deadline.saturating_sub(SystemClock.monotonic());
            match client.wait_for_orchestration(instance, left).await {
                Ok(status) if ending(&status).as_ref() == Some(expected) => {}
                Ok(status) => self.wrong.push(format!("{instance} should be {expected:?}, is {status:?}")),
                Err(error) => self.wrong.push(format!("{instance} did not end: {error}")),
            }
        }
        // Children with generated ids may be a little behind; the others have just been waited for.
        for instance in client.list_all_instances().await.unwrap() {
            let left = deadline.saturating_sub(SystemClock.monotonic());
            if let Err(error) = client.wait_for_orchestration(&instance, left).await {
                self.wrong.push(format!("{instance} did not end: {error}"));
            }
        }
    }

    /// When all instances have ended, the queues empty: signals that came twice, timers of ended instances.
    async fn check_queues(&mut self, client: &Client) {
        let deadline = SystemClock.monotonic() + Duration::from_secs(20);
        loop {
            let depths = client.get_queue_depths().await.unwrap();
            if (depths.orchestrator_queue, depths.worker_queue) == (0, 0) {
                return;
            }
            if SystemClock.monotonic() > deadline {
                return self.wrong.push(format!("queues are not empty at the end: {depths:?}"));
            }
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks the store and the ledger, and returns the figures.
    fn check_files(&mut self) -> String {
        self.check_append_only();
        let connection = self.connection();
        let text = |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
        for (sql, expected) in [
            ("PRAGMA integrity_check", "ok"),
            ("SELECT CAST(count(*) AS TEXT) FROM quarantine", "0"),
            ("SELECT CAST(count(*) AS TEXT) FROM orchestrator_queue", "0"),
            ("SELECT CAST(count(*) AS TEXT) FROM worker_queue", "0"),
            ("SELECT CAST(count(*) AS TEXT) FROM instance_locks", "0"),
            ("SELECT CAST(count(*) AS TEXT) FROM executions WHERE status = 'Running'", "0"),
        ] {
            let found = text(sql);
            if found != expected {
                self.wrong.push(format!("{sql}: {found}"));
            }
        }
        let histories = histories(&self.seen);
        for (key, events) in &histories {
            self.wrong.extend(check_history(key, events));
        }
        let ledger = self.ledger();
        let starts = std::iter::once(0).chain(self.written.iter().copied());
        let ends = self.written.iter().copied().chain([ledger.len()]);
        // Under heavy load a living worker may lose a lease as well, so this is a figure and not a fault.
        let by_living =
            starts.zip(ends).map(|(start, end)| repeated_runs(&ledger[start..end])).sum::<usize>();
        self.wrong.extend(check_ledger(&ledger, &histories));
        let instances =
            histories.keys().map(|(instance, _)| instance).collect::<std::collections::BTreeSet<_>>();
        format!(
            "{} instances with children, {} executions, {} events, {} runs of activities, {} of them repeated \
             ({by_living} without a kill in between), {} kills in mid-step",
            instances.len(),
            histories.len(),
            self.seen.len(),
            ledger.iter().filter(|entry| entry.is_begin).count(),
            repeated_runs(&ledger),
            self.kills_in_mid_step,
        )
    }
}

fn histories(rows: &BTreeMap<(String, u64, u64), String>) -> Histories {
    let mut histories = Histories::new();
    for ((instance, execution, _), row) in rows {
        let event: Event = serde_json::from_str(row).unwrap();
        histories.entry((instance.clone(), *execution)).or_default().push(event);
    }
    histories
}

fn ending(status: &OrchestrationStatus) -> Option<Ending> {
    match status {
        OrchestrationStatus::Completed { output, .. } => Some(Ending::Output(output.clone())),
        OrchestrationStatus::Failed { details: ErrorDetails::Application { kind, message, .. }, .. } => {
            match kind {
                AppErrorKind::OrchestrationFailed => Some(Ending::Failure(message.clone())),
                AppErrorKind::Cancelled { reason } => Some(Ending::Cancelled(reason.clone())),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Starts a process that works on the store.
fn spawn_worker(torture: &Torture, round: usize) -> WatchedProcess {
    WatchedProcess::spawn(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_works_until_it_is_killed", "--nocapture"])
            .env(CHILD_FILE, torture.file())
            .env(CHILD_LEDGER, torture.ledger_file())
            .env(CHILD_ROUND, round.to_string()),
    )
}
