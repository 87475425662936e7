//! The settings of a store.

use std::sync::Arc;
use std::time::Duration;

use super::connection::LogPages;
use super::disk::Disk;
use super::{SqliteError, SqliteProvider, url};
use crate::model::{Clock, SystemClock};
use crate::providers::{DEFAULT_PARKING_TIME, StoreLimits};

/// Options of the published interface. It has none: lock times are arguments of the calls, and [`SqliteBuilder`] has
/// the new settings.
#[derive(Debug, Clone, Default)]
pub struct SqliteOptions {}

/// Which failures an acknowledged write survives.
///
/// ```
/// use duroxide::providers::sqlite::{Durability, SqliteProvider};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = SqliteProvider::builder().durability(Durability::Normal);
/// let store = builder.open("sqlite::memory:").await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Every acknowledged write survives a power cut: the store syncs it to the disk before it acknowledges it.
    /// Concurrent writes share a commit, and so the cost of its sync.
    ///
    /// The bundled SQLite syncs with `fsync`. On Linux an application may compile it to use `fdatasync`, which is as
    /// safe and spares the disk the file's times: set `LIBSQLITE3_FLAGS = "-DHAVE_FDATASYNC=1"` under `[env]` in its
    /// `.cargo/config.toml`. A library cannot set this for the applications that use it, and the builds of this
    /// repository do not set it either: on ext4 without a journal (a virtual disk) 945 syncs took 54 µs each with
    /// `fdatasync` and 60 µs with `fsync`, which is within the noise. It may spare more where the file system has a
    /// journal.
    #[default]
    Full,
    /// Every acknowledged write survives the death of the process; a power cut may lose the last moments.
    Normal,
}

/// What opening a store does about a file of an older version.
///
/// ```no_run
/// use duroxide::providers::sqlite::{Migrations, SqliteProvider};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// // A tool that looks at the file of an application, and must not change it.
/// let store = SqliteProvider::builder().migrations(Migrations::Verify).open("sqlite:orders.db").await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migrations {
    /// Migrates it, and makes the tables in an empty one.
    #[default]
    Apply,
    /// Refuses it and leaves it unchanged ([`SqliteError::NotMigrated`]): for tools that look at the file of an application
    /// which may not know the newer version.
    Verify,
}

/// Opens a store with settings of its own.
///
/// ```
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use duroxide::providers::sqlite::{Durability, SqliteProvider};
/// let store = SqliteProvider::builder()
///     .durability(Durability::Normal)
///     .open("sqlite::memory:")
///     .await?;
/// # drop(store); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct SqliteBuilder {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) durability: Durability,
    pub(super) limits: StoreLimits,
    pub(super) parking_time: Duration,
    pub(super) busy_timeout: Duration,
    pub(super) disk: Disk,
    pub(super) log_pages: LogPages,
    pub(super) migrations: Migrations,
}

impl Default for SqliteBuilder {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            durability: Durability::default(),
            limits: StoreLimits::default(),
            parking_time: DEFAULT_PARKING_TIME,
            busy_timeout: Duration::from_secs(20),
            disk: None,
            log_pages: LogPages::default(),
            migrations: Migrations::default(),
        }
    }
}

impl SqliteBuilder {
    /// Sets which writes a power cut may lose; [`Durability::Full`] if not called.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::{Durability, SqliteProvider};
    ///
    /// // A power cut may lose the last moments of an import that can be begun again.
    /// let store = SqliteProvider::builder().durability(Durability::Normal).open("sqlite:orders.db?mode=rwc").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Reads the time from `clock` instead of the machine's clock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use duroxide::providers::ManualClock;
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// // A test moves the clock by hand: an hour passes at once.
    /// let clock = Arc::new(ManualClock::new(1_000));
    /// let store = SqliteProvider::builder().clock(clock.clone()).open("sqlite::memory:").await?;
    /// clock.advance(Duration::from_secs(60 * 60));
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the largest ids and payloads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::StoreLimits;
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// // Nobody should put more than a megabyte into one event.
    /// let limits = StoreLimits { max_payload_bytes: 1024 * 1024, ..Default::default() };
    /// let store = SqliteProvider::builder().limits(limits).open("sqlite::memory:").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long the store keeps signals and cancellations for an instance that does not exist.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// // A payment may be confirmed an hour before its order comes, and no earlier.
    /// let store = SqliteProvider::builder().parking_time(Duration::from_secs(60 * 60)).open("sqlite::memory:").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn parking_time(mut self, parking_time: Duration) -> Self {
        self.parking_time = parking_time;
        self
    }

    /// Sets how long a write waits for another process that is writing to the same file; at most a day.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// // Another process imports into the same file for up to a minute at a time.
    /// let store = SqliteProvider::builder().busy_timeout(Duration::from_secs(60)).open("sqlite:orders.db?mode=rwc").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn busy_timeout(mut self, busy_timeout: Duration) -> Self {
        // SQLite counts milliseconds in 32 bits.
        self.busy_timeout = busy_timeout.min(Duration::from_secs(24 * 60 * 60));
        self
    }

    /// Says what to do about a file of an older version; opening the store migrates it if not called.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::{Migrations, SqliteError, SqliteProvider};
    ///
    /// // A tool that only looks leaves the file as the application knows it.
    /// match SqliteProvider::builder().migrations(Migrations::Verify).open("sqlite:orders.db").await {
    ///     Ok(store) => println!("{}", store.debug_dump().await),
    ///     Err(SqliteError::NotMigrated { .. }) => println!("start the newer application first"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn migrations(mut self, migrations: Migrations) -> Self {
        self.migrations = migrations;
        self
    }

    /// Puts the file on a disk that a test controls.
    #[cfg(feature = "test-hooks")]
    pub fn disk(mut self, disk: Arc<dyn super::DiskUnderTest>) -> Self {
        self.disk = Some(disk);
        self
    }

    /// Sets after how many pages the writer moves the log into the database, and after how many it waits for the log's
    /// readers.
    #[cfg(feature = "test-hooks")]
    pub fn log_pages(mut self, move_after: u64, restart_after: u64) -> Self {
        self.log_pages = LogPages { move_after, restart_after };
        self
    }

    /// Opens the store that `database_url` names; see [`SqliteProvider::new`] for its forms.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// let store = SqliteProvider::builder().open("/var/lib/orders/orders.db?mode=rwc").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the file cannot be opened, is not ours, or was written by a newer version.
    pub async fn open(self, database_url: &str) -> Result<SqliteProvider, SqliteError> {
        SqliteProvider::open(self, url::parse(database_url)?).await
    }
}
