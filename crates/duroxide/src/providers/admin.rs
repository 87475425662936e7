//! The operators' part of a store.

use std::any::Any;
use std::collections::{HashSet, VecDeque};

use async_trait::async_trait;

use super::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, ProviderError,
    PruneOptions, PruneResult, QueueDepths, SystemMetrics, refusal,
};
use crate::model::Event;

/// Listing, inspecting, deleting and pruning.
///
/// A store that offers this returns itself from
/// [`Provider::as_management_capability`](super::Provider::as_management_capability).
#[async_trait]
pub trait ProviderAdmin: Any + Send + Sync {
    /// Lists all instances, newest first.
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError>;

    /// Lists the instances whose current execution has exactly this status, newest first.
    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError>;

    /// Lists the executions of an instance, ascending; empty if the instance is unknown.
    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError>;

    /// Reads the history of one execution.
    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError>;

    /// Reads the history of the latest execution.
    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError>;

    /// Returns the highest execution id; 1 if the instance is unknown.
    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError>;

    /// Describes an instance.
    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError>;

    /// Describes one execution.
    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError>;

    /// Returns totals over the whole store.
    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError>;

    /// Returns how many messages wait.
    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError>;

    /// Lists the direct children of an instance; empty if the instance is unknown.
    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError>;

    /// Returns the parent of an instance, or `None` for a root.
    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError>;

    /// Deletes all of these instances or none.
    ///
    /// A running instance is an error without `force`. A child that would be left behind is always an error.
    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError>;

    /// Returns an instance and all its descendants, the instance first.
    async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ProviderError> {
        let mut all_ids = Vec::new();
        let mut seen = HashSet::from([instance_id.to_string()]);
        let mut to_visit = VecDeque::from([instance_id.to_string()]);
        while let Some(id) = to_visit.pop_front() {
            // An instance may name a descendant as its parent, so this must not follow a circle for ever.
            let children = self.list_children(&id).await?;
            to_visit.extend(children.into_iter().filter(|child| seen.insert(child.clone())));
            all_ids.push(id);
        }
        Ok(InstanceTree { root_id: instance_id.to_string(), all_ids })
    }

    /// Deletes a root instance with all its descendants.
    async fn delete_instance(
        &self,
        instance_id: &str,
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        if self.get_parent_id(instance_id).await?.is_some() {
            return Err(refusal::child_deletion(instance_id));
        }
        let tree = self.get_instance_tree(instance_id).await?;
        self.delete_instances_atomic(&tree.all_ids, force).await
    }

    /// Deletes finished root instances with their descendants; skips running ones.
    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError>;

    /// Removes old executions of one instance, but never the current one or a running one.
    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError>;

    /// Removes old executions of many instances, running ones and children included.
    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError>;
}
