//! The fixed bounds of the system, in one place.

/// Unread queue messages that continue-as-new carries over; the oldest are kept.
pub const MAX_CARRY_FORWARD_EVENTS: usize = 100;

/// Longest custom status, in bytes.
pub const MAX_CUSTOM_STATUS_BYTES: usize = 262_144;

/// Most tags that one worker can serve.
pub const MAX_WORKER_TAGS: usize = 5;

/// Longest tag name, in bytes.
pub const MAX_TAG_NAME_BYTES: usize = 256;

/// Most keys in the key-value store of one instance.
pub const MAX_KV_KEYS: usize = 150;

/// Longest value in the key-value store, in bytes.
pub const MAX_KV_VALUE_BYTES: usize = 65_536;
