//! Handles a turn that the store did not take.
//!
//! - A storage error that may pass, a full disk among them, never fails an instance. The runtime gives the turn back
//!   without counting an attempt, and takes it again after longer and longer waits. Meanwhile it holds the instance:
//!   new messages wait behind those of that turn.
//! - A refusal that will not pass fails the instance, in a commit of its own that is small enough for the store.
//! - A turn whose lease ran out while it waited for the store is its holder's again, unless another runtime has taken over.
//!   That runtime then takes the turn, and this one leaves nothing behind. In neither case does the attempt count.
//! - If the store refuses even the failure, runtimes take the turn again until its messages have used up their
//!   attempts. Then the runtime *blocks* the instance: it keeps its history and its messages, and waits with the reason
//!   until an operator unblocks it.

use std::time::Duration;

use super::claim::Claim;
use super::commit::{Ack, Fallback, RETRY_PAUSES_MS, failure_event, messages};
use super::obstacles;
use super::parents::Notice;
use super::report::{ExecutionEnd, Report};
use super::residents::Resident;
use crate::model::{ErrorDetails, Event, EventKind, ExecutionStatus, ObstacleKind, QUOTE_LIMIT, quote};
use crate::observability::TurnOutcome;
use crate::providers::{ExecutionMetadata, LeaseState, ProviderError, ScheduledActivityIdentifier, refusal};
use crate::replay::Ending;
use crate::runtime::core::{Core, TARGET};
use crate::runtime::postponed;

/// Why a turn is not stored.
#[derive(Debug)]
pub(super) enum NotStored {
    /// Another runtime has leased the instance meanwhile.
    TakenOver,
    Refused(ProviderError),
}

impl From<ProviderError> for NotStored {
    fn from(error: ProviderError) -> Self {
        Self::Refused(error)
    }
}

/// A turn that the store did not take.
pub(super) struct RefusedTurn {
    pub execution_id: u64,
    pub fallback: Option<Box<Fallback>>,
    pub suspended: Option<Box<Resident>>,
    pub cancelled: Vec<ScheduledActivityIdentifier>,
    pub error: ProviderError,
}

impl RefusedTurn {
    /// The activities in flight, including those that this turn cancelled.
    fn open_activities(&mut self, instance: &str) -> Vec<ScheduledActivityIdentifier> {
        let open = self.suspended.as_ref().map(|suspended| suspended.execution.open_activities());
        let identifier = |activity_id| ScheduledActivityIdentifier {
            instance: instance.to_string(),
            execution_id: self.execution_id,
            activity_id,
        };
        let open: Vec<_> = open.unwrap_or_default().into_iter().map(identifier).collect();
        std::mem::take(&mut self.cancelled).into_iter().chain(open).collect()
    }
}

/// What the runtime still has to do about a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// The runtime has nothing more to do.
    Over,
    /// The runtime gives the turn back after this time, and the attempt does not count.
    Waits(Duration),
}

/// Decides about a turn that the store did not take. The instance in memory is now ahead of the store, so this drops
/// it.
pub(super) async fn settle(core: &Core, claim: &Claim, mut turn: RefusedTurn, worker_id: &str) -> Settled {
    if may_pass(&turn.error) {
        return postpone(core, claim, &turn.error);
    }
    let (execution_id, error) = (turn.execution_id, turn.error.clone());
    tracing::warn!(target: TARGET, instance = %claim.instance, execution_id, worker_id, %error,
        "the store refuses the turn");
    let cancelled = turn.open_activities(&claim.instance);
    drop(turn.suspended);
    let failed = match turn.fallback {
        Some(fallback) => fail(core, claim, execution_id, *fallback, cancelled, &error).await,
        None => Err(error.into()),
    };
    match failed {
        Ok(report) => {
            report.publish(core, &claim.instance, execution_id, worker_id);
            core.metrics().record_turns(TurnOutcome::Refused, 1);
            Settled::Over
        }
        Err(NotStored::TakenOver) => taken_over(core, claim),
        Err(NotStored::Refused(error)) => not_taken(core, claim, &error).await,
    }
}

