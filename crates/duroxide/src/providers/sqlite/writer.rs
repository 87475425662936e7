//! The one thread that writes, and group commit.
//!
//! Callers hand jobs to an [`Inbox`] and wait for their answer. The writer takes the waiting jobs, runs them in one
//! immediate transaction, commits once, and only then answers. While SQLite syncs a commit the inbox fills, so batches
//! grow with the load by themselves, and without load no job waits.
//!
//! - A refused job leaves nothing behind and does not disturb the other jobs of its batch: it either checks everything
//!   before it writes, or runs inside a savepoint ([`WriteTransaction::atomically`]).
//! - The writer does not sync a batch of nothing but leases: a lease that is lost with the power is free again.
//! - Renewals go first, and claims last, so that claims find the work that the other jobs of the batch made ready. A
//!   caller beyond the inbox's bound waits.
//! - The writer commits the result of an activity ahead of its sync ([`JobClass::Ahead`]): the sync of the turn that
//!   follows covers everything before it in the log. If no turn follows, the writer syncs by itself after a moment.
//! - A failed commit is the failure of every job in the batch, and so is a statement that fails for a reason that is
//!   not the job's own (a full disk): the writer rolls the batch back and tells every caller.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::connection::{self, SyncLevel};
use super::disk::WriterFault;
use super::error::{StoreError, classify};
use super::figures;
use super::give_backs::GiveBacks;
use super::inbox::{Envelope, Inbox, Job, JobClass, SyncWaiter, Taken};
use super::jobs::{AwaitedJob, Unattended, no_claim};
use super::log_keeper::LogKeeper;
use super::owner_file::DeadOwner;
use super::owners;
use super::shared::Shared;
use super::statements::Statements;
use super::work_done::{self, Committed};
use super::write_transaction::{WriteTransaction, same_error};
use super::{Durability, SqliteError};
use crate::model::clock::block_thread;
use crate::model::{Clock, SystemClock};
use crate::providers::{Durable, ProviderError};

/// The most jobs in one transaction: bounds how long a commit, and with it every lease operation, can take.
const BATCH_SIZE: usize = 512;
/// How long the result of an activity waits for another synced commit before the writer makes one for it.
const SYNC_PATIENCE: Duration = Duration::from_millis(5);
/// How many transactions may follow it unsynced.
const MOST_UNSYNCED: usize = 16;
/// How often an idle writer looks whether another process has written: at first, and after a long idle time.
const PEEK_INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));
/// The same while no other process has the store open: a process must open the store before it writes.
const PEEK_INTERVAL_ALONE: Duration = Duration::from_millis(250);
/// How often the writer looks whether another process has died, at most. A look is a few system calls and no query.
const OWNER_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// When the writer looks again after it failed to release a dead process's leases.
const OWNER_CHECK_AGAIN: Duration = Duration::from_secs(2);
/// How long the writer sleeps between two attempts to begin while another process writes.
const BUSY_STEP: Duration = Duration::from_millis(1);

