//! What attempts of activities leave behind, and activities that are completed from elsewhere.

use std::time::Duration;

use rusqlite::params;

use super::error::StoreError;
use super::inbox::JobClass;
use super::write_transaction::WriteTransaction;
use super::{SqliteProvider, messages, work};
use crate::model::WorkItem;
use crate::providers::rows::{ActivityRow, MessageRow};
use crate::providers::{AttemptToStore, ProviderError, inspect, refusal};

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
        let numbers = [entry, activity.execution_id, activity.activity_id].map(i64::try_from);
        let [Ok(entry), Ok(execution_id), Ok(activity_id)] = numbers else {
            // No stored activity has such a high id, so it was never here.
            return Ok(false);
        };
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                complete(tx, entry, execution_id, activity_id, &message)
            })
            .await
    }
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
