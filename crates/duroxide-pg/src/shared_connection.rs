//! A connection that many callers share, and that connects again when it is lost.
//!
//! It pipelines the statements of concurrent callers; each is a transaction of its own.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::address::quoted;
use crate::error::{Failure, FailureKind, QueryError};
use crate::pipeline::{Sent, in_order};
use crate::session::{ANSWER_TIMEOUT, Connector, METRICS, Session};
use crate::settings::Purpose;
use crate::signals::Hearing;

/// The values of a statement's parameters.
pub(crate) type Columns<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A shared connection.
pub(crate) struct SharedConnection {
    connector: Arc<Connector>,
    purpose: Purpose,
    /// How long it retries a call before the caller hears of the failure.
    patience: Duration,
    /// Held while connecting, so that one caller connects and the others wait for it.
    current: Arc<Mutex<Option<Arc<Session>>>>,
    /// How often callers have used it.
    uses: Arc<AtomicU64>,
    /// How long it may be idle before it closes; `None` if it stays open.
    idle: Option<Duration>,
    listener: Option<Listener>,
}

/// The channel to listen to on each new connection, and where its notifications go.
struct Listener {
    channel: String,
    connections: mpsc::UnboundedSender<Hearing>,
}

impl SharedConnection {
    pub(crate) fn new(connector: Arc<Connector>, purpose: Purpose, patience: Duration) -> Self {
        let (current, uses) = (Arc::default(), Arc::default());
        Self { connector, purpose, patience, current, uses, idle: None, listener: None }
    }

    /// Closes the connection after no caller has used it for `idle`.
    pub(crate) fn close_after(self, idle: Duration) -> Self {
        Self { idle: Some(idle), ..self }
    }

    /// Listens to a channel; sends the notifications of each new connection to `connections`.
    pub(crate) fn listen(self, channel: String, connections: mpsc::UnboundedSender<Hearing>) -> Self {
        Self { listener: Some(Listener { channel, connections }), ..self }
    }

    /// Connects, unless there is a connection.
    pub(crate) async fn keep_up(&self) -> Result<(), Failure> {
        self.session().await.map(drop)
    }

    /// Runs one statement, once.
    pub(crate) async fn query_briefly(
        &self,
        sql: &'static str,
        params: Columns<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let session = self.session().await?;
        let outcome = in_time(session.query(sql, params)).await;
        self.judge(&session, outcome).await
    }

    /// Runs one statement, again if the failure may pass.
    pub(crate) async fn query(&self, sql: &'static str, params: Columns<'_>) -> Result<Vec<Row>, Failure> {
        let answers = self.pipeline(&[(sql, params)]).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Sends all statements before the server answers the first; runs them again if a failure may pass.
    pub(crate) async fn pipeline(
        &self,
        statements: &[(&'static str, Columns<'_>)],
    ) -> Result<Vec<Vec<Row>>, Failure> {
        let mut trials = Trials::new(self.patience);
        loop {
            match self.attempt(statements).await {
                Ok(answers) => return Ok(answers),
                Err(failure) if !failure.may_pass() || !trials.wait().await => return Err(failure),
                Err(_) => {}
            }
        }
    }

    /// Runs a statement, again if the failure may pass. If an answer was lost, `undo` takes back what the statement may have
    /// done: before the next try, or in the background if there is none.
    pub(crate) async fn query_or_undo(
        self: &Arc<Self>,
        statement: (&'static str, Columns<'_>),
        undo: (&'static str, Vec<Box<dyn ToSql + Send + Sync>>),
    ) -> Result<Vec<Row>, Failure> {
        let mut trials = Trials::new(self.patience);
        let mut may_have_happened = false;
        let (undo, undo_params) = undo;
        loop {
            let params: Vec<&(dyn ToSql + Sync)> = undo_params.iter().map(|param| &**param as _).collect();
            let both = [(undo, params.as_slice()), statement];
            let tried = self.attempt(if may_have_happened { &both } else { &both[1..] }).await;
            let failure = match tried {
                Ok(mut answers) => return Ok(answers.pop().unwrap_or_default()),
                Err(failure) => failure,
            };
            may_have_happened |= failure.kind == FailureKind::Lost;
            if failure.may_pass() && !failure.is_damage() && trials.wait().await {
                continue;
            }
            drop(params);
            if may_have_happened {
                let this = self.clone();
                tokio::spawn(async move {
                    let params: Vec<&(dyn ToSql + Sync)> =
                        undo_params.iter().map(|param| &**param as _).collect();
                    // If this fails too, the leases run out by themselves.
                    let _ = this.query(undo, &params).await;
                });
            }
            return Err(failure);
        }
    }

    /// Runs statements once.
    async fn attempt(&self, statements: &[(&'static str, Columns<'_>)]) -> Result<Vec<Vec<Row>>, Failure> {
        let session = self.session().await?;
        let outcome = in_time(all(&session, statements)).await;
        self.judge(&session, outcome).await
    }

    /// Runs a statement that is made up at run time.
    #[cfg(feature = "test-hooks")]
    pub(crate) async fn query_once(&self, sql: &str) -> Result<Vec<Row>, Failure> {
        let session = self.session().await?;
        let outcome = in_time(session.query_once(sql, &[])).await;
        self.judge(&session, outcome).await
    }

    /// Drops the connection if that is what failed.
    async fn judge<T>(
        &self,
        session: &Arc<Session>,
        outcome: Option<Result<T, QueryError>>,
    ) -> Result<T, Failure> {
        let failure = match outcome {
            Some(Ok(value)) => return Ok(value),
            Some(Err(error)) => Failure::from(error),
            None => {
                session.cut();
                Failure::lost("PostgreSQL does not answer")
            }
        };
        if failure.kind == FailureKind::Lost {
            self.give_up(session).await;
        }
        Err(failure)
    }

    /// Returns the connection; makes it if there is none.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Failure> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.is_over()) {
            return Ok(session.clone());
        }
        *current = None;
        let session = Arc::new(self.connect().await?);
        *current = Some(session.clone());
        drop(current);
        if let Some(idle) = self.idle {
            let (current, uses) = (Arc::downgrade(&self.current), self.uses.clone());
            tokio::spawn(give_up_when_idle(current, uses, idle));
        }
        Ok(session)
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let Some(listener) = &self.listener else { return self.connector.connect(self.purpose).await };
        let (heard, hearing) = mpsc::unbounded_channel();
        let session = self.connector.connect_and_hear(self.purpose, heard).await?;
        if !session.is_pooled() {
            let listen = format!("LISTEN {}", quoted(&listener.channel));
            in_time(session.run(&listen))
                .await
                .ok_or_else(|| Failure::lost("PostgreSQL does not answer"))??;
        }
        // If the receiver is gone, the store is being dropped.
        let _ = listener.connections.send(hearing);
        Ok(session)
    }

