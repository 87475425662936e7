//! Connections: made for a purpose, proven to be ours, with their prepared statements.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::{StoreLimits, StoreMetrics};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Notification, Row, SimpleQueryMessage, Statement,
};

use crate::PgError;
use crate::address::{DatabaseAddress, Protection};
use crate::error::{Failure, FailureKind, QueryError, describe, kind_of};
use crate::pipeline::{Sent, in_one_piece, in_order};
use crate::pooling::Pooling;
use crate::proof::{ProvenStatement, SECRET, wire_type};
use crate::server_identity::ServerIdentity;
use crate::settings::{Purpose, STARTED, Settings, Way};
use crate::shared_connection::within;
use crate::tls::{self, Tls};

/// Gives the password of each new connection: the short-lived token of a cloud identity.
///
/// The store asks it once for each connection, also when it connects again, so it should keep a token for as long as
/// that is valid. A token that the server refuses is a failure that may pass: the next connection asks for another.
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
    /// Returns a token that is valid for one connection. The store may log the error's text; it must hold no secret.
    /// After half a minute without an answer the store gives this connection up, and tries again later.
    async fn token(&self) -> Result<String, String>;
}

/// The metrics of this store.
pub(crate) const METRICS: StoreMetrics = StoreMetrics::new("postgres");

