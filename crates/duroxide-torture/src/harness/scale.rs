//! `scale`: much of one thing, on a SQLite file. Memory stays bounded, nothing is lost, and others hardly notice.
//!
//! The seed decides what there is much of; `--scale` decides how much: 1 is a million instances, 0.01 is what the short tier
//! does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{Clock, StoreLimits, SystemClock};
use duroxide::runtime::Runtime;
use duroxide::{
    ActivityContext, ActivityRegistry, Client, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus, RuntimeOptions,
};
use tokio::task::JoinSet;

use super::soak::resident_bytes;
use super::{Harness, Tier};
use crate::checker::{Invariant, Violation};
use crate::report::{Figures, Trial};

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "scale",
    about: "many instances, timers, slow activities, events and messages, and payloads at the limit",
    trial,
    twins: &["remembers-every-instance"],
    twin_trials: 1,
    ci: Tier { trials: KINDS, time_limit: Duration::from_secs(60) },
    nightly: Tier { trials: KINDS, time_limit: Duration::from_secs(2 * 60 * 60) },
    is_parallel: false,
};

/// How much of everything, in millionths; the command line sets it.
pub static MILLIONTHS: AtomicU64 = AtomicU64::new(10_000);

const KINDS: u64 = 6;
/// What the runtime may keep of instances between their turns.
const RESIDENT_BYTES: usize = 16 << 20;
/// How much this process may grow, however much there is.
const MOST_MEMORY: u64 = 200 << 20;
/// What the writer may do in a second in which nobody wants anything: it tells how it is, and looks for other processes.
const MOST_IDLE_STATEMENTS: u64 = 50;
/// How long an instance beside the many may take, beyond ten times of what it took before.
const MOST_DELAY: Duration = Duration::from_millis(250);
/// How many calls are under way at once.
const AT_ONCE: usize = 256;
const LEASE: Duration = Duration::from_secs(2);
/// Longer than a lease.
const SLOW: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60 * 60);

fn scaled(full: u64) -> u64 {
    (full * MILLIONTHS.load(Ordering::Relaxed) / 1_000_000).max(1)
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let is_leaky = twin.is_some();
    runtime.block_on(async {
        let mut world = World::open().await;
        match if is_leaky { 0 } else { seed % KINDS } {
            0 => world.many_instances("Waits", "instances", is_leaky).await,
            1 => world.many_instances("Sleeps", "sleeping_timers", false).await,
            2 => world.many_slow_activities().await,
            3 => world.a_long_history().await,
            4 => world.many_messages().await,
            _ => world.large_payloads().await,
        }
        world.end().await
    })
}

/// A store in use, and what is found there.
struct World {
    directory: tempfile::TempDir,
    runtime: Arc<Runtime>,
    store: Arc<SqliteProvider>,
    client: Client,
    runs: Arc<AtomicU64>,
    memory_before: u64,
    violations: Vec<Violation>,
    figures: Figures,
}

