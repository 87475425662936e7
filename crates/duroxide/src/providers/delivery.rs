//! What becomes of messages: delivered, or dropped because there is no instance to deliver them to.

use std::time::Duration;

/// What became of a message that was sent together with a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an instance that has ended takes no message"]
pub enum DeliveryOutcome {
    /// The id was free: the start and the message are enqueued.
    Started,
    /// The instance was there, or its start was queued: the message is enqueued, the start is not.
    Delivered,
    /// The instance is there and has completed or failed: nothing is enqueued.
    Ended,
}

/// The messages that a store dropped because their instance did not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedMessages {
    /// How many were ever dropped.
    pub total: u64,
    /// The newest of them, newest first.
    pub newest: Vec<DroppedMessage>,
}

/// A message that a store dropped because its instance did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedMessage {
    /// The instance that it was for.
    pub instance: String,
    /// The beginning of the message's text as it was stored: its first [`TEXT_KEPT`](Self::TEXT_KEPT) characters.
    pub raw: String,
    /// How many bytes the whole text had.
    pub size: u64,
    /// When it was dropped, in milliseconds since the epoch.
    pub dropped_at: u64,
}

impl DroppedMessage {
    /// How many of them a store keeps.
    pub const KEPT: usize = 1_000;

    /// How long a store keeps them.
    pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// How many characters of a message's text a store keeps.
    pub const TEXT_KEPT: usize = 4_096;

    /// Takes note of a message that is dropped now.
    pub fn new(instance: &str, text: &str, dropped_at: u64) -> Self {
        Self {
            instance: instance.to_string(),
            raw: text.chars().take(Self::TEXT_KEPT).collect(),
            size: text.len() as u64,
            dropped_at,
        }
    }
}
