//! Leases on their way from the writer to the caller.
//!
//! A future may be dropped at any point, also after its claims were committed and before it was polled again, or while
//! it still loads what goes with them. Then nobody knows of the leases, so they are given back at once instead of
//! running out.

use super::batch::Batch;
use super::error::StoreError;
use super::quarantine::Queue;
use super::writer::Errands;

/// Leases that nobody has taken note of yet. Given back when dropped.
pub(super) struct Held {
    queue: Queue,
    tokens: Vec<String>,
    errands: Errands,
}

impl Held {
    pub(super) fn new(queue: Queue, tokens: Vec<String>, errands: Errands) -> Self {
        Self { queue, tokens, errands }
    }

    /// Holds these leases as well.
    pub(super) fn note(&mut self, tokens: impl Iterator<Item = String>) {
        self.tokens.extend(tokens);
    }

    /// Holds the leases of `other` as well.
    pub(super) fn add(&mut self, mut other: Self) {
        self.tokens.append(&mut other.tokens);
    }

    /// Leaves the leases alone: from here on the caller is responsible.
    pub(super) fn hand_over(mut self) {
        self.tokens.clear();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (queue, tokens) = (self.queue, std::mem::take(&mut self.tokens));
        if !tokens.is_empty() {
            self.errands.leave("give_back", move |batch| give_back(batch, queue, &tokens));
        }
    }
}

/// Ends leases as if they had never been taken.
fn give_back(batch: &mut Batch<'_, '_>, queue: Queue, tokens: &[String]) -> Result<(), StoreError> {
    for token in tokens {
        let given_back = match queue {
            Queue::Orchestrator => super::turns::abandon(batch, token, None, true),
            Queue::Worker => super::work::abandon(batch, token, None, true),
        };
        match given_back {
            // Gone already is as good as given back.
            Ok(()) | Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
