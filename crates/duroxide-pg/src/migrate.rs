//! How a schema comes to have the tables and functions that this build needs.
//!
//! Migrations only go forward. Each is applied in a transaction and recorded in a ledger with a fingerprint of its text.
//! The ledger is checked whenever a store is opened: a schema that is newer than this build, or whose past is another
//! one, is refused and not touched.

use crate::address::quoted;
use crate::error::PgError;
use crate::session::Session;

struct Migration {
    version: i64,
    name: &'static str,
    sql: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal) => {
        Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../migrations/", $name, ".sql")),
        }
    };
}

const MIGRATIONS: [Migration; 12] = [
    migration!(1, "0001_tables"),
    migration!(2, "0002_scheduling"),
    migration!(3, "0003_turns"),
    migration!(4, "0004_messages"),
    migration!(5, "0005_work"),
    migration!(6, "0006_removal"),
    migration!(7, "0007_committers"),
    migration!(8, "0008_blocked"),
    migration!(9, "0009_leaving"),
    migration!(10, "0010_bounded_turns"),
    migration!(11, "0011_deliveries"),
    migration!(12, "0012_locks"),
];

/// The oldest server that has what the functions need.
const OLDEST_SERVER: i32 = 140_000;

/// What a process does about migrations when it opens a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migrations {
    /// Applies those that are missing, creating the schema if need be.
    #[default]
    Apply,
    /// Applies none, and refuses a schema that lacks some: for processes without the right to create tables.
    Verify,
}

/// Makes sure that the schema is the one that this build needs.
pub(crate) async fn prepare(session: &Session, schema: &str, policy: Migrations) -> Result<(), PgError> {
    check_server(session).await?;
    if policy == Migrations::Verify {
        return verify(session, schema).await;
    }
    // Processes that start at the same time take turns. The lock ends with the transaction, whatever happens.
    let failed = PgError::database;
    session.run("BEGIN").await.map_err(failed("beginning a migration"))?;
    let migrated = migrate(session, schema).await;
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = session.run(end).await.map_err(failed("ending a migration"));
    migrated.and(ended)
}

async fn migrate(session: &Session, schema: &str) -> Result<(), PgError> {
    let failed = PgError::database;
    session
        .query(
            "SELECT pg_advisory_xact_lock(hashtextextended('duroxide-pg migrations ' || $1, 0))",
            &[&schema],
        )
        .await
        .map_err(failed("waiting for other migrations"))?;
    let path = quoted(schema);
    let exists = session
        .query("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema])
        .await
        .map_err(failed("looking for the schema"))?;
    if exists.is_empty() {
        session.run(&format!("CREATE SCHEMA {path}")).await.map_err(failed("creating the schema"))?;
    }
    session
        .run(&format!(
            "SET LOCAL search_path TO {path};
             CREATE TABLE IF NOT EXISTS {path}.duroxide_migrations (
                 version bigint PRIMARY KEY, name text NOT NULL, fingerprint text NOT NULL,
                 applied_at timestamptz NOT NULL DEFAULT now())"
        ))
        .await
        .map_err(failed("reading the ledger of migrations"))?;
    let applied = ledger(session, schema).await?;
    if applied.is_empty() {
        refuse_foreign_tables(session, schema).await?;
    }
    for migration in missing(session, schema, &applied).await? {
        session.run(migration.sql).await.map_err(failed("applying a migration"))?;
        session
            .query(
                "INSERT INTO duroxide_migrations (version, name, fingerprint) VALUES ($1, $2, md5($3))",
                &[&migration.version, &migration.name, &migration.sql],
            )
            .await
            .map_err(failed("recording a migration"))?;
        tracing::info!(target: "duroxide::providers::postgres", schema, migration = migration.name, "applied a migration");
    }
    Ok(())
}

async fn verify(session: &Session, schema: &str) -> Result<(), PgError> {
    let found = session
        .query(
            "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'duroxide_migrations'",
            &[&schema],
        )
        .await
        .map_err(PgError::database("looking for the schema"))?;
    let lacks = |first| PgError::NotMigrated { schema: schema.to_string(), first };
    if found.is_empty() {
        return Err(lacks(1));
    }
    let applied = ledger(session, schema).await?;
    match missing(session, schema, &applied).await?.first() {
        Some(migration) => Err(lacks(migration.version)),
        None => Ok(()),
    }
}

async fn check_server(session: &Session) -> Result<(), PgError> {
    let rows = session
        .query("SELECT current_setting('server_version_num')::int, current_setting('server_encoding')", &[])
        .await
        .map_err(PgError::database("asking for the server's version"))?;
    let (version, encoding): (i32, String) =
        rows.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default();
    if version < OLDEST_SERVER {
        return Err(PgError::Unsupported {
            reason: format!("it is version {}; 14 or newer is needed", version / 10_000),
        });
    }
    if encoding != "UTF8" {
        return Err(PgError::Unsupported { reason: format!("its encoding is {encoding}; UTF8 is needed") });
    }
    Ok(())
}

/// A migration as the ledger has it.
struct Applied {
    version: i64,
    fingerprint: String,
}

async fn ledger(session: &Session, schema: &str) -> Result<Vec<Applied>, PgError> {
    let sql =
        format!("SELECT version, fingerprint FROM {}.duroxide_migrations ORDER BY version", quoted(schema));
    let rows =
        session.query_once(&sql, &[]).await.map_err(PgError::database("reading the ledger of migrations"))?;
    Ok(rows.iter().map(|row| Applied { version: row.get(0), fingerprint: row.get(1) }).collect())
}

/// The migrations that are not in the ledger. What is there must be what this build would have applied.
async fn missing(
    session: &Session,
    schema: &str,
    applied: &[Applied],
) -> Result<&'static [Migration], PgError> {
    let altered = |reason: String| PgError::AlteredSchema { schema: schema.to_string(), reason };
    if let Some(newest) = applied.last().filter(|newest| newest.version > MIGRATIONS.len() as i64) {
        let known = MIGRATIONS.len() as i64;
        return Err(PgError::NewerSchema { schema: schema.to_string(), found: newest.version, known });
    }
    let texts: Vec<&str> = MIGRATIONS.iter().map(|migration| migration.sql).collect();
    let rows = session
        .query("SELECT md5(t) FROM unnest($1::text[]) WITH ORDINALITY x(t, place) ORDER BY place", &[&texts])
        .await
        .map_err(PgError::database("reading the ledger of migrations"))?;
    for (position, found) in applied.iter().enumerate() {
        if found.version != position as i64 + 1 {
            return Err(altered(format!("its ledger lacks migration {}", position + 1)));
        }
        let expected: String = rows.get(position).map(|row| row.get(0)).unwrap_or_default();
        if found.fingerprint != expected {
            return Err(altered(format!(
                "migration {} in its ledger is not the one that this build knows",
                found.version
            )));
        }
    }
    Ok(MIGRATIONS.get(applied.len()..).unwrap_or_default())
}

