//! Recognises, creates and migrates the file.
//!
//! The baseline makes a file, and then all steps run on it, in order; the file's version says how many it has had. So a
//! new file and a migrated one are the same. Once a version is released, its baseline and steps never change: a change
//! is another step.

use rusqlite::Connection;

use super::url::Location;
use super::{Migrations, SqliteError};

/// Makes version 1.
const BASELINE: &str = include_str!("schema.sql");
const MIGRATE_PUBLISHED: &str = include_str!("migrate_published.sql");

/// The steps from each version to the next; the first leads from 1 to 2. Each is a file `migrations/NNNN_*.sql`, named
/// for the version that it makes.
const STEPS: &[&str] = &[
    include_str!("migrations/0002_blocked.sql"),
    include_str!("migrations/0003_queued_children.sql"),
    include_str!("migrations/0004_bounded_turns.sql"),
    include_str!("migrations/0005_dropped_messages.sql"),
    include_str!("migrations/0006_ended_instances.sql"),
    include_str!("migrations/0007_listing.sql"),
    include_str!("migrations/0008_cancelled.sql"),
];

/// Marks a file as ours: "duro" in ASCII.
const APPLICATION_ID: i64 = 0x6475_726F;

/// Brings the database to the present schema in one transaction, whatever it holds now; or refuses and leaves it
/// unchanged.
pub(super) fn prepare(
    connection: &Connection,
    location: &Location,
    migrations: Migrations,
) -> Result<(), SqliteError> {
    prepare_with(connection, location, STEPS, migrations)
}

fn prepare_with(
    connection: &Connection,
    location: &Location,
    steps: &[&str],
    migrations: Migrations,
) -> Result<(), SqliteError> {
    // Immediate, so that if two processes open a new file, one creates the tables and the other finds them.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| opening(location, error))?;
    let prepared = prepare_in_transaction(connection, location, steps, migrations);
    let end = if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(|error| opening(location, error))?;
    prepared
}

fn prepare_in_transaction(
    connection: &Connection,
    location: &Location,
    steps: &[&str],
    migrations: Migrations,
) -> Result<(), SqliteError> {
    let content = recognise(connection, location, steps)?;
    let known = newest(steps);
    let version = match content {
        // Marking the file again would write to it, where reading is enough.
        Content::Ours { version } if version == known => return Ok(()),
        _ if migrations == Migrations::Verify => {
            let found = if let Content::Ours { version } = content { version as i64 } else { 0 };
            let path = location.path().to_path_buf();
            return Err(SqliteError::NotMigrated { path, found, known: known as i64 });
        }
        Content::Ours { version } => version,
        Content::Empty => {
            run(connection, "create the schema", BASELINE)?;
            1
        }
        Content::Published => {
            let script = MIGRATE_PUBLISHED.replacen("-- schema.sql\n", BASELINE, 1);
            run(connection, "migrate a file of the published crate", &script)?;
            1
        }
    };
    for step in steps.iter().skip(version - 1) {
        run(connection, "migrate the schema", step)?;
    }
    mark(connection, known)
}

/// The version that a file has after all steps.
fn newest(steps: &[&str]) -> usize {
    1 + steps.len()
}

enum Content {
    Empty,
    /// The file has a version between 1 and the newest.
    Ours {
        version: usize,
    },
    Published,
}

fn recognise(connection: &Connection, location: &Location, steps: &[&str]) -> Result<Content, SqliteError> {
    let path = || location.path().to_path_buf();
    let found = number(connection, "user_version")?;
    if number(connection, "application_id")? == APPLICATION_ID {
        let known = newest(steps);
        return match usize::try_from(found) {
            Ok(version) if (1..=known).contains(&version) => Ok(Content::Ours { version }),
            _ => Err(SqliteError::NewerSchema { path: path(), found, known: known as i64 }),
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

fn mark(connection: &Connection, version: usize) -> Result<(), SqliteError> {
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version};");
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

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &[&str] =
        &["CREATE TABLE second (x)", "CREATE TABLE third (x); INSERT INTO second VALUES (3)"];

    fn tables_and_version(connection: &Connection) -> (Vec<String>, i64) {
        let added =
            tables(connection).unwrap().into_iter().filter(|name| name == "second" || name == "third");
        (added.collect(), number(connection, "user_version").unwrap())
    }

    #[test]
    fn a_file_of_any_version_gets_the_steps_that_it_lacks() {
        for had in 0..=STEPS.len() {
            let connection = Connection::open_in_memory().unwrap();
            prepare_with(&connection, &Location::Memory, &STEPS[..had], Migrations::Apply).unwrap();
            assert_eq!(number(&connection, "user_version").unwrap(), 1 + had as i64);
            prepare_with(&connection, &Location::Memory, STEPS, Migrations::Apply).unwrap();
            assert_eq!(tables_and_version(&connection), (vec!["second".into(), "third".into()], 3));
        }
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_at_its_version() {
        let connection = Connection::open_in_memory().unwrap();
        prepare_with(&connection, &Location::Memory, &[], Migrations::Apply).unwrap();
        let error = prepare_with(&connection, &Location::Memory, &[STEPS[0], "nonsense"], Migrations::Apply)
            .unwrap_err();
        assert!(error.to_string().contains("migrate the schema"), "{error}");
        assert_eq!(tables_and_version(&connection), (vec![], 1));
    }

    #[test]
    fn a_file_with_more_steps_than_are_known_is_refused() {
        let connection = Connection::open_in_memory().unwrap();
        prepare_with(&connection, &Location::Memory, STEPS, Migrations::Apply).unwrap();
        let error = prepare_with(&connection, &Location::Memory, &STEPS[..1], Migrations::Apply).unwrap_err();
        assert!(matches!(error, SqliteError::NewerSchema { found: 3, known: 2, .. }), "{error}");
    }

    #[test]
    fn a_file_of_an_older_version_is_refused_where_nothing_may_be_migrated() {
        let connection = Connection::open_in_memory().unwrap();
        let verify = || prepare_with(&connection, &Location::Memory, STEPS, Migrations::Verify);
        let found = |error| match error {
            SqliteError::NotMigrated { found, known: 3, .. } => found,
            other => panic!("{other}"),
        };
        assert_eq!(found(verify().unwrap_err()), 0);
        assert!(tables(&connection).unwrap().is_empty(), "an empty file stays empty");
        prepare_with(&connection, &Location::Memory, &STEPS[..1], Migrations::Apply).unwrap();
        assert_eq!(found(verify().unwrap_err()), 2);
        assert_eq!(tables_and_version(&connection), (vec!["second".into()], 2));
        prepare_with(&connection, &Location::Memory, STEPS, Migrations::Apply).unwrap();
        verify().unwrap();
    }
}