/// Takes up the lease of a turn again that the store refused because of its lease.
pub(super) async fn recover_lease(
    core: &Core,
    claim: &Claim,
    refused: ProviderError,
) -> Result<(), NotStored> {
    match core.leases.recover(core.turn_lease(), &claim.token).await {
        Ok(LeaseState::Held) => Ok(()),
        Ok(LeaseState::Lost) => Err(NotStored::TakenOver),
        // A store of the published contract does not tell.
        Ok(LeaseState::Unknown) => Err(refused.into()),
        Err(error) => Err(error.into()),
    }
}

/// Leaves a turn to the runtime that has taken it over. The store has counted an attempt for that, though the messages did
/// nothing wrong.
pub(super) fn taken_over(core: &Core, claim: &Claim) -> Settled {
    tracing::warn!(target: TARGET, instance = %claim.instance,
        "the store refuses the turn: its lease ran out, and somebody else has taken over");
    core.metrics().record_turns(TurnOutcome::Lost, 1);
    core.leases.note_lost(&claim.token);
    core.postponed.note_counted_attempt(&claim.instance);
    Settled::Over
}

/// Gives back a turn that the store can neither load nor take, for now or for good.
pub(super) async fn not_taken(core: &Core, claim: &Claim, error: &ProviderError) -> Settled {
    if may_pass(error) {
        return postpone(core, claim, error);
    }
    if claim.attempt_count <= core.options.max_attempts {
        let wait = postponed::wait(&claim.instance, claim.attempt_count);
        tracing::warn!(target: TARGET, instance = %claim.instance, %error, attempt_count = claim.attempt_count,
            max_attempts = core.options.max_attempts, wait_ms = wait.as_millis() as u64,
            "neither the turn nor a failure can be stored; the turn will be taken again");
        core.metrics().record_turns(TurnOutcome::Refused, 1);
        obstacles::refused(core, claim, ObstacleKind::Unstorable, error, wait);
        give_back(core, claim, Some(wait), false).await;
    } else {
        let reason = format!("neither its turn nor its failure can be stored: {error}");
        block(core, claim, &quote(&reason, QUOTE_LIMIT)).await;
    }
    Settled::Over
}

/// Tells whether the turn may be stored another time. A lease that ran out says nothing about the turn.
fn may_pass(error: &ProviderError) -> bool {
    error.retryable || refusal::is_about_turn_lease(error)
}

/// Puts off a turn because of a storage error that may pass.
fn postpone(core: &Core, claim: &Claim, error: &ProviderError) -> Settled {
    let times = core.postponed.note(&claim.instance);
    let wait = postponed::wait(&claim.instance, times);
    // One line for each wait, and the waits grow: an outage does not flood the log.
    tracing::warn!(target: TARGET, instance = %claim.instance, %error, times, wait_ms = wait.as_millis() as u64,
        "the store cannot take this turn for now; it will be taken again");
    core.metrics().record_turns(TurnOutcome::Postponed, 1);
    core.metrics().record_turn_postponed(&claim.orchestration_name);
    obstacles::refused(core, claim, ObstacleKind::StoreTrouble, error, wait);
    Settled::Waits(wait)
}

/// Blocks an instance: the store cannot take its failure, or its code cannot take it further. If the store cannot block
/// instances, gives the turn back with a wait each time.
pub(super) async fn block(core: &Core, claim: &Claim, reason: &str) {
    core.metrics().record_turns(TurnOutcome::Blocked, 1);
    match core.store.extension().block_instance(&claim.token, reason).await {
        Ok(()) => {
            tracing::error!(target: TARGET, instance = %claim.instance, reason,
                "the instance is blocked until somebody unblocks it");
            core.metrics().record_instance_blocked(&claim.orchestration_name);
        }
        Err(unblocked) => {
            let wait = postponed::wait(&claim.instance, core.postponed.note(&claim.instance));
            tracing::warn!(target: TARGET, instance = %claim.instance, reason, %unblocked,
                wait_ms = wait.as_millis() as u64, "the instance cannot be blocked; its turn will be taken again");
            give_back(core, claim, Some(wait), true).await;
        }
    }
}

