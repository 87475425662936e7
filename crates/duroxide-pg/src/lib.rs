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
//! - **Few transactions.** The committer gathers what all slots of a process write, and commits it in one round trip,
//!   with statements that take many requests at once and refuse each by itself (`committer`, `batch`).
//! - **Few syncs.** Dispatchers see a message or a result before it is on the disk; the commit of the turn that it
//!   leads to brings it there, and then the store acknowledges it (`early`).
//! - **Few steps.** A turn's commit leases activities, a result's commit leases an instance, and so does a message's if a
//!   dispatcher waits (`waiting_dispatchers`); a commit leases a new row as it writes it, if no other is queued before
//!   it.
//! - **Leases go by the database's clock**; a fetch that is not part of such a commit takes them on a connection of
//!   their own that does not wait for the disk.
//! - **No writer waits for a neighbour.** A sender appends its message and a note about the instance; the next fetch
//!   looks at that instance. Fetches skip the rows that others hold.
//! - **Every fetch is a few index probes**, whatever else is in the store.
//! - **The committer looks up a commit whose answer was lost**, so nothing is done twice.
//!
//! | file | what it holds |
//! |---|---|
//! | `migrations/*.sql`, `migrate`, `grants` | tables and functions, how a schema comes to have them, and who may use them |
//! | `address`, `tls`, `session`, `settings`, `server_identity` | where the database is, and connections to it |
//! | `proof`, `pooling` | how the store keeps statements out of foreign sessions, and works without sessions |
//! | `shared_connection`, `listings` | connections that many callers share |
//! | `jobs`, `batch`, `statements`, `pipeline`, `transaction`, `epochs`, `committer` | group commit |
//! | `set_aside` | jobs that meet locks of others, and do not hold up the rest |
//! | `deferred_jobs`, `heartbeats` | what joins the commits of others, and is no commit of its own |
//! | `early` | commits that become durable afterwards |
//! | `claims`, `fetch`, `gather`, `waiting_dispatchers`, `give_backs` | leasing together, giving back unused leases |
//! | `renewals` | keeping leases, together and on a connection of their own |
//! | `lease_holder`, `dead_holders` | noticing that a process has died, and releasing its leases |
//! | `held_leases` | leases that have not begun, so that a crash counts no attempt for them |
//! | `shared`, `signals`, `clock` | telling dispatchers, watchers and other processes what changed, and when to look |
//! | `figures`, `facts` | metrics about the state of the store, and what operators ask about its database |
//! | `encode`, `text`, `functions` | values on their way in and out, and calls that name them |
//! | `provider`, `extended`, `steps`, `admin`, `reads`, `histories`, `windows`, `blocked`, `quarantine` | the traits |
//!
//! # Connections
//!
//! | `application_name` | what for | there |
//! |---|---|---|
//! | `duroxide reads` | reads that are soon done, LISTEN and NOTIFY | always |
//! | `duroxide commits` | turns, and syncs of what was committed early | from the first write |
//! | `duroxide messages` | messages and results | from the first write |
//! | `duroxide leases` | leases | from the first fetch |
//! | `duroxide renewals` | keeping leases, and the lock that tells others that the process lives | from the first fetch |
//! | `duroxide listings` (two at most), `duroxide removals` | what may take long | while needed, and half a minute longer |
//!
//! So a worker has five connections, and a client that starts orchestrations and waits for them three. If the URL gives
//! an `application_name`, they are called `NAME (commits)` and so on. Stores in other schemas have connections of their
//! own, because prepared statements and plans belong to one search path.
//!
//! A pooler in front of the database may share sessions among its clients (PgBouncer: `pool_mode = transaction`). The store
//! notices that, makes its settings in each transaction, and polls for work of other processes instead of listening.

