//! The capabilities of this store beyond the documented contract.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use duroxide::Event;
use duroxide::providers::inspect::{self, MessageClass};
use duroxide::providers::{
    AttemptToStore, AwaitedInstance, AwaitedLook, BlockedInstance, Clock, DeliveryOutcome, DroppedMessages,
    Durable, ExtendedProvider, HistoryPart, Inspector, InstanceClaim, InstanceMetadata, InstanceRequest,
    InstanceWatch, KvEntry, LeaseState, LocalExchange, ParkedMessage, ProviderError, QuarantineEntry,
    QuarantinePurge, QuarantineRetry, QuarantinedRow, RunningActivities, RunningInstances, RunningMark,
    ScheduledActivityIdentifier, SendOutcome, StartOutcome, StepOutcome, StepSupport, StepToStore,
    StoredResult, StoredTurn, TagFilter, TurnToStore, UnbegunOutcome, WorkClaim, WorkItem, WorkQueue,
    WorkRequest, WorkSignal, refusal,
};

use crate::PostgresProvider;
use crate::dead_holders;
use crate::encode::{self, NewMessage, leased_by};
use crate::histories::OF_CURRENT;
use crate::jobs::{Job, StartWithMessage, TurnStored};
use crate::large_payloads::HistoryRead;
use crate::shared::{clamp, positive, whole_ms};
use crate::shared_connection::Columns;
use crate::text::original;

const LEASE: &str = "SELECT locked_until, now_ms_1($3) AS now_at FROM instance_schedule WHERE instance_id = $1 AND lock_token = $2";
const SNAPSHOT: &str = "SELECT key, value, last_updated_at_ms FROM kv_store WHERE instance_id = $1";

#[async_trait]
impl ExtendedProvider for PostgresProvider {
    fn clock(&self) -> Arc<dyn Clock> {
        self.shared.time.clock()
    }

    fn running_activities(&self) -> Option<Arc<RunningActivities>> {
        Some(self.shared.running.clone())
    }

