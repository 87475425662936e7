//! Our PostgreSQL store: in the database that `BENCH_DATABASE_URL` names, in a schema of its own for each run.

use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide_pg::PostgresProvider;

use crate::bench::Outcome;

pub const SIDE: &str = "ours-pg";

/// Opens the store. The file's name becomes the schema's, so that several processes of one run share it. What is asked
/// for as `sync` has no effect: data is always synced.
pub async fn open(url: &str, _sync: &str) -> Outcome<(Arc<dyn Provider>, String)> {
    let database = std::env::var("BENCH_DATABASE_URL").map_err(|_| "BENCH_DATABASE_URL is not set")?;
    let file = url.trim_start_matches("sqlite:").split('?').next().unwrap_or_default();
    let name: String = file.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
    let schema: String = format!("b{name}").chars().take(63).collect();
    let store = PostgresProvider::new_with_schema(&database, Some(&schema)).await?;
    Ok((Arc::new(store), "full".to_string()))
}
