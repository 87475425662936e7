//! The worker slots, and the queue of claimed activities that wait for one.
//!
//! A slot is free or runs user code. An activity claimed while no slot is free waits in the queue. The next slot that
//! comes free takes it, and wakes nothing else. The runtime never claims more than the slots will soon finish: the
//! dispatcher or turn that wants to claim first reserves room for its claims.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::claim::ClaimedActivity;
use crate::runtime::pace::Pace;

/// The most activities to claim together.
const MOST_CLAIMED_AT_ONCE: usize = 1024;

/// The most activities that are under way at once, including those whose result is being stored.
const MOST_UNDER_WAY: usize = 2048;

/// A fixed number of numbered slots, and the activities that wait for one.
pub(crate) struct SlotQueue {
    count: usize,
    state: Mutex<State>,
    // Counts the changes that a task may wait for.
    changes: watch::Sender<u64>,
    pub(super) pace: Pace,
}

struct State {
    free: BTreeSet<usize>,
    // Claimed and not yet running; never bound to a session.
    waiting: VecDeque<ClaimedActivity>,
    // How many claims under way have reserved room.
    reserved: usize,
    // Activities that run or are being stored.
    under_way: usize,
    // All activities ever started.
    started: usize,
    is_closed: bool,
}

impl State {
    fn begin(&mut self) {
        self.under_way += 1;
        self.started = self.started.wrapping_add(1);
    }

    fn room(&self) -> usize {
        MOST_UNDER_WAY.saturating_sub(self.under_way + self.reserved + self.waiting.len())
    }
}

impl SlotQueue {
    pub(crate) fn new(count: usize) -> Self {
        let state = State {
            free: (0..count).collect(),
            waiting: VecDeque::new(),
            reserved: 0,
            under_way: 0,
            started: 0,
            is_closed: true,
        };
        Self {
            count,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            pace: Pace::new(MOST_CLAIMED_AT_ONCE),
        }
    }

    /// Accepts claims from now on, and starts them.
    pub(super) fn open(&self) {
        self.state().is_closed = false;
    }

    /// Accepts no more claims, and returns the waiting ones.
    pub(super) fn close(&self) -> Vec<ClaimedActivity> {
        self.state().is_closed = true;
        self.clear()
    }

    /// Returns the waiting claims.
    pub(super) fn clear(&self) -> Vec<ClaimedActivity> {
        self.keep(0)
    }

    /// Keeps the first few of the waiting claims, and returns the others.
    pub(super) fn keep(&self, count: usize) -> Vec<ClaimedActivity> {
        let mut state = self.state();
        let kept = count.min(state.waiting.len());
        let others = state.waiting.split_off(kept);
        drop(state);
        self.changed();
        others.into()
    }

    /// Tells how many of the slots run user code.
    pub(crate) fn used(&self) -> usize {
        self.count - self.state().free.len()
    }

    /// Counts all activities ever started.
    pub(super) fn started(&self) -> usize {
        self.state().started
    }

    /// Reserves room for up to `wanted` claims: no more than the slots will soon finish.
    pub(crate) fn reserve(self: &Arc<Self>, wanted: usize) -> Option<Reservation> {
        let soon = self.pace.items_to_claim(self.count);
        let mut state = self.state();
        let busy = self.count - state.free.len();
        let taken = busy + state.waiting.len() + state.reserved;
        let count = wanted.min(soon.saturating_sub(taken)).min(state.room());
        if count == 0 || state.is_closed {
            return None;
        }
        state.reserved += count;
        drop(state);
        Some(Reservation { queue: self.clone(), count })
    }

    /// Adds a claim. Returns it with a slot if it can start now; keeps it otherwise. A closed queue returns it without
    /// a slot, and the caller must give it back.
    pub(super) fn put(self: &Arc<Self>, claim: ClaimedActivity) -> Put {
        let mut state = self.state();
        if state.is_closed {
            return Put::Refused(Box::new(claim));
        }
        match state.free.pop_first() {
            Some(index) if state.waiting.is_empty() => {
                state.begin();
                drop(state);
                Put::Start(Box::new(self.start(claim, self.slot(index))))
            }
            free => {
                state.free.extend(free);
                state.waiting.push_back(claim);
                let is_first = state.waiting.len() == 1;
                drop(state);
                if is_first {
                    self.changed();
                }
                Put::Waits
            }
        }
    }

