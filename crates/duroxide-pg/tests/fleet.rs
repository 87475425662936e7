//! Orchestrations of random shape on three worker processes over one database. The test kills (SIGKILL) and replaces
//! one worker after the other: all orchestrations finish with the right result, and no step is in a history twice.
//!
//! Programs come from a seed; an interpreter says beforehand how each is to end. The workers are this test binary,
//! started again. `FLEET_INSTANCES`, `FLEET_KILLS` and `FLEET_SEED` scale the run and repeat one.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::child_process::run_alone;
use crate::support;

#[path = "../../duroxide/tests/kill9/attempts.rs"]
mod attempts;
#[path = "../../duroxide/tests/kill9/check.rs"]
#[allow(dead_code, reason = "shared with the test of the embedded store")]
mod check;
#[path = "../../duroxide/tests/kill9/openings.rs"]
mod openings;
#[path = "../../duroxide/tests/kill9/program.rs"]
#[allow(dead_code, reason = "shared with the test of the embedded store")]
mod program;
#[path = "../../duroxide/tests/kill9/random.rs"]
mod random;
#[path = "../../duroxide/tests/kill9/worker.rs"]
mod worker;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use check::{Entry, Histories, check_history, check_ledger, repeated_runs};
use duroxide::providers::{Clock, SystemClock};
use duroxide::{AppErrorKind, Client, ErrorDetails, Event, OrchestrationStatus};
use duroxide_pg::PostgresProvider;
use program::{
    CANCEL_ME, CANCEL_REASON, Ending, Forecast, Generator, Input, ORCHESTRATION, QUEUE, SIGNAL_ME, Step,
    message, messages, signal_data,
};
use random::Random;
use support::cluster::{Cluster, Kind};

const CHILD_URL: &str = "DUROXIDE_TEST_FLEET_URL";
const CHILD_SCHEMA: &str = "DUROXIDE_TEST_FLEET_SCHEMA";
const CHILD_LEDGER: &str = "DUROXIDE_TEST_FLEET_LEDGER";
/// Says how a worker keeps instances in memory between turns.
const CHILD_ROUND: &str = "DUROXIDE_TEST_FLEET_ROUND";
const WORKERS: usize = 3;
/// All instances must have ended so long after the last kill; leases of the killed take up to half a minute to run out.
const LIVENESS_BOUND: Duration = Duration::from_secs(120);
/// The code outside shares only the database with the workers, so it looks for their requests so often.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The worker's side: not a test by itself.
#[test]
fn child_works_until_it_is_killed() {
    let Ok(url) = std::env::var(CHILD_URL) else { return };
    let schema = std::env::var(CHILD_SCHEMA).unwrap();
    let ledger = std::env::var(CHILD_LEDGER).unwrap();
    let round = std::env::var(CHILD_ROUND).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = PostgresProvider::new_with_schema(&url, Some(&schema)).await.unwrap();
        worker::work(Arc::new(store), Path::new(&ledger), round, false).await;
    });
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

struct Fleet {
    cluster: Cluster,
    schema: String,
    files: tempfile::TempDir,
    wrong: Vec<String>,
}

