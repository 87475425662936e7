//! Recognising, creating and migrating the file.

use rusqlite::Connection;

use super::SqliteError;
use super::url::Location;

const SCHEMA: &str = include_str!("schema.sql");
const MIGRATE_PUBLISHED: &str = include_str!("migrate_published.sql");

/// Marks a file as ours: "duro" in ASCII.
const APPLICATION_ID: i64 = 0x6475_726F;

/// The version that [`SCHEMA`] creates. Raise it with each migration.
const SCHEMA_VERSION: i64 = 1;

/// Brings the database to the present schema, whatever it holds now, in one transaction; or refuses and leaves it as it
/// is.
pub(super) fn prepare(connection: &Connection, location: &Location) -> Result<(), SqliteError> {
    // Immediate, so that of two processes that open a new file one creates the tables and the other finds them.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| opening(location, error))?;
    let prepared = prepare_in_transaction(connection, location);
    let end = if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(|error| opening(location, error))?;
    prepared
}

fn prepare_in_transaction(connection: &Connection, location: &Location) -> Result<(), SqliteError> {
    match recognise(connection, location)? {
        Content::Ours => Ok(()),
        Content::Empty => run(connection, "create the schema", SCHEMA).and_then(|()| mark(connection)),
        Content::Published => {
            let script = MIGRATE_PUBLISHED.replacen("-- schema.sql\n", SCHEMA, 1);
            run(connection, "migrate a file of the published crate", &script).and_then(|()| mark(connection))
        }
    }
}

enum Content {
    Empty,
    Ours,
    Published,
}

fn recognise(connection: &Connection, location: &Location) -> Result<Content, SqliteError> {
    let path = || location.path().to_path_buf();
    let version = number(connection, "user_version")?;
    if number(connection, "application_id")? == APPLICATION_ID {
        return match version {
            SCHEMA_VERSION => Ok(Content::Ours),
            found => Err(SqliteError::NewerSchema { path: path(), found, known: SCHEMA_VERSION }),
        };
    }
    let tables = tables(connection)?;
    let has = |name: &str| tables.iter().any(|table| table == name);
    if tables.is_empty() {
        Ok(Content::Empty)
    } else if ["instances", "executions", "history", "orchestrator_queue", "worker_queue", "kv_delta"]
        .into_iter()
        .all(has)
    {
        Ok(Content::Published)
    } else {
        Err(SqliteError::NotOurs {
            path: path(),
            tables: tables.into_iter().take(3).collect::<Vec<_>>().join(", "),
        })
    }
}

fn mark(connection: &Connection) -> Result<(), SqliteError> {
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};");
    run(connection, "mark the schema", &marks)
}

fn run(connection: &Connection, action: &'static str, script: &str) -> Result<(), SqliteError> {
    connection.execute_batch(script).map_err(SqliteError::sqlite(action))
}

fn number(connection: &Connection, pragma: &'static str) -> Result<i64, SqliteError> {
    connection
        .pragma_query_value(None, pragma, |row| row.get(0))
        .map_err(SqliteError::sqlite("read the file's header"))
}

fn tables(connection: &Connection) -> Result<Vec<String>, SqliteError> {
    let read = || -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name",
        )?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    read().map_err(SqliteError::sqlite("list the tables"))
}

fn opening(location: &Location, error: rusqlite::Error) -> SqliteError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::CannotOpen) => {
            SqliteError::ReadOnly { path: location.path().to_path_buf(), reason: error.to_string() }
        }
        _ => SqliteError::Sqlite { action: "open the database", source: error },
    }
}
