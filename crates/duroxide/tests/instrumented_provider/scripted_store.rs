//! A store that answers as the memory store does, after as long and with such errors as a test says.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ExtendedProvider, ManualClock, OrchestrationItem,
    Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter,
    WorkItem,
};
use duroxide::{Event, SystemStats};

pub struct ScriptedStore {
    inner: MemoryProvider,
    clock: Arc<ManualClock>,
    /// How long each call takes, by the clock.
    takes: Duration,
    /// What each call fails with, if it fails.
    error: Option<ProviderError>,
    /// Whether management and extension are offered.
    capable: bool,
}

impl ScriptedStore {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let inner = MemoryProvider::with_clock(clock.clone());
        Self { inner, clock, takes: Duration::ZERO, error: None, capable: true }
    }

    pub fn failing(message: &str) -> Self {
        Self { error: Some(ProviderError::retryable("some_operation", message)), ..Self::new() }
    }

    pub fn taking(takes: Duration) -> Self {
        Self { takes, ..Self::new() }
    }

    pub fn without_capabilities() -> Self {
        Self { capable: false, ..Self::new() }
    }

    fn step(&self) -> Result<(), ProviderError> {
        self.clock.advance(self.takes);
        self.error.clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Provider for ScriptedStore {
    fn name(&self) -> &str {
        "scripted"
    }

    fn version(&self) -> &str {
        "7.8.9"
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.capable.then_some(&self.inner)?.as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        self.capable.then_some(&self.inner)?.as_extended()
    }

    async fn fetch_orchestration_item(
        &self,
        lock: Duration,
        poll: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        self.step()?;
        self.inner.fetch_orchestration_item(lock, poll, filter).await
    }

    async fn ack_orchestration_item(
        &self,
        token: &str,
        execution_id: u64,
        history: Vec<Event>,
        work: Vec<WorkItem>,
        messages: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        self.step()?;
        self.inner
            .ack_orchestration_item(token, execution_id, history, work, messages, metadata, cancelled)
            .await
    }

    async fn abandon_orchestration_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.abandon_orchestration_item(token, delay, ignore_attempt).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.renew_orchestration_item_lock(token, extend_for).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.step()?;
        self.inner.read(instance).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.step()?;
        self.inner.read_with_execution(instance, execution_id).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.append_with_execution(instance, execution_id, events).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.enqueue_for_worker(item).await
    }

    async fn fetch_work_item(
        &self,
        lock: Duration,
        poll: Duration,
        session: Option<&SessionFetchConfig>,
        tags: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        self.step()?;
        self.inner.fetch_work_item(lock, poll, session, tags).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.ack_work_item(token, completion).await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.renew_work_item_lock(token, extend_for).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.abandon_work_item(token, delay, ignore_attempt).await
    }

    async fn renew_session_lock(
        &self,
        owners: &[&str],
        extend_for: Duration,
        idle: Duration,
    ) -> Result<usize, ProviderError> {
        self.step()?;
        self.inner.renew_session_lock(owners, extend_for, idle).await
    }

    async fn cleanup_orphaned_sessions(&self, idle: Duration) -> Result<usize, ProviderError> {
        self.step()?;
        self.inner.cleanup_orphaned_sessions(idle).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.step()?;
        self.inner.enqueue_for_orchestrator(item, delay).await
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        seen: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.step()?;
        self.inner.get_custom_status(instance, seen).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.step()?;
        self.inner.get_kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.step()?;
        self.inner.get_kv_all_values(instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.step()?;
        self.inner.get_instance_stats(instance).await
    }
}
