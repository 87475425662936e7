//! What the API answers, as types. The OpenAPI document and the front end's types come from here.

use duroxide::InstanceState;
use duroxide::client::{InstanceDescription, StoreOverview};
use duroxide::model::{ActivityStage, EventView, WaitFor, WorkerInfo};
use duroxide::providers::{Count, ExecutionSummary, QueueState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most bytes of a payload that an overview of it carries.
pub(crate) const CUT: usize = 2_000;

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Pending,
    Running,
    Waiting,
    Blocked,
    Completed,
    Failed,
    Cancelled,
    Continued,
}

impl From<InstanceState> for State {
    fn from(state: InstanceState) -> Self {
        match state {
            InstanceState::Pending => Self::Pending,
            InstanceState::Waiting => Self::Waiting,
            InstanceState::Blocked => Self::Blocked,
            InstanceState::Completed => Self::Completed,
            InstanceState::Failed => Self::Failed,
            InstanceState::Cancelled => Self::Cancelled,
            InstanceState::Continued => Self::Continued,
            _ => Self::Running,
        }
    }
}

/// A payload, or its beginning.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Payload {
    /// The text, as it is stored.
    pub(crate) text: String,
    /// How long it is; if it was cut, how much of it is here.
    pub(crate) bytes: u64,
    /// Whether there is more.
    pub(crate) cut: bool,
}

impl Payload {
    /// A payload that the store has cut to at most `cut` bytes, never inside a character.
    pub(crate) fn cut_at(text: String, cut: usize) -> Self {
        let is_cut = text.len().saturating_add(4) > cut;
        Self { bytes: text.len() as u64, cut: is_cut, text }
    }

    /// A payload whose whole length is known.
    pub(crate) fn of(text: String, bytes: u64) -> Self {
        let cut = (text.len() as u64) < bytes;
        Self { text, bytes, cut }
    }
}

/// What the pages need to know first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Meta {
    /// The version of the package.
    pub(crate) version: String,
    /// The store, as the operator named it.
    pub(crate) store: String,
    /// What the sender of this request may do.
    pub(crate) access: AccessWord,
    /// Whether there is a worker to crash.
    pub(crate) crash: bool,
    /// The store's time, in milliseconds since the epoch.
    pub(crate) now_ms: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AccessWord {
    Read,
    Full,
}

/// An instance in a list.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct InstanceRow {
    pub(crate) id: String,
    /// The orchestration.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) state: State,
    pub(crate) execution: u64,
    pub(crate) parent: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) custom_status: Option<String>,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
    /// The error of a failed instance, or what an instance of this view waits for.
    pub(crate) reason: Option<String>,
}

impl From<duroxide::providers::InstanceRow> for InstanceRow {
    fn from(row: duroxide::providers::InstanceRow) -> Self {
        let state = State::from(row.state);
        let is_error = matches!(state, State::Failed | State::Cancelled);
        Self {
            id: row.instance,
            name: row.name,
            version: row.version,
            state,
            execution: row.execution_id,
            parent: row.parent,
            root: row.root,
            custom_status: row.custom_status,
            created_at_ms: row.created_at_ms,
            updated_at_ms: row.completed_at_ms.unwrap_or(row.updated_at_ms),
            reason: row.output.filter(|_| is_error),
        }
    }
}

/// A number that is exact, or a bound that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub(crate) struct Counted {
    pub(crate) count: u64,
    /// Whether there are more than that.
    pub(crate) is_more: bool,
}

impl From<Count> for Counted {
    fn from(count: Count) -> Self {
        Self { count: count.value, is_more: !count.is_exact }
    }
}

/// A page of instances.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstancePage {
    pub(crate) instances: Vec<InstanceRow>,
    /// Where the next page begins. A page may be short, even empty, and still have one.
    pub(crate) next: Option<String>,
    /// How many instances pass the filter, if asked for.
    pub(crate) count: Option<Counted>,
}

/// A list of instances that needs no pages.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstanceList {
    pub(crate) instances: Vec<InstanceRow>,
}

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

/// An orchestration of which instances failed lately or are blocked.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Trouble {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) failed: u64,
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
    /// The orchestrations that workers have registered.
    pub(crate) orchestrations: Vec<String>,
    /// Rows that were set aside because they do not decode, up to a hundred.
    pub(crate) quarantined: u64,
}

/// How many minutes an overview looks back.
pub(crate) const MINUTES: u32 = 60;
const MINUTE_MS: u64 = 60_000;

impl Overview {
    pub(crate) fn of(overview: StoreOverview, quarantined: u64, now_ms: u64) -> Self {
        let totals = overview.totals;
        let states = [
            (State::Pending, totals.pending),
            (State::Running, totals.running),
            (State::Waiting, totals.waiting),
            (State::Blocked, totals.blocked),
            (State::Completed, totals.completed),
            (State::Failed, totals.failed),
            (State::Cancelled, totals.cancelled),
            (State::Continued, totals.continued),
        ];
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
                .map(|(state, count)| StateCount { state, counted: count.into() })
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
            orchestrations,
            quarantined,
        }
    }
}

