//! One connection, set up for what it is used for, with its prepared statements.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::StoreLimits;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{
    AsyncMessage, Client, Connection, NoTls, Notification, Row, SimpleQueryMessage, Statement,
};

use crate::PgError;
use crate::address::{DatabaseAddress, Protection, quoted};
use crate::error::{Failure, FailureKind, describe, kind_of};
use crate::server_identity::ServerIdentity;
use crate::shared_connection::within;
use crate::tls::{self, Tls};

/// Gives the password of each new connection: the short-lived token of a cloud identity.
///
/// It is asked once for each connection, also for those that are made again, so it should keep a token for as long as that
/// is good. A token that the server refuses is a failure that may pass: the next connection asks for another.
///
/// ```
/// use duroxide_pg::TokenSource;
///
/// struct FromFile(std::path::PathBuf);
///
/// #[async_trait::async_trait]
/// impl TokenSource for FromFile {
///     async fn token(&self) -> Result<String, String> {
///         let text = std::fs::read_to_string(&self.0);
///         text.map(|token| token.trim().to_string()).map_err(|error| format!("the token's file: {error}"))
///     }
/// }
///
/// let builder = duroxide_pg::PostgresProvider::builder()
///     .tokens(std::sync::Arc::new(FromFile("/run/secrets/db-token".into())));
/// # drop(builder);
/// ```
#[async_trait]
pub trait TokenSource: Send + Sync {
    /// LeaseReturner a token that is good for one connection. The error's text may be logged; it must hold no secret. After half
    /// a minute without an answer the connection is given up, and tried again later.
    async fn token(&self) -> Result<String, String>;
}

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Writes data: what is acknowledged is on the server's disk.
    Data,
    /// Commits without waiting for the disk: leases, which need not survive a crash of the server, and what is made
    /// durable afterwards.
    Unsynced,
    /// Reads.
    Reads,
    /// Hears of other processes' writes and tells them of ours.
    Signals,
    /// Creates and checks the schema, before there is one.
    Setup,
}

/// A statement waits so long for a lock, and then is tried again. Much shorter than a lease: what a turn's commit holds
/// while it waits, the renewal of that turn needs.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// What takes longer is not coming: the connection is given up.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Whoever is asked to cancel a statement gets so long to take note.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

const WHEN_STARTED: &str = "SELECT extract(epoch FROM pg_postmaster_start_time())::text;";

