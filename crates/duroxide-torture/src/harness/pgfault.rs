//! `pgfault`: whole orchestrations on a PostgreSQL server, while connections are cut (also in the middle of commits), bytes
//! are late or stand still, backends are terminated, tables are locked; and then while the server crashes, takes no writes,
//! has no connection left, or its listeners are gone. Every third seed promotes a standby (`failover.rs`), the first one that is in step.
//!
//! Poolers and encrypted connections have tests of their own beside the store.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use duroxide::providers::{Clock, Provider, SystemClock, TagFilter};
use duroxide::runtime::Runtime;
use duroxide::{Client, OrchestrationRegistry, RuntimeOptions};
use duroxide_pg::PostgresProvider;

use super::broken_worker::{Break, BrokenStore};
use super::failover::{self, Standby};
use super::{Harness, Tier};
use crate::checker::{Ended, Leftovers, Run, Trace, check};
use crate::report::{Figures, Trial};
use crate::shared::cluster::{Cluster, Kind};
use crate::shared::program::{self, Forecast, Generator, Input, ORCHESTRATION, QUEUE, Step, message};
use crate::shared::proxy::{NextCommit, Proxy, Weather};
use crate::shared::random::Random;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "pgfault",
    about: "cut connections, lost answers, slow networks, locks, outages of a PostgreSQL server, promoted standbys",
    trial,
    twins: &["loses-acknowledged", "promotes-one-behind"],
    twin_trials: 1,
    ci: Tier { trials: 3, time_limit: Duration::from_secs(45) },
    nightly: Tier { trials: 200, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: false,
};

const INSTANCES: usize = 24;
const FAULTS: usize = 10;
const OUTAGES: usize = 3;
/// So many instances are started in the middle of each outage.
const AMID_OUTAGE: usize = 6;
/// Beyond a lease, in seconds.
const LONGEST_LOCK: f64 = 5.0;
/// Everything ends so long after the last fault.
pub(super) const LIVENESS_BOUND: Duration = Duration::from_secs(60);

/// The server of this process, which syncs every commit. It goes when the process has ended.
pub(super) fn server() -> &'static Cluster {
    static SERVER: OnceLock<Cluster> = OnceLock::new();
    SERVER.get_or_init(|| Cluster::own(Kind::Durable, &["max_connections = 80"]))
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match twin {
            Some("promotes-one-behind") => failover::run(seed, Standby::Behind, true).await,
            None if seed % 6 == 1 => failover::run(seed, Standby::InStep, false).await,
            None if seed % 6 == 3 => failover::run(seed, Standby::Behind, false).await,
            twin => run(seed, twin.is_some()).await,
        }
    })
}

/// Short leases, so that the work of a lost connection is soon free again.
pub(super) fn options() -> RuntimeOptions {
    RuntimeOptions {
        worker_concurrency: 8,
        worker_lock_timeout: Duration::from_secs(3),
        orchestrator_lock_timeout: Duration::from_secs(3),
        max_attempts: 1_000,
        activity_cancellation_grace_period: Duration::from_millis(500),
        worker_tag_filter: TagFilter::default_and([program::TAG]),
        session_lock_timeout: Duration::from_secs(3),
        session_idle_timeout: Duration::from_secs(2),
        session_cleanup_interval: Duration::from_secs(1),
        ..RuntimeOptions::default()
    }
}

/// Nobody answers requests here.
fn without_requests(step: Step) -> Step {
    match step {
        Step::OutsideSignal(label) | Step::Reply(label) => Step::Activity(label),
        Step::AwaitCancel(_) | Step::CleanUp(_) => Step::Timer(3),
        step => step,
    }
}

