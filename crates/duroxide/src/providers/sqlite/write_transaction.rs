//! One transaction of the writer, as the jobs in it see it.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{Connection, Params, Row};

use super::error::StoreError;
use super::observed::BegunAndEnded;
use super::shared::{Shared, after, clamp_ms};
use super::statements::Statements;
use crate::model::{ExecutionStatus, InstanceState};

/// The effects of a commit beyond its rows: which signals to send, and by how much the totals move.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Whether any row changed.
    pub(super) rows_changed: bool,
    /// How many rows the statements changed, without those that triggers changed.
    pub(super) rows: u64,
    /// Instances that became ready and that the same transaction did not claim.
    pub(super) ready_instances: HashSet<String>,
    /// A claim stopped early: ready instances are left for which no signal was sent again.
    pub(super) instances_left: bool,
    /// Activities that became ready and that the same transaction did not claim.
    pub(super) ready_work: HashSet<i64>,
    /// Another change that may let a worker find an activity.
    pub(super) work_ready: bool,
    /// The earliest time at which the store must look again at one of the written rows of this queue.
    pub(super) instances_due: Due,
    pub(super) work_due: Due,
    /// Instances whose status, custom status or values changed.
    pub(super) changed_instances: Vec<String>,
    pub(super) totals: Totals,
    pub(super) rates: BegunAndEnded,
}

/// The earliest of some times.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Due(pub(super) Option<i64>);

impl Due {
    /// Takes another time into account.
    pub(super) fn note(&mut self, at: i64) {
        self.0 = Some(self.0.map_or(at, |due| due.min(at)));
    }
}

/// Changes of the store's totals.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) instances: i64,
    pub(super) executions: i64,
    pub(super) events: i64,
    pub(super) running: i64,
    pub(super) completed: i64,
    /// Failed executions, the cancelled ones included.
    pub(super) failed: i64,
    pub(super) cancelled: i64,
}

impl Totals {
    /// Adds (`1`) or removes (`-1`) an instance whose current execution has this status, and which is listed as that.
    pub(super) fn count_status(&mut self, status: &str, listed: &str, by: i64) {
        match ExecutionStatus::parse(status) {
            Some(ExecutionStatus::Running) => self.running += by,
            Some(ExecutionStatus::Completed) => self.completed += by,
            Some(ExecutionStatus::Failed) => self.failed += by,
            Some(ExecutionStatus::ContinuedAsNew) | None => {}
        }
        if listed == InstanceState::CANCELLED {
            self.cancelled += by;
        }
    }
}

/// A transaction that several jobs share.
pub(super) struct WriteTransaction<'c, 's> {
    statements: &'c Statements<'s>,
    pub(super) shared: &'c Shared,
    pub(super) effects: Effects,
    /// Set when a statement failed outside a savepoint: its writes cannot be told from those of other jobs, so the
    /// whole transaction must be rolled back.
    spoiled: Option<rusqlite::Error>,
    /// How many rows changed; a fetch that finds nothing changes none.
    changed: Cell<u64>,
}

impl<'c, 's> WriteTransaction<'c, 's> {
    pub(super) fn new(statements: &'c Statements<'s>, shared: &'c Shared) -> Self {
        Self { statements, shared, effects: Effects::default(), spoiled: None, changed: Cell::new(0) }
    }

    /// The time at which this is called: a lease begins when the writer takes it, not when the caller asked.
    pub(super) fn now_ms(&self) -> i64 {
        self.shared.now_ms()
    }

    /// The time `duration` from now.
    pub(super) fn in_ms(&self, duration: Duration) -> i64 {
        after(self.now_ms(), duration)
    }

