//! The history of an execution, event by event.

use serde::{Deserialize, Serialize};

use super::{BUILD_VERSION, ErrorDetails, clock};

/// One entry of an execution's history.
///
/// Its JSON is the stored format: the fields in this order, then `type` and the fields of the kind on the same level. A
/// reader ignores unknown fields; an unknown `type` is an error.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Event {
    /// Position in the execution, from 1.
    pub event_id: u64,
    /// For completions and cancellations: the event that scheduled what ended.
    pub source_event_id: Option<u64>,
    /// The instance that the event belongs to.
    pub instance_id: String,
    /// The execution of that instance.
    pub execution_id: u64,
    /// When the event was made, in milliseconds since the epoch.
    pub timestamp_ms: u64,
    /// The version of the package that made it.
    pub duroxide_version: String,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// Makes an event with the given id, stamped with the wall clock and this package's version.
    pub fn with_event_id(
        event_id: u64,
        instance_id: impl Into<String>,
        execution_id: u64,
        source_event_id: Option<u64>,
        kind: EventKind,
    ) -> Self {
        Self {
            event_id,
            source_event_id,
            instance_id: instance_id.into(),
            execution_id,
            timestamp_ms: clock::system_now_ms(),
            duroxide_version: BUILD_VERSION.to_string(),
            kind,
        }
    }

    /// Makes an event with the id 0; the engine assigns the real one later.
    pub fn new(
        instance_id: impl Into<String>,
        execution_id: u64,
        source_event_id: Option<u64>,
        kind: EventKind,
    ) -> Self {
        Self::with_event_id(0, instance_id, execution_id, source_event_id, kind)
    }

    /// Returns the position in the execution.
    pub fn event_id(&self) -> u64 {
        self.event_id
    }

    /// Returns the event that scheduled what this one ends.
    pub fn source_event_id(&self) -> Option<u64> {
        self.source_event_id
    }

    /// Tells whether this event ends its execution.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self.kind,
            EventKind::OrchestrationCompleted { .. }
                | EventKind::OrchestrationFailed { .. }
                | EventKind::OrchestrationContinuedAsNew { .. }
        )
    }
}

/// What happened in an event.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "type")]
#[allow(missing_docs, reason = "the fields are the payloads that the variants' texts name")]
pub enum EventKind {
    /// The execution began; always its first event.
    OrchestrationStarted {
        name: String,
        version: String,
        input: String,
        parent_instance: Option<String>,
        parent_id: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carry_forward_events: Option<Vec<(String, String)>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initial_custom_status: Option<String>,
    },
    /// The orchestration returned a result.
    OrchestrationCompleted { output: String },
    /// The orchestration failed.
    OrchestrationFailed { details: ErrorDetails },
    /// The code asked for an activity.
    ActivityScheduled {
        name: String,
        input: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// An activity returned a result.
    ActivityCompleted { result: String },
    /// An activity failed.
    ActivityFailed { details: ErrorDetails },
    /// The code no longer wants an activity's result.
    ActivityCancelRequested { reason: String },
    /// The code set a timer.
    TimerCreated { fire_at_ms: u64 },
    /// A timer came due.
    TimerFired { fire_at_ms: u64 },
    /// The code opened a wait for a signal.
    ExternalSubscribed { name: String },
    /// A signal arrived.
    ExternalEvent { name: String, data: String },
    /// The code started an orchestration that it does not wait for.
    OrchestrationChained { name: String, instance: String, input: String },
    /// The code asked for a child.
    SubOrchestrationScheduled { name: String, instance: String, input: String },
    /// A child returned a result.
    SubOrchestrationCompleted { result: String },
    /// A child failed.
    SubOrchestrationFailed { details: ErrorDetails },
    /// The code no longer wants a child's result.
    SubOrchestrationCancelRequested { reason: String },
    /// The execution ended and the next begins with this input.
    OrchestrationContinuedAsNew { input: String },
    /// A client or the parent asked to cancel the instance.
    OrchestrationCancelRequested { reason: String },
    /// The code gave up a wait for a signal.
    ExternalSubscribedCancelled { reason: String },
    /// The code asked for the next message of a queue.
    #[serde(rename = "ExternalSubscribedPersistent")]
    QueueSubscribed { name: String },
    /// A queue message arrived.
    #[serde(rename = "ExternalEventPersistent")]
    QueueEventDelivered { name: String, data: String },
    /// The code gave up a read of a queue.
    #[serde(rename = "ExternalSubscribedPersistentCancelled")]
    QueueSubscriptionCancelled { reason: String },
    /// The code set the custom status, or cleared it with `None`.
    CustomStatusUpdated { status: Option<String> },
    /// The code opened a wait for a signal on a topic.
    #[cfg(feature = "replay-version-test")]
    ExternalSubscribed2 { name: String, topic: String },
    /// A signal on a topic arrived.
    #[cfg(feature = "replay-version-test")]
    ExternalEvent2 { name: String, topic: String, data: String },
    /// The code set a value of the key-value store.
    KeyValueSet {
        key: String,
        value: String,
        #[serde(default)]
        last_updated_at_ms: u64,
    },
    /// The code removed one key.
    KeyValueCleared { key: String },
    /// The code removed all keys.
    KeyValuesCleared,
}
