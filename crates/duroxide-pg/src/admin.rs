//! The store as operators see it.

use async_trait::async_trait;
use duroxide::Event;
use duroxide::providers::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, ProviderAdmin, ProviderError,
    PruneOptions, PruneResult, QueueDepths, SystemMetrics, refusal,
};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::committer::Committer;
use crate::error::StoreError;
use crate::functions::{Function, owned_params};
use crate::jobs::{CallOf, Job, Params, Reply};
use crate::reads::{PAGE, number, optional_text, row_limit};
use crate::shared::{Effects, clamp};
use crate::text::{original, stored};

/// Instances that a bulk operation takes at once, unless the caller gives a limit.
const DEFAULT_LIMIT: u32 = 1_000;

static DELETE: Function = Function::rows("delete_instances_1");
static DELETE_TREE: Function = Function::rows("delete_tree_1");
static PRUNE: Function = Function::rows("prune_1");

/// Instances that have ended, those that ended first in front: `executions_ended` finds them.
macro_rules! ended {
    ($condition:literal) => {
        concat!(
            "SELECT i.instance_id FROM executions e
            JOIN instances i ON i.instance_id = e.instance_id AND i.current_execution_id = e.execution_id
            WHERE e.status IN ('Completed', 'Failed') AND e.completed_at < $1 AND ",
            $condition,
            " ORDER BY e.completed_at, i.incarnation LIMIT $2"
        )
    };
}

/// Instances whose last execution was continued as new. The query skips from instance to instance in
/// `executions_continued`, however many executions each has had. OFFSET 0 keeps the planner from reading all of those.
macro_rules! continued {
    ($condition:literal) => {
        concat!(
            "WITH RECURSIVE continued (id) AS (
                (SELECT instance_id FROM executions WHERE status = 'ContinuedAsNew' ORDER BY instance_id LIMIT 1)
                UNION ALL
                SELECT (SELECT n.instance_id FROM executions n
                    WHERE n.status = 'ContinuedAsNew' AND n.instance_id > c.id ORDER BY n.instance_id LIMIT 1)
                FROM continued c WHERE c.id IS NOT NULL)
            SELECT i.instance_id FROM continued c
            CROSS JOIN LATERAL (SELECT * FROM instances WHERE instance_id = c.id OFFSET 0) i
            CROSS JOIN LATERAL (
                SELECT status, completed_at FROM executions
                WHERE instance_id = i.instance_id AND execution_id = i.current_execution_id OFFSET 0) e
            WHERE e.status = 'ContinuedAsNew' AND e.completed_at < $1 AND ",
            $condition,
            " ORDER BY e.completed_at, i.incarnation LIMIT $2"
        )
    };
}

/// How a bulk operation finds its instances.
struct Selection {
    /// Finds the instances of a list of ids.
    listed: &'static str,
    /// Find instances that have ended, and instances between two executions.
    by_time: [&'static str; 2],
}

/// Finished roots, those that ended first in front. A finished root is at rest: nothing of it runs, and no next
/// execution waits for its start.
const FINISHED_ROOTS: Selection = Selection {
    listed: "SELECT i.instance_id FROM instances i
        JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
        WHERE i.instance_id = ANY ($1) AND ($2::bigint IS NULL OR e.completed_at < $2)
            AND i.parent_instance_id IS NULL AND (e.status IN ('Completed', 'Failed') OR (
                e.status = 'ContinuedAsNew' AND NOT EXISTS (
                    SELECT 1 FROM orchestrator_queue q
                    WHERE q.instance_id = i.instance_id AND q.parked_at IS NULL AND q.class = 'start')))
        ORDER BY e.completed_at, i.incarnation LIMIT $3",
    by_time: [
        ended!("i.parent_instance_id IS NULL"),
        continued!(
            "i.parent_instance_id IS NULL AND (
                SELECT 1 FROM orchestrator_queue q
                WHERE q.instance_id = i.instance_id AND q.parked_at IS NULL AND q.class = 'start' LIMIT 1) IS NULL"
        ),
    ],
};

/// The instances that a bulk prune looks at: any status, children too.
const PRUNABLE: Selection = Selection {
    listed: "SELECT i.instance_id FROM instances i
        JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
        WHERE i.instance_id = ANY ($1) AND ($2::bigint IS NULL OR e.completed_at < $2)
        ORDER BY i.incarnation LIMIT $3",
    by_time: [ended!("true"), continued!("true")],
};

