//! The errors of a PostgreSQL store: when it is opened, and while it works.
//!
//! No text here ever holds a URL or a password.

use duroxide::providers::ProviderError;
use tokio_postgres::error::SqlState;

/// Why a store could not be opened.
///
/// ```no_run
/// use duroxide_pg::{PgError, PostgresProvider};
///
/// # async fn run(url: &str) -> Result<PostgresProvider, String> {
/// loop {
///     match PostgresProvider::new(url).await {
///         Err(error) if error.is_retryable() => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
///         Err(PgError::LoginRefused { reason }) => return Err(format!("look at the password: {reason}")),
///         opened => return opened.map_err(|error| error.to_string()),
///     }
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PgError {
    /// The store cannot use the URL. The error does not repeat it, because it may hold a password.
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
    /// The store cannot reach the server for now, or got no token to log in with.
    #[error("cannot connect to PostgreSQL: {reason}")]
    Connect {
        /// Why the connection failed.
        reason: String,
    },
    /// The server refuses the login: a wrong password, no such user or database.
    #[error("PostgreSQL refuses the login: {reason}")]
    LoginRefused {
        /// Why the server refuses it.
        reason: String,
    },
    /// The connection cannot be encrypted, or the server could not prove that it is the one that the URL names.
    #[error("cannot set up TLS: {reason}")]
    Tls {
        /// What is wrong with the encryption.
        reason: String,
    },
    /// The server is older than 14, its text is not Unicode, or a pooler in front of it takes no transactions.
    #[error("this PostgreSQL server cannot be used: {reason}")]
    Unsupported {
        /// Why the store cannot use it.
        reason: String,
    },
    /// A newer version of this crate has changed the schema, and this build may not run beside it. This build changed
    /// nothing.
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
    /// The schema's ledger of migrations does not agree with this build, which changed nothing.
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
    /// Another process was migrating the schema, and did not finish while this one was ready to wait.
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
        /// What the store was doing.
        action: &'static str,
        /// What the server said.
        reason: String,
        /// The server's code for it (SQLSTATE), if it gave one.
        code: Option<String>,
        /// Whether it may succeed another time.
        retryable: bool,
    },
}

impl PgError {
    /// Tells whether opening the store may succeed another time, although no operator changes anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::MigrationInProgress { .. } | Self::Database { retryable: true, .. }
        )
    }

    pub(crate) fn database(action: &'static str) -> impl FnOnce(QueryError) -> Self {
        move |error| {
            let code = error.code().cloned();
            // No caller waits for work yet, so the error says at once what an operator has to mend.
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

/// Why an operation on an open store failed, before the error gets the name of the method that the caller used.
#[derive(Debug, Clone)]
pub(crate) enum StoreError {
    /// The storage contract refuses it.
    Refused(ProviderError),
    /// The database refuses it, or does not answer.
    Database(Failure),
    /// The store is gone.
    Closed,
}

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum QueryError {
    /// The driver reports an error.
    Driver(tokio_postgres::Error),
    /// The statement met a session that the store did not set up for it, and did nothing.
    NotOurs,
}

impl QueryError {
    /// Returns the server's code, if it gave one.
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
    /// The server's code, if the failure comes from the server.
    pub(crate) code: Option<SqlState>,
}

/// What a caller can do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The same statement may succeed on the same connection: a deadlock, or a lock that another transaction holds.
    Transient,
    /// The statement may succeed on another connection: this one is lost, or leads to a server that cannot write.
    Lost,
    /// The statement will not succeed.
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

    /// Tells whether one of the rows that the statement reads may be at fault, so that the others can be read without
    /// it.
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
    /// Once the store is open, only a failure about the request itself is permanent. An operator can restore a
    /// privilege, a table or a login that was there before, so that is no reason to fail a caller's work.
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
                Self::lost("the session belongs to another client; a pooler stands in between")
            }
        }
    }
}

/// Tells whether a code is about the request: its data, its constraints, its size, a trigger or a function of ours (DX) that
/// refuses it.
fn is_about_the_request(code: &SqlState) -> bool {
    matches!(code.code().get(..2), Some("21" | "22" | "23" | "44" | "54" | "P0" | "DX"))
}

/// Decides by the server's code, never by its text.
pub(crate) fn kind_of(error: &tokio_postgres::Error) -> FailureKind {
    let Some(code) = error.code() else {
        // Without a code the connection failed; or the store sent a wrong type, which a test finds; or the server asks
        // for a way to log in that the URL does not allow. Only the driver's text tells them apart.
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
    // The store has to prepare a statement anew that it prepared before a migration.
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

/// Returns the server's message with its code; never the statement or its values.
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
        assert!(
            ["DX001", "DX002"].into_iter().map(SqlState::from_code).all(|code| is_about_the_request(&code))
        );
    }
}
