//! Opening a store: how a schema comes to be, and when it is refused.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use duroxide::providers::{Provider, WorkItem};
use duroxide_pg::{Migrations, PgError, PostgresProvider};
use support::database::Database;
use support::fresh_schema;

async fn open(database: &Database, schema: &str) -> Result<PostgresProvider, PgError> {
    PostgresProvider::new_with_schema(database.url(), Some(schema)).await
}

fn signal(instance: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "n".into(), data: String::new() }
}

#[tokio::test]
async fn a_schema_is_made_once_and_kept() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let store = open(&database, &schema).await.unwrap();
    assert_eq!((store.schema_name(), store.name()), (schema.as_str(), "duroxide-pg"));
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    store.initialize_schema().await.unwrap();
    let again = open(&database, &schema).await.unwrap();
    assert_eq!(again.query_number("SELECT count(*) FROM orchestrator_queue").await.unwrap(), 1);
    assert_eq!(again.query_number("SELECT count(*) FROM duroxide_migrations").await.unwrap(), 9);
}

#[tokio::test]
async fn schemas_share_nothing() {
    let database = Database::new().await;
    let (one, other) =
        (open(&database, &fresh_schema()).await.unwrap(), open(&database, &fresh_schema()).await.unwrap());
    one.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    assert_eq!(other.query_number("SELECT count(*) FROM orchestrator_queue").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_open_a_new_schema_together_take_turns() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let (url, schema) = (database.url().to_string(), schema.clone());
            tokio::spawn(
                async move { PostgresProvider::new_with_schema(&url, Some(&schema)).await.map(drop) },
            )
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let store = open(&database, &schema).await.unwrap();
    store.execute_sql("INSERT INTO duroxide_migrations VALUES (10, '0010_later', 'x')").await.unwrap();
    let error = open(&database, &schema).await.err().unwrap();
    assert!(matches!(error, PgError::NewerSchema { found: 10, known: 9, .. }), "{error}");
    assert!(error.to_string().contains("upgrade duroxide-pg"), "{error}");
}

#[tokio::test]
async fn an_altered_schema_is_refused() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let store = open(&database, &schema).await.unwrap();
    store.execute_sql("UPDATE duroxide_migrations SET fingerprint = 'x' WHERE version = 3").await.unwrap();
    let error = open(&database, &schema).await.err().unwrap();
    assert!(error.to_string().contains("migration 3"), "{error}");
    store.execute_sql("DELETE FROM duroxide_migrations WHERE version = 3").await.unwrap();
    let error = open(&database, &schema).await.err().unwrap();
    assert!(matches!(error, PgError::AlteredSchema { .. }), "{error}");
}

#[tokio::test]
async fn a_schema_of_somebody_else_is_refused_and_not_touched() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let store = open(&database, &schema).await.unwrap();
    let foreign = fresh_schema();
    let sql = format!("CREATE SCHEMA {foreign}");
    store.execute_sql(&sql).await.unwrap();
    store.execute_sql(&format!("CREATE TABLE {foreign}.instances (x int)")).await.unwrap();
    let error = open(&database, &foreign).await.err().unwrap();
    assert!(error.to_string().contains("another application (instances)"), "{error}");
    let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{foreign}'");
    assert_eq!(store.query_number(&tables).await.unwrap(), 1);
}

#[tokio::test]
async fn a_process_that_may_not_migrate_only_looks() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let verify = || PostgresProvider::builder().schema(&schema).migrations(Migrations::Verify);
    let error = verify().open(database.url()).await.err().unwrap();
    assert!(matches!(error, PgError::NotMigrated { first: 1, .. }), "{error}");
    open(&database, &schema).await.unwrap();
    verify().open(database.url()).await.unwrap();
}

#[tokio::test]
async fn a_schema_can_be_removed() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let store = open(&database, &schema).await.unwrap();
    store.cleanup_schema().await.unwrap();
    let left = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'");
    assert_eq!(open(&database, &fresh_schema()).await.unwrap().query_number(&left).await.unwrap(), 0);
}

#[tokio::test]
async fn names_that_are_not_plain_are_refused() {
    let database = Database::new().await;
    for name in ["", "a b", "a\"; DROP SCHEMA public; --", "pg_catalog"] {
        let error = open(&database, name).await.err().unwrap();
        assert!(matches!(error, PgError::InvalidSchema { .. }), "{error}");
    }
}

#[tokio::test]
async fn any_store_is_opened_by_its_url() {
    let database = Database::new().await;
    let url = database.url();
    let separator = if url.contains('?') { '&' } else { '?' };
    let store = duroxide_pg::open(&format!("{url}{separator}schema={}", fresh_schema())).await.unwrap();
    assert_eq!(store.name(), "duroxide-pg");
    store.enqueue_for_orchestrator(signal("i"), Some(Duration::from_secs(60))).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_secrets() {
    let error = PostgresProvider::new("postgres://u:top-secret@127.0.0.1:1/d").await.err().unwrap();
    assert!(matches!(error, PgError::Connect { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("top-secret"), "{error}");
}
