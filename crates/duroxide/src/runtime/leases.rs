//! Keeps leases alive while their work goes on.
//!
//! One task renews all leases of a runtime. A claim registers its lease, and drops the registration when the store has
//! answered its ack. After an error that may go away, the task tries again. A refusal does not prove that the lease is
//! lost: the renewal may have come late, after a suspension of the machine for instance. Then the task asks the store
//! whether another worker has taken over.
//!
//! After a suspension, renewals are late, and the store may take this runtime's running work for free. So a dispatcher
//! first lets the renewals catch up, or it might claim work that its own runtime is still doing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::store::Store;
use super::tasks::Tasks;
use crate::model::{Clock, whole_ms};
use crate::observability::MetricsProvider;
use crate::providers::{LeaseState, ProviderError, WorkQueue};

const TARGET: &str = "duroxide::runtime::worker";

/// The first pause after a renewal failed for a reason that may go away; it doubles up to the renewal interval.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How far the wall clock may run ahead of the elapsed time before leases count as late. The wall clock moves on while
/// the machine is suspended; the elapsed time does not.
const JUMP_MS: u64 = 1_000;

/// How long a dispatcher waits for late renewals. A store that does not answer them must not stop the dispatcher for
/// good.
const LONGEST_CATCH_UP: Duration = Duration::from_secs(1);

/// The kind of work that a lease is on.
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
    store: Store,
    clock: Arc<dyn Clock>,
    metrics: Arc<MetricsProvider>,
    schedule: Mutex<Schedule>,
    earlier: Notify,
    // Notified when late renewals begin or are answered.
    caught_up: Notify,
}

#[derive(Default)]
struct Schedule {
    // A lease that is being renewed is in `kept` and not in `due`.
    due: BTreeSet<(Duration, u64)>,
    kept: HashMap<u64, KeptLease>,
    next_id: u64,
    // Renewals under way for leases that may have run out.
    late: usize,
    // The two clocks at the last comparison: the wall, and the time that never jumps.
    seen: Option<(u64, Duration)>,
}

impl Schedule {
    /// Tells whether the wall clock has jumped forward since the last call.
    fn has_jumped(&mut self, wall_ms: u64, now: Duration) -> bool {
        let before = self.seen.replace((wall_ms, now));
        before.is_some_and(|(wall_before, before)| {
            let passed = whole_ms(now.saturating_sub(before));
            wall_ms.saturating_sub(wall_before) > passed.saturating_add(JUMP_MS)
        })
    }

    /// Marks every lease as one that may have run out.
    fn make_all_late(&mut self, now: Duration) {
        let ids = std::mem::take(&mut self.due).into_iter().map(|(_, id)| id);
        for id in ids {
            if let Some(kept) = self.kept.get_mut(&id) {
                (kept.due, kept.live_until) = (now, now);
                self.due.insert((now, id));
            }
        }
    }
}

/// A lease that is renewed, and when.
#[derive(Clone)]
struct KeptLease {
    terms: LeaseTerms,
    token: Arc<str>,
    lost: CancellationToken,
    due: Duration,
    /// The lease is certainly live until then.
    live_until: Duration,
    failures: u32,
}

impl Leases {
    pub fn new(store: Store, clock: Arc<dyn Clock>, metrics: Arc<MetricsProvider>) -> Self {
        let (earlier, caught_up) = (Notify::new(), Notify::new());
        Self { store, clock, metrics, schedule: Mutex::default(), earlier, caught_up }
    }

    /// Renews this lease until the registration is dropped. `lost` fires if the store says that the lease is gone.
    pub fn keep(self: &Arc<Self>, terms: LeaseTerms, token: &str, lost: CancellationToken) -> Lease {
        let now = self.clock.monotonic();
        let (due, live_until) = (now.saturating_add(terms.interval), now.saturating_add(terms.duration));
        let kept = KeptLease { terms, token: token.into(), lost, due, live_until, failures: 0 };
        let mut schedule = self.schedule();
        let id = schedule.next_id;
        schedule.next_id += 1;
        schedule.kept.insert(id, kept);
        schedule.due.insert((due, id));
        if schedule.due.first() == Some(&(due, id)) {
            self.earlier.notify_one();
        }
        Lease { leases: self.clone(), id }
    }

