//! Many orchestrations that take each of their turns together, through the store's traits, without a runtime.

use std::sync::Arc;
use std::time::Duration;

use duroxide::TagFilter;
use duroxide::providers::{
    ExtendedProvider, InstanceRequest, Provider, ProviderError, WorkItem, WorkRequest,
};
use duroxide_pg::PostgresProvider;
use tokio::task::JoinSet;

use crate::life::instance_id;
use crate::stats::now;
use crate::{Outcome, life};

/// Instances of one wave.
pub const SIZE: u64 = 1_000;
/// Activities of each instance, one after the other.
const STEPS: u64 = 1;
/// Leases that are asked for at once.
const CLAIMED_AT_ONCE: usize = 250;
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// How long something that was committed may take to be found.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(1);

/// Operations of the store that are under way.
type Operations = JoinSet<Result<(), ProviderError>>;

pub struct Wave {
    store: Arc<PostgresProvider>,
    instances: Vec<String>,
}

impl Wave {
    /// Instances that are called by their numbers from `first` on.
    pub fn new(store: Arc<PostgresProvider>, first: u64, count: u64) -> Self {
        Self { store, instances: (first..first + count).map(|number| instance_id("", 0, number)).collect() }
    }

    /// Brings all of them to their end; returns them.
    pub async fn run(self) -> Outcome<Vec<String>> {
        self.start_all().await?;
        for _ in 0..STEPS {
            self.take_turns().await?;
            self.run_activities().await?;
        }
        self.take_turns().await?;
        Ok(self.instances)
    }

    async fn start_all(&self) -> Outcome<()> {
        let mut starts = Operations::new();
        for instance in &self.instances {
            let (store, start) = (self.store.clone(), life::start(instance));
            starts.spawn(async move { store.enqueue_for_orchestrator(start, None).await });
        }
        finish(starts).await
    }

    async fn take_turns(&self) -> Outcome<()> {
        let (mut acks, mut missing, began) = (Operations::new(), self.instances.len(), now());
        while missing > 0 {
            let max = missing.min(CLAIMED_AT_ONCE);
            let request = InstanceRequest { max, lock_timeout: LOCK_TIMEOUT, filter: None };
            let claims = self.store.claim_instances(&request).await?;
            missing -= claims.len();
            if claims.is_empty() {
                wait("turns", began).await?;
            }
            for claim in claims {
                let message = claim.messages.first().ok_or("a turn without a message")?;
                let turn = life::turn_for(message, STEPS)?;
                let store = self.store.clone();
                let activities = turn.activity.into_iter().collect();
                acks.spawn(async move {
                    let (none, nothing_cancelled) = (Vec::new(), Vec::new());
                    let (token, execution) = (&claim.lock_token, life::EXECUTION);
                    store
                        .ack_orchestration_item(
                            token,
                            execution,
                            turn.events,
                            activities,
                            none,
                            turn.metadata,
                            nothing_cancelled,
                        )
                        .await
                });
            }
        }
        finish(acks).await
    }

    async fn run_activities(&self) -> Outcome<()> {
        let (mut acks, mut missing, began) = (Operations::new(), self.instances.len(), now());
        while missing > 0 {
            let request = WorkRequest {
                max: missing.min(CLAIMED_AT_ONCE),
                lock_timeout: LOCK_TIMEOUT,
                session: None,
                tag_filter: &TagFilter::DefaultOnly,
            };
            let claims = self.store.claim_work(&request).await?;
            missing -= claims.len();
            if claims.is_empty() {
                wait("activities", began).await?;
            }
            for claim in claims {
                let WorkItem::ActivityExecute { instance, id, .. } = &claim.item else {
                    return Err(format!("the worker queue returned {:?}", claim.item).into());
                };
                let completion = life::completion(instance, *id);
                let store = self.store.clone();
                acks.spawn(async move { store.ack_work_item(&claim.lock_token, Some(completion)).await });
            }
        }
        finish(acks).await
    }
}

async fn finish(mut operations: Operations) -> Outcome<()> {
    while let Some(done) = operations.join_next().await {
        done??;
    }
    Ok(())
}

/// Waits a little before the next look.
async fn wait(what: &str, began: Duration) -> Outcome<()> {
    if now() - began > PATIENCE {
        return Err(format!("{what} that were committed are not found").into());
    }
    tokio::time::sleep(LOOK).await;
    Ok(())
}
