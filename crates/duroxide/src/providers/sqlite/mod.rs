//! The embedded store: a SQLite file.
//!
//! All writes go through one thread that owns the writing connection and commits in groups (`writer`), so a hundred
//! calls in flight cost one sync, and the store answers no write before it is durable. Reads use connections of their
//! own. Several processes may use the same file.
//!
//! | file | what it holds |
//! |---|---|
//! | `schema.sql`, `migrations`, `schema`, `migrate_published.sql` | the tables, and how a file comes to have them |
//! | `url`, `options`, `connection` | opening |
//! | `inbox`, `jobs`, `writer`, `write_transaction`, `statements` | the writer thread, its queue, and one transaction of it |
//! | `log`, `log_keeper`, `disk` | what is known to be on the disk, and moving the log into the database |
//! | `schedule`, `claims`, `turns`, `messages`, `leased_messages` | leasing instances, committing turns |
//! | `orphans`, `dropped`, `delivery` | messages for instances that do not exist, or may not |
//! | `work`, `sessions` | leasing activities |
//! | `owners`, `owner_file` | whose leases these are, and releasing those of a process that died |
//! | `instances`, `history`, `kv`, `removal`, `quarantine` | what their names say |
//! | `leasing`, `give_backs`, `hand_over` | leases on their way to the caller |
//! | `steps` | turns that are stored together with their cause |
//! | `readers`, `reads` | reading |
//! | `backup`, `facts` | copying the file while it is in use, describing it, checking it for damage |
//! | `work_done` | counting, for tests |
//! | `provider`, `admin`, `extended` | the traits |

mod admin;
mod attempts;
mod backup;
mod blocked;
mod claims;
mod connection;
mod delivery;
mod details;
mod disk;
mod dropped;
mod error;
mod extended;
mod facts;
mod figures;
mod give_backs;
mod hand_over;
mod history;
mod inbox;
mod inspection;
mod instances;
mod jobs;
mod kv;
mod large_payloads;
mod leased_messages;
mod leasing;
mod list_pages;
mod log;
mod log_keeper;
mod messages;
mod observed;
mod options;
mod orphans;
mod overviews;
mod owner_file;
mod owners;
mod provider;
mod quarantine;
mod queue_states;
mod readers;
mod reads;
mod removal;
mod schedule;
mod schema;
mod sessions;
mod shared;
mod statements;
mod steps;
mod turns;
mod url;
mod work;
mod work_done;
mod write_transaction;
mod writer;

use std::sync::Arc;

use rusqlite::Connection;

#[cfg(feature = "test-hooks")]
pub use disk::{DiskUnderTest, WriterFault};
pub use error::SqliteError;
pub use facts::{IntegrityCheck, SqliteFacts};
pub use options::{Durability, Migrations, SqliteBuilder, SqliteOptions};
#[cfg(feature = "test-hooks")]
pub use url::path_of;
#[cfg(feature = "test-hooks")]
pub use work_done::WorkDone;

use crate::providers::{InstanceWatchers, ProviderError, WorkSignalSource};
use error::StoreError;
use inbox::JobClass;
use log::Log;
use log_keeper::LogKeeper;
use owners::Owners;
use readers::Readers;
use shared::Shared;
use url::Location;
use writer::Writer;

/// A store in a SQLite file, or in memory for tests.
///
/// While it is open, a file has a directory `NAME-owners` beside it, with a lock file for each open handle. If the
/// process dies, other processes see that the lock is free, and release its leases at once.
///
/// Dropping the store finishes the writes that have begun and closes the file. Its remaining leases run out.
///
/// ```
/// use std::sync::Arc;
/// use duroxide::Client;
/// use duroxide::providers::sqlite::SqliteProvider;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(SqliteProvider::builder().open("sqlite::memory:").await?);
/// let client = Client::new(store);
/// # drop(client);
/// # Ok(()) }
/// ```
pub struct SqliteProvider {
    shared: Arc<Shared>,
    /// `None` in memory, where the writer's connection is the only one.
    readers: Option<Readers>,
    writer: Writer,
}

impl SqliteProvider {
    /// Opens the store that a URL names.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `sqlite:data.db`, `sqlite:///abs/data.db`, `/abs/data.db` | a file, which must exist (an empty one will do) |
    /// | any of these with `?mode=rwc` | the same, created if it is missing, for its owner's eyes only |
    /// | `sqlite::memory:`, `:memory:`, `sqlite:name?mode=memory` | a store of its own in memory |
    ///
    /// The first opening migrates a file that the published crate wrote.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    /// use std::sync::Arc;
    ///
    /// // A file in the present directory, made if it is missing.
    /// let store = SqliteProvider::new("sqlite:orders.db?mode=rwc", None).await?;
    /// let client = duroxide::Client::new(Arc::new(store));
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the file cannot be opened, is not ours, or was written by a newer version. The file is unchanged then.
    pub async fn new(database_url: &str, options: Option<SqliteOptions>) -> Result<Self, SqliteError> {
        let _ = options;
        Self::builder().open(database_url).await
    }

    /// Makes a new store in memory.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// let store = SqliteProvider::new_in_memory().await?;
    /// assert_eq!(store.facts().await?.path.to_str(), Some(":memory:"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If there is no memory, or no writer thread can be started.
    pub async fn new_in_memory() -> Result<Self, SqliteError> {
        Self::builder().open("sqlite::memory:").await
    }

