//! Group commit: one connection that commits for a whole process.
//!
//! Callers hand in jobs and wait. The committer takes the jobs that are there, sends them as one transaction (without
//! waiting between its statements, so a batch costs one round trip), and answers when the server has committed it.
//! While a commit is on its way, jobs gather: batches grow with the load by themselves, and a lone job does not wait.
//! Under load the committer lets tasks run first that may hand in a job: with several processes on one server, that
//! saves the server a third of its work.
//!
//! - A refused job leaves nothing behind and does not disturb its neighbours: the statements refuse each request by
//!   itself, before they write.
//! - A statement that fails all the same takes the batch with it. If the connection was lost, the committer tries the
//!   batch again on another; otherwise it tries the jobs one by one. So each caller hears its own failure, and a job
//!   that meets a lock does not hold up the others (`set_aside`). After a failure that will not pass, the jobs tried
//!   alone lease nothing along, so that no caller hears of a lease that failed.
//! - If the answer to a commit was lost, the committer looks it up before it tries anything again; see the table
//!   `committers`.
//!
//! There are two kinds: this one answers when a commit is on the server's disk; the commits of `early` become durable
//! afterwards.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::sync::{mpsc, watch};
use tokio_postgres::Row;
use tokio_postgres::error::{Severity, SqlState};

use crate::batch::{Batch, Verdicts};
use crate::columns::Mark;
use crate::error::{Failure, FailureKind, QueryError, StoreError};
use crate::fetch::RELEASE_CLAIMS;
use crate::give_backs::LeaseReturner;
use crate::jobs::{Answer, Job};
use crate::pipeline::in_order;
use crate::session::{Connector, METRICS, Session};
use crate::set_aside::{SetAside, Waiting};
use crate::settings::Purpose;
use crate::shared::Effects;
use crate::shared_connection::{Columns, Trials, in_time, within};

/// Jobs that wait, at most; more callers wait outside.
const INBOX_SIZE: usize = 4_096;
/// Jobs in one transaction, at most: bounds how long a commit can take.
pub(crate) const BATCH_SIZE: usize = 512;
/// After so many rounds of the other tasks without a new job, the committer stops waiting for more.
const QUIET_ROUNDS: usize = 8;
/// Bytes in one transaction, about and at most, unless one job alone has more.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

const BEGIN_BATCH: &str = "SELECT begin_batch_1($1, $2, $3)";
const BEGIN_EPOCH: &str = "SELECT * FROM begin_epoch_3($1)";
const END_EPOCH: &str = "SELECT end_epoch_1($1, $2, $3)";
/// The server forgets a committer that has shown no life for a day (`forget_committers_1`). If it does not know a
/// committer that was away for half of that, it has forgotten it, and not lost it in a crash.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(12 * 60 * 60);
/// Ends the backend that holds a committer's row: an earlier connection of the same process, whose answer the process
/// no longer hears. Spares a commit that waits for a standby: ended, others would see it before the standby has it.
const END_HOLDER: &str = "SELECT l.pid, a.wait_event IS NOT DISTINCT FROM 'SyncRep',
        CASE WHEN a.wait_event IS DISTINCT FROM 'SyncRep' THEN pg_terminate_backend(l.pid, 2000) END
    FROM committers c
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE c.committer = $1 AND l.pid <> pg_backend_pid()";
/// The committer tries jobs that were set aside for so long before new jobs have their turn.
const SLICE: Duration = Duration::from_millis(100);

/// How far a committer has come. The early committer watches the synced one's progress, which makes its own batches
/// durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Which connection the committer has; another one may lead to a server that has lost what was not synced.
    pub(crate) connection: u64,
    /// The last batch that is durable.
    pub(crate) durable: i64,
}

/// The handle by which jobs reach the committer. Once it is dropped, the committer finishes what it has and ends.
pub(crate) struct Committer {
    inbox: mpsc::Sender<Job>,
    progress: watch::Receiver<Progress>,
    marks: Arc<Marks>,
}

/// Numbers of batches outside the progress, because they need to wake no task.
#[derive(Default)]
struct Marks {
    /// The last that was sent.
    sent: AtomicI64,
    /// The last whose outcome is known.
    ended: AtomicI64,
}

