//! What attempts of activities leave behind, and activities that are completed from elsewhere.

use std::time::Duration;

use duroxide::providers::{AttemptToStore, ProviderError, WorkItem, inspect, refusal};

use crate::PostgresProvider;
use crate::encode::{self, leased_work};
use crate::jobs::Params;
use crate::shared::whole_ms;
use crate::text::stored;

const STORE_ATTEMPT: &str = "SELECT store_attempt_1($1, $2, $3, $4, $5)";
const COMPLETE: &str = "SELECT complete_activity_1($1, $2, $3, $4, $5, $6, $7)";

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
}
