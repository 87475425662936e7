//! The abilities of this store beyond the documented contract, method by method.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::MemoryProvider;
use super::state::{Message, State};
use crate::model::{Clock, Event, ExecutionStatus, WorkItem};
use crate::providers::awaited::AnswerSize;
use crate::providers::inspect::{self, MessageClass};
use crate::providers::{
    AttemptToStore, AwaitedInstance, AwaitedLook, BlockedInstance, DeliveryOutcome, DroppedMessages, Durable,
    ExtendedProvider, HistoryPart, Inspector, InstanceClaim, InstanceMetadata, InstanceRequest,
    InstanceWatch, LeaseState, LocalExchange, ParkedMessage, ProviderError, QuarantineEntry, QuarantinePurge,
    QuarantineRetry, QuarantinedRow, RunningActivities, RunningInstances, ScheduledActivityIdentifier,
    SendOutcome, StartOutcome, StepOutcome, StepSupport, StepToStore, StoredResult, StoredTurn, TurnToStore,
    UnbegunOutcome, WorkClaim, WorkQueue, WorkRequest, WorkSignal, refusal,
};

#[async_trait]
impl ExtendedProvider for MemoryProvider {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn running_activities(&self) -> Option<Arc<RunningActivities>> {
        Some(self.running.clone())
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        match queue {
            WorkQueue::Orchestrator => self.orchestrator_signal.subscribe(),
            WorkQueue::Worker => self.worker_signal.subscribe(),
        }
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.watchers.watch(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        let (claims, are_some_left) = self.lease(|state, now| state.claim_what_fits(request, now));
        if are_some_left {
            // A dispatcher that gets fewer than it asked for waits for the signal.
            self.orchestrator_signal.notify();
        }
        Ok(claims)
    }

    async fn load_history(
        &self,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        self.read_state(|state| state.load_history(lock_token, after_event_id, self.clock.now_ms()))
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        Ok(self.lease(|state, now| state.claim_work(request, now)))
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        let (instance, stored) = self.change(|state, now| -> Result<_, ProviderError> {
            let instance = state.commit_turn(turn, now)?;
            let incarnation = state.instances.get(&instance).map_or(0, |row| row.incarnation);
            let claims = claim.map(|request| state.claim_work(request, now)).unwrap_or_default();
            Ok((instance, StoredTurn { incarnation, claims }))
        })?;
        self.watchers.notify(&instance);
        Ok(stored)
    }

    async fn store_result(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        self.change(|state, now| {
            state.complete_activity(lock_token, completion.as_ref(), now)?;
            let claims = claim.map(|request| state.claim_instances(request, now)).unwrap_or_default();
            Ok(StoredResult { claims, durable: Durable::already() })
        })
    }

    fn step_support(&self) -> StepSupport {
        super::steps::SUPPORT
    }

    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        let outcome = self.change(|state, now| state.store_step(step, claim, now))?;
        if let StepOutcome::Stored(_) = outcome {
            step.turns.iter().for_each(|turn| self.watchers.notify(turn.held.instance));
        }
        Ok(outcome)
    }

