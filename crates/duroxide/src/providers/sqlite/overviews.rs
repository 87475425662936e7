//! Instances by state: counters, and counts that end at a bound.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the rows are filled in column by column, as in other crates"
)]

use rusqlite::Connection;

use super::list_pages::bounded_count;
use super::reads::{self, number};
use super::write_transaction::{read_row, read_rows};
use crate::providers::inspection::listing::{self, LONGEST_LEASE_MS};
use crate::providers::{Count, StateTotals};

pub(super) const BOUND: u64 = StateTotals::COUNTED_UP_TO;
/// Counting stops at one more than the bound.
pub(super) const MOST: u64 = BOUND + 1;

pub(super) fn totals(connection: &Connection, now: i64) -> rusqlite::Result<StateTotals> {
    let metrics = reads::system_metrics(connection)?;
    let mut totals = StateTotals::default();
    totals.instances = metrics.total_instances;
    totals.executions = metrics.total_executions;
    totals.events = metrics.total_events;
    totals.completed = Count::exact(metrics.completed_instances);
    let cancelled = read_row(connection, "SELECT cancelled_instances FROM totals", [], |row| number(row, 0))?;
    totals.cancelled = Count::exact(cancelled.unwrap_or_default());
    totals.failed = Count::exact(metrics.failed_instances.saturating_sub(totals.cancelled.value));
    // Between two executions an instance stays for a moment only.
    totals.continued = bounded_count(
        connection,
        &format!(
            "SELECT count(*) FROM (SELECT 1 FROM instances WHERE listed_status = 'ContinuedAsNew' LIMIT {MOST})"
        ),
        BOUND,
    )?;
    let blocked = Blocked::count(connection, now)?;
    totals.blocked = Count::up_to(BOUND, blocked.with_row + blocked.without_row);
    let [looked_at, starts] = bounded_counts(
        connection,
        &format!(
            "SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (
                    SELECT 1 FROM instances i WHERE i.instance_id = q.instance_id))
             FROM (SELECT instance_id FROM orchestrator_queue WHERE class = 'start' LIMIT {MOST}) q"
        ),
    )?;
    totals.pending =
        Count { value: starts.saturating_sub(blocked.without_row).min(BOUND), is_exact: looked_at <= BOUND };
    let busy = Busy::count(connection, now)?;
    totals.running =
        Count { value: busy.least.saturating_sub(blocked.busy_with_row), is_exact: busy.is_exact() };
    let live = metrics.running_instances.saturating_sub(blocked.with_row);
    totals.waiting = match busy.most {
        _ if busy.is_exact() => Count::exact(live.saturating_sub(totals.running.value)),
        Some(most) => Count { value: live.saturating_sub(most), is_exact: false },
        None => Count { value: 0, is_exact: false },
    };
    Ok(totals)
}

/// Instances that cannot go on, as far as they were counted.
#[derive(Default)]
struct Blocked {
    with_row: u64,
    /// Blocked instances with a row that would otherwise count as running.
    busy_with_row: u64,
    /// Blocked instances that have not taken a turn yet.
    without_row: u64,
}

impl Blocked {
    /// Counts both kinds of trouble, each instance once, whether or not it has a row.
    fn count(connection: &Connection, now: i64) -> rusqlite::Result<Self> {
        let live_from = listing::live_from(now);
        let is_blocked = listing::is_blocked("t.instance_id", live_from);
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = t.instance_id),
                EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = t.instance_id AND s.blocked_at IS NULL
                    AND (s.ready_seq IS NOT NULL OR s.lock_token IS NOT NULL OR s.due_at <= {now}))
             FROM (SELECT instance_id FROM instance_schedule WHERE blocked_at IS NOT NULL
                UNION SELECT instance_id FROM obstacles WHERE next_try_at >= {live_from} LIMIT {MOST}) t
             WHERE {is_blocked} AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = t.instance_id
                AND i.listed_status IN ('Completed', 'Failed', 'Cancelled'))"
        );
        let mut blocked = Self::default();
        for (has_row, is_busy) in read_rows(connection, &sql, [], |row| Ok((row.get(0)?, row.get(1)?)))? {
            match has_row {
                true => blocked.with_row += 1,
                false => blocked.without_row += 1,
            }
            blocked.busy_with_row += u64::from(has_row && is_busy);
        }
        Ok(blocked)
    }
}

/// Running instances that have messages: those whose turn can begin, and those whose turn is under way.
struct Busy {
    least: u64,
    /// The most that they can be, if that is known.
    most: Option<u64>,
}

impl Busy {
    /// Counts by the schedule: the rows that are ready, and those that are due within the next few minutes, because leases end by
    /// then. It leaves the others out: timers are messages too, and a million instances may have nothing else.
    fn count(connection: &Connection, now: i64) -> rusqlite::Result<Self> {
        let soon = now.saturating_add(LONGEST_LEASE_MS);
        let [ready, ready_running] = bounded_counts(
            connection,
            &format!(
                "SELECT count(*), count(i.instance_id)
                 FROM (SELECT instance_id FROM instance_schedule WHERE ready_seq IS NOT NULL LIMIT {MOST}) s
                 LEFT JOIN instances i ON i.instance_id = s.instance_id AND i.listed_status = 'Running'"
            ),
        )?;
        let [due, due_running] = bounded_counts(
            connection,
            &format!(
                "SELECT count(*), count(i.instance_id)
                 FROM (SELECT instance_id, due_at, lock_token, ready_seq FROM instance_schedule
                    WHERE due_at <= {soon} ORDER BY due_at LIMIT {MOST}) s
                 LEFT JOIN instances i ON i.instance_id = s.instance_id AND i.listed_status = 'Running'
                    AND s.ready_seq IS NULL AND (s.lock_token IS NOT NULL OR s.due_at <= {now})"
            ),
        )?;
        let least = ready_running + due_running;
        if ready <= BOUND && due <= BOUND {
            return Ok(Self { least, most: Some(least) });
        }
        // Each row counts, whatever its instance is: that is quick enough for many more.
        const MANY: u64 = 100_000;
        let [many] = bounded_counts(
            connection,
            &format!(
                "SELECT (SELECT count(*) FROM (SELECT 1 FROM instance_schedule WHERE ready_seq IS NOT NULL LIMIT {MANY}))
                    + (SELECT count(*) FROM (SELECT 1 FROM instance_schedule WHERE due_at <= {soon} LIMIT {MANY}))"
            ),
        )?;
        Ok(Self { least, most: Some(many).filter(|many| *many < MANY) })
    }

    fn is_exact(&self) -> bool {
        self.most == Some(self.least)
    }
}

/// Reads the numbers of one row.
pub(super) fn bounded_counts<const N: usize>(
    connection: &Connection,
    sql: &str,
) -> rusqlite::Result<[u64; N]> {
    let counts = read_row(connection, sql, [], |row| {
        let mut counts = [0; N];
        for (column, count) in counts.iter_mut().enumerate() {
            *count = number(row, column)?;
        }
        Ok(counts)
    })?;
    Ok(counts.unwrap_or([0; N]))
}