mod address;
mod admin;
mod attempts;
mod batch;
mod blocked;
mod claims;
mod clock;
mod committer;
mod dead_holders;
mod deferred_jobs;
mod early;
mod encode;
mod epochs;
mod error;
mod extended;
mod facts;
mod fetch;
mod figures;
mod functions;
mod gather;
mod give_backs;
mod grants;
mod heartbeats;
mod held_leases;
mod histories;
mod inspection;
mod jobs;
mod lease_holder;
mod list_pages;
mod listings;
mod migrate;
mod open;
mod options;
mod overviews;

mod pipeline;
mod pooling;
mod proof;
mod provider;
mod quarantine;
mod queue_states;
mod reads;
mod renewals;
mod sends;
mod server_identity;
mod session;
mod set_aside;
mod settings;
mod shared;
mod shared_connection;
mod signals;
mod statements;
mod steps;
mod text;
mod tls;
mod transaction;
mod waiting_dispatchers;
mod windows;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use duroxide::providers::InstanceWatchers;
use tokio::sync::mpsc;

#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub use address::hosts_of;
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub use admin::bulk_statements;
pub use error::PgError;
pub use facts::{PostgresFacts, TableFacts};
pub use migrate::Migrations;
pub use open::{OpenError, open, take_schema};
pub use options::PostgresBuilder;
pub use session::TokenSource;
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub use statements::{Signature, signatures};

use address::{DatabaseAddress, Protection};
use clock::DatabaseClock;
use committer::Committer;
use give_backs::{LeaseReturner, PendingGiveBacks};
use listings::Listings;
use migrate::{SchemaSetup, StoreFacts};
use session::Connector;
use settings::Purpose;
use shared::{DueSignal, Shared, Time, whole_ms};
use shared_connection::SharedConnection;
use signals::PendingNotifications;
use waiting_dispatchers::WaitingDispatchers;

/// The number of slots in which processes count their totals.
pub(crate) const SLOTS: i32 = 64;

/// A store in a schema of a PostgreSQL database.
///
/// Open and use it inside a tokio runtime. A dropped store still finishes the writes it was handed.
///
/// ```no_run
/// use std::sync::Arc;
/// use duroxide::Client;
/// use duroxide_pg::PostgresProvider;
///
/// # async fn run() -> Result<(), duroxide_pg::PgError> {
/// let store = PostgresProvider::builder().schema("orders").open("postgres://localhost/app").await?;
/// let client = Client::new(Arc::new(store));
/// # drop(client);
/// # Ok(()) }
/// ```
pub struct PostgresProvider {
    shared: Arc<Shared>,
    connector: Arc<Connector>,
    committer: Arc<Committer>,
    /// Commits messages and results, which become durable afterwards.
    early: Committer,
    /// Commits deletes and prunes, which may take long.
    removals: Committer,
    /// Reads that are soon done, and notifications.
    reads: Arc<SharedConnection>,
    /// Reads that may take long, apart from the others, which do not wait for them.
    listings: Arc<Listings>,
    returner: LeaseReturner,
    renewals: renewals::Renewals,
    /// The connection that renews leases.
    renewing: Arc<SharedConnection>,
    /// Dropping it ends the task that shows others that this handle lives.
    _holder_lock: tokio::sync::oneshot::Sender<()>,
    instance_claims: gather::Gatherer<fetch::InstanceOrder>,
    work_claims: gather::Gatherer<fetch::WorkOrder>,
    setup: SchemaSetup,
    /// Versions that instances are pinned to, as far as this process has met them.
    known_classes: Mutex<BTreeSet<String>>,
    heartbeats: heartbeats::Heartbeats,
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
    /// `sslmode` is `disable`, `prefer`, `require`, `verify-ca` or `verify-full`. Without it, the store encrypts a
    /// connection that leaves this machine and the server must prove its name; one to the loopback or a Unix socket is
    /// plain. `sslrootcert` names a file with the certificates to trust instead of the system's; with it, `require`
    /// verifies too. `sslcert` and `sslkey` name files (PEM) with a certificate and a key by which the server knows the
    /// store. `channel_binding=require` insists on binding a login by password to the encrypted connection; without it,
    /// the store does so where the server can. `hostaddr` is the address to connect to, if the server has to prove the
    /// host's name but the store must not look it up.
    ///
    /// Of several hosts (`postgres://user@one,two/database`) the store tries each in turn, for `connect_timeout`
    /// seconds, until one accepts writes; `target_session_attrs=any` takes the first that answers.
    ///
    /// ```no_run
    /// # use duroxide_pg::PostgresProvider;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresProvider::new("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the server cannot be reached or used; if the schema is newer than this build may use, altered, being migrated for
    /// too long, or not ours; or if the role lacks privileges, which the error names.
    pub async fn new(database_url: &str) -> Result<Self, PgError> {
        Self::builder().open(database_url).await
    }

