//! Reports this runtime to the store: that it is alive, what it runs, and what it could not do.
//!
//! The report is one small write every few seconds. A store commits it together with other work, so it costs nothing of
//! its own under load. Operators read it; the machinery does not depend on it.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the rows are filled in column by column, as in other crates"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::core::{Core, TARGET};
use crate::model::{
    BUILD_VERSION, Obstacle, QUOTE_LIMIT, RegisteredOrchestration, RunningActivity, ServedTags, WorkerInfo,
    quote, whole_ms,
};
use crate::providers::{Inspector, TagFilter, WorkerReport};

/// How many obstacles a report has at most. More than these tell nothing new.
const MOST_OBSTACLES: usize = 1_000;

/// What a runtime tells about itself, besides its settings.
#[derive(Default)]
pub(crate) struct Observed {
    running: Mutex<HashMap<u64, RunningActivity>>,
    last_run: AtomicU64,
    obstacles: Mutex<HashMap<ObstacleKey, Obstacle>>,
}

/// An instance, its execution, and the activity, if it is about one.
type ObstacleKey = (String, u64, Option<u64>);

impl Observed {
    /// Notes that an activity runs, until the returned guard is dropped.
    pub fn run(self: &Arc<Self>, activity: RunningActivity) -> RunGuard {
        let id = self.last_run.fetch_add(1, Ordering::Relaxed);
        lock(&self.running).insert(id, activity);
        RunGuard { observed: self.clone(), id }
    }

    /// Notes what this runtime could not do, for the next report.
    pub fn meet(&self, obstacle: Obstacle) {
        let mut obstacles = lock(&self.obstacles);
        let key = (obstacle.instance.clone(), obstacle.execution_id, obstacle.activity_id);
        if obstacles.len() < MOST_OBSTACLES || obstacles.contains_key(&key) {
            obstacles.insert(key, obstacle);
        }
    }

    fn take_obstacles(&self) -> Vec<Obstacle> {
        lock(&self.obstacles).drain().map(|(_, obstacle)| obstacle).collect()
    }

    fn longest_running(&self) -> Vec<RunningActivity> {
        let mut running: Vec<RunningActivity> = lock(&self.running).values().cloned().collect();
        running.sort_by_key(|activity| activity.since_ms);
        running.truncate(WorkerInfo::MOST_RUNNING);
        running
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An activity that runs; it counts until this is dropped.
pub(crate) struct RunGuard {
    observed: Arc<Observed>,
    id: u64,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        lock(&self.observed.running).remove(&self.id);
    }
}

impl Core {
    /// Notes an obstacle that this runtime meets again after `delay`.
    pub fn meet_obstacle(&self, mut obstacle: Obstacle, attempts: u32, delay: Duration) {
        let now = self.clock.now_ms();
        obstacle.since_ms = now;
        obstacle.next_try_ms = now.saturating_add(whole_ms(delay));
        obstacle.attempts = attempts;
        // Some come with the payload that the store refused.
        obstacle.reason = quote(&obstacle.reason, QUOTE_LIMIT);
        obstacle.name = quote(&obstacle.name, QUOTE_LIMIT);
        self.observed.meet(obstacle);
    }
}

/// Reports at intervals, if the store takes reports.
pub(crate) async fn run(core: Arc<Core>) {
    let interval = core.options.heartbeat_interval;
    let mut worker = describe(&core);
    while let Some(inspector) = inspector(&core) {
        refresh(&core, &mut worker);
        let report = WorkerReport::new(worker.clone(), core.observed.take_obstacles());
        if let Err(error) = inspector.report(&report).await {
            tracing::debug!(target: TARGET, %error, "heartbeat not stored");
            report.obstacles.into_iter().for_each(|obstacle| core.observed.meet(obstacle));
        }
        core.clock.sleep(interval).await;
    }
}

/// Tells the store that this runtime ends.
pub(crate) async fn retire(core: &Core) {
    if core.options.heartbeat_interval.is_zero() {
        return;
    }
    if let Some(inspector) = inspector(core)
        && let Err(error) = inspector.retire(&core.worker_uid).await
    {
        tracing::debug!(target: TARGET, %error, "end of the runtime not reported");
    }
}

fn inspector(core: &Core) -> Option<&dyn Inspector> {
    core.store.extension().as_inspector()
}

/// What stays the same as long as the runtime lives.
fn describe(core: &Core) -> WorkerInfo {
    let options = &core.options;
    let takes_turns = options.orchestration_concurrency > 0;
    let runs_activities = options.worker_concurrency > 0 && options.worker_tag_filter != TagFilter::None;
    let mut worker = WorkerInfo::default();
    worker.id.clone_from(&core.worker_uid);
    worker.name = options.worker_node_id.clone().unwrap_or_else(|| core.runtime_id.clone());
    worker.host = host();
    worker.process_id = std::process::id();
    worker.version = BUILD_VERSION.to_string();
    worker.started_at_ms = core.clock.now_ms();
    worker.interval_ms = whole_ms(options.heartbeat_interval);
    if takes_turns {
        worker.orchestrations = registered(core);
        worker.turn_slots = clamp(options.orchestration_concurrency);
    }
    if runs_activities {
        worker.activities = core.activities.list_names();
        worker.activities.sort_unstable();
        worker.tags = served(&options.worker_tag_filter);
        worker.activity_slots = clamp(options.worker_concurrency);
    }
    worker
}

/// What changes from report to report.
fn refresh(core: &Core, worker: &mut WorkerInfo) {
    worker.turn_slots_used = clamp(core.turn_capacity.used(core.options.orchestration_concurrency));
    worker.activity_slots_used = clamp(core.slot_queue.used());
    worker.running = core.observed.longest_running();
}

fn registered(core: &Core) -> Vec<RegisteredOrchestration> {
    let mut names = core.orchestrations.list_names();
    names.sort_unstable();
    let of = |name: String| {
        let mut versions = core.orchestrations.list_versions(&name);
        versions.sort_unstable();
        RegisteredOrchestration::new(name, versions.iter().map(ToString::to_string).collect())
    };
    names.into_iter().map(of).collect()
}

fn served(filter: &TagFilter) -> ServedTags {
    let sorted = |tags: &std::collections::HashSet<String>| {
        let mut tags: Vec<String> = tags.iter().cloned().collect();
        tags.sort_unstable();
        tags
    };
    match filter {
        TagFilter::None => ServedTags::default(),
        TagFilter::Any => ServedTags { untagged: true, any: true, tags: Vec::new() },
        TagFilter::DefaultOnly => ServedTags { untagged: true, any: false, tags: Vec::new() },
        TagFilter::Tags(tags) => ServedTags { untagged: false, any: false, tags: sorted(tags) },
        TagFilter::DefaultAnd(tags) => ServedTags { untagged: true, any: false, tags: sorted(tags) },
    }
}

fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The name of this machine, as far as the environment tells it.
fn host() -> String {
    let told = ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let host = told.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    host.map(|host| host.trim().to_string()).unwrap_or_default()
}
