//! A store, a runtime with default options and a client, and the time that is left.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::{Client, ClientError, OrchestrationStatus};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::args::Args;
use super::figures::Figures;
use super::{Outcome, programs};

/// How many starts are under way at once.
const STARTS_AT_ONCE: usize = 64;

pub struct Lab {
    pub client: Client,
    pub figures: Figures,
    store: Arc<dyn Provider>,
    deadline: Instant,
}

impl Lab {
    /// Opens the store; nothing runs yet.
    pub async fn open(args: &Args) -> Outcome<Self> {
        let (store, sync) = crate::shim::open(&args.url(), &args.sync).await?;
        Ok(Self {
            client: Client::new(store.clone()),
            figures: Figures::new(&sync),
            store,
            deadline: Instant::now() + args.cap,
        })
    }

    /// Opens the store and starts a runtime on it.
    pub async fn running(args: &Args) -> Outcome<Self> {
        let lab = Self::open(args).await?;
        lab.start_runtime().await;
        Ok(lab)
    }

    pub async fn start_runtime(&self) -> Arc<Runtime> {
        Runtime::start_with_store(self.store.clone(), programs::activities(), programs::orchestrations())
            .await
    }

    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Starts one instance; `false` if that failed, which is counted.
    pub async fn start(&mut self, instance: &str, name: &str, input: impl Into<String>) -> bool {
        match self.client.start_orchestration(instance, name, input).await {
            Ok(_) => true,
            Err(error) => {
                self.figures.count_failed(&format!("start: {error}"));
                false
            }
        }
    }

    /// Starts many instances at once, until the time is up; the ids of those that could be started are returned.
    pub async fn start_all(&mut self, name: &'static str, inputs: Vec<String>) -> Vec<String> {
        let permits = Arc::new(Semaphore::new(STARTS_AT_ONCE));
        let mut starts = JoinSet::new();
        for (number, input) in inputs.into_iter().enumerate() {
            let (client, permits, deadline) = (self.client.clone(), permits.clone(), self.deadline);
            starts.spawn(async move {
                let _permit = permits.acquire_owned().await;
                let instance = format!("{name}-{number}");
                if Instant::now() > deadline {
                    return (number, instance, None);
                }
                let result = client.start_orchestration(&instance, name, input).await;
                (number, instance, Some(result.map(|_| ())))
            });
        }
        let mut started = Vec::new();
        while let Some(Ok((number, instance, result))) = starts.join_next().await {
            match result {
                Some(Ok(())) => started.push((number, instance)),
                Some(Err(error)) => self.figures.count_failed(&format!("start: {error}")),
                None => self.figures.cap(),
            }
        }
        started.sort();
        started.into_iter().map(|(_, instance)| instance).collect()
    }

    /// Waits for the end of an instance and counts it; `false` if it did not complete.
    pub async fn wait(&mut self, instance: &str) -> bool {
        loop {
            match self.client.wait_for_orchestration(instance, self.time_left()).await {
                Ok(OrchestrationStatus::Completed { .. }) => {
                    self.figures.count_done();
                    return true;
                }
                Ok(OrchestrationStatus::Failed { details, .. }) => {
                    self.figures.count_failed(&details.display_message());
                    return false;
                }
                Err(ClientError::Timeout) => {
                    self.figures.cap();
                    return false;
                }
                Ok(other) => {
                    self.figures.count_failed(&format!("{other:?}"));
                    return false;
                }
                Err(error) if self.time_left().is_zero() => {
                    self.figures.count_failed(&format!("wait: {error}"));
                    return false;
                }
                // A read that failed says nothing about the instance.
                Err(error) => self.figures.note(&format!("wait: {error}")),
            }
        }
    }

    /// Waits for the end of all of them, one after the other.
    pub async fn wait_all(&mut self, instances: &[String]) {
        for instance in instances {
            self.wait(instance).await;
        }
    }
}
