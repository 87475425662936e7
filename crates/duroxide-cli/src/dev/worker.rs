//! The worker of `duroxide dev`: a process of its own, so that it can be killed.

use std::sync::Arc;

use clap::Args;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::{Runtime, RuntimeOptions};
use tokio::io::AsyncReadExt;

use super::samples;
use crate::failure::{Failure, Outcome};

/// How long activities have to end when the worker is told to stop, in milliseconds.
const GRACE_MS: u64 = 500;

/// Arguments of the hidden command that runs the worker.
#[derive(Debug, Args)]
pub struct DevWorker {}

impl DevWorker {
    /// Runs until standard input ends, which it also does if the process that started this one dies.
    pub async fn run(&self, url: &str) -> Outcome {
        let store =
            SqliteProvider::new(url, None).await.map_err(|error| Failure::failed(error.to_string()))?;
        let options =
            RuntimeOptions { worker_concurrency: 24, orchestration_concurrency: 4, ..Default::default() };
        let activities = samples::activities().map_err(Failure::failed)?;
        let orchestrations = samples::orchestrations().map_err(Failure::failed)?;
        let runtime = Runtime::start_with_options(Arc::new(store), activities, orchestrations, options).await;
        // Nothing is ever written there; it only ends.
        let _ = tokio::io::stdin().read(&mut [0; 1]).await;
        runtime.shutdown(Some(GRACE_MS)).await;
        Ok(())
    }
}
