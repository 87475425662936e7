//! Requests that want no commit of their own: each joins the next batch that is made for others.
//!
//! A heartbeat is one. It is of little worth, so it waits for a commit of other requests; and if none comes for a while, there
//! is no load, and its caller commits it alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::jobs::Job;

/// The requests that wait for a batch.
#[derive(Default)]
pub(crate) struct DeferredJobs(Mutex<DeferredList>);

#[derive(Default)]
struct DeferredList {
    jobs: Vec<(u64, Job)>,
    /// How many requests have ever waited: the number of the last ticket.
    tickets: u64,
}

impl DeferredJobs {
    /// Lets a request wait for a batch. Returns its ticket.
    pub(crate) fn add(&self, job: Job) -> u64 {
        let mut deferred = self.lock();
        // Callers may have gone away.
        deferred.jobs.retain(|(_, job)| !job.is_moot());
        deferred.tickets += 1;
        let ticket = deferred.tickets;
        deferred.jobs.push((ticket, job));
        ticket
    }

    /// Takes all requests, for a batch that is made now.
    pub(crate) fn take(&self) -> Vec<Job> {
        std::mem::take(&mut self.lock().jobs).into_iter().map(|(_, job)| job).collect()
    }

    /// Takes a request back; `false` if a batch has it.
    pub(crate) fn withdraw(&self, ticket: u64) -> bool {
        let mut deferred = self.lock();
        let before = deferred.jobs.len();
        deferred.jobs.retain(|(other, _)| *other != ticket);
        deferred.jobs.len() < before
    }

    fn lock(&self) -> MutexGuard<'_, DeferredList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
