//! Schemas of earlier versions: the store migrates each, and its instances go on to their ends.
//!
//! The repository keeps a dump for every released set of migrations. `fixtures/README.md` tells how they were made.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::kept_store;
use crate::support;

use std::sync::Arc;

use duroxide::providers::ManualClock;
use duroxide_pg::PostgresProvider;
use kept_store::OPENED_MS;
use support::database::{Database, connect};

/// The schema that a dump holds.
const SCHEMA: &str = "kept";

async fn open(database: &Database, clock: &Arc<ManualClock>) -> Arc<PostgresProvider> {
    let builder = PostgresProvider::builder().schema(SCHEMA).clock(clock.clone());
    Arc::new(builder.open(database.url()).await.unwrap())
}

/// Loads a dump, without the lines that are for `psql` alone.
async fn load(database: &Database, name: &str) {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let dump = std::fs::read_to_string(path).unwrap();
    let sql: Vec<&str> = dump.lines().filter(|line| !line.starts_with('\\')).collect();
    connect(database.url()).await.batch_execute(&sql.join("\n")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_in_a_schema_of_an_earlier_version_goes_on_to_its_end() {
    for name in [
        "schema-0007.sql",
        "schema-0011.sql",
        "schema-0015.sql",
        "schema-0020.sql",
        "schema-0022.sql",
        "schema-0025.sql",
    ] {
        let database = Database::new().await;
        load(&database, name).await;
        let clock = Arc::new(ManualClock::default());
        clock.set_wall_ms(OPENED_MS);
        let store = open(&database, &clock).await;
        kept_store::finish(store.clone(), &clock).await;
        assert_eq!(store.query_number("SELECT count(*) FROM quarantine").await.unwrap(), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_in_a_schema_of_this_version_goes_on_to_its_end() {
    let database = Database::new().await;
    let clock = Arc::new(ManualClock::default());
    let store = open(&database, &clock).await;
    kept_store::leave(&*store, &clock).await;
    drop(store);
    if let Some(path) = std::env::var_os("KEEP_STORE_DUMP") {
        dump(&database, &path);
    }
    clock.set_wall_ms(OPENED_MS);
    kept_store::finish(open(&database, &clock).await, &clock).await;
}

/// Writes the schema to a file, as statements.
fn dump(database: &Database, path: &std::ffi::OsStr) {
    let dumped = std::process::Command::new("pg_dump")
        .args(["--schema", SCHEMA, "--inserts", "--no-owner", "--no-privileges", "--file"])
        .arg(path)
        .arg(database.url())
        .status();
    assert!(dumped.unwrap().success());
}
