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
///
/// ```
/// use duroxide::EventKind;
///
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// for event in client.read_execution_history("order-7", 1).await? {
///     match &event.kind {
///         EventKind::ActivityScheduled { name, .. } => println!("{}: runs {name}", event.event_id),
///         EventKind::ActivityFailed { details } => println!("{}: {}", event.event_id, details.display_message()),
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "type")]
pub enum EventKind {
    /// The execution began; always its first event.
    OrchestrationStarted {
        /// The registered name of the orchestration.
        name: String,
        /// The version that the execution runs, to its end and in every process.
        version: String,
        /// What the orchestration got, as text: JSON if it is typed.
        input: String,
        /// The parent that waits for the result, if the instance is a child.
        parent_instance: Option<String>,
        /// The parent's event that asked for the child.
        parent_id: Option<u64>,
        /// The parent's execution that asked for the child; histories of older versions lack it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        /// The queue messages that the execution before left unread, oldest first: the queue's name and the data of each.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carry_forward_events: Option<Vec<(String, String)>>,
        /// The custom status that the execution before left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initial_custom_status: Option<String>,
    },
    /// The orchestration returned a result.
    OrchestrationCompleted {
        /// What the orchestration returned, as text.
        output: String,
    },
    /// The orchestration failed.
    OrchestrationFailed {
        /// Why it failed, or that it was cancelled.
        details: ErrorDetails,
    },
    /// The code asked for an activity.
    ActivityScheduled {
        /// The registered name of the activity. A replay compares it with what the code asks for.
        name: String,
        /// What the activity gets, as text. A replay compares it as well.
        input: String,
        /// The session whose worker has to run it; `None` for any worker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        /// What a worker must serve to get it; `None` for workers that take work without a tag.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// An activity returned a result.
    ActivityCompleted {
        /// What the activity returned, as text.
        result: String,
    },
    /// An activity failed.
    ActivityFailed {
        /// Why it failed.
        details: ErrorDetails,
    },
    /// The code no longer wants an activity's result.
    ActivityCancelRequested {
        /// Why the code gave it up, for people who read the history.
        reason: String,
    },
    /// The code set a timer.
    TimerCreated {
        /// When the timer is due, in milliseconds since the epoch. It counts in every replay, whatever the code asks for.
        fire_at_ms: u64,
    },
    /// A timer came due.
    TimerFired {
        /// When the timer was due, as its creation says; not when it was delivered.
        fire_at_ms: u64,
    },
    /// The code opened a wait for a signal.
    ExternalSubscribed {
        /// The name that the signal must carry.
        name: String,
    },
    /// A signal arrived.
    ExternalEvent {
        /// The name that the signal carried.
        name: String,
        /// What the waiting code gets, as text.
        data: String,
    },
    /// The code started an orchestration that it does not wait for.
    OrchestrationChained {
        /// The registered name of the orchestration.
        name: String,
        /// The id of the new instance.
        instance: String,
        /// What the orchestration gets, as text.
        input: String,
    },
    /// The code asked for a child.
    SubOrchestrationScheduled {
        /// The registered name of the child's orchestration.
        name: String,
        /// The child's id.
        instance: String,
        /// What the child gets, as text.
        input: String,
    },
    /// A child returned a result.
    SubOrchestrationCompleted {
        /// What the child returned, as text.
        result: String,
    },
    /// A child failed.
    SubOrchestrationFailed {
        /// Why the child failed.
        details: ErrorDetails,
    },
    /// The code no longer wants a child's result.
    SubOrchestrationCancelRequested {
        /// Why the code gave it up, for people who read the history.
        reason: String,
    },
    /// The execution ended and the next begins with this input.
    OrchestrationContinuedAsNew {
        /// What the next execution gets, as text.
        input: String,
    },
    /// A client or the parent asked to cancel the instance.
    OrchestrationCancelRequested {
        /// What whoever cancels gave as the reason.
        reason: String,
    },
    /// The code gave up a wait for a signal.
    ExternalSubscribedCancelled {
        /// Why the code gave it up, for people who read the history.
        reason: String,
    },
    /// The code asked for the next message of a queue.
    #[serde(rename = "ExternalSubscribedPersistent")]
    QueueSubscribed {
        /// The name of the queue.
        name: String,
    },
    /// A queue message arrived.
    #[serde(rename = "ExternalEventPersistent")]
    QueueEventDelivered {
        /// The name of the queue.
        name: String,
        /// What the reader of the queue gets, as text.
        data: String,
    },
    /// The code gave up a read of a queue.
    #[serde(rename = "ExternalSubscribedPersistentCancelled")]
    QueueSubscriptionCancelled {
        /// Why the code gave it up, for people who read the history.
        reason: String,
    },
    /// The code set the custom status, or cleared it with `None`.
    CustomStatusUpdated {
        /// The new status as a whole; `None` if the code cleared it.
        status: Option<String>,
    },
    /// The code opened a wait for a signal on a topic.
    #[cfg(feature = "replay-version-test")]
    ExternalSubscribed2 {
        /// The name that the signal must carry.
        name: String,
        /// The topic that it must carry as well.
        topic: String,
    },
    /// A signal on a topic arrived.
    #[cfg(feature = "replay-version-test")]
    ExternalEvent2 {
        /// The name that the signal carried.
        name: String,
        /// The topic that it carried as well.
        topic: String,
        /// What the waiting code gets, as text.
        data: String,
    },
    /// The code set a value of the key-value store.
    KeyValueSet {
        /// Which value was set.
        key: String,
        /// What readers get, as text.
        value: String,
        /// When the code set it, in milliseconds since the epoch; 0 in histories of older versions.
        #[serde(default)]
        last_updated_at_ms: u64,
    },
    /// The code removed one key.
    KeyValueCleared {
        /// Which value was removed.
        key: String,
    },
    /// The code removed all keys.
    KeyValuesCleared,
}