/// Why there is no connection.
enum NotConnected {
    NoAnswer,
    NoToken(String),
    Driver(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for NotConnected {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl NotConnected {
    /// What is wrong with the encryption, if that is it.
    fn tls_trouble(&self) -> Option<String> {
        match self {
            Self::NoAnswer | Self::NoToken(_) => None,
            Self::Driver(error) => tls::trouble(error),
        }
    }
}

/// Makes connections.
pub(crate) struct Connector {
    pub(crate) target: DatabaseAddress,
    pub(crate) tls: Option<Tls>,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) schema: String,
    pub(crate) limits: StoreLimits,
    pub(crate) server_identity: Arc<ServerIdentity>,
}

impl Connector {
    /// Makes the first connection of a store, before there is a schema.
    pub(crate) async fn open(&self) -> Result<Session, PgError> {
        let (sender, _) = mpsc::unbounded_channel();
        self.connect_in_time(Purpose::Setup, sender).await.map_err(|error| {
            let (tls, failure) = (error.tls_trouble(), self.failure(error));
            match tls {
                Some(reason) => PgError::Tls { reason },
                None if failure.may_pass() => PgError::Connect { reason: failure.message },
                None => PgError::LoginRefused { reason: failure.message },
            }
        })
    }

    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<Session, Failure> {
        let (sender, _) = mpsc::unbounded_channel();
        self.connect_and_hear(purpose, sender).await
    }

    /// Connects; notifications of other processes go to `heard`.
    pub(crate) async fn connect_and_hear(
        &self,
        purpose: Purpose,
        heard: mpsc::UnboundedSender<Notification>,
    ) -> Result<Session, Failure> {
        // It could be made when the store was opened, so whatever is wrong now may pass.
        let failed = |error| Failure { kind: FailureKind::Lost, ..self.failure(error) };
        self.connect_in_time(purpose, heard).await.map_err(failed)
    }

    /// Connects, or gives up: a server that accepts and then says nothing must not hold anybody up for ever.
    async fn connect_in_time(
        &self,
        purpose: Purpose,
        heard: mpsc::UnboundedSender<Notification>,
    ) -> Result<Session, NotConnected> {
        let connected = within(ANSWER_TIMEOUT, self.connect_patiently(purpose, heard)).await;
        connected.unwrap_or(Err(NotConnected::NoAnswer))
    }

    async fn connect_patiently(
        &self,
        purpose: Purpose,
        heard: mpsc::UnboundedSender<Notification>,
    ) -> Result<Session, NotConnected> {
        let mut config = self.target.config.clone();
        if let Some(tokens) = &self.tokens {
            config.password(tokens.token().await.map_err(NotConnected::NoToken)?);
        }
        let (client, driver) = match &self.tls {
            Some(tls) if self.target.protection != Protection::Plain => {
                let (client, connection) = config.connect(tls.clone()).await?;
                (client, tokio::spawn(drive(connection, heard)))
            }
            _ => {
                let (client, connection) = config.connect(NoTls).await?;
                (client, tokio::spawn(drive(connection, heard)))
            }
        };
        let answers = client.simple_query(&format!("{} {WHEN_STARTED}", self.settings(purpose))).await;
        let answers = answers.inspect_err(|_| driver.abort())?;
        let started = answers.iter().rev().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let server = self.server_identity.reach(started.unwrap_or_default());
        Ok(Session {
            client,
            driver,
            purpose,
            tls: self.tls.clone().filter(|_| self.target.protection != Protection::Plain),
            statements: Mutex::default(),
            server,
            server_identity: self.server_identity.clone(),
        })
    }

    /// What a caller hears who may try again.
    fn failure(&self, error: NotConnected) -> Failure {
        let tls_trouble = error.tls_trouble();
        let error = match error {
            NotConnected::NoAnswer => return Failure::lost("PostgreSQL does not answer"),
            NotConnected::NoToken(why) => return Failure::lost(format!("no token to log in with: {why}")),
            NotConnected::Driver(error) => error,
        };
        let is_refused = error.code().is_some_and(|code| code.code().starts_with("28"));
        let mut failure = Failure { kind: kind_of(&error), message: describe(&error) };
        if let Some(reason) = tls_trouble {
            failure.message = reason;
        }
        // The next token may be taken.
        if is_refused && self.tokens.is_some() {
            failure.kind = FailureKind::Lost;
        }
        // The server says so in its own language, or in none; this is a hint, and decides nothing.
        if is_refused && failure.message.contains("no encryption") {
            failure.message += "; if the server demands encryption, set sslmode=verify-full in the URL";
        }
        failure
    }

    fn settings(&self, purpose: Purpose) -> String {
        let lock_timeout = LOCK_TIMEOUT.as_millis();
        let path = quoted(&self.schema);
        let StoreLimits { max_turn_messages, max_turn_bytes, .. } = self.limits;
        // All statements are index probes, whatever the planner thinks of tables that it has not analysed yet, and
        // planning them once is enough.
        let probes = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
            SET plan_cache_mode = force_generic_plan;";
        let common = format!(
            "SET search_path TO {path}; SET lock_timeout = {lock_timeout}; SET jit = off;
             SET idle_in_transaction_session_timeout = 60000; SET client_min_messages = warning;
             SET default_transaction_isolation = 'read committed'; SET standard_conforming_strings = on;
             SET duroxide.max_turn_messages = {}; SET duroxide.max_turn_bytes = {};",
            i32::try_from(max_turn_messages.max(1)).unwrap_or(i32::MAX - 1),
            i64::try_from(max_turn_bytes).unwrap_or(i64::MAX),
        );
        match purpose {
            // Whatever the server's default, data is on its disk before it is acknowledged.
            Purpose::Data => format!(
                "{common} {probes}
                 SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
            ),
            Purpose::Unsynced => format!("{common} {probes} SET synchronous_commit = off;"),
            Purpose::Reads | Purpose::Signals => common,
            Purpose::Setup => "SET client_min_messages = warning;".into(),
        }
    }
}

/// Moves bytes and hands on notifications until the connection ends.
async fn drive<S, T>(mut connection: Connection<S, T>, heard: mpsc::UnboundedSender<Notification>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message {
            // If nobody listens, nobody wants to know.
            let _ = heard.send(notification);
        }
    }
}

/// A connection. It ends when it is dropped.
pub(crate) struct Session {
    client: Client,
    driver: JoinHandle<()>,
    purpose: Purpose,
    /// How it is encrypted, if it is.
    tls: Option<Tls>,
    statements: Mutex<HashMap<&'static str, Statement>>,
    /// The number of the server at its other end.
    server: u64,
    server_identity: Arc<ServerIdentity>,
}

impl Session {
    /// Tells whether it should be used no more: it has ended, or another has reached another server since.
    pub(crate) fn is_over(&self) -> bool {
        self.client.is_closed() || self.server != self.server_identity.number()
    }

