//! What attempts of activities leave behind, and activities that are completed from elsewhere.

use std::time::Duration;

use rusqlite::params;

use super::error::StoreError;
use super::inbox::JobClass;
use super::write_transaction::WriteTransaction;
use super::{SqliteProvider, messages, work};
use crate::model::WorkItem;
use crate::providers::rows::{ActivityRow, MessageRow, QueuedRow, row_numbers};
use crate::providers::{
    AttemptToStore, ProviderError, ScheduledActivityIdentifier, UnbegunOutcome, inspect, refusal,
};

impl SqliteProvider {
    /// Keeps what an attempt leaves behind, and gives the activity back if its caller says so.
    pub(super) async fn store_attempt(
        &self,
        attempt: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "store_progress";
        let AttemptToStore { lock_token, item, options, progress } = attempt;
        let limits = &self.shared.limits;
        let text = ActivityRow::encode_with(limits, OPERATION, item, options, Some(progress))?.text;
        let token = lock_token.to_string();
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                work::rewrite(tx, &token, &text)?;
                match give_back_after {
                    None => Ok(()),
                    delay => work::abandon(tx, &token, delay, true),
                }
            })
            .await
    }

    /// Ends an activity from elsewhere; tells whether it was there.
    pub(super) async fn complete_from_elsewhere(
        &self,
        entry: u64,
        completion: &WorkItem,
    ) -> Result<bool, ProviderError> {
        const OPERATION: &str = "complete_activity";
        let activity = inspect::completed_activity(completion).ok_or_else(refusal::wrong_completion)?;
        let message = MessageRow::encode(&self.shared.limits, OPERATION, completion)?;
        let numbers = row_numbers([entry, activity.execution_id, activity.activity_id]);
        let Some([entry, execution_id, activity_id]) = numbers else {
            // No stored activity has such a high id, so it was never here.
            return Ok(false);
        };
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                complete(tx, entry, execution_id, activity_id, &message)
            })
            .await
    }

    /// Fails an activity that no worker has begun.
    pub(super) async fn fail_if_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        const OPERATION: &str = "fail_unbegun";
        let numbers = row_numbers([activity.execution_id, activity.activity_id]);
        let Some([execution_id, activity_id]) = numbers else { return Ok(UnbegunOutcome::Settled) };
        let (limits, instance) = (self.shared.limits, activity.instance.clone());
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                let Some(queued) = queued(tx, &instance, execution_id, activity_id)? else {
                    return Ok(UnbegunOutcome::Settled);
                };
                let failure = match queued.failure() {
                    Ok(failure) => failure,
                    Err(outcome) => return Ok(outcome),
                };
                let failure = MessageRow::encode(&limits, OPERATION, &failure)?;
                complete(tx, queued.id, execution_id, activity_id, &failure)?;
                Ok(UnbegunOutcome::Failed)
            })
            .await
    }
}

fn queued(
    tx: &WriteTransaction<'_, '_>,
    instance: &str,
    execution_id: i64,
    activity_id: i64,
) -> rusqlite::Result<Option<QueuedRow<Vec<u8>>>> {
    tx.row(
        "SELECT id, attempt_count, lock_token IS NOT NULL AS is_leased, created_at, work_item FROM worker_queue
         WHERE instance_id = ?1 AND execution_id = ?2 AND activity_id = ?3 ORDER BY id LIMIT 1",
        params![instance, execution_id, activity_id],
        |row| {
            Ok(QueuedRow {
                id: row.get("id")?,
                attempts: row.get("attempt_count")?,
                is_leased: row.get("is_leased")?,
                created_at: row.get("created_at")?,
                text: row.get_ref("work_item")?.as_bytes()?.to_vec(),
            })
        },
    )
}

fn complete(
    tx: &mut WriteTransaction<'_, '_>,
    entry: i64,
    execution_id: i64,
    activity_id: i64,
    completion: &MessageRow,
) -> Result<bool, StoreError> {
    let removed = tx.execute(
        "DELETE FROM worker_queue WHERE id = ?1 AND instance_id = ?2 AND execution_id = ?3 AND activity_id = ?4",
        params![entry, completion.instance, execution_id, activity_id],
    )?;
    if removed == 0 {
        return Ok(false);
    }
    // The next activity of its session may be ready now.
    tx.effects.work_ready = true;
    let now = tx.now_ms();
    messages::insert(tx, completion, 0, now)?;
    Ok(true)
}