/// A schema with tables of these names that we did not make belongs to somebody else, for example to the published
/// provider.
async fn refuse_foreign_tables(session: &Session, schema: &str) -> Result<(), PgError> {
    let rows = session
        .query(
            "SELECT string_agg(tablename, ', ' ORDER BY tablename) FROM pg_tables WHERE schemaname = $1
             AND tablename IN ('instances', 'executions', 'history', 'orchestrator_queue', 'worker_queue', 'sessions')",
            &[&schema],
        )
        .await
        .map_err(PgError::database("looking at the schema"))?;
    match rows.first().and_then(|row| row.get::<_, Option<String>>(0)) {
        Some(tables) => Err(PgError::AlteredSchema {
            schema: schema.to_string(),
            reason: format!(
                "it holds tables of another application ({tables}); give duroxide a schema of its own"
            ),
        }),
        None => Ok(()),
    }
}

/// Removes everything that this crate has made in a schema.
pub(crate) async fn drop_schema(session: &Session, schema: &str) -> Result<(), PgError> {
    let failed = PgError::database;
    if schema != "public" {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", quoted(schema));
        return session.run(&sql).await.map_err(failed("dropping the schema"));
    }
    const OURS: [&str; 17] = [
        "instances",
        "executions",
        "history",
        "orchestrator_queue",
        "arrivals",
        "instance_schedule",
        "worker_queue",
        "session_arrivals",
        "sessions",
        "kv_store",
        "kv_delta",
        "quarantine",
        "totals",
        "committers",
        "dropped_messages",
        "dropped_totals",
        "duroxide_migrations",
    ];
    let tables: Vec<String> = OURS.iter().map(|table| format!("public.{table}")).collect();
    session
        .run(&format!("DROP TABLE IF EXISTS {} CASCADE", tables.join(", ")))
        .await
        .map_err(failed("dropping tables"))?;
    let functions = MIGRATIONS.iter().flat_map(|migration| migration.sql.split("CREATE FUNCTION ").skip(1));
    let names: Vec<&str> = functions.filter_map(|text| text.split('(').next()).collect();
    for name in names {
        let sql = format!("DROP FUNCTION IF EXISTS public.{}", quoted(name));
        session.run(&sql).await.map_err(failed("dropping functions"))?;
    }
    Ok(())
}
