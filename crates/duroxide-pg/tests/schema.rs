//! Opening a store: it makes the schema, or refuses one that it cannot use.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide_pg::{Migrations, PgError, PostgresProvider};
use support::database::{Database, connect};
use support::fresh_schema;
use support::world::{activity, start, until};

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
    let migrations = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap().count();
    let applied = again.query_number("SELECT count(*) FROM duroxide_migrations").await.unwrap();
    assert_eq!(applied, migrations as i64);
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
    store.execute_sql("INSERT INTO duroxide_migrations VALUES (1000, '1000_later', 'x')").await.unwrap();
    let error = open(&database, &schema).await.err().unwrap();
    assert!(matches!(error, PgError::NewerSchema { found: 1000, .. }), "{error}");
    assert!(error.to_string().contains("deploy a newer duroxide-pg"), "{error}");
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

/// Takes the lock that migrations of a schema take.
fn migrating(schema: &str) -> String {
    format!("SELECT pg_advisory_xact_lock(hashtextextended('duroxide-pg migrations {schema}', 0))")
}

// semantics: PG-23
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_open_a_new_schema_together_take_turns_whatever_the_default_isolation_level() {
    let database = Database::new().await;
    let (operator, schema) = (connect(database.url()).await, fresh_schema());
    let name: String = operator.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    let defaults = format!("ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'");
    operator.batch_execute(&defaults).await.unwrap();
    // The operator holds the lock of migrations, so that all stores have looked before the first one begins.
    operator.batch_execute(&format!("BEGIN; {}", migrating(&schema))).await.unwrap();
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let (url, schema) = (database.url().to_string(), schema.clone());
            tokio::spawn(
                async move { PostgresProvider::new_with_schema(&url, Some(&schema)).await.map(drop) },
            )
        })
        .collect();
    let all_wait = "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database =
        (SELECT oid FROM pg_database WHERE datname = current_database())) = 6";
    until(&operator, all_wait).await;
    operator.batch_execute("ROLLBACK").await.unwrap();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
}

// semantics: PG-23
#[tokio::test(flavor = "multi_thread")]
async fn a_migrator_that_has_come_to_a_halt_is_named_and_not_waited_for_for_ever() {
    let database = Database::new().await;
    let schema = fresh_schema();
    let frozen = connect(database.url()).await;
    frozen.batch_execute("SET application_name = 'the frozen one'").await.unwrap();
    let pid: i32 = frozen.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let opening = || {
        let builder = PostgresProvider::builder().schema(&schema).migration_wait(Duration::from_millis(200));
        tokio::time::timeout(Duration::from_secs(20), builder.open(database.url()))
    };
    frozen.batch_execute(&format!("BEGIN; {}", migrating(&schema))).await.unwrap();
    let error = opening().await.expect("it does not wait for ever").err().unwrap();
    assert!(matches!(error, PgError::MigrationInProgress { .. }) && error.is_retryable(), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("the frozen one") && text.contains(&format!("pg_terminate_backend({pid})")),
        "{text}"
    );
    frozen.batch_execute("ROLLBACK").await.unwrap();
    opening().await.unwrap().unwrap();

    // A store that has nothing to migrate does not wait.
    frozen.batch_execute(&format!("BEGIN; {}", migrating(&schema))).await.unwrap();
    opening().await.unwrap().unwrap();
    // It waits if the ledger itself is locked.
    frozen.batch_execute(&format!("LOCK TABLE {schema}.duroxide_migrations")).await.unwrap();
    let error = opening().await.expect("it does not wait for ever").err().unwrap();
    assert!(error.to_string().contains("the frozen one"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_meets_a_locked_table_is_tried_again() {
    let database = Database::new().await;
    let schema = fresh_schema();
    open(&database, &schema).await.unwrap();
    let operator = connect(database.url()).await;
    let lock = format!("BEGIN; LOCK TABLE {schema}.instances IN ROW EXCLUSIVE MODE");
    operator.batch_execute(&lock).await.unwrap();
    let to_come = "ALTER TABLE instances ADD COLUMN later text";
    let builder = PostgresProvider::builder().schema(&schema).migration_to_come(to_come, None);
    let opening = tokio::spawn({
        let url = database.url().to_string();
        async move { builder.open(&url).await }
    });
    let waits = "EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE NOT l.granted AND c.relname = 'instances' AND l.database =
            (SELECT oid FROM pg_database WHERE datname = current_database()))";
    let looks = connect(database.url()).await;
    // The migration gives way to transactions that queue behind it.
    for condition in [waits.to_string(), format!("NOT {waits}"), waits.to_string()] {
        until(&looks, &condition).await;
    }
    operator.batch_execute("COMMIT").await.unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn durations_without_end_are_as_good_as_any() {
    let database = Database::new().await;
    let builder = PostgresProvider::builder()
        .parking_time(Duration::MAX)
        .poll_interval(Duration::MAX)
        .retry_for(Duration::MAX)
        .figures_every(Some(Duration::MAX))
        .release_dead_after(Some(Duration::MAX))
        .migration_wait(Duration::MAX);
    let store = builder.open(database.url()).await.unwrap();
    // The store parks a signal; then a claim takes something else.
    store.enqueue_for_orchestrator(signal("nobody"), None).await.unwrap();
    let fetch = || store.fetch_orchestration_item(Duration::MAX, Duration::ZERO, None);
    assert!(fetch().await.unwrap().is_none());
    assert_eq!(
        store.query_number("SELECT count(*) FROM orchestrator_queue WHERE parked_at > 0").await.unwrap(),
        1
    );
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    let (item, token, _) = fetch().await.unwrap().unwrap();
    assert_eq!(item.instance, "i");
    store.renew_orchestration_item_lock(&token, Duration::MAX).await.unwrap();
    store.abandon_orchestration_item(&token, Some(Duration::MAX), false).await.unwrap();
    assert!(fetch().await.unwrap().is_none());
    store.enqueue_for_orchestrator(signal("i"), Some(Duration::MAX)).await.unwrap();
    store.enqueue_for_worker(activity("i")).await.unwrap();
    let session = SessionFetchConfig { owner_id: "w".into(), lock_timeout: Duration::MAX };
    let any = TagFilter::default();
    let work = store.fetch_work_item(Duration::MAX, Duration::ZERO, Some(&session), &any);
    let (_, token, _) = work.await.unwrap().unwrap();
    store.renew_work_item_lock(&token, Duration::MAX).await.unwrap();
    store.renew_session_lock(&["w"], Duration::MAX, Duration::MAX).await.unwrap();
    store.abandon_work_item(&token, Some(Duration::MAX), false).await.unwrap();
}
