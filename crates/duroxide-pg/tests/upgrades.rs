//! Builds of two neighbouring versions on one schema: the older one's rights after the newer one has migrated.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;

use duroxide::Client;
use duroxide::runtime::Runtime;
use duroxide_pg::{Migrations, PgError, PostgresBuilder, PostgresProvider};
use support::database::{Database, connect};
use support::{fresh_schema, load};

/// The changes of the build to come: a column, a table, and a function that both builds call.
const TO_COME: &str = "
    ALTER TABLE instances ADD COLUMN later text;
    CREATE TABLE batches_later (batch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
    CREATE OR REPLACE FUNCTION begin_batch_1(p_committer text, p_epoch bigint, p_batch bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO batches_later DEFAULT VALUES;
        UPDATE committers SET batch = p_batch, turn_verdicts = NULL, refused_work = NULL, taken_starts = NULL,
            deliveries = NULL, seen_at = now()
        WHERE committer = p_committer AND epoch = p_epoch;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this batch was given up by its committer' USING ERRCODE = 'connection_does_not_exist';
        END IF;
        RETURN true;
    END $$;";

fn own(schema: &str) -> PostgresBuilder {
    PostgresProvider::builder().schema(schema)
}

fn to_come(schema: &str) -> PostgresBuilder {
    own(schema).migration_to_come(TO_COME, Some(PostgresBuilder::newest_migration()))
}

/// A process that takes part.
struct Worker {
    store: Arc<PostgresProvider>,
    runtime: Arc<Runtime>,
}

impl Worker {
    async fn start(builder: PostgresBuilder, database: &Database) -> Self {
        let store = Arc::new(builder.open(database.url()).await.unwrap());
        Self { runtime: load::runtime(store.clone()).await, store }
    }

    async fn stop(self) {
        self.runtime.shutdown(None).await;
    }
}

// semantics: PG-21
#[tokio::test(flavor = "multi_thread")]
async fn neighbouring_builds_share_a_schema_and_the_older_one_can_start_again() {
    for newer_comes_first in [false, true] {
        let database = Database::new().await;
        let schema = fresh_schema();
        let (mut older, newer) = if newer_comes_first {
            let newer = Worker::start(to_come(&schema), &database).await;
            (Worker::start(own(&schema), &database).await, newer)
        } else {
            let older = Worker::start(own(&schema), &database).await;
            load::start(&Client::new(older.store.clone()), 0, 5).await;
            (older, Worker::start(to_come(&schema), &database).await)
        };
        let jobs = if newer_comes_first { 0 } else { 5 };
        let (of_older, of_newer) = (Client::new(older.store.clone()), Client::new(newer.store.clone()));
        load::start(&of_older, jobs, 5).await;
        load::start(&of_newer, jobs + 5, 5).await;
        let mut jobs = jobs + 10;
        for _ in 0..3 {
            older.stop().await;
            older = Worker::start(own(&schema), &database).await;
            load::start(&Client::new(older.store.clone()), jobs, 5).await;
            load::start(&of_newer, jobs + 5, 5).await;
            jobs += 10;
        }
        load::check(&of_newer, jobs).await;

        // The older one alone: the newer is rolled back.
        newer.stop().await;
        older.stop().await;
        let older = Worker::start(own(&schema).migrations(Migrations::Verify), &database).await;
        let client = Client::new(older.store.clone());
        load::start(&client, jobs, 5).await;
        load::check(&client, jobs + 5).await;
        let store = &older.store;
        assert_eq!(
            store.query_number("SELECT max(version) FROM duroxide_migrations").await.unwrap(),
            PostgresBuilder::newest_migration() + 1
        );
        assert!(store.query_number("SELECT count(*) FROM batches_later").await.unwrap() > 0, "it is called");
        older.stop().await;
    }
}

// semantics: PG-21
#[tokio::test]
async fn a_build_that_may_not_run_beside_a_migration_is_told_which_one_may() {
    let database = Database::new().await;
    let newest = PostgresBuilder::newest_migration();
    for needed in [None, Some(newest + 1)] {
        let schema = fresh_schema();
        own(&schema).migration_to_come(TO_COME, needed).open(database.url()).await.unwrap();
        for policy in [Migrations::Apply, Migrations::Verify] {
            let error = own(&schema).migrations(policy).open(database.url()).await.err().unwrap();
            assert!(matches!(error, PgError::NewerSchema { .. }) && !error.is_retryable(), "{error:?}");
            let text = error.to_string();
            let version = env!("CARGO_PKG_VERSION");
            assert!(text.contains(&format!("deploy duroxide-pg {version} or newer")), "{text}");
            assert!(text.contains(&format!("know migration {}", newest + 1)), "{text}");
        }
    }
}

// semantics: PG-21
#[tokio::test]
async fn a_build_that_finds_a_newer_schema_changes_nothing_and_checks_what_it_knows() {
    let database = Database::new().await;
    let schema = fresh_schema();
    to_come(&schema).open(database.url()).await.unwrap();
    let operator = connect(database.url()).await;
    let ledger =
        format!("SELECT string_agg(m::text, ';' ORDER BY version) FROM {schema}.duroxide_migrations m");
    let before: String = operator.query_one(&ledger, &[]).await.unwrap().get(0);
    own(&schema).open(database.url()).await.unwrap();
    let after: String = operator.query_one(&ledger, &[]).await.unwrap().get(0);
    assert_eq!(before, after);

    let alter = format!("UPDATE {schema}.duroxide_migrations SET fingerprint = 'x' WHERE version = 2");
    operator.batch_execute(&alter).await.unwrap();
    let error = own(&schema).open(database.url()).await.err().unwrap();
    assert!(error.to_string().contains("migration 2"), "{error}");
}
