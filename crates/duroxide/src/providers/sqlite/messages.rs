//! The orchestrator queue.

use rusqlite::params;

use super::write_transaction::{WriteTransaction, count, shown_text, text_bytes};
use crate::providers::StoreLimits;
use crate::providers::inspect::MessageClass;
use crate::providers::rows::MessageRow;
use crate::providers::store_limits::TurnRoom;

/// A message as the store keeps it.
pub(super) struct StoredMessage {
    pub(super) id: i64,
    pub(super) class: String,
    pub(super) attempts: u32,
    pub(super) text: Vec<u8>,
}

/// Appends a message, visible at `visible_at`, or at once if that is past. A trigger schedules its instance.
pub(super) fn insert(
    tx: &mut WriteTransaction<'_, '_>,
    message: &MessageRow,
    visible_at: i64,
    now: i64,
) -> rusqlite::Result<()> {
    let visible_at = if visible_at <= now { 0 } else { visible_at };
    tx.execute(
        "INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item, parent_instance_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![message.instance, message.class.as_str(), visible_at, now, message.text, message.parent],
    )?;
    match visible_at {
        0 => {
            tx.effects.ready_instances.insert(message.instance.clone());
        }
        later => tx.effects.instances_due.note(later),
    }
    Ok(())
}

/// The messages of a turn.
pub(super) struct NextMessages {
    /// The messages, in the order in which senders enqueued them.
    pub(super) messages: Vec<StoredMessage>,
    /// The size of all of them together.
    pub(super) bytes: usize,
    /// Whether some are left for the next turn.
    pub(super) has_more: bool,
}

impl NextMessages {
    fn take(
        tx: &WriteTransaction<'_, '_>,
        room: &mut TurnRoom,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> rusqlite::Result<Self> {
        let mut bytes = 0;
        let read = |row: &rusqlite::Row<'_>| {
            let size = row.get_ref(3)?.as_bytes()?.len();
            if !room.take(size) {
                return Ok(None);
            }
            bytes += size;
            Ok(Some(StoredMessage {
                id: row.get(0)?,
                class: shown_text(row, 1)?,
                attempts: count(row, 2)?,
                text: text_bytes(row, 3)?,
            }))
        };
        let (messages, has_more) = tx.rows_while(sql, params, read)?;
        Ok(Self { messages, bytes, has_more })
    }

    pub(super) fn has_start(&self) -> bool {
        self.messages.iter().any(StoredMessage::is_start)
    }
}

impl StoredMessage {
    pub(super) fn is_start(&self) -> bool {
        self.class == MessageClass::Start.as_str()
    }
}

/// Reads the messages of an instance's next turn: the oldest visible ones that are not parked, as many as a turn has
/// room for.
///
/// Collects the ids first, from the index, so that it reads only the texts for this turn, however many messages there
/// are.
pub(super) fn oldest(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    now: i64,
) -> rusqlite::Result<NextMessages> {
    let limits = &tx.shared.limits;
    NextMessages::take(
        tx,
        &mut limits.turn_room(),
        "SELECT id, class, attempt_count, work_item FROM orchestrator_queue WHERE id IN (
            SELECT id FROM (
                SELECT id FROM orchestrator_queue
                WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at = 0 ORDER BY id LIMIT ?3)
            UNION ALL
            SELECT id FROM (
                SELECT id FROM orchestrator_queue
                WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at > 0 AND visible_at <= ?2 ORDER BY id LIMIT ?3))
         ORDER BY id",
        params![instance, now, one_more(limits)],
    )
}

/// Like [`oldest`], for an execution that is about to begin: its start comes first, wherever it is in the queue.
pub(super) fn starts_first(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    now: i64,
) -> rusqlite::Result<NextMessages> {
    let limits = &tx.shared.limits;
    let mut room = limits.turn_room();
    let mut next = NextMessages::take(
        tx,
        &mut room,
        "SELECT id, class, attempt_count, work_item FROM orchestrator_queue
         WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2 AND class = 'start' ORDER BY id LIMIT ?3",
        params![instance, now, one_more(limits)],
    )?;
    if next.has_more {
        return Ok(next);
    }
    let others = NextMessages::take(
        tx,
        &mut room,
        "SELECT id, class, attempt_count, work_item FROM orchestrator_queue WHERE id IN (
            SELECT id FROM (
                SELECT id FROM orchestrator_queue
                WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at = 0 AND class <> 'start' ORDER BY id LIMIT ?3)
            UNION ALL
            SELECT id FROM (
                SELECT id FROM orchestrator_queue
                WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at > 0 AND visible_at <= ?2 AND class <> 'start'
                ORDER BY id LIMIT ?3))
         ORDER BY id",
        params![instance, now, one_more(limits)],
    )?;
    next.messages.extend(others.messages);
    next.messages.sort_unstable_by_key(|message| message.id);
    Ok(NextMessages { bytes: next.bytes + others.bytes, has_more: others.has_more, ..next })
}

/// As many as a turn has room for, and one more to see whether there are others.
fn one_more(limits: &StoreLimits) -> i64 {
    i64::try_from(limits.max_turn_messages.max(1)).unwrap_or(i64::MAX).saturating_add(1)
}

/// A message without its text: its id, and its meaning to an instance that does not exist.
pub(super) struct MessageKey {
    pub(super) id: i64,
    pub(super) class: String,
}

/// Lists the visible messages of an instance, not the parked ones, without their texts.
pub(super) fn visible_keys(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    now: i64,
) -> rusqlite::Result<Vec<MessageKey>> {
    let mut keys = tx.rows(
        "SELECT id, class FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NULL AND visible_at <= ?2",
        params![instance, now],
        |row| Ok(MessageKey { id: row.get(0)?, class: shown_text(row, 1)? }),
    )?;
    keys.sort_unstable_by_key(|key| key.id);
    Ok(keys)
}

/// Removes the messages for the current execution when it ends, because no execution will read them; see
/// [`MessageClass::goes_with`].
pub(super) fn delete_unread(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    status: &str,
) -> rusqlite::Result<()> {
    let classes = [MessageClass::Start, MessageClass::Completion, MessageClass::Queue, MessageClass::Signal];
    let [start, completion, queue, signal] =
        classes.map(|class| class.goes_with(status).then(|| class.as_str()));
    tx.execute(
        "DELETE FROM orchestrator_queue
             WHERE instance_id = ?1 AND parked_at IS NULL AND class IN (?2, ?3, ?4, ?5)",
        params![instance, start, completion, queue, signal],
    )
    .map(drop)
}

/// Removes messages by their ids.
pub(super) fn delete(
    tx: &WriteTransaction<'_, '_>,
    ids: impl IntoIterator<Item = i64>,
) -> rusqlite::Result<()> {
    for id in ids {
        tx.execute("DELETE FROM orchestrator_queue WHERE id = ?1", [id])?;
    }
    Ok(())
}

/// Tells whether a start is queued for an instance, visible or not. Starts are never parked.
pub(super) fn has_start(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    let found = tx.row(
        "SELECT 1 FROM orchestrator_queue WHERE instance_id = ?1 AND parked_at IS NULL AND class = 'start' LIMIT 1",
        [instance],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}