    /// Returns the owner id for a lease that this handle takes or renews until then.
    pub(super) fn owner_until(&self, until: i64) -> Option<&'c str> {
        let owners = self.shared.owners.as_deref()?;
        owners.note_lease(until);
        Some(owners.id())
    }

    /// Tells whether an activity or a session is due. The writer knows, because it notices the writes of other
    /// processes when it begins.
    pub(super) fn has_due_work(&self, now: i64) -> bool {
        let known = self.shared.worker_signal.next_due_ms().map(clamp_ms);
        self.effects.work_due.0.into_iter().chain(known).any(|due| due <= now)
    }

    /// The connection, for reads that writer and readers share.
    pub(super) fn connection(&self) -> &'c Connection {
        self.statements.connection()
    }

    /// Runs a statement and returns how many rows it changed.
    pub(super) fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        let changed = self.statements.run(sql, |statement| statement.execute(params))?;
        self.changed.set(self.changed.get() + changed as u64);
        Ok(changed)
    }

    /// Runs a statement that changes no rows by itself, and counts none: SQLite would report the number of the statement before.
    fn control(&self, sql: &'static str) -> rusqlite::Result<()> {
        self.statements.run(sql, |statement| statement.execute([])).map(drop)
    }

    /// Notes that a row changed, if it did.
    pub(super) fn note_change(&self, has_changed: bool) {
        self.changed.set(self.changed.get() + u64::from(has_changed));
    }

    /// Changes one row and returns the values that the statement returns.
    pub(super) fn execute_returning<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.note_change(true);
        self.statements.run(sql, |statement| statement.query_row(params, read))
    }

    /// Reads one row, if there is one.
    pub(super) fn row<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.statements.run(sql, |statement| statement.query(params)?.next()?.map(read).transpose())
    }

    /// Reads all rows.
    pub(super) fn rows<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.statements.run(sql, |statement| statement.query_map(params, read)?.collect())
    }

    /// Reads rows until `read` has enough; tells whether it stopped before the last row.
    pub(super) fn rows_while<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Option<T>>,
    ) -> rusqlite::Result<(Vec<T>, bool)> {
        self.statements.run(sql, |statement| {
            let (mut rows, mut found) = (statement.query(params)?, Vec::new());
            while let Some(row) = rows.next()? {
                match read(row)? {
                    Some(value) => found.push(value),
                    None => return Ok((found, true)),
                }
            }
            Ok((found, false))
        })
    }

    /// Runs something that can fail half-way: then nothing of it remains.
    pub(super) fn atomically<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let before = std::mem::take(&mut self.effects);
        self.control("SAVEPOINT job")?;
        match work(self) {
            Ok(value) => {
                let new = std::mem::replace(&mut self.effects, before);
                self.effects.absorb(new);
                self.control("RELEASE job")?;
                Ok(value)
            }
            Err(error) => {
                self.effects = before;
                self.undo(error)
            }
        }
    }

    /// Undoes everything since the savepoint, and returns the job's result.
    fn undo<T>(&self, error: StoreError) -> Result<T, StoreError> {
        // On a full disk and the like, SQLite ends the whole transaction by itself, savepoint and all.
        if self.connection().is_autocommit() {
            return Err(error);
        }
        self.control("ROLLBACK TO job")?;
        self.control("RELEASE job")?;
        match error {
            // A check should have caught this constraint: it is the job's own failure, and undone. Any other error of
            // SQLite (disk, memory) concerns the whole transaction.
            StoreError::Sqlite(error) if is_constraint(&error) => {
                Err(StoreError::Refused(super::error::classify("commit", &error)))
            }
            other => Err(other),
        }
    }

    /// Notes that a statement failed half-way, so that the writer will not commit the transaction.
    pub(super) fn spoil(&mut self, error: &rusqlite::Error) {
        self.spoiled.get_or_insert_with(|| same_error(error));
    }

    /// Returns why the writer will not commit the transaction, if it will not.
    pub(super) fn failure(&self) -> Option<&rusqlite::Error> {
        self.spoiled.as_ref()
    }

    /// Tells whether the writer will roll the transaction back. No job may write in it any more: SQLite may have ended
    /// it, and would then commit each statement by itself.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled.is_some()
    }

    /// Commits, or rolls back and says why. SQLite neither writes nor syncs a commit that changes no page; if earlier
    /// commits need this one to be written, it changes a page.
    pub(super) fn commit(mut self, must_be_written: bool) -> (Effects, rusqlite::Result<()>) {
        let committed = match self.spoiled.take() {
            Some(error) => Err(error),
            None => self.write_totals(must_be_written).and_then(|()| {
                self.effects.rows = self.changed.get();
                self.effects.rows_changed = self.effects.rows > 0;
                self.control("COMMIT")
            }),
        };
        if committed.is_err() && !self.connection().is_autocommit() {
            // If even this fails, the connection is beyond help, and the next BEGIN reports it.
            let _ = self.connection().execute_batch("ROLLBACK");
        }
        (self.effects, committed)
    }

    fn write_totals(&self, must_be_written: bool) -> rusqlite::Result<()> {
        self.effects.rates.write(self)?;
        let totals = self.effects.totals;
        if totals == Totals::default() {
            return if must_be_written { self.touch() } else { Ok(()) };
        }
        self.execute(
            "UPDATE totals SET instances = instances + ?1, executions = executions + ?2, events = events + ?3,
                running_instances = running_instances + ?4, completed_instances = completed_instances + ?5,
                failed_instances = failed_instances + ?6, cancelled_instances = cancelled_instances + ?7",
            [
                totals.instances,
                totals.executions,
                totals.events,
                totals.running,
                totals.completed,
                totals.failed,
                totals.cancelled,
            ],
        )
        .map(drop)
    }

    /// Changes a page and changes it back. SQLite does not write a row that is the same as before, so one update that
    /// changes nothing would not do.
    fn touch(&self) -> rusqlite::Result<()> {
        self.execute("UPDATE totals SET instances = instances + 1", [])?;
        self.execute("UPDATE totals SET instances = instances - 1", []).map(drop)
    }
}

