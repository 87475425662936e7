//! The life of one claimed activity: find its handler, run it, report its result.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::attempt::{self, Interruption};
use super::claim::{ActivityWork, ClaimedActivity};
use super::guarded::{Guarded, Panicked};
use super::result::{self, Verdict};
use super::slot_queue::{Put, Start, WorkerSlot};
use crate::activity::{ActivityContext, ActivityIdentity, AttemptSigns};
use crate::model::{
    ErrorDetails, Obstacle, ObstacleKind, PoisonMessageType, RunningActivity, WorkItem, error_text,
    poison_message,
};
use crate::observability::ActivityOutcome;
use crate::runtime::core::{Core, TARGET};
use crate::runtime::options::{OnUnregistered, attempts_until_poison};
use crate::runtime::sessions::InSession;

/// An activity that is not registered here waits each time as long as after this many deliveries.
const DELIVERIES_UNTIL_STEADY: u32 = 4;

/// How long an activity waits before it runs again after its lease seemed to be lost.
const DISCARDED_DELAY: Duration = Duration::from_millis(100);

/// How user code ended.
enum UserCodeEnd {
    Returned(Result<String, String>),
    /// The orchestration no longer wants the result.
    Cancelled,
    /// It took too long; the text says how.
    TimedOut(String),
    /// Its result comes from elsewhere.
    Pending,
}

/// Starts an activity, queues it until a slot is free, or gives it back if the queue is closed. `slot` is one that the caller
/// holds for it.
pub(super) async fn put(core: &Arc<Core>, claim: ClaimedActivity, slot: Option<WorkerSlot>) {
    let put = match slot {
        Some(slot) => core.slot_queue.put_in(slot, claim),
        None => core.slot_queue.put(claim),
    };
    match put {
        Put::Start(start) => spawn(core, *start),
        Put::Waits => {}
        Put::Refused(claim) => claim.give_back(core, None).await,
    }
}

/// Runs an activity that is not bound to a session.
pub(super) fn spawn(core: &Arc<Core>, start: Start) {
    core.work.spawn(run(core.clone(), start, None));
}

/// Runs an activity in its slot. When the user's code has returned, the next activity gets the slot; this one keeps
/// session and permit until its result is stored.
pub(super) async fn run(core: Arc<Core>, start: Start, session: Option<InSession>) {
    let Start { claim, slot, permit } = start;
    let _until_stored = (session, permit);
    // Before its slot came free, the orchestration cancelled it, or another worker seems to have taken it over.
    if claim.registration.cancellation.token.is_cancelled() {
        pass_on(&core, slot);
        return claim.give_back(&core, None).await;
    }
    let handler = core.activities.resolve_handler(&claim.work.name);
    let waits = handler.is_none() && core.options.on_unregistered == OnUnregistered::Block;
    if claim.attempt_count > core.options.max_attempts && !waits {
        pass_on(&core, slot);
        return poison(&core, &claim).await;
    }
    let Some((_, handler)) = handler else {
        pass_on(&core, slot);
        return match waits {
            true => await_registration(&core, &claim).await,
            false => postpone_unregistered(&core, &claim).await,
        };
    };
    match attempt::start(&core, &claim) {
        attempt::Start::Run => {}
        attempt::Start::Awaited => {
            pass_on(&core, slot);
            return attempt::await_further(&core, &claim).await;
        }
        attempt::Start::Failed { error, may_retry } => {
            pass_on(&core, slot);
            return fail_unrun(&core, &claim, error, may_retry).await;
        }
    }
    let signs = Arc::<AttemptSigns>::default();
    let stop = stop_token(&claim);
    let ctx = context(&core, &claim, slot.index(), &stop).await;
    let ctx = ctx.with_attempt(attempt::facts(&core, &claim), signs.clone());
    let worker_id = ctx.worker_id().to_string();
    log_started(&claim, &worker_id);
    let started = core.clock.monotonic();
    let input = claim.work.input.clone();
    let mut mark = core.mark_running(&claim.token);
    mark.noted().await;
    let observed = core.observed.run(running(&core, &claim));
    let user_code = Guarded::new(async move { handler.invoke(ctx, input).await });
    let ended = wait(&core, &claim, user_code, &stop, &signs, &worker_id).await;
    // Before anything else: whatever kills the process from now on, this code has no part in it.
    drop(mark);
    drop(observed);
    let took = core.clock.monotonic().saturating_sub(started);
    core.slot_queue.pace.record(took);
    core.metrics().record_worker_dispatcher_execution_duration(took.as_millis() as u64);
    pass_on(&core, slot);
    let ended = Ended { how: ended, signs, took };
    report(&core, &claim, ended, &worker_id).await;
}

