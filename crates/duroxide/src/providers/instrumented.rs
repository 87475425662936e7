//! A store that measures another one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    AttemptToStore, AwaitedInstance, AwaitedLook, BlockedInstance, DeliveryOutcome,
    DispatcherCapabilityFilter, DroppedMessages, ExecutionMetadata, ExtendedProvider, HistoryPart, Inspector,
    InstanceClaim, InstanceMetadata, InstanceRequest, InstanceWatch, InstanceWatchers, LeaseState,
    LocalExchange, OrchestrationItem, ParkedMessage, Provider, ProviderAdmin, ProviderError, QuarantineEntry,
    QuarantinePurge, QuarantineRetry, QuarantinedRow, RunningActivities, RunningInstances, RunningMark,
    ScheduledActivityIdentifier, SendOutcome, SessionFetchConfig, StartOutcome, StepOutcome, StepSupport,
    StepToStore, StoredResult, StoredTurn, TagFilter, TurnToStore, UnbegunOutcome, WorkClaim, WorkQueue,
    WorkRequest, WorkSignal, WorkSignalSource,
};
use crate::model::{Clock, Event, SystemClock, SystemStats, WorkItem};
use crate::observability::MetricsProvider;

/// Measures the operations of a store, and changes nothing else.
///
/// Forwards every call unchanged. Records the durations of frequent operations in
/// `duroxide_provider_operation_duration_seconds` and their errors in `duroxide_provider_errors_total`, under these
/// values of the label `operation`:
///
/// | operation | calls |
/// |---|---|
/// | `fetch_orchestration_item` | itself and `claim_instances` |
/// | `ack_orchestration_item` | itself, `store_turn` and `store_step` |
/// | `read` | itself, `load_history`, `read_recent`, `read_metadata` and `read_awaited` |
/// | `fetch_work_item` | itself and `claim_work` |
/// | `ack_work_item` | itself and `store_result` |
/// | `renew_session_lock` | itself |
/// | `cleanup_orphaned_sessions` | itself |
/// | `enqueue_orchestrator` | `enqueue_for_orchestrator`, `enqueue_start_if_absent`, `enqueue_or_park`, `enqueue_if_alive` and `enqueue_start_with_message` |
///
/// A fetch that comes back empty after its whole `poll_timeout` has spent that time waiting, so the wait does not count
/// as time of the operation. A call whose future is dropped goes unrecorded.
///
/// The wrapper offers the extension and the management interface if the store does.
pub struct InstrumentedProvider {
    inner: Arc<dyn Provider>,
    metrics: Option<Arc<MetricsProvider>>,
    clock: Arc<dyn Clock>,
    #[cfg(feature = "testing")]
    gate: Option<Arc<dyn super::CommitGate>>,
}

impl InstrumentedProvider {
    /// Wraps a store; without `metrics`, only forwards every call.
    pub fn new(inner: Arc<dyn Provider>, metrics: Option<Arc<MetricsProvider>>) -> Self {
        let clock = match inner.as_extended() {
            Some(extended) => extended.clock(),
            None => Arc::new(SystemClock),
        };
        Self {
            inner,
            metrics,
            clock,
            #[cfg(feature = "testing")]
            gate: None,
        }
    }

    /// Lets every commit of a runtime pass this gate.
    #[cfg(feature = "testing")]
    pub(crate) fn with_gate(mut self, gate: Arc<dyn super::CommitGate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Makes a commit, through the gate if there is one.
    #[cfg(feature = "testing")]
    async fn gated<T>(
        &self,
        describe: impl FnOnce() -> super::CommitKind,
        commit: impl Future<Output = Result<T, ProviderError>>,
        is_made: impl FnOnce(&T) -> bool,
    ) -> Result<T, ProviderError> {
        let Some(gate) = &self.gate else { return commit.await };
        let kind = describe();
        gate.before(&kind).await;
        let committed = commit.await?;
        if is_made(&committed) {
            gate.after(&kind).await;
        }
        Ok(committed)
    }

    async fn measure<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        self.measure_without_wait(operation, call, |_, took| took).await
    }

    /// Measures a fetch that may wait for work up to `poll_timeout`.
    async fn measure_fetch<T>(
        &self,
        operation: &'static str,
        poll_timeout: Duration,
        call: impl Future<Output = Result<Option<T>, ProviderError>>,
    ) -> Result<Option<T>, ProviderError> {
        self.measure_without_wait(operation, call, |result, took| match result {
            Ok(None) => took.checked_sub(poll_timeout).unwrap_or(took),
            _ => took,
        })
        .await
    }

