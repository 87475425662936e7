//! The store as the runtime sees it.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::inbox::JobClass;
use super::shared::after;
use super::{SqliteProvider, history, kv, messages, reads, sessions, turns, work};
use crate::model::{Event, SystemStats, WorkItem};
use crate::providers::rows::{ActivityRow, EventRow, MessageRow, row_number};
use crate::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ExtendedProvider, HistoryPart, InstanceRequest,
    OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, TurnToStore, WorkRequest,
};

#[async_trait]
impl Provider for SqliteProvider {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn version(&self) -> &str {
        crate::model::BUILD_VERSION
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        _poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        const OPERATION: &str = "fetch_orchestration_item";
        self.note_unmarked();
        let request = InstanceRequest { max: 1, lock_timeout, filter };
        let (mut claims, undelivered) = self.claim_turns(OPERATION, &request).await?;
        let Some(claim) = claims.pop() else { return Ok(None) };
        // If this fails, or the caller drops the future meanwhile, the store gives the lease back.
        let part = match claim.is_fresh() {
            true => HistoryPart::default(),
            false => self.load(OPERATION, &claim.lock_token, 0).await?,
        };
        undelivered.hand_over();
        let item = OrchestrationItem {
            instance: claim.instance,
            orchestration_name: claim.orchestration_name,
            execution_id: claim.execution_id,
            version: claim.version,
            history: part.events,
            messages: claim.messages,
            history_error: part.history_error,
            kv_snapshot: part.kv_snapshot.unwrap_or_default(),
        };
        Ok(Some((item, claim.lock_token, claim.attempt_count)))
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
        let turn = TurnToStore {
            lock_token,
            execution_id,
            history_delta: &history_delta,
            worker_items: &worker_items,
            activity_options: &[],
            orchestrator_items: &orchestrator_items,
            metadata: &metadata,
            cancelled_activities: &cancelled_activities,
        };
        self.store_turn(turn, None).await.map(drop)
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let token = lock_token.to_string();
        self.writer
            .submit("abandon_orchestration_item", JobClass::Lease, move |tx| {
                turns::abandon(tx, &token, delay, ignore_attempt)
            })
            .await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let (token, arrived_ms) = (token.to_string(), self.shared.now_ms());
        self.writer
            .submit("renew_orchestration_item_lock", JobClass::Renewal, move |tx| {
                turns::renew(tx, &token, arrived_ms, extend_for)
            })
            .await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read", instance, None).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read_with_execution", instance, Some(execution_id)).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "append_with_execution";
        let limits = &self.shared.limits;
        limits.check_instance(OPERATION, instance)?;
        let execution_id = row_number(OPERATION, "execution id", execution_id)?;
        let events = EventRow::encode_all(limits, OPERATION, &new_events)?;
        let instance = instance.to_string();
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                history::refuse_duplicates(tx, OPERATION, &instance, execution_id, &events)?;
                let now = tx.now_ms();
                history::append(tx, &instance, execution_id, &events, now)?;
                if !events.is_empty() {
                    // The instance now has a history, so the messages that waited for it can be delivered.
                    super::orphans::instance_appears(tx, &instance, now)?;
                }
                tx.effects.changed_instances.push(instance);
                Ok(())
            })
            .await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_for_worker";
        let activity = ActivityRow::encode(&self.shared.limits, OPERATION, &item)?;
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                let now = tx.now_ms();
                Ok(work::insert(tx, &activity, now)?)
            })
            .await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        _poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        self.note_unmarked();
        let request = WorkRequest { max: 1, lock_timeout, session, tag_filter };
        let claim = self.claim_activities("fetch_work_item", &request).await?.pop();
        Ok(claim.map(|claim| (claim.item, claim.lock_token, claim.attempt_count)))
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        let (token, arrived_ms) = (token.to_string(), self.shared.now_ms());
        let completion = self.encode_result(completion)?;
        self.writer
            .submit("ack_work_item", JobClass::Data, move |tx| {
                work::ack(tx, &token, arrived_ms, completion.as_ref())
            })
            .await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        let (token, arrived_ms) = (token.to_string(), self.shared.now_ms());
        self.writer
            .submit("renew_work_item_lock", JobClass::Renewal, move |tx| {
                work::renew(tx, &token, arrived_ms, extend_for)
            })
            .await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let token = token.to_string();
        self.writer
            .submit("abandon_work_item", JobClass::Lease, move |tx| {
                work::abandon(tx, &token, delay, ignore_attempt)
            })
            .await
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        let owners: Vec<String> = owner_ids.iter().map(ToString::to_string).collect();
        self.writer
            .submit("renew_session_lock", JobClass::Renewal, move |tx| {
                sessions::renew(tx, &owners, extend_for, idle_timeout)
            })
            .await
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.writer.submit("cleanup_orphaned_sessions", JobClass::Lease, sessions::remove_orphaned).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_for_orchestrator";
        let message = MessageRow::encode(&self.shared.limits, OPERATION, &item)?;
        self.writer
            .submit(OPERATION, JobClass::Data, move |tx| {
                let now = tx.now_ms();
                let visible_at = delay.map_or(0, |delay| after(now, delay)).max(message.due_at_ms);
                Ok(messages::insert(tx, &message, visible_at, now)?)
            })
            .await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        Some(self)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        let instance = instance.to_string();
        self.read("get_custom_status", move |connection| {
            Ok(reads::custom_status(connection, &instance, last_seen_version)?)
        })
        .await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        let (instance, key) = (instance.to_string(), key.to_string());
        self.read("get_kv_value", move |connection| Ok(kv::value(connection, &instance, &key)?)).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        let instance = instance.to_string();
        self.read("get_kv_all_values", move |connection| Ok(kv::all_values(connection, &instance)?)).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        let instance = instance.to_string();
        self.read("get_instance_stats", move |connection| reads::instance_stats(connection, &instance)).await
    }
}

impl SqliteProvider {
    /// A caller that fetches by the plain contract does not mark what it runs.
    fn note_unmarked(&self) {
        if let Some(owners) = &self.shared.owners {
            owners.note_unmarked();
        }
    }

    pub(super) async fn read_events(
        &self,
        operation: &'static str,
        instance: &str,
        execution_id: Option<u64>,
    ) -> Result<Vec<Event>, ProviderError> {
        let instance = instance.to_string();
        self.read(operation, move |connection| reads::events(connection, operation, &instance, execution_id))
            .await
    }
}