/// A run of user code that is over.
struct Ended {
    how: UserCodeEnd,
    signs: Arc<AttemptSigns>,
    took: Duration,
}

/// The token by which the code learns that it must stop. An attempt that takes too long is stopped, too, and its activity is
/// still wanted.
fn stop_token(claim: &ClaimedActivity) -> CancellationToken {
    let token = &claim.registration.cancellation.token;
    match claim.record.options {
        Some(_) => token.child_token(),
        None => token.clone(),
    }
}

/// Reports an attempt that failed before its code was called.
async fn fail_unrun(core: &Arc<Core>, claim: &ClaimedActivity, error: String, may_retry: bool) {
    let signs = AttemptSigns::default();
    if may_retry && attempt::try_again(core, claim, &signs, &error).await {
        return;
    }
    let completion = result::completion(&claim.work, Err(error));
    store_or_fail(core, claim, &completion).await;
    record(core, claim, ActivityOutcome::AppError, Duration::ZERO);
}

/// The activity as the heartbeat tells it.
fn running(core: &Core, claim: &ClaimedActivity) -> RunningActivity {
    let work = &claim.work;
    let mut running =
        RunningActivity::new(work.instance.as_str(), work.execution_id, work.id, work.name.as_str());
    (running.attempt, running.since_ms) = (attempt::number(claim), core.clock.now_ms());
    running
}

/// Gives a slot to the next waiting activity.
fn pass_on(core: &Arc<Core>, slot: WorkerSlot) {
    if core.stop.is_cancelled() {
        return;
    }
    if let Some(next) = core.slot_queue.next_in(slot) {
        spawn(core, next);
    }
}

async fn context(
    core: &Core,
    claim: &ClaimedActivity,
    slot: usize,
    stop: &CancellationToken,
) -> ActivityContext {
    let work = &claim.work;
    let origin = core.origins.find(&core.residents, &core.store, &work.instance, work.execution_id).await;
    let identity = ActivityIdentity {
        instance_id: work.instance.clone(),
        execution_id: work.execution_id,
        orchestration_name: origin.name.to_string(),
        orchestration_version: origin.version.to_string(),
        activity_name: work.name.clone(),
        activity_id: work.id,
        attempt: attempt::number(claim),
        worker_id: core.worker_id(slot),
        session_id: work.session_id.clone(),
        tag: work.tag.clone(),
    };
    ActivityContext::new(identity, stop.clone(), core.store.to_published())
}

/// Waits for user code. A cancelled activity gets some time to end by itself; then this drops it.
async fn wait(
    core: &Core,
    claim: &ClaimedActivity,
    mut user_code: Guarded<Result<String, String>>,
    stop: &CancellationToken,
    signs: &AttemptSigns,
    worker_id: &str,
) -> UserCodeEnd {
    let cancelled = claim.registration.cancellation.token.cancelled();
    let mut timed_out = None;
    tokio::select! {
        biased;
        () = cancelled => {}
        returned = &mut user_code => {
            return UserCodeEnd::Returned(returned.unwrap_or_else(|panic| Err(describe_panic(panic))));
        }
        interruption = attempt::interruption(core, claim, signs) => match interruption {
            Interruption::Pending => return UserCodeEnd::Pending,
            Interruption::TimedOut(text) => {
                stop.cancel();
                timed_out = Some(text);
            }
        }
    }
    let grace = core.options.activity_cancellation_grace_period;
    let work = &claim.work;
    tracing::info!(target: TARGET, instance = %work.instance, execution_id = work.execution_id,
        activity_name = %work.name, activity_id = work.id, worker_id, activity_tag = tag(work),
        grace_ms = grace.as_millis() as u64, is_timed_out = timed_out.is_some(), "activity is to stop, waiting for it to end");
    tokio::select! {
        _ = &mut user_code => {}
        () = core.clock.sleep(grace) => {}
    }
    match timed_out {
        Some(text) if !claim.registration.cancellation.token.is_cancelled() => UserCodeEnd::TimedOut(text),
        _ => UserCodeEnd::Cancelled,
    }
}