    fn as_inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }

    fn mark_running(&self, lock_token: &str) -> RunningMark {
        dead_holders::mark_running(&self.renewing, &self.shared.holder, lock_token)
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        match queue {
            WorkQueue::Orchestrator => self.shared.instances_ready.source.subscribe(),
            WorkQueue::Worker => self.shared.work_ready.source.subscribe(),
        }
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.shared.watchers.watch(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        self.shared.takes_work.store(true, Ordering::Relaxed);
        let (claims, held) = self.claim("claim_instances", request).await?;
        held.hand_over();
        Ok(claims)
    }

    async fn wait_for_instances(
        &self,
        request: &InstanceRequest<'_>,
        signal: &mut WorkSignal,
    ) -> Vec<InstanceClaim> {
        if request.filter.is_some_and(|filter| filter.supported_duroxide_versions.is_empty()) {
            signal.wait().await;
            return Vec::new();
        }
        self.shared.holder.be_visible(whole_ms(request.lock_timeout)).await;
        loop {
            let order = self.instance_order(request.max, request);
            let mut wait = self.shared.waiting_dispatchers.wait_for(order);
            let filled = tokio::select! {
                biased;
                filled = wait.filled() => filled,
                () = signal.wait() => wait.end().await,
            };
            let Some(fetched) = filled else { return Vec::new() };
            if fetched.claims.is_empty() && !fetched.is_unfinished() {
                continue;
            }
            return self.take_instances("wait_for_instances", fetched).await.unwrap_or_default();
        }
    }

    async fn load_history(
        &self,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        self.load("load_history", lock_token, after_event_id).await
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        self.shared.takes_work.store(true, Ordering::Relaxed);
        self.claim_activities("claim_work", request).await
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        // A turn's commit never leases activities of sessions. If it has some for this caller, it leases nothing, so that those
        // beside them do not overtake them.
        let is_of_session =
            |item: &WorkItem| matches!(item, WorkItem::ActivityExecute { session_id: Some(_), .. });
        let has_sessions = turn.worker_items.iter().any(is_of_session);
        let order = claim.filter(|request| *request.tag_filter != TagFilter::None);
        let order = order.filter(|request| request.session.is_none() || !has_sessions);
        let order = order.map(|request| self.work_order(request));
        let TurnStored { incarnation, work } = self.commit_turn(turn, order).await?;
        let Some(request) = claim else { return Ok(StoredTurn { incarnation, claims: Vec::new() }) };
        // The turn is stored whatever becomes of this claim.
        let claims = match work {
            Some(work) => self.take_work("store_turn", work).await,
            None => self.claim_work(request).await,
        };
        let claims = claims.unwrap_or_default();
        Ok(StoredTurn { incarnation, claims })
    }

    async fn store_result(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        let Some(request) = claim else {
            self.commit_result(lock_token, completion).await?;
            return Ok(StoredResult { claims: Vec::new(), durable: Durable::already() });
        };
        let order = self.instance_order(request.max, request);
        let (fetched, durable) = self.commit_result_and_claim(lock_token, completion, order).await?;
        // The result is stored whatever becomes of this claim.
        let claims = match fetched {
            Some(fetched) if !fetched.is_unfinished() => {
                self.take_instances("store_result", fetched).await.unwrap_or_default()
            }
            _ => self.claim_instances(request).await.unwrap_or_default(),
        };
        Ok(StoredResult { claims, durable: Durable::when(durable) })
    }

    fn step_support(&self) -> StepSupport {
        crate::steps::SUPPORT
    }

    async fn store_step(
        &self,
        step: StepToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StepOutcome, ProviderError> {
        self.commit_step(step, claim).await
    }

    fn keeps_attempts(&self) -> bool {
        true
    }

    async fn store_progress(
        &self,
        activity: AttemptToStore<'_>,
        give_back_after: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.store_attempt(activity, give_back_after).await
    }

    async fn complete_activity(&self, entry: u64, completion: WorkItem) -> Result<bool, ProviderError> {
        self.complete_from_elsewhere(entry, &completion).await
    }

    async fn fail_unbegun(
        &self,
        activity: &ScheduledActivityIdentifier,
    ) -> Result<UnbegunOutcome, ProviderError> {
        self.fail_if_unbegun(activity).await
    }

    fn local_exchange(&self) -> Option<Arc<LocalExchange>> {
        Some(self.shared.exchange.clone())
    }

    async fn recover_lease(
        &self,
        queue: WorkQueue,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<LeaseState, ProviderError> {
        let held = self.recover(queue, lock_token, extend_for).await?;
        Ok(if held { LeaseState::Held } else { LeaseState::Lost })
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        self.metadata_or_pending("read_metadata", instance).await
    }

    async fn read_awaited(&self, awaited: &[AwaitedInstance<'_>]) -> Result<Vec<AwaitedLook>, ProviderError> {
        self.awaited(awaited).await
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        self.recent_events("read_recent", instance, limit).await
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_start_if_absent";
        if !matches!(start, WorkItem::StartOrchestration { .. }) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = encode::message(&self.shared.limits, OPERATION, &start)?;
        self.commit_early(OPERATION, message, Job::Start).await
    }

    async fn enqueue_or_park(&self, message: WorkItem) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_or_park";
        if !inspect::may_wait_for_its_instance(&message) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = encode::message(&self.shared.limits, OPERATION, &message)?;
        let message = NewMessage { class: MessageClass::Signal.as_str(), ..message };
        self.commit_early(OPERATION, message, Job::Message).await
    }

    async fn enqueue_start_with_message(
        &self,
        start: WorkItem,
        message: WorkItem,
    ) -> Result<DeliveryOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_start_with_message";
        refusal::check_start_with_message(OPERATION, &start, &message)?;
        let start = encode::message(&self.shared.limits, OPERATION, &start)?;
        let message = encode::message(&self.shared.limits, OPERATION, &message)?;
        self.commit_early(OPERATION, StartWithMessage { start, message }, Job::StartWithMessage).await
    }

    async fn enqueue_if_alive(&self, message: WorkItem) -> Result<SendOutcome, ProviderError> {
        self.send_if_alive(&message).await
    }

    async fn list_dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        self.dropped(limit).await
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        let listed = self.quarantine("list_quarantined", 0, limit).await?;
        Ok(listed.into_iter().map(|entry| entry.row).collect())
    }

    async fn list_quarantine(
        &self,
        after_id: u64,
        limit: usize,
    ) -> Result<Vec<QuarantineEntry>, ProviderError> {
        self.quarantine("list_quarantine", after_id, limit).await
    }

    async fn retry_quarantined(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ProviderError> {
        self.retry_rows(ids).await
    }

    async fn purge_quarantined(&self, purge: QuarantinePurge<'_>) -> Result<u64, ProviderError> {
        self.purge_rows(purge).await
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        self.parked(limit).await
    }

    async fn count_running(&self, up_to: usize) -> Result<Option<Vec<RunningInstances>>, ProviderError> {
        self.running_instances(up_to).await.map(Some)
    }

    async fn block_instance(&self, lock_token: &str, reason: &str) -> Result<(), ProviderError> {
        self.block(lock_token, reason).await
    }

    async fn unblock_instance(&self, instance: &str) -> Result<bool, ProviderError> {
        self.unblock(instance).await
    }

    async fn list_blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        self.blocked(limit).await
    }
}

