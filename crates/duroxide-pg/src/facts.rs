//! What an operator wants to know about the database itself.

use duroxide::providers::ProviderError;

use crate::PostgresProvider;
use crate::reads::{named, number};

/// Facts about the database of a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PostgresFacts {
    /// The version of the server.
    pub server_version: String,
    /// The database.
    pub database: String,
    /// The schema that the store lives in.
    pub schema: String,
    /// The newest migration that the schema has.
    pub migration: i64,
    /// The size of the whole database.
    pub database_bytes: u64,
    /// The server's time, in milliseconds since the epoch.
    pub now_ms: u64,
    /// The tables of the store, the largest first. Their rows are the server's estimates.
    pub tables: Vec<TableFacts>,
}

/// Facts about a table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableFacts {
    /// The table.
    pub name: String,
    /// Its size with its indexes.
    pub bytes: u64,
    /// How many rows it has, as the server estimates.
    pub live_rows: u64,
    /// How many rows wait for vacuum, as the server estimates.
    pub dead_rows: u64,
}

const SERVER: &str = "SELECT current_setting('server_version') AS version, current_database()::text AS name,
    pg_database_size(current_database()) AS bytes,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
    (SELECT max(m.version) FROM duroxide_migrations m) AS migration";

const TABLES: &str = "SELECT s.relname::text AS name, pg_total_relation_size(s.relid) AS bytes,
    s.n_live_tup AS live, s.n_dead_tup AS dead
    FROM pg_stat_user_tables s WHERE s.schemaname = current_schema() ORDER BY 2 DESC, 1";

impl PostgresProvider {
    /// Describes the database of the store.
    ///
    /// ```no_run
    /// # async fn run(store: duroxide_pg::PostgresProvider) -> Result<(), duroxide::providers::ProviderError> {
    /// let facts = store.facts().await?;
    /// println!("PostgreSQL {}, {} MB", facts.server_version, facts.database_bytes / 1_000_000);
    /// if let Some(largest) = facts.tables.first() {
    ///     println!("the largest table is {}, with {} rows", largest.name, largest.live_rows);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn facts(&self) -> Result<PostgresFacts, ProviderError> {
        let answers = self.reads.pipeline(&[(SERVER, &[]), (TABLES, &[])]).await.map_err(named("facts"))?;
        let [server, tables] = answers.as_slice() else { return Err(no_answer()) };
        let server = server.first().ok_or_else(no_answer)?;
        let tables = tables.iter().map(|row| TableFacts {
            name: row.get("name"),
            bytes: number(row, "bytes"),
            live_rows: number(row, "live"),
            dead_rows: number(row, "dead"),
        });
        Ok(PostgresFacts {
            server_version: server.get("version"),
            database: server.get("name"),
            database_bytes: number(server, "bytes"),
            now_ms: number(server, "now"),
            migration: server.get::<_, Option<i64>>("migration").unwrap_or(0),
            schema: self.schema_name().to_string(),
            tables: tables.collect(),
        })
    }
}

fn no_answer() -> ProviderError {
    ProviderError::retryable("facts", "the server did not answer the question")
}
