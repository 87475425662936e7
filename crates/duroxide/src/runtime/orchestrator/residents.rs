//! Instances that stay in memory between their turns.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::claim::Claim;
use super::custom_status::CustomStatus;
use super::record::Beginning;
use super::resident_cache::{CacheLimits, ResidentCache};
use crate::model::KvEntry;
use crate::replay::Execution;
use crate::runtime::memory;
use crate::runtime::options::RuntimeOptions;
use crate::runtime::origins::Origin;

/// A suspended execution, as of its last committed turn.
pub(crate) struct Resident {
    pub(crate) execution: Execution,
    pub(crate) beginning: Beginning,
    pub(crate) incarnation: u64,
    pub(crate) execution_id: u64,
    pub(crate) turns: u64,
    /// A message may wait in its queue, and the turn of that message comes first. This is a hint: the store decides.
    pub(crate) has_mail: bool,
    /// The values that earlier executions left, for the check of a turn without a lease; `None` if no turn is checked.
    pub(crate) first_values: Option<HashMap<String, KvEntry>>,
    /// As of the last turn; `None` if this process does not know it.
    pub(super) custom_status: Option<CustomStatus>,
}

impl Resident {
    /// Notes which creation of its id the instance is, once its first turn has told.
    pub(crate) fn note_incarnation(&mut self, incarnation: u64) {
        if incarnation != 0 {
            self.incarnation = incarnation;
        }
    }

    /// Tells whether the instance may stay in memory. Without an incarnation, the runtime could not tell later whether
    /// it is still the same instance.
    pub(crate) fn may_stay(&self) -> bool {
        self.incarnation != 0 && self.execution.can_stay_resident()
    }

    /// Estimates how many bytes of memory the instance takes up.
    fn estimated_bytes(&self) -> usize {
        let values = self.first_values.iter().flat_map(|values| values.iter());
        let values: usize = values.map(|(key, entry)| key.len() + entry.value.len()).sum();
        let custom_status = self.custom_status.as_ref().map_or(0, CustomStatus::estimated_bytes);
        self.execution.estimated_bytes() + values + custom_status
    }

    /// Tells whether this execution has seen exactly the store's record, no more and no less.
    fn is_current(&self, claim: &Claim) -> bool {
        claim.incarnation != 0
            && self.incarnation == claim.incarnation
            && self.execution_id == claim.execution_id
            && self.execution.last_event_id() == claim.last_event_id
    }
}

/// The residents of a runtime. This is a cache: the runtime rebuilds a missing execution from its history.
pub(crate) struct Residents {
    cache: Mutex<ResidentCache<Box<Resident>>>,
}

/// The budget in bytes, unless the options name another: a part of the machine's memory, and at most so much.
const PART_OF_MEMORY: u64 = 10;
const LARGEST_DEFAULT_BUDGET: u64 = 256 * 1024 * 1024;

impl Residents {
    pub(crate) fn new(options: &RuntimeOptions) -> Self {
        let bytes = options.resident_bytes.unwrap_or_else(default_budget);
        let limits = CacheLimits { entries: options.resident_instances, bytes };
        Self { cache: Mutex::new(ResidentCache::new(limits)) }
    }

    /// Takes the instance out, if it is here and up to date. It comes back only after its next turn is committed.
    pub(super) fn take(&self, claim: &Claim, now: Duration) -> Option<Box<Resident>> {
        // The guard is gone before an outdated resident, and the user's values in it, are dropped.
        let resident = self.lock().take(&claim.instance, now)?;
        resident.is_current(claim).then_some(resident)
    }

    /// Takes the instance out if it is here, in this execution. The store will tell whether it is up to date.
    pub(crate) fn take_idle(
        &self,
        instance: &str,
        execution_id: u64,
        now: Duration,
    ) -> Option<Box<Resident>> {
        self.lock()
            .take_if(instance, now, |resident| resident.execution_id == execution_id && !resident.has_mail)
    }

    /// Tells whether the instance is here.
    pub(super) fn has(&self, instance: &str) -> bool {
        self.lock().has(instance)
    }

    /// The orchestration that an instance runs, if it is here, in this execution.
    pub(crate) fn origin(&self, instance: &str, execution_id: u64) -> Option<Origin> {
        let cache = self.lock();
        let resident = cache.get(instance).filter(|resident| resident.execution_id == execution_id)?;
        let Beginning { name, version, .. } = &resident.beginning;
        Some(Origin { name: name.as_str().into(), version: version.as_str().into() })
    }

    /// Notes that a message for the instance is about to be put into its queue.
    pub(crate) fn note_mail(&self, instance: &str) {
        if let Some(resident) = self.lock().get_mut(instance) {
            resident.has_mail = true;
        }
    }

    /// Keeps an instance as [`keep`](Self::keep) does. Also returns those that lost their place, for a caller that holds
    /// a lock of its own and must not drop them under it.
    pub(crate) fn keep_or_return(
        &self,
        instance: String,
        resident: Box<Resident>,
        now: Duration,
    ) -> (usize, impl Sized + use<>) {
        let bytes = instance.len() + resident.estimated_bytes();
        let left = self.lock().keep(instance, resident, bytes, now);
        (left.len(), left)
    }

    /// Keeps an instance until its next turn, or until others need its place. Returns how many instances lost theirs,
    /// this one included if there is no room for it.
    pub(crate) fn keep(&self, instance: String, resident: Box<Resident>, now: Duration) -> usize {
        self.keep_or_return(instance, resident, now).0
    }

    /// Lets go of all residents.
    pub(crate) fn clear(&self) {
        let all = self.lock().close();
        drop(all);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, ResidentCache<Box<Resident>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn default_budget() -> usize {
    let part = memory::available_to_this_process().map(|bytes| bytes / PART_OF_MEMORY);
    let budget = part.unwrap_or(LARGEST_DEFAULT_BUDGET).min(LARGEST_DEFAULT_BUDGET);
    usize::try_from(budget).unwrap_or(usize::MAX)
}
