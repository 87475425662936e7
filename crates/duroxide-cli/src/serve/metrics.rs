//! The state of the store as metrics, at `/metrics`.
//!
//! They come from the store's counters, so that any number of workers and of servers tell the same. What workers measure
//! themselves (durations, batches) they export through the `metrics` facade, under the names of the same family.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use duroxide::client::StoreOverview;
use duroxide::providers::{Clock, Count, MinuteRates, StateTotals, SystemClock};
use duroxide::{Client, ClientError};
use tokio::sync::Semaphore;

use super::prometheus::{Kind, Text};

/// How many minutes back rates are read: a scrape less often than this loses some.
const MINUTES: u32 = 60;
/// Rows in quarantine are counted up to so many.
const MOST_ROWS: usize = 1_000;

/// The names and their meanings, in the order in which they are written.
pub const METRICS: [(&str, Kind, &str); 13] = [
    ("duroxide_build_info", Kind::Gauge, "Always 1; the label has the version of the server"),
    ("duroxide_instances", Kind::Gauge, "Instances by state"),
    ("duroxide_active_orchestrations", Kind::Gauge, "Instances that have not ended"),
    (
        "duroxide_orchestration_starts_total",
        Kind::Counter,
        "Instances that began since the server was started",
    ),
    (
        "duroxide_orchestration_completions_total",
        Kind::Counter,
        "Instances that ended since the server was started; cancelled ones are among the failed",
    ),
    ("duroxide_queue_depth", Kind::Gauge, "Messages for instances and activities, by queue, tag and state"),
    (
        "duroxide_queue_oldest_age_seconds",
        Kind::Gauge,
        "How long the first in a queue has been ready; 0 if there is none",
    ),
    ("duroxide_workers", Kind::Gauge, "Workers that are alive"),
    ("duroxide_worker_slots", Kind::Gauge, "Slots of all workers, by kind"),
    ("duroxide_worker_slots_used", Kind::Gauge, "Slots in use, by kind"),
    ("duroxide_history_events", Kind::Gauge, "Events in all histories"),
    ("duroxide_quarantined_rows", Kind::Gauge, "Rows that could not be decoded, at most 1,000"),
    (
        "duroxide_messages_dropped_total",
        Kind::Counter,
        "Messages that were dropped because their instance did not exist",
    ),
];

/// Reads the figures.
pub struct Meter {
    client: Client,
    ended: Mutex<Tally>,
    /// A scraper that is impatient does not make the store busier.
    turn: Semaphore,
}

/// What has been counted of each minute, and in all.
#[derive(Debug, Default)]
struct Tally {
    minutes: BTreeMap<u64, MinuteRates>,
    started: u64,
    completed: u64,
    failed: u64,
    has_begun: bool,
}

/// What one scrape tells.
struct Figures {
    overview: StoreOverview,
    started: u64,
    completed: u64,
    failed: u64,
    quarantined: u64,
    dropped: u64,
    now_ms: u64,
}

impl Meter {
    /// Makes a meter on a store.
    pub fn new(client: Client) -> Self {
        Self { client, ended: Mutex::default(), turn: Semaphore::new(1) }
    }

    /// Reads the figures and writes them down.
    async fn read(&self) -> Result<String, ClientError> {
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await;
        let overview = self.client.overview(MINUTES).await?;
        let quarantined = self.client.list_quarantined(0, MOST_ROWS).await?.len() as u64;
        let dropped = self.client.list_dropped_messages(1).await?.total;
        let (started, completed, failed) = {
            let mut tally = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(&overview.rates);
            (tally.started, tally.completed, tally.failed)
        };
        let now_ms = SystemClock.now_ms();
        Ok(write(&Figures { overview, started, completed, failed, quarantined, dropped, now_ms }))
    }
}

impl Tally {
    /// Adds what is new since the last look. A minute may still grow after it is over; it never shrinks.
    fn add(&mut self, rates: &[MinuteRates]) {
        for rate in rates {
            let seen = self.minutes.insert(rate.minute_ms, *rate).unwrap_or_default();
            if self.has_begun {
                self.started += rate.started.saturating_sub(seen.started);
                self.completed += rate.completed.saturating_sub(seen.completed);
                self.failed += rate.failed.saturating_sub(seen.failed);
            }
        }
        self.has_begun = true;
        if let Some(oldest) = rates.first() {
            self.minutes = self.minutes.split_off(&oldest.minute_ms);
        }
    }
}

/// Answers `/metrics`.
pub fn handler(meter: Arc<Meter>) -> MethodRouter {
    get(move || answer(meter.clone()))
}