    async fn measure_without_wait<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, ProviderError>>,
        busy: impl FnOnce(&Result<T, ProviderError>, Duration) -> Duration,
    ) -> Result<T, ProviderError> {
        let Some(metrics) = &self.metrics else {
            return call.await;
        };
        let started = self.clock.monotonic();
        let result = call.await;
        let took = self.clock.monotonic().saturating_sub(started);
        metrics.record_provider_call(operation, busy(&result, took), result.as_ref().err().map(error_type));
        result
    }

    fn extended(&self, operation: &str) -> Result<&dyn ExtendedProvider, ProviderError> {
        self.inner
            .as_extended()
            .ok_or_else(|| ProviderError::permanent(operation, "the store has no extension any more"))
    }
}

/// Names the type of an error by a word in its message: errors of foreign stores carry no other hint.
fn error_type(error: &ProviderError) -> &'static str {
    let message = error.message.to_lowercase();
    ["deadlock", "timeout", "connection"].into_iter().find(|word| message.contains(word)).unwrap_or("other")
}

#[async_trait]
impl Provider for InstrumentedProvider {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let call = self.inner.fetch_orchestration_item(lock_timeout, poll_timeout, filter);
        self.measure_fetch("fetch_orchestration_item", poll_timeout, call).await
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let call = self.inner.ack_orchestration_item(
            lock_token,
            execution_id,
            history_delta,
            worker_items,
            orchestrator_items,
            metadata,
            cancelled_activities,
        );
        self.measure("ack_orchestration_item", call).await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.inner.abandon_orchestration_item(lock_token, delay, ignore_attempt).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.inner.renew_orchestration_item_lock(token, extend_for).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.measure("read", self.inner.read(instance)).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.inner.read_with_execution(instance, execution_id).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.inner.append_with_execution(instance, execution_id, new_events).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.inner.enqueue_for_worker(item).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let call = self.inner.fetch_work_item(lock_timeout, poll_timeout, session, tag_filter);
        self.measure_fetch("fetch_work_item", poll_timeout, call).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.measure("ack_work_item", self.inner.ack_work_item(token, completion)).await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.inner.renew_work_item_lock(token, extend_for).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.inner.abandon_work_item(token, delay, ignore_attempt).await
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        let call = self.inner.renew_session_lock(owner_ids, extend_for, idle_timeout);
        self.measure("renew_session_lock", call).await
    }

    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError> {
        let call = self.inner.cleanup_orphaned_sessions(idle_timeout);
        self.measure("cleanup_orphaned_sessions", call).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.measure("enqueue_orchestrator", self.inner.enqueue_for_orchestrator(item, delay)).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        self.inner.as_extended().map(|_| self as &dyn ExtendedProvider)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.inner.get_custom_status(instance, last_seen_version).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.inner.get_kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.inner.get_kv_all_values(instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.inner.get_instance_stats(instance).await
    }
}

