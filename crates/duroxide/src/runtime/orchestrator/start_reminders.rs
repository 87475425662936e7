//! Activities that no worker begins in time.
//!
//! [`crate::model::start_reminder`] is the message. It comes with the other messages of a turn, and does not reach the
//! code: the runtime that has claimed the instance asks the store to fail the activity unless a worker has begun it,
//! and the failure is the next message of the instance. The store deletes the reminder with the turn. So after a crash
//! in between the reminder comes again, and finds the activity gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::claim::Claim;
use crate::model::{ActivityOptions, WorkItem, reminded_activity, start_reminder, whole_ms};
use crate::providers::{ScheduledActivityIdentifier, UnbegunOutcome, refusal};
use crate::runtime::core::{Core, TARGET};

/// The shortest time until another look at an activity that a worker has leased for the first time, or that the store did not
/// tell about. Each further look comes when the activity is twice as old.
const SHORTEST_PAUSE: Duration = Duration::from_secs(30);

/// The runtime no longer looks at an activity that is older than this: a worker that has held its first lease all this time
/// has begun it.
const OLDEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Makes the reminders that these new activities ask for.
pub(super) fn of_options(
    instance: &str,
    options: &[(u64, ActivityOptions)],
) -> impl Iterator<Item = WorkItem> {
    options.iter().filter_map(move |(activity_id, options)| {
        // A worker may begin until the very end of that time.
        let due_at_ms = options.start_by_ms()?.saturating_add(1);
        Some(start_reminder(instance, *activity_id, due_at_ms))
    })
}

/// Takes the reminders out of the messages, and fails the activities that no worker has begun. Returns the reminders
/// for another look, which the caller stores with the turn.
pub(super) async fn take(core: &Arc<Core>, claim: &mut Claim) -> Vec<WorkItem> {
    // An instance that has ended has no activities, and no code reads its messages.
    let is_reminder = |message: &WorkItem| reminded_activity(message).is_some();
    if claim.is_known_to_have_ended() || !claim.messages.iter().any(is_reminder) {
        return Vec::new();
    }
    // All at once: the store puts them into one commit.
    let mut looks = JoinSet::new();
    for activity_id in claim.messages.iter().filter_map(reminded_activity) {
        let (instance, execution_id) = (claim.instance.clone(), claim.execution_id);
        let activity = ScheduledActivityIdentifier { instance, execution_id, activity_id };
        looks.spawn(look(core.clone(), activity));
    }
    claim.messages.retain(|message| !is_reminder(message));
    looks.join_all().await.into_iter().flatten().collect()
}

async fn look(core: Arc<Core>, activity: ScheduledActivityIdentifier) -> Option<WorkItem> {
    let ScheduledActivityIdentifier { instance, activity_id, .. } = &activity;
    let now_ms = core.clock.now_ms();
    let age_ms = match core.store.extension().fail_unbegun(&activity).await {
        Ok(UnbegunOutcome::Failed) => {
            tracing::info!(target: TARGET, %instance, activity_id, "no worker began the activity in time");
            return None;
        }
        Ok(UnbegunOutcome::Settled) => return None,
        Ok(UnbegunOutcome::Held { entered_at_ms }) => match now_ms.saturating_sub(entered_at_ms) {
            age_ms if age_ms > whole_ms(OLDEST) => return None,
            age_ms => age_ms,
        },
        Err(error) if refusal::is_not_supported(&error) => return None,
        Err(error) => {
            tracing::warn!(target: TARGET, %instance, activity_id, %error,
                "the store does not tell whether the activity was begun in time; it is asked again later");
            0
        }
    };
    let pause_ms = age_ms.max(whole_ms(SHORTEST_PAUSE));
    Some(start_reminder(instance, *activity_id, now_ms.saturating_add(pause_ms)))
}
