//! A disk for tests of power cuts.
//!
//! A [`Disk`] is a directory. SQLite databases in it, opened through the VFS [`VFS_NAME`], work as usual on real files;
//! the disk also knows which bytes were synced. [`Disk::cut_power`] writes the files that a machine would find after a
//! power cut into another directory: everything synced, and of the rest nothing, the first part, or torn pieces.
//!
//! [`Disk::fail_syncs`] makes syncs fail the way they do on Linux: the unwritten pages count as clean afterwards. They
//! are still in memory, where every reader gets them, but no later sync writes them, unless a program changes them
//! again. Each open handle reports the failure once.
//!
//! [`Disk::fail_calls`] makes any calls fail: with an error of the device, after half of a write, or for lack of room.
//!
//! ```
//! use powerloss_vfs::{Disk, Survivors, VFS_NAME};
//! # let (live, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
//! let disk = Disk::new(live.path());
//! let url = format!("file:{}?vfs={VFS_NAME}", live.path().join("a.db").display());
//! let connection = rusqlite::Connection::open(&url).unwrap();
//! let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;";
//! connection.execute_batch(&format!("{settings} CREATE TABLE t (n); INSERT INTO t VALUES (1);")).unwrap();
//! disk.cut_power(image.path(), Survivors::Nothing).unwrap();
//!
//! let found = rusqlite::Connection::open(image.path().join("a.db")).unwrap();
//! assert_eq!(found.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
//! ```

mod disk;
mod file;
mod vfs;

pub use disk::{CallFault, Disk, Survivors};
pub use vfs::VFS_NAME;
