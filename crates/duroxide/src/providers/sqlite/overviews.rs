//! The store at a glance: instances by state, and the queues. Counters, and counts that end at a bound.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the rows are filled in column by column, as in other crates"
)]

use rusqlite::{Connection, params};

use super::details::{self, ACTIVITY, MESSAGE};
use super::figures;
use super::list_pages::bounded_count;
use super::reads::{self, number};
use super::write_transaction::{read_row, read_rows, shown_optional};
use crate::model::{QueuedActivity, QueuedMessage};
use crate::providers::inspection::listing;
use crate::providers::{Count, QueueState, StateTotals, WorkQueue};

const BOUND: u64 = StateTotals::COUNTED_UP_TO;

pub(super) fn totals(connection: &Connection, now: i64) -> rusqlite::Result<StateTotals> {
    let metrics = reads::system_metrics(connection)?;
    let most = BOUND + 1;
    let with_status = |status: &str| {
        bounded_count(
            connection,
            &format!(
                "SELECT count(*) FROM (SELECT 1 FROM instances WHERE listed_status = '{status}' LIMIT {most})"
            ),
            BOUND,
        )
    };
    let live_from = listing::live_from(now);
    let mut totals = StateTotals::default();
    totals.cancelled = with_status("Cancelled")?;
    totals.continued = with_status("ContinuedAsNew")?;
    let starts = bounded_count(
        connection,
        &format!(
            "SELECT count(*) FROM (SELECT 1 FROM orchestrator_queue q WHERE q.class = 'start'
                AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = q.instance_id) LIMIT {most})"
        ),
        BOUND,
    )?;
    // Both kinds of trouble, each instance once, whether or not it has a row.
    let troubled = read_rows(
        connection,
        &format!(
            "SELECT t.instance_id, EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = t.instance_id),
                {}, ifnull((SELECT i.listed_status IN ('Completed', 'Failed', 'Cancelled') FROM instances i
                    WHERE i.instance_id = t.instance_id), 0),
                {}
             FROM (SELECT instance_id FROM instance_schedule WHERE blocked_at IS NOT NULL
                UNION SELECT instance_id FROM obstacles WHERE next_try_at >= {live_from} LIMIT {most}) t",
            listing::is_blocked("t.instance_id", live_from),
            format_args!(
                "EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = t.instance_id AND s.blocked_at IS NULL
                    AND (s.ready_seq IS NOT NULL OR s.lock_token IS NOT NULL OR s.due_at <= {now}))"
            ),
        ),
        [],
        |row| {
            Ok((
                row.get::<_, bool>(1)?,
                row.get::<_, bool>(2)?,
                row.get::<_, bool>(3)?,
                row.get::<_, bool>(4)?,
            ))
        },
    )?;
    let blocked = troubled.iter().filter(|(_, is_blocked, has_ended, _)| *is_blocked && !has_ended);
    type Troubled = (bool, bool, bool, bool);
    let (with_row, without_row): (Vec<&Troubled>, Vec<&Troubled>) =
        blocked.partition(|(has_row, ..)| *has_row);
    let busy_blocked = with_row.iter().filter(|(.., is_busy)| *is_busy).count() as u64;
    let blocked = (with_row.len() + without_row.len()) as u64;
    totals.blocked = Count::up_to(BOUND, blocked);
    totals.pending = Count { value: starts.value.saturating_sub(without_row.len() as u64), ..starts };
    let busy = busy_instances(connection, now)?;
    totals.running = Count { value: busy.value.saturating_sub(busy_blocked), ..busy };
    let live = metrics.running_instances;
    totals.waiting = Count {
        value: live.saturating_sub(totals.running.value + with_row.len() as u64),
        is_exact: totals.running.is_exact,
    };
    totals.completed = Count::exact(metrics.completed_instances);
    totals.failed = Count {
        value: metrics.failed_instances.saturating_sub(totals.cancelled.value),
        is_exact: totals.cancelled.is_exact,
    };
    totals.instances = metrics.total_instances;
    totals.executions = metrics.total_executions;
    totals.events = metrics.total_events;
    Ok(totals)
}

/// Counts running instances that have messages: those whose turn can begin, and those whose turn is under way. Timers are
/// messages too, and many instances may have nothing else; so this looks at the rows of the schedule that are ready or
/// leased, of which there are few, and not at those that wait for a time.
fn busy_instances(connection: &Connection, now: i64) -> rusqlite::Result<Count> {
    let most = BOUND + 1;
    let ready = format!(
        "SELECT count(*) FROM (SELECT s.instance_id FROM instance_schedule s JOIN instances i ON i.instance_id = s.instance_id
            WHERE s.ready_seq IS NOT NULL AND i.listed_status = 'Running' LIMIT {most})"
    );
    let ready = bounded_count(connection, &ready, BOUND)?;
    // A lease ends soon, so leased rows are among the first that have to be looked at again.
    let leased = format!(
        "SELECT count(*) FROM (SELECT instance_id, due_at, lock_token, ready_seq FROM instance_schedule
            WHERE due_at IS NOT NULL ORDER BY due_at LIMIT {most}) s
         JOIN instances i ON i.instance_id = s.instance_id
         WHERE i.listed_status = 'Running' AND s.ready_seq IS NULL AND (s.lock_token IS NOT NULL OR s.due_at <= {now})"
    );
    let leased = bounded_count(connection, &leased, BOUND)?;
    let seen = bounded_count(
        connection,
        &format!(
            "SELECT count(*) FROM (SELECT 1 FROM instance_schedule WHERE due_at IS NOT NULL LIMIT {most})"
        ),
        BOUND,
    )?;
    Ok(Count {
        value: ready.value + leased.value,
        is_exact: ready.is_exact && leased.is_exact && seen.is_exact,
    })
}

