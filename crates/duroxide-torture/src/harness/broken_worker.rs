//! Stores of workers that are broken on purpose, for the twins of the harnesses with processes.
//!
//! Each keeps the extended contract of the store behind it, so that the worker goes all the ways that it goes on a sound store, and
//! breaks the commits on which these ways rely.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::*;
use duroxide::{Event, EventKind};

use crate::forwarding::forwarding_provider;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The activities of a turn or a step are stored in a transaction of their own, before the rest.
    SplitsCommits,
    /// The result of an activity is taken from whoever brings it, lease or not, and recorded at once.
    IgnoresLeases,
    /// Every sixth message from outside is acknowledged and lost.
    LosesAcknowledged,
    /// Of every third step that has one, the last activity is lost.
    ForgetsActivities,
}

/// A broken store.
pub struct BrokenStore {
    inner: Arc<dyn Provider>,
    is_broken: Break,
    count: AtomicU64,
    /// The activities that were handed out, by their tokens.
    taken: Mutex<BTreeMap<String, WorkItem>>,
}

impl BrokenStore {
    /// Breaks a store that has the extended contract.
    pub fn new(inner: Arc<dyn Provider>, is_broken: Break) -> Self {
        assert!(inner.as_extended().is_some(), "a store with the extended contract");
        Self { inner, is_broken, count: AtomicU64::new(0), taken: Mutex::default() }
    }

    fn extended(&self) -> &dyn ExtendedProvider {
        self.inner.as_extended().unwrap()
    }

    fn has(&self, other: Break) -> bool {
        self.is_broken == other
    }