impl Committer {
    /// Starts one whose commits are durable when they are answered. It connects when there is something to do.
    pub(crate) fn start(connector: Arc<Connector>, returner: LeaseReturner, patience: Duration) -> Self {
        let (this, committing) = Self::new(connector, Purpose::Commits, returner, patience);
        tokio::spawn(run(committing, None));
        this
    }

    /// Starts one for deletes and prunes, which closes its connection after it had nothing to do for `idle`.
    pub(crate) fn start_removals(
        connector: Arc<Connector>,
        returner: LeaseReturner,
        patience: Duration,
        idle: Duration,
    ) -> Self {
        let (this, committing) = Self::new(connector, Purpose::Removals, returner, patience);
        tokio::spawn(run(committing, Some(idle)));
        this
    }

    /// Makes one, for the caller to run.
    pub(crate) fn new(
        connector: Arc<Connector>,
        purpose: Purpose,
        returner: LeaseReturner,
        patience: Duration,
    ) -> (Self, Committing) {
        let (inbox, jobs) = mpsc::channel(INBOX_SIZE);
        let name = uuid::Uuid::new_v4().simple().to_string();
        let (told, progress) = watch::channel(Progress::default());
        let marks = Arc::new(Marks::default());
        let committing = Committing {
            connector,
            purpose,
            returner,
            patience,
            name,
            jobs,
            connection: None,
            is_busy: false,
            batches: 0,
            known: Vec::new(),
            heard_at_ms: None,
            uncertain_up_to: None,
            set_aside: SetAside::new(patience),
            progress: told,
            marks: marks.clone(),
        };
        (Self { inbox, progress, marks }, committing)
    }

    /// Returns the last batch that was sent. Any later batch makes durable what other connections committed before this
    /// call.
    pub(crate) fn sent(&self) -> i64 {
        self.marks.sent.load(Ordering::SeqCst)
    }

    /// Tells whether a later batch than `batch` is on its way.
    pub(crate) fn is_under_way_after(&self, batch: i64) -> bool {
        let sent = self.sent();
        sent > batch && self.marks.ended.load(Ordering::SeqCst) < sent
    }

    /// Tells how far the committer has come.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Hands in a job and waits for its answer. If the caller goes away before, the job happens wholly or not at all.
    pub(crate) async fn submit<T>(
        &self,
        operation: &'static str,
        job: Job,
        answer: Answer<T>,
    ) -> Result<T, duroxide::providers::ProviderError> {
        self.hand_in(operation, job).await?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into_provider_error(operation)))
    }

    /// Hands in a job.
    pub(crate) async fn hand_in(
        &self,
        operation: &'static str,
        job: Job,
    ) -> Result<(), duroxide::providers::ProviderError> {
        let closed = |_| StoreError::Closed.into_provider_error(operation);
        self.inbox.send(job).await.map_err(closed)
    }
}

/// A connection and the epoch in which its batches count.
struct Connected {
    session: Session,
    epoch: i64,
}

/// The other end of the handle: makes batches of jobs and commits them.
pub(crate) struct Committing {
    connector: Arc<Connector>,
    purpose: Purpose,
    pub(crate) returner: LeaseReturner,
    patience: Duration,
    name: String,
    pub(crate) jobs: mpsc::Receiver<Job>,
    connection: Option<Connected>,
    /// The last batch had several jobs, so the next may have too.
    is_busy: bool,
    batches: i64,
    /// What the server knew each time this committer connected.
    known: Vec<ServerMemory>,
    /// When the server last answered, by the machine's wall clock, which goes on while the machine sleeps.
    heard_at_ms: Option<u64>,
    /// The server has forgotten this committer, and with it which of the batches up to this one it committed.
    uncertain_up_to: Option<i64>,
    /// Jobs that met locks.
    pub(crate) set_aside: SetAside,
    progress: watch::Sender<Progress>,
    marks: Arc<Marks>,
}

/// What a server knew when a connection was made: the last batch it had, of those that were sent until then.
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

/// A batch that was committed.
pub(crate) struct Committed {
    pub(crate) number: i64,
    pub(crate) batch: Batch,
    pub(crate) verdicts: Verdicts,
}

