//! The management interface of this store, method by method.

use async_trait::async_trait;

use super::MemoryProvider;
use crate::model::Event;
use crate::providers::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, ProviderAdmin,
    ProviderError, PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};

#[async_trait]
impl ProviderAdmin for MemoryProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        Ok(self.read_state(|state| state.list_instances(|_, _| true)))
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        Ok(self.read_state(|state| state.list_instances(|id, row| state.status(id, row) == status)))
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        Ok(self.read_state(|state| state.list_executions(instance)))
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.read_state(|state| state.read_history("read_history_with_execution_id", instance, execution_id))
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.read_state(|state| {
            state.read_history("read_history", instance, state.latest_execution(instance))
        })
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        Ok(self.read_state(|state| state.latest_execution(instance)))
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.read_state(|state| state.instance_info(instance))
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.read_state(|state| state.execution_info(instance, execution_id))
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        Ok(self.read_state(|state| state.system_metrics()))
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        Ok(self.read_state(|state| state.queue_depths(self.clock.now_ms())))
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        Ok(self.read_state(|state| state.list_children(instance_id)))
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        self.read_state(|state| {
            Ok(state.instance_row("get_parent_id", instance_id)?.parent_instance_id.clone())
        })
    }

    async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ProviderError> {
        let all_ids = self.read_state(|state| state.tree(instance_id));
        Ok(InstanceTree { root_id: instance_id.to_string(), all_ids })
    }

    async fn delete_instance(
        &self,
        instance_id: &str,
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let deleted = self.change(|state, _| state.delete_tree(instance_id, force))?;
        self.watchers.notify_all();
        Ok(deleted)
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let deleted = self.change(|state, _| state.delete_all(ids, force))?;
        self.watchers.notify_all();
        Ok(deleted)
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let deleted = self.change(|state, _| state.delete_bulk(&filter))?;
        self.watchers.notify_all();
        Ok(deleted)
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.change(|state, _| state.prune(instance_id, &options))
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.change(|state, _| state.prune_bulk(&filter, &options))
    }
}
