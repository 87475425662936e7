//! How long a fetch takes in stores with many sleeping timers, beside an empty one.

use std::sync::Arc;

use crate::args::Args;
use crate::place::Place;
use crate::report::Report;
use crate::stats::now;
use crate::subject::{Subject, tabulate};
use crate::{Outcome, sleepers};

const STORES: [(&str, u64); 4] =
    [("empty", 0), ("timers-10k", 10_000), ("timers-100k", 100_000), ("timers-1m", 1_000_000)];

/// How many times the empty store's median another's may be.
const GOAL: f64 = 2.0;

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
    for (name, sleeping) in STORES {
        let sleeping = (sleeping as f64 * scale).round() as u64;
        let began = now();
        let store = sleepers::store(&place, name, sleeping).await?;
        report.progress(&format!("{name}: {sleeping} sleepers after {:.1} s", (now() - began).as_secs_f64()));
        subjects.push(Subject::new(name, Arc::new(store)));
    }
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
    drop(subjects);
    place.leave(&STORES.map(|(name, _)| name)).await
}