/// The outcome of one attempt to commit.
enum Attempt {
    Committed(Box<Verdicts>, Effects),
    /// The server kept nothing.
    Failed(Failure),
    /// The committer could not find out whether the server kept anything, so it must not try again.
    Unresolved(Failure),
}

/// Commits until the handle is dropped. Closes the connection after `idle` without a job.
async fn run(mut committing: Committing, idle: Option<Duration>) {
    let mut waiting: Vec<Job> = Vec::new();
    loop {
        if waiting.is_empty() && !committing.wait_for_jobs(&mut waiting, idle).await {
            committing.end_epoch().await;
            return;
        }
        let (batch, later) = committing.gather(waiting).await;
        waiting = later;
        committing.process(batch).await.into_iter().for_each(Committed::answer);
        committing.try_set_aside().await.into_iter().for_each(Committed::answer);
    }
}

impl Committed {
    fn answer(self) {
        let Self { mut batch, mut verdicts, .. } = self;
        batch.hand_out(&mut verdicts);
        batch.answer(verdicts);
    }
}

impl Committing {
    /// Waits for jobs, or until a job that was set aside is due; `false` if there is nothing left to do. Closes the
    /// connection after `idle` without a job.
    async fn wait_for_jobs(&mut self, waiting: &mut Vec<Job>, idle: Option<Duration>) -> bool {
        let Some(due) = self.set_aside.next_due() else {
            if let Some(idle) = idle.filter(|_| self.connection.is_some()) {
                match within(idle, self.jobs.recv_many(waiting, BATCH_SIZE)).await {
                    Some(count) => return count > 0,
                    None => self.connection = None,
                }
            }
            return self.jobs.recv_many(waiting, BATCH_SIZE).await > 0;
        };
        tokio::select! {
            biased;
            count = self.jobs.recv_many(waiting, BATCH_SIZE) => if count == 0 {
                // The handle is gone; the committer still finishes what it has set aside.
                SystemClock.sleep_until(due).await;
            },
            () = SystemClock.sleep_until(due) => {}
        }
        true
    }

    /// Makes a batch of the jobs that wait and of those in the inbox; also returns the jobs that have to wait longer.
    pub(crate) async fn gather(&mut self, mut waiting: Vec<Job>) -> (Batch, Vec<Job>) {
        if self.is_busy {
            self.let_others_join().await;
        }
        while waiting.len() < BATCH_SIZE
            && let Ok(job) = self.jobs.try_recv()
        {
            waiting.push(job);
        }
        let (mut batch, mut bytes, mut later) = (Batch::default(), 0, Vec::new());
        let now = SystemClock.monotonic();
        for job in waiting.into_iter().filter(|job| !job.is_moot()) {
            let Some(job) = self.set_aside.take_known(job, now) else { continue };
            let size = job.size();
            if batch.len() > 0 && bytes + size > BATCH_BYTES {
                later.push(job);
                continue;
            }
            bytes += size;
            later.extend(batch.add(job));
        }
        batch.sort();
        self.is_busy = batch.len() > 1;
        (batch, later)
    }

    /// Lets other tasks run, as long as they hand in more jobs. No clock is involved.
    async fn let_others_join(&self) {
        let mut quiet_rounds = 0;
        while quiet_rounds < QUIET_ROUNDS && self.jobs.len() < BATCH_SIZE {
            let before = self.jobs.len();
            tokio::task::yield_now().await;
            quiet_rounds = if self.jobs.len() > before { 0 } else { quiet_rounds + 1 };
        }
    }

    /// Commits a batch, or its jobs one by one; returns what was committed. Tells the callers of jobs that failed, and
    /// sets aside jobs that meet a lock.
    pub(crate) async fn process(&mut self, batch: Batch) -> Vec<Committed> {
        if batch.len() == 0 {
            return Vec::new();
        }
        let lock_timeout = self.set_aside.lock_timeout(SystemClock.monotonic());
        let (batch, failure) = match self.commit(batch, false, lock_timeout).await {
            Ok(committed) => return vec![committed],
            Err(failed) => failed,
        };
        match failure.kind {
            FailureKind::Transient => self.set_batch_aside(batch, &failure),
            FailureKind::Lost => batch.fail(&failure),
            FailureKind::Permanent => return self.process_one_by_one(batch).await,
        }
        Vec::new()
    }