/// The handle through which jobs reach the writer.
pub(super) struct Writer {
    inbox: Arc<Inbox>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread on a connection that is already set up.
    pub(super) fn start(
        connection: Connection,
        shared: Arc<Shared>,
        keeper: Option<LogKeeper>,
    ) -> Result<Self, SqliteError> {
        let inbox = Arc::new(Inbox::new());
        let given = inbox.clone();
        let write = move || {
            let statements = Statements::new(&connection);
            Writing::new(&statements, &shared, given, keeper).run();
        };
        let thread = std::thread::Builder::new()
            .name("duroxide-sqlite".into())
            .spawn(write)
            .map_err(|source| SqliteError::CannotOpen { path: "the writer thread".into(), source })?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    /// Runs `work` in a transaction and returns its result after the commit.
    ///
    /// If the caller drops the future before that, the write happens wholly or not at all.
    pub(super) async fn submit<T: Send + 'static>(
        &self,
        operation: &'static str,
        class: JobClass,
        work: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ProviderError> {
        self.send(operation, class, work, no_claim, None).await
    }

    /// Runs `work`, and `claim` when all other jobs of the same transaction have run.
    pub(super) async fn submit_and_claim<T: Send + 'static>(
        &self,
        operation: &'static str,
        class: JobClass,
        work: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<T, StoreError> + Send + 'static,
        claim: impl FnOnce(&mut WriteTransaction<'_, '_>, &mut T) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<T, ProviderError> {
        self.send(operation, class, work, claim, None).await
    }

    /// As [`submit_and_claim`](Self::submit_and_claim), without waiting for the sync.
    pub(super) async fn submit_ahead<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<T, StoreError> + Send + 'static,
        claim: impl FnOnce(&mut WriteTransaction<'_, '_>, &mut T) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(T, Durable), ProviderError> {
        let (sender, told) = oneshot::channel();
        let sync_waiter = SyncWaiter::new(operation, sender);
        let result = self.send(operation, JobClass::Ahead, work, claim, Some(sync_waiter)).await?;
        Ok((result, Durable::when(told)))
    }

    async fn send<T: Send + 'static>(
        &self,
        operation: &'static str,
        class: JobClass,
        work: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<T, StoreError> + Send + 'static,
        claim: impl FnOnce(&mut WriteTransaction<'_, '_>, &mut T) -> Result<(), StoreError> + Send + 'static,
        sync_waiter: Option<SyncWaiter>,
    ) -> Result<T, ProviderError> {
        if !self.inbox.wait_for_room().await {
            return Err(StoreError::Closed.into_provider_error(operation));
        }
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(AwaitedJob { operation, work, claim, sender, sync_waiter });
        self.inbox.push(Envelope { class, job, counted: true });
        receiver.await.unwrap_or_else(|_| Err(StoreError::Closed.into_provider_error(operation)))
    }

    /// Returns a handle that gives leases back without waiting.
    pub(super) fn give_backs(&self) -> GiveBacks {
        GiveBacks(self.inbox.clone())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(thread) = self.thread.take() {
            // The thread finishes its jobs and closes its connection. A panic in it has already been reported.
            let _ = thread.join();
        }
    }
}

/// Hands the writer a job that no caller waits for.
pub(super) fn submit_unattended(
    inbox: &Inbox,
    operation: &'static str,
    work: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<(), StoreError> + Send + 'static,
) {
    let (sender, _) = oneshot::channel();
    let work = Unattended(work);
    let job = Box::new(AwaitedJob { operation, work, claim: no_claim, sender, sync_waiter: None });
    inbox.push(Envelope { class: JobClass::Lease, job, counted: false });
}

/// The state of the writer thread.
pub(super) struct Writing<'c, 's> {
    pub(super) statements: &'c Statements<'s>,
    pub(super) shared: &'c Shared,
    /// `None` in memory, where there is no log.
    pub(super) keeper: Option<LogKeeper>,
    inbox: Arc<Inbox>,
    sync_level: Option<SyncLevel>,
    data_version: i64,
    /// Callers whose jobs are committed and that wait for the next sync.
    sync_waiters: Vec<SyncWaiter>,
    /// How many transactions the writer has committed since the first of them began to wait.
    unsynced: usize,
    next_owner_check: Duration,
    next_figures: Duration,
}

/// How often it is told how the store is, at most.
const FIGURES_INTERVAL: Duration = Duration::from_secs(15);

impl<'c, 's> Writing<'c, 's> {
    fn new(
        statements: &'c Statements<'s>,
        shared: &'c Shared,
        inbox: Arc<Inbox>,
        keeper: Option<LogKeeper>,
    ) -> Self {
        Self {
            statements,
            shared,
            keeper,
            inbox,
            sync_level: None,
            data_version: 0,
            sync_waiters: Vec::new(),
            unsynced: 0,
            next_owner_check: Duration::ZERO,
            next_figures: Duration::ZERO,
        }
    }

