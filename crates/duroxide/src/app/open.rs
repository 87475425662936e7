//! Opens a store by its URL.

use std::sync::Arc;

use super::StartError;
use crate::providers::Provider;
use crate::providers::memory::MemoryProvider;

const POSTGRES: &str = "PostgreSQL needs the crate duroxide-pg: write `Duroxide::on(duroxide_pg::open(url).await?)`, which \
                        opens SQLite and memory as well";
const NO_STORE: &str = "the URL names no store; it begins with sqlite: or memory:";
#[cfg(not(feature = "sqlite"))]
const NO_SQLITE: &str = "this program was compiled without the feature `sqlite` of duroxide";

pub(super) async fn open(url: &str) -> Result<Arc<dyn Provider>, StartError> {
    match url {
        "memory:" | "memory://" => Ok(Arc::new(MemoryProvider::new())),
        url if url.starts_with("sqlite:") => sqlite(url).await,
        url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Err(StartError::UnknownStore(POSTGRES))
        }
        _ => Err(StartError::UnknownStore(NO_STORE)),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(url: &str) -> Result<Arc<dyn Provider>, StartError> {
    use crate::providers::sqlite::SqliteProvider;
    // An application that starts needs a store.
    match SqliteProvider::builder().create_if_missing().open(url).await {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(StartError::Store(Box::new(error))),
    }
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_url: &str) -> Result<Arc<dyn Provider>, StartError> {
    Err(StartError::UnknownStore(NO_SQLITE))
}