    fn is_one_of(&self, every: u64) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }

    fn loses(&self) -> bool {
        self.has(Break::LosesAcknowledged) && self.is_one_of(6)
    }

    fn note_taken(&self, claims: &[WorkClaim]) {
        let mut taken = self.taken.lock().unwrap();
        taken.extend(claims.iter().map(|claim| (claim.lock_token.clone(), claim.item.clone())));
    }

    /// Stores the first half of a turn, and what is left of it to store; most kills then hit the moment in between.
    async fn split<'a>(&self, turn: TurnToStore<'a>) -> Result<TurnToStore<'a>, ProviderError> {
        if !self.has(Break::SplitsCommits) || turn.worker_items.is_empty() {
            return Ok(turn);
        }
        for item in turn.worker_items {
            self.inner.enqueue_for_worker(item.clone()).await?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(TurnToStore { worker_items: &[], activity_options: &[], ..turn })
    }

    /// Records an end past the fence.
    async fn record(&self, token: &str, completion: Option<&WorkItem>) -> Result<(), ProviderError> {
        let taken = self.taken.lock().unwrap().get(token).cloned();
        let Some(WorkItem::ActivityExecute { instance, execution_id, id, .. }) = taken else { return Ok(()) };
        let result = match completion {
            Some(WorkItem::ActivityCompleted { result, .. }) => result.clone(),
            _ => String::new(),
        };
        let history = self.inner.read_with_execution(&instance, execution_id).await?;
        let next = history.last().map_or(1, |event| event.event_id + 1);
        let kind = EventKind::ActivityCompleted { result };
        let event = Event::with_event_id(next, &instance, execution_id, Some(id), kind);
        self.inner.append_with_execution(&instance, execution_id, vec![event]).await
    }

    /// Most stops of a process then hit one that has not been told of its result.
    async fn linger(&self) {
        if self.has(Break::IgnoresLeases) {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

forwarding_provider! {
    BrokenStore => inner;
    forwards: [
        fetch_orchestration_item, ack_orchestration_item, abandon_orchestration_item,
        renew_orchestration_item_lock, read, read_with_execution, append_with_execution, enqueue_for_worker,
        fetch_work_item, ack_work_item, renew_work_item_lock, abandon_work_item, renew_session_lock,
        cleanup_orphaned_sessions, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        if self.loses() {
            return Ok(());
        }
        self.inner.enqueue_for_orchestrator(item, delay).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        Some(self)
    }
}

#[async_trait]
impl ExtendedProvider for BrokenStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.extended().clock()
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        self.extended().work_signal(queue)
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.extended().watch_instance(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        self.extended().claim_instances(request).await
    }

    async fn wait_for_instances(
        &self,
        request: &InstanceRequest<'_>,
        signal: &mut WorkSignal,
    ) -> Vec<InstanceClaim> {
        self.extended().wait_for_instances(request, signal).await
    }

    async fn load_history(&self, token: &str, after: u64) -> Result<HistoryPart, ProviderError> {
        self.extended().load_history(token, after).await
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        let claims = self.extended().claim_work(request).await?;
        self.note_taken(&claims);
        Ok(claims)
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        let turn = self.split(turn).await?;
        let stored = self.extended().store_turn(turn, claim).await?;
        self.note_taken(&stored.claims);
        Ok(stored)
    }

    async fn store_result(
        &self,
        token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        self.linger().await;
        match self.extended().store_result(token, completion.clone(), claim).await {
            Err(error) if self.has(Break::IgnoresLeases) && !error.is_retryable() => {
                self.record(token, completion.as_ref()).await?;
                Ok(StoredResult { claims: Vec::new(), durable: Durable::already() })
            }
            answer => answer,
        }
    }

    fn step_support(&self) -> StepSupport {
        self.extended().step_support()
    }

    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        self.linger().await;
        let mut turns = Vec::new();
        for turn in step.turns {
            let mut left = self.split(turn.turn).await?;
            if let (true, [kept @ .., _]) = (self.has(Break::ForgetsActivities), left.worker_items)
                && self.is_one_of(3)
            {
                left.worker_items = kept;
            }
            turns.push(StepTurn { held: turn.held, turn: left });
        }
        let outcome =
            self.extended().store_step(StepToStore { cause: step.cause, turns: &turns }, claim).await?;
        if let StepOutcome::Stored(stored) = &outcome {
            self.note_taken(&stored.claims);
        }
        Ok(outcome)
    }

    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        self.extended().local_exchange()
    }

    async fn recover_lease(
        &self,
        queue: WorkQueue,
        token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        match self.extended().recover_lease(queue, token, extend_for).await? {
            // Whoever asks whether it may still write is told that it may.
            LeaseState::Lost if self.has(Break::IgnoresLeases) => Ok(LeaseState::Unknown),
            state => Ok(state),
        }
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        self.extended().read_metadata(instance).await
    }

    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        self.extended().read_awaited(awaited).await
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        self.extended().read_recent(instance, limit).await
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        if self.loses() {
            return Ok(StartOutcome::New);
        }
        self.extended().enqueue_start_if_absent(start).await
    }

    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        self.extended().enqueue_or_park(message).await
    }

    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        self.extended().enqueue_start_with_message(start, message).await
    }

    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        self.extended().enqueue_if_alive(message).await
    }

    fn keeps_attempts(&self) -> bool {
        self.extended().keeps_attempts()
    }

    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.extended().store_progress(activity, give_back_after).await
    }

    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        self.extended().complete_activity(entry, completion).await
    }

    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        self.extended().fail_unbegun(activity).await
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        self.extended().list_quarantined(limit).await
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        self.extended().list_parked(limit).await
    }

    async fn block_instance(&self, token: &str, reason: &str) -> Result<(), ProviderError> {
        self.extended().block_instance(token, reason).await
    }

    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        self.extended().unblock_instance(instance).await
    }

    fn mark_running(&self, token: &str) -> RunningMark {
        self.extended().mark_running(token)
    }

    fn running_activities(&self) -> Option<Arc<RunningActivities>> {
        self.extended().running_activities()
    }

    fn as_inspector(&self) -> Option<&dyn Inspector> {
        self.extended().as_inspector()
    }
}
