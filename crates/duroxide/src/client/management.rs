//! The calls of operators: list, inspect, delete, prune.

use super::{Client, ClientError, TARGET};
use crate::model::Event;
use crate::providers::{
    BlockedInstance, DeleteInstanceResult, DroppedMessages, ExecutionInfo, InstanceFilter, InstanceInfo,
    InstanceMetadata, InstanceTree, ParkedMessage, ProviderAdmin, PruneOptions, PruneResult, QuarantineEntry,
    QuarantinePurge, QuarantineRetry, QueueDepths, SystemMetrics,
};

/// All of these fail with [`ClientError::ManagementNotAvailable`] on a store without management, and with
/// [`ClientError::Provider`] if the store fails.
impl Client {
    /// Tells whether the store offers management.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// assert!(client.has_management_capability());
    /// # Ok(()) }
    /// ```
    pub fn has_management_capability(&self) -> bool {
        self.store.as_management_capability().is_some()
    }

    /// Lists the ids of all instances.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let ids = client.list_all_instances().await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_all_instances(&self) -> Result<Vec<String>, ClientError> {
        Ok(self.admin()?.list_instances().await?)
    }

    /// Lists the instances whose current execution is `Running`, `Completed`, `Failed` or `ContinuedAsNew`.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let failed = client.list_instances_by_status("Failed").await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ClientError> {
        Ok(self.admin()?.list_instances_by_status(status).await?)
    }

    /// Describes an instance.
    ///
    /// Between its start and its first turn, the instance has the status `Pending` and the version that the start asks
    /// for, or `unknown`. A store that implements only the published contract does not know the instance until its
    /// first turn.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{}", client.get_instance_info("order-7").await?.status);
    /// # Ok(()) }
    /// ```
    pub async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ClientError> {
        let error = match self.admin()?.get_instance_info(instance).await {
            Ok(info) => return Ok(info),
            Err(error) => error,
        };
        match self.extended() {
            // By now the instance may have taken its first turn, so any description will do.
            Some(store) if !error.retryable => {
                let described = store.read_metadata(instance).await?;
                described.map(info).ok_or(ClientError::Provider(error))
            }
            _ => Err(error.into()),
        }
    }

    /// Describes one execution of an instance.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{}", client.get_execution_info("order-7", 1).await?.status);
    /// # Ok(()) }
    /// ```
    pub async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ClientError> {
        Ok(self.admin()?.get_execution_info(instance, execution_id).await?)
    }

    /// Lists the executions of an instance, ascending; empty if the instance is unknown.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let executions = client.list_executions("monitor").await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ClientError> {
        Ok(self.admin()?.list_executions(instance).await?)
    }

    /// Reads the history of one execution; empty if the execution is unknown.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// for event in client.read_execution_history("order-7", 1).await? {
    ///     println!("{:?}", event.kind);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn read_execution_history(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ClientError> {
        Ok(self.admin()?.read_history_with_execution_id(instance, execution_id).await?)
    }

    /// Counts instances, executions and events in the whole store.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{:?}", client.get_system_metrics().await?);
    /// # Ok(()) }
    /// ```
    pub async fn get_system_metrics(&self) -> Result<SystemMetrics, ClientError> {
        Ok(self.admin()?.get_system_metrics().await?)
    }

    /// Counts the messages that wait in the queues.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{:?}", client.get_queue_depths().await?);
    /// # Ok(()) }
    /// ```
    pub async fn get_queue_depths(&self) -> Result<QueueDepths, ClientError> {
        Ok(self.admin()?.get_queue_depths().await?)
    }

    /// Lists messages that wait for an instance that no client has started yet, oldest first, up to `limit`.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let parked = client.list_parked_messages(100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_parked_messages(&self, limit: usize) -> Result<Vec<ParkedMessage>, ClientError> {
        let store = self.extended().ok_or(ClientError::ManagementNotAvailable)?;
        Ok(store.list_parked(limit).await?)
    }

    /// Counts the messages that the store dropped because their instance did not exist, and lists the newest, up to
    /// `limit`.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{} messages were dropped", client.list_dropped_messages(10).await?.total);
    /// # Ok(()) }
    /// ```
    pub async fn list_dropped_messages(&self, limit: usize) -> Result<DroppedMessages, ClientError> {
        let store = self.extended().ok_or(ClientError::ManagementNotAvailable)?;
        Ok(store.list_dropped(limit).await?)
    }

    /// Returns an instance with all its descendants.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// println!("{} instances", client.get_instance_tree("order-7").await?.size());
    /// # Ok(()) }
    /// ```
    pub async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ClientError> {
        Ok(self.admin()?.get_instance_tree(instance_id).await?)
    }

    /// Deletes an instance and its descendants, with everything that belongs to them; a running one only with `force`.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.delete_instance("order-7", false).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::InstanceNotFound`], [`ClientError::InstanceStillRunning`], or
    /// [`ClientError::CannotDeleteSubOrchestration`].
    pub async fn delete_instance(
        &self,
        instance_id: &str,
        force: bool,
    ) -> Result<DeleteInstanceResult, ClientError> {
        let result = self
            .admin()?
            .delete_instance(instance_id, force)
            .await
            .map_err(|error| ClientError::of_deletion(error, instance_id))?;
        tracing::info!(target: TARGET, instance_id, force, instances_deleted = result.instances_deleted,
            executions_deleted = result.executions_deleted, events_deleted = result.events_deleted,
            queue_messages_deleted = result.queue_messages_deleted, "deleted instance");
        Ok(result)
    }

    /// Deletes finished root instances that the filter selects; skips running ones.
    ///
    /// ```no_run
    /// # use duroxide::InstanceFilter;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let filter = InstanceFilter { limit: Some(1_000), ..InstanceFilter::default() };
    /// client.delete_instance_bulk(filter).await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ClientError> {
        let result = self.admin()?.delete_instance_bulk(filter.clone()).await?;
        tracing::info!(target: TARGET, ?filter, instances_deleted = result.instances_deleted,
            executions_deleted = result.executions_deleted, events_deleted = result.events_deleted,
            queue_messages_deleted = result.queue_messages_deleted, "deleted instances");
        Ok(result)
    }

    /// Removes old executions of an instance, but never the current one or a running one.
    ///
    /// ```no_run
    /// # use duroxide::PruneOptions;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.prune_executions("monitor", PruneOptions { keep_last: Some(10), ..Default::default() }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ClientError> {
        let result = self.admin()?.prune_executions(instance_id, options.clone()).await?;
        tracing::info!(target: TARGET, instance_id, ?options, executions_deleted = result.executions_deleted,
            events_deleted = result.events_deleted, "pruned executions");
        Ok(result)
    }

    /// Removes old executions of the instances that the filter selects.
    ///
    /// ```no_run
    /// # use duroxide::{InstanceFilter, PruneOptions};
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let options = PruneOptions { keep_last: Some(10), ..Default::default() };
    /// client.prune_executions_bulk(InstanceFilter::default(), options).await?;
    /// # Ok(()) }
    /// ```
    pub async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ClientError> {
        let result = self.admin()?.prune_executions_bulk(filter.clone(), options.clone()).await?;
        tracing::info!(target: TARGET, ?filter, ?options,
            instances_processed = result.instances_processed,
            executions_deleted = result.executions_deleted, events_deleted = result.events_deleted,
            "pruned executions of instances");
        Ok(result)
    }

    /// Lists instances that cannot go on because the store could take neither their turn nor their failure. Gives the
    /// reason for each; the instance that has been blocked longest comes first. A blocked instance counts as `Running`.
    /// Empty on a store that cannot block instances.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// for blocked in client.list_blocked_instances(100).await? {
    ///     println!("{}: {}", blocked.instance, blocked.reason);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn list_blocked_instances(&self, limit: usize) -> Result<Vec<BlockedInstance>, ClientError> {
        match self.extended() {
            Some(store) => Ok(store.list_blocked(limit).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Lets a blocked instance go on, once the reason is gone: the store delivers its messages again, as if for the
    /// first time. Returns whether the instance was blocked.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let was_blocked = client.unblock_instance("order-7").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store fails.
    pub async fn unblock_instance(&self, instance: &str) -> Result<bool, ClientError> {
        let Some(store) = self.extended() else { return Ok(false) };
        let was_blocked = store.unblock_instance(instance).await?;
        tracing::info!(target: TARGET, instance_id = instance, was_blocked, "unblocked instance");
        Ok(was_blocked)
    }

    /// Lists rows of the queues that could not be decoded and were set aside, oldest first: up to `limit` of those with
    /// an id above `after_id`. They hold up no other row, and the store keeps their texts as they were.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// let rows = client.list_quarantined(0, 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list_quarantined(
        &self,
        after_id: u64,
        limit: usize,
    ) -> Result<Vec<QuarantineEntry>, ClientError> {
        let store = self.extended().ok_or(ClientError::ManagementNotAvailable)?;
        Ok(store.list_quarantine(after_id, limit).await?)
    }

    /// Puts rows that were set aside back into their queues, in the order of `ids`, and says what became of each: for
    /// when a build runs that can decode them, or their texts were repaired. Each goes to the end of its queue, and counts
    /// as never delivered. One that still does not decode stays in quarantine.
    ///
    /// ```no_run
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.retry_quarantined(&[1, 2]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn retry_quarantined(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ClientError> {
        let store = self.extended().ok_or(ClientError::ManagementNotAvailable)?;
        let retried = store.retry_quarantined(ids).await?;
        let enqueued = retried.iter().filter(|retry| **retry == QuarantineRetry::Enqueued).count();
        tracing::info!(target: TARGET, rows = ids.len(), enqueued, "retried quarantined rows");
        Ok(retried)
    }

    /// Removes rows that were set aside, for good. Returns how many.
    ///
    /// ```no_run
    /// # use duroxide::providers::QuarantinePurge;
    /// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
    /// client.purge_quarantined(QuarantinePurge::Ids(&[1, 2])).await?;
    /// # Ok(()) }
    /// ```
    pub async fn purge_quarantined(&self, purge: QuarantinePurge<'_>) -> Result<u64, ClientError> {
        let store = self.extended().ok_or(ClientError::ManagementNotAvailable)?;
        let purged = store.purge_quarantined(purge).await?;
        tracing::info!(target: TARGET, purged, "purged quarantined rows");
        Ok(purged)
    }

    fn admin(&self) -> Result<&dyn ProviderAdmin, ClientError> {
        self.store.as_management_capability().ok_or(ClientError::ManagementNotAvailable)
    }
}

fn info(metadata: InstanceMetadata) -> InstanceInfo {
    InstanceInfo {
        instance_id: metadata.instance_id,
        orchestration_name: metadata.orchestration_name,
        orchestration_version: metadata.orchestration_version,
        current_execution_id: metadata.current_execution_id,
        status: metadata.status,
        output: metadata.output,
        created_at: metadata.created_at,
        updated_at: metadata.updated_at,
        parent_instance_id: metadata.parent_instance_id,
    }
}
