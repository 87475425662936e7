//! What attempts of activities leave behind, and activities that are completed from elsewhere.

use std::time::Duration;

use duroxide::providers::{
    AttemptToStore, ProviderError, ScheduledActivityIdentifier, UnbegunOutcome, WorkItem, inspect, refusal,
};

use crate::PostgresProvider;
use crate::encode::{self, leased_work};
use crate::jobs::Params;
use crate::shared::whole_ms;
use crate::text::stored;

const STORE_ATTEMPT: &str = "SELECT store_attempt_1($1, $2, $3, $4, $5)";
const QUEUED: &str =
    "SELECT id, attempt_count, lock_token IS NOT NULL, created_at, work_item FROM worker_queue
    WHERE instance_id = $1 AND execution_id = $2 AND activity_id = $3 ORDER BY id LIMIT 1";
/// The row is locked, and looked at again, before the function sees it.
const COMPLETE_UNBEGUN: &str = "SELECT complete_activity_1($1, $2, $3, $4, $5, $6, $7) FROM (
    SELECT 1 FROM worker_queue WHERE id = $2 AND attempt_count = 0 AND work_item = $8 FOR UPDATE) unbegun";
const COMPLETE: &str = "SELECT complete_activity_1($1, $2, $3, $4, $5, $6, $7)";

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
        let params: Params = vec![
            Box::new(self.shared.time.given_ms()),
            Box::new(id),
            Box::new(lock_token.to_string()),
            Box::new(activity.text),
            Box::new(give_back_after.map(whole_ms)),
        ];
        let is_given_back = give_back_after.is_some();
        self.call(&self.committer, OPERATION, STORE_ATTEMPT, params, move |rows, effects| {
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
        let numbers = [entry, activity.execution_id, activity.activity_id].map(i64::try_from);
        let [Ok(entry), Ok(execution_id), Ok(activity_id)] = numbers else {
            // No stored activity has such a high id, so it was never here.
            return Ok(false);
        };
        let params: Params = vec![
            Box::new(self.shared.time.given_ms()),
            Box::new(entry),
            Box::new(stored(&activity.instance).into_owned()),
            Box::new(execution_id),
            Box::new(activity_id),
            Box::new(message.class),
            Box::new(message.text),
        ];
        self.call(&self.committer, OPERATION, COMPLETE, params, move |rows, effects| {
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
        let numbers = [activity.execution_id, activity.activity_id].map(i64::try_from);
        let [Ok(execution_id), Ok(activity_id)] = numbers else { return Ok(UnbegunOutcome::Settled) };
        let instance = stored(&activity.instance).into_owned();
        for _ in 0..MOST_LOOKS {
            let rows = self.rows(OPERATION, QUEUED, &[&instance, &execution_id, &activity_id]).await?;
            let Some(row) = rows.first() else { return Ok(UnbegunOutcome::Settled) };
            let text: String = row.get(4);
            let Some(failure) = inspect::failure_of_unbegun(text.as_bytes()) else {
                return Ok(UnbegunOutcome::Settled);
            };
            match (row.get::<_, i64>(1), row.get::<_, bool>(2)) {
                (0, _) => {}
                (1, true) => {
                    let entered_at_ms = u64::try_from(row.get::<_, i64>(3)).unwrap_or_default();
                    return Ok(UnbegunOutcome::Held { entered_at_ms });
                }
                _ => return Ok(UnbegunOutcome::Settled),
            }
            let message = encode::message(&self.shared.limits, OPERATION, &failure)?;
            let params: Params = vec![
                Box::new(self.shared.time.given_ms()),
                Box::new(row.get::<_, i64>(0)),
                Box::new(instance.clone()),
                Box::new(execution_id),
                Box::new(activity_id),
                Box::new(message.class),
                Box::new(message.text),
                Box::new(text),
            ];
            let done = self
                .call(&self.committer, OPERATION, COMPLETE_UNBEGUN, params, move |rows, effects| {
                    let is_done = rows.first().is_some_and(|row| row.get(0));
                    effects.instances_touched |= is_done;
                    effects.work_ready |= is_done;
                    Ok(is_done)
                })
                .await?;
            if done {
                return Ok(UnbegunOutcome::Failed);
            }
            // It has changed since the look: somebody has claimed or ended it.
        }
        Err(ProviderError::retryable(OPERATION, "the activity is being changed all the time"))
    }
}