    async fn process_one_by_one(&mut self, batch: Batch) -> Vec<Committed> {
        let mut all = Vec::new();
        for job in batch.into_jobs() {
            let lock_timeout = self.set_aside.lock_timeout(SystemClock.monotonic());
            match self.commit(alone(job).without_claims(), true, lock_timeout).await {
                Ok(committed) => all.push(committed),
                Err((alone, failure)) if failure.kind == FailureKind::Transient => {
                    self.set_batch_aside(alone, &failure);
                }
                Err((alone, failure)) => alone.fail(&failure),
            }
        }
        all
    }

    fn set_batch_aside(&mut self, batch: Batch, failure: &Failure) {
        let now = SystemClock.monotonic();
        if batch.len() > 1 {
            tracing::debug!(target: "duroxide::providers::postgres", jobs = batch.len(), reason = failure.message,
                "a batch met a lock or a conflict; its jobs are tried one by one");
            return self.set_aside.suspect(batch.into_jobs(), now);
        }
        for job in batch.into_jobs() {
            let waiting = self.set_aside.alone(job, now);
            self.block(waiting, failure);
        }
    }

    /// Sets aside a job that met a lock alone, or tells its caller that it failed.
    fn block(&mut self, waiting: Waiting, failure: &Failure) {
        if let Some(job) = self.set_aside.block(waiting, SystemClock.monotonic()) {
            alone(job).fail(failure);
        }
    }

    /// Tries jobs that were set aside, for a short time; returns what was committed.
    pub(crate) async fn try_set_aside(&mut self) -> Vec<Committed> {
        let mut all = Vec::new();
        let end = SystemClock.monotonic().saturating_add(SLICE);
        loop {
            let now = SystemClock.monotonic();
            if now >= end {
                return all;
            }
            let Some((waiting, lock_timeout)) = self.set_aside.next(now) else { return all };
            all.extend(self.try_together(waiting, lock_timeout).await);
        }
    }

    async fn try_together(&mut self, mut waiting: Vec<Waiting>, lock_timeout: Duration) -> Option<Committed> {
        let subjects = waiting.iter().filter_map(|waiting| waiting.job.subject()).collect();
        if waiting.len() == 1
            && let Some(mut only) = waiting.pop()
        {
            match self.commit(alone(only.job), true, Some(lock_timeout)).await {
                Ok(committed) => {
                    self.set_aside.succeed(subjects);
                    return Some(committed);
                }
                Err((batch, failure)) if failure.kind == FailureKind::Transient => {
                    only.job = batch.into_jobs().pop()?;
                    self.block(only, &failure);
                }
                Err((batch, failure)) => batch.fail(&failure),
            }
            return None;
        }
        let deadline = waiting.iter().map(Waiting::deadline).min().unwrap_or_default();
        let mut batch = Batch::default();
        let later: Vec<Job> = waiting.into_iter().filter_map(|waiting| batch.add(waiting.job)).collect();
        batch.sort();
        let tried = self.commit(batch, true, Some(lock_timeout)).await;
        let now = SystemClock.monotonic();
        let committed = match tried {
            Ok(committed) => {
                self.set_aside.succeed(subjects);
                Some(committed)
            }
            Err((batch, failure)) if failure.kind == FailureKind::Lost => {
                batch.fail(&failure);
                None
            }
            Err((batch, _)) => {
                self.set_aside.part(batch.into_jobs(), deadline, now);
                None
            }
        };
        self.set_aside.put_back(later, deadline, now);
        committed
    }