async fn run(seed: u64, is_broken: bool) -> Trial {
    let mut dice = Random::new(seed);
    let server = server();
    let schema = format!("t_{}", uuid::Uuid::new_v4().simple());
    let proxy = Proxy::new(server.port()).await;
    let open = async |url: String| -> Arc<PostgresProvider> {
        let builder = PostgresProvider::builder().schema(&schema).retry_for(Duration::from_secs(20));
        Arc::new(builder.open(&url).await.unwrap())
    };
    let store = open(server.url_through(proxy.port())).await;
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
    let activities = super::programs::activities(&runs, false);
    let worker = Runtime::start_with_options(store.clone(), activities, code.clone(), options()).await;

    let direct: Arc<dyn Provider> = open(server.url()).await;
    let reader = Client::new(direct.clone());
    let client = Client::new(match is_broken {
        true => Arc::new(BrokenStore::new(direct, Break::LosesAcknowledged)),
        false => direct,
    });
    let (mut forecast, mut trace) = (Forecast::default(), Trace::default());
    let mut cases = Vec::new();
    for n in 0..INSTANCES {
        let instance = format!("i{n}");
        let steps = Generator::extended(&mut dice, &instance).program();
        let steps: Vec<Step> = steps.into_iter().map(without_requests).collect();
        forecast.add(&instance, &steps);
        cases.push((instance, steps));
    }
    let starting = async {
        for (instance, steps) in &cases {
            insist(async || client.start_orchestration(instance, ORCHESTRATION, Input::text(steps)).await)
                .await;
            for data in (0..program::messages(steps)).map(message) {
                insist(async || client.enqueue_event(instance, QUEUE, &data).await).await;
                trace.note_sent(instance, QUEUE, &data);
            }
            SystemClock.sleep(Duration::from_millis(60)).await;
        }
    };
    let (mut figures, ()) = tokio::join!(storm(server, &proxy, &schema, &mut dice), starting);
    for outage in 0..OUTAGES {
        let mut cases = Vec::new();
        for n in 0..AMID_OUTAGE {
            let instance = format!("o{outage}-{n}");
            let steps = quiet_program(&mut dice, &instance);
            forecast.add(&instance, &steps);
            cases.push((instance, steps));
        }
        let starting = async {
            for (instance, steps) in &cases {
                start_amid_outage(&reader, instance, steps).await;
            }
        };
        let kind = (seed as usize + outage) % 4;
        let (figure, ()) = tokio::join!(outage_of(kind, &proxy, &mut dice), starting);
        *figures.entry(figure).or_default() += 1;
    }
    trace.expect(&forecast);
    let deadline = SystemClock.monotonic() + if is_broken { Duration::from_secs(5) } else { LIVENESS_BOUND };
    for instance in forecast.endings.keys() {
        let left = deadline.saturating_sub(SystemClock.monotonic());
        let _ = reader.wait_for_orchestration(instance, left).await;
    }
    let left = deadline.saturating_sub(SystemClock.monotonic());
    let rows = async || Leftovers::of_schema(&server.url(), &schema).await;
    let ended = Ended::read(&reader, &SystemClock, left, rows).await.unwrap();
    worker.shutdown(Some(0)).await;
    runs.lock().unwrap().iter().cloned().for_each(|run| trace.note_run(run));
    Trial::new(check(&trace, &ended, &code), figures)
}

/// A program that needs nobody outside, not even a message.
pub(super) fn quiet_program(dice: &mut Random, instance: &str) -> Vec<Step> {
    let steps = Generator::extended(dice, instance).program();
    steps.into_iter().map(without_requests).map(without_messages).collect()
}

/// A sender that does not know whether the server has its message cannot send it again.
fn without_messages(step: Step) -> Step {
    match step {
        Step::Dequeue => Step::Timer(3),
        step => step,
    }
}

/// Starts an instance, and if the answer was lost, asks whether it is there.
pub(super) async fn start_amid_outage(client: &Client, instance: &str, steps: &[Step]) {
    insist(async || {
        let started = client.start_orchestration(instance, ORCHESTRATION, Input::text(steps)).await;
        match client.get_orchestration_status(instance).await {
            Ok(duroxide::OrchestrationStatus::NotFound) | Err(_) => started,
            Ok(_) => Ok(()),
        }
    })
    .await;
}

