//! Rows that do not decode: the store sets them aside with their text and reports them, so that they hold up no others.

use rusqlite::params;

use super::schedule::{self, LeaseChange};
use super::write_transaction::{DamagedId, WriteTransaction, stored_id};
use crate::providers::WorkQueue;
use crate::providers::rows::{UndecodableRow, table_of};

/// Moves rows into quarantine. Skips a row that is gone: another caller has dealt with it.
pub(super) fn set_aside(
    tx: &WriteTransaction<'_, '_>,
    queue: WorkQueue,
    rows: &[UndecodableRow],
) -> rusqlite::Result<()> {
    let (copy, delete) = match queue {
        WorkQueue::Orchestrator => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, instance_id, ?3, ?4, work_item FROM orchestrator_queue WHERE id = ?1",
            "DELETE FROM orchestrator_queue WHERE id = ?1",
        ),
        WorkQueue::Worker => (
            "INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
             SELECT ?2, nullif(instance_id, ''), ?3, ?4, work_item FROM worker_queue WHERE id = ?1",
            "DELETE FROM worker_queue WHERE id = ?1",
        ),
    };
    for row in rows {
        tx.execute(copy, params![row.id, table_of(queue), row.reason, tx.now_ms()])?;
        tx.execute(delete, [row.id])?;
        row.report(table_of(queue));
    }
    Ok(())
}

const DAMAGED_ID: &str = "an id of it is not UTF-8";

/// Sets aside rows with a damaged id.
pub(super) fn set_damaged_aside(
    tx: &WriteTransaction<'_, '_>,
    queue: WorkQueue,
    rows: impl IntoIterator<Item = i64>,
) -> rusqlite::Result<()> {
    let rows: Vec<_> = rows.into_iter().map(|id| UndecodableRow { id, reason: DAMAGED_ID.into() }).collect();
    set_aside(tx, queue, &rows)
}

/// Sets aside an instance whose id is damaged in the schedule, with its messages. If its first message still has the
/// id, only the schedule is damaged, and this schedules the instance anew.
pub(super) fn set_instance_aside(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &DamagedId,
    first_message: Option<i64>,
    now: i64,
) -> rusqlite::Result<()> {
    let messages = tx.rows(
        "SELECT id FROM orchestrator_queue WHERE instance_id = CAST(?1 AS TEXT)",
        [instance],
        |row| row.get(0),
    )?;
    set_damaged_aside(tx, WorkQueue::Orchestrator, messages)?;
    tx.execute("DELETE FROM instance_schedule WHERE instance_id = CAST(?1 AS TEXT)", [instance])?;
    match first_message.map(|id| receiver(tx, id)).transpose()?.flatten() {
        Some(Ok(instance)) => {
            let scheduled = tx.execute(
                "INSERT INTO instance_schedule (instance_id, class)
                 VALUES (?1, coalesce((SELECT pinned_version FROM instances WHERE instance_id = ?1), ''))
                 ON CONFLICT (instance_id) DO NOTHING",
                [&instance],
            )?;
            // A place that it already has is right: the instance may be leased.
            if scheduled == 0 { Ok(()) } else { schedule::settle(tx, &instance, now, LeaseChange::End) }
        }
        Some(Err(_)) => set_damaged_aside(tx, WorkQueue::Orchestrator, first_message),
        None => Ok(()),
    }
}

/// Sets aside the message that an instance was scheduled for, if a damaged id no longer ties it to that instance.
pub(super) fn set_strayed_aside(tx: &WriteTransaction<'_, '_>, message: i64) -> rusqlite::Result<()> {
    match receiver(tx, message)? {
        Some(Err(_)) => set_damaged_aside(tx, WorkQueue::Orchestrator, [message]),
        _ => Ok(()),
    }
}

/// Returns the instance that a message is for, if that can be told.
fn receiver(
    tx: &WriteTransaction<'_, '_>,
    message: i64,
) -> rusqlite::Result<Option<Result<String, DamagedId>>> {
    tx.row("SELECT instance_id FROM orchestrator_queue WHERE id = ?1", [message], |row| stored_id(row, 0))
}
