//! Keeps the log: the writer promises nothing on a log that may have lost data, and moves a long one into the database.
//!
//! The writer commits much without a sync, and relies on the next synced commit to make everything before it in the log
//! durable. That holds only as long as no sync fails. When a sync fails, the system reports it once and may mark the
//! unwritten pages as written: the next sync then succeeds without them, and after a power cut the log ends at the gap,
//! whatever the store has acknowledged since. So after a failure that may have been a sync, and when it takes over a
//! log from another process, which may have had such a failure, the writer writes all of the log again and syncs it
//! before it acknowledges anything as durable. Then it checks that two commits arrive at the end of the log: they do
//! not if the system has also lost pages from its memory.
//!
//! SQLite would move the log into the database by itself, but would not report a failure. So the writer does it.

use std::io;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{ErrorCode, ffi};

use super::connection::LogPages;
use super::disk::WriterFault;
use super::log::{Log, LogEnd, Salt};
use super::shared::Shared;
use super::write_transaction::WriteTransaction;
use super::writer::Writing;

const TARGET: &str = "duroxide::providers::sqlite";
/// How long the writer waits, at most, for the readers of a log that became too long.
const RESTART_PATIENCE: Duration = Duration::from_millis(50);

/// Whether a synced commit makes everything before it in the log durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// A synced commit makes everything before it durable.
    Given,
    /// A sync may have failed.
    Withheld,
    /// No commit ever will again: part of the log is lost, or part of what was moved out of it.
    Lost,
}

/// The log, and the writer's knowledge of it.
pub(super) struct LogKeeper {
    log: Log,
    trust: Trust,
    pages: LogPages,
    /// The log's length when the writer last moved it into the database, if SQLite has not begun it anew since.
    last_move: Option<(Salt, u64)>,
    /// Part of the log was moved into the database, where it is not synced yet.
    is_partly_moved: bool,
}

impl LogKeeper {
    pub(super) fn new(log: Log, pages: LogPages) -> Self {
        let trust = if log.is_blank() { Trust::Given } else { Trust::Withheld };
        Self { log, trust, pages, last_move: None, is_partly_moved: false }
    }

    /// Tells whether a test wants the writer to be wrong in this way.
    pub(super) fn has_fault(&self, fault: WriterFault) -> bool {
        self.log.has_fault(fault)
    }

    /// How large the log's file is.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Tells whether a synced commit makes all durable that is before it.
    fn is_trusted(&self) -> bool {
        self.trust == Trust::Given
    }

    /// Tells whether the store is unreliable until it is opened again.
    pub(super) fn is_lost(&self) -> bool {
        self.trust == Trust::Lost
    }

    /// Notes a failure of a commit, of a statement, or of moving the log. Tells whether it may have been a sync.
    fn note_failure(&mut self, error: &rusqlite::Error) -> bool {
        // A network file system may report the failure of an earlier write with any later one, also as a lack of room.
        let may_be_sync =
            matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull));
        if may_be_sync {
            Shared::METRICS.sync_failed();
        }
        if may_be_sync && self.trust == Trust::Given && !self.has_fault(WriterFault::TrustsNextSync) {
            tracing::error!(target: TARGET, %error, "the log has to be made safe before more is acknowledged");
            self.trust = Trust::Withheld;
        }
        may_be_sync
    }

    /// Notes that moving the log into the database has failed. If the pages moved before were not synced by then, no
    /// connection will move them again: SQLite takes them for done, until all connections have closed the database.
    fn note_failed_move(&mut self, error: &rusqlite::Error, are_others_there: bool) {
        self.note_failure(error);
        let is_sync = matches!(error, rusqlite::Error::SqliteFailure(error, _) if error.extended_code == ffi::SQLITE_IOERR_FSYNC);
        if is_sync && (self.is_partly_moved || are_others_there) {
            self.lose(error.to_string());
        }
    }

    fn lose(&mut self, reason: String) {
        tracing::error!(target: TARGET, reason, "{LOST}");
        self.trust = Trust::Lost;
    }

    /// Notes how far the log was moved into the database.
    fn note_move(&mut self, moved: Moved) {
        self.is_partly_moved = 0 < moved.frames_moved && moved.frames_moved < moved.frames;
        self.last_move = self.reaches(1).map(|salt| (salt, moved.frames));
    }

    /// Tells whether it is time to move the log. While readers keep it from beginning anew, not every commit tries
    /// again.
    fn is_long(&mut self) -> bool {
        let move_after = self.pages.move_after;
        match (self.reaches(move_after), self.last_move) {
            (None, _) => false,
            (Some(salt), Some((last, frames))) if salt == last => {
                self.reaches(frames + move_after.div_ceil(4)).is_some()
            }
            (Some(_), _) => true,
        }
    }

    fn is_too_long(&mut self) -> bool {
        self.reaches(self.pages.restart_after).is_some()
    }

    fn reaches(&mut self, frames: u64) -> Option<Salt> {
        // A failed look is no reason to stop; the next commit looks again.
        self.log.reaches(frames).ok().flatten()
    }
}

/// The message to the operator and every caller when the log is lost.
const LOST: &str = "a sync failed and committed data may be missing on the disk; close the store in every process and open it again";

