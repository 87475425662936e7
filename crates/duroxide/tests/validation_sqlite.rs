//! Proves the SQLite store right, with the whole validation kit: on a file with every commit synced, and in memory.
//!
//! The stores run on a clock that the checks move by hand, so nothing here sleeps.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![cfg(all(feature = "sqlite", feature = "provider-test", feature = "test-hooks"))]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use duroxide::provider_validations::ProviderFactory;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{ManualClock, Provider, StoreLimits};
use tempfile::TempDir;

/// Where the stores of a factory live.
#[derive(Clone, Copy)]
enum Location {
    File,
    Memory,
}

/// Makes SQLite stores and remembers the last one, so that a check can damage its rows.
struct SqliteFactory {
    location: Location,
    directories: Mutex<Vec<TempDir>>,
    last: Mutex<Option<(Arc<SqliteProvider>, Arc<ManualClock>)>>,
}

impl SqliteFactory {
    fn new(location: Location) -> Self {
        Self { location, directories: Mutex::default(), last: Mutex::default() }
    }

    fn url(&self) -> String {
        match self.location {
            Location::Memory => "sqlite::memory:".to_string(),
            Location::File => {
                let directory = TempDir::new().unwrap();
                let url = format!("sqlite:{}?mode=rwc", directory.path().join("store.db").display());
                self.directories.lock().unwrap().push(directory);
                url
            }
        }
    }

    async fn make(&self, limits: StoreLimits) -> Arc<dyn Provider> {
        let clock = Arc::new(ManualClock::default());
        let builder = SqliteProvider::builder().clock(clock.clone()).limits(limits);
        let store = Arc::new(builder.open(&self.url()).await.unwrap());
        *self.last.lock().unwrap() = Some((store.clone(), clock));
        store
    }

    fn store(&self) -> Arc<SqliteProvider> {
        let last = self.last.lock().unwrap();
        last.as_ref().expect("a store was made").0.clone()
    }

    async fn run(&self, sql: String) {
        self.store().execute_sql(&sql).await.unwrap();
    }
}

#[async_trait]
impl ProviderFactory for SqliteFactory {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        self.make(StoreLimits::default()).await
    }

    async fn create_limited_provider(&self, limits: StoreLimits) -> Option<Arc<dyn Provider>> {
        Some(self.make(limits).await)
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

mod file {
    use super::*;
    duroxide::provider_validation_tests! { factory: SqliteFactory::new(Location::File), polling: short, runtime: yes }
}

mod memory {
    use super::*;
    duroxide::provider_validation_tests! { factory: SqliteFactory::new(Location::Memory), polling: short, runtime: yes }
}
