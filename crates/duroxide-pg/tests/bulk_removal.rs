//! Bulk operations find instances by an index: their cost depends on how much they remove, not on how much stays.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use duroxide::Client;
use duroxide::providers::{InstanceFilter, PruneOptions};
use duroxide_pg::PostgresProvider;
use support::database::{Database, connect};

/// Instances that run, that have ended, and that are continued as new again and again.
const FILL: &str = "
    INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at)
    SELECT 'i' || n, 'Order', '1.0.0', n, n FROM generate_series(1, 20000) n;
    INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, output)
    SELECT 'i' || n, 1, CASE WHEN n % 2 = 0 THEN 'Running' WHEN n % 5 = 0 THEN 'Failed' ELSE 'Completed' END, n,
        CASE WHEN n % 2 = 1 THEN n END, 'x' FROM generate_series(1, 20000) n;
    INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at,
        current_execution_id)
    SELECT 'e' || n, 'Order', '1.0.0', 1, 1, 500 FROM generate_series(1, 10) n;
    INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at)
    SELECT 'e' || n, x, CASE WHEN x = 500 THEN 'Running' ELSE 'ContinuedAsNew' END, 1,
        CASE WHEN x < 500 THEN 1 END FROM generate_series(1, 10) n, generate_series(1, 500) x;
    UPDATE executions SET status = 'ContinuedAsNew', completed_at = 1 WHERE instance_id = 'e7';
    ANALYZE;";

// semantics: MGMT-10
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_deletion_reads_no_table_from_its_beginning() {
    let home = Database::new().await;
    let database = connect(home.url()).await;
    let store = PostgresProvider::new(home.url()).await.unwrap();
    database.batch_execute(FILL).await.unwrap();
    let client = Client::new(std::sync::Arc::new(store));
    let before = |completed_before| InstanceFilter {
        completed_before: Some(completed_before),
        limit: Some(100),
        ..InstanceFilter::default()
    };
    for page in 0..3 {
        let deleted = client.delete_instance_bulk(before(u64::MAX)).await.unwrap();
        assert_eq!(deleted.instances_deleted, 100, "page {page}");
    }
    let oldest: Option<i64> = database
        .query_one("SELECT min(completed_at) FROM executions WHERE status IN ('Completed', 'Failed')", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(oldest, Some(601), "those that ended first went first");
    // Less than a page: the instances between two executions come along.
    assert_eq!(client.delete_instance_bulk(before(611)).await.unwrap().instances_deleted, 6);
    client.prune_executions_bulk(before(700), PruneOptions::default()).await.unwrap();
    drop(client);
    let e7 = database.query("SELECT 1 FROM instances WHERE instance_id = 'e7'", &[]).await.unwrap();
    assert!(e7.is_empty(), "it is at rest");

    for statement in duroxide_pg::bulk_statements() {
        let plan = plan(&database, statement).await;
        for table in ["executions", "instances"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{statement}\n{plan}");
        }
        assert!(plan.contains("executions_ended") || plan.contains("executions_continued"), "{plan}");
    }
}

/// Returns the plan of a statement for a page of a hundred.
async fn plan(database: &tokio_postgres::Client, statement: &str) -> String {
    let _ = database.batch_execute("DEALLOCATE ALL").await;
    database.batch_execute(&format!("PREPARE page (bigint, bigint) AS {statement}")).await.unwrap();
    let rows = database.query("EXPLAIN EXECUTE page (20000, 100)", &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}
