//! What attempts of activities leave behind, and activities that are completed from elsewhere.

use std::time::Duration;

use duroxide::providers::rows::{QueuedRow, row_numbers};
use duroxide::providers::{
    AttemptToStore, ProviderError, ScheduledActivityIdentifier, UnbegunOutcome, WorkItem, inspect, refusal,
};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::encode::{self, leased_work};
use crate::functions::{Function, owned_params};
use crate::jobs::Params;
use crate::shared::whole_ms;
use crate::text::stored;

static STORE_ATTEMPT: Function = Function::value("store_attempt_1");
const QUEUED: &str =
    "SELECT id, attempt_count, lock_token IS NOT NULL AS is_leased, created_at, work_item FROM worker_queue
    WHERE instance_id = $1 AND execution_id = $2 AND activity_id = $3 ORDER BY id LIMIT 1";
/// The row is locked, and looked at again, before the function sees it.
const COMPLETE_UNBEGUN: &str = "SELECT complete_activity_1(p_now => $1, p_id => $2, p_instance => $3, p_execution => $4,
        p_activity => $5, p_class => $6, p_item => $7)
    FROM (SELECT 1 FROM worker_queue WHERE id = $2 AND attempt_count = 0 AND work_item = $8 FOR UPDATE) unbegun";
static COMPLETE: Function = Function::value("complete_activity_1");

/// How often to look at an activity that changes between look and statement.
const MOST_LOOKS: usize = 8;

impl PostgresProvider {
    /// Keeps what an attempt leaves behind, and gives the activity back if its caller says so.
    pub(crate) async fn store_attempt(
        &self,
        attempt: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "store_progress";
        let AttemptToStore { lock_token, item, options, progress } = attempt;
        let activity = encode::activity(&self.shared.limits, OPERATION, item, options, Some(progress))?;
        let id = leased_work(lock_token).ok_or_else(refusal::unknown_work_token)?;
        let call = STORE_ATTEMPT.call(owned_params![
            p_now: self.shared.time.given_ms(),
            p_id: id,
            p_token: lock_token.to_string(),
            p_item: activity.text,
            p_delay_ms: give_back_after.map(whole_ms),
        ]);
        let is_given_back = give_back_after.is_some();
        self.call(&self.committer, OPERATION, call, move |rows, effects| {
            match rows.first().is_some_and(|row| row.get(0)) {
                true => {
                    effects.work_ready |= is_given_back;
                    Ok(())
                }
                false => Err(refusal::unknown_work_token().into()),
            }
        })
        .await
    }

    /// Ends an activity from elsewhere; tells whether it was there.
    pub(crate) async fn complete_from_elsewhere(
        &self,
        entry: u64,
        completion: &WorkItem,
    ) -> Result<bool, ProviderError> {
        const OPERATION: &str = "complete_activity";
        let activity = inspect::completed_activity(completion).ok_or_else(refusal::wrong_completion)?;
        let message = encode::message(&self.shared.limits, OPERATION, completion)?;
        let numbers = row_numbers([entry, activity.execution_id, activity.activity_id]);
        let Some([entry, execution_id, activity_id]) = numbers else {
            // No stored activity has such a high id, so it was never here.
            return Ok(false);
        };
        let call = COMPLETE.call(owned_params![
            p_now: self.shared.time.given_ms(),
            p_id: entry,
            p_instance: stored(&activity.instance).into_owned(),
            p_execution: execution_id,
            p_activity: activity_id,
            p_class: message.class,
            p_item: message.text,
        ]);
        self.call(&self.committer, OPERATION, call, move |rows, effects| {
            let is_done = rows.first().is_some_and(|row| row.get(0));
            effects.instances_touched |= is_done;
            effects.work_ready |= is_done;
            Ok(is_done)
        })
        .await
    }

    /// Fails an activity that no worker has begun.
    pub(crate) async fn fail_if_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        const OPERATION: &str = "fail_unbegun";
        let numbers = row_numbers([activity.execution_id, activity.activity_id]);
        let Some([execution_id, activity_id]) = numbers else { return Ok(UnbegunOutcome::Settled) };
        let instance = stored(&activity.instance).into_owned();
        for _ in 0..MOST_LOOKS {
            let rows = self.rows(OPERATION, QUEUED, &[&instance, &execution_id, &activity_id]).await?;
            let Some(row) = rows.first() else { return Ok(UnbegunOutcome::Settled) };
            let queued = queued(row);
            let failure = match queued.failure() {
                Ok(failure) => failure,
                Err(outcome) => return Ok(outcome),
            };
            let message = encode::message(&self.shared.limits, OPERATION, &failure)?;
            let params: Params = vec![
                Box::new(self.shared.time.given_ms()),
                Box::new(queued.id),
                Box::new(instance.clone()),
                Box::new(execution_id),
                Box::new(activity_id),
                Box::new(message.class),
                Box::new(message.text),
                Box::new(queued.text),
            ];
            let done = self
                .call(&self.committer, OPERATION, (COMPLETE_UNBEGUN, params), move |rows, effects| {
                    let is_done = rows.first().is_some_and(|row| row.get(0));
                    effects.instances_touched |= is_done;
                    effects.work_ready |= is_done;
                    Ok(is_done)
                })
                .await?;
            if done {
                return Ok(UnbegunOutcome::Failed);
            }
            // It has changed since the look: a worker has claimed it, or it has ended.
        }
        Err(ProviderError::retryable(OPERATION, "the activity is being changed all the time"))
    }
}

fn queued(row: &Row) -> QueuedRow<String> {
    QueuedRow {
        id: row.get("id"),
        attempts: row.get("attempt_count"),
        is_leased: row.get("is_leased"),
        created_at: row.get("created_at"),
        text: row.get("work_item"),
    }
}
