//! The worker of `duroxide dev`: a process of its own, so that it can be killed.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use duroxide::Duroxide;
use duroxide::providers::sqlite::SqliteProvider;
use tokio::io::AsyncReadExt;

use super::samples;
use crate::failure::{Failure, Outcome};

/// How long activities have to end when the worker is told to stop.
const GRACE: Duration = Duration::from_millis(500);

/// Arguments of the hidden command that runs the worker.
#[derive(Debug, Args)]
pub struct DevWorker {}

impl DevWorker {
    /// Runs until standard input ends, which it also does if the process that started this one dies.
    pub async fn run(&self, url: &str) -> Outcome {
        let store =
            SqliteProvider::new(url, None).await.map_err(|error| Failure::failed(error.to_string()))?;
        let app = samples::functions(Duroxide::on(Arc::new(store))).options(|options| {
            // Fewer than the 64 and 8 of the front door: the samples have more to do than that, so the dashboard shows
            // queues, and the process beside the terminal and a browser stays a light one.
            options.worker_concurrency = 24;
            options.orchestration_concurrency = 4;
        });
        let app = app.start().await.map_err(|error| Failure::failed(error.to_string()))?;
        // Nothing is ever written there; it only ends.
        let _ = tokio::io::stdin().read(&mut [0; 1]).await;
        app.shutdown_within(GRACE).await;
        Ok(())
    }
}