    /// Waits, for a bounded time, until every lease that may have run out is renewed or known to be lost.
    pub async fn catch_up(&self) {
        if !self.is_behind() {
            return;
        }
        let mut patience = self.clock.sleep(LONGEST_CATCH_UP);
        loop {
            let changed = self.caught_up.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.is_behind() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = &mut patience => return,
            }
        }
    }

    /// Tells whether leases may have run out because their renewals are late.
    pub fn is_behind(&self) -> bool {
        let (wall_ms, now) = (self.clock.now_ms(), self.clock.monotonic());
        let mut schedule = self.schedule();
        if schedule.has_jumped(wall_ms, now) {
            schedule.make_all_late(now);
            self.earlier.notify_one();
        }
        schedule.late > 0 || schedule.due.first().is_some_and(|(due, _)| *due <= now)
    }

    /// Renews what is due, for ever. Each renewal is a task of `upkeep`, so that one that hangs does not delay the
    /// others.
    pub async fn run(self: Arc<Self>, upkeep: Tasks) {
        loop {
            let now = self.clock.monotonic();
            for (id, kept, late) in self.take_due(now) {
                let leases = self.clone();
                upkeep.spawn(async move {
                    leases.renew(id, kept).await;
                    drop(late);
                });
            }
            self.caught_up.notify_waiters();
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

    fn take_due(self: &Arc<Self>, now: Duration) -> Vec<(u64, KeptLease, Option<LateRenewal>)> {
        let mut schedule = self.schedule();
        let mut taken = Vec::new();
        while let Some(&(due, id)) = schedule.due.first()
            && due <= now
        {
            schedule.due.pop_first();
            let Some(kept) = schedule.kept.get(&id).cloned() else { continue };
            let is_late = kept.live_until <= now;
            schedule.late += usize::from(is_late);
            taken.push((id, kept, is_late.then(|| LateRenewal { leases: self.clone() })));
        }
        taken
    }

    /// Asks the store about a lease whose renewal or ack it refused, and takes the lease up again unless another worker
    /// has taken over.
    pub async fn recover(&self, terms: LeaseTerms, token: &str) -> Result<LeaseState, ProviderError> {
        let queue = match terms.kind {
            LeaseKind::Instance => WorkQueue::Orchestrator,
            LeaseKind::Activity => WorkQueue::Worker,
        };
        self.store.extension().recover_lease(queue, token, terms.duration).await
    }

    /// Takes note that the store refused work because its lease is lost. Counts it unless a renewal has found it out.
    pub fn note_lost(&self, token: &str) {
        let mut schedule = self.schedule();
        let id = schedule.kept.iter().find(|(_, kept)| *kept.token == *token).map(|(id, _)| *id);
        let kept = id.and_then(|id| schedule.kept.remove(&id).map(|kept| (id, kept)));
        let Some((id, kept)) = kept else { return };
        schedule.due.remove(&(kept.due, id));
        drop(schedule);
        self.count_lost(&kept);
    }

    /// Counts a lost lease. One on work that was called off has lost nothing.
    fn count_lost(&self, kept: &KeptLease) {
        if !kept.lost.is_cancelled() {
            self.metrics.record_lease_lost(match kept.terms.kind {
                LeaseKind::Instance => "turn",
                LeaseKind::Activity => "activity",
            });
        }
    }

    async fn renew(&self, id: u64, kept: KeptLease) {
        let begun = self.clock.monotonic();
        let result = match kept.terms.kind {
            LeaseKind::Instance => {
                self.store.renew_orchestration_item_lock(&kept.token, kept.terms.duration).await
            }
            LeaseKind::Activity => self.store.renew_work_item_lock(&kept.token, kept.terms.duration).await,
        };
        match result {
            Ok(()) => self.renewed(id, kept.terms, begun),
            Err(error) if error.retryable => self.renew_soon(id, &kept, &error),
            Err(error) => self.judge(id, &kept, &error).await,
        }
    }

    /// Finds out what a refused renewal means.
    async fn judge(&self, id: u64, kept: &KeptLease, refusal: &ProviderError) {
        // The work may have been acked while its renewal was under way: then nothing was lost.
        if !self.schedule().kept.contains_key(&id) {
            return;
        }
        let begun = self.clock.monotonic();
        match self.recover(kept.terms, &kept.token).await {
            Ok(LeaseState::Held) => {
                log_failure(kept, refusal);
                self.renewed(id, kept.terms, begun);
            }
            // A store of the published contract can say that a lease is lost only by refusing.
            Ok(LeaseState::Lost | LeaseState::Unknown) => {
                if self.schedule().kept.remove(&id).is_some() {
                    log_failure(kept, refusal);
                    self.count_lost(kept);
                    kept.lost.cancel();
                }
            }
            Err(error) => self.renew_soon(id, kept, &error),
        }
    }

    fn renew_soon(&self, id: u64, kept: &KeptLease, error: &ProviderError) {
        let failures = kept.failures.saturating_add(1);
        let pause = RETRY_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(kept.terms.interval);
        log_failure(kept, error);
        self.renew_again(id, pause, |kept| kept.failures = failures);
    }

    fn renewed(&self, id: u64, terms: LeaseTerms, begun: Duration) {
        self.renew_again(id, terms.interval, |kept| {
            kept.failures = 0;
            kept.live_until = begun.saturating_add(terms.duration);
        });
    }

    fn renew_again(&self, id: u64, pause: Duration, note: impl FnOnce(&mut KeptLease)) {
        let due = self.clock.monotonic().saturating_add(pause);
        let mut schedule = self.schedule();
        let Some(kept) = schedule.kept.get_mut(&id) else { return };
        kept.due = due;
        note(kept);
        schedule.due.insert((due, id));
        if schedule.due.first() == Some(&(due, id)) {
            self.earlier.notify_one();
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        let schedule = self.schedule();
        schedule.kept.len().max(schedule.due.len())
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_failure(kept: &KeptLease, error: &ProviderError) {
    tracing::info!(target: TARGET, lock_token = %kept.token, kind = ?kept.terms.kind, %error,
        retryable = error.retryable, "lease not renewed");
}

/// A renewal under way for a lease that may have run out.
struct LateRenewal {
    leases: Arc<Leases>,
}

impl Drop for LateRenewal {
    fn drop(&mut self) {
        self.leases.schedule().late -= 1;
        self.leases.caught_up.notify_waiters();
    }
}

/// A lease that the runtime renews until this is dropped.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    id: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut schedule = self.leases.schedule();
        if let Some(kept) = schedule.kept.remove(&self.id) {
            schedule.due.remove(&(kept.due, self.id));
        }
    }
}
