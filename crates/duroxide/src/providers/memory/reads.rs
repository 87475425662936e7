//! Reads about instances, which change nothing.

use std::collections::BTreeMap;

use super::state::{InstanceRow, State};
use crate::model::{ExecutionStatus, INITIAL_EVENT_ID, SystemStats};
use crate::providers::inspect::MessageClass;
use crate::providers::{
    ExecutionInfo, InstanceInfo, InstanceMetadata, ProviderError, QueueDepths, RunningInstances,
    SystemMetrics, inspect, refusal,
};

/// The status of an instance whose current execution has no record.
const UNKNOWN_STATUS: &str = "Unknown";

impl State {
    /// Finds the row of an instance.
    pub fn instance_row(&self, operation: &str, instance: &str) -> Result<&InstanceRow, ProviderError> {
        self.instances.get(instance).ok_or_else(|| refusal::instance_not_found(operation, instance))
    }

    /// Returns the status of the current execution of an instance that has a row.
    pub fn status(&self, instance: &str, row: &InstanceRow) -> &str {
        let execution = self.executions.get(&(instance.to_string(), row.current_execution_id));
        execution.map_or(UNKNOWN_STATUS, |execution| &execution.status)
    }

    fn output(&self, instance: &str, row: &InstanceRow) -> Option<String> {
        self.executions.get(&(instance.to_string(), row.current_execution_id))?.output.clone()
    }

    /// Counts running instances by orchestration and version, those of each up to a bound.
    pub fn count_running(&self, up_to: usize) -> Vec<RunningInstances> {
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let is_running =
            |id: &str, row: &InstanceRow| self.status(id, row) == ExecutionStatus::Running.as_str();
        for (_, row) in self.instances.iter().filter(|(id, row)| is_running(id, row)) {
            let count = counts.entry((&row.orchestration_name, &row.orchestration_version)).or_default();
            *count = up_to.try_into().unwrap_or(u64::MAX).min(*count + 1);
        }
        let counted = counts.into_iter().map(|((name, version), instances)| RunningInstances {
            orchestration_name: name.to_string(),
            orchestration_version: version.to_string(),
            instances,
        });
        counted.collect()
    }

    /// Lists the instances that `is_listed`, newest first.
    pub fn list_instances(&self, is_listed: impl Fn(&str, &InstanceRow) -> bool) -> Vec<String> {
        let mut listed: Vec<_> = self.instances.iter().filter(|(id, row)| is_listed(id, row)).collect();
        listed.sort_by_key(|(_, row)| std::cmp::Reverse(row.incarnation));
        listed.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// Lists the direct children of an instance, oldest first.
    pub fn list_children(&self, instance: &str) -> Vec<String> {
        let mut children = self.list_instances(|_, row| row.parent_instance_id.as_deref() == Some(instance));
        children.reverse();
        children
    }

    /// Lists the executions of an instance that have a record, ascending.
    pub fn list_executions(&self, instance: &str) -> Vec<u64> {
        self.executions.keys().filter(|(owner, _)| owner == instance).map(|(_, id)| *id).collect()
    }

    /// Describes an instance.
    pub fn instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        let row = self.instance_row("get_instance_info", instance)?;
        Ok(InstanceInfo {
            instance_id: instance.to_string(),
            orchestration_name: row.orchestration_name.clone(),
            orchestration_version: row.orchestration_version.clone(),
            current_execution_id: row.current_execution_id,
            status: self.status(instance, row).to_string(),
            output: self.output(instance, row),
            created_at: row.created_at,
            updated_at: row.updated_at,
            parent_instance_id: row.parent_instance_id.clone(),
        })
    }

