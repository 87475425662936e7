//! The connection of a committer, and the epochs in which its batches count.
//!
//! Each batch writes its number into the committer's row, in its own transaction. A committer that did not hear the answer to
//! a commit begins another epoch, on another connection. The server then waits for a transaction that has written its
//! number, refuses transactions of the earlier epoch that come later, and tells which batch was the last.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::error::{Failure, FailureKind, QueryError};
use crate::functions::{Function, params};
use crate::session::{Connector, Session};
use crate::settings::Purpose;
use crate::shared_connection::{Trials, in_time};
use crate::statements::BatchMemory;
use crate::transaction::BEGIN_BATCH;

static BEGIN_EPOCH: Function = Function::rows("begin_epoch_4");
static END_EPOCH: Function = Function::value("end_epoch_1");
/// The server forgets a committer that has shown no life for a day (`forget_committers_1`). If the server does not know a
/// committer that was away for half a day, this process takes it that the server forgot it, and did not lose it in a crash.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(12 * 60 * 60);
/// Ends the backend that holds a committer's row: an earlier connection of the same process, whose answer the process
/// no longer hears. Spares a commit that waits for a standby: ended, others would see it before the standby has it.
const END_HOLDER: &str = "SELECT l.pid, a.wait_event IS NOT DISTINCT FROM 'SyncRep' AS waits_for_standby,
        CASE WHEN a.wait_event IS DISTINCT FROM 'SyncRep' THEN pg_terminate_backend(l.pid, 2000) END AS has_ended
    FROM committers c
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE c.committer = $1 AND l.pid <> pg_backend_pid()";

/// How far a committer has come. The early committer watches the synced one's progress, which makes its own batches
/// durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Which connection the committer has; another one may lead to a server that has lost what was not synced.
    pub(crate) connection: u64,
    /// The last batch that is durable.
    pub(crate) durable: i64,
}

/// A connection and the epoch in which its batches count.
pub(crate) struct Connected {
    pub(crate) session: Session,
    pub(crate) epoch: i64,
}

/// What a server knew when a connection was made: its last batch, and the last that this process had sent by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerMemory {
    last: i64,
    sent: i64,
}

impl ServerMemory {
    /// Tells whether the server has forgotten a batch that it had committed before.
    pub(crate) fn lacks(self, batch: i64) -> bool {
        self.last < batch && batch <= self.sent
    }
}

/// The last batch that the server has committed, as it said when an epoch was begun.
pub(crate) struct LastBatch {
    pub(crate) number: i64,
    pub(crate) memory: BatchMemory,
    /// The server has forgotten this committer, and with it which batches it committed.
    pub(crate) is_forgotten: bool,
}

/// The epochs of one committer.
pub(crate) struct Epochs {
    connector: Arc<Connector>,
    purpose: Purpose,
    /// The committer's name.
    name: String,
    /// The server may have forgotten a committer that was away for so long.
    forgotten_after: Duration,
    patience: Duration,
    connection: Option<Connected>,
    /// What the server knew each time this committer connected.
    known: Vec<ServerMemory>,
    /// When the server last answered, by the machine's wall clock, which goes on while the machine sleeps.
    heard_at_ms: Option<u64>,
    /// The server has forgotten which of the batches up to this one it committed.
    uncertain_up_to: Option<i64>,
    progress: watch::Sender<Progress>,
}

