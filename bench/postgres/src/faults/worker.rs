//! A worker process: a runtime on the store, whose activities write down that they run.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use duroxide::runtime::Runtime;
use duroxide::runtime::observability::{LogFormat, ObservabilityConfig, init_logging};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, RuntimeOptions};
use duroxide_pg::PostgresProvider;

use super::shapes::{self, ACTIVITY, name_of};
use crate::Outcome;
use crate::args::Args;

/// The program that a worker process runs.
pub const PROGRAM: &str = "faults-worker";

/// Works until the standard input is closed, which the end of the program that started it does.
pub async fn run(args: &Args) -> Outcome<()> {
    let given = |name: &str| args.text(name).ok_or_else(|| format!("--{name} is needed"));
    let (url, schema, name) = (given("url")?, given("schema")?, given("name")?.to_string());
    let ledger = OpenOptions::new().create(true).append(true).open(given("ledger")?)?;
    let observability = ObservabilityConfig { log_format: LogFormat::Compact, ..Default::default() };
    init_logging(&observability)?;
    let store = Arc::new(PostgresProvider::new_with_schema(url, Some(schema)).await?);
    // Leases and attempts are the default ones; there is room for activities that take long.
    let options = RuntimeOptions {
        orchestration_concurrency: 4,
        worker_concurrency: 32,
        worker_node_id: Some(name.clone()),
        observability,
        ..Default::default()
    };
    let diary = Arc::new(Diary { ledger, worker: name, runs: AtomicU64::new(0) });
    let activities = ActivityRegistry::builder()
        .register(ACTIVITY, move |ctx: ActivityContext, input: String| work(diary.clone(), ctx, input))
        .build();
    let runtime = Runtime::start_with_options(store, activities, shapes::orchestrations(), options).await;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    runtime.shutdown(None).await;
    Ok(())
}

/// Runs a step; returns its name and the run's.
async fn work(diary: Arc<Diary>, ctx: ActivityContext, input: String) -> Result<String, String> {
    let (step, pace) = input.split_once(' ').ok_or("no pace")?;
    let run = diary.begin(ctx.instance_id(), step).map_err(|error| error.to_string())?;
    let pace: u64 = pace.parse().map_err(|_| "no number")?;
    tokio::time::sleep(Duration::from_millis(pace)).await;
    diary.end(&run).map_err(|error| error.to_string())?;
    Ok(format!("{} {run}", name_of(&input)))
}

/// The ledger of one worker: a line when a run begins, and one when it ends.
struct Diary {
    ledger: File,
    worker: String,
    runs: AtomicU64,
}

impl Diary {
    fn begin(&self, instance: &str, step: &str) -> std::io::Result<String> {
        let run = format!("{}-{}", self.worker, self.runs.fetch_add(1, Ordering::Relaxed));
        self.write(format!("began {run} {} {instance} {step}\n", SystemClock.now_ms()))?;
        Ok(run)
    }

    fn end(&self, run: &str) -> std::io::Result<()> {
        self.write(format!("ended {run} {}\n", SystemClock.now_ms()))
    }

    /// One call for a line, so that lines do not mix.
    fn write(&self, line: String) -> std::io::Result<()> {
        (&self.ledger).write_all(line.as_bytes())
    }
}
