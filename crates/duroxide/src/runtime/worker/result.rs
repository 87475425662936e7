//! Stores the result of an activity.
//!
//! A result has cost a run of user code, so the worker offers it to the store again and again while it holds the
//! activity. It keeps the claim meanwhile, so the runtime renews the lease.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::claim::{ActivityWork, ClaimedActivity};
use crate::model::{AppErrorKind, ErrorDetails, Obstacle, ObstacleKind, QUOTE_LIMIT, WorkItem, quote};
use crate::providers::{LeaseState, ProviderError};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::orchestrator;
use crate::runtime::steps::{self, Offered, OfferedResult};

/// The longest first pause before another attempt to store a result; each further one may be twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long an activity is set aside when the store refuses its failure: the first time, and at most.
const FIRST_TIME_ASIDE: Duration = Duration::from_secs(60);
const LONGEST_TIME_ASIDE: Duration = Duration::from_secs(60 * 60);

/// The store's answer to a result.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The store has it.
    Stored,
    /// The activity is no longer this worker's: its turn cancelled it, or another worker took it over.
    Gone,
    /// The store refuses the result and always will.
    Refused(Refusal),
}

/// A result that the store does not take.
#[derive(Debug)]
pub(super) struct Refusal {
    pub error: ProviderError,
    /// The state of the lease, as the store sees it.
    lease: LeaseState,
}

/// An attempt that the store answered with an error.
struct Failure {
    error: ProviderError,
    /// The result is committed, but the store could not make sure that it survives a power cut.
    is_committed: bool,
}

impl Failure {
    fn may_pass(&self) -> bool {
        self.is_committed || self.error.retryable
    }
}

/// Stores a result, however long that takes, unless the activity is lost or the store refuses the result for good.
pub(super) async fn store(core: &Arc<Core>, claim: &ClaimedActivity, completion: &WorkItem) -> Verdict {
    let given_up = &claim.registration.cancellation;
    let mut failures = 0;
    let mut refusals = 0;
    // An attempt that failed may have committed all the same. The next attempt then finds the activity gone.
    let mut is_perhaps_stored = false;
    let offered = OfferedResult { token: claim.token.clone(), completion: Arc::new(completion.clone()) };
    match steps::offer(core, offered, claim.attempt_count).await {
        Offered::Stored => return Verdict::Stored,
        Offered::NotTaken { is_perhaps_stored: perhaps } => is_perhaps_stored |= perhaps,
    }
    loop {
        let Err(failure) = attempt(core, claim, completion.clone()).await else { return Verdict::Stored };
        let gone = |is_perhaps_stored| match is_perhaps_stored && !given_up.is_removed() {
            true => Verdict::Stored,
            false => Verdict::Gone,
        };
        let mut error = failure.error.clone();
        if failure.may_pass() {
            is_perhaps_stored = true;
        } else {
            refusals += 1;
            match core.leases.recover(core.activity_lease(), &claim.token).await {
                Ok(LeaseState::Lost) => {
                    if !is_perhaps_stored {
                        core.leases.note_lost(&claim.token);
                    }
                    return gone(is_perhaps_stored);
                }
                // Its lease may have run out. The lease is live now, so a second refusal is about the result itself.
                Ok(_) if refusals == 1 => continue,
                Ok(lease) => return Verdict::Refused(Refusal { error, lease }),
                // The store is in trouble, and its refusal may be part of that.
                Err(trouble) => error = trouble,
            }
        }
        failures += 1;
        log_failure(claim, &error, failures);
        tokio::select! {
            biased;
            () = given_up.token.cancelled() => return gone(is_perhaps_stored),
            () = core.clock.sleep(pause(&claim.token, failures)) => {}
        }
    }
}

/// Offers a result to the store once. If this runtime has room for a turn, the same commit claims one: most likely the
/// turn that the result leads to, whose own commit then makes the result durable too.
async fn attempt(core: &Arc<Core>, claim: &ClaimedActivity, completion: WorkItem) -> Result<(), Failure> {
    let uncommitted = |error| Failure { error, is_committed: false };
    let permit = orchestrator::reserve(core);
    let request = permit.as_ref().map(|_| orchestrator::request(core, 1));
    let store = core.store.extension();
    let stored = store.store_result(&claim.token, Some(completion), request.as_ref()).await;
    let stored = stored.map_err(uncommitted)?;
    orchestrator::receive(core, stored.claims, permit);
    stored.durable.wait().await.map_err(|error| Failure { error, is_committed: true })
}

/// Returns the pause after this many failures in a row. The token picks a point between half and all of the longest
/// pause, so that the results of an outage do not all come back at once.
pub(super) fn pause(token: &str, failures: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(10)).min(LONGEST_PAUSE);
    let mut hasher = DefaultHasher::new();
    (token, failures).hash(&mut hasher);
    let thousandths = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    longest / 2 + longest / 2 * thousandths / 1000
}

pub(super) fn log_failure(claim: &ClaimedActivity, error: &ProviderError, failures: u32) {
    let work = &claim.work;
    tracing::warn!(target: TARGET, instance = %work.instance, activity_id = work.id, %error, failures,
        "result not stored yet, trying again");
}