impl PostgresProvider {
    /// Loads the history of a leased instance, in one round trip unless it is long.
    pub(crate) async fn load(
        &self,
        operation: &'static str,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        let unknown = || refusal::unknown_turn_token(operation);
        let instance = leased_by(lock_token).ok_or_else(unknown)?;
        let (after, now) = (clamp(after_event_id), self.shared.time.given_ms());
        let lease_params: Columns<'_> = &[&instance, &lock_token, &now];
        let history_params: Columns<'_> = &[&instance, &after];
        let snapshot_params: Columns<'_> = &[&instance];
        let mut statements = vec![(LEASE, lease_params), (OF_CURRENT, history_params)];
        if after == 0 {
            statements.push((SNAPSHOT, snapshot_params));
        }
        let loaded = self.reads.pipeline(&statements).await.map_err(crate::reads::named(operation))?;
        let mut loaded = loaded.into_iter();
        let mut next = || loaded.next().unwrap_or_default();
        let (lease, events, snapshot) = (next(), next(), next());
        let lease = lease.first().ok_or_else(unknown)?;
        if lease.get::<_, i64>("locked_until") <= lease.get::<_, i64>("now_at") {
            return Err(ProviderError::permanent(operation, "Instance lock expired"));
        }
        // A deleted instance has no lease.
        let mut read = HistoryRead::new(self, lock_token);
        let events = self.rest_of_history(operation, instance, events, Some(&mut read)).await?;
        let events = events.ok_or_else(unknown)?;
        let entry = |row: &tokio_postgres::Row| {
            let entry = KvEntry {
                value: original(row.get("value")),
                last_updated_at_ms: positive(row.get("last_updated_at_ms")),
            };
            (original(row.get("key")), entry)
        };
        let kv_snapshot = (after == 0).then(|| snapshot.iter().map(entry).collect());
        let decoded = crate::reads::decode(&events);
        read.end().await;
        Ok(match decoded {
            Ok(events) => HistoryPart { events, history_error: None, kv_snapshot },
            Err(reason) => HistoryPart {
                events: Vec::new(),
                history_error: Some(refusal::history_error(&reason)),
                kv_snapshot: kv_snapshot.map(|_| Default::default()),
            },
        })
    }
}
