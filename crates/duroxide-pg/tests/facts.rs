//! What operators ask about the database itself.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use duroxide::Client;
use duroxide::providers::{Clock, SystemClock};
use duroxide_pg::{PostgresBuilder, PostgresProvider};
use support::database::Database;

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_described() {
    let database = Database::new().await;
    let store = std::sync::Arc::new(PostgresProvider::new(database.url()).await.unwrap());
    Client::new(store.clone()).start_orchestration("i", "Order", "").await.unwrap();
    let before = SystemClock.now_ms();
    let facts = store.facts().await.unwrap();
    assert!(database.url().contains(&facts.database), "{} {}", database.url(), facts.database);
    assert_eq!((facts.schema.as_str(), facts.migration), ("public", PostgresBuilder::newest_migration()));
    assert!(facts.server_version.split('.').next().unwrap().parse::<u32>().unwrap() >= 14);
    assert!(facts.database_bytes > 0 && facts.now_ms.abs_diff(before) < 60_000);
    let names: Vec<&str> = facts.tables.iter().map(|table| table.name.as_str()).collect();
    for table in ["history", "instances", "orchestrator_queue", "duroxide_migrations"] {
        assert!(names.contains(&table), "{names:?}");
    }
    assert!(facts.tables.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes), "the largest comes first");
}
