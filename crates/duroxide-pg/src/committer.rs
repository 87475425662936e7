//! Group commit: one connection that commits for a whole process.
//!
//! Callers hand in jobs and wait. The committer takes the jobs that are there, sends them as one transaction (without
//! waiting between its statements, so a batch costs one round trip), and answers when the server has committed it.
//! While a commit is on its way, jobs gather: batches grow with the load by themselves, and a lone job does not wait.
//! Under load the committer waits a moment before it sends: other tasks of this process run meanwhile, and may hand in more
//! jobs for the same batch. With several processes on one server, that saves the server a third of its work.
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

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::sync::{mpsc, watch};

use crate::batch::Batch;
use crate::deferred_jobs::DeferredJobs;
use crate::epochs::{Connected, Epochs, LastBatch, Progress};
use crate::error::{Failure, FailureKind, StoreError};
use crate::fetch::RELEASE_CLAIMS;
use crate::functions::params;
use crate::give_backs::LeaseReturner;
use crate::jobs::{Answer, Job};
use crate::session::{Connector, METRICS};
use crate::set_aside::{JobToRetry, SetAside};
use crate::settings::Purpose;
use crate::shared::Effects;
use crate::shared_connection::{Trials, in_time, within};
use crate::statements::{Mark, Sending};
use crate::transaction::{Unfinished, transact};

/// Jobs that wait, at most; more callers wait outside.
const INBOX_SIZE: usize = 4_096;
/// Jobs in one transaction, at most: bounds how long a commit can take.
pub(crate) const BATCH_SIZE: usize = 512;
/// After so many rounds of the other tasks without a new job, the committer stops waiting for more.
const QUIET_ROUNDS: usize = 8;
/// Bytes in one transaction, about and at most, unless one job alone has more.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// How long the committer works on jobs that were set aside before it takes new ones.
const SLICE: Duration = Duration::from_millis(100);

/// The handle by which jobs reach the committer. Once it is dropped, the committer finishes what it has and ends.
pub(crate) struct Committer {
    inbox: mpsc::Sender<Job>,
    progress: watch::Receiver<Progress>,
    marks: Arc<Marks>,
    deferred: Arc<DeferredJobs>,
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
        let forgotten_after = returner.shared.forgotten_after;
        let (epochs, progress) = Epochs::new(connector, purpose, forgotten_after, patience);
        let (marks, deferred) = (Arc::new(Marks::default()), Arc::new(DeferredJobs::default()));
        let committing = Committing {
            epochs,
            returner,
            patience,
            jobs,
            is_busy: false,
            batches: 0,
            set_aside: SetAside::new(patience),
            marks: marks.clone(),
            deferred: deferred.clone(),
        };
        (Self { inbox, progress, marks, deferred }, committing)
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

