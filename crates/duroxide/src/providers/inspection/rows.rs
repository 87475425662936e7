//! What a store answers to those who look into it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{EventView, InstanceState, Obstacle, QueuedActivity, QueuedMessage, WorkerInfo};
use crate::providers::InstanceMetadata;

/// An instance in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct InstanceRow {
    /// The instance.
    pub instance: String,
    /// The orchestration that it runs.
    pub name: String,
    /// The version of that orchestration; before the first turn the one that the start asks for, or `unknown`.
    pub version: String,
    /// How it stands.
    pub state: InstanceState,
    /// Its current execution.
    pub execution_id: u64,
    /// The instance that started it as a child.
    pub parent: Option<String>,
    /// The instance at the top of its tree, if it is a child.
    pub root: Option<String>,
    /// When it was created, in milliseconds since the epoch; before the first turn, when it was started.
    pub created_at_ms: u64,
    /// When it last took a turn, in milliseconds since the epoch.
    pub updated_at_ms: u64,
    /// When it ended, in milliseconds since the epoch.
    pub completed_at_ms: Option<u64>,
    /// Its custom status, cut.
    pub custom_status: Option<String>,
    /// Its result, or the text of its error, cut.
    pub output: Option<String>,
    /// Which creation of this id it is; 0 before its first turn.
    pub incarnation: u64,
}

impl InstanceRow {
    /// Describes an instance that has nothing in the store but a queued start.
    pub fn pending(start: InstanceMetadata, is_blocked: bool) -> Self {
        Self {
            instance: start.instance_id,
            name: start.orchestration_name,
            version: start.orchestration_version,
            state: if is_blocked { InstanceState::Blocked } else { InstanceState::Pending },
            execution_id: start.current_execution_id,
            parent: start.parent_instance_id,
            created_at_ms: start.created_at,
            updated_at_ms: start.updated_at,
            ..Self::default()
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InstancePage {
    /// The rows.
    pub rows: Vec<InstanceRow>,
    /// Where the next page begins; `None` if this is the last one.
    pub next_cursor: Option<String>,
}

/// A number that is exact up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// The number, or the least that it can be.
    pub value: u64,
    /// Whether it is exact.
    pub is_exact: bool,
}

impl Count {
    /// An exact number.
    pub fn exact(value: u64) -> Self {
        Self { value, is_exact: true }
    }

    /// What is known after counting up to one more than `bound`.
    pub fn up_to(bound: u64, counted: u64) -> Self {
        Self { value: counted.min(bound), is_exact: counted <= bound }
    }

    /// The same, where the caller knows by other means whether it has counted all.
    pub fn counted(bound: u64, counted: u64, is_exact: bool) -> Self {
        Self { value: if is_exact { counted } else { counted.min(bound) }, is_exact }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_exact {
            true => write!(f, "{}", self.value),
            false => write!(f, "more than {}", self.value),
        }
    }
}

/// Everything about an instance that tells how it stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InstanceDetail {
    /// The instance as listings show it.
    pub row: InstanceRow,
    /// When its current execution began, in milliseconds since the epoch.
    pub started_at_ms: Option<u64>,
    /// How many events the history of its current execution has.
    pub event_count: u64,
    /// The first event of that history, which has the input.
    pub first_event: Option<EventView>,
    /// The newest events of that history, ascending.
    pub events: Vec<EventView>,
    /// The messages that are queued for it, the oldest.
    pub messages: Vec<QueuedMessage>,
    /// Its activities that are queued or leased, the oldest.
    pub activities: Vec<QueuedActivity>,
    /// The obstacles that runtimes have met.
    pub obstacles: Vec<Obstacle>,
    /// Why and since when the store has blocked it, in milliseconds since the epoch.
    pub blocked: Option<(String, u64)>,
    /// Until when a runtime has leased it for a turn, in milliseconds since the epoch.
    pub leased_until_ms: Option<u64>,
    /// Whether a turn is under way or can begin.
    pub is_busy: bool,
    /// The store's time at which all this was read, in milliseconds since the epoch.
    pub read_at_ms: u64,
}

impl InstanceDetail {
    /// How many messages and activities a detail has at most.
    pub const MOST_QUEUED: usize = 1_000;
}

/// Asks for a part of a history.
///
/// ```
/// use duroxide::providers::EventRequest;
///
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// // The last twenty events of the first execution, with texts of up to 200 bytes.
/// let request = EventRequest::of("monitor-3").execution(1).newest_first().limit(20).cut(200);
/// for event in client.read_events(&request).await? {
///     println!("{} {}", event.event_id, event.kind);
/// }
/// // Those from 100 to 149, the oldest first.
/// let part = client.read_events(&EventRequest::of("monitor-3").from_event(100).before_event(150)).await?;
/// # drop(part);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EventRequest {
    /// The instance.
    pub instance: String,
    /// The execution; the latest if there is none.
    pub execution_id: Option<u64>,
    /// Only events with this id or a higher one.
    pub from_event_id: Option<u64>,
    /// Only events with a lower id than this.
    pub before_event_id: Option<u64>,
    /// Which end comes first.
    pub order: EventOrder,
    /// How many events at most; never more than [`MOST_EVENTS`](Self::MOST_EVENTS).
    pub limit: usize,
    /// To how many bytes texts are cut.
    pub cut: usize,
}