fn describe_panic(panic: Panicked) -> String {
    match panic.text {
        Some(text) => format!("activity panicked with message {text:?}"),
        None => "activity panicked".to_string(),
    }
}

async fn report(core: &Arc<Core>, claim: &ClaimedActivity, ended: Ended, worker_id: &str) {
    let Ended { how, signs, took } = ended;
    let result = match how {
        UserCodeEnd::Cancelled => return discard(core, claim, took).await,
        UserCodeEnd::Pending => {
            record(core, claim, ActivityOutcome::Pending, took);
            return attempt::await_completion(core, claim, &signs).await;
        }
        UserCodeEnd::Returned(result) => result,
        UserCodeEnd::TimedOut(text) => Err(text),
    };
    log_ended(claim, &result, took, worker_id);
    if let Err(error) = &result
        && attempt::try_again(core, claim, &signs, error).await
    {
        return record(core, claim, ActivityOutcome::AppError, took);
    }
    let outcome = if result.is_ok() { ActivityOutcome::Success } else { ActivityOutcome::AppError };
    let completion = result::completion(&claim.work, result);
    let outcome = match store_or_fail(core, claim, &completion).await {
        HowStored::AsItIs => outcome,
        HowStored::AsFailure => ActivityOutcome::AppError,
        HowStored::Not if claim.registration.cancellation.is_removed() => ActivityOutcome::Cancelled,
        HowStored::Not => ActivityOutcome::InfraError,
    };
    record(core, claim, outcome, took);
}

/// The form in which the store took the end of an activity.
enum HowStored {
    AsItIs,
    /// The store refused the result, and took a small failure instead.
    AsFailure,
    Not,
}

/// Stores a result. If the store refuses it for good, stores a failure of the activity that says so.
async fn store_or_fail(core: &Arc<Core>, claim: &ClaimedActivity, completion: &WorkItem) -> HowStored {
    let (work, refusal) = match result::store(core, claim, completion).await {
        Verdict::Stored => return HowStored::AsItIs,
        Verdict::Gone => return dropped(claim),
        Verdict::Refused(refusal) => (&claim.work, refusal),
    };
    tracing::warn!(target: TARGET, instance = %work.instance, activity_name = %work.name, activity_id = work.id,
        error = %refusal.error, "the store refuses the result; the activity fails");
    let substitute = result::substitute(work, completion, &refusal);
    match result::store(core, claim, &substitute).await {
        Verdict::Stored => HowStored::AsFailure,
        Verdict::Gone => dropped(claim),
        Verdict::Refused(refusal) => {
            result::set_aside(core, claim, &refusal).await;
            HowStored::Not
        }
    }
}

fn dropped(claim: &ClaimedActivity) -> HowStored {
    tracing::info!(target: TARGET, instance = %claim.work.instance, activity_id = claim.work.id,
        "result dropped: the activity was given up, or another worker has it");
    HowStored::Not
}

/// Ends an activity without its result. Only the turn that cancels a step removes its item from the store: if the item
/// is still there, the orchestration still waits, and the activity must run again.
async fn discard(core: &Core, claim: &ClaimedActivity, took: Duration) {
    record(core, claim, ActivityOutcome::Cancelled, took);
    if claim.registration.cancellation.is_removed() {
        return;
    }
    let abandoned = core.store.abandon_work_item(&claim.token, Some(DISCARDED_DELAY), false).await;
    if let Err(error) = abandoned {
        tracing::debug!(target: TARGET, instance = %claim.work.instance, activity_id = claim.work.id, %error,
            "activity not given back; it was removed or taken over, or returns when its lease ends");
    }
}

/// Answers an activity that the store delivered too often with a failure that names it.
async fn poison(core: &Arc<Core>, claim: &ClaimedActivity) {
    let work = &claim.work;
    let (attempt_count, max_attempts) = (claim.attempt_count, core.options.max_attempts);
    tracing::warn!(target: TARGET, instance = %work.instance, activity_name = %work.name, activity_id = work.id,
        attempt_count, max_attempts, "activity was delivered too often and is failed as poison");
    let reason = match core.activities.resolve_handler(&work.name) {
        Some(_) => None,
        None => Some(core.activities.describe_missing(&work.name, None)),
    };
    let text = serde_json::to_string(&work.clone().into_item()).unwrap_or_default();
    let message = poison_message(reason.as_deref(), &text);
    let details = ErrorDetails::Poison {
        attempt_count,
        max_attempts,
        message_type: PoisonMessageType::Activity {
            instance: work.instance.clone(),
            execution_id: work.execution_id,
            activity_name: work.name.clone(),
            activity_id: work.id,
        },
        message,
    };
    match store_or_fail(core, claim, &result::failure(work, details)).await {
        HowStored::AsItIs | HowStored::AsFailure => core.metrics().record_activity_poison(),
        HowStored::Not => {}
    }
}

