//! The store as operators look into it.

use async_trait::async_trait;

use super::inbox::JobClass;
use super::{SqliteProvider, details, list_pages, observed, overviews, queue_states};
use crate::model::{EventView, InstanceState, Obstacle, QueuedActivity, QueuedMessage, WorkerInfo};
use crate::providers::{
    Count, EventRequest, ExecutionSummary, Inspector, InstanceDetail, InstancePage, InstanceQuery, KvView,
    MinuteRates, ProviderError, QueueState, StateTotals, WorkQueue, WorkerReport,
};

#[async_trait]
impl Inspector for SqliteProvider {
    async fn list_page(&self, query: &InstanceQuery) -> Result<InstancePage, ProviderError> {
        let (query, now) = (query.clone(), self.shared.now_ms());
        self.read("list_page", move |connection| list_pages::page(connection, &query, now)).await
    }

    async fn count(&self, query: &InstanceQuery, bound: u64) -> Result<Count, ProviderError> {
        let (query, now) = (query.clone(), self.shared.now_ms());
        self.read("count", move |connection| list_pages::count(connection, &query, bound, now)).await
    }

    async fn read_detail(
        &self,
        instance: &str,
        events: usize,
        cut: usize,
    ) -> Result<Option<InstanceDetail>, ProviderError> {
        let (instance, now) = (instance.to_string(), self.shared.now_ms());
        self.read("read_detail", move |connection| details::detail(connection, &instance, events, cut, now))
            .await
    }

    async fn read_states(&self, instances: &[&str]) -> Result<Vec<Option<InstanceState>>, ProviderError> {
        let instances: Vec<String> = instances.iter().map(|instance| instance.to_string()).collect();
        let now = self.shared.now_ms();
        self.read("read_states", move |connection| {
            let state =
                |instance: &String| Ok(list_pages::row(connection, instance, 0, now)?.map(|row| row.state));
            instances.iter().map(state).collect()
        })
        .await
    }

    async fn read_events(&self, request: &EventRequest) -> Result<Vec<EventView>, ProviderError> {
        let request = request.clone();
        self.read("read_events", move |connection| Ok(details::events(connection, &request)?)).await
    }

    async fn list_execution_page(
        &self,
        instance: &str,
        before: Option<u64>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<ExecutionSummary>, ProviderError> {
        let instance = instance.to_string();
        self.read("list_execution_page", move |connection| {
            Ok(details::executions(connection, &instance, before, limit, cut)?)
        })
        .await
    }

    async fn list_values(
        &self,
        instance: &str,
        after: Option<&str>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<KvView>, ProviderError> {
        let (instance, after) = (instance.to_string(), after.map(str::to_string));
        self.read("list_values", move |connection| {
            Ok(details::values(connection, &instance, after.as_deref(), limit, cut)?)
        })
        .await
    }

    async fn list_messages(
        &self,
        instance: &str,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<QueuedMessage>, ProviderError> {
        let (instance, now) = (instance.to_string(), self.shared.now_ms());
        self.read("list_messages", move |connection| {
            Ok(details::messages(connection, &instance, limit, cut, now)?)
        })
        .await
    }

    async fn list_activities(
        &self,
        instance: &str,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        let (instance, now) = (instance.to_string(), self.shared.now_ms());
        self.read("list_activities", move |connection| {
            Ok(details::activities(connection, &instance, limit, now)?)
        })
        .await
    }

    async fn list_ready(
        &self,
        queue: WorkQueue,
        limit: usize,
    ) -> Result<(Vec<QueuedMessage>, Vec<QueuedActivity>), ProviderError> {
        let now = self.shared.now_ms();
        self.read("list_ready", move |connection| Ok(queue_states::ready(connection, queue, limit, now)?))
            .await
    }

    async fn list_ready_activities(
        &self,
        tag: Option<&str>,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        let (tag, now) = (tag.map(str::to_string), self.shared.now_ms());
        self.read("list_ready_activities", move |connection| {
            Ok(queue_states::ready_of_tag(connection, tag.as_deref(), limit, now)?)
        })
        .await
    }

    async fn state_totals(&self) -> Result<StateTotals, ProviderError> {
        let now = self.shared.now_ms();
        self.read("state_totals", move |connection| Ok(overviews::totals(connection, now)?)).await
    }

    async fn queue_states(&self) -> Result<Vec<QueueState>, ProviderError> {
        let now = self.shared.now_ms();
        self.read("queue_states", move |connection| Ok(queue_states::queues(connection, now)?)).await
    }

    async fn minute_rates(&self, minutes: u32) -> Result<Vec<MinuteRates>, ProviderError> {
        let now = self.shared.now_ms();
        self.read("minute_rates", move |connection| Ok(observed::rates(connection, minutes, now)?)).await
    }

    async fn report(&self, report: &WorkerReport) -> Result<(), ProviderError> {
        let report = report.clone();
        // A lost report is of no matter, so it needs no sync; and it is part of whatever commit comes next.
        self.writer.submit("report", JobClass::Lease, move |tx| Ok(observed::report(tx, &report)?)).await
    }

    async fn retire(&self, worker_id: &str) -> Result<(), ProviderError> {
        let worker_id = worker_id.to_string();
        self.writer.submit("retire", JobClass::Lease, move |tx| Ok(observed::retire(tx, &worker_id)?)).await
    }

    async fn list_workers(&self) -> Result<Vec<WorkerInfo>, ProviderError> {
        let now = self.shared.now_ms();
        self.read("list_workers", move |connection| Ok(observed::workers(connection, now)?)).await
    }

    async fn list_obstacles(
        &self,
        instance: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Obstacle>, ProviderError> {
        let (instance, now) = (instance.map(str::to_string), self.shared.now_ms());
        self.read("list_obstacles", move |connection| {
            Ok(observed::obstacles(connection, instance.as_deref(), limit, now)?)
        })
        .await
    }
}
