//! One value of an instance's key-value store.

/// A value and when it was last written, as a turn's snapshot holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct KvEntry {
    /// The value as it was set.
    pub value: String,
    /// When it was set, in milliseconds since the epoch.
    pub last_updated_at_ms: u64,
}