    fn run(mut self) {
        Shared::METRICS.describe();
        self.release_dead_owners();
        self.other_process_wrote();
        self.shared.announce_due_times(self.connection());
        let mut quiet_for = Duration::ZERO;
        let mut jobs = Vec::with_capacity(BATCH_SIZE);
        loop {
            let patience = match self.sync_waiters.is_empty() {
                true => self.shared.is_file.then(|| quiet_for.clamp(PEEK_INTERVAL.0, self.longest_peek())),
                false => Some(SYNC_PATIENCE),
            };
            match self.inbox.take(&mut jobs, BATCH_SIZE, patience) {
                Taken::Closed => return self.sync_for_waiters(),
                Taken::Jobs => {
                    quiet_for = Duration::ZERO;
                    self.process(&mut jobs);
                }
                Taken::Nothing if !self.sync_waiters.is_empty() => self.sync_for_waiters(),
                Taken::Nothing if self.notice_others() => quiet_for = Duration::ZERO,
                Taken::Nothing => quiet_for += patience.unwrap_or_default(),
            }
            self.keep_log_short();
            self.release_dead_owners();
            self.tell_figures();
        }
    }

    fn longest_peek(&self) -> Duration {
        match &self.shared.owners {
            Some(owners) if owners.are_alone() => PEEK_INTERVAL_ALONE,
            _ => PEEK_INTERVAL.1,
        }
    }

    fn process(&mut self, jobs: &mut Vec<Envelope>) {
        let is_write = |job: &Envelope| !matches!(job.class, JobClass::Read | JobClass::Checkpoint);
        let (writes, others): (Vec<_>, Vec<_>) = jobs.drain(..).partition(is_write);
        let writes = self.refuse_what_cannot_be_synced(writes);
        if !writes.is_empty() {
            self.transact(writes);
        }
        for Envelope { class, job, .. } in others {
            match class {
                JobClass::Checkpoint => self.checkpoint(job),
                _ => drop(job.run(&mut WriteTransaction::new(self.statements, self.shared)).give(Ok(()))),
            }
        }
    }

