//! The rows of an instance and its executions, as a turn changes them.

use rusqlite::params;

use super::turns::TurnCommit;
use super::write_transaction::{WriteTransaction, shown_optional, shown_text};
use crate::model::{ExecutionStatus, InstanceState};
use crate::providers::{ExecutionMetadata, ListSort, inspect};

/// The unit of `updated_10s`.
const UPDATED_MS: i64 = ListSort::UPDATED_MS as i64;

/// The state of an instance after a turn.
pub(super) struct Updated {
    /// Which creation of its id it is; 0 if it has no row.
    pub(super) incarnation: i64,
    /// The class by which fetches find it, if the turn changes it: the version that its current execution is pinned to.
    pub(super) class: Option<String>,
    /// Whether the turn was of its current execution.
    pub(super) is_current: bool,
}

/// The instance's row before a turn changes it.
struct Before {
    incarnation: i64,
    execution_id: i64,
    status: Option<String>,
    listed_status: String,
    updated_10s: i64,
}

/// Applies a turn's changes of its instance and execution.
pub(super) fn update(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    now: i64,
) -> rusqlite::Result<Updated> {
    if let Some(incarnation) = touch(tx, instance, turn, now)? {
        return Ok(Updated { incarnation, class: None, is_current: true });
    }
    let before = tx.row(
        "SELECT i.incarnation, i.current_execution_id, e.status, i.listed_status, i.updated_10s FROM instances i
         LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1",
        [instance],
        |row| {
            Ok(Before {
                incarnation: row.get(0)?,
                execution_id: row.get(1)?,
                status: shown_optional(row, 2)?,
                listed_status: shown_text(row, 3)?,
                updated_10s: row.get(4)?,
            })
        },
    )?;
    update_execution(tx, instance, turn, before.as_ref(), now)?;
    match before {
        Some(before) => {
            let (incarnation, is_current) = (before.incarnation, before.execution_id <= turn.execution_id);
            let class = update_row(tx, instance, turn, before, now)?;
            Ok(Updated { incarnation, class, is_current })
        }
        None => create_row(tx, instance, turn, now),
    }
}

/// Notes that an instance took a turn and changed in no other way, like most turns. Returns its incarnation; `None` if
/// there is more to change.
fn touch(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    now: i64,
) -> rusqlite::Result<Option<i64>> {
    let ExecutionMetadata { status, orchestration_name, pinned_duroxide_version, .. } = &turn.metadata;
    let changes_more = status.is_some()
        || orchestration_name.is_some()
        || pinned_duroxide_version.is_some()
        || turn.changes.custom_status.is_some();
    if changes_more {
        return Ok(None);
    }
    let touched: Option<(i64, i64)> = tx.row(
        "UPDATE instances SET updated_at = ?3 WHERE instance_id = ?1 AND current_execution_id = ?2
         AND EXISTS (SELECT 1 FROM executions WHERE instance_id = ?1 AND execution_id = ?2)
         RETURNING incarnation, updated_10s",
        params![instance, turn.execution_id, now],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    tx.note_change(touched.is_some());
    if let Some((incarnation, updated_10s)) = touched
        && updated_10s != now / UPDATED_MS
    {
        tx.execute(
            "UPDATE instances SET updated_10s = ?2 WHERE incarnation = ?1",
            [incarnation, now / UPDATED_MS],
        )?;
    }
    Ok(touched.map(|(incarnation, _)| incarnation))
}

/// Records the execution, its status and its pinned version. Most turns change none of them.
fn update_execution(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    before: Option<&Before>,
    now: i64,
) -> rusqlite::Result<()> {
    let status = turn.metadata.status.as_deref();
    let output = status.and(turn.metadata.output.as_deref());
    let completed_at = status.filter(|status| inspect::is_terminal_status(status)).map(|_| now);
    let [major, minor, patch] = turn.pinned.as_ref().map_or([None; 3], |pinned| pinned.numbers.map(Some));
    let is_known = before.is_some_and(|row| row.execution_id == turn.execution_id && row.status.is_some());
    if !is_known {
        let created = tx.execute(
            "INSERT OR IGNORE INTO executions (instance_id, execution_id, status, started_at, completed_at,
                duroxide_version_major, duroxide_version_minor, duroxide_version_patch, output)
             VALUES (?1, ?2, ifnull(?3, 'Running'), ?4, ?5, ?6, ?7, ?8, ?9)",
            params![instance, turn.execution_id, status, now, completed_at, major, minor, patch, output],
        )?;
        if created > 0 {
            tx.effects.totals.executions += 1;
            return Ok(());
        }
    }
    if status.is_some() {
        tx.execute(
            "UPDATE executions SET status = ?3, output = ?4, completed_at = ?5
             WHERE instance_id = ?1 AND execution_id = ?2",
            params![instance, turn.execution_id, status, output, completed_at],
        )?;
    }
    if turn.pinned.is_some() {
        tx.execute(
            "UPDATE executions SET duroxide_version_major = ?3, duroxide_version_minor = ?4,
                duroxide_version_patch = ?5 WHERE instance_id = ?1 AND execution_id = ?2",
            params![instance, turn.execution_id, major, minor, patch],
        )?;
    }
    Ok(())
}