/// The kinds of things to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitKind {
    Activity,
    Timer,
    Signal,
    Queue,
    Child,
}

/// Something that an instance waits for.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Wait {
    pub(crate) kind: WaitKind,
    /// The event that asked for it.
    pub(crate) event_id: u64,
    /// Of the activity, signal, queue or child; empty for a timer.
    pub(crate) name: String,
    pub(crate) since_ms: u64,
    /// When a timer is due.
    pub(crate) until_ms: Option<u64>,
    /// How far an activity is: `queued`, `delayed`, `running`, `finished` or `missing`.
    pub(crate) stage: Option<String>,
    /// Since when an activity runs.
    pub(crate) running_since_ms: Option<u64>,
    /// When a delayed activity is tried next.
    pub(crate) next_attempt_ms: Option<u64>,
    pub(crate) attempt: Option<u32>,
    /// How often the same activity failed before.
    pub(crate) earlier_failures: Option<u32>,
    pub(crate) tag: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) lease_until_ms: Option<u64>,
    pub(crate) last_error: Option<String>,
    pub(crate) child: Option<String>,
    pub(crate) child_state: Option<State>,
}

impl From<duroxide::model::Wait> for Wait {
    fn from(wait: duroxide::model::Wait) -> Self {
        let mut view = Self {
            kind: WaitKind::Activity,
            event_id: wait.event_id,
            name: String::new(),
            since_ms: wait.since_ms,
            until_ms: None,
            stage: None,
            running_since_ms: None,
            next_attempt_ms: None,
            attempt: None,
            earlier_failures: None,
            tag: None,
            session: None,
            worker: None,
            lease_until_ms: None,
            last_error: None,
            child: None,
            child_state: None,
        };
        match wait.what {
            WaitFor::Activity(activity) => {
                let is_running = activity.stage == ActivityStage::Running;
                view.name = activity.name;
                view.stage = Some(stage_word(activity.stage).to_string());
                view.running_since_ms = activity.stage_since_ms.filter(|_| is_running);
                view.next_attempt_ms = activity.delayed_until_ms;
                view.attempt = Some(activity.attempt);
                view.earlier_failures = Some(activity.earlier_failures);
                view.tag = activity.tag;
                view.session = activity.session_id;
                view.worker = activity.leased_by;
                view.lease_until_ms = activity.leased_until_ms;
                view.last_error = activity.last_error;
            }
            WaitFor::Timer { until_ms } => {
                view.kind = WaitKind::Timer;
                view.until_ms = Some(until_ms);
            }
            WaitFor::Signal { name } => {
                view.kind = WaitKind::Signal;
                view.name = name;
            }
            WaitFor::Queue { name } => {
                view.kind = WaitKind::Queue;
                view.name = name;
            }
            WaitFor::Child { instance, name, state } => {
                view.kind = WaitKind::Child;
                view.name = name;
                view.child = Some(instance);
                view.child_state = state.map(State::from);
            }
            _ => {}
        }
        view
    }
}

fn stage_word(stage: ActivityStage) -> &'static str {
    match stage {
        // One whose result comes from elsewhere is looked at again at a later time, too.
        ActivityStage::Delayed | ActivityStage::Awaited => "delayed",
        ActivityStage::Running => "running",
        ActivityStage::Finished => "finished",
        ActivityStage::Missing => "missing",
        _ => "queued",
    }
}

/// An instance, described.
#[derive(Serialize, ToSchema)]
pub(crate) struct Instance {
    #[serde(flatten)]
    pub(crate) row: InstanceRow,
    /// Events of the current execution.
    pub(crate) events: u64,
    pub(crate) input: Option<Payload>,
    /// The result, or the text of the error.
    pub(crate) output: Option<Payload>,
    /// What it waits for.
    pub(crate) waits: Vec<Wait>,
    /// Whether these are all: of a very long history only the newest part is looked at.
    pub(crate) waits_are_complete: bool,
    /// How often its waiting messages were delivered.
    pub(crate) attempts: u32,
    pub(crate) last_errors: Vec<String>,
    pub(crate) queued_messages: u64,
    /// When a blocked instance is tried again by itself.
    pub(crate) next_try_ms: Option<u64>,
}

impl From<InstanceDescription> for Instance {
    fn from(about: InstanceDescription) -> Self {
        let output = about.row.output.clone().map(|text| Payload::cut_at(text, CUT));
        let mut row = InstanceRow::from(about.row);
        let next_try_ms = about.blocked.as_ref().and_then(|blocked| blocked.next_try_ms);
        if let Some(blocked) = &about.blocked {
            row.reason = Some(blocked.reason.sentence());
        }
        Self {
            row,
            events: about.event_count,
            input: about.input.map(|text| Payload::cut_at(text, CUT)),
            output,
            waits: about.waits.into_iter().map(Wait::from).collect(),
            waits_are_complete: about.waits_are_complete,
            attempts: about.attempts,
            last_errors: about.last_errors,
            queued_messages: about.queued_messages,
            next_try_ms,
        }
    }
}

