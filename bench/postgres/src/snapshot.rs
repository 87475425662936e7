//! How long a fetch takes while somebody holds a snapshot, as a dump does: what leases left behind in ten minutes cannot be
//! removed.

use std::sync::Arc;

use crate::Outcome;
use crate::args::Args;
use crate::place::{Place, schema};
use crate::report::Report;
use crate::stats::now;
use crate::subject::{Subject, tabulate};

const STORES: [(&str, u64); 3] = [("empty", 0), ("dead-300k", 300_000), ("dead-3m", 3_000_000)];
/// How many times the empty store's median another's may be.
const GOAL: f64 = 3.0;

pub async fn run(args: &Args, report: &mut Report) -> Outcome<()> {
    let rounds: usize = args.value("rounds", 150)?;
    let samples: usize = args.value("samples", 4)?;
    let scale: f64 = args.value("scale", 1.0)?;
    let place = Place::enter(args).await?;
    place.describe(report).await?;
    report.setting("rounds", rounds);
    report.setting("samples of each kind per round and store", samples);
    report.setting("scale", scale);
    let mut subjects = Vec::new();
    for (name, _) in STORES {
        subjects.push(Subject::new(name, Arc::new(place.store(name).await?)));
    }
    place.sql.batch_execute("VACUUM ANALYZE").await?;
    let reader = place.beside(STORES[0].0).await?;
    reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM instances").await?;
    for (name, leases) in STORES {
        let leases = (leases as f64 * scale).round() as u64;
        let began = now();
        place.sql.batch_execute(&dead_leases(&schema(name), leases)).await?;
        report.progress(&format!("{name}: {leases} leases after {:.1} s", (now() - began).as_secs_f64()));
    }
    place.sql.batch_execute("CHECKPOINT").await?;
    for round in 0..rounds {
        // Nobody is always the first.
        let places = subjects.len();
        subjects.rotate_left(round.min(1) % places);
        for subject in &mut subjects {
            subject.measure(samples).await?;
        }
    }
    subjects.sort_by_key(|subject| STORES.iter().position(|(name, _)| *name == subject.name));
    tabulate(report, &subjects, GOAL);
    reader.batch_execute("COMMIT").await?;
    drop(subjects);
    place.leave(&STORES.map(|(name, _)| name)).await
}

/// What so many turns and activities leave behind that were queued, leased and done within the last ten minutes.
fn dead_leases(schema: &str, leases: u64) -> String {
    let due_at = format!("now_ms_1(NULL) - 600000 + g::bigint * 600000 / {}", leases.max(1));
    format!(
        "SET search_path TO {schema};
         INSERT INTO arrivals (instances) SELECT ARRAY['x' || g] FROM generate_series(1, {leases}) g;
         DELETE FROM arrivals;
         INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
             SELECT 'x' || g, 'start', 0, '{{}}' FROM generate_series(1, {leases}) g;
         DELETE FROM orchestrator_queue;
         INSERT INTO instance_schedule (instance_id, class, ready_seq, due_at)
             SELECT 'x' || g, '', g, {due_at} FROM generate_series(1, {leases}) g;
         DELETE FROM instance_schedule;
         INSERT INTO worker_queue (instance_id, execution_id, activity_id, created_at, work_item)
             SELECT 'x' || g, 1, 1, 0, '{{}}' FROM generate_series(1, {leases}) g;
         DELETE FROM worker_queue;
         INSERT INTO worker_queue (instance_id, execution_id, activity_id, due_at, created_at, work_item)
             SELECT 'x' || g, 1, 1, {due_at}, 0, '{{}}' FROM generate_series(1, {leases}) g;
         DELETE FROM worker_queue;
         RESET search_path"
    )
}
