//! Where claimed activities wait for a slot, and where whoever stores a turn asks how many could be started at once.
//!
//! A slot is free or runs user code. An activity that is claimed when no slot is free lies on the desk; the next slot
//! that comes free takes it, without anybody else being woken. Claims in excess of what the slots will soon finish are
//! never made: whoever claims first reserves places for what it asks for.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::claim::ClaimedActivity;
use crate::runtime::pace::Pace;

/// The most activities that are claimed together.
const LARGEST_BATCH: usize = 256;

/// The most activities that are under way at once, those included whose result is being stored.
const MOST_UNDER_WAY: usize = 2048;

/// A fixed number of numbered slots, and the activities that wait for one.
pub(crate) struct Desk {
    count: usize,
    state: Mutex<State>,
    // Counts the changes that somebody may wait for.
    changes: watch::Sender<u64>,
    pub(super) pace: Pace,
}

struct State {
    free: BTreeSet<usize>,
    // Claimed and not yet running; never bound to a session.
    ahead: VecDeque<ClaimedActivity>,
    // Places that are reserved for claims on their way.
    reserved: usize,
    // Activities that run or are being stored.
    under_way: usize,
    // Activities that were ever started.
    started: usize,
    is_closed: bool,
}

impl State {
    fn begin(&mut self) {
        self.under_way += 1;
        self.started = self.started.wrapping_add(1);
    }

    fn room(&self) -> usize {
        MOST_UNDER_WAY.saturating_sub(self.under_way + self.reserved + self.ahead.len())
    }
}

impl Desk {
    pub(crate) fn new(count: usize) -> Self {
        let state = State {
            free: (0..count).collect(),
            ahead: VecDeque::new(),
            reserved: 0,
            under_way: 0,
            started: 0,
            is_closed: true,
        };
        Self {
            count,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            pace: Pace::new(LARGEST_BATCH),
        }
    }

    /// Accepts claims; what is put down from now on will be started.
    pub(super) fn open(&self) {
        self.state().is_closed = false;
    }

    /// Accepts no more claims, and returns those that wait.
    pub(super) fn close(&self) -> Vec<ClaimedActivity> {
        self.state().is_closed = true;
        self.clear()
    }

    /// Returns the claims that wait.
    pub(super) fn clear(&self) -> Vec<ClaimedActivity> {
        self.keep(0)
    }

    /// Keeps the first few of the claims that wait, and returns the others.
    pub(super) fn keep(&self, count: usize) -> Vec<ClaimedActivity> {
        let mut state = self.state();
        let kept = count.min(state.ahead.len());
        let others = state.ahead.split_off(kept);
        drop(state);
        self.changed();
        others.into()
    }

    /// Counts the activities that were ever started.
    pub(super) fn started(&self) -> usize {
        self.state().started
    }

    /// Reserves places for up to `wanted` claims: no more than the slots will soon finish.
    pub(crate) fn reserve(self: &Arc<Self>, wanted: usize) -> Option<Reservation> {
        let soon = self.pace.batch(self.count);
        let mut state = self.state();
        let busy = self.count - state.free.len();
        let taken = busy + state.ahead.len() + state.reserved;
        let places = wanted.min(soon.saturating_sub(taken)).min(state.room());
        if places == 0 || state.is_closed {
            return None;
        }
        state.reserved += places;
        drop(state);
        Some(Reservation { desk: self.clone(), places })
    }

    /// Puts down a claim. Returns it with a slot if it can be started now; keeps it otherwise. A closed desk returns it
    /// without a slot: it has to be given back.
    pub(super) fn put(self: &Arc<Self>, claim: ClaimedActivity) -> Put {
        let mut state = self.state();
        if state.is_closed {
            return Put::Refused(Box::new(claim));
        }
        match state.free.pop_first() {
            Some(index) if state.ahead.is_empty() => {
                state.begin();
                drop(state);
                Put::Start(Box::new(self.start(claim, self.slot(index))))
            }
            free => {
                state.free.extend(free);
                state.ahead.push_back(claim);
                let is_first = state.ahead.len() == 1;
                drop(state);
                if is_first {
                    self.changed();
                }
                Put::Waits
            }
        }
    }

