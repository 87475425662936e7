//! Commits a turn. [`refused`] handles a turn that the store does not take.

use std::sync::Arc;
use std::time::Duration;

use super::claim::Claim;
use super::custom_status::CustomStatus;
use super::decide::Inherited;
use super::parents::{Addressee, Notice};
use super::refused::{self, NotStored, RefusedTurn, Settled};
use super::report::Report;
use super::residents::Resident;
use super::start_reminders;
use crate::model::{
    ActivityOptions, AppErrorKind, ErrorDetails, Event, EventKind, OrchestrationStatus, WorkItem,
};
use crate::observability::TurnOutcome;
use crate::providers::{
    AnnouncedEnd, ExecutionMetadata, ProviderError, ScheduledActivityIdentifier, StoredTurn, TurnToStore,
    refusal,
};
use crate::replay::{Ending, RequestPlace};
use crate::runtime::core::{Core, TARGET};
use crate::runtime::{steps, worker};

/// The pauses before another attempt at a commit that failed but may succeed.
pub(super) const RETRY_PAUSES_MS: [u64; 5] = [10, 20, 40, 80, 160];

/// A turn that is ready to be stored.
pub(crate) struct Commit {
    pub execution_id: u64,
    pub events: Vec<Event>,
    pub worker_items: Vec<WorkItem>,
    pub activity_options: Vec<(u64, ActivityOptions)>,
    pub orchestrator_items: Vec<WorkItem>,
    pub metadata: ExecutionMetadata,
    pub cancelled_activities: Vec<ScheduledActivityIdentifier>,
    /// Messages to parents: of this instance, and of children whose id was taken.
    pub notices: Vec<Notice>,
    /// The smaller commit for when the store refuses this one for good.
    pub fallback: Option<Box<Fallback>>,
    /// The instance as it is after this turn, if it goes on.
    pub suspended: Option<Box<Resident>>,
    /// What the next execution begins with, if the turn continues as new.
    pub continued: Option<Inherited>,
    /// The custom status, if the instance ends and this process knows it: then it knows all that a client waits for.
    pub custom_status: Option<CustomStatus>,
    /// The lines of the code that made the requests, for a turn that is compared.
    pub places: Vec<RequestPlace>,
    pub report: Report,
}

/// How the instance fails if the store refuses its turn for good.
pub(crate) struct Fallback {
    /// The start event and its metadata, if the turn was the first of its execution.
    pub opening: Option<(Event, ExecutionMetadata)>,
    /// The id of the failure event.
    pub next_event_id: u64,
    /// Why the instance fails; `None` if the refusal itself is the cause.
    pub details: Option<ErrorDetails>,
    pub parent: Option<Addressee>,
    /// Messages to the parents of children whose id was taken: the failure notifies them, because the turn did not.
    pub notices: Vec<Notice>,
    /// Children that the turn cancelled. The instance ends without them.
    pub child_cancellations: Vec<WorkItem>,
    /// The report of the failed turn; its end is filled in later.
    pub report: Report,
}

impl Commit {
    /// Announces the end of the instance to those in this process who wait for it.
    pub fn announce_end(&self, core: &Core, instance: &str) -> Option<AnnouncedEnd> {
        let (ended, known) = (self.report.ended.as_ref()?, self.custom_status.as_ref()?);
        core.steps.exchange()?.announce_end(instance, || {
            let CustomStatus { value: custom_status, version: custom_status_version } = known.clone();
            match &ended.ending {
                Ending::Completed { output } => OrchestrationStatus::Completed {
                    output: output.clone(),
                    custom_status,
                    custom_status_version,
                },
                Ending::Failed { details } => OrchestrationStatus::Failed {
                    details: details.clone(),
                    custom_status,
                    custom_status_version,
                },
                Ending::ContinuedAsNew { .. } => {
                    OrchestrationStatus::Running { custom_status, custom_status_version }
                }
            }
        })
    }

    /// Sends the reminders that the options of the new activities ask for. Fails activities that ask for what this store
    /// cannot keep: their orchestration gets an error that names it.
    pub fn settle_options(&mut self, core: &Core, instance: &str) {
        if self.activity_options.is_empty() {
            return;
        }
        if core.store.extension().keeps_attempts() {
            self.orchestrator_items.extend(start_reminders::of_options(instance, &self.activity_options));
            return;
        }
        for (activity_id, options) in std::mem::take(&mut self.activity_options) {
            let is_it =
                |item: &WorkItem| matches!(item, WorkItem::ActivityExecute { id, .. } if *id == activity_id);
            let Some(place) = self.worker_items.iter().position(is_it) else { continue };
            let WorkItem::ActivityExecute { instance, execution_id, id, .. } =
                self.worker_items.remove(place)
            else {
                continue;
            };
            let message = format!("this store cannot keep the options of an activity: {}", options.names());
            let kind = AppErrorKind::ActivityFailed;
            let details = ErrorDetails::Application { kind, message, retryable: false };
            self.orchestrator_items.push(WorkItem::ActivityFailed { instance, execution_id, id, details });
        }
    }

    /// Makes a commit that only removes the messages of the turn and sends `notices`.
    pub fn drain(claim: &Claim, notices: Vec<Notice>) -> Self {
        Self {
            execution_id: claim.execution_id,
            events: Vec::new(),
            worker_items: Vec::new(),
            activity_options: Vec::new(),
            orchestrator_items: Vec::new(),
            metadata: ExecutionMetadata::default(),
            cancelled_activities: Vec::new(),
            notices,
            fallback: None,
            suspended: None,
            continued: None,
            custom_status: None,
            places: Vec::new(),
            report: Report::default(),
        }
    }
}

