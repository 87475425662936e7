//! The queue in front of the writer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::error::classify;
use super::write_transaction::WriteTransaction;
use crate::providers::ProviderError;

/// The most jobs that wait for the writer; further callers wait outside.
const INBOX_SIZE: usize = 4_096;

/// The demands of a job on its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobClass {
    /// Extends a lease; runs before the others.
    Renewal,
    /// Takes or gives back a lease; needs no sync.
    Lease,
    /// Changes data: must be durable before the writer answers.
    Data,
    /// Changes queues and leases so that another write will soon follow. The writer answers twice: when the job is
    /// committed, and when it is durable. The following write comes later in the same log, so it cannot outlive its
    /// cause.
    Ahead,
    /// Only reads; runs after the commit. For a database in memory, which has no other connection to read from.
    Read,
    /// Moves the log into the database; runs after the commit.
    Checkpoint,
}

/// A task for the writer.
pub(super) trait Job: Send {
    /// Runs in the transaction; the writer gives the answer after the commit, or after its failure.
    fn run(self: Box<Self>, tx: &mut WriteTransaction<'_, '_>) -> Box<dyn JobAnswer>;

    /// Answers that no transaction could begin.
    fn fail(self: Box<Self>, error: &rusqlite::Error);
}

/// The answer to the caller that waits for a job.
pub(super) trait JobAnswer {
    /// Makes the claims that the job also asks for. The writer calls this when all jobs of the transaction have run, so
    /// that the claims see all their changes.
    fn claim(&mut self, tx: &mut WriteTransaction<'_, '_>);

    /// Gives the answer: the job's own result, or the failure of the commit. Returns the caller that still waits until
    /// the commit is durable.
    fn give(self: Box<Self>, committed: Result<(), &rusqlite::Error>) -> Option<SyncWaiter>;
}

/// A caller whose job is committed, and that waits until it is durable.
pub(super) struct SyncWaiter {
    operation: &'static str,
    sender: oneshot::Sender<Result<(), ProviderError>>,
}

impl SyncWaiter {
    pub(super) fn new(operation: &'static str, sender: oneshot::Sender<Result<(), ProviderError>>) -> Self {
        Self { operation, sender }
    }

    /// Tells the caller that the commit is durable, or that the sync failed.
    pub(super) fn tell(self, synced: Result<(), &rusqlite::Error>) {
        // A caller that went away does not get it.
        let _ = self.sender.send(synced.map_err(|error| classify(self.operation, error)));
    }
}

/// A job in the queue to the writer.
pub(super) struct Envelope {
    pub(super) class: JobClass,
    pub(super) job: Box<dyn Job>,
    /// Whether the job takes up room: a job without a waiting caller does not.
    pub(super) counted: bool,
}

#[derive(Default)]
struct Jobs {
    renewals: VecDeque<Envelope>,
    others: VecDeque<Envelope>,
    closed: bool,
}

/// The queue to which callers add jobs, and from which the writer takes them in batches.
pub(super) struct Inbox {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    room: Semaphore,
}

/// The result of taking jobs.
pub(super) enum Taken {
    Jobs,
    Nothing,
    Closed,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { jobs: Mutex::default(), arrived: Condvar::new(), room: Semaphore::new(INBOX_SIZE) }
    }

    /// Waits for room; `false` if the inbox is closed.
    pub(super) async fn wait_for_room(&self) -> bool {
        match self.room.acquire().await {
            // The writer frees the room when it takes the job.
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(_) => false,
        }
    }

    /// Adds a job. A closed inbox drops it, which its caller notices. But it still accepts a job without a waiting
    /// caller, such as giving leases back: such a job may come from the writer itself, while it finishes the last jobs.
    pub(super) fn push(&self, envelope: Envelope) {
        let mut jobs = self.lock();
        if jobs.closed && envelope.counted {
            return;
        }
        match envelope.class {
            JobClass::Renewal => jobs.renewals.push_back(envelope),
            _ => jobs.others.push_back(envelope),
        }
        drop(jobs);
        self.arrived.notify_one();
    }

    /// Accepts no more jobs; the writer still does those in the queue.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.arrived.notify_one();
    }

    /// Accepts no more jobs, and drops those in the queue.
    pub(super) fn abort(&self) {
        self.close();
        let mut jobs = self.lock();
        let dropped = (std::mem::take(&mut jobs.renewals), std::mem::take(&mut jobs.others));
        drop(jobs);
        drop(dropped);
    }

    /// Moves up to `max` jobs into `taken`. Waits for the first: for ever, or as long as `patience` lasts.
    pub(super) fn take(&self, taken: &mut Vec<Envelope>, max: usize, patience: Option<Duration>) -> Taken {
        let nothing = |jobs: &mut Jobs| jobs.renewals.is_empty() && jobs.others.is_empty() && !jobs.closed;
        let mut jobs = match patience {
            Some(patience) => {
                let waited = self.arrived.wait_timeout_while(self.lock(), patience, nothing);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.arrived.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner),
        };
        while taken.len() < max {
            let Some(job) = jobs.renewals.pop_front().or_else(|| jobs.others.pop_front()) else { break };
            taken.push(job);
        }
        let closed = jobs.closed;
        drop(jobs);
        self.room.add_permits(taken.iter().filter(|envelope| envelope.counted).count());
        match (taken.is_empty(), closed) {
            (false, _) => Taken::Jobs,
            (true, true) => Taken::Closed,
            (true, false) => Taken::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // Jobs are only moved in and out under the lock, so a panic elsewhere does not spoil it.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
