//! Keeps leases alive while their work goes on.
//!
//! One task renews all leases of a runtime. Work registers its lease when it is claimed, and drops the registration when
//! its ack is answered. An error that may go away is followed by another attempt. A refusal is no proof that the lease
//! is lost: it may have come late, after a suspension of the machine for instance. Then the store is asked whether
//! somebody has taken over.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::tasks::Tasks;
use crate::model::Clock;
use crate::providers::{LeaseState, Provider, ProviderError, WorkQueue};

const TARGET: &str = "duroxide::runtime::worker";

/// The first pause after a renewal failed for a reason that may go away; it doubles up to the renewal interval.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What is leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// An instance, for a turn.
    Instance,
    /// An activity.
    Activity,
}

/// How long leases of a kind last, and when they are renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseTerms {
    pub kind: LeaseKind,
    pub duration: Duration,
    pub interval: Duration,
}

/// All leases of a runtime that are in use.
pub(crate) struct Leases {
    store: Arc<dyn Provider>,
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
    earlier: Notify,
}

#[derive(Default)]
struct Schedule {
    // A lease that is being renewed is in `held` and not in `due`.
    due: BTreeSet<(Duration, u64)>,
    held: HashMap<u64, Held>,
    next_id: u64,
}

#[derive(Clone)]
struct Held {
    terms: LeaseTerms,
    token: Arc<str>,
    lost: CancellationToken,
    due: Duration,
    failures: u32,
}

impl Leases {
    pub fn new(store: Arc<dyn Provider>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, schedule: Mutex::default(), earlier: Notify::new() }
    }

    /// Renews this lease until the registration is dropped. `lost` fires if the store says that it is gone.
    pub fn keep(self: &Arc<Self>, terms: LeaseTerms, token: &str, lost: CancellationToken) -> Lease {
        let due = self.clock.monotonic().saturating_add(terms.interval);
        let held = Held { terms, token: token.into(), lost, due, failures: 0 };
        let mut schedule = self.schedule();
        let id = schedule.next_id;
        schedule.next_id += 1;
        schedule.held.insert(id, held);
        schedule.due.insert((due, id));
        if schedule.due.first() == Some(&(due, id)) {
            self.earlier.notify_one();
        }
        Lease { leases: self.clone(), id }
    }

    /// Renews what is due, for ever. Renewals are tasks of `upkeep`: one that hangs does not hold up the others.
    pub async fn run(self: Arc<Self>, upkeep: Tasks) {
        loop {
            let now = self.clock.monotonic();
            for (id, held) in self.take_due(now) {
                let leases = self.clone();
                upkeep.spawn(async move { leases.renew(id, held).await });
            }
            let next = self.schedule().due.first().map(|(due, _)| *due);
            let sleep = async {
                match next {
                    Some(due) => self.clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    fn take_due(&self, now: Duration) -> Vec<(u64, Held)> {
        let mut schedule = self.schedule();
        let mut taken = Vec::new();
        while let Some(&(due, id)) = schedule.due.first()
            && due <= now
        {
            schedule.due.pop_first();
            if let Some(held) = schedule.held.get(&id) {
                taken.push((id, held.clone()));
            }
        }
        taken
    }

    /// Asks the store for a lease whose renewal or ack was refused: takes it up again unless somebody has taken over.
    pub async fn recover(&self, terms: LeaseTerms, token: &str) -> Result<LeaseState, ProviderError> {
        let queue = match terms.kind {
            LeaseKind::Instance => WorkQueue::Orchestrator,
            LeaseKind::Activity => WorkQueue::Worker,
        };
        match self.store.as_extended() {
            Some(store) => store.recover_lease(queue, token, terms.duration).await,
            None => Ok(LeaseState::Unknown),
        }
    }

    async fn renew(&self, id: u64, held: Held) {
        let result = match held.terms.kind {
            LeaseKind::Instance => {
                self.store.renew_orchestration_item_lock(&held.token, held.terms.duration).await
            }
            LeaseKind::Activity => self.store.renew_work_item_lock(&held.token, held.terms.duration).await,
        };
        match result {
            Ok(()) => self.renew_again(id, held.terms.interval, 0),
            Err(error) if error.retryable => self.renew_soon(id, &held, &error),
            Err(error) => self.judge(id, &held, &error).await,
        }
    }

    /// Finds out what a refused renewal means.
    async fn judge(&self, id: u64, held: &Held, refusal: &ProviderError) {
        // While the renewal was under way, the work may have been acked: then nothing was lost.
        if !self.schedule().held.contains_key(&id) {
            return;
        }
        match self.recover(held.terms, &held.token).await {
            Ok(LeaseState::Held) => {
                log_failure(held, refusal);
                self.renew_again(id, held.terms.interval, 0);
            }
            // A store of the published contract has no other way to say that the lease is lost than to refuse.
            Ok(LeaseState::Lost | LeaseState::Unknown) => {
                if self.schedule().held.remove(&id).is_some() {
                    log_failure(held, refusal);
                    held.lost.cancel();
                }
            }
            Err(error) => self.renew_soon(id, held, &error),
        }
    }

    fn renew_soon(&self, id: u64, held: &Held, error: &ProviderError) {
        let failures = held.failures.saturating_add(1);
        let pause = RETRY_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(held.terms.interval);
        log_failure(held, error);
        self.renew_again(id, pause, failures);
    }

    fn renew_again(&self, id: u64, pause: Duration, failures: u32) {
        let due = self.clock.monotonic().saturating_add(pause);
        let mut schedule = self.schedule();
        let Some(held) = schedule.held.get_mut(&id) else { return };
        held.due = due;
        held.failures = failures;
        schedule.due.insert((due, id));
        if schedule.due.first() == Some(&(due, id)) {
            self.earlier.notify_one();
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        let schedule = self.schedule();
        schedule.held.len().max(schedule.due.len())
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_failure(held: &Held, error: &ProviderError) {
    tracing::info!(target: TARGET, lock_token = %held.token, kind = ?held.terms.kind, %error,
        retryable = error.retryable, "lease not renewed");
}

/// A lease that is renewed until this is dropped.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    id: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut schedule = self.leases.schedule();
        if let Some(held) = schedule.held.remove(&self.id) {
            schedule.due.remove(&(held.due, self.id));
        }
    }
}