/// Stores a turn, and tells what remains to be done. Returns only when the store has answered for good.
pub(super) async fn store(core: &Arc<Core>, claim: &Claim, commit: Commit, worker_id: &str) -> Settled {
    let announced = commit.announce_end(core, &claim.instance);
    let mut commit = commit;
    commit.settle_options(core, &claim.instance);
    let Commit { execution_id, mut orchestrator_items, notices, fallback, suspended, report, .. } = commit;
    let messages = match messages(core, notices).await {
        Ok(messages) => messages,
        Err(error) => {
            let cancelled = commit.cancelled_activities;
            let turn = RefusedTurn { execution_id, fallback, suspended, cancelled, error };
            return Box::pin(refused::settle(core, claim, turn, worker_id)).await;
        }
    };
    orchestrator_items.extend(messages);
    core.steps.note_messages(core, &orchestrator_items);
    let ack = Ack {
        execution_id,
        events: commit.events,
        worker_items: commit.worker_items,
        activity_options: commit.activity_options,
        orchestrator_items,
        metadata: commit.metadata,
        cancelled_activities: commit.cancelled_activities,
    };
    match ack.store(core, claim).await {
        Ok(StoredTurn { incarnation, claims }) => {
            announced.into_iter().for_each(AnnouncedEnd::confirm);
            core.postponed.forget(&claim.instance);
            // A worker of this runtime that runs one of these learns it now, not at the next renewal.
            core.running.cancel(&ack.cancelled_activities);
            if let Some(mut suspended) = suspended {
                suspended.note_incarnation(incarnation);
                suspended.has_mail = false;
                if suspended.may_stay() {
                    let left = core.residents.keep(claim.instance.clone(), suspended, core.clock.monotonic());
                    core.metrics().record_residents_evicted(left as u64);
                }
            }
            // The instance must be in memory before these: each may lead to its next turn at once.
            steps::note_timers(core, &ack.orchestrator_items);
            worker::receive(core, claims).await;
            report.publish(core, &claim.instance, execution_id, worker_id);
            core.metrics().record_turns(TurnOutcome::Stored, 1);
            Settled::Over
        }
        Err(NotStored::TakenOver) => refused::taken_over(core, claim),
        Err(NotStored::Refused(error)) => {
            let cancelled = ack.cancelled_activities;
            let turn = RefusedTurn { execution_id, fallback, suspended, cancelled, error };
            Box::pin(refused::settle(core, claim, turn, worker_id)).await
        }
    }
}

/// Makes the messages of some notices.
pub(crate) async fn messages(core: &Core, notices: Vec<Notice>) -> Result<Vec<WorkItem>, ProviderError> {
    let mut messages = Vec::new();
    for notice in notices {
        messages.extend(notice.into_message(&core.store).await?);
    }
    Ok(messages)
}

/// Makes the event of a failure for which no code ran.
pub(super) fn failure_event(
    instance: &str,
    execution_id: u64,
    event_id: u64,
    details: ErrorDetails,
    at_ms: u64,
) -> Event {
    let kind = EventKind::OrchestrationFailed { details };
    let event = Event::with_event_id(event_id, instance, execution_id, None, kind);
    Event { timestamp_ms: at_ms, ..event }
}

/// The arguments of an ack, kept for another attempt.
#[derive(Default)]
pub(crate) struct Ack {
    pub execution_id: u64,
    pub events: Vec<Event>,
    pub worker_items: Vec<WorkItem>,
    pub activity_options: Vec<(u64, ActivityOptions)>,
    pub orchestrator_items: Vec<WorkItem>,
    pub metadata: ExecutionMetadata,
    pub cancelled_activities: Vec<ScheduledActivityIdentifier>,
}

impl Ack {
    /// The turn as the store takes it.
    pub fn as_turn<'a>(&'a self, lock_token: &'a str) -> TurnToStore<'a> {
        TurnToStore {
            lock_token,
            execution_id: self.execution_id,
            history_delta: &self.events,
            worker_items: &self.worker_items,
            activity_options: &self.activity_options,
            orchestrator_items: &self.orchestrator_items,
            metadata: &self.metadata,
            cancelled_activities: &self.cancelled_activities,
        }
    }

    /// Stores the turn, trying again if that may help.
    pub(super) async fn store(&self, core: &Core, claim: &Claim) -> Result<StoredTurn, NotStored> {
        let mut pauses = RETRY_PAUSES_MS.into_iter();
        let mut is_recovered = false;
        loop {
            match self.store_and_claim(core, claim).await {
                Err(error) if refusal::is_about_turn_lease(&error) && !is_recovered => {
                    refused::recover_lease(core, claim, error).await?;
                    is_recovered = true;
                }
                Err(error) if error.retryable => {
                    let Some(pause) = pauses.next() else { return Err(error.into()) };
                    tracing::debug!(target: TARGET, instance = %claim.instance, %error, pause_ms = pause,
                        "turn not stored yet, trying again");
                    core.clock.sleep(Duration::from_millis(pause)).await;
                }
                result => return Ok(result?),
            }
        }
    }

    /// Stores the turn. If workers of this runtime have room for its activities, the same commit claims them.
    async fn store_and_claim(&self, core: &Core, claim: &Claim) -> Result<StoredTurn, ProviderError> {
        let turn = self.as_turn(&claim.token);
        let reserved = worker::reserve(core, &self.worker_items);
        let request = reserved.as_ref().map(|reserved| worker::request(core, reserved));
        core.store.extension().store_turn(turn, request.as_ref()).await
    }
}