    /// Opens the store in a schema; `None` is `public`.
    ///
    /// ```no_run
    /// # use duroxide_pg::PostgresProvider;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresProvider::new_with_schema("postgres://app@localhost/orders", Some("shop")).await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the name is not a plain identifier.
    pub async fn new_with_schema(database_url: &str, schema_name: Option<&str>) -> Result<Self, PgError> {
        Self::builder().schema(schema_name.unwrap_or("public")).open(database_url).await
    }

    /// Opens a store with settings of its own.
    ///
    /// ```no_run
    /// # use duroxide_pg::PostgresProvider;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = PostgresProvider::builder().schema("shop");
    /// let store = builder.open("postgres://app@localhost/orders").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// Returns the schema that the store lives in.
    ///
    /// ```no_run
    /// # use duroxide_pg::PostgresProvider;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresProvider::new("postgres://app@localhost/orders").await?;
    /// assert_eq!(store.schema_name(), "public");
    /// # Ok(()) }
    /// ```
    pub fn schema_name(&self) -> &str {
        &self.connector.schema
    }

    /// Returns the statements that let a role work in a schema. The schema's owner runs them after migrating it.
    ///
    /// A role with these grants and no other right in the database can run workers and clients
    /// ([`Migrations::Verify`]). Only the owner of the schema can apply migrations. A role that has the grants before a
    /// migration keeps them.
    ///
    /// ```
    /// let grants = duroxide_pg::PostgresProvider::grants("public", "app");
    /// assert!(grants.starts_with("GRANT USAGE ON SCHEMA \"public\" TO \"app\";"));
    /// ```
    pub fn grants(schema_name: &str, role: &str) -> String {
        grants::statements(schema_name, role)
    }

