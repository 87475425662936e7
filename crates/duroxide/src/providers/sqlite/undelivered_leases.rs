//! Leases that were taken for a caller and have not reached it yet.
//!
//! A caller may drop its future at any point: also after its claims were committed and before it was polled again, or
//! while it still loads what goes with them. Then nobody knows of the leases. So the store gives them back at once,
//! instead of letting them run out.

use super::error::StoreError;
use super::quarantine::Queue;
use super::write_transaction::WriteTransaction;
use super::writer::GiveBacks;

/// Leases that the caller does not know of yet. Given back when this is dropped.
pub(super) struct UndeliveredLeases {
    queue: Queue,
    tokens: Vec<String>,
    give_backs: GiveBacks,
}

impl UndeliveredLeases {
    pub(super) fn new(queue: Queue, tokens: Vec<String>, give_backs: GiveBacks) -> Self {
        Self { queue, tokens, give_backs }
    }

    /// Adds these leases.
    pub(super) fn note(&mut self, tokens: impl Iterator<Item = String>) {
        self.tokens.extend(tokens);
    }

    /// Adds the leases of `other`.
    pub(super) fn add(&mut self, mut other: Self) {
        self.tokens.append(&mut other.tokens);
    }

    /// Gives nothing back: from here on the caller is responsible.
    pub(super) fn hand_over(mut self) {
        self.tokens.clear();
    }
}

impl Drop for UndeliveredLeases {
    fn drop(&mut self) {
        let (queue, tokens) = (self.queue, std::mem::take(&mut self.tokens));
        if !tokens.is_empty() {
            self.give_backs.submit("give_back", move |tx| give_back(tx, queue, &tokens));
        }
    }
}

/// Ends leases as if they had never been taken.
fn give_back(tx: &mut WriteTransaction<'_, '_>, queue: Queue, tokens: &[String]) -> Result<(), StoreError> {
    for token in tokens {
        let given_back = match queue {
            Queue::Orchestrator => super::turns::abandon(tx, token, None, true),
            Queue::Worker => super::work::abandon(tx, token, None, true),
        };
        match given_back {
            // Gone already is as good as given back.
            Ok(()) | Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
