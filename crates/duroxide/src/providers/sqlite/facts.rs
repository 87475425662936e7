//! What an operator wants to know about the file itself.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::SqliteProvider;
use super::error::StoreError;
use crate::providers::ProviderError;

/// Facts about the file of a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteFacts {
    /// The file; `:memory:` if there is none.
    pub path: PathBuf,
    /// The version of its tables.
    pub schema_version: i64,
    /// The version of SQLite.
    pub sqlite_version: String,
    /// How SQLite keeps commits atomic: `wal` for a file.
    pub journal_mode: String,
    /// The size of a page.
    pub page_bytes: u64,
    /// The size of the database, without its log.
    pub file_bytes: u64,
    /// The size of the write-ahead log.
    pub log_bytes: u64,
    /// The part of the database that is free for reuse.
    pub free_bytes: u64,
}

/// How closely to look for damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegrityCheck {
    /// Every page of every table and index.
    Quick,
    /// Also whether each index agrees with its table.
    Full,
}

/// How many faults a check reports at most.
const MOST_FAULTS: usize = 100;

impl SqliteProvider {
    /// Describes the file of the store.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// let store = SqliteProvider::new("sqlite:orders.db", None).await?;
    /// let facts = store.facts().await?;
    /// println!("{}: {} bytes, {} of them free for reuse", facts.path.display(), facts.file_bytes, facts.free_bytes);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn facts(&self) -> Result<SqliteFacts, ProviderError> {
        let path =
            self.readers.as_ref().map_or(Path::new(":memory:"), |readers| readers.path()).to_path_buf();
        self.read("facts", move |connection| facts(connection, path)).await
    }

    /// Looks for damage in the file. Returns the faults; none if the file is sound. Reads the whole file, and keeps no
    /// caller from writing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::{IntegrityCheck, SqliteProvider};
    ///
    /// let store = SqliteProvider::new_in_memory().await?;
    /// let faults = store.check_integrity(IntegrityCheck::Quick).await?;
    /// assert!(faults.is_empty(), "restore a backup: {faults:?}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If it cannot be read at all.
    pub async fn check_integrity(&self, check: IntegrityCheck) -> Result<Vec<String>, ProviderError> {
        let pragma = match check {
            IntegrityCheck::Quick => "quick_check",
            IntegrityCheck::Full => "integrity_check",
        };
        self.read("check_integrity", move |connection| {
            let mut statement = connection.prepare(&format!("PRAGMA {pragma}({MOST_FAULTS})"))?;
            let answers: rusqlite::Result<Vec<String>> = statement.query_map([], |row| row.get(0))?.collect();
            Ok(answers?.into_iter().filter(|answer| answer != "ok").collect())
        })
        .await
    }
}

fn facts(connection: &Connection, path: PathBuf) -> Result<SqliteFacts, StoreError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let bytes = |pages: i64, page: i64| u64::try_from(pages.saturating_mul(page)).unwrap_or(0);
    let page = number("page_size")?;
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    Ok(SqliteFacts {
        schema_version: number("user_version")?,
        sqlite_version: rusqlite::version().to_string(),
        journal_mode: connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?,
        page_bytes: bytes(1, page),
        file_bytes: bytes(number("page_count")?, page),
        // Without a log there is nothing in it.
        log_bytes: std::fs::metadata(log).map_or(0, |log| log.len()),
        free_bytes: bytes(number("freelist_count")?, page),
        path,
    })
}