/// If an answer takes longer, the store gives up the connection.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The `synchronous_commit` of commits that wait for the disk, unless the server's own is another.
const USUAL_LEVEL: &str = "on";
/// How long the server has to accept a request to cancel a statement.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no connection.
enum NotConnected {
    NoAnswer,
    NoToken(String),
    /// A pooler in front of the server takes no transactions.
    PoolsStatements,
    Driver(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for NotConnected {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl NotConnected {
    /// Tells what is wrong with the encryption, if the connection failed because of that.
    fn tls_trouble(&self) -> Option<String> {
        match self {
            Self::NoAnswer | Self::NoToken(_) | Self::PoolsStatements => None,
            Self::Driver(error) => tls::trouble(error),
        }
    }
}

const POOLS_STATEMENTS: &str = "a pooler in front of it takes no transactions; set pool_mode = transaction or session \
    there, or let the URL lead to the server itself";

/// Makes connections.
pub(crate) struct Connector {
    pub(crate) target: DatabaseAddress,
    pub(crate) tls: Option<Tls>,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) schema: String,
    pub(crate) limits: StoreLimits,
    pub(crate) server_identity: Arc<ServerIdentity>,
    pub(crate) pooling: Arc<Pooling>,
    /// The `synchronous_commit` of commits that wait for the disk, as the server had it when the store was opened.
    pub(crate) synced: OnceLock<String>,
    /// Each session holds a clone, so its reference count tells how many are open.
    pub(crate) open_sessions: Arc<()>,
}

/// A connection: the client's end, and the task that drives it.
struct Login {
    client: Client,
    driver: JoinHandle<()>,
    /// Its sender is gone when the connection is.
    alive: watch::Receiver<()>,
}

impl Drop for Login {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connector {
    /// Makes the first connection of a store, before there is a schema.
    pub(crate) async fn open(&self) -> Result<Session, PgError> {
        let (sender, _) = mpsc::unbounded_channel();
        self.connect_in_time(Purpose::Setup, sender).await.map_err(|error| {
            if matches!(error, NotConnected::PoolsStatements) {
                return PgError::Unsupported { reason: POOLS_STATEMENTS.into() };
            }
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
        // The store could connect when it was opened, so whatever is wrong now may pass.
        let failed = |error| Failure { kind: FailureKind::Lost, ..self.failure(error) };
        self.connect_in_time(purpose, heard).await.map_err(failed)
    }

    /// Connects, or gives up: a server that accepts and then says nothing must not hold up the caller for ever.
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
        let token = match &self.tokens {
            Some(tokens) => Some(tokens.token().await.map_err(NotConnected::NoToken)?),
            None => None,
        };
        let mut failed = NotConnected::NoAnswer;
        for (place, config) in self.target.hosts_in_turn() {
            let mut config = config.clone();
            if let Some(token) = &token {
                config.password(token);
            }
            let connecting = self.connect_to(&config, purpose, heard.clone());
            match within(self.target.patience(), connecting).await.unwrap_or(Err(NotConnected::NoAnswer)) {
                Ok(session) => {
                    self.target.reached(place);
                    return Ok(session);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Connects to one of the hosts.
    async fn connect_to(
        &self,
        config: &Config,
        purpose: Purpose,
        heard: mpsc::UnboundedSender<Notification>,
    ) -> Result<Session, NotConnected> {
        if self.pooling.way() == Way::Pooled {
            return self.connect_pooled(config, purpose, heard).await;
        }
        match self.connect_directly(config, purpose, heard.clone()).await {
            Ok(Some(session)) => Ok(session),
            Ok(None) => {
                let session = self.connect_pooled(config, purpose, heard).await?;
                self.pooling.is_met("it ignores the settings of a new connection");
                Ok(session)
            }
            Err(NotConnected::Driver(error)) if refuses_settings(&error) => {
                let session = self.connect_pooled(config, purpose, heard).await?;
                self.pooling.is_met("it refuses the settings of a new connection");
                Ok(session)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a connection that gets its settings at login; `None` if the session does not have them.
    async fn connect_directly(
        &self,
        given: &Config,
        purpose: Purpose,
        heard: mpsc::UnboundedSender<Notification>,
    ) -> Result<Option<Session>, NotConnected> {
        let mut config = given.clone();
        let secret = new_secret();
        let settings = self.settings(purpose, Way::Direct);
        config.options(settings.as_options(given.get_options(), &secret));
        config.application_name(purpose.application_name(given.get_application_name()));
        let login = self.log_in(config, heard).await?;
        let answers = login.client.simple_query(&ask_for_session()).await?;
        let Some([found, started, level]) = first_row(&answers) else { return Ok(None) };
        if found != secret {
            return Ok(None);
        }
        self.note_level(purpose, &level);
        Ok(Some(self.session(login, purpose, secret, &started, None)))
    }

    /// Makes a connection whose session the pooler may give away between two transactions.
    async fn connect_pooled(
        &self,
        given: &Config,
        purpose: Purpose,
        heard: mpsc::UnboundedSender<Notification>,
    ) -> Result<Session, NotConnected> {
        let mut config = given.clone();
        // The same for all our connections: a pooler sets it anew whenever it moves a session from one to another.
        config.application_name(given.get_application_name().unwrap_or("duroxide").to_string());
        let secret = new_secret();
        let begin = self.settings(purpose, Way::Pooled).as_beginning(&secret);
        let login = self.log_in(config, heard).await?;
        // Three messages, so that a pooler that takes them for three transactions shows it here.
        let ask = ask_for_session();
        let parts = [begin.as_str(), &ask, "COMMIT"].map(|sql| -> Pin<Box<dyn Future<Output = _> + Send>> {
            Box::pin(login.client.simple_query(sql))
        });
        let answers: Result<Vec<_>, tokio_postgres::Error> =
            in_order(parts.into()).await.into_iter().collect();
        let answers = answers.map_err(|error| match pools_statements(&error) {
            true => NotConnected::PoolsStatements,
            false => NotConnected::Driver(error),
        })?;
        let asked = answers.into_iter().nth(1).unwrap_or_default();
        let [found, started, level] = first_row(&asked).unwrap_or_default();
        if !found.starts_with(&secret) {
            return Err(NotConnected::PoolsStatements);
        }
        self.note_level(purpose, &level);
        Ok(self.session(login, purpose, found, &started, Some(begin)))
    }

    async fn log_in(
        &self,
        config: Config,
        heard: mpsc::UnboundedSender<Notification>,
    ) -> Result<Login, NotConnected> {
        let (is_alive, alive) = watch::channel(());
        Ok(match &self.tls {
            Some(tls) if self.target.protection != Protection::Plain => {
                let (client, connection) = config.connect(tls.clone()).await?;
                Login { client, driver: tokio::spawn(drive(connection, heard, is_alive)), alive }
            }
            _ => {
                let (client, connection) = config.connect(NoTls).await?;
                Login { client, driver: tokio::spawn(drive(connection, heard, is_alive)), alive }
            }
        })
    }

    fn session(
        &self,
        login: Login,
        purpose: Purpose,
        secret: String,
        started: &str,
        begin: Option<String>,
    ) -> Session {
        METRICS.connected(purpose.name());
        Session {
            login,
            purpose,
            tls: self.tls.clone().filter(|_| self.target.protection != Protection::Plain),
            secret,
            begin,
            statements: Mutex::default(),
            sending: Mutex::default(),
            has_begun: AtomicBool::new(false),
            is_foreign: AtomicBool::new(false),
            server: self.server_identity.reach(started),
            server_identity: self.server_identity.clone(),
            pooling: self.pooling.clone(),
            _is_open: self.open_sessions.clone(),
        }
    }

    fn settings(&self, purpose: Purpose, way: Way) -> Settings {
        let synced = self.synced.get().map_or(USUAL_LEVEL, String::as_str);
        Settings::new(purpose, way, &self.schema, &self.limits, synced)
    }

    /// Takes note of the server's `synchronous_commit`, on the one connection that does not set it. Whatever the
    /// server's default is or will be, data is on its disk before the store acknowledges it.
    fn note_level(&self, purpose: Purpose, level: &str) {
        if purpose == Purpose::Setup {
            let synced = if level.is_empty() || level == "off" { USUAL_LEVEL } else { level };
            let _ = self.synced.set(synced.to_string());
        }
    }

    /// Makes the failure that a caller hears, which tells whether it may pass.
    fn failure(&self, error: NotConnected) -> Failure {
        let tls_trouble = error.tls_trouble();
        let error = match error {
            NotConnected::NoAnswer => return Failure::lost("PostgreSQL does not answer"),
            NotConnected::NoToken(why) => return Failure::lost(format!("no token to log in with: {why}")),
            NotConnected::PoolsStatements => return Failure::lost(POOLS_STATEMENTS),
            NotConnected::Driver(error) => error,
        };
        let is_refused = error.code().is_some_and(|code| code.code().starts_with("28"));
        let code = error.code().cloned();
        let mut failure = Failure { kind: kind_of(&error), message: describe(&error), code };
        if let Some(reason) = tls_trouble {
            failure.message = reason;
        }
        // The server may accept the next token.
        if is_refused && self.tokens.is_some() {
            failure.kind = FailureKind::Lost;
        }
        // The server may say it in another language, or not at all; this is a hint, and decides nothing.
        if is_refused && failure.message.contains("no encryption") {
            failure.message += "; if the server demands encryption, set sslmode=verify-full in the URL";
        }
        failure
    }
}

fn new_secret() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Asks for the session's secret, when the server was started, and for its `synchronous_commit`.
fn ask_for_session() -> String {
    format!("SELECT current_setting('{SECRET}', true), {STARTED}, current_setting('synchronous_commit')")
}

fn first_row(answers: &[SimpleQueryMessage]) -> Option<[String; 3]> {
    let row = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })?;
    Some([0, 1, 2].map(|column| row.get(column).unwrap_or_default().to_string()))
}

/// Tells whether the pooler or the server refused a new connection because of its settings: as a break of the protocol
/// (PgBouncer), as unsupported (hosted proxies), or as an unknown setting.
fn refuses_settings(error: &tokio_postgres::Error) -> bool {
    let codes = [
        SqlState::PROTOCOL_VIOLATION,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INVALID_PARAMETER_VALUE,
        SqlState::UNDEFINED_OBJECT,
    ];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Tells whether a pooler has refused a transaction. It uses one code for all refusals, so its English text decides.
fn pools_statements(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| said.message().contains("statement pooling"))
}

/// Moves bytes and hands on notifications until the connection ends.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    heard: mpsc::UnboundedSender<Notification>,
    _is_alive: watch::Sender<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message {
            // If the receiver is gone, this connection does not listen.
            let _ = heard.send(notification);
        }
    }
}

/// A connection. Dropping it ends it.
pub(crate) struct Session {
    login: Login,
    purpose: Purpose,
    /// How the connection is encrypted; `None` if it is plain.
    tls: Option<Tls>,
    /// The value of the setting `duroxide.session` in our session.
    secret: String,
    /// The SQL that begins a transaction, with all settings, in a session that others use too; `None` if it is ours
    /// alone.
    begin: Option<String>,
    statements: Mutex<HashMap<&'static str, Arc<Ready>>>,
    /// Held while a caller sends a whole transaction, so that those of concurrent callers do not mix.
    sending: Mutex<()>,
    /// A transaction has begun, and the statements that follow are part of it.
    has_begun: AtomicBool,
    /// A statement ran in a session that is not ours.
    is_foreign: AtomicBool,
    /// The number of the server at the other end.
    server: u64,
    server_identity: Arc<ServerIdentity>,
    pooling: Arc<Pooling>,
    _is_open: Arc<()>,
}

/// A statement that can be sent.
struct Ready {
    proven: ProvenStatement,
    how: How,
}

enum How {
    /// The server has prepared it.
    Prepared(Statement),
    /// Each call sends its text, with the types of its parameters.
    Whole(Vec<Type>),
}

type Answer = Result<Vec<Row>, QueryError>;

impl Session {
    /// Tells whether callers must not use the session any more: it has ended, a later connection has reached another
    /// server, or it is not ours.
    pub(crate) fn is_over(&self) -> bool {
        let was_direct = self.begin.is_none() && self.pooling.way() == Way::Pooled;
        self.login.client.is_closed()
            || self.server != self.server_identity.number()
            || was_direct
            || self.is_foreign.load(Ordering::SeqCst)
    }

    /// Waits until the connection ends.
    pub(crate) async fn ended(&self) {
        let mut alive = self.login.alive.clone();
        while alive.changed().await.is_ok() {}
    }

    /// Returns the number of the server at the other end.
    pub(crate) fn server(&self) -> u64 {
        self.server
    }

    /// Tells whether a pooler may give the session to others between two transactions.
    pub(crate) fn is_pooled(&self) -> bool {
        self.begin.is_some()
    }

    /// Tells whether the commits of this session are on the server's disk when it answers.
    pub(crate) fn is_synced(&self) -> bool {
        match self.purpose {
            Purpose::Commits | Purpose::Removals => true,
            Purpose::Messages => self.is_pooled(),
            Purpose::Leases | Purpose::Renewals | Purpose::Reads | Purpose::Listings | Purpose::Setup => {
                false
            }
        }
    }

    /// Ends a connection on which an answer did not come in time, and lets the server cancel the statement.
    ///
    /// This cancels nothing on a connection that commits data: others would see a commit that waits for a standby
    /// before the standby has it. If the transaction that such a connection leaves behind is in the way, the committer
    /// ends it when it begins its next epoch.
    pub(crate) fn cut(&self) {
        let driver = self.login.driver.abort_handle();
        if matches!(self.purpose, Purpose::Commits | Purpose::Messages | Purpose::Removals) {
            return driver.abort();
        }
        let (token, tls) = (self.login.client.cancel_token(), self.tls.clone());
        tokio::spawn(async move {
            let cancelled = async {
                match tls {
                    Some(tls) => token.cancel_query(tls).await,
                    None => token.cancel_query(NoTls).await,
                }
            };
            // If the request does not get through either, the server notices by itself that the connection is gone.
            let _ = within(CANCEL_TIMEOUT, cancelled).await;
            driver.abort();
        });
    }

    /// Prepares a statement, unless the session has it. A session that others use too cannot keep it, so there each
    /// call sends the text.
    pub(crate) async fn prepare(&self, sql: &'static str) -> Result<(), QueryError> {
        if self.is_pooled() || self.statements().contains_key(sql) {
            return Ok(());
        }
        let proven = ProvenStatement::new(sql, &self.secret);
        let prepared = self.login.client.prepare(&proven.sql).await;
        let how = match prepared {
            Ok(statement) => How::Prepared(statement),
            Err(error) => return Err(self.judge(error).await),
        };
        self.statements().insert(sql, Arc::new(Ready { proven, how }));
        Ok(())
    }

    /// Runs a statement, in a transaction of its own unless one has begun. Callers may send more statements before the
    /// answer to this one arrives: they are pipelined.
    pub(crate) async fn query(&self, sql: &'static str, params: &[&(dyn ToSql + Sync)]) -> Answer {
        if self.purpose == Purpose::Setup {
            return self.query_once(sql, params).await;
        }
        self.prepare(sql).await?;
        let known = self.statements().get(sql).cloned();
        let ready = known.unwrap_or_else(|| {
            let proven = ProvenStatement::new(sql, &self.secret);
            let types = params.iter().map(|value| wire_type(*value)).collect();
            let ready = Arc::new(Ready { proven, how: How::Whole(types) });
            self.statements().insert(sql, ready.clone());
            ready
        });
        let rows = match &ready.how {
            How::Prepared(statement) => {
                self.login.client.query(statement, params).await.map_err(QueryError::from)
            }
            How::Whole(types) => {
                let typed = params.iter().copied().zip(types.iter().cloned()).collect();
                self.send_whole(&ready.proven.sql, typed).await
            }
        };
        match rows {
            Ok(rows) => ready
                .proven
                .read(rows)
                .ok_or_else(|| self.not_ours("a statement met a session that is not ours")),
            Err(QueryError::Driver(error)) => Err(self.judge(error).await),
            Err(foreign) => Err(foreign),
        }
    }

    /// Runs a statement that is made up at run time. The caller knows that the session is ours, or does not care.
    pub(crate) async fn query_once(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Answer {
        let typed = params.iter().map(|value| (*value, wire_type(*value))).collect();
        self.send_whole(sql, typed).await
    }

    /// Sends a statement with the types of its parameters. In a session that others use too, it sends the settings
    /// along, all in one round trip.
    async fn send_whole(&self, sql: &str, params: Vec<(&(dyn ToSql + Sync), Type)>) -> Answer {
        let client = &self.login.client;
        let has_begun = self.has_begun.load(Ordering::SeqCst);
        let Some(begin) = self.begin.as_ref().filter(|_| !has_begun && self.purpose != Purpose::Setup) else {
            return Ok(client.query_typed(sql, &params).await?);
        };
        let parts: Vec<Sent<'_>> = vec![
            Box::pin(async { Ok(client.batch_execute(begin).await.map(|()| Vec::new())?) }),
            Box::pin(async { Ok(client.query_typed(sql, &params).await?) }),
            Box::pin(async { Ok(client.batch_execute("COMMIT").await.map(|()| Vec::new())?) }),
        ];
        let answers = in_one_piece(&self.sending, parts).await;
        let parts: Result<Vec<Vec<Row>>, QueryError> = answers.into_iter().collect();
        Ok(parts?.swap_remove(1))
    }

    /// Begins a transaction; the statements that follow are part of it. With `lock_timeout`, they wait no longer than
    /// that for a lock.
    pub(crate) async fn begin(&self, lock_timeout: Option<Duration>) -> Result<(), QueryError> {
        self.has_begun.store(true, Ordering::SeqCst);
        let begin = self.begin.as_deref().unwrap_or("BEGIN");
        match lock_timeout {
            None => self.run(begin).await,
            Some(time) => self.run(&format!("{begin}; SET LOCAL lock_timeout = {}", time.as_millis())).await,
        }
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&self) -> Result<(), QueryError> {
        self.has_begun.store(false, Ordering::SeqCst);
        self.run("COMMIT").await
    }

    /// Runs statements without parameters and without answers.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), QueryError> {
        Ok(self.login.client.batch_execute(sql).await?)
    }

    /// Finds out whether the server refused a statement because the session is not ours.
    async fn judge(&self, error: tokio_postgres::Error) -> QueryError {
        let Some(code) = error.code().filter(|_| !self.is_pooled()) else { return error.into() };
        let unknown_statement = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
        if unknown_statement.contains(code) {
            return self.not_ours("it does not keep prepared statements");
        }
        // Statements find the schema's objects only by the session's search path.
        let unknown_name = [
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_FUNCTION,
            SqlState::UNDEFINED_COLUMN,
            SqlState::INVALID_SCHEMA_NAME,
        ];
        if unknown_name.contains(code)
            && let Ok(answers) = self.login.client.simple_query(&ask_for_session()).await
            && first_row(&answers).is_some_and(|[found, ..]| found != self.secret)
        {
            return self.not_ours("a statement met a session that is not ours");
        }
        error.into()
    }

    /// Notes that the session is not ours: the store does not use it again, and relies on no other session from here
    /// on.
    fn not_ours(&self, how: &'static str) -> QueryError {
        self.is_foreign.store(true, Ordering::SeqCst);
        if !self.is_pooled() {
            self.pooling.is_met(how);
        }
        QueryError::NotOurs
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Arc<Ready>>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector(target: DatabaseAddress, tokens: Option<Arc<dyn TokenSource>>) -> Connector {
        Connector {
            target,
            tls: None,
            tokens,
            schema: "public".into(),
            limits: Default::default(),
            server_identity: Arc::default(),
            pooling: Arc::default(),
            synced: OnceLock::new(),
            open_sessions: Arc::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let target = DatabaseAddress::parse(&format!("postgres://u:secret@127.0.0.1:{port}/d")).unwrap();
        let connector = connector(target, None);
        let failure = connector.connect(Purpose::Commits).await.err().unwrap();
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
        let connector = connector(target, tokens);
        assert!(connector.connect(Purpose::Commits).await.is_err_and(|failure| failure.may_pass()));
    }
}
