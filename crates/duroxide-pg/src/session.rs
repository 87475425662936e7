//! One connection, set up for what it is used for, with its prepared statements.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Notification, Row, Statement};

use crate::error::Failure;
use crate::target::{Protection, Target, quoted};
use crate::tls::Tls;

/// Gives the password of each new connection: the short-lived token of a cloud identity.
#[async_trait]
pub trait TokenSource: Send + Sync {
    /// Returns a token that is good for one connection. The error's text may be logged; it must hold no secret.
    async fn token(&self) -> Result<String, String>;
}

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Writes data: what is acknowledged is on the server's disk.
    Data,
    /// Takes and gives back leases, which need not survive a crash of the server.
    Leases,
    /// Reads.
    Reads,
    /// Hears of other processes' writes and tells them of ours.
    Signals,
    /// Creates and checks the schema, before there is one.
    Setup,
}

/// A statement waits so long for a lock, and then is tried again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// What takes longer is not coming: the connection is given up.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes connections.
pub(crate) struct Dialer {
    pub(crate) target: Target,
    pub(crate) tls: Option<Tls>,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) schema: String,
}

impl Dialer {
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
        let mut config = self.target.config.clone();
        if let Some(tokens) = &self.tokens {
            let token = tokens.token().await;
            config.password(token.map_err(|why| Failure::lost(format!("no token to log in with: {why}")))?);
        }
        let refused = |error: tokio_postgres::Error| self.refused(error);
        let (client, driver) = match &self.tls {
            Some(tls) if self.target.protection != Protection::Plain => {
                let (client, connection) = config.connect(tls.clone()).await.map_err(refused)?;
                (client, tokio::spawn(drive(connection, heard)))
            }
            _ => {
                let (client, connection) = config.connect(NoTls).await.map_err(refused)?;
                (client, tokio::spawn(drive(connection, heard)))
            }
        };
        let session = Session { client, driver, statements: Mutex::default() };
        session.client.batch_execute(&self.settings(purpose)).await?;
        Ok(session)
    }

    /// Not being let in may pass if the password is a token that is made anew each time.
    fn refused(&self, error: tokio_postgres::Error) -> Failure {
        let mut failure = Failure::from(error);
        let is_rejected = failure.message.ends_with("(28000)") || failure.message.ends_with("(28P01)");
        if is_rejected && self.tokens.is_some() {
            failure.kind = crate::error::FailureKind::Lost;
        }
        failure
    }

    fn settings(&self, purpose: Purpose) -> String {
        let lock_timeout = LOCK_TIMEOUT.as_millis();
        let path = quoted(&self.schema);
        // All statements are index probes, whatever the planner thinks of tables that it has not analysed yet, and
        // planning them once is enough.
        let probes = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
            SET plan_cache_mode = force_generic_plan;";
        let common = format!(
            "SET search_path TO {path}; SET lock_timeout = {lock_timeout}; SET jit = off;
             SET idle_in_transaction_session_timeout = 60000; SET client_min_messages = warning;
             SET default_transaction_isolation = 'read committed'; SET standard_conforming_strings = on;"
        );
        match purpose {
            // Whatever the server's default, data is on its disk before it is acknowledged.
            Purpose::Data => format!(
                "{common} {probes}
                 SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
            ),
            Purpose::Leases => format!("{common} {probes} SET synchronous_commit = off;"),
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
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl Session {
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Ends the connection at once, without a word to the server.
    pub(crate) fn cut(&self) {
        self.driver.abort();
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
