//! The contents of the store, and how a row of each queue is made.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use semver::Version;
use serde::Serialize;

use super::dropped::Dropped;
use super::inspection::Observed;
use super::key_values::KeyValues;
use crate::model::{ActivityOptions, ActivityProgress, ActivityRecord, WorkItem, whole_ms};
use crate::providers::inspect::MessageClass;
use crate::providers::{
    BlockedInstance, DEFAULT_PARKING_TIME, ProviderError, QuarantineEntry, ScheduledActivityIdentifier,
    StoreLimits,
};

/// The whole store.
#[derive(Clone)]
pub(super) struct State {
    pub limits: StoreLimits,
    pub parking_ms: u64,
    pub instances: BTreeMap<String, InstanceRow>,
    /// How many instance rows were ever made; the last one's incarnation.
    pub incarnations: u64,
    /// The executions, by instance and execution id.
    pub executions: BTreeMap<(String, u64), ExecutionRow>,
    /// The encoded events of each execution by event id, by instance and execution id. No list is empty.
    pub histories: BTreeMap<(String, u64), BTreeMap<u64, String>>,
    pub key_values: BTreeMap<String, KeyValues>,
    /// The orchestrator queue, in the order of enqueueing.
    pub messages: Vec<Message>,
    /// The leases of turns by instance. An expired lease stays until another caller takes over.
    pub turn_leases: BTreeMap<String, StoredLease>,
    /// The worker queue, in the order of enqueueing.
    pub activities: Vec<Activity>,
    pub sessions: BTreeMap<String, Session>,
    pub quarantine: Vec<QuarantineEntry>,
    /// How many rows were ever set aside; the last one's id.
    pub set_aside_rows: u64,
    /// Instances that no runtime can claim, in the order in which they were blocked.
    pub blocked: Vec<BlockedInstance>,
    pub dropped: Dropped,
    pub observed: Observed,
    /// The last id of a queue row.
    pub last_row: Cell<u64>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            limits: StoreLimits::default(),
            parking_ms: whole_ms(DEFAULT_PARKING_TIME),
            instances: BTreeMap::new(),
            incarnations: 0,
            executions: BTreeMap::new(),
            histories: BTreeMap::new(),
            key_values: BTreeMap::new(),
            messages: Vec::new(),
            turn_leases: BTreeMap::new(),
            activities: Vec::new(),
            sessions: BTreeMap::new(),
            quarantine: Vec::new(),
            set_aside_rows: 0,
            blocked: Vec::new(),
            dropped: Dropped::default(),
            observed: Observed::default(),
            last_row: Cell::new(0),
        }
    }
}

/// An instance, from its first ack with name and version.
#[derive(Clone)]
pub(super) struct InstanceRow {
    pub orchestration_name: String,
    pub orchestration_version: String,
    pub parent_instance_id: Option<String>,
    /// The instance at the top of its tree, if it is a child.
    pub root_instance_id: Option<String>,
    pub current_execution_id: u64,
    /// Which creation of its id the instance is. Instances that were created later have higher numbers.
    pub incarnation: u64,
    pub custom_status: Option<String>,
    pub custom_status_version: u64,
    pub created_at: u64,
    pub updated_at: u64,
}

/// One execution, from its first ack.
#[derive(Clone)]
pub(super) struct ExecutionRow {
    pub status: String,
    pub output: Option<String>,
    pub pinned_version: Option<Version>,
    pub started_at: u64,
    pub completed_at: Option<u64>,
}

/// A lease as the store keeps it. Its row outlives `locked_until`, until another caller takes over.
#[derive(Clone)]
pub(super) struct StoredLease {
    pub token: String,
    pub locked_until: u64,
    /// A claim has seen that its time was over. From then on any caller may take over, even if the clock is set back.
    pub is_over: bool,
}

impl StoredLease {
    pub fn new(lock_timeout: Duration, now: u64) -> Self {
        Self {
            token: format!("lock_{}", new_token()),
            locked_until: time_after(now, lock_timeout),
            is_over: false,
        }
    }

    /// Tells whether its holder may still use it, unless another has taken over.
    pub fn is_live(&self, now: u64) -> bool {
        self.locked_until > now
    }

    /// Returns the time until which no other may take it.
    pub fn excludes_others_until(&self) -> u64 {
        if self.is_over { 0 } else { self.locked_until }
    }

    pub fn excludes_others(&self, now: u64) -> bool {
        self.excludes_others_until() > now
    }

    /// Extends the lease; a shorter time than it has left changes nothing.
    pub fn renew(&mut self, extend_for: Duration, now: u64) {
        self.locked_until = self.locked_until.max(time_after(now, extend_for));
        self.is_over = false;
    }
}

#[cfg(not(feature = "test-hooks"))]
fn new_token() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}

#[cfg(feature = "test-hooks")]
fn new_token() -> uuid::Uuid {
    super::hooks::next_token().unwrap_or_else(uuid::Uuid::new_v4)
}

