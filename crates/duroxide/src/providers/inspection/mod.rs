//! Looking into a store: listings that scale, descriptions, totals, and the workers that are alive.
//!
//! A store opts in by returning itself from [`ExtendedProvider::as_inspector`](super::ExtendedProvider::as_inspector).
//! Whatever a method answers costs a few index probes and a bounded number of rows, however large the store is: a page
//! whose filter no index serves is found by looking at a bounded number of instances in the order of the page, and may be
//! shorter than asked for.

pub mod listing;
mod query;
mod rows;

use async_trait::async_trait;

pub use query::{InstanceQuery, ListCursor, ListSort};
pub use rows::{
    Count, EventOrder, EventRequest, ExecutionSummary, InstanceDetail, InstancePage, InstanceRow, KvView,
    MinuteRates, QueueState, StateTotals, WorkerReport,
};

use super::{ProviderError, WorkQueue};
use crate::model::{EventView, InstanceState, Obstacle, QueuedActivity, QueuedMessage, WorkerInfo};

/// What a store tells people who operate it.
#[async_trait]
pub trait Inspector: Send + Sync {
    /// Lists instances, a page at a time.
    ///
    /// A page has no more rows than asked for, and never more than [`MOST_ROWS`](InstanceQuery::MOST_ROWS). It may have
    /// fewer and still have a cursor: then the store looked at as many instances as it may for one page, and the caller
    /// goes on from there. Only a page without a cursor is the last. An instance that changes while a caller pages may
    /// appear twice or not at all if the change moves it in the order; the others appear once.
    async fn list_page(&self, query: &InstanceQuery) -> Result<InstancePage, ProviderError>;

    /// Counts instances, exactly up to `bound`. Ignores order, cursor and limit.
    async fn count(&self, query: &InstanceQuery, bound: u64) -> Result<Count, ProviderError>;

    /// Reads everything about one instance that tells how it stands, in one step; `None` if the store knows nothing of it.
    /// Reads up to `events` of the newest events of its current execution, and cuts texts to `cut` bytes.
    async fn read_detail(
        &self,
        instance: &str,
        events: usize,
        cut: usize,
    ) -> Result<Option<InstanceDetail>, ProviderError>;

    /// Returns the states of these instances, in the same order; `None` for those that the store does not know.
    async fn read_states(&self, instances: &[&str]) -> Result<Vec<Option<InstanceState>>, ProviderError>;

    /// Reads a part of the history of an execution, with payloads cut.
    async fn read_events(&self, request: &EventRequest) -> Result<Vec<EventView>, ProviderError>;

    /// Lists executions of an instance with their sizes, the newest first: those before `before`, if given.
    async fn list_execution_page(
        &self,
        instance: &str,
        before: Option<u64>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<ExecutionSummary>, ProviderError>;

    /// Lists values of an instance's key-value store, ordered by key: those after `after`, if given.
    async fn list_values(
        &self,
        instance: &str,
        after: Option<&str>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<KvView>, ProviderError>;

    /// Lists the messages that are queued for an instance, oldest first, parked ones included.
    async fn list_messages(
        &self,
        instance: &str,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<QueuedMessage>, ProviderError>;

    /// Lists the activities of an instance that are queued or leased, oldest first.
    async fn list_activities(
        &self,
        instance: &str,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError>;

    /// Lists the oldest activities of the whole queue that are ready, with or without this tag.
    async fn list_ready(
        &self,
        queue: WorkQueue,
        limit: usize,
    ) -> Result<(Vec<QueuedMessage>, Vec<QueuedActivity>), ProviderError>;

    /// Lists the oldest ready activities with this tag, or without one. A store that says nothing else looks for them among the
    /// oldest of the whole queue.
    async fn list_ready_activities(
        &self,
        tag: Option<&str>,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        let (_, mut ready) = self.list_ready(WorkQueue::Worker, InstanceQuery::MOST_ROWS).await?;
        ready.retain(|activity| activity.tag.as_deref() == tag);
        ready.truncate(limit);
        Ok(ready)
    }

    /// Counts instances by state.
    async fn state_totals(&self) -> Result<StateTotals, ProviderError>;

    /// Describes the queues: the messages for instances, and the activities of each tag.
    async fn queue_states(&self) -> Result<Vec<QueueState>, ProviderError>;

    /// Tells how many instances began and ended in each of the last `minutes` minutes, oldest first, up to a day.
    async fn minute_rates(&self, minutes: u32) -> Result<Vec<MinuteRates>, ProviderError>;

    /// Takes the heartbeat of a runtime, with the obstacles that it has met. The store sets
    /// [`last_seen_ms`](WorkerInfo::last_seen_ms) by its own clock.
    ///
    /// Costs no commit of its own if others commit at the same time, and no sync.
    async fn report(&self, report: &WorkerReport) -> Result<(), ProviderError>;

    /// Removes a runtime that ends.
    async fn retire(&self, worker_id: &str) -> Result<(), ProviderError>;

    /// Lists the runtimes that have reported recently, by name.
    async fn list_workers(&self) -> Result<Vec<WorkerInfo>, ProviderError>;

    /// Lists the obstacles that runtimes have met and that still count, the oldest first. `instance` asks for those of one
    /// instance only.
    async fn list_obstacles(
        &self,
        instance: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Obstacle>, ProviderError>;
}