/// Creates the row if the turn names the orchestration.
fn create_row(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    now: i64,
) -> rusqlite::Result<Updated> {
    let metadata = &turn.metadata;
    let (Some(name), Some(version)) = (&metadata.orchestration_name, &metadata.orchestration_version) else {
        return Ok(Updated { incarnation: 0, class: None, is_current: true });
    };
    // A turn without a name may have recorded and pinned the execution before.
    let recorded = tx.row(
        "SELECT status, duroxide_version_major || '.' || duroxide_version_minor || '.' || duroxide_version_patch
         FROM executions WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, turn.execution_id],
        |row| Ok((shown_text(row, 0)?, row.get::<_, Option<String>>(1)?)),
    )?;
    let (status, recorded_pin) = recorded.unwrap_or_default();
    let pinned = turn.pinned.as_ref().map(|pinned| pinned.text.clone());
    let class = pinned.or(recorded_pin).unwrap_or_default();
    let custom_status = &turn.changes.custom_status;
    let listed = listed_status(turn, &status);
    tx.execute(
        "INSERT INTO instances (instance_id, orchestration_name, orchestration_version, current_execution_id,
            created_at, updated_at, parent_instance_id, pinned_version, custom_status_version, custom_status, listed_status,
            updated_10s, root_instance_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11, CASE WHEN ?6 IS NOT NULL THEN coalesce(
            (SELECT coalesce(p.root_instance_id, p.instance_id) FROM instances p WHERE p.instance_id = ?6), ?6) END)",
        params![
            instance,
            name,
            version,
            turn.execution_id,
            now,
            metadata.parent_instance_id,
            class,
            custom_status.is_some(),
            custom_status.as_ref().and_then(Option::as_ref),
            listed,
            now / UPDATED_MS,
        ],
    )?;
    let incarnation = tx.connection().last_insert_rowid();
    let totals = &mut tx.effects.totals;
    totals.instances += 1;
    totals.count_status(&status, listed, 1);
    tx.effects.rates.started += 1;
    tx.effects.rates.count_end(&status);
    Ok(Updated { incarnation, class: Some(class), is_current: true })
}

fn update_row(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    turn: &TurnCommit,
    before: Before,
    now: i64,
) -> rusqlite::Result<Option<String>> {
    let execution_id = before.execution_id.max(turn.execution_id);
    let moves_on = before.execution_id < execution_id;
    let class = match &turn.pinned {
        Some(pinned) if turn.execution_id == execution_id => Some(pinned.text.clone()),
        None if moves_on => Some(String::new()),
        _ => None,
    };
    // What the status of its current execution will be, if this turn sets it.
    let new_status = turn.metadata.status.as_deref().filter(|_| turn.execution_id == execution_id);
    match new_status {
        Some(status) => tx.execute(
            "UPDATE instances SET updated_at = ?2, current_execution_id = ?3, pinned_version = ifnull(?4, pinned_version),
                listed_status = ?5, updated_10s = ?6 WHERE incarnation = ?1",
            params![
                before.incarnation,
                now,
                execution_id,
                class,
                listed_status(turn, status),
                now / UPDATED_MS
            ],
        )?,
        None => tx.execute(
            "UPDATE instances SET updated_at = ?2, current_execution_id = ?3, pinned_version = ifnull(?4, pinned_version)
             WHERE incarnation = ?1",
            params![before.incarnation, now, execution_id, class],
        )?,
    };
    let metadata = &turn.metadata;
    if let (Some(name), Some(version)) = (&metadata.orchestration_name, &metadata.orchestration_version) {
        tx.execute(
            "UPDATE instances SET orchestration_name = ?2, orchestration_version = ?3 WHERE instance_id = ?1",
            params![instance, name, version],
        )?;
    }
    if let Some(status) = &turn.changes.custom_status {
        tx.execute(
            "UPDATE instances SET custom_status = ?2, custom_status_version = custom_status_version + 1
             WHERE instance_id = ?1",
            params![instance, status],
        )?;
    }
    if moves_on || metadata.status.is_some() {
        let status = match new_status {
            Some(status) => status.to_string(),
            None => execution_status(tx, instance, execution_id)?.unwrap_or_default(),
        };
        let old_status = before.status.as_deref().unwrap_or_default();
        let listed = listed_status(turn, &status);
        let totals = &mut tx.effects.totals;
        totals.count_status(old_status, &before.listed_status, -1);
        totals.count_status(&status, listed, 1);
        if status != old_status {
            tx.effects.rates.count_end(&status);
        }
        if new_status.is_none() {
            tx.execute(
                "UPDATE instances SET listed_status = ?2, updated_10s = ?3 WHERE incarnation = ?1",
                params![before.incarnation, listed, now / UPDATED_MS],
            )?;
        }
    } else if before.updated_10s != now / UPDATED_MS {
        let updated = [before.incarnation, now / UPDATED_MS];
        tx.execute("UPDATE instances SET updated_10s = ?2 WHERE incarnation = ?1", updated)?;
    }
    Ok(class)
}

/// The status that listings show: a cancelled instance is told from one that failed.
fn listed_status<'s>(turn: &TurnCommit, status: &'s str) -> &'s str {
    let is_cancelled = |turn: &TurnCommit| turn.events.iter().any(inspect::is_cancellation);
    match ExecutionStatus::parse(status) {
        Some(ExecutionStatus::Failed) if is_cancelled(turn) => InstanceState::CANCELLED,
        _ => status,
    }
}

fn execution_status(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    execution_id: i64,
) -> rusqlite::Result<Option<String>> {
    tx.row(
        "SELECT status FROM executions WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| shown_text(row, 0),
    )
}
