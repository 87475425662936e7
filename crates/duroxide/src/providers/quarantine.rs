//! Rows that were set aside, and what operators do with them.

use super::{QuarantinedRow, WorkQueue, inspect};
use crate::model::WorkItem;

/// A row that was set aside, and the id by which it can be [retried](super::ExtendedProvider::retry_quarantined) or
/// [purged](super::ExtendedProvider::purge_quarantined).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineEntry {
    /// Its id in the quarantine; ids ascend in the order in which rows were set aside, and are never used again.
    pub id: u64,
    /// The row.
    pub row: QuarantinedRow,
}

/// The fate of a row that an operator retries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuarantineRetry {
    /// The row is in its queue again.
    Enqueued,
    /// It stays in quarantine, because it still does not decode or its queue does not take it.
    Kept {
        /// Why, without values of the row's text.
        reason: String,
    },
    /// There is no such row in quarantine.
    NotFound,
}

/// Which rows to remove from quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantinePurge<'a> {
    /// The rows with these ids.
    Ids(&'a [u64]),
    /// The rows that were set aside before this time, in milliseconds since the epoch.
    SetAsideBefore(u64),
}

/// Decodes a row that is to go back into its queue, or says why it cannot.
pub fn decode_quarantined(queue: WorkQueue, raw: &str) -> Result<WorkItem, String> {
    let item: WorkItem =
        serde_json::from_str(raw).map_err(|error| inspect::without_values(&error.to_string()))?;
    let is_message = inspect::message_route(&item).is_some();
    if is_message != (queue == WorkQueue::Orchestrator) {
        return Err("it belongs to the other queue".to_string());
    }
    Ok(item)
}
