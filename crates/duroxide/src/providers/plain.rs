//! Gives a store of the published contract the interface that the runtime talks to.
//!
//! Such a store cannot signal, so its signal ticks: the runtime asks again after a while, and the store may make each fetch
//! wait for work. It leases one thing at a time, and an instance comes with its whole history, which is kept until the turn
//! loads it. It has no other abilities, so every other answer is the default of the extension: no steps, nothing claimed
//! along with a commit, no blocked instances.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{
    Durable, ExtendedProvider, HistoryPart, InstanceClaim, InstanceMetadata, InstanceRequest, InstanceWatch,
    InstanceWatchers, OrchestrationItem, ParkedMessage, Provider, ProviderError, QuarantinedRow,
    StartOutcome, StoredResult, StoredTurn, TurnToStore, WorkClaim, WorkQueue, WorkRequest, WorkSignal,
};
use crate::model::{ActivityRecord, Clock, Event, ExecutionStatus, SystemClock, WorkItem};

/// The status of an instance if only its history tells whether it has ended.
const STATUS_UNTOLD: &str = "Unknown";

/// How the runtime asks a store that does not signal.
pub(crate) struct Polling {
    /// The shortest time between two fetches that find nothing.
    pub interval: Duration,
    /// How long a fetch may wait for work.
    pub longest_fetch: Duration,
    /// Fires when the runtime wants no more work. A fetch that waits is then dropped; what it leases in that moment is free again
    /// when the lease has run out.
    pub stop: CancellationToken,
}

/// A store of the published contract, with the extension made from it.
pub(crate) struct PlainStore {
    store: Arc<dyn Provider>,
    polling: Polling,
    clock: Arc<dyn Clock>,
    /// The histories that came with claims, by token, until their turns load them.
    histories: Mutex<HashMap<String, HistoryPart>>,
}

impl PlainStore {
    pub fn new(store: Arc<dyn Provider>, polling: Polling) -> Self {
        Self { store, polling, clock: Arc::new(SystemClock), histories: Mutex::default() }
    }

    async fn unless_stopped<T>(
        &self,
        fetch: impl Future<Output = Result<Option<T>, ProviderError>>,
    ) -> Result<Option<T>, ProviderError> {
        tokio::select! {
            biased;
            () = self.polling.stop.cancelled() => Ok(None),
            fetched = fetch => fetched,
        }
    }

    /// Makes a claim of a fetched instance, and keeps the history that came with it.
    async fn claim(&self, item: OrchestrationItem, lock_token: String, attempt_count: u32) -> InstanceClaim {
        let has_record =
            item.history_error.is_some() || !item.history.is_empty() || !item.kv_snapshot.is_empty();
        let status = match item.history_error {
            Some(_) => Some(self.status(&item.instance).await),
            None => has_record.then(|| STATUS_UNTOLD.to_string()),
        };
        let last_event_id = item.history.last().map_or(0, |event| event.event_id);
        if has_record && !has_ended(status.as_deref()) {
            let part = HistoryPart {
                events: item.history,
                history_error: item.history_error,
                kv_snapshot: Some(item.kv_snapshot),
            };
            self.histories().insert(lock_token.clone(), part);
        }
        InstanceClaim {
            instance: item.instance,
            orchestration_name: item.orchestration_name,
            version: item.version,
            execution_id: item.execution_id,
            // The contract does not tell. So no turn trusts what was in memory.
            incarnation: 0,
            last_event_id,
            status,
            messages: item.messages,
            lock_token,
            attempt_count,
        }
    }

    /// The status of an instance whose history does not decode, as operators see it.
    async fn status(&self, instance: &str) -> String {
        let info = match self.store.as_management_capability() {
            Some(admin) => admin.get_instance_info(instance).await.ok(),
            None => None,
        };
        info.map_or_else(|| STATUS_UNTOLD.to_string(), |info| info.status)
    }

    fn histories(&self) -> MutexGuard<'_, HashMap<String, HistoryPart>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether the turn will need no history, because the instance has ended.
fn has_ended(status: Option<&str>) -> bool {
    status.and_then(ExecutionStatus::parse).is_some_and(ExecutionStatus::ends_instance)
}

#[async_trait]
impl ExtendedProvider for PlainStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn work_signal(&self, _: WorkQueue) -> WorkSignal {
        WorkSignal::ticking(self.clock.clone(), self.polling.interval)
    }

    /// Such a store does not tell of changes: a caller that waits for one has to look.
    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        Arc::new(InstanceWatchers::default()).watch(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        let longest = self.polling.longest_fetch;
        let fetch = self.store.fetch_orchestration_item(request.lock_timeout, longest, request.filter);
        match self.unless_stopped(fetch).await? {
            Some((item, token, attempt_count)) => Ok(vec![self.claim(item, token, attempt_count).await]),
            None => Ok(Vec::new()),
        }
    }

