//! One attempt at an activity: whether it may begin, what limits it, and what follows from its failure.
//!
//! [`crate::model::ActivityOptions`] has the rules.

use std::sync::Arc;
use std::time::Duration;

use super::claim::ClaimedActivity;
use super::result;
use crate::activity::{AttemptFacts, AttemptSigns};
use crate::model::{
    ACTIVITY_TIMED_OUT, ActivityProgress, QUOTE_LIMIT, begun_too_late, codec, error_text, quote,
};
use crate::providers::{AttemptToStore, ExtendedProvider, ProviderError, refusal};
use crate::runtime::core::{Core, TARGET};

/// The longest time between a heartbeat and its storage.
const LONGEST_UNSTORED: Duration = Duration::from_secs(1);

/// How often a worker looks at an activity whose result comes from elsewhere, at any time.
const BETWEEN_LOOKS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long an activity waits if the store takes nothing of its attempt.
const UNREPORTED_DELAY: Duration = Duration::from_millis(100);

/// Why the worker ends an attempt before its code returns.
pub(super) enum Interruption {
    /// It took too long, or was silent for too long.
    TimedOut(String),
    /// Its result comes from elsewhere.
    Pending,
}

/// Whether an attempt may begin.
pub(super) enum Start {
    Run,
    /// The activity is over without a run: with this failure, another attempt or not.
    Failed {
        error: String,
        may_retry: bool,
    },
    /// Its result comes from elsewhere, and there is time left.
    Awaited,
}

/// Returns which attempt a claim is, from 1.
pub(super) fn number(claim: &ClaimedActivity) -> u32 {
    let failed = claim.record.progress.as_ref().map_or(0, |progress| progress.failed_attempts);
    failed.saturating_add(claim.attempt_count)
}

/// Tells what the code of an activity may know of its attempt.
pub(super) fn facts(core: &Core, claim: &ClaimedActivity) -> AttemptFacts {
    AttemptFacts {
        entry: claim.record.entry,
        last_heartbeat: claim.record.progress.as_ref().and_then(|progress| progress.heartbeat.clone()),
        are_kept: store(core).is_some(),
    }
}

/// Tells whether an attempt may begin.
pub(super) fn start(core: &Core, claim: &ClaimedActivity) -> Start {
    let (options, progress) = (claim.record.options.as_deref(), claim.record.progress.as_deref());
    let (name, now_ms) = (&claim.work.name, core.clock.now_ms());
    if let Some(until_ms) = progress.and_then(|progress| progress.awaited_until_ms) {
        if until_ms == 0 || now_ms < until_ms {
            return Start::Awaited;
        }
        let error = format!("{ACTIVITY_TIMED_OUT}nobody completed '{name}' in time (start to close)");
        return Start::Failed { error, may_retry: true };
    }
    let Some(options) = options else { return Start::Run };
    let is_first = number(claim) == 1;
    if let Some(start_by_ms) = options.start_by_ms()
        && is_first
        && now_ms > start_by_ms
    {
        return Start::Failed { error: begun_too_late(name), may_retry: false };
    }
    if let Some(most) = options.stored_retry().and_then(|retry| retry.max_attempts())
        && number(claim) > most
    {
        let error = progress.and_then(|progress| progress.last_error.clone());
        let error = error.unwrap_or_else(|| {
            format!("activity '{name}' was begun {most} times, and its last attempt ended without a report")
        });
        return Start::Failed { error, may_retry: false };
    }
    Start::Run
}

