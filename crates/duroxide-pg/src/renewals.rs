//! Renewing leases, for many callers at once, on a connection of their own.
//!
//! A renewal waits for no row: the server skips a row that another transaction holds, and the store asks again a moment
//! later, while the others go on. A turn's commit that waits for a lock holds the row of its own lease, and lets go of
//! it between two attempts. The server renews a lease that was live when its caller asked, however long that takes,
//! unless another worker has taken over.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Failure, FailureKind, StoreError};
use crate::functions::{Function, params};
use crate::shared::Shared;
use crate::shared_connection::{SharedConnection, jittered};

static RENEW_TURNS: Function = Function::value("renew_turns_2");
static RENEW_WORK: Function = Function::value("renew_work_2");

/// Renewals in one call, at most.
const BATCH_SIZE: usize = 1_024;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The outcome of a renewal, as the functions answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RenewalOutcome {
    /// The token no longer holds the lease, or the lease has run out.
    NotHeld,
    Renewed,
    /// Another transaction holds the lease's row just now.
    Busy,
}

impl RenewalOutcome {
    fn read(code: i32) -> Self {
        match code {
            1 => Self::Renewed,
            2 => Self::Busy,
            _ => Self::NotHeld,
        }
    }
}

/// A lease to renew.
struct Renewal<K> {
    leased: K,
    token: String,
    extend_ms: i64,
    /// When the caller asked, by the store's monotonic clock; `None` if a lease that ran out long ago counts as live.
    arrived: Option<Duration>,
    /// When its caller hears that the renewal failed.
    deadline: Duration,
    reply: oneshot::Sender<Result<bool, StoreError>>,
}

/// Where callers hand in the renewals of one kind.
type Inbox<K> = mpsc::UnboundedSender<Renewal<K>>;

/// Renews leases. Dropping it ends that.
pub(crate) struct Renewals {
    turns: Inbox<String>,
    work: Inbox<i64>,
    shared: Arc<Shared>,
    patience: Duration,
}

/// The leased turn or activity, as a token names it.
pub(crate) enum Leased {
    Turn(String),
    Work(i64),
}

/// Since when a lease must have been live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiveSince {
    Now,
    /// Only a takeover counts.
    Ever,
}

/// Starts renewing on `connection`, which retries nothing by itself.
pub(crate) fn start(connection: Arc<SharedConnection>, shared: &Arc<Shared>, patience: Duration) -> Renewals {
    let (turns, asked) = mpsc::unbounded_channel();
    tokio::spawn(
        Renewing::new((&RENEW_TURNS, "p_instance"), connection.clone(), shared.clone(), asked).run(),
    );
    let (work, asked) = mpsc::unbounded_channel();
    tokio::spawn(Renewing::new((&RENEW_WORK, "p_id"), connection, shared.clone(), asked).run());
    Renewals { turns, work, shared: shared.clone(), patience }
}

impl Renewals {
    /// Extends a lease; `false` if it was not live or another worker holds it.
    pub(crate) async fn renew(
        &self,
        leased: Leased,
        token: &str,
        since: LiveSince,
        extend_ms: i64,
    ) -> Result<bool, StoreError> {
        match leased {
            Leased::Turn(instance) => self.ask(&self.turns, instance, token, since, extend_ms).await,
            Leased::Work(id) => self.ask(&self.work, id, token, since, extend_ms).await,
        }
    }

