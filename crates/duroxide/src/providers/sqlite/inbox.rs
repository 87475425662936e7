//! The queue in front of the writer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::error::classify;
use super::write_transaction::WriteTransaction;
use crate::providers::ProviderError;

/// Jobs that wait for the writer, at most; more callers wait outside.
const INBOX_SIZE: usize = 4_096;

/// What a job asks of the commit that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobClass {
    /// Extends a lease; runs before the others.
    Renewal,
    /// Takes or gives back a lease; needs no sync.
    Lease,
    /// Changes data: must be durable before it is answered.
    Data,
    /// Changes queues and leases in a way that something else will soon follow from, and is answered twice: when it is
    /// committed, and when it is durable. What follows comes later in the same log, so it cannot outlive its cause.
    Ahead,
    /// Only reads; runs after the commit. For a database in memory, which has no other connection to read from.
    Read,
    /// Moves the log into the database; runs after the commit.
    Checkpoint,
}

/// Something for the writer to do.
pub(super) trait Job: Send {
    /// Runs in the transaction; the answer is given when that has been committed, or not.
    fn run(self: Box<Self>, tx: &mut WriteTransaction<'_, '_>) -> Box<dyn Answer>;

    /// Says that no transaction could be begun.
    fn fail(self: Box<Self>, error: &rusqlite::Error);
}

/// What is to be told to whoever waits for a job.
pub(super) trait Answer {
    /// Claims what the job asks for besides. Called when all jobs of the transaction have run, so that everything counts.
    fn claim(&mut self, tx: &mut WriteTransaction<'_, '_>);

    /// Gives the answer: the job's own result, or the failure of the commit. Returns who is to be told when all is
    /// durable.
    fn give(self: Box<Self>, committed: Result<(), &rusqlite::Error>) -> Option<SyncWaiter>;
}

/// A caller whose job is committed, and who waits to hear that it is durable.
pub(super) struct SyncWaiter {
    operation: &'static str,
    sender: oneshot::Sender<Result<(), ProviderError>>,
}

impl SyncWaiter {
    pub(super) fn new(operation: &'static str, sender: oneshot::Sender<Result<(), ProviderError>>) -> Self {
        Self { operation, sender }
    }

    /// Says that all is durable, or that it could not be made so.
    pub(super) fn tell(self, synced: Result<(), &rusqlite::Error>) {
        // A caller that went away does not hear it.
        let _ = self.sender.send(synced.map_err(|error| classify(self.operation, error)));
    }
}

/// A job on its way to the writer.
pub(super) struct Envelope {
    pub(super) class: JobClass,
    pub(super) job: Box<dyn Job>,
    /// Whether the job takes up room: one that nobody waits for does not.
    pub(super) counted: bool,
}

#[derive(Default)]
struct Jobs {
    renewals: VecDeque<Envelope>,
    others: VecDeque<Envelope>,
    closed: bool,
}

/// Where callers add jobs and the writer takes them in batches.
pub(super) struct Inbox {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    room: Semaphore,
}

/// What the writer found.
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
            // The writer gives the room back when it takes the job.
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(_) => false,
        }
    }

    /// Adds a job. A closed inbox drops it, which its caller notices. It still takes a job that nobody waits for, such as
    /// giving leases back: that may come from the writer itself, while it finishes what it was given.
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

    /// Takes no more jobs; what is there is still done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.arrived.notify_one();
    }

    /// Takes no more jobs and drops what is there.
    pub(super) fn abort(&self) {
        self.close();
        let mut jobs = self.lock();
        let dropped = (std::mem::take(&mut jobs.renewals), std::mem::take(&mut jobs.others));
        drop(jobs);
        drop(dropped);
    }

    /// Moves up to `max` jobs into `taken`, waiting for the first: for ever, or as long as `patience` lasts.
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
