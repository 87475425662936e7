//! What the tests of this store share: a PostgreSQL server that is thrown away, and stores in it.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub mod cluster;
pub mod load;
pub mod proxy;

use std::sync::Arc;

use duroxide::providers::Clock;
use duroxide_pg::{PostgresBuilder, PostgresProvider};

use cluster::Cluster;

/// Where stores of ordinary tests live: the database that `DATABASE_URL` names, or a server that all tests of a run share.
pub fn database_url() -> String {
    static SHARED: std::sync::OnceLock<Cluster> = std::sync::OnceLock::new();
    match std::env::var("DATABASE_URL") {
        Ok(url) => url,
        Err(_) => SHARED.get_or_init(Cluster::shared).url(),
    }
}

/// A name that no other test uses.
pub fn fresh_schema() -> String {
    format!("t_{}", uuid::Uuid::new_v4().simple())
}

/// Settings for a store of its own.
pub fn fresh() -> PostgresBuilder {
    PostgresProvider::builder().schema(fresh_schema())
}

/// An empty store that shares nothing with others, on this clock.
pub async fn store_on(clock: Arc<dyn Clock>) -> PostgresProvider {
    fresh().clock(clock).open(&database_url()).await.unwrap()
}
