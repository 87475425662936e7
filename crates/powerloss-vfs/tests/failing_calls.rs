//! Calls that fail when they are told to: SQLite hears of it, and the disk is well again afterwards.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use powerloss_vfs::{CallFault, Disk, Survivors, VFS_NAME};
use rusqlite::{Connection, ErrorCode};

fn database(disk: &Disk) -> Connection {
    let path = disk.directory().join("a.db");
    let connection = Connection::open(format!("file:{}?vfs={VFS_NAME}", path.display())).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (n);")
        .unwrap();
    connection
}

fn rows(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_commit_reports_the_call_that_failed_and_the_next_one_succeeds() {
    for (fault, code) in [
        (CallFault::IoError, ErrorCode::SystemIoFailure),
        (CallFault::ShortWrite, ErrorCode::SystemIoFailure),
        (CallFault::DiskFull, ErrorCode::DiskFull),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::new(directory.path());
        let connection = database(&disk);
        disk.fail_calls(0..1, fault);
        let refused = connection.execute("INSERT INTO t VALUES (1)", []).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(code), "{fault:?}: {refused}");
        connection.execute("INSERT INTO t VALUES (2)", []).unwrap();
        assert_eq!(rows(&connection), 1, "{fault:?}");

        let image = tempfile::tempdir().unwrap();
        disk.cut_power(image.path(), Survivors::Nothing).unwrap();
        assert_eq!(rows(&Connection::open(image.path().join("a.db")).unwrap()), 1, "{fault:?}");
    }
}

#[test]
fn calls_are_counted_and_none_fails_unless_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::new(directory.path());
    let connection = database(&disk);
    let before = disk.calls();
    disk.fail_calls(1_000..1_001, CallFault::IoError);
    connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
    assert!((before + 1..before + 1_000).contains(&disk.calls()));
}
