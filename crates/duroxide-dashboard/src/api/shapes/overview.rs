//! The whole store at a glance: rates, queues, workers, trouble.

use duroxide::client::StoreOverview;
use duroxide::model::WorkerInfo;
use duroxide::providers::QueueState;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Counted, State};

/// How many instances are in a state.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct StateCount {
    pub(crate) state: State,
    #[serde(flatten)]
    pub(crate) counted: Counted,
}

/// What happened in a minute.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Rate {
    /// When the minute began, in milliseconds since the epoch.
    pub(crate) minute_ms: u64,
    pub(crate) started: u64,
    pub(crate) completed: u64,
    /// Failed or cancelled.
    pub(crate) failed: u64,
}

/// A queue of work.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Queue {
    /// `orchestrator` or `worker`.
    pub(crate) queue: String,
    pub(crate) tag: Option<String>,
    /// What could be taken now.
    pub(crate) ready: Counted,
    /// What a worker holds.
    pub(crate) leased: Counted,
    /// What is for later.
    pub(crate) delayed: Counted,
    /// When the oldest ready message came, in milliseconds since the epoch.
    pub(crate) oldest_ready_ms: Option<u64>,
    /// How many workers serve it, if known.
    pub(crate) workers: Option<u32>,
}

impl From<QueueState> for Queue {
    fn from(state: QueueState) -> Self {
        Self {
            queue: state.queue,
            tag: state.tag,
            ready: state.ready.into(),
            leased: state.leased.into(),
            delayed: state.delayed.into(),
            oldest_ready_ms: state.oldest_ready_ms,
            workers: state.workers,
        }
    }
}

/// A program that takes turns and runs activities.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) process_id: u32,
    pub(crate) version: String,
    pub(crate) started_at_ms: u64,
    pub(crate) last_seen_ms: u64,
    /// Whether it reported lately.
    pub(crate) is_alive: bool,
    /// The registered orchestrations, each with its versions.
    pub(crate) orchestrations: Vec<String>,
    pub(crate) activities: Vec<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) turn_slots: u32,
    pub(crate) turns_in_use: u32,
    pub(crate) activity_slots: u32,
    pub(crate) activities_in_use: u32,
    /// What it runs right now.
    pub(crate) running: Vec<Running>,
}

/// An activity that a worker runs.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Running {
    pub(crate) instance: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) since_ms: u64,
}

impl Worker {
    pub(crate) fn of(info: WorkerInfo, now_ms: u64) -> Self {
        let is_alive = info.is_alive(now_ms);
        let named = |one: duroxide::model::RegisteredOrchestration| match one.versions.is_empty() {
            true => one.name,
            false => format!("{} {}", one.name, one.versions.join(", ")),
        };
        let mut tags = info.tags.tags;
        if info.tags.any {
            tags.push("any tag".to_string());
        }
        let running = info.running.into_iter();
        Self {
            is_alive,
            id: info.id,
            name: info.name,
            host: info.host,
            process_id: info.process_id,
            version: info.version,
            started_at_ms: info.started_at_ms,
            last_seen_ms: info.last_seen_ms,
            orchestrations: info.orchestrations.into_iter().map(named).collect(),
            activities: info.activities,
            tags,
            turn_slots: info.turn_slots,
            turns_in_use: info.turn_slots_used,
            activity_slots: info.activity_slots,
            activities_in_use: info.activity_slots_used,
            running: running
                .map(|one| Running {
                    instance: one.instance,
                    name: one.name,
                    attempt: one.attempt,
                    since_ms: one.since_ms,
                })
                .collect(),
        }
    }
}

/// All workers that reported lately.
#[derive(Serialize, ToSchema)]
pub(crate) struct Workers {
    pub(crate) workers: Vec<Worker>,
}

/// Ready activities that no live worker serves.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Unserved {
    pub(crate) tag: Option<String>,
    pub(crate) ready: Counted,
    /// Some of the instances that wait for them.
    pub(crate) instances: Vec<String>,
}

/// An orchestration of which instances failed lately or are blocked.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Trouble {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Among the newest thousand that failed.
    pub(crate) failed: u64,
    /// Among the newest thousand that are blocked.
    pub(crate) blocked: u64,
}

/// The whole store at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Overview {
    /// The store's time, in milliseconds since the epoch.
    pub(crate) now_ms: u64,
    pub(crate) states: Vec<StateCount>,
    pub(crate) instances: u64,
    pub(crate) executions: u64,
    pub(crate) events: u64,
    /// The last sixty minutes, oldest first, none left out.
    pub(crate) rates: Vec<Rate>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) trouble: Vec<Trouble>,
    /// Activities that no live worker serves, by tag.
    pub(crate) unserved: Vec<Unserved>,
    /// The orchestrations that workers have registered.
    pub(crate) orchestrations: Vec<String>,
    /// Rows that were set aside because they do not decode; null if the store cannot tell now.
    pub(crate) quarantined: Option<Counted>,
}

/// How many minutes an overview looks back.
pub(crate) const MINUTES: u32 = 60;
const MINUTE_MS: u64 = 60_000;

impl Overview {
    pub(crate) fn of(overview: StoreOverview, quarantined: Option<Counted>, now_ms: u64) -> Self {
        let totals = overview.totals;
        let states = totals.by_state();
        let mut orchestrations: Vec<String> = overview
            .workers
            .iter()
            .flat_map(|worker| worker.orchestrations.iter().map(|registered| registered.name.clone()))
            .collect();
        orchestrations.sort();
        orchestrations.dedup();
        let this_minute = now_ms / MINUTE_MS;
        let rates = (0..u64::from(MINUTES)).rev().map(|back| {
            let minute_ms = this_minute.saturating_sub(back) * MINUTE_MS;
            let known =
                overview.rates.iter().find(|rate| rate.minute_ms / MINUTE_MS == minute_ms / MINUTE_MS);
            let of =
                |count: fn(&duroxide::providers::MinuteRates) -> u64| known.map(count).unwrap_or_default();
            Rate {
                minute_ms,
                started: of(|rate| rate.started),
                completed: of(|rate| rate.completed),
                failed: of(|rate| rate.failed),
            }
        });
        Self {
            now_ms,
            states: states
                .into_iter()
                .map(|(state, count)| StateCount { state: state.into(), counted: count.into() })
                .collect(),
            instances: totals.instances,
            executions: totals.executions,
            events: totals.events,
            rates: rates.collect(),
            queues: overview.queues.into_iter().map(Queue::from).collect(),
            workers: overview.workers.into_iter().map(|worker| Worker::of(worker, now_ms)).collect(),
            trouble: overview
                .troubled
                .into_iter()
                .take(20)
                .map(|one| Trouble {
                    name: one.name,
                    version: one.version,
                    failed: one.failed,
                    blocked: one.blocked,
                })
                .collect(),
            unserved: overview
                .unserved
                .into_iter()
                .map(|one| Unserved { tag: one.tag, ready: one.ready.into(), instances: one.instances })
                .collect(),
            orchestrations,
            quarantined,
        }
    }
}
