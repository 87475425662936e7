//! The contract between the runtime and a store.

use std::any::Any;
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    DispatcherCapabilityFilter, ExecutionMetadata, ExtendedProvider, OrchestrationItem, ProviderAdmin,
    ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter,
};
use crate::model::{Event, SystemStats, WorkItem};

/// A store: histories, an orchestrator queue, a worker queue, and leases on the work in progress.
///
/// Rules that hold for every method:
///
/// - `Ok` of a write means that the write survives a crash of the process.
/// - `Err` means that the store changed nothing and leased nothing.
/// - Callers may drop a future at any point. Its write then happens wholly or not at all.
/// - Event ids and execution ids come from the caller, never from the store.
/// - The store returns payloads unchanged, to the byte.
///
/// A program picks a store once and hands it to the runtime and to its clients; all of them see the same instances:
///
/// ```
/// use std::sync::Arc;
/// use duroxide::providers::Provider;
/// use duroxide::providers::memory::MemoryProvider;
/// use duroxide::{ActivityRegistry, Client, OrchestrationRegistry, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let store: Arc<dyn Provider> = Arc::new(MemoryProvider::new());
/// # let (activities, orchestrations) = (ActivityRegistry::default(), OrchestrationRegistry::default());
/// let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
/// let client = Client::new(store);
/// # drop(client); runtime.shutdown(None).await;
/// # }
/// ```
///
/// To write your own store, implement this trait and run the validation kit on it (feature `provider-test`).
#[async_trait]
pub trait Provider: Any + Send + Sync {
    /// Returns the store's name, for logs.
    fn name(&self) -> &str {
        "unknown"
    }

    /// Returns the store's version, for logs.
    fn version(&self) -> &str {
        "0.0.0"
    }

    /// Leases an instance that has visible messages and no live lease, and returns it with all of these messages.
    ///
    /// The instance whose oldest visible message was enqueued first comes first. Each message's attempt count goes up
    /// by one; the highest comes back with the item and the token. `filter` leaves out executions that the caller
    /// cannot replay: the store neither leases nor counts nor decodes them. `poll_timeout` is how long the call may
    /// wait for work; returning at once is allowed.
    ///
    /// A history that does not decode is not an error: the item carries `history_error`, an empty history and a live
    /// lease. The store never returns messages for an instance that does not exist, and they never hold up others.
    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError>;

    /// Commits a turn, wholly or not at all.
    ///
    /// In one step: checks the lease; creates the instance if `metadata` has name and version; creates the execution
    /// if it is new; appends `history_delta` (a duplicate id is a permanent error); applies status, output, pinned
    /// version, custom status and key-value changes; enqueues `worker_items`, then removes `cancelled_activities`;
    /// enqueues `orchestrator_items` (timers become visible when due); deletes the leased messages; ends the lease.
    #[allow(clippy::too_many_arguments, reason = "the published signature")]
    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError>;

    /// Gives a turn back: ends the lease, and hides the leased messages for `delay`.
    ///
    /// With `ignore_attempt` the attempt does not count. Messages that this lease does not cover are not touched.
    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError>;

    /// Extends a live lease on an instance to `extend_for` from now; never shortens it.
    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError>;

    /// Reads the history of the latest execution; empty for an unknown instance.
    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError>;

    /// Reads the history of one execution; empty if there is none.
    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError>;

    /// Appends events without a turn. Tests prepare histories with this; the runtime never calls it.
    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError>;

    /// Enqueues an activity, visible at once.
    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError>;

    /// Leases the oldest activity that the caller may take.
    ///
    /// `session` of `None` leaves out activities that are bound to a session. With an owner, the fetch includes
    /// activities of its own and of free sessions, and taking one makes the session the owner's.
    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError>;

    /// Removes an activity and enqueues its completion, in one step.
    ///
    /// A permanent error means that the activity was cancelled or its lease was lost; the store then enqueues nothing.
    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError>;

    /// Extends a live lease on an activity to `extend_for` from now. A permanent error tells the worker that its
    /// activity was cancelled.
    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError>;

    /// Gives an activity back, visible after `delay`. With `ignore_attempt` the attempt does not count.
    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError>;

    /// Extends the live sessions of these owners that were active within `idle_timeout`; returns how many.
    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError>;

    /// Removes sessions that have expired and have no activity queued; returns how many.
    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError>;

    /// Enqueues a message for an instance, visible after `delay`; a timer becomes visible no earlier than it is due.
    ///
    /// Never creates the instance.
    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError>;

    /// Returns the management interface of this store, if it has one.
    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        None
    }

    /// Returns the abilities that make this store fast, if it has them.
    fn as_extended(&self) -> Option<&dyn ExtendedProvider> {
        None
    }

    /// Returns the custom status and its version if the version is above `last_seen_version`.
    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError>;

    /// Reads one value of an instance's key-value store, the running execution's changes included.
    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError>;

    /// Reads all values of an instance's key-value store, the running execution's changes included.
    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError>;

    /// Returns figures about an instance; `None` if it is unknown.
    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError>;
}
