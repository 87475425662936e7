//! The errors of a SQLite store: when it opens, and while it works.

use std::path::PathBuf;

use rusqlite::ErrorCode;

use crate::providers::ProviderError;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The URL is not one of the forms that [`SqliteProvider::new`](super::SqliteProvider::new) takes.
    #[error("invalid SQLite URL '{url}': {reason}")]
    InvalidUrl {
        /// The URL as the caller gave it.
        url: String,
        /// The fault in it.
        reason: String,
    },
    /// The file does not exist and the URL does not ask to create it.
    #[error(
        "unable to open database file (code 14): {path} does not exist; add ?mode=rwc to the URL to create it",
        path = path.display()
    )]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be opened or created.
    #[error("unable to open database file (code 14): {path}: {source}", path = path.display())]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The store must write to the file and may not.
    #[error("{path} cannot be written: {reason}", path = path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The file is a database, but not one of ours; the store did not touch it.
    #[error(
        "{path} holds the tables of another application ({tables}); give duroxide a file of its own",
        path = path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Some of its tables.
        tables: String,
    },
    /// A newer version of this crate wrote the file; the store did not touch it.
    #[error(
        "{path} has schema version {found}, this build knows versions up to {known}; upgrade duroxide to open it",
        path = path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: i64,
        /// The newest version that this build knows.
        known: i64,
    },
    /// The file lacks tables of this version, and the store was told not to migrate it
    /// ([`Migrations::Verify`](super::Migrations::Verify)); the store did not touch it.
    #[error(
        "{path} has schema version {found}, and this build needs version {known}",
        path = path.display()
    )]
    NotMigrated {
        /// The file.
        path: PathBuf,
        /// The version in the file; 0 if it has no tables of ours, or those of the published crate.
        found: i64,
        /// The version that this build needs.
        known: i64,
    },
    /// SQLite did not take a setting that durability or speed relies on.
    #[error("SQLite did not accept {setting} = {wanted}; it reports {found}")]
    SettingRefused {
        /// The pragma.
        setting: &'static str,
        /// The value that the store set.
        wanted: String,
        /// The value that SQLite reports.
        found: String,
    },
    /// SQLite itself reported an error.
    #[error("{action}: {source}")]
    Sqlite {
        /// The step that failed.
        action: &'static str,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The store was closed, or its writer thread is gone.
    #[error("the store is closed")]
    Closed,
}

impl SqliteError {
    pub(super) fn sqlite(action: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| Self::Sqlite { action, source }
    }
}

/// Why an operation on an open store failed, before the error gets the name of the called method.
#[derive(Debug)]
pub(super) enum StoreError {
    /// The contract forbids the operation.
    Refused(ProviderError),
    /// SQLite reported an error.
    Sqlite(rusqlite::Error),
    /// The instance of a step is not what the caller holds. `steps` answers that by itself.
    StepConflict,
    /// The writer is gone.
    Closed,
}

impl From<ProviderError> for StoreError {
    fn from(refusal: ProviderError) -> Self {
        Self::Refused(refusal)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl StoreError {
    /// Translates the error for the storage contract. SQLite's code decides whether it may go away, never its text.
    pub(super) fn into_provider_error(self, operation: &str) -> ProviderError {
        match self {
            Self::Refused(refusal) => refusal,
            Self::StepConflict => ProviderError::permanent(operation, "the instance has changed"),
            Self::Closed => ProviderError::permanent(operation, "the store is closed"),
            Self::Sqlite(error) => classify(operation, &error),
        }
    }
}

pub(super) fn classify(operation: &str, error: &rusqlite::Error) -> ProviderError {
    match error.sqlite_error_code() {
        // Processes contend for the locks of the log (`SQLITE_PROTOCOL`): that passes, as with any other lock.
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            ProviderError::retryable(operation, format!("Database locked: {error}"))
        }
        Some(ErrorCode::DiskFull) => ProviderError::retryable(operation, format!("Disk full: {error}")),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory) => {
            ProviderError::retryable(operation, format!("I/O error: {error}"))
        }
        Some(ErrorCode::ConstraintViolation) => {
            ProviderError::permanent(operation, format!("Constraint violation: {error}"))
        }
        // A mount that is read-only after an error of the disk, or a log that cannot be recovered now, can be mended.
        Some(ErrorCode::ReadOnly) => {
            ProviderError::retryable(operation, format!("Database is read-only: {error}"))
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            ProviderError::permanent(operation, format!("Database is damaged: {error}"))
        }
        // SQLite's other codes, and errors of the binding, come from mistakes in a statement or in stored types.
        _ => ProviderError::permanent(operation, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contended_locks_and_read_only_mounts_may_pass_and_damage_does_not() {
        let classified = |code| {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            classify("renew_work_item_lock", &error).retryable
        };
        assert!(classified(rusqlite::ffi::SQLITE_PROTOCOL));
        for read_only in [
            rusqlite::ffi::SQLITE_READONLY,
            rusqlite::ffi::SQLITE_READONLY_RECOVERY,
            rusqlite::ffi::SQLITE_READONLY_DBMOVED,
        ] {
            assert!(classified(read_only));
        }
        assert!(!classified(rusqlite::ffi::SQLITE_CORRUPT));
    }
}