    /// Refuses jobs that the writer could not make durable. It still takes, renews and gives back leases, unless the
    /// log is lost: then the store is as good as closed.
    fn refuse_what_cannot_be_synced(&mut self, jobs: Vec<Envelope>) -> Vec<Envelope> {
        let is_lost = self.keeper.as_ref().is_some_and(LogKeeper::is_lost);
        let needs_sync = |job: &Envelope| is_lost || matches!(job.class, JobClass::Data | JobClass::Ahead);
        let is_promised = !self.sync_waiters.is_empty() || jobs.iter().any(needs_sync);
        let is_wanted = is_promised && (is_lost || self.syncs());
        let Some(error) = is_wanted.then(|| self.make_sure_of_log().err()).flatten() else { return jobs };
        self.answer_sync_waiters(Err(&error));
        let (refused, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(needs_sync);
        refused.into_iter().for_each(|envelope| envelope.job.fail(&error));
        others
    }

    /// Moves the log into the database, for a caller that asked for it.
    fn checkpoint(&mut self, job: Box<dyn Job>) {
        if let Err(error) = self.make_sure_of_log() {
            return job.fail(&error);
        }
        let mut tx = WriteTransaction::new(self.statements, self.shared);
        let answer = job.run(&mut tx);
        let failure = tx.failure().map(same_error);
        answer.give(Ok(()));
        failure.iter().for_each(|error| self.note_failed_move(error));
    }

    fn transact(&mut self, jobs: Vec<Envelope>) {
        let has_data = jobs.iter().any(|job| job.class == JobClass::Data);
        let is_overdue = self.unsynced >= MOST_UNSYNCED;
        let durable = has_data || is_overdue;
        let is_awaited = !self.sync_waiters.is_empty() || jobs.iter().any(|job| job.class == JobClass::Ahead);
        let (requests, began) = (jobs.len(), SystemClock.monotonic());
        if let Err(error) = self.begin(durable) {
            self.note_failure(&error);
            jobs.into_iter().for_each(|envelope| envelope.job.fail(&error));
            return;
        }
        // Here, where no other process can write any more: claims rely on knowing which work is due.
        self.notice_others();
        let mut tx = WriteTransaction::new(self.statements, self.shared);
        let mut answers: Vec<_> = jobs.into_iter().map(|envelope| envelope.job.run(&mut tx)).collect();
        answers.iter_mut().for_each(|answer| answer.claim(&mut tx));
        let (effects, committed) = tx.commit(durable && is_awaited);
        let committed = committed.or_else(|error| match self.has_fault(WriterFault::SwallowsErrors) {
            true => Ok(()),
            false => Err(error),
        });
        self.shared.ledger.enter(Committed {
            is_written: committed.is_ok() && effects.rows_changed,
            is_synced: durable && self.syncs(),
            is_settlement: false,
            rows: effects.rows,
        });
        match &committed {
            Ok(()) => {
                let took = SystemClock.monotonic().saturating_sub(began);
                Shared::METRICS.committed(durable && self.syncs(), requests, took);
                self.shared.announce(effects, self.connection());
            }
            Err(error) => {
                self.note_failure(error);
            }
        }
        for answer in answers {
            self.sync_waiters.extend(answer.give(committed.as_ref().copied()));
        }
        self.note_commit(durable, committed.as_ref().copied());
    }

    /// Answers the callers that wait for a sync, if this commit was one.
    fn note_commit(&mut self, durable: bool, committed: Result<(), &rusqlite::Error>) {
        if !self.syncs() || (durable && committed.is_ok()) {
            self.answer_sync_waiters(Ok(()));
        } else if !self.sync_waiters.is_empty() {
            self.unsynced += 1;
        }
    }

    /// Makes the commits without a sync durable: any synced commit also syncs everything before it.
    fn sync_for_waiters(&mut self) {
        if self.sync_waiters.is_empty() {
            return;
        }
        let synced = self.make_sure_of_log().and_then(|()| match self.sync() {
            // The committed data can still be made safe.
            Err(error) if self.note_failure(&error) => self.make_sure_of_log(),
            synced => synced,
        });
        self.answer_sync_waiters(synced.as_ref().copied());
    }

    /// Commits a change for the sake of its sync.
    fn sync(&mut self) -> rusqlite::Result<()> {
        self.begin(true)?;
        let (_, committed) = WriteTransaction::new(self.statements, self.shared).commit(true);
        let is_written = committed.is_ok();
        self.shared.ledger.enter(Committed { is_written, is_synced: true, is_settlement: true, rows: 0 });
        committed
    }

    fn answer_sync_waiters(&mut self, synced: Result<(), &rusqlite::Error>) {
        self.unsynced = 0;
        self.sync_waiters.drain(..).for_each(|sync_waiter| sync_waiter.tell(synced));
    }

    /// Tells whether a test wants this writer to be wrong in this way.
    fn has_fault(&self, fault: WriterFault) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.has_fault(fault))
    }

    /// Tells whether this store syncs its commits.
    fn syncs(&self) -> bool {
        self.shared.is_file && self.shared.durability == Durability::Full
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.statements.connection()
    }

    /// Releases the leases of processes that died, if it is time to look again.
    fn release_dead_owners(&mut self) {
        let Some(owners) = self.shared.owners.clone() else { return };
        // The machine's own time, whatever clock the store follows: this is about real processes.
        let now = SystemClock.monotonic();
        if now < self.next_owner_check {
            return;
        }
        self.next_owner_check = now + OWNER_CHECK_INTERVAL;
        for (owner, dead) in owners.dead(self.shared.now_ms()) {
            match self.release(&owner, &dead) {
                Ok(()) => dead.remove(),
                Err(error) => {
                    tracing::warn!(target: "duroxide::providers::sqlite", owner, %error,
                        "the leases of a process that died are not released yet");
                    self.next_owner_check = now + OWNER_CHECK_AGAIN;
                }
            }
        }
    }

    fn release(&mut self, owner: &str, dead: &DeadOwner) -> Result<(), ProviderError> {
        const OPERATION: &str = "release_dead_owner";
        self.begin(false).map_err(|error| classify(OPERATION, &error))?;
        let mut tx = WriteTransaction::new(self.statements, self.shared);
        let released = tx.atomically(|tx| owners::release(tx, owner, dead));
        if let Err(StoreError::Sqlite(error)) = &released {
            tx.spoil(error);
        }
        let (effects, committed) = tx.commit(false);
        committed.map_err(|error| {
            self.note_failure(&error);
            classify(OPERATION, &error)
        })?;
        released.map_err(|error| error.into_provider_error(OPERATION))?;
        self.shared.announce(effects, self.connection());
        Ok(())
    }

    /// Tells now and then how the store is, if this handle takes work.
    fn tell_figures(&mut self) {
        let now = SystemClock.monotonic();
        if now < self.next_figures || !self.shared.takes_work.load(Ordering::Relaxed) {
            return;
        }
        self.next_figures = now + FIGURES_INTERVAL;
        figures::tell(self.connection(), self.shared.now_ms());
        if let Some(keeper) = &self.keeper {
            Shared::METRICS.log_bytes(keeper.log_bytes());
        }
    }

    /// Begins a transaction that will be synced if it must be durable.
    pub(super) fn begin(&mut self, durable: bool) -> rusqlite::Result<()> {
        work_done::forget();
        let level = match (self.shared.is_file, self.shared.durability, durable) {
            (false, _, _) => SyncLevel::Off,
            (true, Durability::Full, true) if !self.has_fault(WriterFault::SkipsSyncs) => SyncLevel::Full,
            (true, _, _) => SyncLevel::Normal,
        };
        if self.sync_level != Some(level) {
            connection::set_sync_level(self.connection(), level)?;
            self.sync_level = Some(level);
        }
        self.connection().busy_timeout(Duration::ZERO)?;
        let begun = self.begin_as_soon_as_possible();
        self.connection().busy_timeout(self.shared.busy_timeout)?;
        begun
    }

    /// Waits for another process that writes, in short steps: SQLite's own waiting soon sleeps for 100 ms at a time, in
    /// which a busy neighbour commits dozens of times.
    fn begin_as_soon_as_possible(&self) -> rusqlite::Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            match self.statements.run("BEGIN IMMEDIATE", |statement| statement.execute([])) {
                Err(error)
                    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                        && waited < self.shared.busy_timeout =>
                {
                    if waited.is_zero() {
                        Shared::METRICS.retried();
                    }
                    block_thread(BUSY_STEP);
                    waited += BUSY_STEP;
                }
                begun => return begun.map(drop),
            }
        }
    }

    /// Notes the writes of other processes; tells whether there were any.
    fn notice_others(&mut self) -> bool {
        let has_news = self.shared.is_file && self.other_process_wrote();
        if has_news {
            self.shared.announce_due_times(self.connection());
            self.shared.announce_everything();
        }
        has_news
    }

    /// Tells whether another connection has changed the file since the last call.
    fn other_process_wrote(&mut self) -> bool {
        let version =
            self.statements.run("PRAGMA data_version", |statement| statement.query_row([], |row| row.get(0)));
        match version {
            Ok(version) => std::mem::replace(&mut self.data_version, version) != version,
            // A failed look is no reason to stop; the next write will report the error.
            Err(_) => false,
        }
    }
}

impl Drop for Writing<'_, '_> {
    fn drop(&mut self) {
        self.leave_doubtful_log();
        // Also after a panic: waiting callers must hear that no answer will come.
        self.inbox.abort();
    }
}