impl Fleet {
    fn spawn(&self, round: usize) -> Child {
        run_alone(module_path!(), "child_works_until_it_is_killed")
            .env(CHILD_URL, self.cluster.url())
            .env(CHILD_SCHEMA, &self.schema)
            .env(CHILD_ROUND, round.to_string())
            .env(CHILD_LEDGER, self.files.path().join("ledger"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    async fn store(&self) -> Arc<PostgresProvider> {
        let store = PostgresProvider::new_with_schema(&self.cluster.url(), Some(&self.schema)).await;
        Arc::new(store.unwrap())
    }

    async fn connect(&self) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.cluster.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path TO {}", self.schema)).await.unwrap();
        client
    }

    async fn check_endings(&mut self, client: &Client, forecast: &Forecast) {
        let deadline = SystemClock.monotonic() + LIVENESS_BOUND;
        let left = || deadline.saturating_sub(SystemClock.monotonic());
        for (instance, expected) in &forecast.endings {
            match client.wait_for_orchestration(instance, left()).await {
                Ok(status) if ending(&status).as_ref() == Some(expected) => {}
                Ok(status) => self.wrong.push(format!("{instance} should be {expected:?}, is {status:?}")),
                Err(error) => self.wrong.push(format!("{instance} did not end: {error}")),
            }
        }
        for instance in client.list_all_instances().await.unwrap() {
            if let Err(error) = client.wait_for_orchestration(&instance, left()).await {
                self.wrong.push(format!("{instance} did not end: {error}"));
            }
        }
        while client.get_queue_depths().await.unwrap().orchestrator_queue > 0 {
            if left().is_zero() {
                return self.wrong.push("the orchestrator queue is not empty at the end".into());
            }
            SystemClock.sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Compares the histories with what the activities themselves wrote down.
    fn check_ledger(&mut self, histories: &Histories) {
        let text = std::fs::read_to_string(self.files.path().join("ledger")).unwrap();
        let mut ledger: Vec<Entry> = text.lines().map(|line| Entry::parse(line).unwrap()).collect();
        eprintln!("{} lines in the ledger, {} runs were repeated", ledger.len(), repeated_runs(&ledger));
        // Events bear the database's time, which a process knows up to the time that an answer takes.
        ledger.iter_mut().for_each(|entry| entry.time_ms -= 100);
        self.wrong.extend(check_ledger(&ledger, histories));
    }

    /// Prints everything that the store knows about instances that should have ended, to find out why they have not.
    async fn explain_what_is_left(&mut self) {
        let database = self.connect().await;
        for table in ["orchestrator_queue", "worker_queue", "instance_schedule", "arrivals"] {
            let sql = format!("SELECT row_to_json(t)::text FROM {table} t LIMIT 20");
            for row in database.query(&sql, &[]).await.unwrap() {
                self.wrong.push(format!("{table}: {}", row.get::<_, String>(0)));
            }
        }
        let sql = "SELECT instance_id, event_data FROM history JOIN instances USING (instance_id)
            WHERE instance_id IN (SELECT instance_id FROM executions WHERE status = 'Running') ORDER BY 1, execution_id, event_id";
        for row in database.query(sql, &[]).await.unwrap() {
            self.wrong.push(format!("{}: {}", row.get::<_, String>(0), row.get::<_, String>(1)));
        }
    }

    async fn check_rows(&mut self) -> usize {
        let database = self.connect().await;
        for table in ["quarantine", "orchestrator_queue", "worker_queue", "instance_locks"] {
            let found: i64 =
                database.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0);
            if found != 0 {
                self.wrong.push(format!("{found} rows in {table}"));
            }
        }
        let sql = "SELECT instance_id, execution_id, event_data FROM history ORDER BY 1, 2, event_id";
        let mut histories = Histories::new();
        for row in database.query(sql, &[]).await.unwrap() {
            let event: Event = serde_json::from_str(row.get(2)).unwrap();
            let key = (row.get::<_, String>(0), row.get::<_, i64>(1).unsigned_abs());
            histories.entry(key).or_default().push(event);
        }
        for (key, events) in &histories {
            self.wrong.extend(check_history(key, events));
        }
        self.check_ledger(&histories);
        histories.values().map(Vec::len).sum()
    }
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

/// Starts instances, sends them messages, then answers their requests; never returns.
async fn stand_outside(
    client: Client,
    database: tokio_postgres::Client,
    cases: Vec<(String, Vec<Step>, bool)>,
) {
    for (instance, steps, is_cancelled_early) in &cases {
        if *is_cancelled_early {
            client.cancel_instance(instance, CANCEL_REASON).await.unwrap();
        }
        client.start_orchestration(instance, ORCHESTRATION, Input::text(steps)).await.unwrap();
        for data in (0..messages(steps)).map(message) {
            client.enqueue_event(instance, QUEUE, data).await.unwrap();
        }
    }
    let mut answered = BTreeSet::new();
    loop {
        let sql = "SELECT instance_id, custom_status FROM instances WHERE custom_status IS NOT NULL";
        for row in database.query(sql, &[]).await.unwrap() {
            let request: (String, String) = (row.get(0), row.get(1));
            if !answered.insert(request.clone()) {
                continue;
            }
            let (instance, status) = request;
            if status == CANCEL_ME {
                client.cancel_instance(instance, CANCEL_REASON).await.unwrap();
            } else if let Some(name) = status.strip_prefix(SIGNAL_ME) {
                client.raise_event(instance, name, signal_data(name)).await.unwrap();
            }
        }
        SystemClock.sleep(BETWEEN_LOOKS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_killed_and_all_finish_right() {
    let seed = setting("FLEET_SEED", SystemClock.now_ms());
    let (instances, kills) = (setting("FLEET_INSTANCES", 150), setting("FLEET_KILLS", 6));
    eprintln!("FLEET_SEED={seed} FLEET_INSTANCES={instances} FLEET_KILLS={kills}");
    let mut random = Random::new(seed);
    let mut forecast = Forecast::default();
    let mut cases = Vec::new();
    for n in 0..instances {
        let instance = format!("i{n}");
        let is_cancelled_early = random.below(20) == 0;
        let steps = match is_cancelled_early {
            true => vec![Step::AwaitCancel(None)],
            false => Generator::new(&mut random, &instance).program(),
        };
        forecast.add(&instance, &steps);
        cases.push((instance, steps, is_cancelled_early));
    }
    let mut fleet = Fleet {
        cluster: Cluster::own(Kind::Durable, &[]),
        schema: support::fresh_schema(),
        files: tempfile::TempDir::new().unwrap(),
        wrong: Vec::new(),
    };
    let client = Client::new(fleet.store().await);
    let outside = tokio::spawn(stand_outside(client.clone(), fleet.connect().await, cases));
    let mut workers: Vec<Child> = (0..WORKERS).map(|round| fleet.spawn(round)).collect();
    for round in 0..usize::try_from(kills).unwrap() {
        tokio::time::sleep(Duration::from_millis(100 + random.below(700))).await;
        let unlucky = random.below(WORKERS as u64) as usize;
        workers[unlucky].kill().unwrap();
        workers[unlucky].wait().unwrap();
        workers[unlucky] = fleet.spawn(round);
    }
    fleet.check_endings(&client, &forecast).await;
    if !fleet.wrong.is_empty() {
        fleet.explain_what_is_left().await;
    }
    if outside.is_finished() {
        fleet.wrong.push("the application beside the workers failed".into());
    }
    outside.abort();
    for mut worker in workers {
        drop(worker.stdin.take());
        assert!(worker.wait().unwrap().success());
    }
    let events = fleet.check_rows().await;
    eprintln!("{events} events");
    assert!(fleet.wrong.is_empty(), "FLEET_SEED={seed}: {}", fleet.wrong.join("\n"));
}