/// The order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventOrder {
    /// Ascending.
    #[default]
    OldestFirst,
    /// Descending.
    NewestFirst,
}

impl Default for EventRequest {
    fn default() -> Self {
        Self {
            instance: String::new(),
            execution_id: None,
            from_event_id: None,
            before_event_id: None,
            order: EventOrder::OldestFirst,
            limit: 100,
            cut: 1_000,
        }
    }
}

impl EventRequest {
    /// The most events of one answer.
    pub const MOST_EVENTS: usize = 10_000;

    /// How much of a stored event a store reads, besides what the texts may take. Ids, times, names and the like fit.
    pub const HEADER_BYTES: usize = 4 * 1024;

    /// Asks for the oldest events of the latest execution.
    pub fn of(instance: impl Into<String>) -> Self {
        Self { instance: instance.into(), ..Self::default() }
    }

    /// Asks for this execution.
    #[must_use]
    pub fn execution(mut self, execution_id: u64) -> Self {
        self.execution_id = Some(execution_id);
        self
    }

    /// Asks for events with this id or a higher one.
    #[must_use]
    pub fn from_event(mut self, event_id: u64) -> Self {
        self.from_event_id = Some(event_id);
        self
    }

    /// Asks for events with a lower id than this.
    #[must_use]
    pub fn before_event(mut self, event_id: u64) -> Self {
        self.before_event_id = Some(event_id);
        self
    }

    /// Asks for the newest first.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.order = EventOrder::NewestFirst;
        self
    }

    /// Asks for up to this many.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Cuts texts to this many bytes.
    #[must_use]
    pub fn cut(mut self, cut: usize) -> Self {
        self.cut = cut;
        self
    }

    /// Returns the number of events of an answer.
    ///
    /// ```
    /// use duroxide::providers::EventRequest;
    ///
    /// assert_eq!(EventRequest::of("order-7").limit(20).page_size(), 20);
    /// assert_eq!(EventRequest::of("order-7").limit(usize::MAX).page_size(), EventRequest::MOST_EVENTS);
    /// ```
    pub fn page_size(&self) -> usize {
        self.limit.min(Self::MOST_EVENTS)
    }

    /// Returns how many bytes of a stored event are enough for a view of it.
    ///
    /// ```
    /// use duroxide::providers::EventRequest;
    ///
    /// // Texts of up to 200 bytes, whatever their escapes, and ids, times and names.
    /// assert!(EventRequest::stored_bytes(200) >= 2 * 6 * 200 + EventRequest::HEADER_BYTES);
    /// ```
    pub fn stored_bytes(cut: usize) -> usize {
        // A byte of a text takes up to six in JSON, and an event has few long texts.
        cut.saturating_mul(6).saturating_mul(2).saturating_add(Self::HEADER_BYTES)
    }
}

/// An execution and its size.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ExecutionSummary {
    /// The execution.
    pub execution_id: u64,
    /// `Running`, `Completed`, `Failed` or `ContinuedAsNew`.
    pub status: String,
    /// When it began, in milliseconds since the epoch.
    pub started_at_ms: u64,
    /// When it ended, in milliseconds since the epoch.
    pub completed_at_ms: Option<u64>,
    /// The highest event id of its history: how many events it has.
    pub event_count: u64,
    /// The size of its stored events in bytes; `None` if there are more than
    /// [`MOST_MEASURED`](Self::MOST_MEASURED), which the store does not add up.
    pub history_bytes: Option<u64>,
    /// Its result, error or the next execution's input, cut.
    pub output: Option<String>,
}

impl ExecutionSummary {
    /// The most events whose sizes a store adds up.
    pub const MOST_MEASURED: u64 = 10_000;
}