/// Returns the statements by which bulk operations find ended instances, for tests of their plans.
#[cfg(feature = "test-hooks")]
pub fn bulk_statements() -> [&'static str; 4] {
    let ([ended, continued], [all_ended, all_continued]) = (FINISHED_ROOTS.by_time, PRUNABLE.by_time);
    [ended, continued, all_ended, all_continued]
}

/// The instances that a bulk prune without conditions looks at, oldest first.
const OLDEST: &str = "SELECT i.instance_id FROM instances i WHERE EXISTS (
        SELECT 1 FROM executions e
        WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id)
    ORDER BY i.incarnation LIMIT $1";

#[async_trait]
impl ProviderAdmin for PostgresProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        const SQL: &str = "SELECT instance_id, incarnation FROM instances WHERE incarnation < $1
            ORDER BY incarnation DESC LIMIT $2";
        self.pages("list_instances", SQL, &[]).await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        const SQL: &str = "SELECT i.instance_id, i.incarnation FROM instances i
            JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
            WHERE e.status = $3 AND i.incarnation < $1 ORDER BY i.incarnation DESC LIMIT $2";
        self.pages("list_instances_by_status", SQL, &[&stored(status).as_ref()]).await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        const SQL: &str = "SELECT execution_id FROM executions WHERE instance_id = $1 AND execution_id > $2
            ORDER BY execution_id LIMIT $3";
        let instance = stored(instance);
        let (mut after, mut ids) = (i64::MIN, Vec::new());
        loop {
            let rows = self.listing("list_executions", SQL, &[&instance.as_ref(), &after, &PAGE]).await?;
            ids.extend(rows.iter().map(|row| number(row, "execution_id")));
            match rows.last() {
                Some(last) if rows.len() as i64 == PAGE => after = last.get("execution_id"),
                _ => return Ok(ids),
            }
        }
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
        const SQL: &str =
            "SELECT coalesce(max(execution_id), 1) AS latest FROM executions WHERE instance_id = $1";
        let rows = self.rows("latest_execution_id", SQL, &[&stored(instance).as_ref()]).await?;
        Ok(rows.first().map_or(1, |row| number(row, "latest")))
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.instance_info(instance).await
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.execution_info(instance, execution_id).await
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.system_metrics().await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.queue_depths().await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        const SQL: &str = "SELECT instance_id, incarnation FROM instances
            WHERE parent_instance_id = $3 AND incarnation < $1 ORDER BY incarnation DESC LIMIT $2";
        let mut children = self.pages("list_children", SQL, &[&stored(instance_id).as_ref()]).await?;
        children.reverse();
        Ok(children)
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        const OPERATION: &str = "get_parent_id";
        const SQL: &str = "SELECT parent_instance_id FROM instances WHERE instance_id = $1";
        let rows = self.rows(OPERATION, SQL, &[&stored(instance_id).as_ref()]).await?;
        let row = rows.first().ok_or_else(|| refusal::instance_not_found(OPERATION, instance_id))?;
        Ok(optional_text(row, "parent_instance_id"))
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let columns: Vec<String> = ids.iter().map(|id| stored(id).into_owned()).collect();
        let ids = ids.to_vec();
        let params = owned_params![p_slot: self.removal_slot(), p_instances: columns, p_force: force];
        let read = move |rows: Vec<Row>, effects: &mut Effects| read_deletion(&rows, &ids, effects);
        self.call(&self.removals, "delete_instances_atomic", DELETE.call(params), read).await
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        const OPERATION: &str = "delete_instance_bulk";
        let mut total = DeleteInstanceResult::default();
        // A transaction for each tree, so that others can write in between.
        for root in self.select(OPERATION, &FINISHED_ROOTS, &filter).await? {
            let params = owned_params![p_slot: self.removal_slot(), p_root: stored(&root).into_owned()];
            let read = |rows: Vec<Row>, effects: &mut Effects| {
                let tree: Option<Vec<String>> = rows.first().and_then(|row| row.get("deleted"));
                let Some(tree) = tree else { return Ok(DeleteInstanceResult::default()) };
                let tree: Vec<String> = tree.into_iter().map(original).collect();
                read_deletion(&rows, &tree, effects)
            };
            let deleted = self.call(&self.removals, OPERATION, DELETE_TREE.call(params), read).await?;
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
        const OPERATION: &str = "prune_executions";
        match self.prune(OPERATION, instance_id, &options).await? {
            Some(pruned) => Ok(pruned),
            None => Err(refusal::instance_not_found(OPERATION, instance_id)),
        }
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        const OPERATION: &str = "prune_executions_bulk";
        let mut total = PruneResult::default();
        let has_no_condition = filter.instance_ids.is_none() && filter.completed_before.is_none();
        let instances = match has_no_condition {
            true => self.names(OPERATION, OLDEST, &[&page(&filter)]).await?,
            false => self.select(OPERATION, &PRUNABLE, &filter).await?,
        };
        for instance in instances {
            // An instance that another caller has deleted in the meantime does not count.
            let pruned = self.prune(OPERATION, &instance, &options).await?.unwrap_or_default();
            total.instances_processed += pruned.instances_processed;
            total.executions_deleted += pruned.executions_deleted;
            total.events_deleted += pruned.events_deleted;
        }
        Ok(total)
    }
}