    /// Lets a job take part in the next batch that is made for others, and waits for its answer. Returns `None`, and the job
    /// does not happen, if no batch was made within `patience`.
    pub(crate) async fn join_batch<T>(
        &self,
        operation: &'static str,
        job: Job,
        mut answer: Answer<T>,
        patience: Duration,
    ) -> Option<Result<T, duroxide::providers::ProviderError>> {
        let ticket = self.deferred.add(job);
        let answered = match within(patience, &mut answer).await {
            Some(answered) => answered,
            None if self.deferred.withdraw(ticket) => return None,
            None => answer.await,
        };
        Some(answered.unwrap_or_else(|_| Err(StoreError::Closed.into_provider_error(operation))))
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

/// The other end of the handle: makes batches of jobs and commits them.
pub(crate) struct Committing {
    pub(crate) epochs: Epochs,
    pub(crate) returner: LeaseReturner,
    patience: Duration,
    pub(crate) jobs: mpsc::Receiver<Job>,
    /// The last batch had several jobs, so the next may have too.
    is_busy: bool,
    /// How many batches were sent; the number of the last.
    batches: i64,
    /// Jobs that met locks.
    pub(crate) set_aside: SetAside,
    marks: Arc<Marks>,
    deferred: Arc<DeferredJobs>,
}

/// A batch that was committed.
pub(crate) struct Committed {
    pub(crate) number: i64,
    pub(crate) batch: Batch,
    /// The commit was on the server's disk when the server answered.
    pub(crate) is_synced: bool,
}

/// The outcome of one attempt to commit.
enum Attempt {
    Committed {
        effects: Effects,
        is_synced: bool,
    },
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
            committing.end().await;
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
        let mut batch = self.batch;
        batch.hand_out();
        batch.answer();
    }
}

impl Committing {
    /// Waits for jobs, or until a job that was set aside is due; `false` if there is nothing left to do. Closes the
    /// connection after `idle` without a job.
    async fn wait_for_jobs(&mut self, waiting: &mut Vec<Job>, idle: Option<Duration>) -> bool {
        let Some(due) = self.set_aside.next_due() else {
            if let Some(idle) = idle.filter(|_| self.epochs.connection().is_some()) {
                match within(idle, self.jobs.recv_many(waiting, BATCH_SIZE)).await {
                    Some(count) => return count > 0,
                    None => self.epochs.disconnect(),
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
        self.is_busy = batch.len() > 1;
        if batch.len() > 0 {
            let deferred = self.deferred.take().into_iter().filter(|job| !job.is_moot());
            later.extend(deferred.filter_map(|job| batch.add(job)));
        }
        batch.sort();
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
            match self.commit(Batch::alone(job).without_claims(), true, lock_timeout).await {
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
    fn block(&mut self, waiting: JobToRetry, failure: &Failure) {
        if let Some(job) = self.set_aside.block(waiting, SystemClock.monotonic()) {
            Batch::alone(job).fail(failure);
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

    async fn try_together(
        &mut self,
        mut waiting: Vec<JobToRetry>,
        lock_timeout: Duration,
    ) -> Option<Committed> {
        let subjects = waiting.iter().filter_map(|waiting| waiting.job.subject()).collect();
        if waiting.len() == 1
            && let Some(mut only) = waiting.pop()
        {
            match self.commit(Batch::alone(only.job), true, Some(lock_timeout)).await {
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
        let deadline = waiting.iter().map(JobToRetry::deadline).min().unwrap_or_default();
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
                Attempt::Committed { effects, is_synced } => {
                    self.returner.shared.announce(effects);
                    return Ok(Committed { number: self.batches, batch, is_synced });
                }
                Attempt::Failed(failure) => {
                    if failure.kind == FailureKind::Lost {
                        self.epochs.disconnect();
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
        if let Err(failure) = self.epochs.connect(self.batches).await {
            // A server that refuses the connection has not seen the batch, so its refusal does not count for the jobs.
            return Attempt::Failed(Failure::lost(failure.message));
        }
        let Some(Connected { session, epoch }) = self.epochs.connection() else {
            return Attempt::Failed(Failure::lost("Connection closed"));
        };
        match in_time(batch.prepare(session)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Attempt::Failed(error.into()),
            None => {
                session.cut();
                return Attempt::Failed(Failure::lost("PostgreSQL does not answer"));
            }
        }
        self.batches += 1;
        let number = self.batches;
        self.marks.sent.store(number, Ordering::SeqCst);
        let began = SystemClock.monotonic();
        let mark = Mark { committer: self.epochs.name(), epoch: *epoch, batch: Some(number) };
        let sending = Sending { session, shared: &self.returner.shared, mark, careful };
        let outcome = transact(sending, number, batch, lock_timeout).await;
        let (server, is_synced) = (session.server(), session.is_synced());
        if outcome.is_ok() {
            METRICS.committed(is_synced, batch.len(), SystemClock.monotonic().saturating_sub(began));
        }
        self.marks.ended.store(number, Ordering::SeqCst);
        match outcome {
            Ok(answers) => {
                let effects = batch.read(&self.returner, server, answers);
                self.epochs.note_committed(number);
                Attempt::Committed { effects, is_synced }
            }
            Err(Unfinished::RolledBack(failure)) => Attempt::Failed(failure),
            Err(Unfinished::Unknown(failure)) => {
                session.cut();
                self.epochs.disconnect();
                self.resolve(number, batch, failure).await
            }
        }
    }

    /// Finds out what became of a batch whose answer was lost.
    async fn resolve(&mut self, number: i64, batch: &mut Batch, failure: Failure) -> Attempt {
        let mut trials = Trials::new(self.patience);
        loop {
            match self.epochs.begin(self.batches).await {
                Ok(LastBatch { is_forgotten: true, .. }) => {
                    let message = format!(
                        "{}; the server has forgotten this process meanwhile, so it may or may not have been committed",
                        failure.message
                    );
                    return Attempt::Unresolved(Failure::lost(message));
                }
                Ok(last) if last.number == number => {
                    tracing::info!(target: "duroxide::providers::postgres", "a commit whose answer was lost had been made");
                    return self.recall(batch, &last).await;
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

    /// Takes note of what the server remembers of a batch, and gives back what the batch leased, because no caller knows of it.
    async fn recall(&self, batch: &mut Batch, last: &LastBatch) -> Attempt {
        let (mut server, mut is_synced) = (0, false);
        if let Some(Connected { session, .. }) = self.epochs.connection() {
            for (seed, lease_ms) in batch.seeds_of_claims() {
                let now = self.returner.shared.time.given_ms();
                let (sql, values) =
                    RELEASE_CLAIMS.call(params![p_now: now, p_seed: seed, p_lease_ms: lease_ms]);
                // If this fails, the leases run out by themselves.
                let _ = in_time(session.query(sql, &values)).await;
            }
            // Beginning the epoch was itself a later commit.
            (server, is_synced) = (session.server(), session.is_synced());
        }
        let effects = batch.recall(&self.returner, server, &last.memory);
        Attempt::Committed { effects, is_synced }
    }

    /// Removes the committer from the server.
    pub(crate) async fn end(&mut self) {
        self.epochs.end(self.returner.shared.slot).await;
    }

    /// Makes sure that the connection leads to the server that other connections reach.
    pub(crate) async fn check_connection(&mut self) -> Result<(), Failure> {
        self.epochs.check(self.batches).await
    }
}