/// A value of an instance's key-value store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct KvView {
    /// The key.
    pub key: String,
    /// The value, cut.
    pub value: String,
    /// The size of the whole value in bytes.
    pub size_bytes: u64,
    /// When it was set, in milliseconds since the epoch.
    pub updated_at_ms: u64,
}

/// How many instances are in each state.
///
/// What has ended is counted as it ends, and [`live`](Self::live) is the difference; these are exact at any size. Which of the
/// live ones are running, waiting, pending or blocked changes with the time and with every message, so a counter would be one
/// more row to write in each step; a store counts them when it is asked, by index and up to a bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StateTotals {
    /// Started, and not yet at their first turn.
    pub pending: Count,
    /// In a turn, or ready for one.
    pub running: Count,
    /// Waiting for something.
    pub waiting: Count,
    /// Unable to go on.
    pub blocked: Count,
    /// Ended with a result.
    pub completed: Count,
    /// Ended with a failure.
    pub failed: Count,
    /// Ended because they were cancelled.
    pub cancelled: Count,
    /// Between two executions.
    pub continued: Count,
    /// All instances that have taken a turn.
    pub instances: u64,
    /// All executions of those.
    pub executions: u64,
    /// All events of those.
    pub events: u64,
}

impl StateTotals {
    /// Up to this, counts that no counter keeps are exact.
    pub const COUNTED_UP_TO: u64 = 10_000;

    /// Returns how many instances have taken a turn and have not ended: running, waiting, blocked, or between two executions.
    /// It follows from counters, so it is exact however many they are.
    ///
    /// ```
    /// use duroxide::providers::{Count, StateTotals};
    ///
    /// let mut totals = StateTotals::default();
    /// totals.instances = 2_000_000;
    /// totals.completed = Count::exact(1_500_000);
    /// assert_eq!(totals.live(), 500_000);
    /// ```
    pub fn live(&self) -> u64 {
        let ended = [self.completed, self.failed, self.cancelled].map(|count| count.value);
        self.instances.saturating_sub(ended.iter().sum())
    }

    /// Returns the counts with their states: first those of instances that have not ended.
    pub fn by_state(&self) -> [(InstanceState, Count); 8] {
        [
            (InstanceState::Pending, self.pending),
            (InstanceState::Running, self.running),
            (InstanceState::Waiting, self.waiting),
            (InstanceState::Blocked, self.blocked),
            (InstanceState::Continued, self.continued),
            (InstanceState::Completed, self.completed),
            (InstanceState::Failed, self.failed),
            (InstanceState::Cancelled, self.cancelled),
        ]
    }
}

/// How a queue stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueState {
    /// `orchestrator` or `worker`.
    pub queue: String,
    /// For activities: their tag; `None` for those without one, and for messages.
    pub tag: Option<String>,
    /// How many are ready: activities that can be claimed, or instances with messages that can be delivered.
    pub ready: Count,
    /// How many activities or instances are leased.
    pub leased: Count,
    /// How many activities wait for their next attempt, or how many instances have a timer or another message that waits
    /// for its time.
    pub delayed: Count,
    /// Since when the oldest ready one has been ready, in milliseconds since the epoch; `None` if none is ready.
    pub oldest_ready_ms: Option<u64>,
    /// How many live workers serve it; `None` if no worker reports.
    pub workers: Option<u32>,
}

/// What happened in one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MinuteRates {
    /// The beginning of the minute, in milliseconds since the epoch.
    pub minute_ms: u64,
    /// Instances that took their first turn.
    pub started: u64,
    /// Instances that returned a result.
    pub completed: u64,
    /// Instances that failed or were cancelled.
    pub failed: u64,
}

impl MinuteRates {
    /// For how many minutes a store keeps them.
    pub const KEPT_MINUTES: u32 = 24 * 60;

    /// The rates of one minute.
    pub fn of(minute_ms: u64, started: u64, completed: u64, failed: u64) -> Self {
        Self { minute_ms, started, completed, failed }
    }
}

/// The heartbeat of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkerReport {
    /// The runtime. The store sets when it was seen.
    pub worker: WorkerInfo,
    /// What it has met since its last report and could not do.
    pub obstacles: Vec<Obstacle>,
}

impl WorkerReport {
    /// Makes a report.
    pub fn new(worker: WorkerInfo, obstacles: Vec<Obstacle>) -> Self {
        Self { worker, obstacles }
    }
}
