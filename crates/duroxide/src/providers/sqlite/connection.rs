//! Connections with the settings that the store relies on; each setting is read back.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::disk::Disk;
use super::url::Location;
use super::{Durability, SqliteError};
use crate::model::clock;

/// The size that SQLite cuts the log back to after a checkpoint.
const LOG_SIZE_LIMIT_BYTES: i64 = 64 * 1024 * 1024;
/// Memory for the pages of one connection, in KiB (negative by SQLite's convention).
const CACHE_KIB: i64 = -16 * 1024;
/// More than the number of our statements.
const STATEMENT_CACHE: usize = 160;

/// How long the write-ahead log may become, in pages of 4 KiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogPages {
    /// The length at which the writer moves it into the database. More than SQLite's 1,000, because each move syncs
    /// both files.
    pub(super) move_after: u64,
    /// The length at which the writer waits for the readers of the log, so that it can begin the log anew.
    pub(super) restart_after: u64,
}

impl Default for LogPages {
    fn default() -> Self {
        Self { move_after: 4_000, restart_after: 16_000 }
    }
}

/// Creates the file if the URL asks for it and it is missing, readable by its owner only.
pub(super) fn create_file(location: &Location) -> Result<(), SqliteError> {
    let Location::File { path, create } = location else { return Ok(()) };
    if path.exists() {
        return Ok(());
    }
    if !create {
        return Err(SqliteError::NotFound { path: path.clone() });
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        // Another process made it in the meantime, which is as good.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(SqliteError::CannotOpen { path: path.clone(), source }),
    }
}

/// Opens the connection that writes.
pub(super) fn open_writer(
    location: &Location,
    busy_timeout: Duration,
    disk: &Disk,
) -> Result<Connection, SqliteError> {
    let connection = match location {
        Location::Memory => Connection::open_in_memory().map_err(SqliteError::sqlite("open in memory"))?,
        Location::File { path, .. } => {
            open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX, disk)?
        }
    };
    connection.busy_timeout(busy_timeout).map_err(SqliteError::sqlite("set the busy timeout"))?;
    harden(&connection)?;
    // The writer moves the log into the database: SQLite would not report a failure.
    set(&connection, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

/// Sets the journal and the sizes of the writing connection, once the database is known to be ours.
pub(super) fn configure_writer(
    connection: &Connection,
    location: &Location,
    busy_timeout: Duration,
    durability: Durability,
) -> Result<(), SqliteError> {
    match location {
        Location::Memory => set(connection, "journal_mode", "memory")?,
        Location::File { path, .. } => {
            start_log(connection, busy_timeout).map_err(|error| read_only_hint(error, path))?;
            set(connection, "journal_size_limit", LOG_SIZE_LIMIT_BYTES)?;
            // Apple's systems sync only to the drive's memory, which a power cut empties, unless the program asks for
            // more.
            set(connection, "fullfsync", i64::from(durability == Durability::Full))?;
            // The log begins anew after a move: if the database were not on the disk by then, a power cut would damage
            // it.
            set(connection, "checkpoint_fullfsync", 1)?;
        }
    }
    check_sync_levels(connection)?;
    set(connection, "cache_size", CACHE_KIB)?;
    set(connection, "temp_store", 2)
}

/// Switches to a write-ahead log. SQLite does not wait for other processes that open the same file at the same time, so
/// this does.
fn start_log(connection: &Connection, busy_timeout: Duration) -> Result<(), SqliteError> {
    const STEP: Duration = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    loop {
        match set(connection, "journal_mode", "wal") {
            Err(SqliteError::Sqlite { source, .. })
                if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && waited < busy_timeout =>
            {
                clock::block_thread(STEP);
                waited += STEP;
            }
            done => return done,
        }
    }
}

/// Opens a connection that only reads. The file exists and is in write-ahead mode.
pub(super) fn open_reader(
    path: &Path,
    busy_timeout: Duration,
    disk: &Disk,
) -> Result<Connection, SqliteError> {
    let connection = open_copier(path, busy_timeout, disk)?;
    set(&connection, "query_only", 1)?;
    Ok(connection)
}

/// Opens a connection that reads this file and may write another.
pub(super) fn open_copier(
    path: &Path,
    busy_timeout: Duration,
    disk: &Disk,
) -> Result<Connection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open_file(path, flags, disk)?;
    connection.busy_timeout(busy_timeout).map_err(SqliteError::sqlite("set the busy timeout"))?;
    harden(&connection)?;
    set(&connection, "cache_size", CACHE_KIB)?;
    Ok(connection)
}