/// Turns the return value of user code into a message to its orchestration.
pub(super) fn completion(work: &ActivityWork, result: Result<String, String>) -> WorkItem {
    match result {
        Ok(result) => {
            let (instance, execution_id, id) = (work.instance.clone(), work.execution_id, work.id);
            WorkItem::ActivityCompleted { instance, execution_id, id, result }
        }
        Err(message) => {
            let kind = AppErrorKind::ActivityFailed;
            failure(work, ErrorDetails::Application { kind, message, retryable: false })
        }
    }
}

/// Turns a failure into a message to the orchestration.
pub(super) fn failure(work: &ActivityWork, details: ErrorDetails) -> WorkItem {
    let (instance, execution_id, id) = (work.instance.clone(), work.execution_id, work.id);
    WorkItem::ActivityFailed { instance, execution_id, id, details }
}

/// Makes the small failure that replaces a result that the store refuses.
pub(super) fn substitute(work: &ActivityWork, refused: &WorkItem, refusal: &Refusal) -> WorkItem {
    let name = quote(&work.name, QUOTE_LIMIT / 4);
    let reason = quote(&refusal.error.message, QUOTE_LIMIT / 4);
    let message = match refused {
        WorkItem::ActivityCompleted { result, .. } => {
            let size = result.len();
            format!("the result of activity '{name}' cannot be stored ({size} bytes): {reason}")
        }
        WorkItem::ActivityFailed { details: ErrorDetails::Application { message, .. }, .. } => {
            quote(message, QUOTE_LIMIT)
        }
        _ => format!("the failure of activity '{name}' cannot be stored: {reason}"),
    };
    completion(work, Err(message))
}

/// Gives an activity back with a delay, longer each time, because the store does not even take its failure.
pub(super) async fn set_aside(core: &Core, claim: &ClaimedActivity, refusal: &Refusal) {
    let (work, attempt_count) = (&claim.work, claim.attempt_count);
    let delay = match refusal.lease {
        // This store cannot tell a refused failure from a lost lease, so the activity may be fine.
        LeaseState::Unknown => core.options.unregistered_backoff.delay(attempt_count),
        _ => FIRST_TIME_ASIDE
            .saturating_mul(1 << attempt_count.saturating_sub(1).min(10))
            .min(LONGEST_TIME_ASIDE),
    };
    let kind = ObstacleKind::Unstorable;
    let (name, reason) = (work.name.as_str(), refusal.error.to_string());
    let obstacle =
        Obstacle::new(work.instance.as_str(), work.execution_id, Some(work.id), kind, name, reason);
    core.meet_obstacle(obstacle, attempt_count, delay);
    match core.store.abandon_work_item(&claim.token, Some(delay), false).await {
        Ok(()) => tracing::error!(target: TARGET, instance = %work.instance, activity_name = %work.name,
            activity_id = work.id, attempt_count, delay_secs = delay.as_secs(), error = %refusal.error,
            "neither the result of the activity nor its failure can be stored; it is set aside"),
        Err(error) => {
            tracing::debug!(target: TARGET, instance = %work.instance, activity_id = work.id, %error,
            "activity not given back; it returns when its lease ends")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_seconds_and_differ_between_results() {
        for (failures, most) in [(1, 100), (2, 200), (3, 400), (6, 3_200), (7, 5_000), (u32::MAX, 5_000)] {
            let most = Duration::from_millis(most);
            let pauses: Vec<Duration> = (0..100).map(|i| pause(&format!("token {i}"), failures)).collect();
            assert!(pauses.iter().all(|pause| *pause >= most / 2 && *pause <= most), "{pauses:?}");
            let different: std::collections::HashSet<_> = pauses.iter().collect();
            assert!(different.len() > 80, "{pauses:?}");
        }
    }

    #[test]
    fn what_takes_the_place_of_a_refused_result_is_small_and_names_the_reason() {
        let work = ActivityWork {
            instance: "order-7".into(),
            execution_id: 1,
            id: 2,
            name: "n".repeat(1_000_000),
            input: String::new(),
            session_id: None,
            tag: None,
        };
        let error = ProviderError::permanent("ack_work_item", "payload is 9 bytes long; at most 8");
        let refusal = Refusal { error, lease: LeaseState::Held };
        let poison = ErrorDetails::Poison {
            attempt_count: 2,
            max_attempts: 1,
            message_type: crate::model::PoisonMessageType::Activity {
                instance: "order-7".into(),
                execution_id: 1,
                activity_name: work.name.clone(),
                activity_id: 2,
            },
            message: String::new(),
        };
        let too_much = || "\u{1}".repeat(1_000_000);
        let refused =
            [completion(&work, Ok(too_much())), completion(&work, Err(too_much())), failure(&work, poison)];
        for (refused, wanted) in refused.iter().zip(["at most 8", "1000000 bytes", "at most 8"]) {
            let stored = serde_json::to_string(&substitute(&work, refused, &refusal)).unwrap();
            assert!(stored.len() < 2 * QUOTE_LIMIT && stored.contains(wanted), "{stored}");
        }
    }
}
