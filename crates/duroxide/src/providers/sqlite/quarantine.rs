//! Rows that do not decode: set aside with their text, reported, and out of everybody's way.

use rusqlite::params;

use super::batch::Batch;
use crate::providers::inspect;

/// Which queue a row was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Orchestrator,
    Worker,
}

impl Queue {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Orchestrator => "orchestrator_queue",
            Self::Worker => "worker_queue",
        }
    }
}

/// A row that does not decode.
pub(super) struct BadRow {
    pub(super) id: i64,
    pub(super) reason: String,
}

/// Moves rows into quarantine. A row that is no longer there has been dealt with by somebody else.
pub(super) fn set_aside(batch: &Batch<'_, '_>, queue: Queue, rows: &[BadRow]) -> rusqlite::Result<()> {
    let (copy, delete) = match queue {
        Queue::Orchestrator => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, instance_id, ?3, ?4, work_item FROM orchestrator_queue WHERE id = ?1",
            "DELETE FROM orchestrator_queue WHERE id = ?1",
        ),
        Queue::Worker => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, nullif(instance_id, ''), ?3, ?4, work_item FROM worker_queue WHERE id = ?1",
            "DELETE FROM worker_queue WHERE id = ?1",
        ),
    };
    for row in rows {
        batch.execute(copy, params![row.id, queue.as_str(), row.reason, batch.now_ms()])?;
        batch.execute(delete, [row.id])?;
        tracing::error!(
            target: "duroxide::providers::sqlite",
            queue = queue.as_str(), row = row.id, reason = inspect::without_values(&row.reason),
            "a stored row does not decode and was set aside; its text is in the table `quarantine`"
        );
    }
    Ok(())
}
