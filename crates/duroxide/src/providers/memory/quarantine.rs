//! Rows that were set aside: put back, or removed.

use super::state::State;
use crate::providers::inspect::MessageClass;
use crate::providers::{ProviderError, QuarantinePurge, QuarantineRetry, WorkQueue, decode_quarantined};

const OPERATION: &str = "retry_quarantined";

impl State {
    /// Puts a row back at the end of its queue, as if it had never been delivered.
    pub fn retry_quarantined(&mut self, id: u64, now: u64) -> QuarantineRetry {
        let Some(at) = self.quarantine.iter().position(|entry| entry.id == id) else {
            return QuarantineRetry::NotFound;
        };
        match self.enqueue_again(at, now) {
            Ok(()) => {
                self.quarantine.remove(at);
                QuarantineRetry::Enqueued
            }
            Err(reason) => QuarantineRetry::Kept { reason },
        }
    }

    fn enqueue_again(&mut self, at: usize, now: u64) -> Result<(), String> {
        let row = &self.quarantine[at].row;
        let (queue, payload) = (row.queue, row.raw.clone());
        let item = decode_quarantined(queue, &payload)?;
        let refused = |error: ProviderError| error.message;
        match queue {
            WorkQueue::Orchestrator => {
                let mut message = self.new_message(OPERATION, &item, None, now).map_err(refused)?;
                // The operator who retries the message wants it kept.
                if message.class == MessageClass::Queue {
                    message.class = MessageClass::Signal;
                }
                message.payload = payload;
                self.messages.push(message);
            }
            WorkQueue::Worker => {
                let mut activity = self.new_activity(OPERATION, &item, now).map_err(refused)?;
                activity.payload = payload;
                self.activities.push(activity);
            }
        }
        Ok(())
    }

    /// Removes rows for good.
    pub fn purge_quarantined(&mut self, purge: QuarantinePurge<'_>) -> u64 {
        let before = self.quarantine.len();
        self.quarantine.retain(|entry| match purge {
            QuarantinePurge::Ids(ids) => !ids.contains(&entry.id),
            QuarantinePurge::SetAsideBefore(time) => entry.row.quarantined_at >= time,
        });
        (before - self.quarantine.len()) as u64
    }
}