    /// Applies the migrations that the schema lacks. Opening a store does so already.
    ///
    /// ```no_run
    /// # async fn run(store: duroxide_pg::PostgresProvider) -> Result<(), duroxide_pg::PgError> {
    /// // A test begins again with an empty schema.
    /// store.cleanup_schema().await?;
    /// store.initialize_schema().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn initialize_schema(&self) -> Result<(), PgError> {
        let session = self.connector.open().await?;
        let setup = SchemaSetup { policy: Migrations::Apply, ..self.setup.clone() };
        setup.prepare(&session).await.map(drop)
    }

    /// Drops the schema with everything in it, for tests. Of `public` it drops only what belongs to the store.
    ///
    /// ```no_run
    /// # async fn run(url: &str) -> Result<(), duroxide_pg::PgError> {
    /// let store = duroxide_pg::PostgresProvider::builder().schema("test_orders").open(url).await?;
    /// // ... the test ...
    /// store.cleanup_schema().await
    /// # }
    /// ```
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
            pooling: Arc::default(),
            synced: OnceLock::new(),
            open_sessions: Arc::default(),
        });
        let session = connector.open().await?;
        let facts = settings.schema_setup().prepare(&session).await?;
        drop(session);
        Ok(Self::start(connector, &settings, facts))
    }

    fn start(connector: Arc<Connector>, settings: &PostgresBuilder, facts: StoreFacts) -> Self {
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
            forgotten_after: settings.forgotten_after,
            slot: i32::try_from(random).unwrap_or(0),
            instances_ready: DueSignal::new(clock.clone()),
            work_ready: DueSignal::new(clock.clone()),
            watchers: Arc::new(InstanceWatchers::with_hash(signals::hash_with(facts.notification_salt))),
            running: Arc::default(),
            notifications: Arc::new(PendingNotifications::new(settings.notifications)),
            server_identity: connector.server_identity.clone(),
            turns_in_the_way: shared::TurnsInTheWay::default(),
            takes_work: false.into(),
            exchange: Arc::default(),
            holder: lease_holder::LeaseHolder::default(),
            waiting_dispatchers: WaitingDispatchers::default(),
        });
        let (patience, idle) = (settings.patience, settings.idle);
        let looking = signals::look_now_and_then(
            Arc::downgrade(&shared),
            clock,
            settings.poll_interval,
            connector.pooling.clone(),
        );
        let mut background = Background(vec![tokio::spawn(looking)]);
        let reads = SharedConnection::new(connector.clone(), Purpose::Reads, patience);
        let reads = if settings.notifications {
            let channel = signals::channel_of(&connector.schema);
            let (told, connections) = mpsc::unbounded_channel();
            let reads = Arc::new(reads.listen(channel.clone(), told));
            let notifier = signals::Notifier::new(reads.clone(), connections, channel, &shared);
            background.0.push(tokio::spawn(notifier.run()));
            reads
        } else {
            Arc::new(reads)
        };
        let listings = Arc::new(Listings::new(&connector, patience, idle));
        if let Some(interval) = settings.figures_interval() {
            let figures = figures::Figures::new(
                Arc::downgrade(&shared),
                reads.clone(),
                listings.clone(),
                connector.clone(),
            );
            background.0.push(tokio::spawn(figures.tell_every(interval)));
        }
        let leases = Arc::new(SharedConnection::new(connector.clone(), Purpose::Leases, patience));
        let returner = LeaseReturner {
            connection: leases,
            shared: shared.clone(),
            give_backs: PendingGiveBacks::default(),
            patience,
        };
        // The renewals retry by themselves, with what has changed meanwhile.
        let renewing = Arc::new(SharedConnection::new(connector.clone(), Purpose::Renewals, Duration::ZERO));
        let renewals = renewals::start(renewing.clone(), &shared, patience);
        let holder_lock = dead_holders::HolderLock::start(
            renewing.clone(),
            returner.clone(),
            settings.release_dead_after,
            settings.poll_interval,
        );
        let committer = Arc::new(Committer::start(connector.clone(), returner.clone(), patience));
        Self {
            early: early::start(connector.clone(), returner.clone(), patience, committer.clone()),
            committer,
            removals: Committer::start_removals(connector.clone(), returner.clone(), patience, idle),
            reads,
            listings,
            _background: background,
            instance_claims: fetch::gather_instances(returner.clone()),
            work_claims: fetch::gather_work(returner.clone()),
            returner,
            setup: settings.schema_setup(),
            renewals,
            renewing,
            _holder_lock: holder_lock,
            known_classes: Mutex::new(BTreeSet::from([String::new()])),
            heartbeats: heartbeats::Heartbeats::default(),
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

    /// Reports the gauges so many times, as if once in an interval, for tests. Returns how often that took a look at the
    /// queues.
    #[cfg(feature = "test-hooks")]
    pub async fn tell_figures(&self, rounds: usize, interval: Duration) -> usize {
        let (shared, now) = (Arc::downgrade(&self.shared), self.shared.time.given_ms());
        let mut figures =
            figures::Figures::new(shared, self.reads.clone(), self.listings.clone(), self.connector.clone());
        let mut looks = 0;
        for _ in 0..rounds {
            looks += usize::from(figures.tell(now, interval).await);
        }
        looks
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

/// Compiles the code of the guide's chapter.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/postgres.md")]
struct Guide;

/// Compiles the code of the page on PostgreSQL, which the guide shows as well.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/postgres.md")]
struct Reference;

/// Compiles the code of the page on moving, which the guide shows as well.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/moving-to-duroxide-pg.md")]
struct Moving;
