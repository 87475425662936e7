//! Instances that no caller can claim, because the store could take neither their turn nor their failure.
//!
//! A blocked instance has a lease that never ends: its row in `instance_schedule` has a token that no caller holds, and
//! no time at which the store would look at it again. So claims, arriving messages and the release of dead owners'
//! leases pass it by, without a special case for blocked instances.

use rusqlite::{Connection, params};

use super::claims::held_lease;
use super::error::StoreError;
use super::schedule::{self, LeaseChange};
use super::write_transaction::{WriteTransaction, read_rows, shown_text};
use crate::providers::{BlockedInstance, ProviderError, refusal};

const OPERATION: &str = "block_instance";

/// Ends a turn and blocks its instance. The lease must be live: a turn that the store refused because its lease had run
/// out is no reason to block anything.
pub(super) fn block(tx: &mut WriteTransaction<'_, '_>, token: &str, reason: &str) -> Result<(), StoreError> {
    let lease = held_lease(tx, token)?.ok_or_else(|| refusal::unknown_turn_token(OPERATION))?;
    let now = tx.now_ms();
    if lease.locked_until <= now {
        let expired = refusal::turn_lease_expired();
        return Err(ProviderError { operation: OPERATION.to_string(), ..expired }.into());
    }
    let nobodys = format!("blocked_{}", uuid::Uuid::new_v4());
    tx.execute(
        "UPDATE instance_schedule SET ready_seq = NULL, due_at = NULL, lock_token = ?2, locked_until = ?3,
            locked_at = ?4, batch_visible_at = 0, batch_last_id = 0, batch_start_id = NULL, owner = NULL, blocked_at = ?4,
            blocked_reason = ?5
         WHERE instance_id = ?1",
        params![lease.instance, nobodys, i64::MAX, now, reason],
    )?;
    tx.effects.changed_instances.push(lease.instance);
    Ok(())
}

/// Makes an instance claimable again, as if its messages had never been delivered; tells whether it was blocked.
pub(super) fn unblock(tx: &mut WriteTransaction<'_, '_>, instance: &str) -> Result<bool, StoreError> {
    let unblocked = tx.execute(
        "UPDATE instance_schedule SET blocked_at = NULL, blocked_reason = NULL
         WHERE instance_id = ?1 AND blocked_at IS NOT NULL",
        [instance],
    )?;
    if unblocked == 0 {
        return Ok(false);
    }
    tx.execute("UPDATE orchestrator_queue SET attempt_count = 0 WHERE instance_id = ?1", [instance])?;
    schedule::settle(tx, instance, tx.now_ms(), LeaseChange::End)?;
    tx.effects.changed_instances.push(instance.to_string());
    Ok(true)
}

/// Lists blocked instances, the one blocked longest first.
pub(super) fn list(connection: &Connection, limit: i64) -> rusqlite::Result<Vec<BlockedInstance>> {
    read_rows(
        connection,
        "SELECT instance_id, blocked_reason, blocked_at FROM instance_schedule
         WHERE blocked_at IS NOT NULL ORDER BY blocked_at, instance_id LIMIT ?1",
        [limit],
        |row| {
            Ok(BlockedInstance {
                instance: shown_text(row, 0)?,
                reason: shown_text(row, 1)?,
                blocked_at: u64::try_from(row.get::<_, i64>(2)?).unwrap_or_default(),
            })
        },
    )
}
