//! Commits a turn: once if all goes well, and as a failure of the instance if the store refuses it.

use std::sync::Arc;
use std::time::Duration;

use super::claim::Claim;
use super::parents::{Notice, ParentLink};
use super::report::{Ended, Report};
use super::residents::Resident;
use crate::model::{ErrorDetails, Event, EventKind, WorkItem};
use crate::providers::{
    ExecutionMetadata, ExtendedProvider, ProviderError, ScheduledActivityIdentifier, StoredTurn, TurnToStore,
};
use crate::replay::Ending;
use crate::runtime::core::{Core, TARGET};
use crate::runtime::worker;

/// The pauses before a commit is tried again.
const RETRY_PAUSES_MS: [u64; 5] = [10, 20, 40, 80, 160];

/// How long a turn waits that a store in trouble could not take.
const OUTAGE_DELAY: Duration = Duration::from_secs(1);

/// A turn that is ready to be stored.
pub(super) struct Commit {
    pub execution_id: u64,
    pub events: Vec<Event>,
    pub worker_items: Vec<WorkItem>,
    pub orchestrator_items: Vec<WorkItem>,
    pub metadata: ExecutionMetadata,
    pub cancelled_activities: Vec<ScheduledActivityIdentifier>,
    /// Messages to parents: of this instance, and of children whose id was taken.
    pub notices: Vec<Notice>,
    /// What to store if the store refuses this.
    pub fallback: Option<Box<Fallback>>,
    /// The instance as it is after this turn, if it goes on.
    pub suspended: Option<Box<Resident>>,
    pub report: Report,
}

/// How the instance fails if its turn cannot be stored.
pub(super) struct Fallback {
    /// The start event and its metadata, if the turn was the first of its execution.
    pub opening: Option<(Event, ExecutionMetadata)>,
    /// The id of the failure event.
    pub next_event_id: u64,
    pub parent: Option<ParentLink>,
    pub collisions: Vec<Notice>,
    /// How the failed turn is reported; its end is filled in.
    pub report: Report,
}

impl Commit {
    /// A turn that changes nothing: its messages are taken note of and that is all.
    pub fn drain(claim: &Claim, notices: Vec<Notice>) -> Self {
        Self {
            execution_id: claim.execution_id,
            events: Vec::new(),
            worker_items: Vec::new(),
            orchestrator_items: Vec::new(),
            metadata: ExecutionMetadata::default(),
            cancelled_activities: Vec::new(),
            notices,
            fallback: None,
            suspended: None,
            report: Report::default(),
        }
    }
}

/// Stores a turn. Returns only when the store has answered for good.
pub(super) async fn store(core: &Arc<Core>, claim: &Claim, commit: Commit, worker_id: &str) {
    let Commit { execution_id, mut orchestrator_items, notices, fallback, suspended, report, .. } = commit;
    let messages = match messages(core, notices).await {
        Ok(messages) => messages,
        Err(error) => {
            let cancelled = commit.cancelled_activities;
            let turn = Refused { execution_id, fallback, suspended, cancelled, error };
            return Box::pin(refused(core, claim, turn, worker_id)).await;
        }
    };
    orchestrator_items.extend(messages);
    let ack = Ack {
        execution_id,
        events: commit.events,
        worker_items: commit.worker_items,
        orchestrator_items,
        metadata: commit.metadata,
        cancelled_activities: commit.cancelled_activities,
    };
    match ack.store(core, claim).await {
        Ok(StoredTurn { incarnation, claims }) => {
            // Whoever runs one of these learns it now, not at the next renewal.
            core.running.cancel(&ack.cancelled_activities);
            if let Some(mut suspended) = suspended {
                suspended.note_incarnation(incarnation);
                if suspended.may_stay() {
                    core.residents.keep(claim.instance.clone(), suspended);
                }
            }
            // Not before: the activities may lead to the next turn at once.
            worker::receive(core, claims).await;
            report.publish(core, &claim.instance, execution_id, worker_id);
        }
        Err(error) => {
            let cancelled = ack.cancelled_activities;
            let turn = Refused { execution_id, fallback, suspended, cancelled, error };
            Box::pin(refused(core, claim, turn, worker_id)).await;
        }
    }
}

/// A turn that the store did not take.
struct Refused {
    execution_id: u64,
    fallback: Option<Box<Fallback>>,
    suspended: Option<Box<Resident>>,
    cancelled: Vec<ScheduledActivityIdentifier>,
    error: ProviderError,
}