    /// The number of the server at its other end.
    pub(crate) fn server(&self) -> u64 {
        self.server
    }

    /// Ends a connection on which an answer did not come in time, and lets the server cancel what it is at.
    ///
    /// Not so where data is committed: a commit that waits for a standby would be seen by others before the standby has it.
    /// What such a connection leaves behind is ended by whoever begins the next epoch, if it is in the way.
    pub(crate) fn cut(&self) {
        let driver = self.driver.abort_handle();
        if self.purpose == Purpose::Data {
            return driver.abort();
        }
        let (token, tls) = (self.client.cancel_token(), self.tls.clone());
        tokio::spawn(async move {
            let cancelled = async {
                match tls {
                    Some(tls) => token.cancel_query(tls).await,
                    None => token.cancel_query(NoTls).await,
                }
            };
            // If that cannot be said either, the server notices by itself that nobody listens.
            let _ = within(CANCEL_TIMEOUT, cancelled).await;
            driver.abort();
        });
    }

    /// Prepares a statement, unless it has been.
    pub(crate) async fn prepare(&self, sql: &'static str) -> Result<Statement, tokio_postgres::Error> {
        let known = self.statements().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements().insert(sql, statement.clone());
        Ok(statement)
    }

    /// Runs a prepared statement. What is sent before the answer to this arrives is pipelined.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.prepare(sql).await?;
        self.client.query(&statement, params).await
    }

    /// Runs statements without parameters and without answers.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    /// Runs a statement that is made up at run time, without preparing it for others.
    pub(crate) async fn query_once(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.query(sql, params).await
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let target = DatabaseAddress::parse(&format!("postgres://u:secret@127.0.0.1:{port}/d")).unwrap();
        let connector = Connector {
            target,
            tls: None,
            tokens: None,
            schema: "public".into(),
            limits: Default::default(),
            server_identity: Arc::default(),
        };
        let failure = connector.connect(Purpose::Data).await.err().unwrap();
        assert!(failure.may_pass() && failure.message.contains("does not answer"), "{}", failure.message);
        drop(silent);
    }

    struct Never;

    #[async_trait]
    impl TokenSource for Never {
        async fn token(&self) -> Result<String, String> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_never_comes_is_not_waited_for() {
        let target = DatabaseAddress::parse("postgres://u@127.0.0.1:1/d").unwrap();
        let tokens: Option<Arc<dyn TokenSource>> = Some(Arc::new(Never));
        let connector = Connector {
            target,
            tls: None,
            tokens,
            schema: "public".into(),
            limits: Default::default(),
            server_identity: Arc::default(),
        };
        assert!(connector.connect(Purpose::Data).await.is_err_and(|failure| failure.may_pass()));
    }
}
