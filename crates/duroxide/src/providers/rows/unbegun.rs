//! Activities that had to be begun by now.

use crate::model::WorkItem;
use crate::providers::{UnbegunOutcome, inspect};

/// The row of a queued activity, as far as it tells whether a worker has begun it. `T` is the text of its item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedRow<T> {
    /// The number of the row.
    pub id: i64,
    /// How often workers have leased it; a lease that was given back unused does not count.
    pub attempts: i64,
    /// Whether a worker leases it.
    pub is_leased: bool,
    /// When it was put into the queue, in milliseconds since the epoch.
    pub created_at: i64,
    /// Its item.
    pub text: T,
}

impl<T: AsRef<[u8]>> QueuedRow<T> {
    /// Returns the failure to put in its place, if it has to be begun by some time and no worker has begun it.
    ///
    /// # Errors
    /// What to tell the caller instead.
    pub fn failure(&self) -> Result<WorkItem, UnbegunOutcome> {
        let failure = inspect::failure_of_unbegun(self.text.as_ref()).ok_or(UnbegunOutcome::Settled)?;
        match (self.attempts, self.is_leased) {
            (0, _) => Ok(failure),
            (1, true) => Err(UnbegunOutcome::Held {
                entered_at_ms: u64::try_from(self.created_at).unwrap_or_default(),
            }),
            _ => Err(UnbegunOutcome::Settled),
        }
    }
}
