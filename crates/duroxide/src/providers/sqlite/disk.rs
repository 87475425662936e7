//! The disk under a store's file: the machine's, or one that a test puts in its place.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// A disk that a test controls, to cut the power or to make syncs fail.
pub trait DiskUnderTest: Send + Sync {
    /// The VFS through which SQLite uses this disk.
    fn vfs(&self) -> &str;

    /// Writes to a file past SQLite.
    ///
    /// # Errors
    /// The error that the operating system would give.
    fn write(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Syncs a file past SQLite.
    ///
    /// # Errors
    /// The error that the operating system would give.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// What is wrong with the writer on this disk, for tests that must notice it.
    fn writer_fault(&self) -> Option<WriterFault> {
        None
    }
}

/// A writer that is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterFault {
    /// Acknowledges commits as durable that it has not synced.
    SkipsSyncs,
    /// Takes a sync that succeeds for one that covers what an earlier one has failed to sync.
    TrustsNextSync,
    /// Acknowledges what it could not commit.
    SwallowsErrors,
}

/// The disk of a test, if there is one; otherwise the machine's.
pub(super) type Disk = Option<Arc<dyn DiskUnderTest>>;
