//! The worker dispatcher on a store that signals: claims in batches, and waits without asking.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::activity;
use super::claim::ClaimedActivity;
use crate::providers::{ProviderError, SessionFetchConfig, WorkClaim, WorkQueue, WorkRequest, WorkSignal};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::FetchBackoff;
use crate::runtime::pace::Pace;
use crate::runtime::slots::{Slot, Slots};

/// The most activities that are claimed together.
const LARGEST_BATCH: usize = 64;

/// The most activities that are under way at once, those included whose result is being stored.
const MOST_UNDER_WAY: usize = 1024;

/// How long a claimed activity may wait for a slot before others get a chance.
const LONGEST_WAIT_FOR_SLOT: Duration = Duration::from_millis(200);

struct Dispatcher {
    core: Arc<Core>,
    slots: Slots,
    // Claimed and not yet running; never bound to a session.
    ahead: VecDeque<ClaimedActivity>,
    // The slots that have taken an activity of a session, and so may own one.
    session_owners: BTreeSet<usize>,
    under_way: Arc<Semaphore>,
    pace: Arc<Pace>,
    backoff: FetchBackoff,
}

/// Claims and starts activities until the runtime stops.
pub(super) async fn run(core: Arc<Core>, slots: Slots) {
    let Some(mut signal) = core.store.as_extended().map(|store| store.work_signal(WorkQueue::Worker)) else {
        return;
    };
    let mut dispatcher = Dispatcher {
        core,
        slots,
        ahead: VecDeque::new(),
        session_owners: BTreeSet::new(),
        under_way: Arc::new(Semaphore::new(MOST_UNDER_WAY)),
        pace: Arc::new(Pace::new(LARGEST_BATCH)),
        backoff: FetchBackoff::default(),
    };
    while dispatcher.round(&mut signal).await {}
    dispatcher.give_back_all().await;
}

impl Dispatcher {
    /// Starts what can be started, then waits for a reason to look again. Returns false when the runtime stops.
    async fn round(&mut self, signal: &mut WorkSignal) -> bool {
        let core = self.core.clone();
        let Some(room) = self.wait_for_room().await else { return !core.stop.is_cancelled() };
        if let Some(claim) = self.ahead.pop_front() {
            if let Some(slot) = self.slots.take_any() {
                self.start(claim, slot, room);
            } else {
                self.ahead.push_front(claim);
            }
            return true;
        }
        signal.mark_seen();
        let free = self.slots.free();
        match self.claim(&free, room).await {
            Ok(true) => {
                self.backoff.reset();
                true
            }
            Ok(false) => {
                self.backoff.reset();
                self.wait_for_work(signal, &free).await
            }
            Err(error) => {
                tracing::warn!(target: TARGET, %error, retryable = error.retryable, "claiming activities failed");
                let pause = self.backoff.after(&error);
                tokio::select! {
                    () = core.stop.cancelled() => false,
                    () = core.clock.sleep(pause) => true,
                }
            }
        }
    }

    /// Waits for a free slot. What is claimed already does not wait for long: others may be free.
    async fn wait_for_room(&mut self) -> Option<OwnedSemaphorePermit> {
        let room = async {
            let permit = self.under_way.clone().acquire_owned().await;
            self.slots.any_free().await;
            permit
        };
        let too_long = async {
            match self.ahead.is_empty() {
                true => std::future::pending().await,
                false => self.core.clock.sleep(LONGEST_WAIT_FOR_SLOT).await,
            }
        };
        tokio::select! {
            biased;
            () = self.core.stop.cancelled() => None,
            permit = room => permit.ok(),
            () = too_long => {
                self.pace.slow_down();
                self.give_back_all().await;
                None
            }
        }
    }

    /// Waits until a claim may find something. Returns false when the runtime stops.
    async fn wait_for_work(&self, signal: &mut WorkSignal, free: &BTreeSet<usize>) -> bool {
        // A slot that comes free can only help if it owns a session: for anything else there were free slots.
        let owner_free = async {
            match self.session_owners.is_empty() {
                true => std::future::pending().await,
                false => self.slots.more_free_than(free).await,
            }
        };
        tokio::select! {
            () = self.core.stop.cancelled() => false,
            () = signal.wait() => true,
            () = owner_free => true,
            () = self.core.sessions.freed() => true,
        }
    }

    /// Claims for the free slots and starts what it gets. Returns false if there was nothing for any of them.
    async fn claim(
        &mut self,
        free: &BTreeSet<usize>,
        room: OwnedSemaphorePermit,
    ) -> Result<bool, ProviderError> {
        let mut room = Some(room);
        for index in self.claimants(free) {
            let claims = self.claim_for(index, free.len()).await?;
            if claims.is_empty() {
                continue;
            }
            self.core.metrics().record_worker_dispatcher_items_fetched(claims.len() as u64);
            for claim in claims {
                let Some(claim) = ClaimedActivity::take(&self.core, claim).await else { continue };
                if claim.work.session_id.is_some() {
                    self.start_in_session(claim, index, &mut room).await;
                } else {
                    self.ahead.push_back(claim);
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    async fn claim_for(&self, index: usize, free: usize) -> Result<Vec<WorkClaim>, ProviderError> {
        let options = &self.core.options;
        let Some(store) = self.core.store.as_extended() else { return Ok(Vec::new()) };
        let owner_id = self.core.session_owner(index);
        let owner = SessionFetchConfig { owner_id, lock_timeout: options.session_lock_timeout };
        let request = WorkRequest {
            max: self.pace.batch(free),
            lock_timeout: options.worker_lock_timeout,
            session: self.core.sessions.has_room().then_some(&owner),
            tag_filter: &options.worker_tag_filter,
        };
        store.claim_work(&request).await
    }

    /// Slots that own no session are all alike to the store, and so are all slots of a named node: one of them asks.
    fn claimants(&self, free: &BTreeSet<usize>) -> Vec<usize> {
        if self.core.options.worker_node_id.is_some() {
            return free.first().copied().into_iter().collect();
        }
        let owners = free.intersection(&self.session_owners).copied();
        let other = free.difference(&self.session_owners).next().copied();
        owners.chain(other).collect()
    }

    async fn start_in_session(
        &mut self,
        claim: ClaimedActivity,
        index: usize,
        room: &mut Option<OwnedSemaphorePermit>,
    ) {
        let session_id = claim.work.session_id.clone().unwrap_or_default();
        let session = self.core.sessions.enter(&session_id, self.core.clock.monotonic());
        match (session, self.slots.take(index), room.take()) {
            (Some(session), Some(slot), Some(room)) => {
                self.session_owners.insert(index);
                self.spawn(claim, slot, Some(session), room);
            }
            // A store that returns two of them in one claim: the second waits for its turn.
            _ => claim.give_back(&self.core, None).await,
        }
    }

    fn start(&self, claim: ClaimedActivity, slot: Slot, room: OwnedSemaphorePermit) {
        self.spawn(claim, slot, None, room);
    }

    fn spawn(
        &self,
        claim: ClaimedActivity,
        slot: Slot,
        session: Option<crate::runtime::sessions::InSession>,
        room: OwnedSemaphorePermit,
    ) {
        let run = activity::run(self.core.clone(), claim, slot, session, self.pace.clone());
        self.core.work.spawn(async move {
            run.await;
            drop(room);
        });
    }

    async fn give_back_all(&mut self) {
        for claim in std::mem::take(&mut self.ahead) {
            claim.give_back(&self.core, None).await;
        }
    }
}