/// When SQLite syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncLevel {
    /// Never: the database is in memory.
    Off = 0,
    /// When the writer moves the log into the database.
    Normal = 1,
    /// At every commit.
    Full = 2,
}

/// Checks once that SQLite accepts every level.
pub(super) fn check_sync_levels(connection: &Connection) -> Result<(), SqliteError> {
    [SyncLevel::Off, SyncLevel::Normal, SyncLevel::Full]
        .into_iter()
        .try_for_each(|level| set(connection, "synchronous", level as i64))
}

/// Changes the level for the next commits.
pub(super) fn set_sync_level(connection: &Connection, level: SyncLevel) -> rusqlite::Result<()> {
    connection.execute_batch(match level {
        SyncLevel::Off => "PRAGMA synchronous = 0",
        SyncLevel::Normal => "PRAGMA synchronous = 1",
        SyncLevel::Full => "PRAGMA synchronous = 2",
    })
}

fn open_file(path: &Path, flags: OpenFlags, disk: &Disk) -> Result<Connection, SqliteError> {
    let opened = match disk {
        None => Connection::open_with_flags(path, flags),
        Some(disk) => {
            let url = format!("file:{}?vfs={}", path.display(), disk.vfs());
            Connection::open_with_flags(url, flags | OpenFlags::SQLITE_OPEN_URI)
        }
    };
    opened.map_err(|source| SqliteError::CannotOpen {
        path: path.to_path_buf(),
        source: std::io::Error::other(source),
    })
}

/// Makes SQLite treat the file as if an attacker had written it.
fn harden(connection: &Connection) -> Result<(), SqliteError> {
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)
        .map_err(SqliteError::sqlite("set defensive mode"))?;
    // Makes plans independent of bound values: otherwise SQLite prepares most statements again for each run.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(SqliteError::sqlite("keep query plans stable"))?;
    set(connection, "trusted_schema", 0)?;
    set(connection, "cell_size_check", 1)?;
    connection.execute_batch("PRAGMA mmap_size = 0").map_err(SqliteError::sqlite("set mmap_size"))
}

fn set<V: ToString>(connection: &Connection, setting: &'static str, wanted: V) -> Result<(), SqliteError> {
    let wanted = wanted.to_string();
    // Some pragmas answer with the new value and some do not; the answer that counts is the one read back.
    let change = || -> rusqlite::Result<()> {
        let mut statement = connection.prepare(&format!("PRAGMA {setting} = {wanted}"))?;
        let mut rows = statement.query([])?;
        // To its end: SQLite switches to a log after its answer, and says only then that the switch has failed.
        while rows.next()?.is_some() {}
        Ok(())
    };
    change().map_err(SqliteError::sqlite("set a pragma"))?;
    let found = connection
        .pragma_query_value(None, setting, |row| {
            let value: rusqlite::types::Value = row.get(0)?;
            Ok(match value {
                rusqlite::types::Value::Integer(number) => number.to_string(),
                rusqlite::types::Value::Text(text) => text,
                other => format!("{other:?}"),
            })
        })
        .map_err(SqliteError::sqlite("read a pragma back"))?;
    if found.eq_ignore_ascii_case(&wanted) {
        Ok(())
    } else {
        Err(SqliteError::SettingRefused { setting, wanted, found })
    }
}

/// SQLite reports a directory without write permission as a strange journal mode; this says what it means.
fn read_only_hint(error: SqliteError, path: &Path) -> SqliteError {
    match error {
        SqliteError::SettingRefused { .. } => SqliteError::ReadOnly {
            path: path.to_path_buf(),
            reason: "write-ahead logging is not possible here; the file and its directory must be writable"
                .into(),
        },
        SqliteError::Sqlite { source, .. }
            if matches!(
                source.sqlite_error_code(),
                Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::CannotOpen)
            ) =>
        {
            SqliteError::ReadOnly { path: path.to_path_buf(), reason: source.to_string() }
        }
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use super::*;

    #[test]
    fn a_sync_goes_through_to_the_disk_where_that_has_to_be_asked_for() {
        for (durability, at_commit) in [(Durability::Full, 1), (Durability::Normal, 0)] {
            let directory = tempfile::tempdir().unwrap();
            let location = Location::File { path: directory.path().join("a.db"), create: true };
            create_file(&location).unwrap();
            let connection = open_writer(&location, Duration::ZERO, &None).unwrap();
            configure_writer(&connection, &location, Duration::ZERO, durability).unwrap();
            let setting =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(setting("fullfsync"), at_commit);
            assert_eq!(setting("checkpoint_fullfsync"), 1);
            assert_eq!(setting("wal_autocheckpoint"), 0, "the writer moves the log");
        }
    }
}
