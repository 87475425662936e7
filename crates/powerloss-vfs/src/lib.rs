//! A disk for tests of what survives a power cut.
//!
//! A [`Disk`] is a directory. SQLite databases that are opened in it through the VFS [`VFS_NAME`] work as usual, on real
//! files; besides, the disk knows which bytes were synced. [`Disk::cut_power`] writes what a machine would find after a
//! power cut into another directory: all that was synced, and of the rest nothing, the first part, or torn pieces of it.
//!
//! [`Disk::fail_syncs`] makes syncs fail the way they do on Linux: the pages that should have been written are clean
//! afterwards. They are still in memory, where everybody reads them, but no later sync writes them, unless somebody writes
//! to them again. Each handle that was open hears of the failure once.
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

pub use disk::{Disk, Survivors};
pub use vfs::VFS_NAME;
