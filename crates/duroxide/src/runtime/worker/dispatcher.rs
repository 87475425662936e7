//! The worker dispatcher: claims activities for the slots that it serves, starts them, and waits for a reason to ask again.
//!
//! One dispatcher serves all slots on a store that leases many activities at once. A store that leases one at a time may
//! make each claim wait for work; there each slot has a dispatcher of its own.
//!
//! The dispatcher waits for a signal only after the store itself has said that it has nothing for any free slot. Slots
//! come and go while the dispatcher works: an activity handed over with a turn may take the slot that the dispatcher
//! was about to ask for. Then the dispatcher has not asked the store, knows nothing, and starts over.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::activity;
use super::claim::ClaimedActivity;
use super::slot_queue::{Start, WorkerSlot};
use crate::providers::{ProviderError, SessionFetchConfig, WorkClaim, WorkQueue, WorkRequest, WorkSignal};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::fetch_backoff::{AfterFailure, FetchBackoff, longest_silence};

/// How long a claimed activity may wait for a slot before the dispatcher gives it back to other runtimes.
const LONGEST_WAIT_FOR_SLOT: Duration = Duration::from_millis(200);

/// How long an activity waits if its session would be one too many here.
const SESSION_CAP_DELAY: Duration = Duration::from_millis(100);

/// The outcome of asking the store for activities.
enum ClaimOutcome {
    /// Activities were claimed. There may be more.
    Claimed,
    /// The store was asked for every slot that asks, and had nothing for any of them.
    Nothing,
    /// Another activity took a slot before the dispatcher could ask the store for it.
    NotAsked,
}

pub(super) struct Dispatcher {
    core: Arc<Core>,
    // The slots that it serves.
    slots: Range<usize>,
    // The slots that have taken an activity of a session, and so may own one.
    session_owners: BTreeSet<usize>,
    backoff: FetchBackoff,
}

/// Claims and starts activities for these slots until the runtime stops.
pub(super) async fn run(core: Arc<Core>, slots: Range<usize>) {
    let mut signal = core.store.extension().work_signal(WorkQueue::Worker);
    let mut dispatcher = Dispatcher::new(core.clone(), slots);
    while dispatcher.round(&mut signal).await {}
    give_back(&core, core.slot_queue.close()).await;
}

impl Dispatcher {
    pub(super) fn new(core: Arc<Core>, slots: Range<usize>) -> Self {
        Self { core, slots, session_owners: BTreeSet::new(), backoff: FetchBackoff::default() }
    }

