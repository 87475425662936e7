//! The activities that run in this process, so that a cancelled one learns it at once.
//!
//! The turn that cancels an activity removes its work item. The runtime that stores the turn tells an activity of this
//! process so at once; an activity of another process learns it from the next renewal of its lease. The store handle
//! keeps the list, so all runtimes on the handle share it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::ScheduledActivityIdentifier;

type ActivityKey = (String, u64, u64);

/// The activities of one store handle that this process has claimed or runs.
///
/// A store makes one and returns it from
/// [`ExtendedProvider::running_activities`](super::ExtendedProvider::running_activities); runtimes do the rest.
#[derive(Default)]
pub struct RunningActivities {
    by_activity: Mutex<HashMap<ActivityKey, Vec<Cancellation>>>,
}

/// The channel through which an activity learns that its orchestration no longer wants it.
#[derive(Clone, Default)]
pub(crate) struct Cancellation {
    pub token: CancellationToken,
    // Set if its work item is known to be gone, so that the worker need not ack it.
    removed: Arc<AtomicBool>,
}

impl Cancellation {
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

impl RunningActivities {
    /// Adds an activity until the registration is dropped.
    pub(crate) fn add(self: &Arc<Self>, activity: ScheduledActivityIdentifier) -> Registration {
        let key = (activity.instance, activity.execution_id, activity.activity_id);
        let cancellation = Cancellation::default();
        self.lock().entry(key.clone()).or_default().push(cancellation.clone());
        Registration { list: self.clone(), key, cancellation }
    }

    /// Tells these activities that their work items were removed.
    pub(crate) fn cancel(&self, removed: &[ScheduledActivityIdentifier]) {
        let cancelled: Vec<Cancellation> = {
            let by_activity = self.lock();
            let find = |id: &ScheduledActivityIdentifier| {
                by_activity.get(&(id.instance.clone(), id.execution_id, id.activity_id)).cloned()
            };
            if by_activity.is_empty() {
                Vec::new()
            } else {
                removed.iter().filter_map(find).flatten().collect()
            }
        };
        // Outside the lock: a token wakes its listeners.
        for cancellation in cancelled {
            cancellation.removed.store(true, Ordering::Release);
            cancellation.token.cancel();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ActivityKey, Vec<Cancellation>>> {
        self.by_activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An activity on the list.
pub(crate) struct Registration {
    list: Arc<RunningActivities>,
    key: ActivityKey,
    pub cancellation: Cancellation,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut by_activity = self.list.lock();
        if let Some(same) = by_activity.get_mut(&self.key) {
            same.retain(|other| !Arc::ptr_eq(&other.removed, &self.cancellation.removed));
            if same.is_empty() {
                by_activity.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(activity_id: u64) -> ScheduledActivityIdentifier {
        ScheduledActivityIdentifier { instance: "order".into(), execution_id: 1, activity_id }
    }

    #[test]
    fn only_the_named_activity_is_cancelled_and_the_list_empties_itself() {
        let list = Arc::new(RunningActivities::default());
        let (first, second) = (list.add(activity(2)), list.add(activity(3)));
        list.cancel(&[activity(2), activity(9)]);
        assert!(first.cancellation.token.is_cancelled() && first.cancellation.is_removed());
        assert!(!second.cancellation.token.is_cancelled());
        drop((first, second));
        assert!(list.lock().is_empty());
    }

    #[test]
    fn two_claims_of_one_activity_are_both_told() {
        let list = Arc::new(RunningActivities::default());
        let (lost, current) = (list.add(activity(2)), list.add(activity(2)));
        drop(lost);
        list.cancel(&[activity(2)]);
        assert!(current.cancellation.token.is_cancelled());
    }
}
