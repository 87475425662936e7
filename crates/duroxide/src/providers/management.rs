//! The values that operators see and pass in, and the older management trait.

use async_trait::async_trait;

use super::ProviderError;
use crate::model::Event;

/// An instance as listings show it.
#[derive(Debug, Clone)]
pub struct InstanceInfo {
    /// The instance.
    pub instance_id: String,
    /// The orchestration that it runs.
    pub orchestration_name: String,
    /// The version of that orchestration.
    pub orchestration_version: String,
    /// Its current execution.
    pub current_execution_id: u64,
    /// The status of that execution.
    pub status: String,
    /// Its result or error, once it has one.
    pub output: Option<String>,
    /// When the instance was created, in milliseconds since the epoch.
    pub created_at: u64,
    /// When it last took a turn, in milliseconds since the epoch.
    pub updated_at: u64,
    /// The instance that started it as a child.
    pub parent_instance_id: Option<String>,
}

/// One execution of an instance.
#[derive(Debug, Clone)]
pub struct ExecutionInfo {
    /// The execution.
    pub execution_id: u64,
    /// `Running`, `Completed`, `Failed` or `ContinuedAsNew`.
    pub status: String,
    /// Its result, error or the next execution's input.
    pub output: Option<String>,
    /// When it began, in milliseconds since the epoch.
    pub started_at: u64,
    /// When it ended; `None` while it runs.
    pub completed_at: Option<u64>,
    /// How many events its history has.
    pub event_count: usize,
}

/// Totals over the whole store.
#[derive(Debug, Clone, Default)]
pub struct SystemMetrics {
    /// All instances.
    pub total_instances: u64,
    /// All executions.
    pub total_executions: u64,
    /// Instances whose current execution runs.
    pub running_instances: u64,
    /// Instances whose current execution completed.
    pub completed_instances: u64,
    /// Instances whose current execution failed.
    pub failed_instances: u64,
    /// All events.
    pub total_events: u64,
}

/// Messages that no worker holds, including those that are not visible yet.
#[derive(Debug, Clone, Default)]
pub struct QueueDepths {
    /// Messages for instances, timers included.
    pub orchestrator_queue: usize,
    /// Activities to run.
    pub worker_queue: usize,
    /// Always 0: a timer is a delayed message in the orchestrator queue.
    pub timer_queue: usize,
}

/// Selects instances for a bulk operation; all conditions must hold.
///
/// ```
/// # use duroxide::InstanceFilter;
/// # async fn run(client: duroxide::Client, a_month_ago_ms: u64) -> Result<(), duroxide::ClientError> {
/// let completed_before = Some(a_month_ago_ms);
/// loop {
///     let filter = InstanceFilter { completed_before, limit: Some(500), ..Default::default() };
///     let deleted = client.delete_instance_bulk(filter).await?;
///     if deleted.instances_deleted == 0 {
///         return Ok(());
///     }
/// }
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct InstanceFilter {
    /// Only these; an empty list selects nothing.
    pub instance_ids: Option<Vec<String>>,
    /// Only those whose current execution ended before this time, in milliseconds since the epoch.
    pub completed_before: Option<u64>,
    /// The most instances to select (1,000 if not given).
    pub limit: Option<u32>,
}

/// Which old executions to remove; all conditions must hold.
///
/// ```
/// # use duroxide::PruneOptions;
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// let options = PruneOptions { keep_last: Some(10), ..Default::default() };
/// let pruned = client.prune_executions("monitor-3", options).await?;
/// println!("{} executions removed", pruned.executions_deleted);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct PruneOptions {
    /// Keep this many of the newest, the current one included.
    pub keep_last: Option<u32>,
    /// Only those that ended before this time, in milliseconds since the epoch.
    pub completed_before: Option<u64>,
}

/// The rows that a deletion removed.
#[derive(Debug, Clone, Default)]
pub struct DeleteInstanceResult {
    /// Instances, children included.
    pub instances_deleted: u64,
    /// Executions of those instances.
    pub executions_deleted: u64,
    /// Events of those executions.
    pub events_deleted: u64,
    /// Messages in both queues.
    pub queue_messages_deleted: u64,
}

/// The rows that pruning removed.
#[derive(Debug, Clone, Default)]
pub struct PruneResult {
    /// Instances that pruning looked at.
    pub instances_processed: u64,
    /// Executions that pruning removed.
    pub executions_deleted: u64,
    /// Events of those executions.
    pub events_deleted: u64,
}

/// An instance and all its descendants.
///
/// ```
/// # async fn run(client: duroxide::Client) -> Result<(), duroxide::ClientError> {
/// let tree = client.get_instance_tree("order-7").await?;
/// if !tree.is_root_only() {
///     println!("with {} children and children of children", tree.size() - 1);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct InstanceTree {
    /// The requested instance.
    pub root_id: String,
    /// The instance and all its descendants.
    pub all_ids: Vec<String>,
}

impl InstanceTree {
    /// Tells whether the instance has no descendants.
    pub fn is_root_only(&self) -> bool {
        self.all_ids.len() == 1
    }

    /// Returns how many instances there are.
    pub fn size(&self) -> usize {
        self.all_ids.len()
    }
}

/// The older management interface, kept for programs that implement it. New code uses
/// [`ProviderAdmin`](super::ProviderAdmin).
#[async_trait]
pub trait ManagementProvider: Send + Sync {
    /// Lists all instances.
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        Ok(Vec::new())
    }

    /// Lists the instances with this status.
    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        let _ = status;
        Ok(Vec::new())
    }

    /// Lists the executions of an instance.
    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        let _ = instance;
        Ok(vec![1])
    }

    /// Reads the history of one execution.
    async fn read_execution(&self, instance: &str, execution_id: u64) -> Result<Vec<Event>, ProviderError> {
        let _ = execution_id;
        Err(not_supported("read_execution", instance))
    }

    /// Returns the highest execution id.
    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        let _ = instance;
        Ok(1)
    }

    /// Describes an instance.
    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        Err(not_supported("get_instance_info", instance))
    }

    /// Describes one execution.
    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        let _ = execution_id;
        Err(not_supported("get_execution_info", instance))
    }

    /// Returns totals over the whole store.
    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        Ok(SystemMetrics::default())
    }

    /// Returns how many messages wait.
    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        Ok(QueueDepths::default())
    }
}

fn not_supported(operation: &str, instance: &str) -> ProviderError {
    ProviderError::permanent(operation, format!("not supported for instance: {instance}"))
}
