//! The key-value store of an instance, in its two layers.
//!
//! `kv_store` holds the values at the last boundary between executions, which a turn's snapshot must show. `kv_delta`
//! holds the running execution's changes since, which clients see on top.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::shared::clamp_ms;
use super::write_transaction::{WriteTransaction, read_row, read_rows};
use crate::model::KvEntry;
use crate::providers::inspect::KvChange;

/// Applies a turn's changes to the running execution's layer, in order.
pub(super) fn apply(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    changes: &[KvChange],
    now: i64,
) -> rusqlite::Result<()> {
    const PUT: &str =
        "INSERT INTO kv_delta (instance_id, key, last_updated_at_ms, value) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (instance_id, key) DO UPDATE SET last_updated_at_ms = ?3, value = ?4";
    for change in changes {
        match change {
            KvChange::Set { key, value, last_updated_at_ms } => {
                tx.execute(PUT, params![instance, key, clamp_ms(*last_updated_at_ms), value])?;
            }
            KvChange::Clear { key } => {
                tx.execute(PUT, params![instance, key, now, None::<String>])?;
            }
            KvChange::ClearAll => {
                tx.execute(
                    "UPDATE kv_delta SET value = NULL, last_updated_at_ms = ?2 WHERE instance_id = ?1",
                    params![instance, now],
                )?;
                tx.execute(
                    "INSERT OR IGNORE INTO kv_delta (instance_id, key, last_updated_at_ms, value)
                     SELECT instance_id, key, ?2, NULL FROM kv_store WHERE instance_id = ?1",
                    params![instance, now],
                )?;
            }
        }
    }
    Ok(())
}

/// Merges the running execution's changes into the settled values, because it has ended.
pub(super) fn merge(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<()> {
    let changed =
        tx.row("SELECT 1 FROM kv_delta WHERE instance_id = ?1 LIMIT 1", [instance], |_| Ok(()))?.is_some();
    if !changed {
        return Ok(());
    }
    tx.execute(
        "INSERT INTO kv_store (instance_id, key, last_updated_at_ms, value)
         SELECT instance_id, key, last_updated_at_ms, value FROM kv_delta
         WHERE instance_id = ?1 AND value IS NOT NULL
         ON CONFLICT (instance_id, key) DO UPDATE
         SET last_updated_at_ms = excluded.last_updated_at_ms, value = excluded.value",
        [instance],
    )?;
    tx.execute(
        "DELETE FROM kv_store WHERE instance_id = ?1
         AND key IN (SELECT key FROM kv_delta WHERE instance_id = ?1 AND value IS NULL)",
        [instance],
    )?;
    tx.execute("DELETE FROM kv_delta WHERE instance_id = ?1", [instance])?;
    Ok(())
}

/// Reads the values at the last boundary between executions.
pub(super) fn snapshot(
    connection: &Connection,
    instance: &str,
) -> rusqlite::Result<HashMap<String, KvEntry>> {
    let entries = read_rows(
        connection,
        "SELECT key, value, last_updated_at_ms FROM kv_store WHERE instance_id = ?1",
        [instance],
        |row| {
            let updated: i64 = row.get(2)?;
            Ok((
                row.get(0)?,
                KvEntry { value: row.get(1)?, last_updated_at_ms: u64::try_from(updated).unwrap_or(0) },
            ))
        },
    )?;
    Ok(entries.into_iter().collect())
}

/// Reads one value as clients see it.
pub(super) fn value(connection: &Connection, instance: &str, key: &str) -> rusqlite::Result<Option<String>> {
    let changed = read_row(
        connection,
        "SELECT value FROM kv_delta WHERE instance_id = ?1 AND key = ?2",
        params![instance, key],
        |row| row.get::<_, Option<String>>(0),
    )?;
    match changed {
        Some(value) => Ok(value),
        None => read_row(
            connection,
            "SELECT value FROM kv_store WHERE instance_id = ?1 AND key = ?2",
            params![instance, key],
            |row| row.get(0),
        ),
    }
}

/// Reads all values as clients see them.
pub(super) fn all_values(
    connection: &Connection,
    instance: &str,
) -> rusqlite::Result<HashMap<String, String>> {
    let values = read_rows(
        connection,
        "SELECT key, value FROM kv_delta WHERE instance_id = ?1 AND value IS NOT NULL
         UNION ALL
         SELECT key, value FROM kv_store s WHERE instance_id = ?1
         AND NOT EXISTS (SELECT 1 FROM kv_delta d WHERE d.instance_id = ?1 AND d.key = s.key)",
        [instance],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(values.into_iter().collect())
}