impl Effects {
    fn absorb(&mut self, new: Self) {
        self.ready_instances.extend(new.ready_instances);
        self.instances_left |= new.instances_left;
        self.ready_work.extend(new.ready_work);
        self.work_ready |= new.work_ready;
        new.instances_due.0.into_iter().for_each(|at| self.instances_due.note(at));
        new.work_due.0.into_iter().for_each(|at| self.work_due.note(at));
        self.changed_instances.extend(new.changed_instances);
        self.rates.add(new.rates);
        let (sum, add) = (&mut self.totals, new.totals);
        sum.instances += add.instances;
        sum.executions += add.executions;
        sum.events += add.events;
        sum.running += add.running;
        sum.completed += add.completed;
        sum.failed += add.failed;
        sum.cancelled += add.cancelled;
    }
}

/// The bytes of a stored text. In a damaged file they may not be UTF-8, and one such row must not fail a whole read.
pub(super) fn text_bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<u8>> {
    Ok(row.get_ref(column)?.as_bytes()?.to_vec())
}

/// A stored text for people to read, with replacements for bytes that are not UTF-8.
pub(super) fn shown_text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(column)?.as_bytes()?).into_owned())
}

/// The same for a text that may be missing.
pub(super) fn shown_optional(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let is_there = row.get_ref(column)? != rusqlite::types::ValueRef::Null;
    is_there.then(|| shown_text(row, column)).transpose()
}

/// The bytes of an id that is no longer UTF-8. Statements compare them as `CAST(?1 AS TEXT)`.
pub(super) type DamagedId = Vec<u8>;

/// A stored id. A damaged one must not fail other claims; the store can still find its rows by the bytes.
pub(super) fn stored_id(row: &Row<'_>, column: usize) -> rusqlite::Result<Result<String, DamagedId>> {
    Ok(String::from_utf8(text_bytes(row, column)?).map_err(std::string::FromUtf8Error::into_bytes))
}

/// A count, clamped to the range of the result.
pub(super) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u32> {
    Ok(u32::try_from(row.get::<_, i64>(column)?).unwrap_or(u32::MAX))
}

/// Reads one row, if there is one.
pub(super) fn read_row<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(read).transpose()
}

/// Reads all rows.
pub(super) fn read_rows<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(params, read)?.collect()
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Copies an error's code and text.
pub(super) fn same_error(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => rusqlite::Error::SqliteFailure(*code, text.clone()),
        other => rusqlite::Error::ToSqlConversionFailure(other.to_string().into()),
    }
}
