//! How many turns may be under way, and when another may begin.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::turn::{self, LeasedClaim};
use crate::model::{Clock, SystemClock};
use crate::observability::MetricsProvider;
use crate::providers::{InstanceClaim, InstanceRequest};
use crate::runtime::core::Core;
use crate::runtime::pace::Pace;

/// The most instances to claim together.
const MOST_CLAIMED_AT_ONCE: usize = 256;

/// The most turns that are under way at once, including those being loaded or stored.
const MOST_UNDER_WAY: usize = 1024;

/// Slots in which the code of turns runs, and permits for all turns that are under way.
pub(crate) struct TurnCapacity {
    slots: Arc<Semaphore>,
    // The numbers of the free slots. There are as many as free permits, and a slot returns its number before its
    // permit.
    numbers: Arc<Mutex<BTreeSet<usize>>>,
    under_way: Arc<Semaphore>,
    pace: Pace,
    /// Whether one of the starts that came before any turn was measured has gone through the queue.
    first_start_is_queued: AtomicBool,
    /// Tells when the first turn was measured.
    measured: watch::Sender<bool>,
}

impl TurnCapacity {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            numbers: Arc::new(Mutex::new((0..slots).collect())),
            under_way: Arc::new(Semaphore::new(if slots == 0 { 0 } else { MOST_UNDER_WAY })),
            pace: Pace::new(MOST_CLAIMED_AT_ONCE),
            first_start_is_queued: AtomicBool::new(false),
            measured: watch::Sender::new(false),
        }
    }

    /// Tells whether turns are quick, so that a client may wait for one. Before it has measured a turn, the runtime does not know: code that
    /// blocks its thread would block the client, too. So the first start goes through the queue, and others wait for its turn for
    /// as long as they have patience.
    pub(crate) async fn is_quick_enough_to_wait(&self, patience: Duration) -> bool {
        if !self.pace.is_known() {
            if !self.first_start_is_queued.swap(true, Ordering::AcqRel) {
                return false;
            }
            let mut measured = self.measured.subscribe();
            tokio::select! {
                biased;
                _ = measured.wait_for(|is_measured| *is_measured) => {}
                () = SystemClock.sleep(patience) => return false,
            }
        }
        self.is_quick()
    }

    /// Waits for a slot to run user code in.
    pub(super) async fn slot(&self) -> Option<TurnSlot> {
        let permit = self.slots.clone().acquire_owned().await.ok()?;
        let number = lock(&self.numbers).pop_first().unwrap_or_default();
        Some(TurnSlot { number, numbers: self.numbers.clone(), _permit: permit })
    }

    /// Waits for a slot; `None` if the runtime stops first.
    pub(crate) async fn slot_unless(&self, stop: &CancellationToken) -> Option<TurnSlot> {
        tokio::select! {
            biased;
            slot = self.slot() => slot,
            () = stop.cancelled() => None,
        }
    }

    /// Tells how many of the slots run user code.
    pub(crate) fn used(&self, slots: usize) -> usize {
        slots.saturating_sub(self.slots.available_permits())
    }

    /// Tells whether turns have been quick lately.
    pub(crate) fn is_quick(&self) -> bool {
        self.pace.items_to_claim(1) > 1
    }

    /// Takes note of how long the code of a turn took.
    pub(crate) fn note_turn(&self, metrics: &MetricsProvider, took: Duration) {
        self.pace.record(took);
        self.measured.send_if_modified(|is_measured| !std::mem::replace(is_measured, true));
        metrics.record_turn_duration(took);
    }

    /// Waits until a turn can begin.
    pub(super) async fn any_free(&self) {
        let _ = self.under_way.acquire().await;
    }

    /// How many instances to claim: no more than there are permits left, or than the slots will soon finish.
    pub(super) fn wanted(&self, slots: usize) -> usize {
        self.pace.items_to_claim(slots).min(self.under_way.available_permits().max(1))
    }

    /// Waits for a permit.
    pub(super) async fn permit(&self) -> Option<TurnPermit> {
        self.under_way.clone().acquire_owned().await.ok().map(TurnPermit)
    }
}

/// A numbered slot in use; free again when this is dropped.
pub(crate) struct TurnSlot {
    pub number: usize,
    numbers: Arc<Mutex<BTreeSet<usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for TurnSlot {
    fn drop(&mut self) {
        lock(&self.numbers).insert(self.number);
    }
}

fn lock(numbers: &Mutex<BTreeSet<usize>>) -> MutexGuard<'_, BTreeSet<usize>> {
    numbers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A turn's permit, from its claim until it is stored.
pub(crate) struct TurnPermit(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// Takes a permit for a turn that a worker may claim along with a stored result; `None` if this runtime should begin no
/// turn now.
pub(crate) fn reserve(core: &Core) -> Option<TurnPermit> {
    let capacity = &core.turn_capacity;
    // If a turn would wait long for its slot here, another runtime should take it.
    if capacity.slots.available_permits() == 0 && !capacity.is_quick() {
        return None;
    }
    reserve_though_slow(core)
}

/// As [`reserve`], also if the turn may wait long for its slot: for one that no other runtime would take sooner.
pub(crate) fn reserve_though_slow(core: &Core) -> Option<TurnPermit> {
    if core.stop.is_cancelled() {
        return None;
    }
    core.turn_capacity.under_way.clone().try_acquire_owned().ok().map(TurnPermit)
}

/// Asks for instances to take turns with.
pub(crate) fn request(core: &Core, max: usize) -> InstanceRequest<'_> {
    InstanceRequest { max, lock_timeout: core.options.orchestrator_lock_timeout, filter: Some(&core.filter) }
}

/// Begins the turn of an instance that was claimed along with a stored result.
pub(crate) fn receive(core: &Arc<Core>, claims: Vec<InstanceClaim>, permit: Option<TurnPermit>) {
    if let (Some(claim), Some(permit)) = (claims.into_iter().next(), permit) {
        core.metrics().record_orch_dispatcher_items_fetched(1);
        begin(core, LeasedClaim::new(core, claim.into()), permit, None);
    }
}

/// Begins a turn, in this slot or in the next that is free.
pub(super) fn begin(core: &Arc<Core>, leased: LeasedClaim, permit: TurnPermit, slot: Option<TurnSlot>) {
    let turn = turn::claimed(core.clone(), leased, slot);
    core.work.spawn(async move {
        turn.await;
        drop(permit);
    });
}
