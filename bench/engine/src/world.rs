//! A runtime on a fresh SQLite file, and what `/proc` says about this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::{Durability, SqliteProvider};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{Client, OrchestrationRegistry, OrchestrationStatus};
use tempfile::TempDir;

use crate::Outcome;

/// A store, a runtime on it and a client.
pub struct World {
    pub client: Client,
    pub runtime: Arc<Runtime>,
    pub store: Arc<SqliteProvider>,
    _directory: TempDir,
}

impl World {
    pub async fn new(
        durability: Durability,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
    ) -> Outcome<Self> {
        // Beside the program, because a temporary directory may be in memory, where syncs cost nothing.
        let program = std::env::current_exe()?;
        let directory = TempDir::new_in(program.parent().unwrap_or(Path::new(".")))?;
        let url = format!("sqlite:{}?mode=rwc", directory.path().join("bench.db").display());
        let store = Arc::new(SqliteProvider::builder().durability(durability).open(&url).await?);
        let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
        Ok(Self { client: Client::new(store.clone()), runtime, store, _directory: directory })
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

/// The processor time that this process has used, in all its threads.
pub fn cpu_time() -> Outcome<Duration> {
    // Fields 14 and 15, counted in hundredths of a second on Linux; the name in field 2 ends with a parenthesis.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}

/// The memory that this process holds now, in MB.
pub fn resident_mb() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kb: f64 = line.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(kb / 1024.0)
}
