//! The store as operators see it.

use async_trait::async_trait;

use super::inbox::JobClass;
use super::{SqliteProvider, history, reads, removal};
use crate::model::Event;
use crate::providers::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, ProviderAdmin, ProviderError,
    PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};

#[async_trait]
impl ProviderAdmin for SqliteProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        self.read("list_instances", |connection| Ok(reads::list_instances(connection)?)).await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        let status = status.to_string();
        self.read("list_instances_by_status", move |connection| {
            Ok(reads::list_instances_by_status(connection, &status)?)
        })
        .await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        let instance = instance.to_string();
        self.read("list_executions", move |connection| Ok(reads::list_executions(connection, &instance)?))
            .await
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read_history_with_execution_id", instance, Some(execution_id)).await
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read_history", instance, None).await
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        let instance = instance.to_string();
        self.read("latest_execution_id", move |connection| {
            Ok(u64::try_from(history::latest_execution(connection, &instance)?).unwrap_or(1))
        })
        .await
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        let instance = instance.to_string();
        self.read("get_instance_info", move |connection| reads::instance_info(connection, &instance)).await
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        let instance = instance.to_string();
        self.read("get_execution_info", move |connection| {
            reads::execution_info(connection, &instance, execution_id)
        })
        .await
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.read("get_system_metrics", |connection| Ok(reads::system_metrics(connection)?)).await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        let now = self.shared.now_ms();
        self.read("get_queue_depths", move |connection| Ok(reads::queue_depths(connection, now)?)).await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        let instance = instance_id.to_string();
        self.read("list_children", move |connection| Ok(reads::list_children(connection, &instance)?)).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        let instance = instance_id.to_string();
        self.read("get_parent_id", move |connection| reads::parent(connection, &instance)).await
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let ids = ids.to_vec();
        self.writer
            .submit("delete_instances_atomic", JobClass::Data, move |tx| removal::delete(tx, &ids, force))
            .await
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        const OPERATION: &str = "delete_instance_bulk";
        let roots =
            self.read(OPERATION, move |connection| Ok(removal::finished_roots(connection, &filter)?)).await?;
        let mut total = DeleteInstanceResult::default();
        // One transaction for each tree, so that other callers can write in between.
        for root in roots {
            let deleted = self
                .writer
                .submit(OPERATION, JobClass::Data, move |tx| removal::delete_tree(tx, &root))
                .await?;
            total.instances_deleted += deleted.instances_deleted;
            total.executions_deleted += deleted.executions_deleted;
            total.events_deleted += deleted.events_deleted;
            total.queue_messages_deleted += deleted.queue_messages_deleted;
        }
        Ok(total)
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        let instance = instance_id.to_string();
        self.writer
            .submit("prune_executions", JobClass::Data, move |tx| removal::prune(tx, &instance, &options))
            .await
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        const OPERATION: &str = "prune_executions_bulk";
        let instances =
            self.read(OPERATION, move |connection| Ok(removal::prunable(connection, &filter)?)).await?;
        let mut total = PruneResult::default();
        for instance in instances {
            let options = options.clone();
            let pruned = self
                .writer
                .submit(OPERATION, JobClass::Data, move |tx| removal::prune_if_there(tx, &instance, &options))
                .await?;
            total.instances_processed += pruned.instances_processed;
            total.executions_deleted += pruned.executions_deleted;
            total.events_deleted += pruned.events_deleted;
        }
        Ok(total)
    }
}