/// Gives an activity back, for a runtime that has it registered or will have it. No attempt counts, so that it never is
/// poison.
async fn await_registration(core: &Core, claim: &ClaimedActivity) {
    let work = &claim.work;
    let delay = core.options.unregistered_backoff.delay(DELIVERIES_UNTIL_STEADY);
    tracing::warn!(target: TARGET, instance = %work.instance, activity_name = %work.name,
        backoff_secs = delay.as_secs_f64(), "{}", core.activities.describe_missing(&work.name, None));
    if let Err(error) = core.store.abandon_work_item(&claim.token, Some(delay), true).await {
        tracing::debug!(target: TARGET, instance = %work.instance, activity_id = work.id, %error,
            "activity not given back; it returns when its lease ends");
    }
    meet_unregistered(core, claim, delay);
}

/// Gives an activity back, for a runtime that has it registered.
async fn postpone_unregistered(core: &Core, claim: &ClaimedActivity) {
    let work = &claim.work;
    let delay = core.options.unregistered_backoff.delay(claim.attempt_count);
    let remaining = attempts_until_poison(core.options.max_attempts, claim.attempt_count);
    let seconds = delay.as_secs_f64();
    tracing::warn!(target: TARGET, instance = %work.instance, activity_name = %work.name,
        attempt_count = claim.attempt_count, max_attempts = core.options.max_attempts,
        remaining_attempts = remaining, backoff_secs = seconds,
        "Activity not registered, abandoning with {seconds:.1}s backoff (will poison in {remaining} more attempts)");
    if let Err(error) = core.store.abandon_work_item(&claim.token, Some(delay), false).await {
        tracing::debug!(target: TARGET, instance = %work.instance, activity_id = work.id, %error,
            "activity not given back; it returns when its lease ends");
    }
    meet_unregistered(core, claim, delay);
}

/// Notes for the next report that an activity is not registered here. Lists of blocked instances then show its
/// instance.
fn meet_unregistered(core: &Core, claim: &ClaimedActivity, delay: Duration) {
    let work = &claim.work;
    let obstacle = Obstacle::new(
        work.instance.as_str(),
        work.execution_id,
        Some(work.id),
        ObstacleKind::Unregistered,
        work.name.as_str(),
        core.activities.describe_missing(&work.name, None),
    );
    core.meet_obstacle(obstacle, claim.attempt_count, delay);
}

fn record(core: &Core, claim: &ClaimedActivity, outcome: ActivityOutcome, took: Duration) {
    let retries = attempt::number(claim).saturating_sub(1);
    core.metrics().record_activity_execution(
        &claim.work.name,
        outcome.as_str(),
        took.as_secs_f64(),
        retries,
        claim.work.tag.as_deref(),
    );
}

fn tag(work: &ActivityWork) -> &str {
    work.tag.as_deref().unwrap_or("default")
}

fn log_started(claim: &ClaimedActivity, worker_id: &str) {
    let work = &claim.work;
    tracing::debug!(target: TARGET, instance_id = %work.instance, execution_id = work.execution_id,
        activity_name = %work.name, activity_id = work.id, worker_id, activity_tag = tag(work),
        "Activity started");
}

fn log_ended(claim: &ClaimedActivity, result: &Result<String, String>, took: Duration, worker_id: &str) {
    let work = &claim.work;
    let duration_ms = took.as_millis() as u64;
    match result {
        Ok(result) => tracing::debug!(target: TARGET, instance_id = %work.instance,
            execution_id = work.execution_id, activity_name = %work.name, activity_id = work.id, worker_id,
            activity_tag = tag(work), outcome = ActivityOutcome::Success.as_str(), duration_ms, result_size = result.len(),
            "Activity completed"),
        Err(error) => tracing::warn!(target: TARGET, instance_id = %work.instance,
            execution_id = work.execution_id, activity_name = %work.name, activity_id = work.id, worker_id,
            activity_tag = tag(work), outcome = ActivityOutcome::AppError.as_str(), duration_ms, error = error_text::words(error),
            "Activity failed (application error)"),
    }
}
