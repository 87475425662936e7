//! Stores of workers that are broken on purpose, for the twins of the harnesses with processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::{
    ExecutionMetadata, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::{Event, EventKind};

use crate::forwarding::forwarding_provider;

/// Stores the activities of a turn in a transaction of their own, before the turn.
pub struct SplitsCommits {
    inner: Arc<dyn Provider>,
}

impl SplitsCommits {
    /// Breaks a store.
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner }
    }
}

forwarding_provider! {
    SplitsCommits => inner;
    forwards: [
        fetch_orchestration_item, abandon_orchestration_item, renew_orchestration_item_lock, read,
        read_with_execution, append_with_execution, enqueue_for_worker, fetch_work_item, ack_work_item,
        renew_work_item_lock, abandon_work_item, renew_session_lock, cleanup_orphaned_sessions,
        enqueue_for_orchestrator, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        for item in worker_items {
            self.inner.enqueue_for_worker(item).await?;
        }
        // Most kills then hit a turn in between.
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.inner
            .ack_orchestration_item(
                lock_token,
                execution_id,
                history_delta,
                Vec::new(),
                orchestrator_items,
                metadata,
                cancelled,
            )
            .await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }
}

/// Takes the result of an activity from whoever brings it, lease or not, and records it at once.
pub struct IgnoresLeases {
    inner: Arc<dyn Provider>,
    taken: Mutex<BTreeMap<String, WorkItem>>,
}

impl IgnoresLeases {
    /// Breaks a store.
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner, taken: Mutex::default() }
    }

    /// Records an end past the fence.
    async fn record(&self, token: &str, result: String) -> Result<(), ProviderError> {
        let taken = self.taken.lock().unwrap().get(token).cloned();
        let Some(WorkItem::ActivityExecute { instance, execution_id, id, .. }) = taken else { return Ok(()) };
        let history = self.inner.read_with_execution(&instance, execution_id).await?;
        let next = history.last().map_or(1, |event| event.event_id + 1);
        let kind = EventKind::ActivityCompleted { result };
        let event = Event::with_event_id(next, &instance, execution_id, Some(id), kind);
        self.inner.append_with_execution(&instance, execution_id, vec![event]).await
    }
}

forwarding_provider! {
    IgnoresLeases => inner;
    forwards: [
        fetch_orchestration_item, ack_orchestration_item, abandon_orchestration_item,
        renew_orchestration_item_lock, read, read_with_execution, append_with_execution, enqueue_for_worker,
        renew_work_item_lock, abandon_work_item, renew_session_lock, cleanup_orphaned_sessions,
        enqueue_for_orchestrator, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let fetched = self.inner.fetch_work_item(lock_timeout, poll_timeout, session, tag_filter).await?;
        if let Some((item, token, _)) = &fetched {
            self.taken.lock().unwrap().insert(token.clone(), item.clone());
        }
        Ok(fetched)
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        let result = match &completion {
            Some(WorkItem::ActivityCompleted { result, .. }) => result.clone(),
            _ => String::new(),
        };
        // Most stops of the process then hit one that has not been told of its result.
        tokio::time::sleep(Duration::from_millis(150)).await;
        match self.inner.ack_work_item(token, completion).await {
            Err(error) if !error.is_retryable() => self.record(token, result).await,
            answer => answer,
        }
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }
}
