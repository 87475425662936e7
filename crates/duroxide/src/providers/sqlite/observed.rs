//! What runtimes report: that they are alive, what they could not do; and how many instances begin and end.

use rusqlite::{Connection, params};

use super::reads::number;
use super::write_transaction::{WriteTransaction, count, read_rows, shown_optional, shown_text, text_bytes};
use crate::model::{Obstacle, ObstacleKind, WorkerInfo};
use crate::providers::inspection::listing;
use crate::providers::{MinuteRates, WorkerReport};

/// After how long without a report a worker's row is removed. Long before that it no longer counts as alive.
const REMOVED_AFTER_MS: i64 = 10 * 60 * 1_000;

/// Takes a heartbeat.
pub(super) fn report(tx: &mut WriteTransaction<'_, '_>, report: &WorkerReport) -> rusqlite::Result<()> {
    let now = tx.now_ms();
    let mut worker = report.worker.clone();
    worker.last_seen_ms = u64::try_from(now).unwrap_or(0);
    let info = serde_json::to_string(&worker).unwrap_or_default();
    tx.execute(
        "INSERT INTO workers (worker_id, last_seen_at, info) VALUES (?1, ?2, ?3)
         ON CONFLICT (worker_id) DO UPDATE SET last_seen_at = ?2, info = ?3",
        params![worker.id, now, info],
    )?;
    tx.execute("DELETE FROM workers WHERE last_seen_at < ?1", [now - REMOVED_AFTER_MS])?;
    tx.execute("DELETE FROM obstacles WHERE next_try_at < ?1", [listing::live_from(now)])?;
    tx.execute(
        "DELETE FROM minute_rates WHERE minute <= ?1",
        [now / MINUTE_MS - i64::from(MinuteRates::KEPT_MINUTES)],
    )?;
    for obstacle in &report.obstacles {
        note_obstacle(tx, obstacle)?;
    }
    Ok(())
}

fn note_obstacle(tx: &mut WriteTransaction<'_, '_>, obstacle: &Obstacle) -> rusqlite::Result<()> {
    let clamp = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    tx.execute(
        "INSERT INTO obstacles (instance_id, execution_id, activity_id, kind, name, version, reason, attempts, since_at,
            next_try_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (instance_id, execution_id, activity_id) DO UPDATE SET kind = ?4, name = ?5, version = ?6,
            reason = ?7, attempts = ?8, next_try_at = ?10",
        params![
            obstacle.instance,
            clamp(obstacle.execution_id),
            clamp(obstacle.activity_id.unwrap_or_default()),
            obstacle.kind.as_str(),
            obstacle.name,
            obstacle.version,
            obstacle.reason,
            obstacle.attempts,
            clamp(obstacle.since_ms),
            clamp(obstacle.next_try_ms),
        ],
    )?;
    Ok(())
}

/// Removes a runtime that ends.
pub(super) fn retire(tx: &mut WriteTransaction<'_, '_>, worker_id: &str) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM workers WHERE worker_id = ?1", [worker_id]).map(drop)
}

pub(super) fn workers(connection: &Connection, now: i64) -> rusqlite::Result<Vec<WorkerInfo>> {
    let rows = read_rows(connection, "SELECT info, last_seen_at FROM workers", [], |row| {
        Ok((text_bytes(row, 0)?, number(row, 1)?))
    })?;
    let read = |(info, last_seen_ms): (Vec<u8>, u64)| {
        let mut worker: WorkerInfo = serde_json::from_slice(&info).ok()?;
        worker.last_seen_ms = last_seen_ms;
        worker.is_alive(u64::try_from(now).unwrap_or(0)).then_some(worker)
    };
    let mut workers: Vec<WorkerInfo> = rows.into_iter().filter_map(read).collect();
    workers.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
    Ok(workers)
}

pub(super) fn obstacles(
    connection: &Connection,
    instance: Option<&str>,
    limit: usize,
    now: i64,
) -> rusqlite::Result<Vec<Obstacle>> {
    let sql = match instance {
        Some(_) => {
            "SELECT instance_id, execution_id, activity_id, kind, name, version, reason, attempts, since_at, next_try_at
             FROM obstacles WHERE instance_id = ?2 AND next_try_at >= ?1 ORDER BY since_at LIMIT ?3"
        }
        None => {
            "SELECT instance_id, execution_id, activity_id, kind, name, version, reason, attempts, since_at, next_try_at
             FROM obstacles WHERE ?2 IS NULL AND next_try_at >= ?1 ORDER BY since_at, instance_id LIMIT ?3"
        }
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    read_rows(connection, sql, params![listing::live_from(now), instance, limit], |row| {
        let activity_id = Some(number(row, 2)?).filter(|id| *id > 0);
        let kind = ObstacleKind::parse(&shown_text(row, 3)?);
        let (name, reason) = (shown_text(row, 4)?, shown_text(row, 6)?);
        let mut obstacle =
            Obstacle::new(shown_text(row, 0)?, number(row, 1)?, activity_id, kind, name, reason);
        obstacle.version = shown_optional(row, 5)?;
        obstacle.attempts = count(row, 7)?;
        obstacle.since_ms = number(row, 8)?;
        obstacle.next_try_ms = number(row, 9)?;
        Ok(obstacle)
    })
}

/// A minute in milliseconds.
const MINUTE_MS: i64 = 60_000;

/// How many instances a transaction began and ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct BegunAndEnded {
    pub(super) started: i64,
    pub(super) completed: i64,
    pub(super) failed: i64,
}

impl BegunAndEnded {
    /// Counts an instance that has got this status.
    pub(super) fn count_end(&mut self, status: &str) {
        match crate::model::ExecutionStatus::parse(status) {
            Some(crate::model::ExecutionStatus::Completed) => self.completed += 1,
            Some(crate::model::ExecutionStatus::Failed) => self.failed += 1,
            _ => {}
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.started += other.started;
        self.completed += other.completed;
        self.failed += other.failed;
    }

    /// Adds them to the present minute.
    pub(super) fn write(self, tx: &WriteTransaction<'_, '_>) -> rusqlite::Result<()> {
        if self == Self::default() {
            return Ok(());
        }
        tx.execute(
            "INSERT INTO minute_rates (minute, started, completed, failed) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (minute) DO UPDATE SET started = started + ?2, completed = completed + ?3, failed = failed + ?4",
            [tx.now_ms() / MINUTE_MS, self.started, self.completed, self.failed],
        )
        .map(drop)
    }
}

/// Reads the rates of the last minutes. A minute without a row had none.
pub(super) fn rates(connection: &Connection, minutes: u32, now: i64) -> rusqlite::Result<Vec<MinuteRates>> {
    let minutes = i64::from(minutes.min(MinuteRates::KEPT_MINUTES));
    let this = now / MINUTE_MS;
    let first = this + 1 - minutes;
    let stored = read_rows(
        connection,
        "SELECT minute, started, completed, failed FROM minute_rates WHERE minute >= ?1 AND minute <= ?2 ORDER BY minute",
        [first, this],
        |row| Ok((row.get::<_, i64>(0)?, [number(row, 1)?, number(row, 2)?, number(row, 3)?])),
    )?;
    let of = |minute: i64| {
        let [started, completed, failed] = stored
            .binary_search_by_key(&minute, |(stored, _)| *stored)
            .map_or([0; 3], |at| stored[at].1);
        MinuteRates::of(u64::try_from(minute * MINUTE_MS).unwrap_or(0), started, completed, failed)
    };
    Ok((first..=this).map(of).collect())
}
