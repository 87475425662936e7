//! The size of the tables while instances come to their end and are deleted, all but the last.

use std::collections::VecDeque;
use std::sync::Arc;

use duroxide::providers::ProviderAdmin;

use crate::args::Args;
use crate::place::{Place, schema};
use crate::report::{Report, Table};
use crate::stats::{now, ratio};
use crate::wave::{self, Wave};
use crate::{Outcome, life};

const SCHEMA: &str = "pruning";
/// How many times its largest size in the first quarter of the run the store may have later.
const GOAL: f64 = 1.1;
/// Where sizes are taken, in parts of the run.
const PARTS: u64 = 8;
/// Instances that are deleted at once.
const AT_ONCE: usize = 250;

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let size: u64 = args.value("size", 1_000_000)?;
    let keep: usize = args.value("keep", 10_000)?;
    let place = Place::enter(args).await?;
    place.describe(report).await?;
    report.setting("orchestrations", size);
    report.setting("finished ones that are kept", keep);
    report.setting(
        "an orchestration",
        "two turns of three events and one activity, through the store's traits",
    );
    report.setting("payload (bytes)", life::PAYLOAD_BYTES);
    let store = Arc::new(place.store(SCHEMA).await?);
    let mut table = Table::new(
        "the size of all tables and indexes",
        &["completed", "deleted", "MB", "MB / most in the first quarter", "dead rows", "completed/s"],
    );
    let (mut finished, mut deleted, mut kept) = (0, 0, VecDeque::new());
    let (mut early, mut most) = (0.0, 0.0_f64);
    let (began, mut part) = (now(), 1);
    while finished < size {
        let wave = Wave::new(store.clone(), finished, wave::SIZE.min(size - finished));
        // The instances of one wave are deleted while the next is at work.
        let (ended, gone) = tokio::try_join!(wave.run(), delete_all_but(&store, &mut kept, keep))?;
        finished += ended.len() as u64;
        kept.extend(ended);
        deleted += gone;
        if finished < size * part / PARTS {
            continue;
        }
        let (megabytes, dead) = measure(&place).await?;
        if part * 4 <= PARTS {
            early = megabytes.max(early);
        } else {
            most = most.max(ratio(megabytes, early));
        }
        part += 1;
        report.progress(&format!("{finished} completed, {megabytes:.0} MB"));
        table.row(vec![
            finished.into(),
            deleted.into(),
            megabytes.into(),
            ratio(megabytes, early).into(),
            dead.into(),
            (finished as f64 / (now() - began).as_secs_f64()).into(),
        ]);
    }
    report.table(table);
    report.goal("flat: later at most 1.1 times the largest size in the first quarter", most, most <= GOAL);
    drop(store);
    place.leave(&[SCHEMA]).await
}

/// Deletes finished instances, the oldest first, until only the last are left; returns how many.
async fn delete_all_but(
    store: &Arc<impl ProviderAdmin>,
    finished: &mut VecDeque<String>,
    keep: usize,
) -> Outcome<u64> {
    let mut deleted = 0;
    while finished.len() > keep {
        let count = (finished.len() - keep).min(AT_ONCE);
        let oldest: Vec<String> = finished.drain(..count).collect();
        deleted += store.delete_instances_atomic(&oldest, false).await?.instances_deleted;
    }
    Ok(deleted)
}

/// The size of all tables with their indexes, in MB, and the rows in them that wait to be removed.
async fn measure(place: &Place) -> Outcome<(f64, u64)> {
    let row = place
        .sql
        .query_one(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint,
                sum(coalesce(s.n_dead_tup, 0))::bigint
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
             WHERE n.nspname = $1 AND c.relkind = 'r'",
            &[&schema(SCHEMA)],
        )
        .await?;
    let (bytes, dead): (i64, i64) = (row.get(0), row.get(1));
    Ok((bytes as f64 / 1e6, dead.unsigned_abs()))
}
