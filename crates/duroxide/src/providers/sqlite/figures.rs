//! How the store is, as metrics tell it.

use std::time::Duration;

use rusqlite::Connection;

use super::shared::Shared;
use super::write_transaction::read_row;

/// The oldest ready message. Versions are few, and each has its place in the index `instance_schedule_ready`.
const OLDEST_MESSAGE: &str = "WITH RECURSIVE classes (class) AS (
        SELECT min(class) FROM instance_schedule WHERE ready_seq IS NOT NULL
        UNION ALL
        SELECT (SELECT min(s.class) FROM instance_schedule s WHERE s.ready_seq IS NOT NULL AND s.class > c.class)
        FROM classes c WHERE c.class IS NOT NULL)
    SELECT max(created_at, visible_at) FROM orchestrator_queue WHERE id = (
        SELECT min((SELECT min(s.ready_seq) FROM instance_schedule s WHERE s.ready_seq IS NOT NULL AND s.class = c.class))
        FROM classes c)";

/// The oldest ready activity that has neither a tag nor a session.
const OLDEST_ACTIVITY: &str = "SELECT max(created_at, visible_at) FROM worker_queue
    WHERE due_at IS NULL AND session_id IS NULL AND tag IS NULL ORDER BY id LIMIT 1";

/// The oldest ready activity that has this tag and no session.
const OLDEST_TAGGED: &str = "SELECT max(created_at, visible_at) FROM worker_queue
    WHERE due_at IS NULL AND session_id IS NULL AND tag IS ?1 ORDER BY id LIMIT 1";

/// Tells since when the oldest ready message has been ready, in milliseconds since the epoch.
pub(super) fn oldest_message(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let since = read_row(connection, OLDEST_MESSAGE, [], |row| row.get::<_, Option<i64>>(0))?;
    Ok(since.flatten().and_then(|since| u64::try_from(since).ok()))
}

/// Tells since when the oldest ready activity with this tag has been ready, in milliseconds since the epoch.
pub(super) fn oldest_activity(connection: &Connection, tag: Option<&str>) -> rusqlite::Result<Option<u64>> {
    let since = read_row(connection, OLDEST_TAGGED, [tag], |row| row.get::<_, Option<i64>>(0))?;
    Ok(since.flatten().and_then(|since| u64::try_from(since).ok()))
}

/// Tells how long the first of each queue has been ready.
pub(super) fn tell(connection: &Connection, now: i64) {
    for (queue, sql) in [("orchestrator", OLDEST_MESSAGE), ("worker", OLDEST_ACTIVITY)] {
        let ready_since = connection.prepare_cached(sql).and_then(|mut statement| {
            let mut rows = statement.query([])?;
            rows.next()?.map(|row| row.get::<_, Option<i64>>(0)).transpose()
        });
        // What cannot be read now is read next time.
        if let Ok(since) = ready_since {
            let age = since.flatten().map_or(0, |since| now.saturating_sub(since));
            Shared::METRICS.oldest(queue, Duration::from_millis(u64::try_from(age).unwrap_or(0)));
        }
    }
}
