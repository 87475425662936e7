//! Figures about one instance.

use serde::{Deserialize, Serialize};

/// The size of an instance: its current execution's history, its carried messages and its key-value store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemStats {
    /// Events in the history of the current execution.
    pub history_event_count: u64,
    /// Bytes of those events as stored.
    pub history_size_bytes: u64,
    /// Queue messages that the current execution took over when it started.
    pub queue_pending_count: u64,
    /// Keys with a value.
    pub kv_user_key_count: u64,
    /// Bytes of those values.
    pub kv_total_value_bytes: u64,
}