    async fn give_up(&self, session: &Arc<Session>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            *current = None;
        }
    }
}

/// Closes a connection after no caller has used it for `idle`.
async fn give_up_when_idle(current: Weak<Mutex<Option<Arc<Session>>>>, uses: Arc<AtomicU64>, idle: Duration) {
    let mut seen = uses.load(Ordering::Relaxed);
    loop {
        SystemClock.sleep(idle).await;
        let Some(current) = current.upgrade() else { return };
        let mut current = current.lock().await;
        let is_in_use = current.as_ref().is_some_and(|session| Arc::strong_count(session) > 1);
        let now = uses.load(Ordering::Relaxed);
        if now == seen && !is_in_use {
            *current = None;
            return;
        }
        seen = now;
    }
}

async fn all(
    session: &Session,
    statements: &[(&'static str, Columns<'_>)],
) -> Result<Vec<Vec<Row>>, QueryError> {
    for (sql, _) in statements {
        session.prepare(sql).await?;
    }
    let sent = statements.iter().map(|statement| -> Sent<'_> {
        let (sql, params) = *statement;
        Box::pin(session.query(sql, params))
    });
    in_order(sent.collect()).await.into_iter().collect()
}

/// Waits for an answer no longer than [`ANSWER_TIMEOUT`].
pub(crate) async fn in_time<T>(answer: impl Future<Output = T>) -> Option<T> {
    within(ANSWER_TIMEOUT, answer).await
}

/// Waits for an answer no longer than `patience`, by the machine's clock: real connections do not follow a test's
/// clock.
pub(crate) async fn within<T>(patience: Duration, answer: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = SystemClock.sleep(patience) => None,
    }
}

/// Waiting between trials: short at first, longer each time, never the same for two callers.
pub(crate) struct Trials {
    deadline: Duration,
    next: Duration,
}

const SHORTEST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

impl Trials {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { deadline: SystemClock.monotonic().saturating_add(patience), next: SHORTEST_WAIT }
    }

    /// Waits before the next trial; `false` if there should be none.
    pub(crate) async fn wait(&mut self) -> bool {
        let now = SystemClock.monotonic();
        if now >= self.deadline {
            return false;
        }
        METRICS.retried();
        let wait = jittered(self.next).min(self.deadline - now);
        self.next = (self.next * 2).min(LONGEST_WAIT);
        SystemClock.sleep(wait).await;
        true
    }
}

/// Returns a random duration between a half and one and a half of this one.
pub(crate) fn jittered(duration: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() % 1_000;
    let permille = 500 + u32::try_from(random).unwrap_or(0);
    (duration / 1_000).saturating_mul(permille)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jittered_duration_is_about_the_one_given_whatever_its_length() {
        for duration in [Duration::ZERO, Duration::from_millis(5), Duration::from_secs(3_600), Duration::MAX]
        {
            for _ in 0..100 {
                let random = jittered(duration);
                assert!(
                    random >= duration / 1_000 * 500 && random <= duration.saturating_mul(2),
                    "{random:?}"
                );
            }
        }
    }
}
