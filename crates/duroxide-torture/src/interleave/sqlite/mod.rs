//! What the copies of the SQLite store's writer take from its module. The database is a list of what was committed.

#![allow(unreachable_pub, reason = "visible as in the library")]

pub mod connection;
pub mod scenario;
pub mod shared;
pub mod write_transaction;

pub use connection::statements;

use crate::interleave::providers::ProviderError;

mod inbox {
    include!(concat!(env!("OUT_DIR"), "/inbox.rs"));
}

mod jobs {
    include!(concat!(env!("OUT_DIR"), "/jobs.rs"));
}

mod writer {
    include!(concat!(env!("OUT_DIR"), "/writer.rs"));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Full,
    Normal,
}

#[derive(Debug)]
pub enum SqliteError {
    CannotOpen { path: String, source: std::io::Error },
}

mod error {
    use super::ProviderError;

    pub enum StoreError {
        Sqlite(rusqlite::Error),
        Closed,
    }

    impl StoreError {
        pub fn into_provider_error(self, operation: &str) -> ProviderError {
            ProviderError::permanent(operation, "the store is closed")
        }
    }

    pub fn classify(operation: &str, error: &rusqlite::Error) -> ProviderError {
        ProviderError::retryable(operation, error.to_string())
    }
}

mod disk {
    pub enum WriterFault {
        SkipsSyncs,
        SwallowsErrors,
    }
}

mod figures {
    pub fn tell(_: &super::connection::Connection, _: i64) {}
}

mod give_backs {
    use super::inbox::Inbox;
    use crate::interleave::sync::Arc;

    pub(super) struct GiveBacks(pub(super) Arc<Inbox>);
}

/// A log that never fails, and never grows too long.
mod log_keeper {
    use super::disk::WriterFault;
    use super::writer::Writing;

    pub struct LogKeeper;

    impl LogKeeper {
        pub fn is_lost(&self) -> bool {
            false
        }

        pub fn has_fault(&self, _: WriterFault) -> bool {
            false
        }

        pub fn log_bytes(&self) -> u64 {
            0
        }
    }

    impl Writing<'_, '_> {
        pub(super) fn make_sure_of_log(&mut self) -> rusqlite::Result<()> {
            Ok(())
        }

        pub(super) fn keep_log_short(&mut self) {}

        pub(super) fn note_failed_move(&mut self, _: &rusqlite::Error) {}

        pub(super) fn note_failure(&mut self, _: &rusqlite::Error) -> bool {
            false
        }

        pub(super) fn leave_doubtful_log(&self) {}
    }
}

/// Nobody else has the file open.
mod owner_file {
    pub struct DeadOwner;

    impl DeadOwner {
        pub fn remove(self) {}
    }
}

mod owners {
    use super::error::StoreError;
    use super::owner_file::DeadOwner;
    use super::write_transaction::WriteTransaction;

    pub struct Owners;

    impl Owners {
        pub fn are_alone(&self) -> bool {
            true
        }

        pub fn dead(&self, _: i64) -> Vec<(String, DeadOwner)> {
            Vec::new()
        }
    }

    pub fn release(_: &mut WriteTransaction<'_, '_>, _: &str, _: &DeadOwner) -> Result<(), StoreError> {
        Ok(())
    }
}

mod work_done {
    pub struct Committed {
        pub is_written: bool,
        pub is_synced: bool,
        pub is_settlement: bool,
        pub rows: u64,
    }

    pub fn forget() {}

    pub struct Ledger;

    impl Ledger {
        pub fn enter(&self, _: Committed) {}
    }
}