    /// Hands out the history that came with the claim, once.
    async fn load_history(
        &self,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        let Some(mut part) = self.histories().remove(lock_token) else {
            return Err(ProviderError::permanent("load_history", "a history comes with its claim, and once"));
        };
        part.events.retain(|event| event.event_id > after_event_id);
        Ok(part)
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        let longest = self.polling.longest_fetch;
        let WorkRequest { lock_timeout, session, tag_filter, .. } = request;
        let fetch = self.store.fetch_work_item(*lock_timeout, longest, *session, tag_filter);
        let fetched = self.unless_stopped(fetch).await?;
        let claim = |(item, lock_token, attempt_count)| {
            let record = ActivityRecord::default();
            WorkClaim { item, lock_token, attempt_count, record }
        };
        Ok(fetched.map(claim).into_iter().collect())
    }

    async fn store_turn(
        &self,
        turn: TurnToStore<'_>,
        _: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        let stored = self.store.ack_orchestration_item(
            turn.lock_token,
            turn.execution_id,
            turn.history_delta.to_vec(),
            turn.worker_items.to_vec(),
            turn.orchestrator_items.to_vec(),
            turn.metadata.clone(),
            turn.cancelled_activities.to_vec(),
        );
        stored.await.map(|()| StoredTurn::default())
    }

    async fn store_result(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
        _: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        self.store.ack_work_item(lock_token, completion).await?;
        Ok(StoredResult { claims: Vec::new(), durable: Durable::already() })
    }

    /// Such a store describes an instance by its history alone.
    async fn read_metadata(&self, _: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        Ok(None)
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        let mut history = self.store.read(instance).await?;
        history.drain(..history.len().saturating_sub(limit));
        Ok(history)
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        self.store.enqueue_for_orchestrator(start, None).await?;
        Ok(StartOutcome::Unknown)
    }

    async fn list_quarantined(&self, _: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        Ok(Vec::new())
    }

    async fn list_parked(&self, _: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::model::{EventKind, INITIAL_EXECUTION_ID};
    use crate::providers::memory::MemoryProvider;
    use crate::providers::{ExecutionMetadata, TagFilter};

    const LEASE: Duration = Duration::from_secs(60);
    const ANY: InstanceRequest<'static> = InstanceRequest { max: 10, lock_timeout: LEASE, filter: None };

    fn plain() -> PlainStore {
        let polling =
            Polling { interval: Duration::ZERO, longest_fetch: Duration::ZERO, stop: Default::default() };
        PlainStore::new(Arc::new(MemoryProvider::new()), polling)
    }

    fn start(instance: &str) -> WorkItem {
        WorkItem::StartOrchestration {
            instance: instance.into(),
            orchestration: "O".into(),
            input: String::new(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: INITIAL_EXECUTION_ID,
        }
    }

    fn signal(instance: &str) -> WorkItem {
        WorkItem::ExternalRaised { instance: instance.into(), name: "go".into(), data: String::new() }
    }

    /// Stores the first turn of an instance.
    async fn begin(store: &PlainStore, instance: &str) {
        store.enqueue_start_if_absent(start(instance)).await.unwrap();
        let [claim] = store.claim_instances(&ANY).await.unwrap().try_into().unwrap();
        assert!(claim.is_fresh() && store.histories().is_empty(), "there is nothing to load");
        let kind = EventKind::CustomStatusUpdated { status: None };
        let event = Event::with_event_id(1, instance, INITIAL_EXECUTION_ID, None, kind);
        let metadata = ExecutionMetadata {
            orchestration_name: Some("O".into()),
            orchestration_version: Some("1.0.0".into()),
            ..Default::default()
        };
        let turn = TurnToStore {
            lock_token: &claim.lock_token,
            execution_id: INITIAL_EXECUTION_ID,
            history_delta: &[event],
            worker_items: &[],
            activity_options: &[],
            orchestrator_items: &[],
            metadata: &metadata,
            cancelled_activities: &[],
        };
        let stored = store.store_turn(turn, None).await.unwrap();
        assert!(stored.incarnation == 0 && stored.claims.is_empty());
    }

    #[tokio::test]
    async fn a_claim_brings_one_instance_and_its_history_is_loaded_from_memory_once() {
        let store = plain();
        begin(&store, "a").await;
        begin(&store, "b").await;
        for instance in ["a", "b"] {
            store.store.enqueue_for_orchestrator(signal(instance), None).await.unwrap();
        }
        let [claim] = store.claim_instances(&ANY).await.unwrap().try_into().unwrap();
        assert_eq!((claim.instance.as_str(), claim.last_event_id, claim.incarnation), ("a", 1, 0));
        assert!(!claim.is_fresh());
        let part = store.load_history(&claim.lock_token, 0).await.unwrap();
        assert_eq!(part.events.len(), 1);
        assert!(part.kv_snapshot.is_some() && store.histories().is_empty());
        assert!(!store.load_history(&claim.lock_token, 0).await.unwrap_err().retryable);
    }

    #[tokio::test]
    async fn nobody_asks_the_store_any_more_when_the_runtime_stops() {
        let store = plain();
        store.enqueue_start_if_absent(start("i")).await.unwrap();
        store.polling.stop.cancel();
        assert!(store.claim_instances(&ANY).await.unwrap().is_empty());
        let request =
            WorkRequest { max: 1, lock_timeout: LEASE, session: None, tag_filter: &TagFilter::default() };
        assert!(store.claim_work(&request).await.unwrap().is_empty());
    }
}
