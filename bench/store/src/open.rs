//! Opening the store.

use std::path::Path;
use std::sync::Arc;

use duroxide::providers::sqlite::SqliteProvider;

use crate::Outcome;

/// Opens a store on a file, made if it is missing, with every commit synced.
pub async fn open(file: &Path) -> Outcome<Arc<SqliteProvider>> {
    let url = format!("sqlite://{}?mode=rwc", file.display());
    Ok(Arc::new(SqliteProvider::builder().open(&url).await?))
}
