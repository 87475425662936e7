//! What can go wrong with a PostgreSQL store: when it is opened, and while it works.
//!
//! No text here ever holds a URL or a password.

use duroxide::providers::ProviderError;
use tokio_postgres::error::SqlState;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PgError {
    /// The URL cannot be used. It is not repeated here, for it may hold a password.
    #[error("invalid database URL: {reason}")]
    InvalidUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// The schema's name is not a plain identifier.
    #[error("invalid schema name '{name}': {reason}")]
    InvalidSchema {
        /// The name as it was given.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The server cannot be reached for now, or there was no token to log in with.
    #[error("cannot connect to PostgreSQL: {reason}")]
    Connect {
        /// What was said.
        reason: String,
    },
    /// The server does not let us in: a wrong password, no such user or database.
    #[error("PostgreSQL refuses the login: {reason}")]
    LoginRefused {
        /// What was said.
        reason: String,
    },
    /// The connection cannot be encrypted, or the server could not prove that it is the one that was asked for.
    #[error("cannot set up TLS: {reason}")]
    Tls {
        /// What is wrong.
        reason: String,
    },
    /// The server is older than 14 or its text is not Unicode.
    #[error("this PostgreSQL server cannot be used: {reason}")]
    Unsupported {
        /// What is missing.
        reason: String,
    },
    /// The schema was changed by a newer version of this crate, beside which this build may not run; it was not touched.
    #[error(
        "schema '{schema}' is at migration {found} and can be used by builds that know migration {needed}, this one knows \
         those up to {known}; deploy {deploy}"
    )]
    NewerSchema {
        /// The schema.
        schema: String,
        /// The newest migration in the schema's ledger.
        found: i64,
        /// The newest that this build knows.
        known: i64,
        /// The newest that a build must know at least.
        needed: i64,
        /// The version of the crate that knows it.
        deploy: String,
    },
    /// The schema's ledger of migrations does not agree with this build; it was not touched.
    #[error("schema '{schema}' cannot be used: {reason}")]
    AlteredSchema {
        /// The schema.
        schema: String,
        /// Where they differ.
        reason: String,
    },
    /// The schema lacks migrations and the store was told not to apply any.
    #[error("schema '{schema}' lacks migrations from {first} on, and this process may not apply them")]
    NotMigrated {
        /// The schema.
        schema: String,
        /// The first one that is missing.
        first: i64,
    },
    /// Another process was migrating the schema, and did not come to an end for as long as this one was ready to wait.
    #[error("schema '{schema}' is being migrated or locked, and was not free after {waited_ms} ms: {holder}")]
    MigrationInProgress {
        /// The schema.
        schema: String,
        /// How long this process has waited.
        waited_ms: u64,
        /// Who holds the lock, and what to do about it.
        holder: String,
    },
    /// The role may not do what the store needs.
    #[error("role '{role}' lacks in schema '{schema}': {lacks}; {remedy}")]
    MissingGrants {
        /// The schema.
        schema: String,
        /// The role that the store has logged in as.
        role: String,
        /// The privileges that are missing, each with its object.
        lacks: String,
        /// What to do about it: the statements to run.
        remedy: String,
    },
    /// The server refused a statement while the store was being opened.
    #[error("{action}: {reason}")]
    Database {
        /// What was being done.
        action: &'static str,
        /// What the server said.
        reason: String,
        /// The server's code for it (SQLSTATE), if it gave one.
        code: Option<String>,
        /// Whether it may go right another time.
        retryable: bool,
    },
}

impl PgError {
    /// Tells whether opening the store may go right another time, without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::MigrationInProgress { .. } | Self::Database { retryable: true, .. }
        )
    }

    pub(crate) fn database(action: &'static str) -> impl FnOnce(QueryError) -> Self {
        move |error| {
            let code = error.code().cloned();
            // Nobody has asked for anything yet, so whatever has to be mended is said at once.
            let (kind, reason) = match error {
                QueryError::Driver(error) => (kind_of(&error), describe(&error)),
                QueryError::NotOurs => {
                    let failure = Failure::from(error);
                    (failure.kind, failure.message)
                }
            };
            let retryable = kind != FailureKind::Permanent;
            Self::Database { action, reason, code: code.map(|code| code.code().to_string()), retryable }
        }
    }

    /// The server has not answered in time.
    pub(crate) fn silence() -> Self {
        Self::Connect { reason: "PostgreSQL does not answer".into() }
    }
}

/// Why an operation on an open store failed, before it is known by the name of the method that was called.
#[derive(Debug, Clone)]
pub(crate) enum StoreError {
    /// The contract says no.
    Refused(ProviderError),
    /// The database says no, or says nothing.
    Database(Failure),
    /// The store is gone.
    Closed,
}

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum QueryError {
    /// What the driver says.
    Driver(tokio_postgres::Error),
    /// It was not in the session that was set up for it, and did nothing.
    NotOurs,
}

impl QueryError {
    /// The server's code, if it gave one.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Driver(error) => error.code(),
            Self::NotOurs => None,
        }
    }
}

impl From<tokio_postgres::Error> for QueryError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

/// A failure of the database.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    /// The server's code, if it was the server that said something.
    pub(crate) code: Option<SqlState>,
}

/// What a failure asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The same statement may succeed on the same connection: a deadlock, a lock that was not to be had.
    Transient,
    /// It may succeed on another connection: this one is lost, or leads to a server that cannot write.
    Lost,
    /// It will not succeed.
    Permanent,
}

