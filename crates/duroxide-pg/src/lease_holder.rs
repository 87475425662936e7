//! This store handle as a holder of leases: the name that its tokens begin with, and what others have to know if it
//! dies.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::sync::{Notify, watch};

use crate::held_leases::HeldLeases;
use crate::shared_connection::within;

/// The digits of a seed that name the handle; the others are random.
const NAME_DIGITS: usize = 12;
/// A lease that was noted as tried before, and neither ran nor ended in so long, is not held any more.
const FORGET_TRIED: Duration = Duration::from_secs(60 * 60);
/// Above so many, leases are looked through for those that can be forgotten.
const MANY_TRIED: usize = 4_096;

/// How long a first lease waits until others can see its holder. Afterwards it is taken all the same: if the process dies, the
/// lease then lasts until it runs out.
const MOST_UNSEEN: Duration = Duration::from_secs(5);

/// The name of a handle, and its notes.
pub(crate) struct LeaseHolder {
    name: String,
    notes: Mutex<Notes>,
    changed: Notify,
    /// Whether the handle has its row in `lease_holders`, or has tried for long enough.
    is_visible: watch::Sender<bool>,
    /// Leases that are taken for the first time and have not begun.
    pub(crate) held: HeldLeases,
    /// The tokens of leased work that was tried before, and since when they are known.
    tried: Mutex<HashMap<String, Duration>>,
}

/// What others have to know about a handle to release its leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// The longest lease; 0 before the first.
    pub(crate) lease_ms: i64,
    /// The names by which it owns sessions, as they are stored.
    pub(crate) owners: BTreeSet<String>,
    /// A caller of the plain contract leases work, and does not tell what it runs.
    pub(crate) counts_all: bool,
}

impl Default for LeaseHolder {
    fn default() -> Self {
        let mut name = uuid::Uuid::new_v4().simple().to_string();
        name.truncate(NAME_DIGITS);
        Self {
            name,
            notes: Mutex::default(),
            changed: Notify::default(),
            is_visible: watch::Sender::new(false),
            held: HeldLeases::default(),
            tried: Mutex::default(),
        }
    }
}

impl LeaseHolder {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes the beginning that the tokens of one call share, and no other tokens have. The call takes leases of
    /// `lease_ms`.
    pub(crate) fn seed(&self, lease_ms: i64) -> String {
        self.note_lease(lease_ms);
        let random = uuid::Uuid::new_v4().simple().to_string();
        // The last digits of such an id are all random.
        format!("{}{}", self.name, random.get(NAME_DIGITS..).unwrap_or_default())
    }

    /// Notes that a lease of this length is taken or renewed.
    pub(crate) fn note_lease(&self, lease_ms: i64) {
        self.note(|notes| notes.lease_ms = notes.lease_ms.max(lease_ms));
    }

    /// Waits until other processes can see this one, so that they release its leases if it dies. Leases of `lease_ms` follow.
    pub(crate) async fn be_visible(&self, lease_ms: i64) {
        self.note_lease(lease_ms);
        if !*self.is_visible.borrow() {
            let mut visible = self.is_visible.subscribe();
            let _ = within(MOST_UNSEEN, visible.wait_for(|is_visible| *is_visible)).await;
        }
    }

    /// Notes that the handle has its row, or has tried for long enough.
    pub(crate) fn set_visible(&self) {
        self.is_visible.send_if_modified(|is_visible| !std::mem::replace(is_visible, true));
    }

    /// Notes a name by which this handle owns sessions.
    pub(crate) fn note_owner(&self, owner: &str) {
        self.note(|notes| {
            if !notes.owners.contains(owner) {
                notes.owners.insert(owner.to_string());
            }
        });
    }

    /// Notes that a caller leases work and does not tell what it runs.
    pub(crate) fn note_unmarked(&self) {
        self.note(|notes| notes.counts_all = true);
    }

    fn note(&self, change: impl FnOnce(&mut Notes)) {
        let mut notes = self.lock();
        let (lease_ms, owners, counts_all) = (notes.lease_ms, notes.owners.len(), notes.counts_all);
        change(&mut notes);
        if (lease_ms, owners, counts_all) != (notes.lease_ms, notes.owners.len(), notes.counts_all) {
            drop(notes);
            self.changed.notify_one();
        }
    }

    pub(crate) fn notes(&self) -> Notes {
        self.lock().clone()
    }

    /// Waits until the notes have changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Notes the attempt of a lease that is handed to a caller.
    pub(crate) fn note_attempt(&self, token: &str, attempt: u32) {
        if attempt < 2 {
            // A caller that does not tell what runs would never begin.
            if !self.lock().counts_all {
                self.held.hold(token);
            }
            return;
        }
        let now = SystemClock.monotonic();
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() >= MANY_TRIED {
            tried.retain(|_, since| now.saturating_sub(*since) < FORGET_TRIED);
        }
        tried.insert(token.to_string(), now);
    }

    /// Tells whether leased work was tried before, and has not begun to run.
    pub(crate) fn is_tried(&self, token: &str) -> bool {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner).contains_key(token)
    }

    /// Tells whether leased work was tried before, and forgets it: it runs now.
    pub(crate) fn was_tried(&self, token: &str) -> bool {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner).remove(token).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_one_handle_begin_alike_and_differ() {
        let (one, other) = (LeaseHolder::default(), LeaseHolder::default());
        let (first, second) = (one.seed(1), one.seed(1));
        assert_eq!((first.len(), first.get(..NAME_DIGITS)), (32, Some(one.name())));
        assert!(first != second && second.starts_with(one.name()) && !other.seed(1).starts_with(one.name()));
    }

    #[tokio::test]
    async fn only_what_is_new_is_told() {
        let identity = LeaseHolder::default();
        identity.note_lease(5);
        identity.note_owner("a");
        identity.changed().await;
        identity.note_lease(4);
        identity.note_owner("a");
        let is_told = tokio::time::timeout(Duration::from_millis(10), identity.changed()).await.is_ok();
        assert!(!is_told);
        let owners = BTreeSet::from(["a".to_string()]);
        assert_eq!(identity.notes(), Notes { lease_ms: 5, owners, counts_all: false });
    }

    #[test]
    fn work_that_was_tried_before_is_known_until_it_runs() {
        let identity = LeaseHolder::default();
        identity.note_attempt("first", 1);
        identity.note_attempt("second", 2);
        assert!(!identity.was_tried("first"));
        assert!(identity.is_tried("second"));
        assert!(identity.was_tried("second") && !identity.was_tried("second"));
    }
}