/// How far a log was moved into the database.
#[derive(Debug, Clone, Copy)]
struct Moved {
    frames: u64,
    frames_moved: u64,
}

impl Writing<'_, '_> {
    /// Makes sure that a synced commit makes everything before it in the log durable.
    pub(super) fn make_sure_of_log(&mut self) -> rusqlite::Result<()> {
        match self.keeper.as_ref().map(|keeper| keeper.trust) {
            None | Some(Trust::Given) => return Ok(()),
            Some(Trust::Lost) => return Err(sync_error(LOST.into())),
            Some(Trust::Withheld) => {}
        }
        let written = self.write_log_again();
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        match written {
            Ok(true) => {
                keeper.trust = Trust::Given;
                tracing::info!(target: TARGET, "all that was committed is on the disk");
                return Ok(());
            }
            Ok(false) => keeper.lose("the log ends before its last commit".into()),
            Err(error) if is_damage(&error) => keeper.lose(error.to_string()),
            Err(error) => return Err(error),
        }
        Err(sync_error(LOST.into()))
    }

    /// Writes the log again and syncs it; tells whether later commits arrive at its end.
    fn write_log_again(&mut self) -> rusqlite::Result<bool> {
        self.begin(true)?;
        let written = self.with_log(|log| log.write_again());
        // Rolls back if the log could not be written: then nothing is committed and nothing changed.
        self.commit_something(written.err())?;
        let first = self.with_log(Log::end)?;
        self.begin(true)?;
        self.commit_something(None)?;
        let second = self.with_log(Log::end)?;
        Ok(is_longer(first.flatten(), second.flatten()))
    }

    fn commit_something(&mut self, failure: Option<rusqlite::Error>) -> rusqlite::Result<()> {
        let mut tx = WriteTransaction::new(self.statements, self.shared);
        if let Some(failure) = &failure {
            tx.spoil(failure);
        }
        tx.commit(true).1
    }

    fn with_log<T>(&mut self, look: impl FnOnce(&mut Log) -> io::Result<T>) -> rusqlite::Result<Option<T>> {
        self.keeper.as_mut().map(|keeper| look(&mut keeper.log).map_err(log_error)).transpose()
    }

    /// Moves the log into the database if it is long enough. If it became too long, because there was always a reader,
    /// waits for the readers.
    pub(super) fn keep_log_short(&mut self) {
        if !self.keeper.as_mut().is_some_and(LogKeeper::is_long) || self.make_sure_of_log().is_err() {
            return;
        }
        let is_too_long = self.keeper.as_mut().is_some_and(LogKeeper::is_too_long);
        let moved = match is_too_long {
            false => self.move_log("PRAGMA wal_checkpoint(PASSIVE)", Duration::ZERO),
            true => self.move_log("PRAGMA wal_checkpoint(RESTART)", RESTART_PATIENCE),
        };
        let are_others_there = self.are_others_there();
        let Some(keeper) = &mut self.keeper else { return };
        match moved {
            Ok(moved) => keeper.note_move(moved),
            Err(error) => keeper.note_failed_move(&error, are_others_there),
        }
    }

    fn move_log(&self, checkpoint: &str, patience: Duration) -> rusqlite::Result<Moved> {
        self.connection().busy_timeout(patience)?;
        let moved = self.connection().prepare_cached(checkpoint).and_then(|mut statement| {
            statement.query_row([], |row| {
                let frames = |column| row.get(column).map(|frames: i64| u64::try_from(frames).unwrap_or(0));
                Ok(Moved { frames: frames(1)?, frames_moved: frames(2)? })
            })
        });
        self.connection().busy_timeout(self.shared.busy_timeout)?;
        moved
    }

    /// Notes the failure of a job that moves the log.
    pub(super) fn note_failed_move(&mut self, error: &rusqlite::Error) {
        let are_others_there = self.are_others_there();
        if let Some(keeper) = &mut self.keeper {
            keeper.note_failed_move(error, are_others_there);
        }
    }

    /// Notes the failure of a transaction; tells whether it may have been a sync.
    pub(super) fn note_failure(&mut self, error: &rusqlite::Error) -> bool {
        self.keeper.as_mut().is_some_and(|keeper| keeper.note_failure(error))
    }

    fn are_others_there(&self) -> bool {
        self.shared.owners.as_ref().is_none_or(|owners| !owners.are_alone())
    }

    /// Leaves an untrusted log unchanged: the process that opens the database next makes sure of it.
    pub(super) fn leave_doubtful_log(&self) {
        if self.keeper.as_ref().is_some_and(|keeper| !keeper.is_trusted()) {
            // If this fails, SQLite moves the log into the database, as it does by default.
            let _ = self.connection().set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

/// Tells whether a commit has arrived at the end of the log. If SQLite has begun the log anew meanwhile, all of the old
/// one is in the database.
fn is_longer(before: Option<LogEnd>, after: Option<LogEnd>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => before.salt != after.salt || after.frames > before.frames,
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn log_error(error: io::Error) -> rusqlite::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), Some(error.to_string()))
        }
        _ => sync_error(format!("the log cannot be made safe: {error}")),
    }
}

fn sync_error(message: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), Some(message))
}