    /// Commits a batch. Gives it back if the commit failed for good or for too long, or if it may succeed later on the
    /// same connection.
    async fn commit(
        &mut self,
        mut batch: Batch,
        careful: bool,
        lock_timeout: Option<Duration>,
    ) -> Result<Committed, (Batch, Failure)> {
        let mut trials = Trials::new(self.patience);
        loop {
            match self.attempt(&mut batch, careful, lock_timeout).await {
                Attempt::Committed(verdicts, effects) => {
                    self.returner.shared.announce(effects);
                    return Ok(Committed { number: self.batches, batch, verdicts: *verdicts });
                }
                Attempt::Failed(failure) => {
                    if failure.kind == FailureKind::Lost {
                        self.connection = None;
                    }
                    if failure.kind != FailureKind::Lost || !trials.wait().await {
                        return Err((batch, failure));
                    }
                }
                Attempt::Unresolved(failure) => return Err((batch, failure)),
            }
        }
    }

    async fn attempt(&mut self, batch: &mut Batch, careful: bool, lock_timeout: Option<Duration>) -> Attempt {
        if let Err(failure) = self.connect().await {
            // A server that refuses the connection has not seen the batch, so its refusal does not count for the jobs.
            return Attempt::Failed(Failure::lost(failure.message));
        }
        let Some(connection) = &self.connection else {
            return Attempt::Failed(Failure::lost("Connection closed"));
        };
        match in_time(batch.prepare(&connection.session)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Attempt::Failed(error.into()),
            None => {
                connection.session.cut();
                return Attempt::Failed(Failure::lost("PostgreSQL does not answer"));
            }
        }
        self.batches += 1;
        let number = self.batches;
        self.marks.sent.store(number, Ordering::SeqCst);
        let began = SystemClock.monotonic();
        let outcome = self.transact(connection, number, batch, careful, lock_timeout).await;
        if outcome.is_ok() {
            let took = SystemClock.monotonic().saturating_sub(began);
            METRICS.committed(connection.session.is_synced(), batch.len(), took);
        }
        self.marks.ended.store(number, Ordering::SeqCst);
        match outcome {
            Ok(answers) => {
                self.heard_at_ms = Some(SystemClock.now_ms());
                let (mut verdicts, effects) = batch.read(&self.returner, answers);
                verdicts.server = connection.session.server();
                verdicts.is_synced = connection.session.is_synced();
                if connection.session.is_over() {
                    // Other connections may lead to another server, and this commit proves nothing about that one.
                    self.connection = None;
                    self.progress.send_modify(|progress| progress.connection += 1);
                } else {
                    self.progress.send_modify(|progress| progress.durable = number);
                }
                Attempt::Committed(Box::new(verdicts), effects)
            }
            Err(Unfinished::RolledBack(failure)) => Attempt::Failed(failure),
            Err(Unfinished::Unknown(failure)) => {
                connection.session.cut();
                self.connection = None;
                self.resolve(number, batch, failure).await
            }
        }
    }

