//! The queues at a glance, and what is ready first. Counts end at a bound.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the rows are filled in column by column, as in other crates"
)]

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::details::{self, ACTIVITY, MESSAGE};
use super::figures;
use super::list_pages::hops;
use super::overviews::{BOUND, MOST, bounded_counts};
use super::reads::number;
use super::write_transaction::{read_row, read_rows, shown_optional};
use crate::model::{QueuedActivity, QueuedMessage};
use crate::providers::inspection::listing::LONGEST_LEASE_MS;
use crate::providers::{Count, QueueState, WorkQueue};

/// Describes the queues.
pub(super) fn queues(connection: &Connection, now: i64) -> rusqlite::Result<Vec<QueueState>> {
    let mut queues = vec![messages(connection, now)?];
    queues.extend(activities(connection, now)?);
    Ok(queues)
}

/// A row of the schedule stands for the messages of one instance.
fn messages(connection: &Connection, now: i64) -> rusqlite::Result<QueueState> {
    let mut state = QueueState::default();
    state.queue = "orchestrator".into();
    // A message for an instance that waits for its timer is noticed by the next fetch; so is the end of a lease.
    let [ready] = bounded_counts(
        connection,
        &format!(
            "SELECT count(*) FROM (SELECT 1 FROM instance_schedule WHERE ready_seq IS NOT NULL
                UNION ALL SELECT 1 FROM instance_schedule WHERE due_at <= {now} AND ready_seq IS NULL LIMIT {MOST})"
        ),
    )?;
    state.ready = Count::up_to(BOUND, ready);
    let [seen, leased, delayed, last] = bounded_counts(
        connection,
        &format!(
            "SELECT count(*), count(*) FILTER (WHERE lock_token IS NOT NULL AND ready_seq IS NULL),
                count(*) FILTER (WHERE lock_token IS NULL), ifnull(max(due_at), 0)
             FROM (SELECT lock_token, ready_seq, due_at FROM instance_schedule WHERE due_at > {now} ORDER BY due_at LIMIT {MOST})"
        ),
    )?;
    let is_exact = seen <= BOUND;
    let has_all_leases = is_exact || i64::try_from(last).is_ok_and(|last| last > now + LONGEST_LEASE_MS);
    state.leased = Count::counted(BOUND, leased, has_all_leases);
    state.delayed = Count::counted(BOUND, delayed, is_exact);
    let noticed = figures::oldest_message(connection)?;
    state.oldest_ready_ms = [noticed, oldest_unnoticed(connection, now)?].into_iter().flatten().min();
    Ok(state)
}

/// Tells since when a message can be delivered that no fetch has noticed: those that are due come first.
fn oldest_unnoticed(connection: &Connection, now: i64) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT min(max(q.created_at, q.visible_at))
        FROM (SELECT instance_id FROM instance_schedule WHERE due_at <= ?1 AND ready_seq IS NULL ORDER BY due_at LIMIT 100) s
        JOIN orchestrator_queue q ON q.instance_id = s.instance_id AND q.parked_at IS NULL AND q.visible_at <= ?1";
    let since = read_row(connection, sql, [now], |row| row.get::<_, Option<i64>>(0))?;
    Ok(since.flatten().and_then(|since| u64::try_from(since).ok()))
}

/// The activities of a tag that have a lease or a delay, as far as they were looked at.
struct Due {
    ready: u64,
    leased: u64,
    delayed: u64,
    ready_since: Option<u64>,
    last: i64,
    seen: u64,
}

/// The activities by tag. Those without one come first, and are always told.
fn activities(connection: &Connection, now: i64) -> rusqlite::Result<Vec<QueueState>> {
    let mut queues: BTreeMap<Option<String>, QueueState> = BTreeMap::from([(None, QueueState::default())]);
    for tag in ready_tags(connection)? {
        queues.entry(Some(tag)).or_default();
    }
    // Of a session's activities only the first can be claimed. Leases that have ended, and delays, are noticed by the next
    // fetch.
    let heads = read_rows(
        connection,
        "SELECT tag, count(*) FROM (SELECT tag FROM worker_queue WHERE ready_for IS NOT NULL LIMIT ?1) GROUP BY tag",
        [MOST as i64],
        |row| Ok((shown_optional(row, 0)?, number(row, 1)?)),
    )?;
    let dues = read_rows(
        connection,
        "SELECT tag, count(*) FILTER (WHERE due_at <= ?1), count(*) FILTER (WHERE due_at > ?1 AND lock_token IS NOT NULL),
            count(*) FILTER (WHERE due_at > ?1 AND lock_token IS NULL), min(due_at), max(due_at), count(*)
         FROM (SELECT tag, lock_token, due_at FROM worker_queue WHERE due_at IS NOT NULL ORDER BY due_at LIMIT ?2)
         GROUP BY tag",
        params![now, MOST as i64],
        |row| {
            let first: i64 = row.get(4)?;
            let due = Due {
                ready: number(row, 1)?,
                leased: number(row, 2)?,
                delayed: number(row, 3)?,
                ready_since: u64::try_from(first).ok().filter(|_| first <= now),
                last: row.get(5)?,
                seen: number(row, 6)?,
            };
            Ok((shown_optional(row, 0)?, due))
        },
    )?;
    let is_exact = dues.iter().map(|(_, due)| due.seen).sum::<u64>() <= BOUND;
    let has_all_leases = is_exact || dues.iter().any(|(_, due)| due.last > now + LONGEST_LEASE_MS);
    for (tag, count) in heads {
        queues.entry(tag).or_default().ready.value += count;
    }
    for (tag, due) in dues {
        let state = queues.entry(tag).or_default();
        state.ready.value += due.ready;
        (state.leased.value, state.delayed.value) = (due.leased, due.delayed);
        state.oldest_ready_ms = due.ready_since;
    }
    for (tag, state) in &mut queues {
        let ready = read_row(
            connection,
            "SELECT count(*) FROM (SELECT 1 FROM worker_queue
                WHERE due_at IS NULL AND session_id IS NULL AND tag IS ?1 LIMIT ?2)",
            params![tag, MOST as i64],
            |row| number(row, 0),
        )?;
        state.ready = Count::up_to(BOUND, state.ready.value + ready.unwrap_or_default());
        state.leased = Count::counted(BOUND, state.leased.value, has_all_leases);
        state.delayed = Count::counted(BOUND, state.delayed.value, is_exact);
        let first = figures::oldest_activity(connection, tag.as_deref())?;
        state.oldest_ready_ms = [state.oldest_ready_ms, first].into_iter().flatten().min();
        state.queue = "worker".into();
        state.tag.clone_from(tag);
    }
    Ok(queues.into_values().collect())
}

