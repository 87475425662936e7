//! A runtime on a fresh SQLite file, and what `/proc` says about this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::{Durability, SqliteProvider};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{Client, OrchestrationRegistry, OrchestrationStatus, RuntimeOptions};
use tempfile::TempDir;

use crate::Outcome;
use crate::cpu::CpuTime;

/// A store, a runtime on it and a client.
pub struct World {
    pub client: Client,
    pub runtime: Arc<Runtime>,
    pub store: Arc<SqliteProvider>,
    pub url: String,
    _directory: TempDir,
}

impl World {
    pub async fn new(
        durability: Durability,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
    ) -> Outcome<Self> {
        Self::with_options(durability, activities, orchestrations, RuntimeOptions::default()).await
    }

    pub async fn with_options(
        durability: Durability,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
    ) -> Outcome<Self> {
        // Beside the program, because a temporary directory may be in memory, where syncs cost nothing.
        let program = std::env::current_exe()?;
        let directory = TempDir::new_in(program.parent().unwrap_or(Path::new(".")))?;
        let url = format!("sqlite:{}?mode=rwc", directory.path().join("bench.db").display());
        let store = Arc::new(SqliteProvider::builder().durability(durability).open(&url).await?);
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        Ok(Self { client: Client::new(store.clone()), runtime, store, url, _directory: directory })
    }

    /// Waits for an instance and returns its output.
    pub async fn output(&self, instance: &str) -> Outcome<String> {
        match self.client.wait_for_orchestration(instance, Duration::from_secs(600)).await? {
            OrchestrationStatus::Completed { output, .. } => Ok(output),
            other => Err(format!("{instance} did not complete: {other:?}").into()),
        }
    }
}

pub fn print_settings() -> Outcome<()> {
    println!("cores: {}", std::thread::available_parallelism()?);
    println!("store: a SQLite file; options: the defaults");
    Ok(())
}

/// What this process has done so far, in all its threads.
pub struct ProcessFigures {
    pub cpu: Duration,
    /// Calls that read from a file, and calls that wrote to one.
    pub reads: u64,
    pub writes: u64,
    /// How often a thread that waited went on.
    pub wake_ups: u64,
}

impl ProcessFigures {
    pub fn read() -> Outcome<Self> {
        let io = std::fs::read_to_string("/proc/self/io")?;
        let mut wake_ups = 0;
        for thread in std::fs::read_dir("/proc/self/task")? {
            wake_ups +=
                number(&std::fs::read_to_string(thread?.path().join("status"))?, "voluntary_ctxt_switches:");
        }
        let cpu = Duration::from_secs_f64(CpuTime::read().complete());
        Ok(Self { cpu, reads: number(&io, "syscr:"), writes: number(&io, "syscw:"), wake_ups })
    }

    pub fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            // Threads that have ended since take theirs with them.
            wake_ups: self.wake_ups.saturating_sub(before.wake_ups),
        }
    }
}

/// The number after a name at the beginning of a line.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The memory that this process holds now, in MB.
pub fn resident_mb() -> Outcome<f64> {
    let kb = number(&std::fs::read_to_string("/proc/self/status")?, "VmRSS:");
    Ok(kb as f64 / 1024.0)
}
