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
//!   dispatcher waits (`waiting_dispatchers`); what nobody is queued before is leased as it is written.
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
//! | `address`, `tls`, `session`, `shared_connection`, `server_identity` | where the database is, and connections to it |
//! | `jobs`, `columns`, `batch`, `pipeline`, `committer` | group commit |
//! | `set_aside` | what meets locks that others hold, and does not hold up the rest |
//! | `early` | what is made durable after it was committed |
//! | `claims`, `fetch`, `gather`, `waiting_dispatchers`, `give_backs` | leasing together, and giving back what nobody took |
//! | `renewals` | keeping leases, together and on a connection of their own |
//! | `shared`, `signals`, `clock` | who is told of what, and when |
//! | `encode`, `text` | values on their way in and out |
//! | `provider`, `extended`, `admin`, `reads` | the traits |
//!
//! A session pool in front of the database must keep sessions (PgBouncer: `pool_mode = session`).

mod address;
mod admin;
mod batch;
mod blocked;
mod claims;
mod clock;
mod columns;
mod committer;
mod early;
mod encode;
mod error;
mod extended;
mod fetch;
mod gather;
mod give_backs;
mod jobs;
mod migrate;
mod open;
mod options;
mod pipeline;
mod provider;
mod reads;
mod renewals;
mod server_identity;
mod session;
mod set_aside;
mod shared;
mod shared_connection;
mod signals;
mod text;
mod tls;
mod waiting_dispatchers;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::InstanceWatchers;

pub use error::PgError;
pub use migrate::Migrations;
pub use open::{OpenError, open};
pub use options::PostgresBuilder;
pub use session::TokenSource;

use address::{DatabaseAddress, Protection};
use clock::DatabaseClock;
use committer::Committer;
use give_backs::{LeaseReturner, PendingGiveBacks};
use session::{Connector, Purpose};
use shared::{DueSignal, Shared, Time, whole_ms};
use shared_connection::SharedConnection;
use waiting_dispatchers::WaitingDispatchers;

/// Processes count their totals in so many slots.
pub(crate) const SLOTS: i32 = 64;

/// A store in a schema of a PostgreSQL database.
///
/// It must be opened and used inside a tokio runtime. Dropping it finishes what was begun.
pub struct PostgresProvider {
    shared: Arc<Shared>,
    connector: Arc<Connector>,
    committer: Arc<Committer>,
    /// Messages and results, which are made durable after they were committed.
    early: Committer,
    /// Deletes and prunes, which may take long.
    removals: Committer,
    reads: SharedConnection,
    /// Reads that may take long, so that others do not wait for them.
    listings: SharedConnection,
    returner: LeaseReturner,
    renewals: renewals::Renewals,
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

    /// LeaseReturner the schema that the store lives in.
    pub fn schema_name(&self) -> &str {
        &self.connector.schema
    }

    /// Applies the migrations that the schema lacks. Opening a store does so already.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn initialize_schema(&self) -> Result<(), PgError> {
        let session = self.connector.open().await?;
        migrate::prepare(&session, &self.connector.schema, Migrations::Apply).await
    }

    /// Drops the schema with everything in it, for tests. Of `public` only what is ours is dropped.
    ///
    /// # Errors
    /// What the server reports.
    pub async fn cleanup_schema(&self) -> Result<(), PgError> {
        let session = self.connector.open().await?;
        migrate::drop_schema(&session, &self.connector.schema).await
    }

    async fn open(settings: PostgresBuilder, database_url: &str) -> Result<Self, PgError> {
        address::check_schema(&settings.schema)?;
        let target = DatabaseAddress::parse(database_url)?;
        let tls = match target.protection {
            Protection::Plain => None,
            _ => Some(tls::Tls::new(&target)?),
        };
        let tokens = settings.tokens.clone();
        let connector = Arc::new(Connector {
            target,
            tls,
            tokens,
            schema: settings.schema.clone(),
            limits: settings.limits,
            server_identity: Arc::default(),
        });
        let session = connector.open().await?;
        migrate::prepare(&session, &settings.schema, settings.migrations).await?;
        drop(session);
        Ok(Self::start(connector, &settings))
    }

    fn start(connector: Arc<Connector>, settings: &PostgresBuilder) -> Self {
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
            notifications: Arc::default(),
            server_identity: connector.server_identity.clone(),
            turns_in_the_way: shared::TurnsInTheWay::default(),
            waiting_dispatchers: WaitingDispatchers::default(),
        });
        let looking = signals::look_now_and_then(Arc::downgrade(&shared), clock, settings.poll_interval);
        let mut background = Background(vec![tokio::spawn(looking)]);
        if settings.notifications {
            background.0.push(tokio::spawn(signals::Notifier::new(connector.clone(), &shared).run()));
        }
        let patience = settings.patience;
        let leases = Arc::new(SharedConnection::new(connector.clone(), Purpose::Unsynced, patience));
        let returner = LeaseReturner {
            connection: leases,
            shared: shared.clone(),
            give_backs: PendingGiveBacks::default(),
            patience,
        };
        // Renewals are tried again by themselves, with what has changed meanwhile.
        let renewing = SharedConnection::new(connector.clone(), Purpose::Unsynced, Duration::ZERO);
        let renewals = renewals::start(renewing, &shared, patience);
        let committer = Arc::new(Committer::start(connector.clone(), returner.clone(), patience));
        Self {
            early: early::start(connector.clone(), returner.clone(), patience, committer.clone()),
            committer,
            removals: Committer::start(connector.clone(), returner.clone(), patience),
            reads: SharedConnection::new(connector.clone(), Purpose::Reads, patience),
            listings: SharedConnection::new(connector.clone(), Purpose::Reads, patience),
            _background: background,
            instance_claims: fetch::gather_instances(returner.clone()),
            work_claims: fetch::gather_work(returner.clone()),
            returner,
            renewals,
            known_classes: Mutex::new(BTreeSet::from([String::new()])),
            shared,
            connector,
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
