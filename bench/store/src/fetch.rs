//! How long a fetch takes in stores with a lot in them, beside an empty one.

use crate::args::Args;
use crate::big_stores::{self, Filled, STORES};
use crate::report::{Report, Table};
use crate::stats::now;
use crate::subject::{Subject, tabulate};
use crate::{Outcome, machine, new_report, runtime};

/// How many times the empty store's median another's may be.
const GOAL: f64 = 2.0;

pub fn run(args: &Args) -> Outcome<Report> {
    let rounds: usize = args.value("rounds", 150)?;
    let samples: usize = args.value("samples", 4)?;
    let scale: f64 = args.value("scale", 1.0)?;
    let only: Vec<String> = args.list("only", &[])?;
    let dir = args.work_dir()?;
    let mut report = new_report(args);
    machine::describe(&mut report, dir.path())?;
    report.setting("rounds", rounds);
    report.setting("samples of each kind per round and store", samples);
    report.setting("scale", scale);

    runtime()?.block_on(async {
        let mut subjects = Vec::new();
        let mut first_fetches = Table::new("the first fetch", &["store", "rows", "ms"]);
        for (name, filling, rows) in STORES {
            let is_wanted = only.is_empty() || name == "empty" || only.iter().any(|other| other == name);
            if !is_wanted {
                continue;
            }
            let rows = (rows as f64 * scale).round() as u64;
            let began = now();
            let Filled { store, first_fetch } = big_stores::make(dir.path(), name, filling, rows).await?;
            report.progress(&format!("{name} was filled in {:.1} s", (now() - began).as_secs_f64()));
            first_fetches.row(vec![name.into(), rows.into(), (first_fetch.as_secs_f64() * 1e3).into()]);
            subjects.push(Subject::new(name, store));
        }
        report.table(first_fetches);
        for round in 0..rounds {
            // Nobody is always the first.
            let places = subjects.len();
            subjects.rotate_left(round.min(1) % places);
            for subject in &mut subjects {
                subject.measure(samples).await?;
            }
        }
        let place = |subject: &Subject| STORES.iter().position(|(name, ..)| *name == subject.name);
        subjects.sort_by_key(place);
        tabulate(&mut report, &subjects, GOAL);
        Ok(report)
    })
}
