//! Listings over a store with many instances.

use std::sync::Arc;

use duroxide::Client;
use duroxide::providers::sqlite::SqliteProvider;

use crate::args::Args;
use crate::report::Report;
use crate::{Outcome, new_report, pages, runtime};

pub fn run(args: &Args) -> Outcome<Report> {
    let size: i64 = args.value("size", 1_000_000)?;
    let samples: usize = args.value("samples", 5)?;
    let dir = args.work_dir()?;
    let mut report = new_report(args);
    report.setting("instances", size.unsigned_abs());
    let path = dir.path().join("listing.db");
    let url = format!("sqlite:{}?mode=rwc", path.display());
    runtime()?.block_on(async {
        let store = SqliteProvider::new(&url, None).await?;
        fill(&path, size)?;
        let client = Client::new(Arc::new(store));
        pages::measure(&client, size, samples, &mut report).await?;
        fill_queues(&path)?;
        pages::measure_backlog(&client, samples, &mut report).await
    })?;
    Ok(report)
}

/// Makes instances of ten orchestrations in two versions. Of a hundred, eighty have completed, five failed, one was
/// cancelled, and the others wait; every tenth is a child of one of a thousand, and every twentieth has a custom status.
fn fill(path: &std::path::Path, size: i64) -> Outcome<()> {
    let connection = rusqlite::Connection::open(path)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000")?;
    let first = pages::FIRST_MS;
    connection.execute_batch(&format!(
        "BEGIN;
         CREATE TEMP TABLE n AS WITH RECURSIVE n (x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < {size} - 1)
         SELECT x, CASE WHEN x % 100 < 80 THEN 'Completed' WHEN x % 100 < 85 THEN 'Failed'
             WHEN x % 100 < 86 THEN 'Cancelled' ELSE 'Running' END AS status FROM n;
         INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, listed_status,
             updated_10s, parent_instance_id, root_instance_id, custom_status, custom_status_version)
         SELECT 'order-' || x, 'Order' || (x % 10), iif(x % 7 = 0, '2.0.0', '1.0.0'), {first} + x, {first} + x, status,
             ({first} + x) / 10000, iif(x % 10 = 1, 'order-' || (x % 1000 / 10 * 10), NULL),
             iif(x % 10 = 1, 'order-' || (x % 1000 / 10 * 10), NULL), iif(x % 20 = 3, 'step ' || (x % 9), NULL), x % 20 = 3
         FROM n;
         INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, output)
         SELECT 'order-' || x, 1, iif(status = 'Cancelled', 'Failed', status), {first} + x,
             iif(status = 'Running', NULL, {first} + x), iif(status = 'Running', NULL, 'the output of ' || x) FROM n;
         UPDATE totals SET instances = {size}, executions = {size},
             running_instances = (SELECT count(*) FROM n WHERE status = 'Running'),
             completed_instances = (SELECT count(*) FROM n WHERE status = 'Completed'),
             failed_instances = (SELECT count(*) FROM n WHERE status IN ('Failed', 'Cancelled')),
             cancelled_instances = (SELECT count(*) FROM n WHERE status = 'Cancelled');
         COMMIT"
    ))?;
    Ok(())
}

/// Gives the newest 20,000 instances that wait a message each, the others a timer of the next day; queues 20,000 starts and as
/// many activities.
fn fill_queues(path: &std::path::Path) -> Outcome<()> {
    let connection = rusqlite::Connection::open(path)?;
    let start = r#"{"StartOrchestration":{"instance":"' || instance_id || '-next","orchestration":"Order1","input":"","execution_id":1}}"#;
    connection.execute_batch(&format!(
        "PRAGMA synchronous = OFF; BEGIN;
         CREATE TEMP TABLE w AS SELECT instance_id, row_number() OVER (ORDER BY incarnation DESC) AS n FROM instances
             WHERE listed_status = 'Running';
         INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
         SELECT instance_id, 'message', iif(n <= 20000, 0, unixepoch() * 1000 + 3600000 + n * 500), {first}, '{{}}' FROM w;
         INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
         SELECT instance_id || '-next', 'start', {first}, '{start}' FROM w WHERE n <= 20000;
         INSERT INTO worker_queue (instance_id, execution_id, activity_id, tag, created_at, work_item)
         SELECT instance_id, 1, 2, iif(n % 2 = 0, 'gpu', NULL), {first}, '{{}}' FROM w WHERE n <= 20000;
         COMMIT",
        first = pages::FIRST_MS,
    ))?;
    Ok(())
}
