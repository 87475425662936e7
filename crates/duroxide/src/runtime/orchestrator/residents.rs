//! Instances that stay in memory between their turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::claim::Claim;
use super::record::Beginning;
use crate::replay::Execution;
use crate::runtime::lru::Lru;

/// A suspended execution, as of its last committed turn.
pub(crate) struct Resident {
    pub(super) execution: Execution,
    pub(super) beginning: Beginning,
    pub(super) incarnation: u64,
    pub(super) execution_id: u64,
    pub(super) turns: u64,
}

impl Resident {
    /// Notes which creation of its id the instance is, once its first turn has told.
    pub(super) fn note_incarnation(&mut self, incarnation: u64) {
        if incarnation != 0 {
            self.incarnation = incarnation;
        }
    }

    /// Tells whether the instance may stay in memory. Without an incarnation, the runtime could not tell later whether
    /// it is still the same instance.
    pub(super) fn may_stay(&self) -> bool {
        self.incarnation != 0 && self.execution.can_stay_resident()
    }

    /// Tells whether this execution has seen exactly the store's record, no more and no less.
    fn is_current(&self, claim: &Claim) -> bool {
        claim.incarnation != 0
            && self.incarnation == claim.incarnation
            && self.execution_id == claim.execution_id
            && Some(self.execution.last_event_id()) == claim.last_event_id
    }
}

/// The residents of a runtime. This is a cache: the runtime rebuilds a missing execution from its history.
pub(crate) struct Residents {
    by_instance: Mutex<Lru<String, Box<Resident>>>,
}

impl Residents {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { by_instance: Mutex::new(Lru::new(capacity)) }
    }

    /// Takes the instance out, if it is here and up to date. The runtime puts it back only after committing its next
    /// turn.
    pub(super) fn take(&self, claim: &Claim) -> Option<Box<Resident>> {
        // The guard is gone before an outdated resident is dropped, with the user's values in it.
        let resident = self.lock().remove(&claim.instance)?;
        resident.is_current(claim).then_some(resident)
    }

    /// Keeps an instance until its next turn, or until other instances need its place.
    pub(super) fn keep(&self, instance: String, resident: Box<Resident>) {
        let left = self.lock().insert(instance, resident);
        drop(left);
    }

    /// Lets go of all residents.
    pub(crate) fn clear(&self) {
        let all = std::mem::replace(&mut *self.lock(), Lru::new(0));
        drop(all);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Lru<String, Box<Resident>>> {
        self.by_instance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