    /// Takes the next claim that waits, if a slot is free for it.
    pub(super) fn next(self: &Arc<Self>) -> Option<Start> {
        let mut state = self.state();
        if state.free.is_empty() {
            return None;
        }
        let claim = state.ahead.pop_front()?;
        let index = state.free.pop_first()?;
        state.begin();
        drop(state);
        Some(self.start(claim, self.slot(index)))
    }

    /// Uses a slot for the next claim that waits, or frees it.
    pub(super) fn next_in(self: &Arc<Self>, slot: Slot) -> Option<Start> {
        let mut state = self.state();
        // Without a next one the slot is dropped, and free. A claim that was put down in between is found by the
        // dispatcher, which both wake.
        let claim = state.ahead.pop_front()?;
        state.begin();
        let was_last = state.ahead.is_empty();
        drop(state);
        if was_last {
            self.changed();
        }
        Some(self.start(claim, slot))
    }

    /// Takes one slot, unless it is in use.
    pub(super) fn take(self: &Arc<Self>, index: usize) -> Option<Slot> {
        let taken = self.state().free.remove(&index);
        taken.then(|| self.slot(index))
    }

    /// Takes a place for an activity that did not wait on the desk.
    pub(super) fn place(self: &Arc<Self>) -> Place {
        self.state().begin();
        Place { desk: self.clone() }
    }

    /// Lists the free slots.
    pub(super) fn free(&self) -> BTreeSet<usize> {
        self.state().free.clone()
    }

    /// Tells whether nothing waits.
    pub(super) fn is_clear(&self) -> bool {
        self.state().ahead.is_empty()
    }

    /// Waits until nothing waits.
    pub(super) async fn is_cleared(&self) {
        self.until(|state| state.ahead.is_empty()).await;
    }

    /// Waits until something waits.
    pub(super) async fn is_laid(&self) {
        self.until(|state| !state.ahead.is_empty()).await;
    }

    /// Waits until a claim could be started.
    pub(super) async fn has_room(&self) {
        self.until(|state| !state.free.is_empty() && state.room() > 0).await;
    }

    /// Waits until a given slot is free.
    pub(super) async fn is_free(&self, index: usize) {
        self.until(|state| state.free.contains(&index)).await;
    }

    /// Waits until more slots are free than those given.
    pub(super) async fn more_free_than(&self, known: &BTreeSet<usize>) {
        self.until(|state| !state.free.is_subset(known)).await;
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        let mut changes = self.changes.subscribe();
        while !condition(&self.state()) {
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn start(self: &Arc<Self>, claim: ClaimedActivity, slot: Slot) -> Start {
        Start { claim, slot, place: Place { desk: self.clone() } }
    }

    fn slot(self: &Arc<Self>, index: usize) -> Slot {
        Slot { desk: self.clone(), index }
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment or one call, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a claim that was put down.
pub(super) enum Put {
    /// It is to be started.
    Start(Box<Start>),
    /// It waits for a slot.
    Waits,
    /// It is to be given back: nothing is started any more.
    Refused(Box<ClaimedActivity>),
}

/// A claim that is to be started, with all that it needs.
pub(super) struct Start {
    pub claim: ClaimedActivity,
    pub slot: Slot,
    pub place: Place,
}

/// Places for claims on their way; free again when this is dropped.
pub(crate) struct Reservation {
    desk: Arc<Desk>,
    pub places: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        let was_full = state.room() == 0;
        state.reserved -= self.places;
        drop(state);
        if was_full {
            self.desk.changed();
        }
    }
}

/// The place of an activity that is under way, until its result is stored.
pub(super) struct Place {
    desk: Arc<Desk>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        let was_full = state.room() == 0;
        state.under_way -= 1;
        drop(state);
        if was_full {
            self.desk.changed();
        }
    }
}

/// A slot in use; free again when this is dropped.
pub(super) struct Slot {
    desk: Arc<Desk>,
    index: usize,
}

impl Slot {
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.desk.state().free.insert(self.index);
        self.desk.changed();
    }
}
