//! Gives leases back whose caller went away before it got them, through the writer and without waiting.

use std::sync::Arc;

use super::error::StoreError;
use super::inbox::Inbox;
use super::write_transaction::WriteTransaction;
use super::writer;
use crate::providers::WorkQueue;
use crate::providers::rows::GiveBack;

/// Gives leases back, from any thread.
#[derive(Clone)]
pub(super) struct GiveBacks(pub(super) Arc<Inbox>);

impl GiveBack for GiveBacks {
    fn give_back(&self, queue: WorkQueue, tokens: Vec<String>) {
        writer::submit_unattended(&self.0, "give_back", move |tx| give_back(tx, queue, &tokens));
    }
}

/// Ends leases as if they had never been taken.
fn give_back(
    tx: &mut WriteTransaction<'_, '_>,
    queue: WorkQueue,
    tokens: &[String],
) -> Result<(), StoreError> {
    for token in tokens {
        let given_back = match queue {
            WorkQueue::Orchestrator => super::turns::abandon(tx, token, None, true),
            WorkQueue::Worker => super::work::abandon(tx, token, None, true),
        };
        match given_back {
            // A lease that is already gone is as good as given back.
            Ok(()) | Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
