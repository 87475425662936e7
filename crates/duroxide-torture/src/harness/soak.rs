//! `soak`: steady load on a SQLite file, with ended instances removed after a while. Memory, file, the rows of every table and
//! latency must be as flat in the last third as in the second: the most of each, and in a run that is long enough to have an
//! average, that of memory more closely.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Clock, InstanceFilter, SystemClock};
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, ActivityRegistry, Client, OrchestrationContext, OrchestrationRegistry, RuntimeOptions,
};

use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::report::{Figures, Trial};

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "soak",
    about: "steady load with retention: memory, file and latency stay flat",
    trial,
    twins: &["keeps-everything"],
    twin_trials: 1,
    ci: Tier { trials: 1, time_limit: Duration::from_secs(10) },
    nightly: Tier { trials: 1, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: false,
};

/// How long the soak takes on a machine that keeps up with the load.
static SECONDS: AtomicU64 = AtomicU64::new(12);
/// A twin grows as fast as it can.
const SECONDS_OF_A_TWIN: u64 = 12;

/// Sets how long the next soak takes: as long as it may, and as in the short tier if nobody has set a limit.
pub fn set_length(time_limit: Duration, is_twin: bool) {
    SECONDS.store(seconds(time_limit, is_twin), Ordering::Relaxed);
}

fn seconds(time_limit: Duration, is_twin: bool) -> u64 {
    let time_limit = if time_limit == Duration::MAX { HARNESS.ci.time_limit } else { time_limit };
    if is_twin { SECONDS_OF_A_TWIN } else { time_limit.as_secs().max(3) }
}

const BETWEEN_BATCHES: Duration = Duration::from_millis(100);
const BATCH: usize = 20;
/// For how long ended instances are kept.
const RETENTION: Duration = Duration::from_secs(1);
const PAYLOAD: usize = 2_000;
/// What a third may differ by without any growth: allocators and the log breathe.
const SLACK_BYTES: u64 = 8 << 20;

/// A run of so many batches warms up in its first third, and has an average in each other one.
const LONG: usize = 3_000;
/// The rows are counted with every so many batches: a count reads them all.
const BETWEEN_COUNTS: usize = 10;
/// How many rows a table may differ by.
const SLACK_ROWS: u64 = 5_000;

/// What was measured in a third of the batches.
#[derive(Default, Clone)]
struct Third {
    memory: u64,
    memory_of_all: u64,
    batches: u64,
    /// By table.
    rows: BTreeMap<String, u64>,
    file: u64,
    slowest_ms: u64,
    instances: u64,
}

fn trial(_seed: u64, twin: Option<&str>) -> Trial {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let length = Duration::from_secs(SECONDS.load(Ordering::Relaxed));
    let thirds = runtime.block_on(soak(length, twin.is_some()));
    let [_, second, third] = thirds;
    let violations = growth(&second, &third);
    let figures = Figures::from([
        ("seconds", length.as_secs()),
        ("most_memory_bytes", third.memory),
        ("most_file_bytes", third.file),
        ("most_instances", third.instances),
        ("most_rows_of_a_table", third.rows.values().copied().max().unwrap_or(0)),
        ("tables", third.rows.len() as u64),
        ("longest_latency_ms", third.slowest_ms),
    ]);
    Trial::new(violations, figures)
}

/// What has grown from one third to the next.
fn growth(second: &Third, third: &Third) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut flat = |what: &str, before: u64, after: u64, most: u64| {
        if after > most {
            let text = format!("{what} grew from {before} to {after} under steady load");
            violations.push(Violation::of_store(Invariant::Liveness, text));
        }
    };
    let with_slack = |before: u64, slack: u64| before + before / 5 + slack;
    flat("memory", second.memory, third.memory, with_slack(second.memory, SLACK_BYTES));
    if second.batches + third.batches >= LONG as u64 * 2 / 3 {
        let average = |third: &Third| third.memory_of_all / third.batches.max(1);
        let (before, after) = (average(second), average(third));
        flat("the average of memory", before, after, before + before / 20 + SLACK_BYTES / 4);
    }
    flat("the file", second.file, third.file, with_slack(second.file, SLACK_BYTES / 4));
    let most = with_slack(second.instances, 2 * BATCH as u64 * 10);
    flat("the number of instances", second.instances, third.instances, most);
    for (table, after) in &third.rows {
        let before = second.rows.get(table).copied().unwrap_or(0);
        flat(&format!("the table {table}"), before, *after, with_slack(before, SLACK_ROWS));
    }
    let most = with_slack(second.slowest_ms, 2_000);
    flat("the longest latency (ms)", second.slowest_ms, third.slowest_ms, most);
    violations
}