    /// Adds a claim for a slot that the caller holds. It starts there, unless others wait already: those come first.
    pub(super) fn put_in(self: &Arc<Self>, slot: WorkerSlot, claim: ClaimedActivity) -> Put {
        let mut state = self.state();
        if state.is_closed || !state.waiting.is_empty() {
            drop(state);
            drop(slot);
            return self.put(claim);
        }
        state.begin();
        drop(state);
        Put::Start(Box::new(self.start(claim, slot)))
    }

    /// Takes the next waiting claim, if a slot is free for it.
    pub(super) fn next(self: &Arc<Self>) -> Option<Start> {
        let mut state = self.state();
        if state.free.is_empty() {
            return None;
        }
        let claim = state.waiting.pop_front()?;
        let index = state.free.pop_first()?;
        state.begin();
        drop(state);
        Some(self.start(claim, self.slot(index)))
    }

    /// Uses a slot for the next waiting claim, or frees the slot.
    pub(super) fn next_in(self: &Arc<Self>, slot: WorkerSlot) -> Option<Start> {
        let mut state = self.state();
        // Without a next claim, this drops and frees the slot. If a turn adds a claim in between, the dispatcher finds
        // it: the claim and the free slot both wake the dispatcher.
        let claim = state.waiting.pop_front()?;
        state.begin();
        let was_last = state.waiting.is_empty();
        drop(state);
        if was_last {
            self.changed();
        }
        Some(self.start(claim, slot))
    }

    /// Takes one slot, unless it is in use.
    pub(super) fn take(self: &Arc<Self>, index: usize) -> Option<WorkerSlot> {
        let taken = self.state().free.remove(&index);
        taken.then(|| self.slot(index))
    }

    /// Takes the permit of an activity that did not go through the queue.
    pub(super) fn permit(self: &Arc<Self>) -> ActivityPermit {
        self.state().begin();
        ActivityPermit { queue: self.clone() }
    }

    /// Lists the free slots among these.
    pub(super) fn free(&self, slots: &Range<usize>) -> BTreeSet<usize> {
        self.state().free.range(slots.clone()).copied().collect()
    }

    /// Tells whether no claim waits.
    pub(super) fn is_empty(&self) -> bool {
        self.state().waiting.is_empty()
    }

    /// Returns when no claim waits.
    pub(super) async fn until_empty(&self) {
        self.until(|state| state.waiting.is_empty()).await;
    }

    /// Returns when a claim waits.
    pub(super) async fn until_any_wait(&self) {
        self.until(|state| !state.waiting.is_empty()).await;
    }

    /// Returns when a claim could start in one of these slots.
    pub(super) async fn until_room(&self, slots: &Range<usize>) {
        self.until(|state| state.free.range(slots.clone()).next().is_some() && state.room() > 0).await;
    }

    /// Returns when one of these slots is free that is not in `known`.
    pub(super) async fn until_more_free_than(&self, known: &BTreeSet<usize>, slots: &Range<usize>) {
        self.until(|state| state.free.range(slots.clone()).any(|index| !known.contains(index))).await;
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        let mut changes = self.changes.subscribe();
        while !condition(&self.state()) {
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn start(self: &Arc<Self>, claim: ClaimedActivity, slot: WorkerSlot) -> Start {
        Start { claim, slot, permit: ActivityPermit { queue: self.clone() } }
    }

    fn slot(self: &Arc<Self>, index: usize) -> WorkerSlot {
        WorkerSlot { queue: self.clone(), index }
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment or one call, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fate of an added claim.
pub(super) enum Put {
    /// Start the claim.
    Start(Box<Start>),
    /// The claim waits for a slot.
    Waits,
    /// Give the claim back: the queue is closed.
    Refused(Box<ClaimedActivity>),
}

/// A claim to start, with everything that it needs.
pub(super) struct Start {
    pub claim: ClaimedActivity,
    pub slot: WorkerSlot,
    pub permit: ActivityPermit,
}

/// Room for claims under way; free again when this is dropped.
pub(crate) struct Reservation {
    queue: Arc<SlotQueue>,
    pub count: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let was_full = state.room() == 0;
        state.reserved -= self.count;
        drop(state);
        if was_full {
            self.queue.changed();
        }
    }
}

/// The right of an activity to be under way, until its result is stored. One of a bounded number.
pub(super) struct ActivityPermit {
    queue: Arc<SlotQueue>,
}

impl Drop for ActivityPermit {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let was_full = state.room() == 0;
        state.under_way -= 1;
        drop(state);
        if was_full {
            self.queue.changed();
        }
    }
}

/// A slot in use; free again when this is dropped.
pub(super) struct WorkerSlot {
    queue: Arc<SlotQueue>,
    index: usize,
}

impl WorkerSlot {
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.queue.state().free.insert(self.index);
        self.queue.changed();
    }
}
