//! A store with one thing broken, to see that the comparison notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, ExtendedProvider, OrchestrationItem, Provider,
    ProviderAdmin, ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::{Event, EventKind};

use crate::forwarding::forwarding_provider;

/// The broken thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every fifth message is lost.
    LosesMessages,
    /// Activities that a turn cancels are kept.
    KeepsCancelledActivities,
    /// An abandoned turn counts, though it should not.
    CountsIgnoredAttempts,
    /// Work given back with a delay is visible at once.
    ForgetsDelays,
    /// All callers own all sessions.
    SharesSessions,
    /// Leases of turns end a little late.
    HoldsTurnsTooLong,
    /// Values lose the time at which they were set.
    ForgetsKeyTimes,
    /// The completion of an activity is lost if it is a failure.
    LosesFailures,
    /// Version filters are ignored.
    IgnoresVersions,
}

impl Fault {
    /// Every real fault.
    pub const ALL: [Self; 9] = [
        Self::LosesMessages,
        Self::KeepsCancelledActivities,
        Self::CountsIgnoredAttempts,
        Self::ForgetsDelays,
        Self::SharesSessions,
        Self::HoldsTurnsTooLong,
        Self::ForgetsKeyTimes,
        Self::LosesFailures,
        Self::IgnoresVersions,
    ];
}

/// A store with a fault.
pub struct FaultyProvider {
    inner: Arc<dyn Provider>,
    fault: Fault,
    messages: AtomicU32,
}

impl FaultyProvider {
    /// Breaks a store.
    pub fn new(inner: Arc<dyn Provider>, fault: Fault) -> Self {
        Self { inner, fault, messages: AtomicU32::new(0) }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}

forwarding_provider! {
    FaultyProvider => inner;
    forwards: [
        renew_orchestration_item_lock, read, read_with_execution, append_with_execution, enqueue_for_worker, renew_work_item_lock, abandon_work_item, renew_session_lock, cleanup_orphaned_sessions, get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
    ];

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let lateness = Duration::from_millis(u64::from(self.has(Fault::HoldsTurnsTooLong)));
        let filter = filter.filter(|_| !self.has(Fault::IgnoresVersions));
        self.inner.fetch_orchestration_item(lock_timeout + lateness, poll_timeout, filter).await
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        mut history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        mut cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        if self.has(Fault::KeepsCancelledActivities) {
            cancelled_activities.clear();
        }
        for event in &mut history_delta {
            if let EventKind::KeyValueSet { last_updated_at_ms, .. } = &mut event.kind
                && self.has(Fault::ForgetsKeyTimes)
            {
                *last_updated_at_ms = 0;
            }
        }
        self.inner
            .ack_orchestration_item(
                lock_token,
                execution_id,
                history_delta,
                worker_items,
                orchestrator_items,
                metadata,
                cancelled_activities,
            )
            .await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let ignore_attempt = ignore_attempt && !self.has(Fault::CountsIgnoredAttempts);
        let delay = delay.filter(|_| !self.has(Fault::ForgetsDelays));
        self.inner.abandon_orchestration_item(lock_token, delay, ignore_attempt).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let mut session = session.cloned();
        if let Some(session) = session.as_mut().filter(|_| self.has(Fault::SharesSessions)) {
            session.owner_id = "everybody".into();
        }
        self.inner.fetch_work_item(lock_timeout, poll_timeout, session.as_ref(), tag_filter).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        let is_lost = self.has(Fault::LosesFailures);
        let completion =
            completion.filter(|item| !(is_lost && matches!(item, WorkItem::ActivityFailed { .. })));
        self.inner.ack_work_item(token, completion).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let count = self.messages.fetch_add(1, Ordering::Relaxed);
        if self.has(Fault::LosesMessages) && count % 5 == 4 {
            return Ok(());
        }
        self.inner.enqueue_for_orchestrator(item, delay).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }

    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        self.inner.as_extended()
    }
}