pub(super) fn queues(connection: &Connection, now: i64) -> rusqlite::Result<Vec<QueueState>> {
    let mut queues = vec![messages(connection, now)?];
    let tags = tags(connection)?;
    for tag in [None].into_iter().chain(tags.into_iter().map(Some)) {
        queues.push(activities(connection, tag, now)?);
    }
    Ok(queues)
}

fn messages(connection: &Connection, now: i64) -> rusqlite::Result<QueueState> {
    let most = BOUND + 1;
    let mut state = QueueState::default();
    state.queue = "orchestrator".into();
    // A row of the schedule stands for the messages of one instance.
    state.ready = bounded_count(
        connection,
        &format!(
            // A message for an instance that waits for its timer is noticed by the next fetch.
            "SELECT count(*) FROM (SELECT 1 FROM instance_schedule WHERE ready_seq IS NOT NULL
                UNION ALL SELECT 1 FROM instance_schedule WHERE due_at <= {now} AND ready_seq IS NULL LIMIT {most})"
        ),
        BOUND,
    )?;
    state.leased = bounded_count(
        connection,
        &format!(
            "SELECT count(*) FROM (SELECT lock_token, ready_seq FROM instance_schedule WHERE due_at > {now} ORDER BY due_at
                LIMIT {most}) WHERE lock_token IS NOT NULL AND ready_seq IS NULL"
        ),
        BOUND,
    )?;
    state.delayed = bounded_count(
        connection,
        &format!(
            "SELECT count(*) FROM (SELECT lock_token FROM instance_schedule WHERE due_at > {now} ORDER BY due_at LIMIT {most})
             WHERE lock_token IS NULL"
        ),
        BOUND,
    )?;
    state.oldest_ready_ms = figures::oldest_message(connection)?;
    Ok(state)
}

/// The tags of queued activities, found by hopping through the index of ready ones.
fn tags(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut tags: Vec<String> = Vec::new();
    loop {
        let from = tags.last().map_or("", String::as_str);
        let next = read_row(
            connection,
            "SELECT min(tag) FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL AND tag > ?1",
            [from],
            |row| shown_optional(row, 0),
        )?;
        match next.flatten() {
            Some(tag) => tags.push(tag),
            None => return Ok(tags),
        }
    }
}

fn activities(connection: &Connection, tag: Option<String>, now: i64) -> rusqlite::Result<QueueState> {
    let most = (BOUND + 1) as i64;
    let mut state = QueueState::default();
    state.queue = "worker".into();
    let ready = read_row(
        connection,
        "SELECT count(*) FROM (SELECT 1 FROM worker_queue
            WHERE due_at IS NULL AND session_id IS NULL AND tag IS ?1 LIMIT ?2)",
        params![tag, most],
        |row| number(row, 0),
    )?;
    // Of a session's activities only the first can be claimed.
    let seated = read_row(
        connection,
        "SELECT count(*) FROM (SELECT 1 FROM worker_queue WHERE ready_for IS NOT NULL AND tag IS ?1 LIMIT ?2)",
        params![tag, most],
        |row| number(row, 0),
    )?;
    state.ready = Count::up_to(BOUND, ready.unwrap_or_default() + seated.unwrap_or_default());
    let dues = read_row(
        connection,
        "SELECT count(*) FILTER (WHERE lock_token IS NOT NULL), count(*) FILTER (WHERE lock_token IS NULL), count(*)
         FROM (SELECT lock_token, tag FROM worker_queue WHERE due_at > ?2 ORDER BY due_at LIMIT ?3) WHERE tag IS ?1",
        params![tag, now, most],
        |row| Ok([number(row, 0)?, number(row, 1)?, number(row, 2)?]),
    )?;
    let [leased, delayed, seen] = dues.unwrap_or_default();
    let is_exact = seen <= BOUND;
    state.leased = Count { value: leased, is_exact };
    state.delayed = Count { value: delayed, is_exact };
    state.oldest_ready_ms = figures::oldest_activity(connection, tag.as_deref())?;
    state.tag = tag;
    Ok(state)
}

/// The oldest rows of a queue that are ready.
pub(super) fn ready(
    connection: &Connection,
    queue: WorkQueue,
    limit: usize,
    now: i64,
) -> rusqlite::Result<(Vec<QueuedMessage>, Vec<QueuedActivity>)> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    match queue {
        WorkQueue::Orchestrator => {
            let columns = MESSAGE.replace(", ", ", q.");
            let sql = format!(
                "SELECT q.{columns} FROM (SELECT ready_seq FROM instance_schedule WHERE ready_seq IS NOT NULL
                    LIMIT {BOUND}) s JOIN orchestrator_queue q ON q.id = s.ready_seq ORDER BY q.id LIMIT ?1"
            );
            let messages = read_rows(connection, &sql, [limit], |row| details::message(row, 1_000, now))?;
            Ok((messages, Vec::new()))
        }
        WorkQueue::Worker => {
            let sql =
                format!("SELECT {ACTIVITY} FROM worker_queue WHERE due_at IS NULL ORDER BY id LIMIT ?1");
            let activities = read_rows(connection, &sql, [limit], |row| details::activity(row, now))?;
            Ok((Vec::new(), activities))
        }
    }
}
