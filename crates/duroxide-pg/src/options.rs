//! The settings of a store.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, DEFAULT_PARKING_TIME, StoreLimits};

use crate::dead_holders::RELEASE_AFTER;
use crate::epochs::FORGOTTEN_AFTER;
use crate::migrate::{Migration, SchemaSetup};
use crate::session::TokenSource;
use crate::shared::bounded;
use crate::{Migrations, PgError, PostgresProvider};

/// How often a process reads gauges, unless it polls more rarely.
const FIGURES_EVERY: Duration = Duration::from_secs(15);

/// Opens a store with settings of its own. It takes a duration beyond a hundred years for a hundred years.
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use duroxide_pg::PostgresProvider;
/// let store = PostgresProvider::builder()
///     .schema("tenant_a")
///     .open("postgres://app:secret@db.example.com/app")
///     .await?;
/// # drop(store); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct PostgresBuilder {
    pub(crate) schema: String,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) limits: StoreLimits,
    pub(crate) parking_time: Duration,
    pub(crate) poll_interval: Option<Duration>,
    /// How long the connections for removals and listings may be idle before the store closes them.
    pub(crate) idle: Duration,
    pub(crate) patience: Duration,
    pub(crate) notifications: bool,
    /// How often to read gauges, if the settings say so.
    pub(crate) figures_every: Option<Option<Duration>>,
    pub(crate) migrations: Migrations,
    pub(crate) migration_wait: Duration,
    pub(crate) later_migrations: Vec<Migration>,
    pub(crate) forgotten_after: Duration,
    pub(crate) release_dead_after: Option<Duration>,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
}

impl Default for PostgresBuilder {
    fn default() -> Self {
        Self {
            schema: "public".into(),
            clock: None,
            limits: StoreLimits::default(),
            parking_time: DEFAULT_PARKING_TIME,
            poll_interval: None,
            idle: Duration::from_secs(30),
            patience: Duration::from_secs(5),
            notifications: true,
            figures_every: None,
            migrations: Migrations::default(),
            migration_wait: Duration::from_secs(60),
            later_migrations: Vec::new(),
            forgotten_after: FORGOTTEN_AFTER,
            release_dead_after: Some(RELEASE_AFTER),
            tokens: None,
        }
    }
}

