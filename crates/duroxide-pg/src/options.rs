//! How a store is set up.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, DEFAULT_PARKING_TIME, StoreLimits};

use crate::session::TokenSource;
use crate::{Migrations, PgError, PostgresProvider};

/// Opens a store with settings of its own.
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
    pub(crate) poll_interval: Duration,
    pub(crate) patience: Duration,
    pub(crate) notifications: bool,
    pub(crate) migrations: Migrations,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
}

impl Default for PostgresBuilder {
    fn default() -> Self {
        Self {
            schema: "public".into(),
            clock: None,
            limits: StoreLimits::default(),
            parking_time: DEFAULT_PARKING_TIME,
            poll_interval: Duration::from_secs(1),
            patience: Duration::from_secs(5),
            notifications: true,
            migrations: Migrations::default(),
            tokens: None,
        }
    }
}

impl PostgresBuilder {
    /// Keeps everything in this schema instead of `public`. It is created if it is missing. Stores in different schemas of
    /// one database share nothing.
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

    /// Sets how long signals and cancellations for an instance that does not exist are kept.
    pub fn parking_time(mut self, parking_time: Duration) -> Self {
        self.parking_time = parking_time;
        self
    }

    /// Sets how often an idle process looks for work by itself, in case a notification was lost; one second if not called.
    pub fn poll_interval(mut self, poll_interval: Duration) -> Self {
        self.poll_interval = poll_interval;
        self
    }

    /// Sets how long an operation is tried again when the database cannot be reached, a lock is not to be had or a deadlock
    /// was broken, before its caller hears of it; five seconds if not called. A turn that meets a lock is soon handed
    /// back, for the runtime takes it again later.
    pub fn retry_for(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Says whether processes tell each other of new work by LISTEN and NOTIFY. Without it they find it by polling.
    pub fn notifications(mut self, notifications: bool) -> Self {
        self.notifications = notifications;
        self
    }

    /// Says what to do about migrations that the schema lacks; they are applied if not called.
    pub fn migrations(mut self, migrations: Migrations) -> Self {
        self.migrations = migrations;
        self
    }

    /// Takes the password of each new connection from `tokens`, for databases that log in by a cloud identity.
    pub fn tokens(mut self, tokens: Arc<dyn TokenSource>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Opens the store in the database that `database_url` names; see [`PostgresProvider::new`] for its form.
    ///
    /// # Errors
    /// If the server cannot be reached or used, or the schema is newer than this build, altered, or not ours.
    pub async fn open(self, database_url: &str) -> Result<PostgresProvider, PgError> {
        PostgresProvider::open(self, database_url).await
    }
}
