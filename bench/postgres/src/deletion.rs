//! Bulk deletion among many instances: what a page costs at the beginning and at the end.

use duroxide::providers::{InstanceFilter, ProviderAdmin};

use crate::Outcome;
use crate::args::Args;
use crate::place::Place;
use crate::report::{Report, Table};
use crate::stats::{now, ratio};

const SCHEMA: &str = "deletion";
/// How many times the first page's time the last may take, for each instance.
const GOAL: f64 = 3.0;

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let size: i64 = args.value("size", 2_000_000)?;
    let page: u32 = args.value("page", 1_000)?;
    let place = Place::enter(args).await?;
    place.describe(report).await?;
    report.setting("ended instances", size.unsigned_abs());
    report.setting("instances that run besides", (size / 10).unsigned_abs());
    report.setting("instances of a page", u64::from(page));
    let store = place.store(SCHEMA).await?;
    let sql = place.beside(SCHEMA).await?;
    fill(&sql, size).await?;
    let mut table = Table::new("deleting by completion time", &["ended before", "ms / instance"]);
    let filter =
        || InstanceFilter { completed_before: Some(u64::MAX), limit: Some(page), ..Default::default() };
    let mut times = Vec::new();
    for (part, left) in [("the first page", size), ("the last page", i64::from(page))] {
        thin_out(&sql, left).await?;
        let began = now();
        let deleted = store.delete_instance_bulk(filter()).await?.instances_deleted;
        let each = (now() - began).as_secs_f64() * 1e3 / deleted.max(1) as f64;
        report.progress(&format!("{part}: {each:.2} ms for each of {deleted}"));
        table.row(vec![part.into(), each.into()]);
        times.push(each);
    }
    report.table(table);
    let grown = ratio(times[1], times[0]);
    report.goal("linear: the last page at most 3 times the first, for each instance", grown, grown <= GOAL);
    drop(store);
    place.leave(&[SCHEMA]).await
}

/// Makes instances of three events each; of eleven one runs.
async fn fill(sql: &tokio_postgres::Client, size: i64) -> Outcome<()> {
    let all = size + size / 10;
    let statements = format!(
        "INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at)
         SELECT 'i' || n, 'Order', '1.0.0', n, n FROM generate_series(1, {all}) n;
         INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, output)
         SELECT 'i' || n, 1, CASE WHEN n % 11 = 0 THEN 'Running' ELSE 'Completed' END, n,
             CASE WHEN n % 11 > 0 THEN n END, 'x' FROM generate_series(1, {all}) n;
         INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
         SELECT 'i' || n, 1, e, 'x', n, '{{}}' FROM generate_series(1, {all}) n, generate_series(1, 3) e;
         ANALYZE instances, executions, history;"
    );
    Ok(sql.batch_execute(&statements).await?)
}

/// Removes the oldest ended instances until so many are left, as earlier pages would have, without a vacuum after it.
async fn thin_out(sql: &tokio_postgres::Client, left: i64) -> Outcome<()> {
    let statements = format!(
        "CREATE TEMP TABLE doomed AS SELECT instance_id FROM executions WHERE status = 'Completed'
             ORDER BY completed_at DESC OFFSET {left};
         DELETE FROM history h USING doomed d WHERE h.instance_id = d.instance_id;
         DELETE FROM executions h USING doomed d WHERE h.instance_id = d.instance_id;
         DELETE FROM instances h USING doomed d WHERE h.instance_id = d.instance_id;
         DROP TABLE doomed;"
    );
    Ok(sql.batch_execute(&statements).await?)
}
