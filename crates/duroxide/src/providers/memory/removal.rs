//! Removes rows: instances with everything they have, and old executions.

use std::collections::BTreeSet;

use super::state::{ExecutionRow, InstanceRow, Message, State};
use crate::model::ExecutionStatus;
use crate::providers::inspect::{self, MessageClass};
use crate::providers::{
    DeleteInstanceResult, InstanceFilter, ProviderError, PruneOptions, PruneResult, refusal,
};

/// The most instances of a bulk operation, unless its filter says otherwise.
const DEFAULT_BULK_LIMIT: u32 = 1_000;

impl State {
    /// Returns an instance and all its descendants, the instance first.
    pub fn tree(&self, instance: &str) -> Vec<String> {
        let mut tree = vec![instance.to_string()];
        let mut visited = 0;
        while let Some(id) = tree.get(visited) {
            let children = self.list_children(id);
            // Callers choose the parents, so they may form a circle.
            let new_ids: Vec<String> = children.into_iter().filter(|child| !tree.contains(child)).collect();
            tree.extend(new_ids);
            visited += 1;
        }
        tree
    }

    /// Deletes a root with its descendants.
    pub fn delete_tree(
        &mut self,
        instance: &str,
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let row = self.instance_row("delete_instance", instance)?;
        if row.parent_instance_id.is_some() {
            return Err(refusal::child_deletion(instance));
        }
        self.delete_all(&self.tree(instance), force)
    }

    /// Deletes these instances or none. Skips ids without a row.
    pub fn delete_all(&mut self, ids: &[String], force: bool) -> Result<DeleteInstanceResult, ProviderError> {
        for id in ids {
            if !force && self.instances.get(id).is_some_and(|row| self.is_running(id, row)) {
                return Err(refusal::still_running(id));
            }
            if let Some(child) = self.list_children(id).into_iter().find(|child| !ids.contains(child)) {
                return Err(refusal::orphaned_child(id, &child));
            }
        }
        let mut deleted = DeleteInstanceResult::default();
        for id in ids.iter().collect::<BTreeSet<_>>() {
            self.delete_one(id, &mut deleted);
        }
        Ok(deleted)
    }

    /// Deletes the roots that have ended and match the filter, each with its descendants.
    pub fn delete_bulk(&mut self, filter: &InstanceFilter) -> Result<DeleteInstanceResult, ProviderError> {
        let mut roots: Vec<(EndOrder, String)> = Vec::new();
        for (id, row) in &self.instances {
            let is_ended = inspect::is_terminal_status(self.status(id, row)) && !self.is_running(id, row);
            if row.parent_instance_id.is_none() && is_ended && self.is_selected(id, row, filter) {
                roots.push((self.end_order(id, row, filter), id.clone()));
            }
        }
        roots.sort();
        roots.truncate(bulk_limit(filter));
        let mut total = DeleteInstanceResult::default();
        for (_, root) in roots {
            let deleted = self.delete_all(&self.tree(&root), true)?;
            total.instances_deleted += deleted.instances_deleted;
            total.executions_deleted += deleted.executions_deleted;
            total.events_deleted += deleted.events_deleted;
            total.queue_messages_deleted += deleted.queue_messages_deleted;
        }
        Ok(total)
    }

    /// The order in which bulk operations take instances: the one that ended first comes first. If the filter names no
    /// instances, those between two executions come last.
    fn end_order(&self, instance: &str, row: &InstanceRow, filter: &InstanceFilter) -> EndOrder {
        let is_last = filter.instance_ids.is_none()
            && self.status(instance, row) == ExecutionStatus::ContinuedAsNew.as_str();
        (is_last, self.completed_at(instance, row).unwrap_or(0), row.incarnation)
    }

    /// An instance runs while its current execution does, and between two executions.
    fn is_running(&self, instance: &str, row: &InstanceRow) -> bool {
        match ExecutionStatus::parse(self.status(instance, row)) {
            Some(ExecutionStatus::Running) => true,
            Some(ExecutionStatus::ContinuedAsNew) => {
                self.messages_of(instance).any(|message| message.class == MessageClass::Start)
            }
            Some(ExecutionStatus::Completed | ExecutionStatus::Failed) | None => false,
        }
    }

    fn completed_at(&self, instance: &str, row: &InstanceRow) -> Option<u64> {
        self.executions.get(&(instance.to_string(), row.current_execution_id))?.completed_at
    }

    fn is_selected(&self, instance: &str, row: &InstanceRow, filter: &InstanceFilter) -> bool {
        let is_named = filter.instance_ids.as_ref().is_none_or(|ids| ids.iter().any(|id| id == instance));
        is_named && ended_before(self.completed_at(instance, row), filter.completed_before)
    }