/// Reached only if the store has an extension. If the store later withdraws it, the wrapper answers with permanent
/// errors and with signals that never wake, like those of a store that is gone.
#[async_trait]
impl ExtendedProvider for InstrumentedProvider {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        match self.inner.as_extended() {
            Some(extended) => extended.work_signal(queue),
            None => WorkSignalSource::new(self.clock.clone()).subscribe(),
        }
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        match self.inner.as_extended() {
            Some(extended) => extended.watch_instance(instance),
            None => Arc::new(InstanceWatchers::default()).watch(instance),
        }
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        let extended = self.extended("claim_instances")?;
        self.measure("fetch_orchestration_item", extended.claim_instances(request)).await
    }

    async fn wait_for_instances(
        &self,
        request: &InstanceRequest<'_>,
        signal: &mut WorkSignal,
    ) -> Vec<InstanceClaim> {
        match self.inner.as_extended() {
            Some(extended) => extended.wait_for_instances(request, signal).await,
            None => {
                signal.wait().await;
                Vec::new()
            }
        }
    }

    async fn load_history(
        &self,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        let extended = self.extended("load_history")?;
        self.measure("read", extended.load_history(lock_token, after_event_id)).await
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        let extended = self.extended("claim_work")?;
        self.measure("fetch_work_item", extended.claim_work(request)).await
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        let extended = self.extended("store_turn")?;
        let commit = self.measure("ack_orchestration_item", extended.store_turn(turn, claim));
        #[cfg(feature = "testing")]
        let commit = self.gated(|| super::CommitKind::of_turn(turn.history_delta), commit, |_| true);
        commit.await
    }

    async fn store_result(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        let extended = self.extended("store_result")?;
        #[cfg(feature = "testing")]
        let kind = super::CommitKind::of_result(completion.as_ref());
        let commit = self.measure("ack_work_item", extended.store_result(lock_token, completion, claim));
        #[cfg(feature = "testing")]
        let commit = self.gated(|| kind, commit, |_| true);
        commit.await
    }

    fn step_support(&self) -> StepSupport {
        self.inner.as_extended().map_or(StepSupport::NONE, ExtendedProvider::step_support)
    }

    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        let extended = self.extended("store_step")?;
        let commit = self.measure("ack_orchestration_item", extended.store_step(step, claim));
        #[cfg(feature = "testing")]
        let commit = self.gated(
            || super::CommitKind::of_step(&step),
            commit,
            |outcome| matches!(outcome, StepOutcome::Stored(_)),
        );
        commit.await
    }

    fn keeps_attempts(&self) -> bool {
        self.inner.as_extended().is_some_and(ExtendedProvider::keeps_attempts)
    }

    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let extended = self.extended("store_progress")?;
        let commit = self.measure("store_progress", extended.store_progress(activity, give_back_after));
        #[cfg(feature = "testing")]
        if give_back_after.is_some() {
            let kind = || super::CommitKind::of_attempt(activity.item);
            return self.gated(kind, commit, |_| true).await;
        }
        commit.await
    }

    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        let extended = self.extended("complete_activity")?;
        self.measure("complete_activity", extended.complete_activity(entry, completion)).await
    }

    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        let extended = self.extended("fail_unbegun")?;
        self.measure("complete_activity", extended.fail_unbegun(activity)).await
    }

    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        self.inner.as_extended()?.local_exchange()
    }

    async fn recover_lease(
        &self,
        queue: WorkQueue,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        self.extended("recover_lease")?.recover_lease(queue, lock_token, extend_for).await
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        let extended = self.extended("read_metadata")?;
        self.measure("read", extended.read_metadata(instance)).await
    }

    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        let extended = self.extended("read_awaited")?;
        self.measure("read", extended.read_awaited(awaited)).await
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        let extended = self.extended("read_recent")?;
        self.measure("read", extended.read_recent(instance, limit)).await
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        let extended = self.extended("enqueue_start_if_absent")?;
        self.measure("enqueue_orchestrator", extended.enqueue_start_if_absent(start)).await
    }

    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        let extended = self.extended("enqueue_or_park")?;
        self.measure("enqueue_orchestrator", extended.enqueue_or_park(message)).await
    }

    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        let extended = self.extended("enqueue_start_with_message")?;
        self.measure("enqueue_orchestrator", extended.enqueue_start_with_message(start, message)).await
    }

    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        let extended = self.extended("enqueue_if_alive")?;
        self.measure("enqueue_orchestrator", extended.enqueue_if_alive(message)).await
    }

    async fn list_dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        self.extended("list_dropped")?.list_dropped(limit).await
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        self.extended("list_quarantined")?.list_quarantined(limit).await
    }

    async fn list_quarantine(
        &self,
        after_id: u64,
        limit: usize,
    ) -> Result<Vec<QuarantineEntry>, ProviderError> {
        self.extended("list_quarantine")?.list_quarantine(after_id, limit).await
    }

    async fn retry_quarantined(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ProviderError> {
        self.extended("retry_quarantined")?.retry_quarantined(ids).await
    }

    async fn purge_quarantined(&self, purge: QuarantinePurge<'_>) -> Result<u64, ProviderError> {
        self.extended("purge_quarantined")?.purge_quarantined(purge).await
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        self.extended("list_parked")?.list_parked(limit).await
    }

    async fn block_instance(&self, lock_token: &str, reason: &str) -> Result<(), ProviderError> {
        self.extended("block_instance")?.block_instance(lock_token, reason).await
    }

    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        self.extended("unblock_instance")?.unblock_instance(instance).await
    }

    async fn list_blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        self.extended("list_blocked")?.list_blocked(limit).await
    }

    async fn count_running(&self, up_to: usize) -> Result<Option<Vec<RunningInstances>>, ProviderError> {
        self.extended("count_running")?.count_running(up_to).await
    }

    fn mark_running(&self, lock_token: &str) -> RunningMark {
        match self.inner.as_extended() {
            Some(extended) => extended.mark_running(lock_token),
            None => RunningMark::none(),
        }
    }

    fn as_inspector(&self) -> Option<&dyn Inspector> {
        self.inner.as_extended()?.as_inspector()
    }

    fn running_activities(&self) -> Option<Arc<RunningActivities>> {
        self.inner.as_extended()?.running_activities()
    }
}