    /// Claims and starts activities, then waits for a reason to look again. Returns false when the runtime stops.
    pub(super) async fn round(&mut self, signal: &mut WorkSignal) -> bool {
        let core = self.core.clone();
        while let Some(start) = core.slot_queue.next() {
            activity::spawn(&core, start);
        }
        if !core.slot_queue.is_empty() {
            return self.wait_for_slots().await;
        }
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return false,
            () = core.slot_queue.until_room(&self.slots) => {}
        }
        signal.mark_seen();
        let free = core.slot_queue.free(&self.slots);
        self.claim_or_wait(signal, &free).await
    }

    /// Claims for slots that were free a moment ago; if there is nothing for them, waits for a reason to ask again.
    /// Returns false when the runtime stops.
    pub(super) async fn claim_or_wait(&mut self, signal: &mut WorkSignal, free: &BTreeSet<usize>) -> bool {
        let core = self.core.clone();
        match self.claim(free).await {
            Ok(ClaimOutcome::Claimed) => {
                self.backoff.reset();
                true
            }
            Ok(ClaimOutcome::Nothing) => {
                self.backoff.reset();
                self.wait_for_work(signal, free).await
            }
            Ok(ClaimOutcome::NotAsked) => true,
            Err(error) => {
                let AfterFailure { pause, is_news } = self.backoff.after(&error, core.clock.monotonic());
                if is_news {
                    tracing::warn!(target: TARGET, %error, retryable = error.retryable, "claiming activities failed");
                }
                tokio::select! {
                    () = core.stop.cancelled() => false,
                    () = core.clock.sleep(pause) => true,
                    // A turn or another claim has queued an activity, which waits for a slot that only this dispatcher
                    // fills.
                    () = core.slot_queue.until_any_wait() => true,
                }
            }
        }
    }

    /// Waits until the slots have taken the claimed activities. Gives back those that the slots will not take soon,
    /// judging by how many they took meanwhile: other runtimes may be free.
    async fn wait_for_slots(&self) -> bool {
        let core = &self.core;
        let before = core.slot_queue.started();
        tokio::select! {
            biased;
            () = core.stop.cancelled() => false,
            () = core.slot_queue.until_empty() => true,
            () = core.slot_queue.until_room(&self.slots) => true,
            () = core.clock.sleep(LONGEST_WAIT_FOR_SLOT) => {
                let soon = core.slot_queue.started().wrapping_sub(before);
                let excess = core.slot_queue.keep(soon);
                if !excess.is_empty() {
                    core.slot_queue.pace.slow_down(soon);
                    give_back(core, excess).await;
                }
                true
            }
        }
    }

    /// Waits until a claim may find something. Returns false when the runtime stops.
    async fn wait_for_work(&self, signal: &mut WorkSignal, free: &BTreeSet<usize>) -> bool {
        // A slot that comes free helps only if it owns a session: for all other work the store has just answered.
        let owner_free = async {
            match self.session_owners.is_empty() {
                true => std::future::pending().await,
                false => self.core.slot_queue.until_more_free_than(free, &self.slots).await,
            }
        };
        tokio::select! {
            () = self.core.stop.cancelled() => false,
            () = signal.wait() => true,
            () = self.core.slot_queue.until_any_wait() => true,
            () = owner_free => true,
            () = self.core.sessions.freed() => true,
            () = self.core.clock.sleep(longest_silence(&self.core.options)) => true,
        }
    }

    /// Claims for slots that were free a moment ago, and starts the claimed activities.
    async fn claim(&mut self, free: &BTreeSet<usize>) -> Result<ClaimOutcome, ProviderError> {
        let core = self.core.clone();
        // Lets late renewals catch up: the store must not take this runtime's running work for free.
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return Ok(ClaimOutcome::NotAsked),
            () = core.leases.catch_up() => {}
        }
        let claimants = self.claimants(free);
        let mut were_all_asked = !claimants.is_empty();
        for index in claimants {
            // Holds the slot while it asks, so that the activity for it can start in it.
            let Some(slot) = core.slot_queue.take(index) else {
                were_all_asked = false;
                continue;
            };
            let claims = self.claim_for(index).await?;
            if claims.is_empty() {
                continue;
            }
            core.metrics().record_worker_dispatcher_items_fetched(claims.len() as u64);
            self.start(claims, slot).await;
            return Ok(ClaimOutcome::Claimed);
        }
        Ok(if were_all_asked { ClaimOutcome::Nothing } else { ClaimOutcome::NotAsked })
    }

    async fn claim_for(&self, index: usize) -> Result<Vec<WorkClaim>, ProviderError> {
        let (core, options) = (&self.core, &self.core.options);
        let ahead = match core.store.leases_one_at_a_time() {
            true => None,
            false => core.slot_queue.reserve(usize::MAX),
        };
        let owner_id = core.session_owner(index);
        let owner = SessionFetchConfig { owner_id, lock_timeout: options.session_lock_timeout };
        let request = WorkRequest {
            // One for the slot that asks, and as many as it and the other slots will soon have time for.
            max: 1 + ahead.as_ref().map_or(0, |ahead| ahead.count),
            lock_timeout: options.worker_lock_timeout,
            session: core.sessions.has_room().then_some(&owner),
            tag_filter: &options.worker_tag_filter,
        };
        core.store.extension().claim_work(&request).await
    }

    /// Picks the slots that ask. Slots without a session are alike to the store, and so are all slots of a named node:
    /// one of them asks.
    fn claimants(&self, free: &BTreeSet<usize>) -> Vec<usize> {
        if self.core.options.worker_node_id.is_some() {
            return free.first().copied().into_iter().collect();
        }
        let owners = free.intersection(&self.session_owners).copied();
        let other = free.difference(&self.session_owners).next().copied();
        owners.chain(other).collect()
    }

    /// Starts the activities claimed for a slot: the one of a session in that slot, the others in any.
    async fn start(&mut self, claims: Vec<WorkClaim>, slot: WorkerSlot) {
        let core = self.core.clone();
        let mut slot = Some(slot);
        let mut others = Vec::new();
        for claim in claims {
            let Some(claim) = ClaimedActivity::take(&core, claim).await else { continue };
            match &claim.work.session_id {
                Some(_) => self.start_in_session(claim, &mut slot).await,
                None => others.push(claim),
            }
        }
        // A dispatcher of all slots uses the first free one. Its own slot may own a session, and must stay free for that. A
        // dispatcher of one slot keeps its slot, because another dispatcher could take it first.
        let mut slot = slot.filter(|_| core.store.leases_one_at_a_time());
        for claim in others {
            activity::put(&core, claim, slot.take()).await;
        }
    }

    async fn start_in_session(&mut self, claim: ClaimedActivity, slot: &mut Option<WorkerSlot>) {
        let core = &self.core;
        let session_id = claim.work.session_id.clone().unwrap_or_default();
        let session = core.sessions.enter(&session_id, core.clock.monotonic());
        match (session, slot.take()) {
            (Some(session), Some(slot)) => {
                self.session_owners.insert(slot.index());
                let start = Start { claim, slot, permit: core.slot_queue.permit() };
                core.work.spawn(activity::run(core.clone(), start, Some(session)));
            }
            // Another slot has taken the last free place for a session.
            (None, unused) => {
                *slot = unused;
                tracing::debug!(target: TARGET, session = session_id, "no room for another session, giving it back");
                claim.give_back(core, Some(SESSION_CAP_DELAY)).await;
            }
            // The store returned two of them in one claim: the second waits.
            (Some(_), None) => claim.give_back(core, None).await,
        }
    }
}

async fn give_back(core: &Arc<Core>, claims: Vec<ClaimedActivity>) {
    for claim in claims {
        claim.give_back(core, None).await;
    }
}
