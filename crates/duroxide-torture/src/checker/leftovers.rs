//! I8: the rows that a store still has when everything has ended, and should not have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Tables that are empty when everything has ended: in both stores, and only in PostgreSQL's.
const EMPTY: [&str; 5] =
    ["orchestrator_queue", "worker_queue", "instance_schedule", "sessions", "quarantine"];
const EMPTY_ON_A_SERVER: [&str; 2] = ["arrivals", "session_arrivals"];
/// Tables whose rows belong to an instance, or to an execution.
const OF_AN_INSTANCE: [&str; 3] = ["executions", "kv_store", "kv_delta"];
const ORPHANED_HISTORY: &str = "SELECT count(*) FROM history h WHERE NOT EXISTS (SELECT 1 FROM executions e
    WHERE e.instance_id = h.instance_id AND e.execution_id = h.execution_id)";

/// Rows that are left over, counted by what they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    rows: BTreeMap<String, u64>,
}

impl Leftovers {
    /// Adds rows.
    pub fn add(&mut self, what: &str, count: u64) {
        if count > 0 {
            *self.rows.entry(what.to_string()).or_default() += count;
        }
    }

    /// What is left over, and how much of it.
    pub fn rows(&self) -> &BTreeMap<String, u64> {
        &self.rows
    }

    /// Tells whether nothing is left over.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Counts the rows of the in-memory store, by [its text](duroxide::providers::memory::MemoryProvider::dump).
    pub fn of_dump(dump: &str) -> Self {
        let mut left = Self::default();
        let mut instances = BTreeSet::new();
        for line in dump.lines() {
            let mut words = line.splitn(3, ' ');
            let (kind, subject) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            // An instance is `"id"`, and what belongs to one begins with `"id"/`.
            let owner = subject.split('/').next().unwrap_or_default();
            match kind {
                "instance" => drop(instances.insert(owner)),
                "turn" | "message" | "activity" | "session" | "quarantined" => left.add(kind, 1),
                "execution" | "event" | "kv_store" | "kv_delta" if !instances.contains(owner) => {
                    left.add(&format!("{kind} without its instance"), 1);
                }
                _ => {}
            }
        }
        left
    }

    /// Counts the rows of a SQLite file.
    pub fn of_file(file: &Path) -> Self {
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        let mut left = Self::default();
        for (what, sql) in queries(&EMPTY) {
            let count: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
            left.add(&what, count.unsigned_abs());
        }
        left
    }

    /// Counts the rows of a schema on a PostgreSQL server.
    pub async fn of_schema(url: &str, schema: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path = {schema}")).await.unwrap();
        let mut left = Self::default();
        let tables: Vec<&str> = EMPTY.into_iter().chain(EMPTY_ON_A_SERVER).collect();
        for (what, sql) in queries(&tables) {
            let count: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
            left.add(&what, count.unsigned_abs());
        }
        drop(client);
        let _ = connection.await;
        left
    }
}

/// Queries that count what should not be there.
fn queries(empty: &[&str]) -> Vec<(String, String)> {
    let mut queries: Vec<(String, String)> =
        empty.iter().map(|table| (format!("in {table}"), format!("SELECT count(*) FROM {table}"))).collect();
    for table in OF_AN_INSTANCE {
        let sql = format!(
            "SELECT count(*) FROM {table} t WHERE NOT EXISTS
                (SELECT 1 FROM instances i WHERE i.instance_id = t.instance_id)"
        );
        queries.push((format!("in {table} without their instance"), sql));
    }
    queries.push(("in history without their execution".to_string(), ORPHANED_HISTORY.to_string()));
    queries
}
