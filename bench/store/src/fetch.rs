//! How long a fetch takes in stores with a lot in them, beside an empty one.

use std::sync::Arc;
use std::time::Duration;

use duroxide::TagFilter;
use duroxide::providers::Provider;
use duroxide::providers::sqlite::SqliteProvider;

use crate::args::Args;
use crate::big_stores::{self, Filled, STORES};
use crate::report::{Report, Table};
use crate::stats::{median, now, percentile, ratio};
use crate::steps::LOCK_TIMEOUT;
use crate::{Outcome, life, machine, new_report, runtime};

const GOAL: f64 = 2.0;
const KINDS: [&str; 4] =
    ["turn, none there", "turn, one there", "activity, none there", "activity, one there"];

/// A store, and how long fetches took on it, in microseconds, by kind.
struct Subject {
    name: &'static str,
    store: Arc<SqliteProvider>,
    taken: [Vec<f64>; KINDS.len()],
    instances: u64,
}

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
            subjects.push(Subject { name, store, taken: Default::default(), instances: 0 });
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
        tabulate(&mut report, &subjects);
        Ok(report)
    })
}

impl Subject {
    async fn measure(&mut self, samples: usize) -> Outcome<()> {
        for _ in 0..samples {
            self.empty_turn().await?;
            self.empty_work().await?;
        }
        for _ in 0..samples {
            self.full_turn().await?;
            self.full_work().await?;
        }
        Ok(())
    }

    async fn empty_turn(&mut self) -> Outcome<()> {
        let began = now();
        let fetched = self.store.fetch_orchestration_item(LOCK_TIMEOUT, Duration::ZERO, None).await?;
        self.note(0, began);
        if fetched.is_some() { Err("a turn where there should be none".into()) } else { Ok(()) }
    }

    async fn full_turn(&mut self) -> Outcome<()> {
        self.instances += 1;
        let instance = format!("measured-{:06}", self.instances);
        self.store.enqueue_for_orchestrator(life::start(&instance), None).await?;
        let began = now();
        let fetched = self.store.fetch_orchestration_item(LOCK_TIMEOUT, Duration::ZERO, None).await?;
        self.note(1, began);
        let (item, token, _) = fetched.filter(|(item, ..)| item.instance == instance).ok_or("no turn")?;
        let message = item.messages.first().ok_or("no message")?;
        let turn = life::turn_for(message, 0)?;
        let (none, no_messages, no_cancelled) = (Vec::new(), Vec::new(), Vec::new());
        self.store
            .ack_orchestration_item(
                &token,
                life::EXECUTION,
                turn.events,
                none,
                no_messages,
                turn.metadata,
                no_cancelled,
            )
            .await?;
        Ok(())
    }

    async fn empty_work(&mut self) -> Outcome<()> {
        let began = now();
        let fetched =
            self.store.fetch_work_item(LOCK_TIMEOUT, Duration::ZERO, None, &TagFilter::DefaultOnly).await?;
        self.note(2, began);
        if fetched.is_some() { Err("an activity where there should be none".into()) } else { Ok(()) }
    }

    async fn full_work(&mut self) -> Outcome<()> {
        self.store.enqueue_for_worker(life::activity("measured", 3)).await?;
        let began = now();
        let fetched =
            self.store.fetch_work_item(LOCK_TIMEOUT, Duration::ZERO, None, &TagFilter::DefaultOnly).await?;
        self.note(3, began);
        let (_, token, _) = fetched.ok_or("no activity")?;
        self.store.ack_work_item(&token, None).await?;
        Ok(())
    }

    fn note(&mut self, kind: usize, began: Duration) {
        self.taken[kind].push((now() - began).as_secs_f64() * 1e6);
    }
}

fn tabulate(report: &mut Report, subjects: &[Subject]) {
    let Some(empty) = subjects.iter().find(|subject| subject.name == "empty") else { return };
    let mut worst: f64 = 0.0;
    for (kind, title) in KINDS.iter().enumerate() {
        let mut table = Table::new(
            &format!("fetch of a {title} (microseconds)").replace("a activity", "an activity"),
            &["store", "p50", "p99", "p50 / empty", "p99 / empty"],
        );
        for subject in subjects {
            let (p50, p99) = (median(&subject.taken[kind]), percentile(&subject.taken[kind], 99.0));
            let to_empty = ratio(p50, median(&empty.taken[kind]));
            worst = worst.max(to_empty);
            table.row(vec![
                subject.name.into(),
                p50.into(),
                p99.into(),
                to_empty.into(),
                ratio(p99, percentile(&empty.taken[kind], 99.0)).into(),
            ]);
        }
        report.table(table);
    }
    report.goal("every median stays below 2 times that of the empty store", worst, worst < GOAL);
}
