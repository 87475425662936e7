//! Runs the whole validation kit on the PostgreSQL store.
//!
//! The stores run on a clock that the checks move by hand, so nothing here sleeps.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::provider_validations::ProviderFactory;
use duroxide::providers::{ManualClock, Provider, StoreLimits};
use duroxide_pg::PostgresProvider;
use support::database::Database;

/// Makes stores and remembers the last one, to reach behind its back.
#[derive(Default)]
struct PostgresFactory {
    last: Mutex<Option<(Arc<PostgresProvider>, Arc<ManualClock>)>>,
    /// Dropped when the test is over.
    databases: Mutex<Vec<Database>>,
}

impl PostgresFactory {
    async fn make(&self, limits: StoreLimits) -> Arc<dyn Provider> {
        let clock = Arc::new(ManualClock::default());
        let database = Database::new().await;
        let builder = PostgresProvider::builder().clock(clock.clone()).limits(limits);
        let store = Arc::new(builder.open(database.url()).await.unwrap());
        self.databases.lock().unwrap().push(database);
        *self.last.lock().unwrap() = Some((store.clone(), clock));
        store
    }

    fn store(&self) -> Arc<PostgresProvider> {
        let last = self.last.lock().unwrap();
        last.as_ref().expect("a store was made").0.clone()
    }

    async fn run(&self, sql: String) {
        self.store().execute_sql(&sql).await.unwrap();
    }
}

#[async_trait]
impl ProviderFactory for PostgresFactory {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        self.make(StoreLimits::default()).await
    }

    async fn create_limited_provider(&self, limits: StoreLimits) -> Option<Arc<dyn Provider>> {
        Some(self.make(limits).await)
    }

    fn short_poll_threshold(&self) -> Duration {
        // The first call of a kind connects and prepares its statements.
        Duration::from_secs(2)
    }

    async fn corrupt_instance_history(&self, instance: &str) {
        self.run(format!("UPDATE history SET event_data = 'not json' WHERE instance_id = '{instance}'"))
            .await;
    }

    async fn get_max_attempt_count(&self, instance: &str) -> u32 {
        let sql =
            format!("SELECT max(attempt_count) FROM orchestrator_queue WHERE instance_id = '{instance}'");
        u32::try_from(self.store().query_number(&sql).await.unwrap()).unwrap()
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        self.last.lock().unwrap().as_ref().map(|(_, clock)| clock.clone())
    }

    async fn corrupt_messages(&self, instance: &str) -> bool {
        self.run(format!(
            "UPDATE orchestrator_queue SET work_item = '{{\"Cut' WHERE instance_id = '{instance}'"
        ))
        .await;
        true
    }

    async fn repair_quarantined(&self, instance: &str, text: &str) -> bool {
        self.run(format!("UPDATE quarantine SET work_item = '{text}' WHERE instance_id = '{instance}'"))
            .await;
        true
    }

    async fn corrupt_work_items(&self, instance: &str) -> bool {
        self.run(format!("UPDATE worker_queue SET work_item = '{{\"Cut' WHERE instance_id = '{instance}'"))
            .await;
        true
    }
}

duroxide::provider_validation_tests! { factory: PostgresFactory::default(), polling: short, runtime: yes }