/// Takes something away from everybody for a while, and gives it back.
async fn outage_of(kind: usize, proxy: &Proxy, dice: &mut Random) -> &'static str {
    let server = server();
    let a_while = Duration::from_millis(300 + dice.below(1_500));
    match kind {
        0 => {
            tokio::task::spawn_blocking(|| server.crash()).await.unwrap();
            "crashes"
        }
        1 => {
            execute(server, "ALTER SYSTEM SET default_transaction_read_only = on").await;
            execute(server, "SELECT pg_reload_conf()").await;
            SystemClock.sleep(a_while).await;
            execute(server, "ALTER SYSTEM RESET default_transaction_read_only").await;
            execute(server, "SELECT pg_reload_conf()").await;
            "read_only_windows"
        }
        2 => {
            proxy.cut();
            let mut connections = Vec::new();
            while let Ok((client, connection)) =
                tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await
            {
                connections.push((client, tokio::spawn(connection)));
            }
            SystemClock.sleep(a_while).await;
            "exhausted_connections"
        }
        _ => {
            let listeners =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'";
            execute(server, listeners).await;
            "lost_listeners"
        }
    }
}

/// Tries again while the server is away. The sender is connected directly, so that only crashes reach it: and what a crash
/// of the server leaves unanswered, the sender asks about before it sends again.
async fn insist<T>(mut call: impl AsyncFnMut() -> Result<T, duroxide::ClientError>) {
    for _ in 0..100 {
        if call().await.is_ok() {
            return;
        }
        SystemClock.sleep(Duration::from_millis(100)).await;
    }
    panic!("the server does not come back");
}

/// One fault after the other, at moments that the dice pick.
async fn storm(server: &Cluster, proxy: &Proxy, schema: &str, dice: &mut Random) -> Figures {
    let mut figures = Figures::new();
    for _ in 0..FAULTS {
        SystemClock.sleep(Duration::from_millis(20 + dice.below(250))).await;
        let figure = match dice.below(9) {
            0 => {
                proxy.cut();
                "cuts"
            }
            1 => {
                proxy.hang_up();
                "half_open"
            }
            2..=4 => {
                let how = [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf];
                proxy.spoil_next_commit(how[dice.below(3) as usize]);
                "spoiled_commits"
            }
            5 => {
                proxy.set_weather(Weather::Slow(Duration::from_millis(30)));
                SystemClock.sleep(Duration::from_millis(400)).await;
                proxy.set_weather(Weather::Fair);
                "slow_networks"
            }
            6 => {
                proxy.set_weather(Weather::Frozen);
                SystemClock.sleep(Duration::from_millis(500 + dice.below(4_000))).await;
                proxy.set_weather(Weather::Fair);
                "frozen_networks"
            }
            7 => {
                let all =
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
                execute(server, all).await;
                "terminations"
            }
            _ => {
                let (lock, figure) = lock(schema, dice);
                execute(server, &lock).await;
                figure
            }
        };
        *figures.entry(figure).or_default() += 1;
    }
    figures
}

/// Holds a table, or some rows of it: for less than the store waits for a lock, for more, or for longer than a lease.
fn lock(schema: &str, dice: &mut Random) -> (String, &'static str) {
    let tables =
        ["history", "instances", "instance_schedule", "worker_queue", "orchestrator_queue", "committers"];
    let table = tables[dice.below(tables.len() as u64) as usize];
    let seconds = [0.3, 0.5, 1.5, 2.5, LONGEST_LOCK][dice.below(5) as usize];
    let (what, figure) = match dice.below(2) {
        0 => (format!("LOCK TABLE {schema}.{table} IN ACCESS EXCLUSIVE MODE"), "locks_of_tables"),
        _ => (format!("SELECT 1 FROM {schema}.{table} FOR UPDATE"), "locks_of_rows"),
    };
    (format!("BEGIN; {what}; SELECT pg_sleep({seconds}); COMMIT"), figure)
}

async fn execute(server: &Cluster, sql: &str) {
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    let _ = connection.await;
}