impl PostgresBuilder {
    /// Keeps everything in this schema instead of `public`. Opening the store creates it if it is missing. Stores in
    /// different schemas of one database share nothing.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // One schema for each tenant, in one database.
    /// let store = PostgresProvider::builder().schema("tenant_a").open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Reads time from `clock` instead of the database's. For tests: processes with clocks of their own would take work
    /// from each other.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use duroxide::providers::ManualClock;
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // A test moves the clock by hand: an hour passes at once.
    /// let clock = Arc::new(ManualClock::new(1_000));
    /// let store = PostgresProvider::builder().clock(clock.clone()).open("postgres://app@localhost/orders").await?;
    /// clock.advance(Duration::from_secs(60 * 60));
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the largest ids and payloads.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::StoreLimits;
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // Nobody should put more than a megabyte into one event.
    /// let limits = StoreLimits { max_payload_bytes: 1024 * 1024, ..Default::default() };
    /// let store = PostgresProvider::builder().limits(limits).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long the store keeps signals and cancellations for an instance that does not exist.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // A payment may be confirmed an hour before its order comes, and no earlier.
    /// let store = PostgresProvider::builder().parking_time(Duration::from_secs(60 * 60)).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn parking_time(mut self, parking_time: Duration) -> Self {
        self.parking_time = bounded(parking_time);
        self
    }

    /// Sets how often an idle process polls for work, in case a notification was lost; one second if not called. Behind
    /// a pooler that shares sessions there are no notifications, so there it is a quarter of a second if not called. A
    /// process that polls less often than once a second looks as rarely for processes that have died.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // The database may fall asleep while there is nothing to do.
    /// let store = PostgresProvider::builder().poll_interval(Duration::from_secs(60 * 60)).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn poll_interval(mut self, poll_interval: Duration) -> Self {
        self.poll_interval = Some(bounded(poll_interval));
        self
    }

    /// Sets how long the connections for removals and listings may be idle, for tests.
    #[cfg(feature = "test-hooks")]
    pub fn close_idle_after(mut self, idle: Duration) -> Self {
        self.idle = bounded(idle);
        self
    }

    /// Sets how long the store retries an operation before its caller hears of the failure: the database cannot be
    /// reached, another transaction holds a lock, or the server broke a deadlock; five seconds if not called. It soon
    /// hands back a turn that meets a lock, because the runtime takes it again later.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // Callers do not hear of a failover that takes half a minute.
    /// let store = PostgresProvider::builder().retry_for(Duration::from_secs(30)).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn retry_for(mut self, patience: Duration) -> Self {
        self.patience = bounded(patience);
        self
    }

    /// Says whether processes tell each other of new work by LISTEN and NOTIFY. Without that they poll for it.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // All the work comes from this process itself, so nobody has to be told.
    /// let store = PostgresProvider::builder().notifications(false).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn notifications(mut self, notifications: bool) -> Self {
        self.notifications = notifications;
        self
    }

    /// Sets how often a process that takes work reads the gauges of [`StoreMetrics`], by one query; `None` for never. Every
    /// 15 seconds if not called, or every `poll_interval` if that is longer.
    ///
    /// [`StoreMetrics`]: duroxide::providers::StoreMetrics
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // Another system watches the database.
    /// let store = PostgresProvider::builder().figures_every(None).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn figures_every(mut self, interval: Option<Duration>) -> Self {
        self.figures_every = Some(interval.map(bounded));
        self
    }

    /// Sets after what time this process releases the leases of another one whose session has ended: 400 ms if not
    /// called; with `None` they run out by themselves.
    ///
    /// A process that dies is noticed at once, and its work goes on elsewhere. So does the work of a process that lives,
    /// but cannot reach the server for so long after its session was cut: what it commits afterwards is refused, and
    /// its activities run again. Behind a pooler that shares sessions, leases run out in any case.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // The network to the server breaks for a second now and then: a worker that is cut off so briefly keeps its leases.
    /// let silence = Some(Duration::from_secs(5));
    /// let store = PostgresProvider::builder().release_dead_after(silence).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn release_dead_after(mut self, silence: Option<Duration>) -> Self {
        self.release_dead_after = silence.map(bounded);
        self
    }

    /// Says what to do about migrations that the schema lacks; opening the store applies them if not called.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide_pg::{Migrations, PostgresProvider};
    ///
    /// // The release job migrates, as the schema's owner. Workers only look, and need no right to change tables.
    /// let store = PostgresProvider::builder().migrations(Migrations::Verify).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn migrations(mut self, migrations: Migrations) -> Self {
        self.migrations = migrations;
        self
    }

    /// Sets how long opening the store waits for another process that migrates the schema; a minute if not called.
    /// After that the error names that process.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use duroxide_pg::PostgresProvider;
    ///
    /// // Rather fail soon than hold up the start of this process.
    /// let store = PostgresProvider::builder().migration_wait(Duration::from_secs(5)).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn migration_wait(mut self, migration_wait: Duration) -> Self {
        self.migration_wait = bounded(migration_wait);
        self
    }

    /// Pretends to be a build to come, which knows one migration more than this one; `None` if only builds that know it may
    /// run beside it. For tests.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn migration_to_come(mut self, sql: impl Into<String>, needs_at_least: Option<i64>) -> Self {
        let earlier = self.later_migrations.len();
        self.later_migrations.push(Migration::of_a_build_to_come(earlier, sql.into(), needs_at_least));
        self
    }

    /// Assumes that the server may have forgotten this process after so long. For tests.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn forgotten_after(mut self, forgotten_after: Duration) -> Self {
        self.forgotten_after = bounded(forgotten_after);
        self
    }

    /// Returns the last migration that this build knows. For tests.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn newest_migration() -> i64 {
        crate::migrate::newest()
    }

    /// How often to read gauges; `None` for never.
    pub(crate) fn figures_interval(&self) -> Option<Duration> {
        let usual = FIGURES_EVERY.max(self.poll_interval.unwrap_or_default());
        self.figures_every.unwrap_or(Some(usual))
    }

    pub(crate) fn schema_setup(&self) -> SchemaSetup {
        SchemaSetup {
            schema: self.schema.clone(),
            policy: self.migrations,
            patience: self.migration_wait,
            later: self.later_migrations.clone(),
        }
    }

    /// Takes the password of each new connection from `tokens`, for databases that log in by a cloud identity.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use duroxide_pg::{PostgresProvider, TokenSource};
    ///
    /// struct FromFile(&'static str);
    ///
    /// #[async_trait::async_trait]
    /// impl TokenSource for FromFile {
    ///     async fn token(&self) -> Result<String, String> {
    ///         std::fs::read_to_string(self.0).map_err(|error| format!("{}: {error}", self.0))
    ///     }
    /// }
    ///
    /// let tokens = Arc::new(FromFile("/run/secrets/db-token"));
    /// let store = PostgresProvider::builder().tokens(tokens).open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn tokens(mut self, tokens: Arc<dyn TokenSource>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Opens the store in the database that `database_url` names; see [`PostgresProvider::new`] for its form.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide_pg::PostgresProvider;
    ///
    /// let builder = PostgresProvider::builder().schema("shop");
    /// match builder.open("postgres://app@db.internal/orders?sslmode=verify-full").await {
    ///     Ok(store) => println!("the schema is {}", store.schema_name()),
    ///     Err(error) if error.is_retryable() => eprintln!("try again later: {error}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the server cannot be reached or used; if the schema is newer than this build may use, altered, being migrated for
    /// too long, or not ours; or if the role lacks privileges, which the error names.
    pub async fn open(self, database_url: &str) -> Result<PostgresProvider, PgError> {
        PostgresProvider::open(self, database_url).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_read_no_more_often_than_the_process_polls() {
        let hour = Duration::from_secs(3_600);
        let builder = PostgresBuilder::default;
        assert_eq!(builder().figures_interval(), Some(FIGURES_EVERY));
        assert_eq!(builder().poll_interval(Duration::ZERO).figures_interval(), Some(FIGURES_EVERY));
        assert_eq!(builder().poll_interval(hour).figures_interval(), Some(hour));
        let five = Duration::from_secs(5);
        assert_eq!(builder().poll_interval(hour).figures_every(Some(five)).figures_interval(), Some(five));
        assert_eq!(builder().poll_interval(hour).figures_every(None).figures_interval(), None);
    }
}