/// Waits until the attempt must end, and stores its heartbeats meanwhile.
pub(super) async fn interruption(core: &Core, claim: &ClaimedActivity, signs: &AttemptSigns) -> Interruption {
    let options = claim.record.options.as_deref();
    let start_to_close = options.and_then(|options| options.start_to_close_timeout());
    let silence = options.and_then(|options| options.heartbeat_timeout());
    let began = core.clock.monotonic();
    let at = |from: Duration, limit: Option<Duration>| limit.map(|limit| from.saturating_add(limit));
    let close_at = at(began, start_to_close);
    let mut silent_at = at(began, silence);
    let interval = silence.map_or(LONGEST_UNSTORED, |silence| LONGEST_UNSTORED.min(silence / 4));
    let (mut heard, mut stored, mut store_at) = (0, 0, began);
    loop {
        let is_unstored = heard > stored && store(core).is_some();
        let next = [close_at, silent_at, is_unstored.then_some(store_at)].into_iter().flatten().min();
        tokio::select! {
            biased;
            () = signs.changed() => {
                let now = signs.now();
                if now.is_pending {
                    return Interruption::Pending;
                }
                if now.heartbeats > heard {
                    heard = now.heartbeats;
                    silent_at = at(core.clock.monotonic(), silence);
                }
            }
            () = sleep_until(core, next) => {
                let now = core.clock.monotonic();
                let name = &claim.work.name;
                if let (Some(limit), true) = (start_to_close, is_past(close_at, now)) {
                    let text = format!("{ACTIVITY_TIMED_OUT}'{name}' took longer than {limit:?} (start to close)");
                    return Interruption::TimedOut(text);
                }
                if let (Some(limit), true) = (silence, is_past(silent_at, now)) {
                    let text = format!("{ACTIVITY_TIMED_OUT}'{name}' gave no sign of life for {limit:?} (heartbeat)");
                    return Interruption::TimedOut(text);
                }
                if is_unstored && store_at <= now {
                    stored = signs.now().heartbeats;
                    note_heartbeat(core, claim, signs).await;
                    store_at = core.clock.monotonic().saturating_add(interval);
                }
            }
        }
    }
}

async fn sleep_until(core: &Core, at: Option<Duration>) {
    match at {
        Some(at) => core.clock.sleep(at.saturating_sub(core.clock.monotonic())).await,
        None => std::future::pending().await,
    }
}

fn is_past(at: Option<Duration>, now: Duration) -> bool {
    at.is_some_and(|at| at <= now)
}

async fn note_heartbeat(core: &Core, claim: &ClaimedActivity, signs: &AttemptSigns) {
    let progress = progress(claim, signs);
    if let Err(error) = store_once(core, claim, &progress, None).await {
        tracing::warn!(target: TARGET, instance = %claim.work.instance, activity_id = claim.work.id, %error,
            "heartbeat not stored");
    }
}

/// What the attempts have left behind so far, the heartbeats of this one included.
fn progress(claim: &ClaimedActivity, signs: &AttemptSigns) -> ActivityProgress {
    let mut progress = claim.record.progress.as_deref().cloned().unwrap_or_default();
    progress.awaited_until_ms = None;
    if let Some(data) = signs.now().data {
        progress.heartbeat = Some(data);
    }
    progress
}

/// Gives a failed attempt back for another one, if its options allow that; tells whether they do.
pub(super) async fn try_again(
    core: &Arc<Core>,
    claim: &ClaimedActivity,
    signs: &AttemptSigns,
    error: &str,
) -> bool {
    let now_ms = core.clock.now_ms();
    let work = &claim.work;
    let input = codec::activity_payload("input", &work.name, work.id, &work.instance);
    let Some(options) = claim.record.options.as_deref().filter(|_| !codec::is_decode_error_of(&input, error))
    else {
        return false;
    };
    let attempt = number(claim);
    let Some(pause) = options.pause_after(attempt, now_ms, error) else { return false };
    if store(core).is_none() {
        return false;
    }
    let mut progress = progress(claim, signs);
    // The claim is counted no more when it is given back.
    progress.failed_attempts = progress.failed_attempts.saturating_add(1);
    progress.last_error = Some(match error.len() <= QUOTE_LIMIT {
        true => error.to_string(),
        false => quote(error_text::words(error), QUOTE_LIMIT),
    });
    progress.last_failed_at_ms = Some(now_ms);
    tracing::info!(target: TARGET, instance = %work.instance, activity_name = %work.name, activity_id = work.id,
        attempt, pause_ms = pause.as_millis() as u64, "activity will be tried again");
    give_back(core, claim, progress, pause).await;
    true
}

