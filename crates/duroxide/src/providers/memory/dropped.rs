//! The messages that the store dropped because their instance did not exist: their count, and the newest of them.

use std::collections::VecDeque;

use crate::model::whole_ms;
use crate::providers::{DroppedMessage, DroppedMessages};

/// The dropped messages.
#[derive(Debug, Clone, Default)]
pub(super) struct Dropped {
    total: u64,
    /// Oldest first.
    newest: VecDeque<DroppedMessage>,
}

impl Dropped {
    /// Takes note of a message; forgets the oldest if there are too many.
    pub fn note(&mut self, message: DroppedMessage) {
        self.total += 1;
        self.newest.push_back(message);
        if self.newest.len() > DroppedMessage::KEPT {
            self.newest.pop_front();
        }
    }

    /// Lists the messages that are not too old, newest first.
    pub fn list(&self, limit: usize, now: u64) -> DroppedMessages {
        let kept_for = whole_ms(DroppedMessage::KEPT_FOR);
        let is_recent = |message: &&DroppedMessage| message.dropped_at.saturating_add(kept_for) > now;
        let newest = self.newest.iter().rev().filter(is_recent).take(limit).cloned().collect();
        DroppedMessages { total: self.total, newest }
    }
}
