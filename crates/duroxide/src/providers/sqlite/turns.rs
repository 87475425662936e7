//! Ending a lease on an instance: commit, give back, extend.

use std::time::Duration;

use rusqlite::params;

use super::batch::Batch;
use super::claims::held_lease;
use super::encode::{NewActivity, NewEvent, NewMessage};
use super::error::StoreError;
use super::schedule::{self, Lease};
use super::{history, kv, messages, work};
use crate::providers::inspect::{self, DeltaChanges};
use crate::providers::{ExecutionMetadata, ScheduledActivityIdentifier, refusal};

const ACK: &str = "ack_orchestration_item";

/// All that a turn changes, encoded.
pub(super) struct TurnCommit {
    pub(super) token: String,
    /// When the ack reached the writer: a lease that was live then is honoured, however long the queue is.
    pub(super) arrived_ms: i64,
    pub(super) execution_id: i64,
    pub(super) events: Vec<NewEvent>,
    pub(super) changes: DeltaChanges,
    pub(super) activities: Vec<NewActivity>,
    pub(super) messages: Vec<NewMessage>,
    pub(super) metadata: ExecutionMetadata,
    pub(super) cancelled: Vec<ScheduledActivityIdentifier>,
}

/// Commits a turn, wholly or not at all.
pub(super) fn ack(batch: &mut Batch<'_>, turn: TurnCommit) -> Result<(), StoreError> {
    let lease = held_lease(batch, &turn.token)?.ok_or_else(|| refusal::unknown_turn_token(ACK))?;
    if lease.locked_until <= turn.arrived_ms {
        return Err(refusal::turn_lease_expired().into());
    }
    let instance = lease.instance.as_str();
    history::refuse_duplicates(batch, ACK, instance, turn.execution_id, &turn.events)?;

    batch.atomically(|batch| {
        let now = batch.now_ms();
        history::append(batch, instance, turn.execution_id, &turn.events, now)?;
        update_instance(batch, instance, &turn, now)?;
        kv::apply(batch, instance, &turn.changes.kv, now)?;
        if turn.metadata.status.as_deref().is_some_and(inspect::is_terminal_status) {
            kv::merge(batch, instance)?;
        }
        for activity in &turn.activities {
            work::insert(batch, activity, now)?;
        }
        for activity in &turn.cancelled {
            work::cancel(batch, activity)?;
        }
        messages::delete_leased(batch, instance, lease.leased)?;
        for message in &turn.messages {
            messages::insert(batch, message, message.due_at, now)?;
        }
        schedule::settle(batch, instance, now, Lease::End)?;
        batch.effects.changed_instances.push(instance.to_string());
        Ok(())
    })
}

/// The instance's row before a turn changes it.
struct Before {
    execution_id: i64,
    status: Option<String>,
}

fn update_instance(
    batch: &mut Batch<'_>,
    instance: &str,
    turn: &TurnCommit,
    now: i64,
) -> Result<(), StoreError> {
    let before = batch.row(
        "SELECT i.current_execution_id, e.status FROM instances i
         LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1",
        [instance],
        |row| Ok(Before { execution_id: row.get(0)?, status: row.get(1)? }),
    )?;
    update_execution(batch, instance, turn, now)?;

    let metadata = &turn.metadata;
    let exists = if let (Some(name), Some(version)) =
        (&metadata.orchestration_name, &metadata.orchestration_version)
    {
        batch.execute(
            "INSERT INTO instances (instance_id, orchestration_name, orchestration_version, current_execution_id,
                created_at, updated_at, parent_instance_id) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)
             ON CONFLICT (instance_id) DO UPDATE SET orchestration_name = ?2, orchestration_version = ?3",
            params![instance, name, version, turn.execution_id, now, metadata.parent_instance_id],
        )?;
        true
    } else {
        before.is_some()
    };
    if !exists {
        return Ok(());
    }
    let execution_id =
        before.as_ref().map_or(turn.execution_id, |row| row.execution_id.max(turn.execution_id));
    batch.execute(
        "UPDATE instances SET updated_at = ?2, current_execution_id = ?3 WHERE instance_id = ?1",
        params![instance, now, execution_id],
    )?;
    if let Some(status) = &turn.changes.custom_status {
        batch.execute(
            "UPDATE instances SET custom_status = ?2, custom_status_version = custom_status_version + 1
             WHERE instance_id = ?1",
            params![instance, status],
        )?;
    }
    pin(batch, instance, turn, before.as_ref(), execution_id)?;
    count(batch, instance, turn, before, execution_id)
}