    /// Makes a new store in memory. The options have no effect.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// let store = SqliteProvider::new_in_memory_with_options(None).await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If there is no memory, or no writer thread can be started.
    pub async fn new_in_memory_with_options(options: Option<SqliteOptions>) -> Result<Self, SqliteError> {
        let _ = options;
        Self::new_in_memory().await
    }

    /// Opens a store with settings of its own: durability, clock, limits.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::{Durability, SqliteProvider};
    ///
    /// let builder = SqliteProvider::builder().durability(Durability::Normal);
    /// let store = builder.open("sqlite:orders.db?mode=rwc").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn builder() -> SqliteBuilder {
        SqliteBuilder::default()
    }

    async fn open(settings: SqliteBuilder, location: Location) -> Result<Self, SqliteError> {
        let task = tokio::task::spawn_blocking(move || Self::open_blocking(&settings, &location));
        task.await.unwrap_or(Err(SqliteError::Closed))
    }

    fn open_blocking(settings: &SqliteBuilder, location: &Location) -> Result<Self, SqliteError> {
        connection::create_file(location)?;
        let writing = connection::open_writer(location, settings.busy_timeout, &settings.disk)?;
        schema::prepare(&writing, location, settings.migrations)?;
        connection::configure_writer(&writing, location, settings.busy_timeout, settings.durability)?;
        let owners = match location {
            Location::Memory => None,
            Location::File { path, .. } => Owners::join(path).map(Arc::new),
        };
        let shared = Arc::new(Shared {
            clock: settings.clock.clone(),
            durability: settings.durability,
            limits: settings.limits,
            parking_time: settings.parking_time,
            busy_timeout: settings.busy_timeout,
            is_file: matches!(location, Location::File { .. }),
            owners,
            orchestrator_signal: WorkSignalSource::new(settings.clock.clone()),
            worker_signal: WorkSignalSource::new(settings.clock.clone()),
            watchers: Arc::new(InstanceWatchers::default()),
            running: Arc::default(),
            exchange: Arc::default(),
            ledger: work_done::Ledger::default(),
            takes_work: false.into(),
        });
        let readers = match location {
            Location::Memory => None,
            Location::File { path, .. } => {
                Some(Readers::new(path.clone(), settings.busy_timeout, settings.disk.clone()))
            }
        };
        let keeper = match location {
            Location::Memory => None,
            Location::File { path, .. } => {
                let cannot_open = |source| SqliteError::CannotOpen { path: path.clone(), source };
                let log = Log::of(path, settings.disk.clone()).map_err(cannot_open)?;
                Some(LogKeeper::new(log, settings.log_pages))
            }
        };
        let writer = Writer::start(writing, shared.clone(), keeper)?;
        Ok(Self { shared, readers, writer })
    }

    /// Moves the write-ahead log into the database file.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// let store = SqliteProvider::new("sqlite:orders.db", None).await?;
    /// // At a quiet hour: what is in the log moves into the file, so that the log begins anew.
    /// store.checkpoint().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If another process keeps it from doing so.
    pub async fn checkpoint(&self) -> Result<(), ProviderError> {
        let work = |tx: &mut write_transaction::WriteTransaction<'_, '_>| {
            let busy =
                tx.row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get::<_, bool>(0))?.unwrap_or(false);
            let held =
                || ProviderError::retryable("checkpoint", "another process is reading or writing the file");
            if busy { Err(held().into()) } else { Ok(()) }
        };
        self.writer.submit("checkpoint", JobClass::Checkpoint, work).await
    }

    /// Returns counts and the first ten rows of both queues, for a person to read.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// let store = SqliteProvider::new_in_memory().await?;
    /// println!("{}", store.debug_dump().await);
    /// # Ok(()) }
    /// ```
    pub async fn debug_dump(&self) -> String {
        match self.read("debug_dump", |connection| Ok(reads::dump(connection)?)).await {
            Ok(dump) => dump,
            Err(error) => error.to_string(),
        }
    }

    /// Runs SQL on the store, for tests that damage or inspect data. Returns how many rows the last statement changed.
    ///
    /// # Errors
    /// What SQLite reports.
    #[cfg(feature = "test-hooks")]
    pub async fn execute_sql(&self, sql: &str) -> Result<usize, ProviderError> {
        let sql = sql.to_string();
        let work = move |tx: &mut write_transaction::WriteTransaction<'_, '_>| {
            tx.connection().execute_batch(&sql)?;
            // The SQL may have changed any time, so the store must look up all of them again.
            tx.effects.instances_due.note(0);
            tx.effects.work_due.note(0);
            Ok(usize::try_from(tx.connection().changes()).unwrap_or(usize::MAX))
        };
        self.writer.submit("execute_sql", JobClass::Data, work).await
    }

    /// Runs a query that returns one number, for tests.
    ///
    /// # Errors
    /// What SQLite reports.
    #[cfg(feature = "test-hooks")]
    pub async fn query_number(&self, sql: &str) -> Result<i64, ProviderError> {
        let sql = sql.to_string();
        self.read("query_number", move |connection| {
            Ok(connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0))
        })
        .await
    }

    /// Returns a count of the writer's work so far, for tests of the cost of a step.
    #[cfg(feature = "test-hooks")]
    pub fn work_done(&self) -> WorkDone {
        self.shared.ledger.total()
    }

    /// Reads from a snapshot; if there is a file, does not wait for writes.
    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ProviderError> {
        match &self.readers {
            Some(readers) => readers.read(read).await.map_err(|error| error.into_provider_error(operation)),
            None => self.writer.submit(operation, JobClass::Read, move |tx| read(tx.connection())).await,
        }
    }
}
