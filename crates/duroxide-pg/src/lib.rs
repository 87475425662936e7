//! The PostgreSQL store of duroxide: the same orchestrations, on as many machines as it takes.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! let store = duroxide_pg::PostgresProvider::new("postgres://app:secret@db.example.com/app").await?;
//! let client = duroxide::Client::new(Arc::new(store));
//! # drop(client); Ok(()) }
//! ```
//!
//! Every process that opens the same schema of the same database takes part. [`open`] opens any store by its URL.
//!
//! # How it works
//!
//! - **Few transactions.** What all slots of a process want to write is gathered and committed together, in one round
//!   trip, by statements that take many requests at once and refuse each by itself (`committer`, `batch`).
//! - **Few syncs.** A message or a result is visible before it is on the disk, and acknowledged afterwards; the turn that
//!   it leads to brings it there (`early`).
//! - **Few steps.** A turn's commit leases activities, a result's commit leases an instance, and so does a message's if a
//!   dispatcher waits (`standing`); what nobody waits for in line is leased as it is written.
//! - **Leases go by the database's clock**; those that are not part of such a commit are taken on a connection of their own
//!   that does not wait for the disk.
//! - **Nobody waits for a neighbour.** A message is appended, and so is a note that its instance has to be looked at;
//!   the next fetch looks. Fetches skip what others hold.
//! - **Every fetch is a few index probes**, whatever else is in the store.
//! - **A commit whose answer was lost is looked up**, so nothing is done twice.
//!
//! | file | what it holds |
//! |---|---|
//! | `migrations/*.sql`, `migrate` | tables and functions, and how a schema comes to have them |
//! | `target`, `tls`, `session`, `line`, `servers` | where the database is, and connections to it |
//! | `jobs`, `columns`, `batch`, `pipeline`, `committer` | group commit |
//! | `early` | what is made durable after it was committed |
//! | `claims`, `fetch`, `gather`, `standing`, `errands` | leasing together, and giving back what nobody took |
//! | `shared`, `signals`, `clock` | who is told of what, and when |
//! | `encode`, `text` | values on their way in and out |
//! | `provider`, `extended`, `admin`, `reads` | the traits |
//!
//! A session pool in front of the database must keep sessions (PgBouncer: `pool_mode = session`).

mod admin;
mod batch;
mod blocked;
mod claims;
mod clock;
mod columns;
mod committer;
mod early;
mod encode;
mod errands;
mod error;
mod extended;
mod fetch;
mod gather;
mod jobs;
mod line;
mod migrate;
mod open;
mod options;
mod pipeline;
mod provider;
mod reads;
mod servers;
mod session;
mod shared;
mod signals;
mod standing;
mod target;
mod text;
mod tls;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use duroxide::providers::InstanceWatchers;

pub use error::PgError;
pub use migrate::Migrations;
pub use open::{OpenError, open};
pub use options::PostgresBuilder;
pub use session::TokenSource;

use clock::DatabaseClock;
use committer::Committer;
use errands::{Errands, Returns};
use line::Line;
use session::{Dialer, Purpose};
use shared::{DueSignal, Shared, Time, whole_ms};
use standing::StandingOrders;
use target::{Protection, Target};

/// Processes count their totals in so many slots.
pub(crate) const SLOTS: i32 = 64;

/// A store in a schema of a PostgreSQL database.
///
/// It must be opened and used inside a tokio runtime. Dropping it finishes what was begun.
pub struct PostgresProvider {
    shared: Arc<Shared>,
    dialer: Arc<Dialer>,
    committer: Arc<Committer>,
    /// Messages and results, which are made durable after they were committed.
    early: Committer,
    /// Deletes and prunes, which may take long.
    removals: Committer,
    reads: Line,
    /// Reads that may take long, so that others do not wait for them.
    listings: Line,
    returns: Returns,
    instance_claims: gather::Gatherer<fetch::InstanceOrder>,
    work_claims: gather::Gatherer<fetch::WorkOrder>,
    /// Versions that instances are pinned to, as far as they were met.
    known_classes: Mutex<BTreeSet<String>>,
    _background: Background,
}