impl Refused {
    /// The activities that are in flight, those included that this turn gave up.
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

async fn messages(core: &Core, notices: Vec<Notice>) -> Result<Vec<WorkItem>, ProviderError> {
    let mut messages = Vec::new();
    for notice in notices {
        messages.extend(notice.into_message(&*core.store).await?);
    }
    Ok(messages)
}

/// The store did not take the turn: the instance fails for that reason, in a commit of its own. What the turn left in
/// memory is not what is stored, so it is dropped.
///
/// A store that is merely in trouble gets one chance to take the failure, and no pauses. While the trouble lasts, it has
/// none, and the turn is taken again later: an outage is no reason to lose an instance.
async fn refused(core: &Core, claim: &Claim, mut turn: Refused, worker_id: &str) {
    let (execution_id, error) = (turn.execution_id, turn.error.clone());
    tracing::warn!(target: TARGET, instance = %claim.instance, execution_id, worker_id, %error,
        retryable = error.retryable, "turn not stored");
    let cancelled = turn.open_activities(&claim.instance);
    drop(turn.suspended);
    let failed = match turn.fallback {
        Some(fallback) => fail(core, claim, execution_id, *fallback, cancelled, &error).await,
        None => Err(error),
    };
    match failed {
        Ok(report) => report.publish(core, &claim.instance, execution_id, worker_id),
        Err(error) => {
            tracing::warn!(target: TARGET, instance = %claim.instance, execution_id, %error,
                "the turn will be taken again");
            give_back(core, claim, &error).await;
        }
    }
}

async fn fail(
    core: &Core,
    claim: &Claim,
    execution_id: u64,
    fallback: Fallback,
    cancelled_activities: Vec<ScheduledActivityIdentifier>,
    error: &ProviderError,
) -> Result<Report, ProviderError> {
    let details = error.to_infrastructure_error();
    let mut events = Vec::new();
    let mut metadata = ExecutionMetadata::default();
    if let Some((start, start_metadata)) = fallback.opening {
        events.push(start);
        metadata = start_metadata;
    }
    let at_ms = core.clock.now_ms();
    events.push(failure_event(&claim.instance, execution_id, fallback.next_event_id, details.clone(), at_ms));
    metadata.status = Some("Failed".to_string());
    metadata.output = Some(details.display_message());
    let mut report = fallback.report;
    report.ended = Some(Ended { ending: Ending::Failed { details: details.clone() }, ..Ended::unknown() });
    let mut notices = fallback.collisions;
    notices.extend(fallback.parent.map(|parent| Notice::to(parent, Err(details))));
    let orchestrator_items = messages(core, notices).await?;
    let worker_items = Vec::new();
    let ack = Ack { execution_id, events, worker_items, orchestrator_items, metadata, cancelled_activities };
    match error.retryable {
        true => ack.store_once(core, claim).await?,
        false => ack.store(core, claim).await?,
    };
    core.running.cancel(&ack.cancelled_activities);
    Ok(report)
}

/// Makes the event of a failure that no code was asked about.
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

/// Lets the turn be taken again. The attempt counts if the store refused the turn, not if it could not take any.
async fn give_back(core: &Core, claim: &Claim, error: &ProviderError) {
    let delay = error.retryable.then_some(OUTAGE_DELAY);
    let abandoned = core.store.abandon_orchestration_item(&claim.token, delay, error.retryable).await;
    if let Err(error) = abandoned {
        tracing::debug!(target: TARGET, instance = %claim.instance, %error,
            "turn not given back; it returns when its lease ends");
    }
}

/// The arguments of an ack, kept so that it can be tried again.
struct Ack {
    execution_id: u64,
    events: Vec<Event>,
    worker_items: Vec<WorkItem>,
    orchestrator_items: Vec<WorkItem>,
    metadata: ExecutionMetadata,
    cancelled_activities: Vec<ScheduledActivityIdentifier>,
}

impl Ack {
    /// Stores the turn, trying again if that may help.
    async fn store(&self, core: &Core, claim: &Claim) -> Result<StoredTurn, ProviderError> {
        let mut pauses = RETRY_PAUSES_MS.into_iter();
        loop {
            match self.store_once(core, claim).await {
                Err(error) if error.retryable => {
                    let Some(pause) = pauses.next() else { return Err(error) };
                    tracing::warn!(target: TARGET, instance = %claim.instance, %error, pause_ms = pause,
                        "turn not stored yet, trying again");
                    core.clock.sleep(Duration::from_millis(pause)).await;
                }
                result => return result,
            }
        }
    }

    async fn store_once(&self, core: &Core, claim: &Claim) -> Result<StoredTurn, ProviderError> {
        match core.store.as_extended() {
            Some(store) => self.store_and_claim(core, store, claim).await,
            None => self.store_plainly(core, claim).await,
        }
    }

    async fn store_plainly(&self, core: &Core, claim: &Claim) -> Result<StoredTurn, ProviderError> {
        let stored = core.store.ack_orchestration_item(
            &claim.token,
            self.execution_id,
            self.events.clone(),
            self.worker_items.clone(),
            self.orchestrator_items.clone(),
            self.metadata.clone(),
            self.cancelled_activities.clone(),
        );
        stored.await.map(|()| StoredTurn::default())
    }

    /// If the workers of this runtime have time for what the turn schedules, they claim it in the same commit.
    async fn store_and_claim(
        &self,
        core: &Core,
        store: &dyn ExtendedProvider,
        claim: &Claim,
    ) -> Result<StoredTurn, ProviderError> {
        let turn = TurnToStore {
            lock_token: &claim.token,
            execution_id: self.execution_id,
            history_delta: &self.events,
            worker_items: &self.worker_items,
            orchestrator_items: &self.orchestrator_items,
            metadata: &self.metadata,
            cancelled_activities: &self.cancelled_activities,
        };
        let places = worker::reserve(core, &self.worker_items);
        let request = places.as_ref().map(|places| worker::request(core, places));
        store.store_turn(turn, request.as_ref()).await
    }
}