async fn answer(meter: Arc<Meter>) -> Response {
    match meter.read().await {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => {
            tracing::warn!(%error, "the metrics cannot be read");
            (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read now\n").into_response()
        }
    }
}

fn write(figures: &Figures) -> String {
    let mut text = Text::default();
    for (name, kind, help) in METRICS {
        text.metric(name, kind, help);
        samples(&mut text, name, figures);
    }
    text.finish()
}

fn samples(text: &mut Text, name: &str, figures: &Figures) {
    let overview = &figures.overview;
    let totals = &overview.totals;
    match name {
        "duroxide_build_info" => {
            text.sample(name, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        }
        "duroxide_instances" => {
            for (state, count) in totals.by_state() {
                text.sample(name, &[("state", state.as_str())], number(count));
            }
        }
        "duroxide_active_orchestrations" => {
            text.sample(name, &[], active(totals));
        }
        "duroxide_orchestration_starts_total" => {
            text.sample(name, &[], figures.started as f64);
        }
        "duroxide_orchestration_completions_total" => {
            text.sample(name, &[("status", "success")], figures.completed as f64);
            text.sample(name, &[("status", "failed")], figures.failed as f64);
        }
        "duroxide_queue_depth" => {
            for queue in &overview.queues {
                let tag = queue.tag.as_deref().unwrap_or_default();
                for (state, count) in
                    [("ready", queue.ready), ("leased", queue.leased), ("delayed", queue.delayed)]
                {
                    text.sample(
                        name,
                        &[("queue", &queue.queue), ("tag", tag), ("state", state)],
                        number(count),
                    );
                }
            }
        }
        "duroxide_queue_oldest_age_seconds" => {
            for queue in &overview.queues {
                let tag = queue.tag.as_deref().unwrap_or_default();
                let age = queue.oldest_ready_ms.map_or(0, |since| figures.now_ms.saturating_sub(since));
                text.sample(name, &[("queue", &queue.queue), ("tag", tag)], age as f64 / 1_000.0);
            }
        }
        "duroxide_workers" => {
            text.sample(name, &[], overview.workers.len() as f64);
        }
        "duroxide_worker_slots" => {
            let sum = |pick: fn(&duroxide::model::WorkerInfo) -> u32| -> f64 {
                overview.workers.iter().map(|worker| f64::from(pick(worker))).sum()
            };
            text.sample(name, &[("kind", "turns")], sum(|worker| worker.turn_slots));
            text.sample(name, &[("kind", "activities")], sum(|worker| worker.activity_slots));
        }
        "duroxide_worker_slots_used" => {
            let sum = |pick: fn(&duroxide::model::WorkerInfo) -> u32| -> f64 {
                overview.workers.iter().map(|worker| f64::from(pick(worker))).sum()
            };
            text.sample(name, &[("kind", "turns")], sum(|worker| worker.turn_slots_used));
            text.sample(name, &[("kind", "activities")], sum(|worker| worker.activity_slots_used));
        }
        "duroxide_history_events" => {
            text.sample(name, &[], totals.events as f64);
        }
        "duroxide_quarantined_rows" => {
            text.sample(name, &[], figures.quarantined as f64);
        }
        _ => {
            text.sample(name, &[], figures.dropped as f64);
        }
    }
}

/// Instances that have not ended: an exact number, and those that wait for their first turn.
fn active(totals: &StateTotals) -> f64 {
    totals.live() as f64 + number(totals.pending)
}

fn number(count: Count) -> f64 {
    count.value as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use std::collections::BTreeSet;

    use duroxide::providers::memory::MemoryProvider;

    use super::*;

    fn rates(minute_ms: u64, started: u64, completed: u64, failed: u64) -> MinuteRates {
        let rates = serde_json::json!({
            "minute_ms": minute_ms, "started": started, "completed": completed, "failed": failed
        });
        serde_json::from_value(rates).unwrap()
    }

    #[test]
    fn counters_count_what_is_new_since_the_server_was_started() {
        let mut tally = Tally::default();
        tally.add(&[rates(0, 5, 5, 5), rates(60_000, 1, 1, 0)]);
        assert_eq!(
            (tally.started, tally.completed, tally.failed),
            (0, 0, 0),
            "what was before does not count"
        );
        tally.add(&[rates(0, 5, 5, 5), rates(60_000, 4, 2, 1)]);
        assert_eq!((tally.started, tally.completed, tally.failed), (3, 1, 1));
        tally.add(&[rates(60_000, 4, 3, 1), rates(120_000, 7, 0, 0)]);
        assert_eq!(
            (tally.started, tally.completed, tally.failed),
            (10, 2, 1),
            "a minute may grow after its end"
        );
        assert_eq!(tally.minutes.len(), 2, "older minutes are forgotten");
    }

    #[tokio::test]
    async fn every_metric_is_described_and_has_samples() {
        let meter = Meter::new(Client::new(Arc::new(MemoryProvider::new())));
        let text = meter.read().await.unwrap();
        for (name, _, help) in METRICS {
            assert!(text.contains(&format!("# HELP {name} {help}\n# TYPE {name} ")), "{text}");
        }
        for line in [
            "duroxide_instances{state=\"blocked\"} 0",
            "duroxide_workers 0",
            "duroxide_active_orchestrations 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok() && series.starts_with("duroxide_"), "{line}");
        }
    }

    /// The names in a text.
    fn names(text: &str) -> BTreeSet<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c: char| !is_part(c));
        words.filter(|word| word.starts_with("duroxide_")).map(str::to_string).collect()
    }

    #[test]
    fn the_dashboard_for_grafana_uses_exactly_these_names() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        let ours: BTreeSet<String> = METRICS.into_iter().map(|(name, ..)| name.to_string()).collect();
        let dashboard = read("docs/grafana-dashboard.json");
        serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
        assert_eq!(names(&dashboard), ours);
        let documented = read("docs/operate.md");
        for name in &ours {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not in docs/operate.md");
        }
    }

    /// Every server tells the figures of the whole store, so a sum of two servers is twice as much as there is.
    #[test]
    fn the_dashboard_for_grafana_does_not_add_up_what_several_servers_tell() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let dashboard = std::fs::read_to_string(root.join("docs/grafana-dashboard.json")).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
        assert!(queries.len() > 10, "{queries:?}");
        for query in queries {
            let is_one = query.starts_with("max(") || query.starts_with("max by ");
            let adds_up =
                ["sum(", "sum by", "sum without", "count(", "avg("].iter().any(|word| query.contains(word));
            assert!(is_one && !adds_up, "{query}");
        }
    }
}
