//! The published crate: it has one level of durability, and its commits are not synced.

use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide::providers::sqlite::SqliteProvider;

use crate::bench::Outcome;

pub const SIDE: &str = "published";

/// Opens the store. What is asked for as `sync` has no effect.
pub async fn open(url: &str, _sync: &str) -> Outcome<(Arc<dyn Provider>, String)> {
    let store = SqliteProvider::new(url, None).await?;
    Ok((Arc::new(store), "normal".to_string()))
}
