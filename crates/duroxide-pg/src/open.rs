//! Opening any store by its URL.

use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide::providers::memory::MemoryProvider;

use crate::{PgError, PostgresProvider};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL does not begin with the name of a store. The error does not repeat the URL, which may hold a password.
    #[error("the URL names no store; it begins with postgres://, sqlite: or memory:")]
    UnknownStore,
    /// The PostgreSQL store.
    #[error(transparent)]
    Postgres(#[from] PgError),
    /// The SQLite store.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] duroxide::providers::sqlite::SqliteError),
}

/// Opens the store that a URL names.
///
/// | URL | store |
/// |---|---|
/// | `postgres://user:password@host/database` | PostgreSQL; `?schema=name` for another schema than `public` |
/// | `sqlite:data.db?mode=rwc`, `sqlite::memory:` | SQLite (feature `sqlite`) |
/// | `memory:` | in memory, lost at exit |
///
/// ```no_run
/// # async fn run(url: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use duroxide::Duroxide;
///
/// let app = Duroxide::on(duroxide_pg::open(url).await?).start().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// If the URL names no store, or the store cannot be opened.
pub async fn open(url: &str) -> Result<Arc<dyn Provider>, OpenError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let (url, schema) = take_schema(url);
        let store = PostgresProvider::new_with_schema(&url, schema.as_deref()).await?;
        return Ok(Arc::new(store));
    }
    #[cfg(feature = "sqlite")]
    if url.starts_with("sqlite:") {
        let store = duroxide::providers::sqlite::SqliteProvider::new(url, None).await?;
        return Ok(Arc::new(store));
    }
    match url {
        "memory:" | "memory://" => Ok(Arc::new(MemoryProvider::new())),
        _ => Err(OpenError::UnknownStore),
    }
}

/// Takes `schema=name` out of a URL's options: the rest is what [`PostgresProvider::builder`] opens, in that schema.
///
/// ```
/// let (url, schema) = duroxide_pg::take_schema("postgres://localhost/app?sslmode=require&schema=orders");
/// assert_eq!(url, "postgres://localhost/app?sslmode=require");
/// assert_eq!(schema.as_deref(), Some("orders"));
/// ```
pub fn take_schema(url: &str) -> (String, Option<String>) {
    let Some((address, query)) = url.split_once('?') else { return (url.to_string(), None) };
    let (schemas, others): (Vec<&str>, Vec<&str>) =
        query.split('&').partition(|option| option.starts_with("schema="));
    let schema = schemas.first().and_then(|option| option.strip_prefix("schema=")).map(str::to_string);
    let url = if others.is_empty() { address.to_string() } else { format!("{address}?{}", others.join("&")) };
    (url, schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_taken_out_of_the_options() {
        let taken = |url| {
            let (url, schema) = take_schema(url);
            (url, schema.unwrap_or_default())
        };
        assert_eq!(taken("postgres://h/d"), ("postgres://h/d".into(), String::new()));
        assert_eq!(taken("postgres://h/d?schema=a"), ("postgres://h/d".into(), "a".into()));
        assert_eq!(
            taken("postgres://h/d?sslmode=disable&schema=a&x=y"),
            ("postgres://h/d?sslmode=disable&x=y".into(), "a".into())
        );
    }

    #[tokio::test]
    async fn other_stores_are_opened_by_their_urls() {
        assert_eq!(open("memory:").await.unwrap().name(), "memory");
        #[cfg(feature = "sqlite")]
        assert_eq!(open("sqlite::memory:").await.unwrap().name(), "sqlite");
        let error = open("mysql://u:secret@h/d").await.err().unwrap();
        assert!(!error.to_string().contains("secret"));
    }
}