/// An event of a history.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventRow {
    pub(crate) event_id: u64,
    /// The event that asked for what this one ends.
    pub(crate) source_event_id: Option<u64>,
    pub(crate) timestamp_ms: u64,
    /// The kind as it is stored: `ActivityScheduled`, for example.
    pub(crate) kind: String,
    /// Of the activity, signal, queue, child, orchestration or key.
    pub(crate) name: Option<String>,
    /// The instance that was started.
    pub(crate) child: Option<String>,
    pub(crate) payload: Option<Payload>,
    pub(crate) error: Option<String>,
    pub(crate) fire_at_ms: Option<u64>,
    pub(crate) tag: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) duroxide_version: String,
    /// The size of the stored event.
    pub(crate) size_bytes: u64,
    /// Why the stored text is no event, if it is not.
    pub(crate) damage: Option<String>,
}

impl EventRow {
    pub(crate) fn of(event: EventView, cut: usize) -> Self {
        let text = |field: &str| event.text(field).map(str::to_string);
        let payload =
            ["input", "result", "output", "data", "value", "status", "reason"].iter().find_map(|f| text(f));
        Self {
            event_id: event.event_id,
            source_event_id: event.source_event_id,
            timestamp_ms: event.timestamp_ms,
            name: text("name").or_else(|| text("key")),
            child: text("instance"),
            payload: payload.map(|text| match event.is_cut {
                true => Payload::cut_at(text, cut),
                false => Payload { bytes: text.len() as u64, cut: false, text },
            }),
            error: event.error_text(),
            fire_at_ms: event.number("fire_at_ms"),
            tag: text("tag"),
            session: text("session_id"),
            duroxide_version: event.duroxide_version.clone(),
            size_bytes: event.size_bytes,
            damage: event.damage.clone(),
            kind: event.kind,
        }
    }
}

/// A part of a history.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<EventRow>,
    /// Whether there are more in this direction.
    pub(crate) more: bool,
}

/// One execution of an instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct Execution {
    pub(crate) execution: u64,
    pub(crate) state: State,
    pub(crate) started_at_ms: u64,
    pub(crate) ended_at_ms: Option<u64>,
    pub(crate) events: u64,
    pub(crate) history_bytes: Option<u64>,
    pub(crate) output: Option<String>,
}

impl From<ExecutionSummary> for Execution {
    fn from(summary: ExecutionSummary) -> Self {
        let state = match summary.status.as_str() {
            "Completed" => State::Completed,
            "Failed" => State::Failed,
            "ContinuedAsNew" => State::Continued,
            _ => State::Running,
        };
        Self {
            execution: summary.execution_id,
            state,
            started_at_ms: summary.started_at_ms,
            ended_at_ms: summary.completed_at_ms,
            events: summary.event_count,
            history_bytes: summary.history_bytes,
            output: summary.output,
        }
    }
}

/// Executions, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Executions {
    pub(crate) executions: Vec<Execution>,
    pub(crate) more: bool,
}

/// A value that an orchestration keeps.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeptValue {
    pub(crate) key: String,
    pub(crate) value: Payload,
    pub(crate) updated_at_ms: u64,
}

/// A message that waits for an instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct Message {
    /// The kind as it is stored.
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
    pub(crate) enqueued_at_ms: u64,
    pub(crate) delayed_until_ms: Option<u64>,
    pub(crate) attempts: u32,
    pub(crate) data: Payload,
}

/// What an instance keeps: values, custom status, messages on their way.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstanceData {
    pub(crate) values: Vec<KeptValue>,
    pub(crate) custom_status: Option<Payload>,
    pub(crate) custom_status_version: u64,
    pub(crate) messages: Vec<Message>,
}

/// A whole text.
#[derive(Serialize, ToSchema)]
pub(crate) struct Text {
    pub(crate) text: String,
}

/// The queues, and the messages that found no instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Queue>,
    pub(crate) parked: Vec<Parked>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) dropped_total: u64,
}

/// A message that waits for an instance to be started.
#[derive(Serialize, ToSchema)]
pub(crate) struct Parked {
    pub(crate) instance: String,
    pub(crate) text: String,
    pub(crate) expires_at_ms: u64,
}

/// A message that was dropped because its instance did not exist.
#[derive(Serialize, ToSchema)]
pub(crate) struct Dropped {
    pub(crate) instance: String,
    pub(crate) text: String,
    pub(crate) dropped_at_ms: u64,
}

/// A row that was set aside because it does not decode.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuarantineRow {
    pub(crate) id: u64,
    /// `orchestrator` or `worker`.
    pub(crate) queue: String,
    pub(crate) instance: Option<String>,
    pub(crate) reason: String,
    pub(crate) text: Payload,
    pub(crate) quarantined_at_ms: u64,
}

/// Rows in quarantine, oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuarantinePage {
    pub(crate) rows: Vec<QuarantineRow>,
    pub(crate) more: bool,
}