    /// Finds out what became of a batch whose answer was lost.
    async fn resolve(&mut self, number: i64, batch: &Batch, failure: Failure) -> Attempt {
        let mut trials = Trials::new(self.patience);
        loop {
            match self.begin_epoch().await {
                Ok((_, true)) => {
                    let message = format!(
                        "{}; the server has forgotten this process meanwhile, so it may or may not have been committed",
                        failure.message
                    );
                    return Attempt::Unresolved(Failure::lost(message));
                }
                Ok((row, _)) if row.get::<_, i64>(1) == number => {
                    tracing::info!(target: "duroxide::providers::postgres", "a commit whose answer was lost had been made");
                    let verdicts = Verdicts {
                        turns: row.get(2),
                        // `begin_epoch` was itself a later commit.
                        is_synced: self
                            .connection
                            .as_ref()
                            .is_some_and(|connected| connected.session.is_synced()),
                        refused_work: row.get::<_, Option<Vec<i32>>>(3).unwrap_or_default(),
                        taken_starts: row.get::<_, Option<Vec<i32>>>(4).unwrap_or_default(),
                        deliveries: row.get::<_, Option<Vec<i32>>>(5).unwrap_or_default(),
                        ..Verdicts::default()
                    };
                    for (seed, lease_ms) in batch.seeds_of_claims() {
                        let Some(connection) = &self.connection else { break };
                        let now = self.returner.shared.time.given_ms();
                        let params: Columns<'_> = &[&now, &seed, &lease_ms];
                        // If this fails, the leases run out by themselves.
                        let _ = in_time(connection.session.query(RELEASE_CLAIMS, params)).await;
                    }
                    let effects = batch.all_effects(&verdicts);
                    return Attempt::Committed(Box::new(verdicts), effects);
                }
                // The server has not committed the batch, and the new epoch keeps it from doing so.
                Ok(_) => return Attempt::Failed(failure),
                Err(_) if trials.wait().await => {}
                Err(_) => {
                    let message = format!("{}; it may or may not have been committed", failure.message);
                    return Attempt::Unresolved(Failure::lost(message));
                }
            }
        }
    }

    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        match &self.connection {
            Some(connection) if !connection.session.is_over() => Ok(()),
            _ => self.begin_epoch().await.map(drop),
        }
    }

    /// Makes sure that the connection leads to the server that other connections reach, and that this server has not
    /// crashed.
    pub(crate) async fn check_connection(&mut self) -> Result<(), Failure> {
        if let Some(connection) = &self.connection {
            let answer = in_time(connection.session.query("SELECT 1", &[])).await;
            if !matches!(answer, Some(Ok(_))) {
                self.connection = None;
            }
        }
        let mut trials = Trials::new(self.patience);
        loop {
            match self.connect().await {
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

    /// Connects, and makes sure that the server can no longer commit anything of an earlier connection. Returns what
    /// the server knows of the last batch, and whether it has forgotten this committer.
    async fn begin_epoch(&mut self) -> Result<(Row, bool), Failure> {
        self.connection = None;
        let session = self.connector.connect(self.purpose).await?;
        let mut asked = self.ask_for_epoch(&session).await?;
        if asked.as_ref().is_err_and(|error| error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)) {
            self.end_holder(&session).await?;
            asked = self.ask_for_epoch(&session).await?;
        }
        // Whatever the transient failure is, another connection may do better.
        let rows = asked.map_err(|error| match Failure::from(error) {
            Failure { kind: FailureKind::Transient, message, .. } => Failure::lost(message),
            failure => failure,
        })?;
        let row = rows.into_iter().next().ok_or_else(|| Failure::lost("no epoch"))?;
        self.connection = Some(Connected { session, epoch: row.get(0) });
        let now = SystemClock.now_ms();
        let away =
            self.heard_at_ms.replace(now).map(|heard| Duration::from_millis(now.saturating_sub(heard)));
        let is_forgotten = is_forgotten(row.get(6), away, self.returner.shared.forgotten_after);
        match is_forgotten {
            true => self.uncertain_up_to = Some(self.batches),
            false => self.known.push(ServerMemory { last: row.get(1), sent: self.batches }),
        }
        self.progress.send_modify(|progress| progress.connection += 1);
        Ok((row, is_forgotten))
    }

    /// Removes the committer from the server, except for its totals. If that fails, the server forgets it by itself.
    pub(crate) async fn end_epoch(&mut self) {
        if let Some(Connected { session, epoch }) = self.connection.take()
            && !session.is_over()
        {
            let slot = self.returner.shared.slot;
            let _ = in_time(session.query(END_EPOCH, &[&self.name, &epoch, &slot])).await;
        }
    }

    /// Tells, once, up to which batch the outcomes are unknown, if the server has forgotten this committer.
    pub(crate) fn take_uncertain(&mut self) -> Option<i64> {
        self.uncertain_up_to.take()
    }

    async fn ask_for_epoch(&self, session: &Session) -> Result<Result<Vec<Row>, QueryError>, Failure> {
        let begun = async {
            session.prepare(BEGIN_BATCH).await?;
            session.query(BEGIN_EPOCH, &[&self.name]).await
        };
        in_time(begun).await.ok_or_else(|| Failure::lost("PostgreSQL does not answer"))
    }

    /// Ends a transaction of an earlier connection of this committer that is in the way of the next epoch.
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
            let pid: i32 = row.get(0);
            if row.get(1) {
                return Err(held(pid, "and waits for a standby"));
            }
            if !row.get::<_, Option<bool>>(2).unwrap_or(false) {
                return Err(held(pid, "and does not end"));
            }
            tracing::warn!(target: "duroxide::providers::postgres", backend = pid,
                "ended an earlier connection of this process, whose transaction was in the way");
        }
        Ok(())
    }

    /// Sends a whole transaction at once and waits for it. The server waits for a lock no longer than `lock_timeout`,
    /// if given.
    async fn transact(
        &self,
        connection: &Connected,
        number: i64,
        batch: &Batch,
        careful: bool,
        lock_timeout: Option<Duration>,
    ) -> Result<Vec<Vec<Row>>, Unfinished> {
        let Connected { session, epoch } = connection;
        let (name, shared) = (&self.name, &*self.returner.shared);
        let mark = Mark { committer: name, epoch: *epoch, batch: Some(number) };
        if batch.is_one_statement() && lock_timeout.is_none() {
            let answers = in_time(batch.execute(session, shared, mark, careful)).await;
            return judge_alone(answers.ok_or_else(silence)?);
        }
        let noted: Parts<'_> =
            Box::pin(async { vec![session.query(BEGIN_BATCH, &[name, epoch, &number]).await] });
        if batch.is_only_syncs() {
            return judge_alone(in_time(noted).await.ok_or_else(silence)?).map(|_| Vec::new());
        }
        let begin: Parts<'_> =
            Box::pin(async { vec![session.begin(lock_timeout).await.map(|()| Vec::new())] });
        let statements: Parts<'_> =
            Box::pin(batch.execute(session, shared, Mark { batch: None, ..mark }, careful));
        let commit: Parts<'_> = Box::pin(async { vec![session.commit().await.map(|()| Vec::new())] });
        let all = in_order(vec![begin, noted, statements, commit]);
        together(in_time(all).await.ok_or_else(silence)?.into_iter().flatten().collect())
    }
}