/// Lets the store keep an activity whose result comes from elsewhere.
pub(super) async fn await_completion(core: &Arc<Core>, claim: &ClaimedActivity, signs: &AttemptSigns) {
    let limit = claim.record.options.as_deref().and_then(|options| options.start_to_close_timeout());
    let mut progress = progress(claim, signs);
    let until = |limit: Duration| core.clock.now_ms().saturating_add(crate::model::whole_ms(limit));
    progress.awaited_until_ms = Some(limit.map_or(0, until));
    give_back(core, claim, progress, limit.unwrap_or(BETWEEN_LOOKS)).await;
}

/// Gives back an activity at which the worker has looked too early: its completion has not come, and its time is not
/// over.
pub(super) async fn await_further(core: &Arc<Core>, claim: &ClaimedActivity) {
    let Some(progress) = claim.record.progress.as_deref().cloned() else { return };
    let left = match progress.awaited_until_ms {
        Some(until_ms) if until_ms > 0 => Duration::from_millis(until_ms.saturating_sub(core.clock.now_ms())),
        _ => BETWEEN_LOOKS,
    };
    give_back(core, claim, progress, left).await;
}

/// Gives an activity back with what its attempts left behind, however long that takes, unless it is lost.
async fn give_back(
    core: &Arc<Core>,
    claim: &ClaimedActivity,
    mut progress: ActivityProgress,
    delay: Duration,
) {
    let given_up = &claim.registration.cancellation;
    let mut failures = 0;
    loop {
        if given_up.is_removed() {
            return;
        }
        match store_once(core, claim, &progress, Some(delay)).await {
            Ok(()) => return,
            Err(error) if error.retryable => {
                failures += 1;
                result::log_failure(claim, &error, failures);
                tokio::select! {
                    biased;
                    () = given_up.token.cancelled() => return,
                    () = core.clock.sleep(result::pause(&claim.token, failures)) => {}
                }
            }
            Err(error) if refusal::is_unknown_work_token(&error) => {
                tracing::info!(target: TARGET, instance = %claim.work.instance, activity_id = claim.work.id,
                    "attempt dropped: the activity has ended, was given up, or another worker has it");
                return;
            }
            // The store refuses the data. The attempt counts without it.
            Err(_) if progress.heartbeat.is_some() => progress.heartbeat = None,
            Err(error) => {
                tracing::warn!(target: TARGET, instance = %claim.work.instance, activity_id = claim.work.id, %error,
                    "what the attempt leaves behind cannot be stored");
                let given_back =
                    core.store.abandon_work_item(&claim.token, Some(UNREPORTED_DELAY), false).await;
                if let Err(error) = given_back {
                    tracing::debug!(target: TARGET, instance = %claim.work.instance, %error,
                        "activity not given back; it returns when its lease ends");
                }
                return;
            }
        }
    }
}

async fn store_once(
    core: &Core,
    claim: &ClaimedActivity,
    progress: &ActivityProgress,
    give_back_after: Option<Duration>,
) -> Result<(), ProviderError> {
    let Some(store) = store(core) else { return Err(refusal::not_supported("store_progress")) };
    let item = claim.work.clone().into_item();
    let options = claim.record.options.as_deref();
    let attempt = AttemptToStore { lock_token: &claim.token, item: &item, options, progress };
    store.store_progress(attempt, give_back_after).await
}

/// The store, if it keeps what attempts leave behind.
fn store(core: &Core) -> Option<&dyn ExtendedProvider> {
    Some(core.store.extension()).filter(|store| store.keeps_attempts())
}