    fn keeps_attempts(&self) -> bool {
        true
    }

    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.change(|state, now| state.store_progress(activity, give_back_after, now))
    }

    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        self.change(|state, now| state.complete_from_elsewhere(entry, &completion, now))
    }

    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        self.change(|state, now| state.fail_unbegun(activity, now))
    }

    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        Some(self.exchange.clone())
    }

    async fn recover_lease(
        &self,
        queue: WorkQueue,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        let held = self.lease(|state, now| match queue {
            WorkQueue::Orchestrator => state.recover_turn(lock_token, extend_for, now),
            WorkQueue::Worker => state.recover_activity(lock_token, extend_for, now),
        });
        Ok(if held { LeaseState::Held } else { LeaseState::Lost })
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        Ok(self.read_state(|state| state.instance_metadata(instance)))
    }

    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        let mut size = AnswerSize::default();
        let mut look = |state: &State, one: &AwaitedInstance<'_>| match state.instance_metadata(one.instance)
        {
            Some(metadata) => size.bounded(one.judge(metadata)),
            None if state.has_history(one.instance) => AwaitedLook::Unclear,
            None => AwaitedLook::Waiting,
        };
        Ok(self.read_state(|state| awaited.iter().map(|one| look(state, one)).collect()))
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        self.read_state(|state| state.read_recent(instance, limit))
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        self.change(|state, now| state.start_if_absent(&start, now))
    }

    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        self.change(|state, now| state.enqueue_or_park(&message, now))
    }

    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        self.change(|state, now| state.start_with_message(&start, &message, now))
    }

    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        self.change(|state, now| state.enqueue_if_alive(&message, now))
    }

    async fn list_dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        Ok(self.read_state(|state| state.dropped.list(limit, self.clock.now_ms())))
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        Ok(self
            .read_state(|state| state.quarantine.iter().take(limit).map(|entry| entry.row.clone()).collect()))
    }

    async fn list_quarantine(
        &self,
        after_id: u64,
        limit: usize,
    ) -> Result<Vec<QuarantineEntry>, ProviderError> {
        let is_listed = |entry: &&QuarantineEntry| entry.id > after_id;
        Ok(self.read_state(|state| state.quarantine.iter().filter(is_listed).take(limit).cloned().collect()))
    }

    async fn retry_quarantined(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ProviderError> {
        Ok(self.change(|state, now| ids.iter().map(|id| state.retry_quarantined(*id, now)).collect()))
    }

    async fn purge_quarantined(&self, purge: QuarantinePurge<'_>) -> Result<u64, ProviderError> {
        Ok(self.change(|state, _| state.purge_quarantined(purge)))
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        Ok(self.read_state(|state| state.list_parked(limit)))
    }

    async fn count_running(&self, up_to: usize) -> Result<Option<Vec<RunningInstances>>, ProviderError> {
        Ok(Some(self.read_state(|state| state.count_running(up_to))))
    }

    fn as_inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    async fn block_instance(&self, lock_token: &str, reason: &str) -> Result<(), ProviderError> {
        self.change(|state, now| state.block_instance(lock_token, reason, now))
    }

    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        Ok(self.change(|state, _| state.unblock_instance(instance)))
    }

    async fn list_blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        Ok(self.read_state(|state| state.blocked.iter().take(limit).cloned().collect()))
    }
}

impl State {
    /// Enqueues a start unless the id is taken.
    fn start_if_absent(&mut self, start: &WorkItem, now: u64) -> Result<StartOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_start_if_absent";
        if !matches!(start, WorkItem::StartOrchestration { .. }) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = self.new_message(OPERATION, start, None, now)?;
        if self.is_taken(&message.instance) {
            return Ok(StartOutcome::Existing);
        }
        self.messages.push(message);
        Ok(StartOutcome::New)
    }

    /// Tells whether an id is taken: by a row, by history, or by a start that is queued.
    pub fn is_taken(&self, instance: &str) -> bool {
        self.instances.contains_key(instance)
            || self.has_history(instance)
            || self.messages_of(instance).any(|queued| queued.class == MessageClass::Start)
    }

    /// Enqueues a message. If its instance does not exist, the store parks it instead of dropping it.
    fn enqueue_or_park(&mut self, message: &WorkItem, now: u64) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_or_park";
        if !inspect::may_wait_for_its_instance(message) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = self.new_message(OPERATION, message, None, now)?;
        self.messages.push(Message { class: MessageClass::Signal, ..message });
        Ok(())
    }

    /// Enqueues a message for an instance that has not ended, with a start if the id is free.
    fn start_with_message(
        &mut self,
        start: &WorkItem,
        message: &WorkItem,
        now: u64,
    ) -> Result<DeliveryOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_start_with_message";
        refusal::check_start_with_message(OPERATION, start, message)?;
        let start = self.new_message(OPERATION, start, None, now)?;
        let message = self.new_message(OPERATION, message, None, now)?;
        if self.has_ended(&start.instance) {
            return Ok(DeliveryOutcome::Ended);
        }
        if self.is_taken(&start.instance) {
            self.messages.push(message);
            return Ok(DeliveryOutcome::Delivered);
        }
        self.messages.extend([start, message]);
        Ok(DeliveryOutcome::Started)
    }

    /// Enqueues a message for an instance that exists and has not ended.
    fn enqueue_if_alive(&mut self, message: &WorkItem, now: u64) -> Result<SendOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_if_alive";
        if !inspect::may_wait_for_its_instance(message) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = self.new_message(OPERATION, message, None, now)?;
        if self.has_ended(&message.instance) {
            return Ok(SendOutcome::Ended);
        }
        if !self.is_taken(&message.instance) {
            return Ok(SendOutcome::NotFound);
        }
        self.messages.push(message);
        Ok(SendOutcome::Sent)
    }

    fn has_ended(&self, instance: &str) -> bool {
        let status = self.instances.get(instance).map(|row| self.status(instance, row));
        status.and_then(ExecutionStatus::parse).is_some_and(ExecutionStatus::ends_instance)
    }
}
