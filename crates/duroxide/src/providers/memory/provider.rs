//! The contract between the runtime and this store, method by method.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::MemoryProvider;
use crate::model::{BUILD_VERSION, Event, SystemStats, WorkItem};
use crate::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ExtendedProvider, InstanceRequest, OrchestrationItem,
    Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter,
    TurnToStore, WorkRequest,
};

#[async_trait]
impl Provider for MemoryProvider {
    fn name(&self) -> &str {
        "memory"
    }

    fn version(&self) -> &str {
        BUILD_VERSION
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        Some(self)
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        _poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let request = InstanceRequest { max: 1, lock_timeout, filter };
        Ok(self.lease(|state, now| state.fetch_turn(&request, now)))
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
        self.change(|state, now| state.abandon_turn(lock_token, delay, ignore_attempt, now))
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.lease(|state, now| state.renew_turn(token, extend_for, now))
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.read_state(|state| state.read_history("read", instance, state.latest_execution(instance)))
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.read_state(|state| state.read_history("read_with_execution", instance, execution_id))
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.change(|state, _| state.append(instance, execution_id, &new_events))
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.change(|state, now| state.enqueue_activity(&item, now))
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        _poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let request = WorkRequest { max: 1, lock_timeout, session, tag_filter };
        let claim = self.lease(|state, now| state.claim_work(&request, now)).pop();
        Ok(claim.map(|claim| (claim.item, claim.lock_token, claim.attempt_count)))
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.change(|state, now| state.complete_activity(token, completion.as_ref(), now))
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.lease(|state, now| state.renew_activity(token, extend_for, now))
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.change(|state, now| state.abandon_activity(token, delay, ignore_attempt, now))
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        Ok(self.lease(|state, now| state.renew_sessions(owner_ids, extend_for, idle_timeout, now)))
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        Ok(self.change(|state, now| state.remove_orphaned_sessions(now)))
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.change(|state, now| {
            let message = state.new_message("enqueue_for_orchestrator", &item, delay, now)?;
            state.messages.push(message);
            Ok(())
        })
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        Ok(self.read_state(|state| state.custom_status(instance, last_seen_version)))
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        Ok(self.read_state(|state| Some(state.key_values.get(instance)?.value(key)?.to_string())))
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        Ok(self.read_state(|state| {
            let values = state.key_values.get(instance).map(|values| values.values()).unwrap_or_default();
            values.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        }))
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.read_state(|state| state.instance_stats(instance))
    }
}
