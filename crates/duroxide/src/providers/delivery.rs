//! The fate of messages: delivered, or dropped because their instance does not exist.

use std::time::Duration;

/// The fate of a message that was sent together with a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an instance that has ended takes no message"]
pub enum DeliveryOutcome {
    /// The id was free: the store enqueued the start and the message.
    Started,
    /// The instance existed, or its start was queued: the store enqueued only the message.
    Delivered,
    /// The instance has completed or failed: the store enqueued nothing.
    Ended,
}

/// The fate of a message that was sent only to an instance that can take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the message may not have been sent"]
pub enum SendOutcome {
    /// The instance had not ended, or its start was queued: the store enqueued the message.
    Sent,
    /// The instance has completed or failed: the store enqueued nothing.
    Ended,
    /// There is no such instance: the store enqueued nothing.
    NotFound,
}

/// The messages that a store dropped because their instance did not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedMessages {
    /// How many messages the store has ever dropped.
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
    /// How many bytes the text had before it was cut.
    pub size: u64,
    /// When the store dropped it, in milliseconds since the epoch.
    pub dropped_at: u64,
}

impl DroppedMessage {
    /// How many dropped messages a store keeps.
    pub const KEPT: usize = 1_000;

    /// How long a store keeps dropped messages.
    pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// How many characters of a message's text a store keeps.
    pub const TEXT_KEPT: usize = 4_096;

    /// Makes the record of a message that the store drops now.
    pub fn new(instance: &str, text: &str, dropped_at: u64) -> Self {
        Self {
            instance: instance.to_string(),
            raw: text.chars().take(Self::TEXT_KEPT).collect(),
            size: text.len() as u64,
            dropped_at,
        }
    }
}