/// An entry of the orchestrator queue.
#[derive(Clone)]
pub(super) struct Message {
    /// Its place in the order of enqueueing.
    pub id: u64,
    pub instance: String,
    pub class: MessageClass,
    pub payload: String,
    pub enqueued_at: u64,
    /// 0 if it was visible at once: then a clock that is set back does not hide it.
    pub visible_at: u64,
    pub attempts: u32,
    /// The token of the turn that has it.
    pub taken_by: Option<String>,
    /// Since when it waits for an instance that does not exist.
    pub parked_at: Option<u64>,
    /// For the start of a child: the parent that started it.
    pub parent: Option<String>,
}

impl Message {
    pub fn is_visible(&self, now: u64) -> bool {
        self.visible_at <= now
    }
}

/// An entry of the worker queue.
#[derive(Clone)]
pub(super) struct Activity {
    pub id: u64,
    pub identity: ScheduledActivityIdentifier,
    pub session_id: Option<String>,
    pub tag: Option<String>,
    pub payload: String,
    /// When it was put into the queue.
    pub entered_at: u64,
    /// When the activity can be claimed; 0 if at once, as for messages.
    pub visible_at: u64,
    pub attempts: u32,
    pub lease: Option<StoredLease>,
}

impl Activity {
    pub fn is_leased(&self, now: u64) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_live(now))
    }
}

/// A session and its owner.
#[derive(Clone)]
pub(super) struct Session {
    pub owner_id: String,
    /// 0 once a claim has seen that its time was over: then it stays free if the clock is set back.
    pub locked_until: u64,
    pub last_activity_at: u64,
}

impl Session {
    pub fn is_live(&self, now: u64) -> bool {
        self.locked_until > now
    }
}

impl State {
    /// Makes a message, visible after `delay`; a timer becomes visible no earlier than it is due.
    pub fn new_message(
        &self,
        operation: &str,
        item: &WorkItem,
        delay: Option<Duration>,
        now: u64,
    ) -> Result<Message, ProviderError> {
        let route = self.limits.route_message(operation, item)?;
        let delayed_until = delay.map_or(0, |delay| time_after(now, delay));
        Ok(Message {
            id: self.next_id(),
            instance: route.instance.to_string(),
            class: route.class,
            payload: self.encode(operation, item)?,
            enqueued_at: now,
            visible_at: visible_from(delayed_until.max(route.due_at_ms.unwrap_or(0)), now),
            attempts: 0,
            taken_by: None,
            parked_at: None,
            parent: route.parent.map(str::to_string),
        })
    }

    /// Makes an activity, visible at once.
    pub fn new_activity(
        &self,
        operation: &str,
        item: &WorkItem,
        now: u64,
    ) -> Result<Activity, ProviderError> {
        self.new_activity_with(operation, item, None, now)
    }

    pub fn new_activity_with(
        &self,
        operation: &str,
        item: &WorkItem,
        options: Option<&ActivityOptions>,
        now: u64,
    ) -> Result<Activity, ProviderError> {
        let route = self.limits.route_activity(operation, item)?;
        Ok(Activity {
            id: self.next_id(),
            identity: ScheduledActivityIdentifier {
                instance: route.instance.to_string(),
                execution_id: route.execution_id,
                activity_id: route.activity_id,
            },
            session_id: route.session_id.map(str::to_string),
            tag: route.tag.map(str::to_string),
            payload: self.encode_activity(operation, item, options, None)?,
            entered_at: now,
            visible_at: 0,
            attempts: 0,
            lease: None,
        })
    }

    pub fn next_id(&self) -> u64 {
        self.last_row.set(self.last_row.get() + 1);
        self.last_row.get()
    }

    /// Encodes an activity with what is kept beside it.
    pub fn encode_activity(
        &self,
        operation: &str,
        item: &WorkItem,
        options: Option<&ActivityOptions>,
        progress: Option<&ActivityProgress>,
    ) -> Result<String, ProviderError> {
        let encoded = ActivityRecord::encode(item, options, progress)
            .map_err(|error| ProviderError::permanent(operation, format!("cannot be encoded: {error}")))?;
        self.limits.check_payload(operation, &encoded)?;
        Ok(encoded)
    }

    /// Encodes an event or a work item as it is stored.
    pub fn encode(&self, operation: &str, value: &impl Serialize) -> Result<String, ProviderError> {
        let encoded = serde_json::to_string(value)
            .map_err(|error| ProviderError::permanent(operation, format!("cannot be encoded: {error}")))?;
        self.limits.check_payload(operation, &encoded)?;
        Ok(encoded)
    }
}

/// The moment `duration` from now, clamped to the end of time.
pub(super) fn time_after(now: u64, duration: Duration) -> u64 {
    now.saturating_add(whole_ms(duration))
}

/// The stored visibility of something that becomes visible at a moment: that moment, or 0 if it has passed.
pub(super) fn visible_from(moment: u64, now: u64) -> u64 {
    if moment <= now { 0 } else { moment }
}
