//! A store whose fetches are measured, and the tables that compare several.

use std::sync::Arc;
use std::time::Duration;

use duroxide::TagFilter;
use duroxide::providers::Provider;

use crate::report::{Report, Table};
use crate::stats::{median, now, percentile, ratio};
use crate::{Outcome, life};

const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const KINDS: [&str; 4] =
    ["turn, none there", "turn, one there", "activity, none there", "activity, one there"];

/// A store, and how long fetches took on it, in microseconds, by kind.
pub struct Subject {
    pub name: &'static str,
    store: Arc<dyn Provider>,
    taken: [Vec<f64>; KINDS.len()],
    instances: u64,
}

impl Subject {
    pub fn new(name: &'static str, store: Arc<dyn Provider>) -> Self {
        Self { name, store, taken: Default::default(), instances: 0 }
    }

    /// Takes so many samples of each kind.
    pub async fn measure(&mut self, samples: usize) -> Outcome<()> {
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

/// Compares the stores with the one that is called `empty`; `goal` is how many times its median another's may be.
pub fn tabulate(report: &mut Report, subjects: &[Subject], goal: f64) {
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
    let text = format!("every median stays below {goal} times that of the empty store");
    report.goal(&text, worst, worst < goal);
}