    /// Describes an instance with its incarnation and custom status, or by its queued start.
    pub fn instance_metadata(&self, instance: &str) -> Option<InstanceMetadata> {
        let Some(row) = self.instances.get(instance) else { return self.pending(instance) };
        Some(InstanceMetadata {
            instance_id: instance.to_string(),
            orchestration_name: row.orchestration_name.clone(),
            orchestration_version: row.orchestration_version.clone(),
            parent_instance_id: row.parent_instance_id.clone(),
            current_execution_id: row.current_execution_id,
            incarnation: row.incarnation,
            status: self.status(instance, row).to_string(),
            output: self.output(instance, row),
            custom_status: row.custom_status.clone(),
            custom_status_version: row.custom_status_version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }

    /// Describes an instance that has nothing in the store but a queued start.
    fn pending(&self, instance: &str) -> Option<InstanceMetadata> {
        if self.has_history(instance) {
            return None;
        }
        let start = self.messages_of(instance).find(|message| message.class == MessageClass::Start)?;
        let item = serde_json::from_str(&start.payload).ok()?;
        InstanceMetadata::pending(&item, start.enqueued_at)
    }

    /// Returns the custom status if it changed since a version.
    pub fn custom_status(&self, instance: &str, last_seen_version: u64) -> Option<(Option<String>, u64)> {
        let row = self.instances.get(instance)?;
        let is_newer = row.custom_status_version > last_seen_version;
        is_newer.then(|| (row.custom_status.clone(), row.custom_status_version))
    }

    /// Describes an execution; it needs no instance row.
    pub fn execution_info(&self, instance: &str, execution_id: u64) -> Result<ExecutionInfo, ProviderError> {
        let execution = self.executions.get(&(instance.to_string(), execution_id));
        let execution = execution.ok_or_else(|| refusal::execution_not_found(instance, execution_id))?;
        Ok(ExecutionInfo {
            execution_id,
            status: execution.status.clone(),
            output: execution.output.clone(),
            started_at: execution.started_at,
            completed_at: execution.completed_at,
            event_count: self.events(instance, execution_id).count(),
        })
    }

    /// Returns figures about an instance that has a row.
    pub fn instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        let Some(row) = self.instances.get(instance) else {
            return Ok(None);
        };
        let events = || self.events(instance, row.current_execution_id);
        let first_event = events().find(|(event_id, _)| *event_id == INITIAL_EVENT_ID);
        let queue_pending_count = match first_event.map(|(_, event)| serde_json::from_str(event)) {
            Some(Ok(event)) => inspect::carried_messages(&event),
            Some(Err(error)) => {
                return Err(refusal::undecodable_history("get_instance_stats", &format!("event 1: {error}")));
            }
            None => 0,
        };
        let values = self.key_values.get(instance).map(|values| values.values()).unwrap_or_default();
        Ok(Some(SystemStats {
            history_event_count: events().count() as u64,
            history_size_bytes: events().map(|(_, event)| event.len() as u64).sum(),
            queue_pending_count,
            kv_user_key_count: values.len() as u64,
            kv_total_value_bytes: values.values().map(|value| value.len() as u64).sum(),
        }))
    }

    /// Returns totals over the whole store.
    pub fn system_metrics(&self) -> SystemMetrics {
        let with_status = |status: ExecutionStatus| {
            self.instances.iter().filter(|(id, row)| self.status(id, row) == status.as_str()).count() as u64
        };
        SystemMetrics {
            total_instances: self.instances.len() as u64,
            total_executions: self.executions.len() as u64,
            running_instances: with_status(ExecutionStatus::Running),
            completed_instances: with_status(ExecutionStatus::Completed),
            failed_instances: with_status(ExecutionStatus::Failed),
            total_events: self.histories.values().map(|events| events.len() as u64).sum(),
        }
    }

    /// Counts the messages and activities that no worker holds, including delayed and parked ones.
    pub fn queue_depths(&self, now: u64) -> QueueDepths {
        let waiting_messages = self.messages.iter().filter(|message| {
            let is_held = message.taken_by.is_some() && self.is_in_turn(&message.instance, now);
            !is_held
        });
        QueueDepths {
            orchestrator_queue: waiting_messages.count(),
            worker_queue: self.activities.iter().filter(|activity| !activity.is_leased(now)).count(),
            timer_queue: 0,
        }
    }
}
