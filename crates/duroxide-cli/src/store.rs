//! Opens the store that a URL names.

use std::path::Path;
use std::sync::Arc;

use duroxide::Client;
use duroxide::providers::sqlite::{self, SqliteError, SqliteProvider};
use duroxide::providers::{Clock, Provider};
use duroxide_pg::{PgError, PostgresProvider};

use crate::failure::{Failure, Outcome};

/// What to do about a store that is not of this build's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Refuse it: looking at a store must not lock out the application that uses it.
    AsItIs,
    /// Migrate it, and create it if need be.
    Migrate,
}

/// An open store.
pub struct Store {
    /// The store itself.
    pub provider: Arc<dyn Provider>,
    /// A client on it.
    pub client: Client,
    /// Which kind it is.
    pub kind: StoreKind,
    /// The URL without the password.
    pub name: String,
}

/// The kinds of store.
pub enum StoreKind {
    /// A SQLite file.
    Sqlite(Arc<SqliteProvider>),
    /// A schema in a PostgreSQL database.
    Postgres(Arc<PostgresProvider>),
}

impl Store {
    /// Opens the store that a URL names. A plain path is a SQLite file, whose times go by `clock`.
    ///
    /// # Errors
    /// If it cannot be opened; says what to do.
    pub async fn open(url: &str, opening: Opening, clock: &Arc<dyn Clock>) -> Outcome<Self> {
        let name = without_password(url);
        let store = match scheme(url) {
            Some("postgres" | "postgresql") => Self::postgres(url, opening, name.clone()).await,
            Some("sqlite") | None => Self::sqlite(url, opening, clock, name.clone()).await,
            Some("memory") => Err(Failure::usage(
                "a store in memory lives in the process of its application",
            )
            .hint("give a file (--db sqlite:app.db) or a database (--db postgres://user@host/database)")),
            Some(other) => Err(Failure::usage(format!("'{other}:' names no store"))
                .hint("the URL begins with sqlite: or postgres://")),
        };
        store.map_err(|failure| failure.while_doing(format!("cannot open {name}")))
    }

    async fn sqlite(url: &str, opening: Opening, clock: &Arc<dyn Clock>, name: String) -> Outcome<Self> {
        if url.contains(":memory:") || url.contains("mode=memory") {
            return Err(Failure::usage("a store in memory lives in the process of its application")
                .hint("give a file (--db sqlite:app.db)"));
        }
        let migrations = match opening {
            Opening::AsItIs => sqlite::Migrations::Verify,
            Opening::Migrate => sqlite::Migrations::Apply,
        };
        let store = SqliteProvider::builder()
            .clock(clock.clone())
            .migrations(migrations)
            .open(url)
            .await
            .map_err(sqlite_failure)?;
        let store = Arc::new(store);
        Ok(Self::new(store.clone(), StoreKind::Sqlite(store), name))
    }

    async fn postgres(url: &str, opening: Opening, name: String) -> Outcome<Self> {
        let migrations = match opening {
            Opening::AsItIs => duroxide_pg::Migrations::Verify,
            Opening::Migrate => duroxide_pg::Migrations::Apply,
        };
        let (url, schema) = duroxide_pg::take_schema(url);
        let mut builder = PostgresProvider::builder().migrations(migrations);
        if let Some(schema) = schema {
            builder = builder.schema(schema);
        }
        let store = Arc::new(builder.open(&url).await.map_err(postgres_failure)?);
        Ok(Self::new(store.clone(), StoreKind::Postgres(store), name))
    }

    fn new(provider: Arc<dyn Provider>, kind: StoreKind, name: String) -> Self {
        Self { client: Client::new(provider.clone()), provider, kind, name }
    }
}

/// The part before the colon. A drive letter is none, and neither is a path.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let is_name = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    (is_name && !Path::new(url).exists()).then_some(scheme)
}

/// Replaces passwords in a URL.
pub fn without_password(url: &str) -> String {
    let (address, options) = match url.split_once('?') {
        Some((address, options)) => (address, Some(options)),
        None => (url, None),
    };
    let address = match address.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((login, host)) => match login.split_once(':') {
                Some((user, _)) => format!("{scheme}://{user}:***@{host}"),
                None => address.to_string(),
            },
            None => address.to_string(),
        },
        None => address.to_string(),
    };
    let is_secret = |option: &str| option.to_ascii_lowercase().contains("password");
    let hidden = |option: &str| match option.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => option.to_string(),
    };
    match options {
        Some(options) => {
            format!("{address}?{}", options.split('&').map(hidden).collect::<Vec<_>>().join("&"))
        }
        None => address,
    }
}

fn sqlite_failure(error: SqliteError) -> Failure {
    match &error {
        SqliteError::NotFound { path } => {
            let message = format!("{} does not exist", path.display());
            Failure::not_found(message)
                .hint("check the path; `duroxide db migrate` makes a new store with ?mode=rwc behind the URL")
        }
        SqliteError::NotMigrated { .. } => Failure::failed(error.to_string())
            .hint("upgrade the application, or run `duroxide db migrate`; older builds cannot open the file after that"),
        SqliteError::NewerSchema { .. } => {
            Failure::failed(error.to_string()).hint("use the `duroxide` command of that version")
        }
        SqliteError::InvalidUrl { .. } => Failure::usage(error.to_string()),
        _ => Failure::failed(error.to_string()),
    }
}

fn postgres_failure(error: PgError) -> Failure {
    let failure = Failure::failed(error.to_string());
    match error {
        PgError::NotMigrated { .. } => failure
            .hint("run `duroxide db migrate` as the owner of the schema, or deploy the application first"),
        PgError::Connect { .. } => failure.hint("check host and port, and whether the server runs"),
        PgError::LoginRefused { .. } => failure.hint("check user, password and database in the URL"),
        PgError::NewerSchema { .. } => failure.hint("use the `duroxide` command of that version"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_shows_no_password() {
        for (url, name) in [
            ("sqlite:app.db?mode=rwc", "sqlite:app.db?mode=rwc"),
            ("postgres://ada:secret@db/app", "postgres://ada:***@db/app"),
            ("postgres://ada:se@cr:et@db/app", "postgres://ada:***@db/app"),
            ("postgres://ada@db/app?sslmode=disable", "postgres://ada@db/app?sslmode=disable"),
            ("postgres://db/app?user=ada&password=secret", "postgres://db/app?user=ada&password=***"),
        ] {
            assert_eq!(without_password(url), name);
        }
    }

    #[test]
    fn a_path_is_no_scheme() {
        assert_eq!(scheme("app.db"), None);
        assert_eq!(scheme("/data/app.db"), None);
        assert_eq!(scheme("./a:b.db"), None);
        assert_eq!(scheme("sqlite:app.db"), Some("sqlite"));
        assert_eq!(scheme("mysql://h/d"), Some("mysql"));
    }
}
