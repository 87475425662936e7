//! The size of the tables while instances come to their end and are deleted, all but the last.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::ProviderAdmin;
use tokio::sync::mpsc;

use crate::args::Args;
use crate::load::{Answered, Load, Plan};
use crate::place::{Place, schema};
use crate::report::{Report, Table};
use crate::stats::{now, ratio};
use crate::{Outcome, life};

const SCHEMA: &str = "pruning";
/// How many times its size at a quarter of the run the store may have later.
const GOAL: f64 = 1.1;
/// Where sizes are taken, in parts of the run.
const PARTS: u64 = 8;
/// Instances that are deleted at once.
const AT_ONCE: usize = 500;
const STEPS: u64 = 1;

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let size: u64 = args.value("size", 1_000_000)?;
    let keep: usize = args.value("keep", 10_000)?;
    let callers: usize = args.value("callers", 512)?;
    let place = Place::enter(args).await?;
    place.describe(report).await?;
    report.setting("orchestrations", size);
    report.setting("finished ones that are kept", keep);
    report.setting("callers", callers);
    report.setting(
        "an orchestration",
        "two turns of three events and one activity, through the Provider trait",
    );
    report.setting("payload (bytes)", life::PAYLOAD_BYTES);
    let store = Arc::new(place.store(SCHEMA).await?);
    let (ended, mut endings) = mpsc::unbounded_channel();
    let witness = move |answered: Answered<'_>| {
        if let Answered::TurnAcked { instance, ended: true, .. } = answered {
            // If nobody counts any more, the run is over.
            let _ = ended.send(instance.to_string());
        }
        Ok(())
    };
    let plan = Plan {
        callers,
        steps: STEPS,
        lock_timeout: Duration::from_secs(30),
        prefix: String::new(),
        witness: Some(Arc::new(witness)),
    };
    let began = now();
    let load = Load::start(store.clone(), &plan);
    let mut table = Table::new(
        "the size of all tables and indexes",
        &["completed", "deleted", "MB", "MB / MB at a quarter", "dead rows", "completed/s"],
    );
    let (mut finished, mut deleted, mut kept) = (0_u64, 0_u64, std::collections::VecDeque::new());
    let (mut at_quarter, mut most) = (0.0, 0.0_f64);
    let mut next = size / PARTS;
    while finished < size {
        let mut arrived = Vec::new();
        if endings.recv_many(&mut arrived, AT_ONCE).await == 0 {
            return Err("the callers have ended".into());
        }
        finished += arrived.len() as u64;
        kept.extend(arrived);
        while kept.len() >= keep + AT_ONCE {
            let oldest: Vec<String> = kept.drain(..AT_ONCE).collect();
            deleted += store.delete_instances_atomic(&oldest, false).await?.instances_deleted;
        }
        if finished >= next {
            let (megabytes, dead) = measure(&place).await?;
            if next <= size / 4 {
                at_quarter = megabytes;
            } else {
                most = most.max(ratio(megabytes, at_quarter));
            }
            report.progress(&format!("{finished} completed, {megabytes:.0} MB"));
            let rate = finished as f64 / (now() - began).as_secs_f64();
            table.row(vec![
                finished.into(),
                deleted.into(),
                megabytes.into(),
                ratio(megabytes, at_quarter).into(),
                dead.into(),
                rate.into(),
            ]);
            next += size / PARTS;
        }
    }
    drop(endings);
    load.finish().await?;
    report.table(table);
    report.goal("flat: later at most 1.1 times the size at a quarter of the run", most, most <= GOAL);
    drop(store);
    place.leave(&[SCHEMA]).await
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