/// The tags of activities that are ready.
fn ready_tags(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    hops(|from| {
        let sql =
            "SELECT min(tag) FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL AND tag > ?1";
        read_row(connection, sql, [from.unwrap_or_default()], |row| shown_optional(row, 0))
    })
}

/// The versions to which instances with ready messages are pinned; empty for those that are pinned to none.
fn ready_classes(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    hops(|from| {
        let sql = match from {
            Some(_) => "SELECT min(class) FROM instance_schedule WHERE ready_seq IS NOT NULL AND class > ?1",
            None => "SELECT min(class) FROM instance_schedule WHERE ready_seq IS NOT NULL AND class >= ?1",
        };
        read_row(connection, sql, [from.unwrap_or_default()], |row| shown_optional(row, 0))
    })
}

/// The oldest rows of a queue that are ready.
pub(super) fn ready(
    connection: &Connection,
    queue: WorkQueue,
    limit: usize,
    now: i64,
) -> rusqlite::Result<(Vec<QueuedMessage>, Vec<QueuedActivity>)> {
    match queue {
        WorkQueue::Orchestrator => Ok((ready_messages(connection, limit, now)?, Vec::new())),
        WorkQueue::Worker => Ok((Vec::new(), ready_activities(connection, limit, now)?)),
    }
}

fn ready_messages(connection: &Connection, limit: usize, now: i64) -> rusqlite::Result<Vec<QueuedMessage>> {
    let columns = MESSAGE.replace(", ", ", q.");
    let sql = format!(
        "SELECT q.{columns} FROM (SELECT ready_seq FROM instance_schedule WHERE class = ?1 AND ready_seq IS NOT NULL
            ORDER BY ready_seq LIMIT ?2) s JOIN orchestrator_queue q ON q.id = s.ready_seq"
    );
    let mut found = Vec::new();
    for class in ready_classes(connection)? {
        found.extend(read_rows(connection, &sql, params![class, as_i64(limit)], |row| {
            details::message(row, 1_000, now)
        })?);
    }
    found.sort_by_key(|message: &QueuedMessage| message.id);
    found.truncate(limit);
    Ok(found)
}

fn ready_activities(
    connection: &Connection,
    limit: usize,
    now: i64,
) -> rusqlite::Result<Vec<QueuedActivity>> {
    let mut found = Vec::new();
    for tag in [None].into_iter().chain(ready_tags(connection)?.into_iter().map(Some)) {
        found.extend(free_activities(connection, tag.as_deref(), limit, now)?);
    }
    for rows in [DUE, SEATED] {
        let sql = format!("SELECT {ACTIVITY} FROM ({rows}) ORDER BY id LIMIT ?1");
        found.extend(read_rows(connection, &sql, params![as_i64(limit), now, MOST as i64], |row| {
            details::activity(row, now)
        })?);
    }
    Ok(oldest(found, limit))
}

/// The oldest ready activities with this tag, or without one.
pub(super) fn ready_of_tag(
    connection: &Connection,
    tag: Option<&str>,
    limit: usize,
    now: i64,
) -> rusqlite::Result<Vec<QueuedActivity>> {
    let mut found = free_activities(connection, tag, limit, now)?;
    for rows in [DUE, SEATED] {
        let sql = format!("SELECT {ACTIVITY} FROM ({rows}) WHERE tag IS ?4 ORDER BY id LIMIT ?1");
        found.extend(read_rows(connection, &sql, params![as_i64(limit), now, MOST as i64, tag], |row| {
            details::activity(row, now)
        })?);
    }
    Ok(oldest(found, limit))
}

/// Activities whose lease has run out or whose delay is over, which the next fetch notices. `?2` is the time, `?3` how many.
const DUE: &str = "SELECT * FROM worker_queue WHERE due_at <= ?2 ORDER BY due_at LIMIT ?3";
/// The first activities of sessions.
const SEATED: &str = "SELECT * FROM worker_queue WHERE ready_for IS NOT NULL AND ?2 IS NOT NULL LIMIT ?3";

/// Activities without a session, a lease or a delay.
fn free_activities(
    connection: &Connection,
    tag: Option<&str>,
    limit: usize,
    now: i64,
) -> rusqlite::Result<Vec<QueuedActivity>> {
    let sql = format!(
        "SELECT {ACTIVITY} FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL AND tag IS ?1
         ORDER BY id LIMIT ?2"
    );
    read_rows(connection, &sql, params![tag, as_i64(limit)], |row| details::activity(row, now))
}

fn oldest(mut found: Vec<QueuedActivity>, limit: usize) -> Vec<QueuedActivity> {
    found.sort_by_key(|activity| activity.id);
    found.truncate(limit);
    found
}

fn as_i64(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
