//! What orchestrations of five steps leave behind, in bytes of each table and index: all of them, and if finished ones are
//! deleted meanwhile.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::InstanceFilter;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus, RuntimeOptions,
};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::place::{Place, schema};
use crate::report::{Report, Table};
use crate::stats::{now, ratio};
use crate::{Outcome, life};

const KEPT: &str = "kept";
const PRUNED: &str = "pruned";
const STEPS: usize = 5;
/// Orchestrations that are under way at once.
const IN_FLIGHT: u64 = 200;
/// Finished ones are deleted in pages.
const PAGE: u32 = 1_000;
const WAIT: Duration = Duration::from_secs(3_600);
const MILLION: f64 = 1e6;

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let size: u64 = args.value("size", 100_000)?;
    let keep: u64 = args.value("keep", 10_000)?;
    let place = Place::enter(args).await?;
    place.describe(report).await?;
    report.setting("orchestrations", size);
    report.setting("an orchestration", "five activities, one after the other, by a runtime: 12 events");
    report.setting("payload of input, steps and result (bytes)", life::PAYLOAD_BYTES);
    report.setting("finished ones that are kept where they are deleted", keep);
    for (name, keep) in [(KEPT, None), (PRUNED, Some(keep))] {
        let began = now();
        fill(&place, name, size, keep).await?;
        report.progress(&format!("{name}: {:.0}/s", size as f64 / (now() - began).as_secs_f64()));
        // Otherwise it depends on when autovacuum was there last.
        place.sql.batch_execute("VACUUM ANALYZE").await?;
        tell(&place, name, size, report).await?;
    }
    place.leave(&[KEPT, PRUNED]).await
}

/// Runs so many orchestrations to their end, and deletes all finished ones but some, if it is told how many.
async fn fill(place: &Place, name: &str, size: u64, keep: Option<u64>) -> Outcome<()> {
    let store = Arc::new(place.store(name).await?);
    let activities = ActivityRegistry::builder()
        .register("Step", |_: ActivityContext, _: String| async { Ok(life::payload()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register(life::NAME, |ctx: OrchestrationContext, input: String| async move {
            let mut last = input;
            for _ in 0..STEPS {
                last = ctx.schedule_activity("Step", last).await?;
            }
            Ok(last)
        })
        .build();
    let options =
        RuntimeOptions { orchestration_concurrency: 8, worker_concurrency: 64, ..Default::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store);
    let (mut running, mut started, mut ended, mut deleted) = (JoinSet::new(), 0, 0, 0);
    while ended < size {
        while started < size && started - ended < IN_FLIGHT {
            running.spawn(see_through(client.clone(), life::instance_id("", 0, started)));
            started += 1;
        }
        if let Some(done) = running.join_next().await {
            done??;
            ended += 1;
        }
        if keep.is_some_and(|keep| ended >= deleted + keep + u64::from(PAGE)) {
            let oldest =
                InstanceFilter { completed_before: Some(u64::MAX), limit: Some(PAGE), ..Default::default() };
            deleted += client.delete_instance_bulk(oldest).await?.instances_deleted;
        }
    }
    runtime.shutdown(None).await;
    Ok(())
}

async fn see_through(client: Client, instance: String) -> Outcome<()> {
    client.start_orchestration(&instance, life::NAME, life::payload()).await?;
    match client.wait_for_orchestration(&instance, WAIT).await? {
        OrchestrationStatus::Completed { .. } => Ok(()),
        other => Err(format!("{instance} ended as {other:?}").into()),
    }
}

/// Tabulates tables and indexes, the largest first.
async fn tell(place: &Place, name: &str, size: u64, report: &mut Report) -> Outcome<()> {
    let rows = place
        .sql
        .query(
            "SELECT t.relname::text, ''::text, pg_table_size(t.oid), t.reltuples::bigint FROM pg_class t
             JOIN pg_namespace n ON n.oid = t.relnamespace WHERE n.nspname = $1 AND t.relkind = 'r'
             UNION ALL
             SELECT t.relname::text, i.relname::text, pg_relation_size(i.oid), i.reltuples::bigint
             FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
             JOIN pg_namespace n ON n.oid = t.relnamespace WHERE n.nspname = $1 AND t.relkind = 'r'
             ORDER BY 3 DESC",
            &[&schema(name)],
        )
        .await?;
    let mut table = Table::new(
        &format!("bytes after {size} orchestrations, {name}"),
        &["table", "index", "rows", "bytes", "bytes / orchestration", "MB / million"],
    );
    let mut all = 0;
    for row in rows {
        let (of, index, bytes, rows): (String, String, i64, i64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        all += bytes.unsigned_abs();
        let each = ratio(bytes as f64, size as f64);
        // What is smaller does not grow with the orchestrations.
        if bytes >= 100_000 {
            let rows = rows.max(0).unsigned_abs();
            let bytes = bytes.unsigned_abs();
            table.row(vec![
                of.into(),
                index.into(),
                rows.into(),
                bytes.into(),
                each.into(),
                (each * MILLION / 1e6).into(),
            ]);
        }
    }
    let each = ratio(all as f64, size as f64);
    table.row(vec![
        "all".into(),
        "".into(),
        "".into(),
        all.into(),
        each.into(),
        (each * MILLION / 1e6).into(),
    ]);
    report.table(table);
    Ok(())
}