impl Epochs {
    pub(crate) fn new(
        connector: Arc<Connector>,
        purpose: Purpose,
        forgotten_after: Duration,
        patience: Duration,
    ) -> (Self, watch::Receiver<Progress>) {
        let (progress, watched) = watch::channel(Progress::default());
        let epochs = Self {
            connector,
            purpose,
            name: uuid::Uuid::new_v4().simple().to_string(),
            forgotten_after,
            patience,
            connection: None,
            known: Vec::new(),
            heard_at_ms: None,
            uncertain_up_to: None,
            progress,
        };
        (epochs, watched)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn connection(&self) -> Option<&Connected> {
        self.connection.as_ref()
    }

    /// Makes sure that there is a connection; `sent` is the last batch that was sent.
    pub(crate) async fn connect(&mut self, sent: i64) -> Result<(), Failure> {
        match &self.connection {
            Some(connection) if !connection.session.is_over() => Ok(()),
            _ => self.begin(sent).await.map(drop),
        }
    }

    /// Gives up the connection; the next one begins another epoch.
    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Notes that the server has committed a batch.
    pub(crate) fn note_committed(&mut self, number: i64) {
        self.heard_at_ms = Some(SystemClock.now_ms());
        if self.connection.as_ref().is_some_and(|connection| connection.session.is_over()) {
            // Other connections may lead to another server, and this commit proves nothing about that one.
            self.connection = None;
            self.progress.send_modify(|progress| progress.connection += 1);
        } else {
            self.progress.send_modify(|progress| progress.durable = number);
        }
    }

    /// Makes sure that the connection leads to the server that other connections reach, and that this server has not
    /// crashed.
    pub(crate) async fn check(&mut self, sent: i64) -> Result<(), Failure> {
        if let Some(connection) = &self.connection {
            let answer = in_time(connection.session.query("SELECT 1", &[])).await;
            if !matches!(answer, Some(Ok(_))) {
                self.connection = None;
            }
        }
        let mut trials = Trials::new(self.patience);
        loop {
            match self.connect(sent).await {
                Err(failure) if !failure.may_pass() || !trials.wait().await => return Err(failure),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Takes what the server knew each time this committer connected since the last call.
    pub(crate) fn take_server_memories(&mut self) -> Vec<ServerMemory> {
        std::mem::take(&mut self.known)
    }

    /// Tells, once, up to which batch the outcomes are unknown, if the server has forgotten this committer.
    pub(crate) fn take_uncertain(&mut self) -> Option<i64> {
        self.uncertain_up_to.take()
    }

    /// Connects, and makes sure that the server can no longer commit anything of an earlier connection.
    pub(crate) async fn begin(&mut self, sent: i64) -> Result<LastBatch, Failure> {
        self.connection = None;
        let session = self.connector.connect(self.purpose).await?;
        let mut asked = self.ask(&session).await?;
        if asked.as_ref().is_err_and(|error| error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)) {
            self.end_holder(&session).await?;
            asked = self.ask(&session).await?;
        }
        // Whatever the transient failure is, another connection may do better.
        let rows = asked.map_err(|error| match Failure::from(error) {
            Failure { kind: FailureKind::Transient, message, .. } => Failure::lost(message),
            failure => failure,
        })?;
        let row = rows.into_iter().next().ok_or_else(|| Failure::lost("no epoch"))?;
        self.connection = Some(Connected { session, epoch: row.get("epoch") });
        let now = SystemClock.now_ms();
        let away =
            self.heard_at_ms.replace(now).map(|heard| Duration::from_millis(now.saturating_sub(heard)));
        let number = row.get("batch");
        let is_forgotten = is_forgotten(row.get("is_new"), away, self.forgotten_after);
        match is_forgotten {
            true => self.uncertain_up_to = Some(sent),
            false => self.known.push(ServerMemory { last: number, sent }),
        }
        self.progress.send_modify(|progress| progress.connection += 1);
        Ok(LastBatch { number, memory: BatchMemory::read(&row), is_forgotten })
    }

    /// Removes the committer from the server, except for its totals, which go to this slot. If that fails, the server
    /// forgets it by itself.
    pub(crate) async fn end(&mut self, slot: i32) {
        if let Some(Connected { session, epoch }) = self.connection.take()
            && !session.is_over()
        {
            let (sql, values) = END_EPOCH.call(params![p_committer: self.name, p_epoch: epoch, p_slot: slot]);
            let _ = in_time(session.query(sql, &values)).await;
        }
    }

    async fn ask(&self, session: &Session) -> Result<Result<Vec<Row>, QueryError>, Failure> {
        let begun = async {
            session.prepare(BEGIN_BATCH).await?;
            let (sql, values) = BEGIN_EPOCH.call(params![p_committer: self.name]);
            session.query(sql, &values).await
        };
        in_time(begun).await.ok_or_else(|| Failure::lost("PostgreSQL does not answer"))
    }

    /// Ends a transaction of an earlier connection of this committer that keeps the next epoch from beginning.
    async fn end_holder(&self, session: &Session) -> Result<(), Failure> {
        let held = |pid: i32, why: &str| {
            Failure::lost(format!(
                "an earlier connection of this process, backend {pid}, still holds its row in the table `committers` {why}"
            ))
        };
        let ended = in_time(session.query(END_HOLDER, &[&self.name])).await;
        let ended = ended.ok_or_else(|| Failure::lost("PostgreSQL does not answer"))?;
        let rows = ended.map_err(|error| {
            let why = format!("and cannot be ended: {}", Failure::from(error).message);
            Failure::lost(format!(
                "an earlier connection of this process still holds its row in the table `committers`, {why}"
            ))
        })?;
        for row in rows {
            let pid: i32 = row.get("pid");
            if row.get("waits_for_standby") {
                return Err(held(pid, "and waits for a standby"));
            }
            if !row.get::<_, Option<bool>>("has_ended").unwrap_or(false) {
                return Err(held(pid, "and does not end"));
            }
            tracing::warn!(target: "duroxide::providers::postgres", backend = pid,
                "ended an earlier connection of this process, whose transaction was in the way");
        }
        Ok(())
    }
}

/// Tells why the server does not know this committer. `true`: the committer was away for so long that the server forgot it.
/// `false`: the server knows it, or has lost it in a crash; then it has lost the latest batches too.
fn is_forgotten(is_unknown: bool, away: Option<Duration>, forgotten_after: Duration) -> bool {
    is_unknown && away.is_some_and(|away| away >= forgotten_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_away_for_too_long_does_not_take_what_is_forgotten_for_what_was_not_committed() {
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
        assert!(is_forgotten(true, hours(25), FORGOTTEN_AFTER));
        assert!(!is_forgotten(false, hours(25), FORGOTTEN_AFTER), "it is known");
        assert!(!is_forgotten(true, hours(1), FORGOTTEN_AFTER), "the server has crashed");
        assert!(!is_forgotten(true, None, FORGOTTEN_AFTER), "it has just begun");
    }

    #[test]
    fn a_batch_that_one_server_had_forgotten_is_lost_whatever_the_next_one_knows() {
        // The server lost batch 5 in a crash and never committed 6; it committed 7, and its answer was lost.
        let known = [ServerMemory { last: 4, sent: 6 }, ServerMemory { last: 7, sent: 7 }];
        let is_lost = |batch| known.iter().any(|known| known.lacks(batch));
        assert_eq!([3, 4, 5, 6, 7, 8].map(is_lost), [false, false, true, true, false, false]);
    }
}