    /// Removes everything of an instance that has a row.
    fn delete_one(&mut self, instance: &str, deleted: &mut DeleteInstanceResult) {
        if self.instances.remove(instance).is_none() {
            return;
        }
        let queued = self.messages.len() + self.activities.len();
        let executions = self.executions.len();
        deleted.instances_deleted += 1;
        deleted.events_deleted += self.count_events(|(owner, _)| owner == instance);
        self.executions.retain(|(owner, _), _| owner != instance);
        self.histories.retain(|(owner, _), _| owner != instance);
        self.key_values.remove(instance);
        self.messages.retain(|message| message.instance != instance);
        self.activities.retain(|activity| activity.identity.instance != instance);
        // A runtime that is in a turn of this instance can no longer commit it.
        self.turn_leases.remove(instance);
        self.blocked.retain(|blocked| blocked.instance != instance);
        self.delete_queued_children(instance);
        deleted.executions_deleted += (executions - self.executions.len()) as u64;
        deleted.queue_messages_deleted += (queued - self.messages.len() - self.activities.len()) as u64;
    }

    /// Removes the queued starts of an instance's children. A runtime that is in a turn with such a start loses it.
    fn delete_queued_children(&mut self, parent: &str) {
        let is_start = |message: &Message| message.parent.as_deref() == Some(parent);
        let (starts, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.messages).into_iter().partition(is_start);
        self.messages = kept;
        for start in starts {
            if let Some(token) = &start.taken_by {
                self.give_back(token);
                self.turn_leases.remove(&start.instance);
            }
            let has_start = self.messages_of(&start.instance).any(|other| other.class == MessageClass::Start);
            if has_start || self.instances.contains_key(&start.instance) || self.has_history(&start.instance)
            {
                continue;
            }
            // Other messages for this id would reach a later child of the same id.
            self.messages.retain(|message| message.instance != start.instance);
            self.turn_leases.remove(&start.instance);
            self.blocked.retain(|blocked| blocked.instance != start.instance);
        }
    }

    /// Resets the messages of a turn, as if it had never been taken.
    fn give_back(&mut self, token: &str) {
        for message in self.messages.iter_mut().filter(|message| message.taken_by.as_deref() == Some(token)) {
            message.taken_by = None;
            message.attempts = message.attempts.saturating_sub(1);
        }
    }

    fn count_events(&self, is_counted: impl Fn(&(String, u64)) -> bool) -> u64 {
        let counted = self.histories.iter().filter(|(key, _)| is_counted(key));
        counted.map(|(_, events)| events.len() as u64).sum()
    }

    /// Removes old executions of an instance, but never the current one or a running one.
    pub fn prune(&mut self, instance: &str, options: &PruneOptions) -> Result<PruneResult, ProviderError> {
        let current = self.instance_row("prune_executions", instance)?.current_execution_id;
        let ids = self.list_executions(instance);
        let kept = ids.iter().rev().take(options.keep_last.unwrap_or(0) as usize).copied();
        let kept: BTreeSet<u64> = kept.chain([current]).collect();
        let is_pruned = |(owner, id): &(String, u64), execution: &ExecutionRow| {
            owner == instance
                && !kept.contains(id)
                && execution.status != ExecutionStatus::Running.as_str()
                && ended_before(execution.completed_at, options.completed_before)
        };
        let pruned = self.executions.iter().filter(|(key, execution)| is_pruned(key, execution));
        let pruned: BTreeSet<(String, u64)> = pruned.map(|(key, _)| key.clone()).collect();
        let events_deleted = self.count_events(|key| pruned.contains(key));
        self.executions.retain(|key, _| !pruned.contains(key));
        self.histories.retain(|key, _| !pruned.contains(key));
        Ok(PruneResult { instances_processed: 1, executions_deleted: pruned.len() as u64, events_deleted })
    }

    /// Removes old executions of all instances that match the filter, oldest instances first.
    pub fn prune_bulk(
        &mut self,
        filter: &InstanceFilter,
        options: &PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        let mut selected = self.list_instances(|id, row| self.is_selected(id, row, filter));
        selected.reverse();
        if filter.instance_ids.is_none() && filter.completed_before.is_some() {
            let order = |id: &String| self.instances.get(id).map(|row| self.end_order(id, row, filter));
            selected.sort_by_key(order);
        }
        selected.truncate(bulk_limit(filter));
        let mut total = PruneResult::default();
        for instance in selected {
            let pruned = self.prune(&instance, options)?;
            total.instances_processed += pruned.instances_processed;
            total.executions_deleted += pruned.executions_deleted;
            total.events_deleted += pruned.events_deleted;
        }
        Ok(total)
    }
}

/// Whether it is looked for last, when it ended, and its incarnation.
type EndOrder = (bool, u64, u64);

fn bulk_limit(filter: &InstanceFilter) -> usize {
    filter.limit.unwrap_or(DEFAULT_BULK_LIMIT) as usize
}

/// Tells whether an end lies before a cut-off, if there is one. An execution that has not ended lies before no cut-off.
fn ended_before(completed_at: Option<u64>, cut_off: Option<u64>) -> bool {
    cut_off.is_none_or(|cut_off| completed_at.is_some_and(|at| at < cut_off))
}
