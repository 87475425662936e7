//! The requests of orchestration code in a turn.

/// A decision of orchestration code, before it becomes an event.
///
/// Tests hash the `Debug` text of these, so the order of variants and fields is part of the interface.
/// `scheduling_event_id` is 0 until the engine has assigned an event id.
#[derive(Debug, Clone)]
pub enum Action {
    /// Run an activity.
    CallActivity {
        /// The id of the event that records this decision.
        scheduling_event_id: u64,
        /// The registered name of the activity.
        name: String,
        /// What it gets, as text: JSON if the call was typed.
        input: String,
        /// The session whose worker has to run it; `None` for any worker.
        session_id: Option<String>,
        /// What a worker must serve to get it; `None` for workers that take work without a tag.
        tag: Option<String>,
    },
    /// Wake up at a point in time.
    CreateTimer {
        /// The id of the event that records this decision.
        scheduling_event_id: u64,
        /// When the timer is due, in milliseconds since the epoch. A replay takes the recorded time instead.
        fire_at_ms: u64,
    },
    /// Wait for a signal.
    WaitExternal {
        /// The id of the event that records this decision.
        scheduling_event_id: u64,
        /// The name that the signal must carry.
        name: String,
    },
    /// Start an orchestration without waiting for it.
    StartOrchestrationDetached {
        /// The id of the event that records this decision.
        scheduling_event_id: u64,
        /// The registered name of the orchestration.
        name: String,
        /// The version that it must have; `None` for the one that the runtime chooses at the start.
        version: Option<String>,
        /// The id of the new instance. If it is taken, nothing starts.
        instance: String,
        /// What the orchestration gets, as text.
        input: String,
    },
    /// Start a child and wait for it.
    StartSubOrchestration {
        /// The id of the event that records this decision.
        scheduling_event_id: u64,
        /// The registered name of the child's orchestration.
        name: String,
        /// The version that it must have; `None` for the one that the runtime chooses at the start.
        version: Option<String>,
        /// The child's id: one that the code gave, or a stand-in until the engine makes it from the event id.
        instance: String,
        /// What the child gets, as text.
        input: String,
    },
    /// End this execution and begin the next.
    ContinueAsNew {
        /// What the next execution gets, as text.
        input: String,
        /// The version that the next execution must have; `None` for the one that the runtime chooses.
        version: Option<String>,
    },
    /// Set or clear the custom status.
    UpdateCustomStatus {
        /// The new status as a whole; `None` clears it.
        status: Option<String>,
    },
    /// Take the next message of a queue.
    DequeueEvent {
        /// The id of the event that records this decision.
        scheduling_event_id: u64,
        /// The name of the queue.
        name: String,
    },
    /// Wait for a signal on a topic.
    #[cfg(feature = "replay-version-test")]
    WaitExternal2 {
        /// The id of the event that records this decision.
        scheduling_event_id: u64,
        /// The name that the signal must carry.
        name: String,
        /// The topic that it must carry as well.
        topic: String,
    },
    /// Set a value of the key-value store.
    SetKeyValue {
        /// Which value to set; one that is there is replaced.
        key: String,
        /// What readers get, as text.
        value: String,
        /// When the code set it, in milliseconds since the epoch.
        last_updated_at_ms: u64,
    },
    /// Remove one key.
    ClearKeyValue {
        /// Which value to remove; it need not exist.
        key: String,
    },
    /// Remove all keys.
    ClearKeyValues,
}