/// Counts the rows of every table, and keeps the most.
fn count_rows(file: &Path, most: &mut BTreeMap<String, u64>) {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    let tables =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
    let mut tables = connection.prepare(tables).unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
    for table in tables.map(Result::unwrap) {
        let count = format!("SELECT count(*) FROM {table}");
        let rows: i64 = connection.query_row(&count, [], |row| row.get(0)).unwrap();
        let most = most.entry(table).or_default();
        *most = rows.unsigned_abs().max(*most);
    }
}

async fn soak(length: Duration, keeps_everything: bool) -> [Third; 3] {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store =
        Arc::new(SqliteProvider::new(&format!("sqlite:{}?mode=rwc", path.display()), None).await.unwrap());
    let code = OrchestrationRegistry::builder()
        .register("Steady", |ctx: OrchestrationContext, input: String| async move {
            let first = ctx.schedule_activity("Echo", input).await?;
            ctx.schedule_timer(Duration::from_millis(5)).await;
            ctx.schedule_activity("Echo", first).await
        })
        .build();
    let activities = ActivityRegistry::builder()
        .register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
        .build();
    let options = RuntimeOptions { worker_concurrency: 8, ..RuntimeOptions::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities, code, options).await;
    let client = Client::new(store);
    let mut thirds: [Third; 3] = Default::default();
    let mut number = 0;
    // By their number, not by the clock: a busy machine does as much, and takes longer for it.
    let batches = (length.as_millis() / BETWEEN_BATCHES.as_millis()) as usize;
    for done in 0..batches {
        let batch = SystemClock.monotonic();
        let third = &mut thirds[done * 3 / batches];
        let mut waits = tokio::task::JoinSet::new();
        for _ in 0..BATCH {
            number += 1;
            let (client, instance) = (client.clone(), format!("s{number}"));
            waits.spawn(async move {
                client.start_orchestration(&instance, "Steady", "x".repeat(PAYLOAD)).await.unwrap();
                client.wait_for_orchestration(&instance, Duration::from_secs(30)).await.unwrap();
            });
        }
        waits.join_all().await;
        let took = SystemClock.monotonic() - batch;
        third.slowest_ms = third.slowest_ms.max(took.as_millis() as u64);
        if !keeps_everything {
            let ended_before = SystemClock.now_ms() - RETENTION.as_millis() as u64;
            let filter = InstanceFilter { completed_before: Some(ended_before), ..InstanceFilter::default() };
            client.delete_instance_bulk(filter).await.unwrap();
        }
        let memory = resident_bytes();
        third.memory = third.memory.max(memory);
        third.memory_of_all += memory;
        third.batches += 1;
        if done % BETWEEN_COUNTS == 0 {
            count_rows(&path, &mut third.rows);
        }
        let log = path.with_extension("db-wal");
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
        third.file = third.file.max(size(&path) + size(&log));
        third.instances = third.instances.max(client.get_system_metrics().await.unwrap().total_instances);
        SystemClock.sleep(BETWEEN_BATCHES.saturating_sub(took)).await;
    }
    runtime.shutdown(Some(0)).await;
    thirds
}

/// How much memory this process has, by Linux's account; 0 elsewhere.
pub(super) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_of_each_kind_is_noticed() {
        let rows = |count| BTreeMap::from([("history".to_string(), count)]);
        let memory = 100 << 20;
        let before = Third {
            memory,
            memory_of_all: memory * 1_000,
            batches: 1_000,
            rows: rows(10_000),
            file: 50 << 20,
            slowest_ms: 100,
            instances: 1_000,
        };
        assert!(growth(&before, &before.clone()).is_empty());
        for (after, what) in [
            (Third { memory: 2 * memory, ..before.clone() }, "memory"),
            (Third { memory_of_all: 1_100 * memory, ..before.clone() }, "average"),
            (Third { rows: rows(20_000), ..before.clone() }, "history"),
            (Third { file: 100 << 20, ..before.clone() }, "file"),
            (Third { instances: 3_000, ..before.clone() }, "instances"),
        ] {
            let found = growth(&before, &after);
            assert!(found.len() == 1 && found[0].what.contains(what), "{what}: {found:?}");
        }
    }

    #[test]
    fn without_a_limit_it_takes_as_long_as_in_the_short_tier() {
        assert_eq!(seconds(Duration::MAX, false), HARNESS.ci.time_limit.as_secs());
        assert_eq!(seconds(Duration::from_secs(3_600), false), 3_600);
        assert_eq!(seconds(Duration::from_secs(1), false), 3);
    }
}
