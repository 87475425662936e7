//! Our PostgreSQL store.

use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide_pg::PostgresProvider;

use crate::bench::Outcome;
use crate::database;

pub const SIDE: &str = "ours-pg";

/// Opens the store. What is asked for as `sync` has no effect: data is always synced.
pub async fn open(url: &str, _sync: &str) -> Outcome<(Arc<dyn Provider>, String)> {
    let store = PostgresProvider::new_with_schema(&database::url()?, Some(&database::schema(url))).await?;
    Ok((Arc::new(store), "full".to_string()))
}