impl From<ProviderError> for StoreError {
    fn from(refusal: ProviderError) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        Self::Database(failure)
    }
}

impl StoreError {
    pub(crate) fn into_provider_error(self, operation: &str) -> ProviderError {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Closed => ProviderError::permanent(operation, "the store is closed"),
            Self::Database(failure) => match failure.kind {
                FailureKind::Permanent => ProviderError::permanent(operation, failure.message),
                FailureKind::Transient | FailureKind::Lost => {
                    ProviderError::retryable(operation, failure.message)
                }
            },
        }
    }
}

impl Failure {
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Lost, message: message.into(), code: None }
    }

    pub(crate) fn may_pass(&self) -> bool {
        self.kind != FailureKind::Permanent
    }

    /// Tells whether it may be about one of the rows that a statement reads, so that the others can be had without it.
    pub(crate) fn may_be_about_a_row(&self) -> bool {
        !self.may_pass() || self.code == Some(SqlState::OUT_OF_MEMORY) || self.is_damage()
    }

    /// Tells whether the server met data or an index that is damaged. Trying the same again does not help, but the request
    /// is not to blame.
    pub(crate) fn is_damage(&self) -> bool {
        self.code.as_ref().is_some_and(|code| code.code().starts_with("XX"))
    }
}

impl From<tokio_postgres::Error> for Failure {
    /// Of an open store, only what is about the request itself will not pass. A privilege, a table or a login that was there
    /// and is not now is for an operator to mend, and no reason to fail what somebody asked for.
    fn from(error: tokio_postgres::Error) -> Self {
        let kind = match (kind_of(&error), error.code()) {
            (FailureKind::Permanent, Some(code)) if !is_about_the_request(code) => FailureKind::Transient,
            (kind, _) => kind,
        };
        Self { kind, message: describe(&error), code: error.code().cloned() }
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Driver(error) => error.into(),
            QueryError::NotOurs => {
                Self::lost("the session belongs to somebody else; a pooler stands in between")
            }
        }
    }
}

/// Tells whether a code speaks of what was sent: its data, its constraints, its size, or a trigger that refuses it.
fn is_about_the_request(code: &SqlState) -> bool {
    matches!(code.code().get(..2), Some("21" | "22" | "23" | "44" | "54" | "P0"))
}

/// Decides by the server's code, never by its text.
pub(crate) fn kind_of(error: &tokio_postgres::Error) -> FailureKind {
    let Some(code) = error.code() else {
        // Without a code it is the connection; or a mistake of ours in types, which a test finds; or a way to log in that
        // the server asks for and the URL does not allow. The driver tells them apart by its own words only.
        let text = error.to_string();
        let will_stay = ["serializing", "invalid configuration", "authentication error"];
        let is_permanent = will_stay.iter().any(|words| text.contains(words));
        return if is_permanent { FailureKind::Permanent } else { FailureKind::Lost };
    };
    kind_of_code(code)
}

fn kind_of_code(code: &SqlState) -> FailureKind {
    let transient = [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED];
    if transient.contains(code) || code.code().starts_with("40") {
        return FailureKind::Transient;
    }
    // A statement that was prepared before a migration has to be prepared anew.
    if *code == SqlState::FEATURE_NOT_SUPPORTED {
        return FailureKind::Lost;
    }
    match code.code().get(..2) {
        // Connection; the state of the transaction, among them a server that only reads because it is being failed over;
        // resources; shutting down or starting up; the operating system.
        Some("08" | "25" | "53" | "57" | "58") => FailureKind::Lost,
        _ => FailureKind::Permanent,
    }
}

/// What the server said, with its code; never the statement or its values.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => {
            let what = match said.code() {
                code if *code == SqlState::T_R_DEADLOCK_DETECTED => "Deadlock detected",
                code if *code == SqlState::T_R_SERIALIZATION_FAILURE => "Serialization failure",
                code if *code == SqlState::UNIQUE_VIOLATION => "Duplicate detected",
                code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => "Database is read-only",
                code if *code == SqlState::TOO_MANY_CONNECTIONS => "Too many connections",
                _ => "Database error",
            };
            format!("{what}: {} ({})", said.message(), said.code().code())
        }
        None => {
            let cause =
                std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("Connection error: {error}{cause}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_in_trouble_says_may_pass() {
        let passing = [
            SqlState::DISK_FULL,
            SqlState::OUT_OF_MEMORY,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::CONFIGURATION_LIMIT_EXCEEDED,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::IO_ERROR,
            SqlState::SYSTEM_ERROR,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::CONNECTION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::QUERY_CANCELED,
        ];
        for code in passing {
            assert_ne!(kind_of_code(&code), FailureKind::Permanent, "{code:?}");
        }
        for code in [SqlState::UNIQUE_VIOLATION, SqlState::UNDEFINED_TABLE, SqlState::PROGRAM_LIMIT_EXCEEDED]
        {
            assert_eq!(kind_of_code(&code), FailureKind::Permanent, "{code:?}");
        }
    }

    #[test]
    fn what_an_operator_can_mend_is_not_about_the_request() {
        let mendable = [
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_FUNCTION,
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            SqlState::DATA_CORRUPTED,
        ];
        assert!(mendable.iter().all(|code| !is_about_the_request(code)));
        let refused =
            [SqlState::UNIQUE_VIOLATION, SqlState::PROGRAM_LIMIT_EXCEEDED, SqlState::RAISE_EXCEPTION];
        assert!(refused.iter().all(is_about_the_request));
    }
}
