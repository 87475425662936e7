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
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Reads time from `clock` instead of the database's. For tests: processes with clocks of their own would take work
    /// from each other.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the largest ids and payloads.
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long the store keeps signals and cancellations for an instance that does not exist.
    pub fn parking_time(mut self, parking_time: Duration) -> Self {
        self.parking_time = bounded(parking_time);
        self
    }

    /// Sets how often an idle process polls for work, in case a notification was lost; one second if not called. Behind
    /// a pooler that shares sessions there are no notifications, so there it is a quarter of a second if not called. A
    /// process that polls less often than once a second looks as rarely for processes that have died.
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
    pub fn retry_for(mut self, patience: Duration) -> Self {
        self.patience = bounded(patience);
        self
    }

    /// Says whether processes tell each other of new work by LISTEN and NOTIFY. Without that they poll for it.
    pub fn notifications(mut self, notifications: bool) -> Self {
        self.notifications = notifications;
        self
    }

    /// Sets how often a process that takes work reads the gauges of [`StoreMetrics`], by one query; `None` for never. Every
    /// 15 seconds if not called, or every `poll_interval` if that is longer.
    ///
    /// [`StoreMetrics`]: duroxide::providers::StoreMetrics
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
    pub fn release_dead_after(mut self, silence: Option<Duration>) -> Self {
        self.release_dead_after = silence.map(bounded);
        self
    }

    /// Says what to do about migrations that the schema lacks; opening the store applies them if not called.
    pub fn migrations(mut self, migrations: Migrations) -> Self {
        self.migrations = migrations;
        self
    }

    /// Sets how long opening the store waits for another process that migrates the schema; a minute if not called.
    /// After that the error names that process.
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
    pub fn tokens(mut self, tokens: Arc<dyn TokenSource>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Opens the store in the database that `database_url` names; see [`PostgresProvider::new`] for its form.
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
