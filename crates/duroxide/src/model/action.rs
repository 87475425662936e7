//! The requests of orchestration code in a turn.

/// A decision of orchestration code, before it becomes an event.
///
/// Tests hash the `Debug` text of these, so the order of variants and fields is part of the interface.
/// `scheduling_event_id` is 0 until the engine has assigned an event id.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields carry the names of the events that they become")]
pub enum Action {
    /// Run an activity.
    CallActivity {
        scheduling_event_id: u64,
        name: String,
        input: String,
        session_id: Option<String>,
        tag: Option<String>,
    },
    /// Wake up at a point in time.
    CreateTimer { scheduling_event_id: u64, fire_at_ms: u64 },
    /// Wait for a signal.
    WaitExternal { scheduling_event_id: u64, name: String },
    /// Start an orchestration without waiting for it.
    StartOrchestrationDetached {
        scheduling_event_id: u64,
        name: String,
        version: Option<String>,
        instance: String,
        input: String,
    },
    /// Start a child and wait for it.
    StartSubOrchestration {
        scheduling_event_id: u64,
        name: String,
        version: Option<String>,
        instance: String,
        input: String,
    },
    /// End this execution and begin the next.
    ContinueAsNew { input: String, version: Option<String> },
    /// Set or clear the custom status.
    UpdateCustomStatus { status: Option<String> },
    /// Take the next message of a queue.
    DequeueEvent { scheduling_event_id: u64, name: String },
    /// Wait for a signal on a topic.
    #[cfg(feature = "replay-version-test")]
    WaitExternal2 { scheduling_event_id: u64, name: String, topic: String },
    /// Set a value of the key-value store.
    SetKeyValue { key: String, value: String, last_updated_at_ms: u64 },
    /// Remove one key.
    ClearKeyValue { key: String },
    /// Remove all keys.
    ClearKeyValues,
}