    async fn ask<K>(
        &self,
        inbox: &Inbox<K>,
        leased: K,
        token: &str,
        since: LiveSince,
        extend_ms: i64,
    ) -> Result<bool, StoreError> {
        self.shared.holder.note_lease(extend_ms);
        let (reply, answer) = oneshot::channel();
        let renewal = Renewal {
            leased,
            token: token.to_string(),
            extend_ms,
            arrived: (since == LiveSince::Now).then(|| self.shared.time.monotonic()),
            deadline: SystemClock.monotonic().saturating_add(self.patience),
            reply,
        };
        inbox.send(renewal).map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// The other end: gathers renewals and asks the database.
struct Renewing<K> {
    /// The function, and the name of its parameter for what is leased: instances or activities.
    function: (&'static Function, &'static str),
    connection: Arc<SharedConnection>,
    shared: Arc<Shared>,
    asked: mpsc::UnboundedReceiver<Renewal<K>>,
    /// Renewals without an answer yet.
    pending: Vec<Renewal<K>>,
    /// How often in a row some renewals stayed without an answer.
    vain: u32,
}

impl<K> Renewing<K>
where
    K: tokio_postgres::types::ToSql + Clone + Sync + Send + 'static,
{
    fn new(
        function: (&'static Function, &'static str),
        connection: Arc<SharedConnection>,
        shared: Arc<Shared>,
        asked: mpsc::UnboundedReceiver<Renewal<K>>,
    ) -> Self {
        Self { function, connection, shared, asked, pending: Vec::new(), vain: 0 }
    }

    async fn run(mut self) {
        while self.gather().await {
            // A caller that has gone away needs no renewal.
            self.pending.retain(|renewal| !renewal.reply.is_closed());
            if self.pending.is_empty() {
                continue;
            }
            let answers = self.ask().await;
            self.answer(answers);
            self.vain = if self.pending.is_empty() { 0 } else { self.vain.saturating_add(1) };
        }
    }

    /// Waits for renewals, or until it may ask again about those that are left; `false` when the handle is gone.
    async fn gather(&mut self) -> bool {
        if self.pending.is_empty() {
            return self.asked.recv_many(&mut self.pending, BATCH_SIZE).await > 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.vain.min(10)).min(LONGEST_PAUSE);
        let pause = SystemClock.sleep(jittered(pause));
        let room = BATCH_SIZE.saturating_sub(self.pending.len()).max(1);
        tokio::select! {
            biased;
            count = self.asked.recv_many(&mut self.pending, room) => count > 0,
            () = pause => true,
        }
    }

    async fn ask(&self) -> Result<Vec<RenewalOutcome>, Failure> {
        let now = self.shared.time.given_ms();
        let leased: Vec<K> = self.pending.iter().map(|renewal| renewal.leased.clone()).collect();
        let tokens: Vec<&str> = self.pending.iter().map(|renewal| renewal.token.as_str()).collect();
        let waited = |renewal: &Renewal<K>| {
            renewal.arrived.map_or(i64::MAX, |arrived| self.shared.time.waited_ms(arrived))
        };
        let waited: Vec<i64> = self.pending.iter().map(waited).collect();
        let extend: Vec<i64> = self.pending.iter().map(|renewal| renewal.extend_ms).collect();
        let (function, key) = self.function;
        let mut params = params![p_now: now, p_token: tokens, p_waited_ms: waited, p_extend_ms: extend];
        params.push((key, &leased));
        let (sql, values) = function.call(params);
        let rows = self.connection.query(sql, &values).await?;
        let codes: Vec<i32> = rows.first().map(|row| row.get(0)).unwrap_or_default();
        Ok(codes.into_iter().map(RenewalOutcome::read).collect())
    }

    /// Answers the callers whose outcome is known, and keeps the other renewals until their deadlines.
    fn answer(&mut self, answers: Result<Vec<RenewalOutcome>, Failure>) {
        let (answers, failure) = match answers {
            Ok(answers) => (answers, busy()),
            Err(failure) => (Vec::new(), failure),
        };
        let now = SystemClock.monotonic();
        let pending = std::mem::take(&mut self.pending);
        for (place, renewal) in pending.into_iter().enumerate() {
            let answer = match answers.get(place).copied().filter(|answer| *answer != RenewalOutcome::Busy) {
                Some(answer) => Ok(answer == RenewalOutcome::Renewed),
                None if failure.may_pass() && now < renewal.deadline => {
                    self.pending.push(renewal);
                    continue;
                }
                None => Err(failure.clone().into()),
            };
            let _ = renewal.reply.send(answer);
        }
    }
}

/// Makes the failure that a caller hears if another transaction holds the lease's row for too long.
pub(crate) fn busy() -> Failure {
    Failure {
        kind: FailureKind::Transient,
        message: "another transaction holds this lease's row".into(),
        code: None,
    }
}