/// Tasks that end with the store.
struct Background(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl PostgresProvider {
    /// Opens the store in the schema `public` of the database that a URL names:
    /// `postgres://user:password@host:port/database`, with options after a `?`.
    ///
    /// `sslmode` is `disable`, `prefer`, `require` or `verify-full`. If it is not given, a connection that leaves this
    /// machine is encrypted and the server must prove its name; one to the loopback or a Unix socket is plain.
    /// `sslrootcert` names a file with the certificates to trust instead of the system's; with it, `require` verifies too.
    /// `hostaddr` is the address to connect to, if the host's name is only to be proved and not to be looked up.
    ///
    /// # Errors
    /// If the server cannot be reached or used, or the schema is newer than this build, altered, or not ours.
    pub async fn new(database_url: &str) -> Result<Self, PgError> {
        Self::builder().open(database_url).await
    }

    /// Opens the store in a schema; `None` is `public`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the name is not a plain identifier.
    pub async fn new_with_schema(database_url: &str, schema_name: Option<&str>) -> Result<Self, PgError> {
        Self::builder().schema(schema_name.unwrap_or("public")).open(database_url).await
    }

    /// Opens a store with settings of its own.
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// Returns the schema that the store lives in.
    pub fn schema_name(&self) -> &str {
        &self.dialer.schema
    }

    /// Applies the migrations that the schema lacks. Opening a store does so already.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn initialize_schema(&self) -> Result<(), PgError> {
        let session = self.dialer.open().await?;
        migrate::prepare(&session, &self.dialer.schema, Migrations::Apply).await
    }

    /// Drops the schema with everything in it, for tests. Of `public` only what is ours is dropped.
    ///
    /// # Errors
    /// What the server reports.
    pub async fn cleanup_schema(&self) -> Result<(), PgError> {
        let session = self.dialer.open().await?;
        migrate::drop_schema(&session, &self.dialer.schema).await
    }

    async fn open(settings: PostgresBuilder, database_url: &str) -> Result<Self, PgError> {
        target::check_schema(&settings.schema)?;
        let target = Target::parse(database_url)?;
        let tls = match target.protection {
            Protection::Plain => None,
            _ => Some(tls::Tls::new(&target)?),
        };
        let tokens = settings.tokens.clone();
        let dialer = Arc::new(Dialer {
            target,
            tls,
            tokens,
            schema: settings.schema.clone(),
            limits: settings.limits,
            servers: Arc::default(),
        });
        let session = dialer.open().await?;
        migrate::prepare(&session, &settings.schema, settings.migrations).await?;
        drop(session);
        Ok(Self::start(dialer, &settings))
    }

    fn start(dialer: Arc<Dialer>, settings: &PostgresBuilder) -> Self {
        let time = match &settings.clock {
            Some(clock) => Time::Given(clock.clone()),
            None => Time::Database(Arc::new(DatabaseClock::default())),
        };
        let clock = time.clock();
        let random = uuid::Uuid::new_v4().as_u128() % SLOTS.unsigned_abs() as u128;
        let shared = Arc::new(Shared {
            time,
            limits: settings.limits,
            parking_ms: whole_ms(settings.parking_time),
            slot: i32::try_from(random).unwrap_or(0),
            instances_ready: DueSignal::new(clock.clone()),
            work_ready: DueSignal::new(clock.clone()),
            watchers: Arc::new(InstanceWatchers::default()),
            running: Arc::default(),
            news: Arc::default(),
            servers: dialer.servers.clone(),
            turns_in_the_way: false.into(),
            standing: StandingOrders::default(),
        });
        let looking = signals::look_now_and_then(Arc::downgrade(&shared), clock, settings.poll_interval);
        let mut background = Background(vec![tokio::spawn(looking)]);
        if settings.notifications {
            background.0.push(tokio::spawn(signals::Messenger::new(dialer.clone(), &shared).run()));
        }
        let patience = settings.patience;
        let leases = Arc::new(Line::new(dialer.clone(), Purpose::Unsynced, patience));
        let returns = Returns { line: leases, shared: shared.clone(), errands: Errands::default() };
        let committer = Arc::new(Committer::start(dialer.clone(), returns.clone(), patience));
        Self {
            early: early::start(dialer.clone(), returns.clone(), patience, committer.clone()),
            committer,
            removals: Committer::start(dialer.clone(), returns.clone(), patience),
            reads: Line::new(dialer.clone(), Purpose::Reads, patience),
            listings: Line::new(dialer.clone(), Purpose::Reads, patience),
            _background: background,
            instance_claims: fetch::gather_instances(returns.clone()),
            work_claims: fetch::gather_work(returns.clone()),
            returns,
            known_classes: Mutex::new(BTreeSet::from([String::new()])),
            shared,
            dialer,
        }
    }

    /// Runs SQL on the store, for tests that damage data or look at it.
    ///
    /// # Errors
    /// What the server reports.
    #[cfg(feature = "test-hooks")]
    pub async fn execute_sql(&self, sql: &str) -> Result<(), duroxide::providers::ProviderError> {
        let done = self.reads.query_once(sql).await;
        done.map(drop).map_err(reads::named("execute_sql"))
    }

    /// Runs a query that returns one number, for tests.
    ///
    /// # Errors
    /// What the server reports.
    #[cfg(feature = "test-hooks")]
    pub async fn query_number(&self, sql: &str) -> Result<i64, duroxide::providers::ProviderError> {
        let rows = self.reads.query_once(sql).await;
        let rows = rows.map_err(reads::named("query_number"))?;
        Ok(rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(0))
    }
}

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
