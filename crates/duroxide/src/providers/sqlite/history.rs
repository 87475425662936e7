//! Histories: append-only, one row an event.

use rusqlite::{Connection, params};

use super::error::StoreError;
use super::write_transaction::{WriteTransaction, read_row, read_rows, text_bytes};
use crate::providers::refusal;
use crate::providers::rows::EventRow;

/// Refuses a delta with a taken or repeated id, before the store writes anything.
pub(super) fn refuse_duplicates(
    tx: &WriteTransaction<'_, '_>,
    operation: &str,
    instance: &str,
    execution_id: i64,
    events: &[EventRow],
) -> Result<(), StoreError> {
    let duplicate = |event_id: i64| {
        refusal::duplicate_event(operation, instance, execution_id.unsigned_abs(), event_id.unsigned_abs())
            .into()
    };
    let mut ids: Vec<i64> = events.iter().map(|event| event.event_id).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(duplicate(twice[0]));
    }
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return Ok(()) };
    // New ids follow the old ones, so this is one probe that finds nothing.
    let stored = tx.rows(
        "SELECT event_id FROM history WHERE instance_id = ?1 AND execution_id = ?2 AND event_id BETWEEN ?3 AND ?4",
        params![instance, execution_id, first, last],
        |row| row.get::<_, i64>(0),
    )?;
    match stored.into_iter().find(|id| ids.binary_search(id).is_ok()) {
        Some(taken) => Err(duplicate(taken)),
        None => Ok(()),
    }
}

/// Appends events under the caller's instance and execution, not those inside the events.
pub(super) fn append(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    execution_id: i64,
    events: &[EventRow],
    now: i64,
) -> rusqlite::Result<()> {
    for event in events {
        tx.execute(
            "INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![instance, execution_id, event.event_id, event.event_type, now, event.text],
        )?;
    }
    tx.effects.totals.events += i64::try_from(events.len()).unwrap_or(0);
    Ok(())
}

/// Returns the highest recorded execution, or 1.
pub(super) fn latest_execution(connection: &Connection, instance: &str) -> rusqlite::Result<i64> {
    let latest = read_row(
        connection,
        "SELECT max(execution_id) FROM executions WHERE instance_id = ?1",
        [instance],
        |row| row.get::<_, Option<i64>>(0),
    )?;
    Ok(latest.flatten().unwrap_or(1))
}

/// Returns the highest execution for which an instance without a row has any data, or 1.
pub(super) fn highest_execution(connection: &Connection, instance: &str) -> rusqlite::Result<i64> {
    let appended = read_row(
        connection,
        "SELECT max(execution_id) FROM history WHERE instance_id = ?1",
        [instance],
        |row| row.get::<_, Option<i64>>(0),
    )?;
    Ok(latest_execution(connection, instance)?.max(appended.flatten().unwrap_or(1)))
}

/// Reads the text of the events after `after`, ascending.
pub(super) fn read(
    connection: &Connection,
    instance: &str,
    execution_id: i64,
    after: i64,
) -> rusqlite::Result<Vec<Vec<u8>>> {
    read_noting(connection, instance, execution_id, after, |_| {})
}

/// As [`read`], and tells `note` the size of each event before it reads the next one.
pub(super) fn read_noting(
    connection: &Connection,
    instance: &str,
    execution_id: i64,
    after: i64,
    mut note: impl FnMut(usize),
) -> rusqlite::Result<Vec<Vec<u8>>> {
    read_rows(
        connection,
        "SELECT event_data FROM history WHERE instance_id = ?1 AND execution_id = ?2 AND event_id > ?3
         ORDER BY event_id",
        params![instance, execution_id, after],
        |row| text_bytes(row, 0).inspect(|text| note(text.len())),
    )
}

/// Reads the text of the newest `limit` events, ascending.
pub(super) fn read_recent(
    connection: &Connection,
    instance: &str,
    execution_id: i64,
    limit: i64,
) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut newest_first: Vec<Vec<u8>> = read_rows(
        connection,
        "SELECT event_data FROM history WHERE instance_id = ?1 AND execution_id = ?2
         ORDER BY event_id DESC LIMIT ?3",
        params![instance, execution_id, limit],
        |row| text_bytes(row, 0),
    )?;
    newest_first.reverse();
    Ok(newest_first)
}