/// Lets the turn be taken again, at once or after a wait.
pub(super) async fn give_back(core: &Core, claim: &Claim, wait: Option<Duration>, ignore_attempt: bool) {
    let mut pauses = RETRY_PAUSES_MS.into_iter();
    loop {
        let given_back = core.store.abandon_orchestration_item(&claim.token, wait, ignore_attempt).await;
        let Err(error) = given_back else { return };
        match pauses.next().filter(|_| error.retryable) {
            Some(pause) => core.clock.sleep(Duration::from_millis(pause)).await,
            None => {
                tracing::debug!(target: TARGET, instance = %claim.instance, %error,
                    "turn not given back; it returns when its lease ends");
                if ignore_attempt && error.retryable {
                    core.postponed.note_counted_attempt(&claim.instance);
                }
                return;
            }
        }
    }
}

/// Fails the instance in a commit that holds nothing but the failure and the messages that other instances need.
async fn fail(
    core: &Core,
    claim: &Claim,
    execution_id: u64,
    fallback: Fallback,
    cancelled_activities: Vec<ScheduledActivityIdentifier>,
    error: &ProviderError,
) -> Result<Report, NotStored> {
    let details = fallback.details.unwrap_or_else(|| infrastructure(error));
    let at_ms = core.clock.now_ms();
    let failure =
        failure_event(&claim.instance, execution_id, fallback.next_event_id, details.clone(), at_ms);
    let mut notices = fallback.notices;
    notices.extend(fallback.parent.map(|to| Notice { to, result: Err(details.clone()) }));
    let mut orchestrator_items = messages(core, notices).await?;
    orchestrator_items.extend(fallback.child_cancellations);
    let mut ack = Ack { execution_id, orchestrator_items, cancelled_activities, ..Ack::default() };
    let shortened = fallback.opening.as_ref().and_then(|(start, _)| shortened(start));
    let (start, metadata) = fallback.opening.unzip();
    ack.metadata = ExecutionMetadata {
        status: Some(ExecutionStatus::Failed.as_str().to_string()),
        output: Some(details.display_message()),
        ..metadata.unwrap_or_default()
    };
    ack.events = start.into_iter().chain([failure.clone()]).collect();
    match (ack.store(core, claim).await, shortened) {
        (Err(NotStored::Refused(error)), Some(start)) if !error.retryable => {
            ack.events = vec![start, failure];
            ack.store(core, claim).await?;
        }
        (stored, _) => drop(stored?),
    }
    core.postponed.forget(&claim.instance);
    core.running.cancel(&ack.cancelled_activities);
    let mut report = fallback.report;
    report.ended = Some(ExecutionEnd { ending: Ending::Failed { details }, ..ExecutionEnd::unknown() });
    Ok(report)
}

/// The refusal as the cause of a failure. Shortens the text, because a store may quote the data that it refuses.
fn infrastructure(error: &ProviderError) -> ErrorDetails {
    let message = quote(&error.message, QUOTE_LIMIT);
    ProviderError { message, ..error.clone() }.to_infrastructure_error()
}

/// Returns the start event without the texts that may be too long to store, for an instance that fails at once; `None`
/// if the event is short enough.
pub(super) fn shortened(start: &Event) -> Option<Event> {
    let mut short = start.clone();
    if let EventKind::OrchestrationStarted { input, carry_forward_events, initial_custom_status, .. } =
        &mut short.kind
    {
        *input = quote(input, QUOTE_LIMIT);
        let carried_bytes = |carried: &Vec<(String, String)>| -> usize {
            carried.iter().map(|(name, data)| name.len() + data.len()).sum()
        };
        *carry_forward_events = carry_forward_events.take().filter(|all| carried_bytes(all) <= QUOTE_LIMIT);
        *initial_custom_status =
            initial_custom_status.take().filter(|status: &String| status.len() <= QUOTE_LIMIT);
    }
    (short.kind != start.kind).then_some(short)
}