impl World {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let limits = StoreLimits { max_payload_bytes: limit(), ..StoreLimits::default() };
        let url = format!("sqlite:{}?mode=rwc", directory.path().join("store.db").display());
        let store = Arc::new(SqliteProvider::builder().limits(limits).open(&url).await.unwrap());
        let runs = Arc::<AtomicU64>::default();
        let runtime = start(store.clone(), runs.clone()).await;
        let client = Client::new(store.clone());
        let (violations, figures) = (Vec::new(), Figures::new());
        Self { directory, runtime, store, client, runs, memory_before: resident_bytes(), violations, figures }
    }

    fn breach(&mut self, invariant: Invariant, what: String) {
        self.violations.push(Violation::of_store(invariant, what));
    }

    /// Looks at the memory, and ends.
    async fn end(mut self) -> Trial {
        let grown = resident_bytes().saturating_sub(self.memory_before);
        if grown > MOST_MEMORY {
            self.breach(Invariant::Liveness, format!("memory grew by {grown} bytes"));
        }
        self.runtime.clone().shutdown(Some(0)).await;
        self.figures.insert("most_memory_growth_bytes", grown);
        let file = self.directory.path().join("store.db");
        self.figures.insert("most_file_bytes", std::fs::metadata(file).map_or(0, |file| file.len()));
        Trial::new(self.violations, self.figures)
    }

    /// How long an instance takes that has nothing to do with the many: the median of a few.
    async fn neighbour(&mut self, name: &'static str) -> Duration {
        let mut times = Vec::new();
        for number in 0..9 {
            let instance = format!("{name}-{number}");
            let begin = SystemClock.monotonic();
            self.client.start_orchestration(&instance, "Neighbour", "").await.unwrap();
            self.client.wait_for_orchestration(&instance, PATIENCE).await.unwrap();
            times.push(SystemClock.monotonic() - begin);
        }
        times.sort_unstable();
        let median = times[times.len() / 2];
        self.figures.insert(name, median.as_micros() as u64);
        median
    }

    /// Compares a neighbour's time with the time before.
    async fn disturbed_by(&mut self, what: &str, before: Duration) {
        let after = self.neighbour("longest_neighbour_beside_us").await;
        if after > before * 10 + MOST_DELAY {
            let text = format!("an instance beside {what} took {after:?} instead of {before:?}");
            self.breach(Invariant::Liveness, text);
        }
    }

    /// Starts many instances that then wait.
    async fn many_instances(&mut self, orchestration: &'static str, figure: &'static str, is_leaky: bool) {
        let count = scaled(1_000_000);
        let before = self.neighbour("longest_neighbour_alone_us").await;
        let mut remembered = Vec::new();
        let mut calls = JoinSet::new();
        for number in 0..count {
            if is_leaky {
                remembered.push(vec![1_u8; (2 * MOST_MEMORY / count) as usize]);
            }
            if calls.len() >= AT_ONCE {
                calls.join_next().await;
            }
            let client = self.client.clone();
            calls.spawn(async move {
                client.start_orchestration(&format!("i{number}"), orchestration, "").await.unwrap();
            });
        }
        calls.join_all().await;
        self.until_begun(count).await;
        self.disturbed_by(figure, before).await;
        let before = self.store.work_done().statements;
        SystemClock.sleep(Duration::from_secs(1)).await;
        let idle = self.store.work_done().statements - before;
        if idle > MOST_IDLE_STATEMENTS {
            self.breach(Invariant::Liveness, format!("{idle} statements in a second of doing nothing"));
        }
        let known = self.client.get_system_metrics().await.unwrap().running_instances;
        if known != count {
            self.breach(Invariant::NothingLost, format!("{known} instead of {count} instances run"));
        }
        self.figures.insert("most_idle_statements", idle);
        self.figures.insert(figure, count);
        let grown = resident_bytes().saturating_sub(self.memory_before);
        self.figures.insert("most_memory_growth_bytes", grown);
        if grown > MOST_MEMORY {
            self.breach(
                Invariant::Liveness,
                format!("memory grew by {grown} bytes for {} kept", remembered.len()),
            );
        }
    }

    /// Waits until the last instances have had their first turn, too.
    async fn until_begun(&self, count: u64) {
        for number in count.saturating_sub(AT_ONCE as u64)..count {
            let instance = format!("i{number}");
            while self.client.read_execution_history(&instance, 1).await.unwrap().len() < 2 {
                SystemClock.sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Many activities that take longer than their leases: each runs once.
    async fn many_slow_activities(&mut self) {
        let count = scaled(10_000);
        let before = self.neighbour("longest_neighbour_alone_us").await;
        self.client.start_orchestration("slow", "Slow", count.to_string()).await.unwrap();
        self.disturbed_by("slow activities", before).await;
        self.expect("slow", "done").await;
        let runs = self.runs.load(Ordering::Relaxed);
        if runs != count {
            self.breach(Invariant::Ledger, format!("{count} activities ran {runs} times"));
        }
        self.figures.insert("slow_activities", count);
    }

    /// An instance with a long history goes on in a process that has to read it first.
    async fn a_long_history(&mut self) {
        let events = scaled(100_000);
        let before = self.neighbour("longest_neighbour_alone_us").await;
        self.client.start_orchestration("long", "Long", (events / 2).to_string()).await.unwrap();
        self.disturbed_by("a long history", before).await;
        let patience = self.client.wait_for_kv_value("long", "is_long", PATIENCE).await;
        patience.unwrap();
        self.runtime.clone().shutdown(Some(1_000)).await;
        self.runtime = start(self.store.clone(), self.runs.clone()).await;
        let begin = SystemClock.monotonic();
        self.client.enqueue_event("long", "go", "on").await.unwrap();
        self.expect("long", "on").await;
        let took = SystemClock.monotonic() - begin;
        self.figures.insert("longest_turn_after_a_restart_ms", took.as_millis() as u64);
        self.figures.insert("events", events);
    }

    /// Messages for an instance wait for a process, which then takes them in order.
    async fn many_messages(&mut self) {
        let count = scaled(100_000);
        let before = self.neighbour("longest_neighbour_alone_us").await;
        self.client.start_orchestration("full", "Takes", count.to_string()).await.unwrap();
        self.runtime.clone().shutdown(Some(1_000)).await;
        for number in 0..count {
            self.client.enqueue_event("full", "inbox", number.to_string()).await.unwrap();
        }
        self.runtime = start(self.store.clone(), self.runs.clone()).await;
        self.disturbed_by("many messages", before).await;
        self.expect("full", &count.to_string()).await;
        self.figures.insert("messages", count);
    }

    /// What is as large as allowed goes through; what is larger is refused, and leaves nothing behind.
    async fn large_payloads(&mut self) {
        // Room for what is stored beside the payload.
        let largest = limit() - 2_048;
        let before = self.neighbour("longest_neighbour_alone_us").await;
        let text = "x".repeat(largest);
        self.client.start_orchestration("large", "Echoes", text.as_str()).await.unwrap();
        self.disturbed_by("large payloads", before).await;
        self.expect("large", &text).await;
        let begin = SystemClock.monotonic();
        let refused = self.client.start_orchestration("too-large", "Echoes", "x".repeat(limit())).await;
        let took = SystemClock.monotonic() - begin;
        let status = self.client.get_orchestration_status("too-large").await.unwrap();
        if refused.is_ok() || !matches!(status, OrchestrationStatus::NotFound) {
            self.breach(Invariant::LoudFailure, format!("too large, and {refused:?}; it is now {status:?}"));
        }
        self.figures.insert("longest_refusal_us", took.as_micros() as u64);
        self.figures.insert("payload_bytes", largest as u64);
    }

    async fn expect(&mut self, instance: &str, expected: &str) {
        let status = self.client.wait_for_orchestration(instance, PATIENCE).await.unwrap();
        match status {
            OrchestrationStatus::Completed { output, .. } if output == expected => {}
            OrchestrationStatus::Completed { output, .. } => {
                let start: String = output.chars().take(80).collect();
                self.breach(Invariant::RightAnswer, format!("{instance} ended with {start:?}"));
            }
            other => self.breach(Invariant::RightAnswer, format!("{instance} ended as {other:?}")),
        }
    }
}

/// The largest payload that the store takes.
fn limit() -> usize {
    let full = StoreLimits::default().max_payload_bytes;
    (scaled(full as u64) as usize).max(64 << 10)
}

async fn start(store: Arc<SqliteProvider>, runs: Arc<AtomicU64>) -> Arc<Runtime> {
    let activities = ActivityRegistry::builder()
        .register("Echo", |_: ActivityContext, text: String| async move { Ok(text) })
        .register("Slow", move |_: ActivityContext, _: String| {
            runs.fetch_add(1, Ordering::Relaxed);
            async {
                SystemClock.sleep(SLOW).await;
                Ok(String::new())
            }
        })
        .build();
    let options = RuntimeOptions {
        worker_concurrency: 10_000,
        worker_lock_timeout: LEASE,
        resident_bytes: Some(RESIDENT_BYTES),
        ..RuntimeOptions::default()
    };
    Runtime::start_with_options(store, activities, code(), options).await
}

fn code() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Neighbour", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_timer(Duration::from_millis(1)).await;
            Ok(String::new())
        })
        .register("Waits", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("never").await)
        })
        .register("Sleeps", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_timer(Duration::from_secs(24 * 60 * 60)).await;
            Ok(String::new())
        })
        .register("Slow", |ctx: OrchestrationContext, count: String| async move {
            let count: u64 = count.parse().unwrap_or_default();
            ctx.join((0..count).map(|_| ctx.schedule_activity("Slow", "")).collect()).await;
            Ok("done".to_string())
        })
        .register("Long", |ctx: OrchestrationContext, activities: String| async move {
            let activities: u64 = activities.parse().unwrap_or_default();
            for _ in 0..activities.div_ceil(100) {
                ctx.join((0..100).map(|_| ctx.schedule_activity("Echo", "")).collect()).await;
            }
            ctx.set_kv_value("is_long", "yes");
            let go = ctx.dequeue_event("go").await;
            ctx.schedule_activity("Echo", go).await
        })
        .register("Takes", |ctx: OrchestrationContext, count: String| async move {
            let count: u64 = count.parse().unwrap_or_default();
            for number in 0..count {
                let message = ctx.dequeue_event("inbox").await;
                if message != number.to_string() {
                    return Err(format!("{message} came instead of {number}"));
                }
            }
            Ok(count.to_string())
        })
        .register("Echoes", |ctx: OrchestrationContext, text: String| async move {
            ctx.schedule_activity("Echo", text).await
        })
        .build()
}