/// Records the execution, its status and the version that it is pinned to.
fn update_execution(
    batch: &mut Batch<'_>,
    instance: &str,
    turn: &TurnCommit,
    now: i64,
) -> Result<(), StoreError> {
    let created = batch.execute(
        "INSERT OR IGNORE INTO executions (instance_id, execution_id, started_at) VALUES (?1, ?2, ?3)",
        params![instance, turn.execution_id, now],
    )?;
    batch.effects.totals.executions += i64::try_from(created).unwrap_or(0);
    if let Some(status) = &turn.metadata.status {
        let completed_at = inspect::is_terminal_status(status).then_some(now);
        batch.execute(
            "UPDATE executions SET status = ?3, output = ?4, completed_at = ?5
             WHERE instance_id = ?1 AND execution_id = ?2",
            params![instance, turn.execution_id, status, turn.metadata.output, completed_at],
        )?;
    }
    if let Some(version) = &turn.metadata.pinned_duroxide_version {
        let part = |number: u64| super::encode::id(ACK, "version number", number);
        batch.execute(
            "UPDATE executions SET duroxide_version_major = ?3, duroxide_version_minor = ?4,
                duroxide_version_patch = ?5 WHERE instance_id = ?1 AND execution_id = ?2",
            params![
                instance,
                turn.execution_id,
                part(version.major)?,
                part(version.minor)?,
                part(version.patch)?
            ],
        )?;
    }
    Ok(())
}

/// Keeps the class by which fetches find the instance: the version that its current execution is pinned to.
fn pin(
    batch: &Batch<'_>,
    instance: &str,
    turn: &TurnCommit,
    before: Option<&Before>,
    execution_id: i64,
) -> rusqlite::Result<()> {
    let is_current = turn.execution_id == execution_id;
    let is_new = before.is_none_or(|row| row.execution_id < execution_id);
    let class = match &turn.metadata.pinned_duroxide_version {
        Some(version) if is_current => version.to_string(),
        None if is_current && is_new => String::new(),
        _ => return Ok(()),
    };
    batch.execute(
        "UPDATE instances SET pinned_version = ?2 WHERE instance_id = ?1",
        params![instance, class],
    )?;
    batch.execute(
        "UPDATE instance_schedule SET class = ?2 WHERE instance_id = ?1",
        params![instance, class],
    )?;
    Ok(())
}

/// Keeps the totals: one more instance, or one that changed its status.
fn count(
    batch: &mut Batch<'_>,
    instance: &str,
    turn: &TurnCommit,
    before: Option<Before>,
    execution_id: i64,
) -> Result<(), StoreError> {
    let moved = before.as_ref().is_none_or(|row| row.execution_id != execution_id);
    if !moved && turn.metadata.status.is_none() {
        return Ok(());
    }
    let status: Option<String> = batch.row(
        "SELECT status FROM executions WHERE instance_id = ?1 AND execution_id = ?2",
        params![instance, execution_id],
        |row| row.get(0),
    )?;
    let totals = &mut batch.effects.totals;
    match before {
        None => totals.instances += 1,
        Some(before) => totals.count_status(before.status.as_deref().unwrap_or_default(), -1),
    }
    totals.count_status(status.as_deref().unwrap_or_default(), 1);
    Ok(())
}

/// Gives a turn back. A lease that has run out can still be given back as long as nobody has taken over.
pub(super) fn abandon(
    batch: &mut Batch<'_>,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), StoreError> {
    let lease =
        held_lease(batch, token)?.ok_or_else(|| refusal::unknown_turn_token("abandon_orchestration_item"))?;
    let now = batch.now_ms();
    if !ignore_attempt {
        messages::count_attempt(batch, &lease.instance, lease.leased)?;
    }
    if let Some(delay) = delay.filter(|delay| !delay.is_zero()) {
        messages::delay(batch, &lease.instance, lease.leased, super::shared::after(now, delay))?;
    }
    schedule::settle(batch, &lease.instance, now, Lease::End)?;
    Ok(())
}

/// Extends a live lease; never shortens it.
pub(super) fn renew(
    batch: &mut Batch<'_>,
    token: &str,
    arrived_ms: i64,
    extend_for: Duration,
) -> Result<(), StoreError> {
    let lease = held_lease(batch, token)?.filter(|lease| lease.locked_until > arrived_ms);
    let lease = lease.ok_or_else(refusal::turn_not_renewable)?;
    let until = batch.in_ms(extend_for).max(lease.locked_until);
    batch.execute(
        "UPDATE instance_schedule SET locked_until = ?2, due_at = ?2, ready_seq = NULL WHERE instance_id = ?1",
        params![lease.instance, until],
    )?;
    Ok(())
}
