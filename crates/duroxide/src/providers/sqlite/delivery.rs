//! Messages that wait for their instance, and messages that come with its start.

use super::SqliteProvider;
use super::inbox::JobClass;
use super::messages;
use super::write_transaction::WriteTransaction;
use crate::model::WorkItem;
use crate::providers::inspect::{self, MessageClass};
use crate::providers::rows::MessageRow;
use crate::providers::{DeliveryOutcome, ProviderError, SendOutcome, StartOutcome, refusal};

impl SqliteProvider {
    /// Enqueues a start unless the id is taken.
    pub(super) async fn start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_start_if_absent";
        if !matches!(start, WorkItem::StartOrchestration { .. }) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let start = MessageRow::encode(&self.shared.limits, OPERATION, &start)?;
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                if is_taken(tx, &start.instance)? {
                    return Ok(StartOutcome::Existing);
                }
                let now = tx.now_ms();
                messages::insert(tx, &start, 0, now)?;
                Ok(StartOutcome::New)
            })
            .await
    }

    /// Enqueues a message. If its instance does not exist, the store parks it instead of dropping it.
    pub(super) async fn send_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_or_park";
        if !inspect::may_wait_for_its_instance(&message) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = MessageRow::encode(&self.shared.limits, OPERATION, &message)?;
        let message = MessageRow { class: MessageClass::Signal, ..message };
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                let now = tx.now_ms();
                Ok(messages::insert(tx, &message, 0, now)?)
            })
            .await
    }

    /// Enqueues a message for an instance that has not ended, with a start if the id is free.
    pub(super) async fn start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_start_with_message";
        refusal::check_start_with_message(OPERATION, &start, &message)?;
        let start = MessageRow::encode(&self.shared.limits, OPERATION, &start)?;
        let message = MessageRow::encode(&self.shared.limits, OPERATION, &message)?;
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                if has_ended(tx, &start.instance)? {
                    return Ok(DeliveryOutcome::Ended);
                }
                let is_taken = is_taken(tx, &start.instance)?;
                let now = tx.now_ms();
                if !is_taken {
                    messages::insert(tx, &start, 0, now)?;
                }
                messages::insert(tx, &message, 0, now)?;
                Ok(if is_taken { DeliveryOutcome::Delivered } else { DeliveryOutcome::Started })
            })
            .await
    }

    /// Enqueues a message for an instance that exists and has not ended.
    pub(super) async fn send_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_if_alive";
        if !inspect::may_wait_for_its_instance(&message) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = MessageRow::encode(&self.shared.limits, OPERATION, &message)?;
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                if has_ended(tx, &message.instance)? {
                    return Ok(SendOutcome::Ended);
                }
                if !is_taken(tx, &message.instance)? {
                    return Ok(SendOutcome::NotFound);
                }
                let now = tx.now_ms();
                messages::insert(tx, &message, 0, now)?;
                Ok(SendOutcome::Sent)
            })
            .await
    }
}

/// Tells whether an id is taken: by a row, by history, or by a start that is queued.
fn is_taken(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    let exists = tx.row(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM instances WHERE instance_id = ?1)
         OR EXISTS (SELECT 1 FROM history WHERE instance_id = ?1)",
        [instance],
        |_| Ok(()),
    )?;
    Ok(exists.is_some() || messages::has_start(tx, instance)?)
}

fn has_ended(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    let ended = tx.row(
        "SELECT 1 FROM instances i
         JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1 AND e.status IN ('Completed', 'Failed')",
        [instance],
        |_| Ok(()),
    )?;
    Ok(ended.is_some())
}