/// Makes a batch of one. An empty batch takes any job, so `add` gives nothing back.
fn alone(job: Job) -> Batch {
    let mut batch = Batch::default();
    let _ = batch.add(job);
    batch
}

/// Why a transaction has no answer.
enum Unfinished {
    /// The transaction did not happen.
    RolledBack(Failure),
    /// The transaction may have happened.
    Unknown(Failure),
}

type Answers = Vec<Result<Vec<Row>, QueryError>>;
type Parts<'a> = Pin<Box<dyn Future<Output = Answers> + Send + 'a>>;

fn silence() -> Unfinished {
    Unfinished::Unknown(Failure::lost("PostgreSQL does not answer"))
}

fn unknown(error: QueryError) -> Unfinished {
    Unfinished::Unknown(Failure { kind: FailureKind::Lost, ..error.into() })
}

/// Reads the answer to a statement that is a transaction by itself.
fn judge_alone(answers: Answers) -> Result<Vec<Vec<Row>>, Unfinished> {
    let judge = |error: QueryError| {
        let was_refused = match &error {
            // A backend that is told to end may report that instead of the commit that it has made.
            QueryError::Driver(error) => {
                error.as_db_error().and_then(|said| said.parsed_severity()) == Some(Severity::Error)
            }
            QueryError::NotOurs => true,
        };
        if was_refused { Unfinished::RolledBack(error.into()) } else { unknown(error) }
    };
    answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(judge)
}

/// Reads the answers to BEGIN, the note, the statements of a batch and COMMIT.
fn together(mut answers: Answers) -> Result<Vec<Vec<Row>>, Unfinished> {
    // A backend that is told to end may report that instead of the commit that it has made.
    let committed = answers.pop();
    let was_refused = |error: &QueryError| match error {
        QueryError::Driver(error) => error.code().is_some(),
        QueryError::NotOurs => true,
    };
    let refused = answers.iter().position(|answer| answer.as_ref().is_err_and(was_refused));
    if let Some(position) = refused
        && let Err(error) = answers.swap_remove(position)
    {
        // The server refused a statement, so its COMMIT rolled back, even if that answer did not reach us.
        return Err(Unfinished::RolledBack(error.into()));
    }
    let mut rows = answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(unknown)?;
    if let Some(Err(error)) = committed {
        return Err(unknown(error));
    }
    // Drops the answers to BEGIN and the note.
    rows.drain(..2);
    Ok(rows)
}

/// Tells whether the server has forgotten a committer that it does not know, because that was away for too long.
/// Otherwise the server has lost it in a crash, together with the batches that it does not know.
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
