//! Listings over a store with many instances.

use std::sync::Arc;

use duroxide::Client;

use crate::args::Args;
use crate::place::Place;
use crate::report::Report;
use crate::{Outcome, pages};

const SCHEMA: &str = "listing";

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let size: i64 = args.value("size", 1_000_000)?;
    let samples: usize = args.value("samples", 5)?;
    let place = Place::enter(args).await?;
    place.describe(report).await?;
    report.setting("instances", size.unsigned_abs());
    let store = place.store(SCHEMA).await?;
    let sql = place.beside(SCHEMA).await?;
    fill(&sql, size).await?;
    let client = Client::new(Arc::new(store));
    pages::measure(&client, size, samples, report).await?;
    fill_queues(&sql).await?;
    pages::measure_backlog(&client, samples, report).await?;
    drop(client);
    place.leave(&[SCHEMA]).await
}

/// The same instances as in the SQLite benchmark. Executions come first, as in a turn: the trigger that lists an instance
/// looks at them.
async fn fill(sql: &tokio_postgres::Client, size: i64) -> Outcome<()> {
    let first = pages::FIRST_MS;
    let last = size - 1;
    let statements = format!(
        "CREATE TEMP TABLE n AS SELECT x, CASE WHEN x % 100 < 80 THEN 'Completed' WHEN x % 100 < 86 THEN 'Failed'
             ELSE 'Running' END AS status FROM generate_series(0, {last}) x;
         INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, output)
         SELECT 'order-' || x, 1, status, {first} + x, CASE WHEN status <> 'Running' THEN {first} + x END,
             CASE WHEN status <> 'Running' THEN 'the output of ' || x END FROM n;
         INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at,
             parent_instance_id, custom_status, custom_status_version)
         SELECT 'order-' || x, 'Order' || (x % 10), CASE WHEN x % 7 = 0 THEN '2.0.0' ELSE '1.0.0' END, {first} + x,
             {first} + x, CASE WHEN x % 10 = 1 THEN 'order-' || (x % 1000 / 10 * 10) END,
             CASE WHEN x % 20 = 3 THEN 'step ' || (x % 9) END, CASE WHEN x % 20 = 3 THEN 1 ELSE 0 END
         FROM n ORDER BY x;
         UPDATE instances SET listed_status = 'Cancelled'
         WHERE instance_id IN (SELECT 'order-' || x FROM n WHERE x % 100 = 85);
         INSERT INTO totals (slot, instances, executions, running_instances, completed_instances, failed_instances)
         SELECT 1000, count(*), count(*), count(*) FILTER (WHERE status = 'Running'),
             count(*) FILTER (WHERE status = 'Completed'), count(*) FILTER (WHERE status = 'Failed') FROM n;
         ANALYZE instances, executions;"
    );
    Ok(sql.batch_execute(&statements).await?)
}

/// The same queues as in the SQLite benchmark. Half of the messages have been noticed by a claim, the others have not.
async fn fill_queues(sql: &tokio_postgres::Client) -> Outcome<()> {
    let first = pages::FIRST_MS;
    let start = r#"{"StartOrchestration":{"instance":"' || instance_id || '-next","orchestration":"Order1","input":"","execution_id":1}}"#;
    let statements = format!(
        "CREATE TEMP TABLE w AS SELECT instance_id, row_number() OVER (ORDER BY incarnation DESC) AS n FROM instances
             WHERE listed_status = 'Running';
         INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
         SELECT instance_id, 'message', CASE WHEN n <= 20000 THEN 0 ELSE now_ms_1(NULL) + 3600000 + n * 500 END, {first}, '{{}}'
             FROM w;
         INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
         SELECT instance_id || '-next', 'start', {first}, '{start}' FROM w WHERE n <= 20000;
         INSERT INTO instance_schedule (instance_id, ready_seq, due_at)
         SELECT q.instance_id, CASE WHEN q.visible_at = 0 THEN q.id END, nullif(q.visible_at, 0) FROM orchestrator_queue q
         WHERE q.visible_at > 0 OR q.id % 2 = 0;
         INSERT INTO arrivals (instances) SELECT ARRAY[q.instance_id] FROM orchestrator_queue q
         WHERE q.visible_at = 0 AND q.id % 2 = 1;
         INSERT INTO worker_queue (instance_id, execution_id, activity_id, route, created_at, work_item)
         SELECT instance_id, 1, 2, CASE WHEN n % 2 = 0 THEN '=gpu' ELSE '' END, {first}, '{{}}' FROM w WHERE n <= 20000;
         ANALYZE orchestrator_queue, instance_schedule, worker_queue, arrivals;"
    );
    Ok(sql.batch_execute(&statements).await?)
}