impl PostgresProvider {
    /// Runs a statement of its own in a batch of `committer`.
    pub(crate) async fn call<T: Send + Sync + 'static>(
        &self,
        committer: &Committer,
        operation: &'static str,
        (sql, params): (&'static str, Params),
        read: impl Fn(Vec<Row>, &mut Effects) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, ProviderError> {
        let (reply, answer) = Reply::new(operation);
        let call = CallOf { sql, params, read, noted: None, reply };
        committer.submit(operation, Job::Call(Box::new(call)), answer).await
    }

    async fn select(
        &self,
        operation: &'static str,
        selection: &Selection,
        filter: &InstanceFilter,
    ) -> Result<Vec<String>, ProviderError> {
        let (before, limit) = (filter.completed_before.map(clamp), page(filter));
        if let Some(ids) = &filter.instance_ids {
            let ids: Vec<String> = ids.iter().map(|id| stored(id).into_owned()).collect();
            return self.names(operation, selection.listed, &[&ids, &before, &limit]).await;
        }
        let before = before.unwrap_or(i64::MAX);
        let mut found: Vec<String> = Vec::new();
        for sql in selection.by_time {
            let room = limit - row_limit(found.len());
            if room > 0 {
                found.extend(self.names(operation, sql, &[&before, &room]).await?);
            }
        }
        Ok(found)
    }

    /// Removes old executions; `None` if there is no such instance.
    async fn prune(
        &self,
        operation: &'static str,
        instance: &str,
        options: &PruneOptions,
    ) -> Result<Option<PruneResult>, ProviderError> {
        // The current execution counts as one of those to keep.
        let keep_last = i64::from(options.keep_last.unwrap_or(1).max(1));
        let params = owned_params![
            p_slot: self.removal_slot(),
            p_instance: stored(instance).into_owned(),
            p_keep_last: keep_last,
            p_before: options.completed_before.map(clamp),
        ];
        let read = |rows: Vec<Row>, _: &mut Effects| {
            let row = rows.first().filter(|row| row.get("found_instance"));
            Ok(row.map(|row| PruneResult {
                instances_processed: 1,
                executions_deleted: number(row, "executions_deleted"),
                events_deleted: number(row, "events_deleted"),
            }))
        };
        self.call(&self.removals, operation, PRUNE.call(params), read).await
    }

    /// Returns the slot in which removals count: one of their own, so that they do not wait for turns.
    fn removal_slot(&self) -> i32 {
        self.shared.slot + crate::SLOTS
    }
}

/// Returns how many instances a bulk operation takes.
fn page(filter: &InstanceFilter) -> i64 {
    i64::from(filter.limit.unwrap_or(DEFAULT_LIMIT))
}

fn read_deletion(
    rows: &[Row],
    ids: &[String],
    effects: &mut Effects,
) -> Result<DeleteInstanceResult, StoreError> {
    let Some(row) = rows.first() else { return Ok(DeleteInstanceResult::default()) };
    let refused = optional_text(row, "refused");
    let orphan = optional_text(row, "orphan");
    match (refused, orphan) {
        (Some(parent), Some(child)) => return Err(refusal::orphaned_child(&parent, &child).into()),
        (Some(instance), None) => return Err(refusal::still_running(&instance).into()),
        (None, _) => {}
    }
    // The removal may have freed activities of a session, and dispatchers look again at ids that are no instances.
    effects.work_ready = true;
    effects.instances_touched = true;
    effects.changed_instances.extend(ids.iter().cloned());
    Ok(DeleteInstanceResult {
        instances_deleted: number(row, "instances_deleted"),
        executions_deleted: number(row, "executions_deleted"),
        events_deleted: number(row, "events_deleted"),
        queue_messages_deleted: number(row, "messages_deleted"),
    })
}
