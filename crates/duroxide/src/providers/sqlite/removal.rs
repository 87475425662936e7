//! Deletes instances and prunes executions.

use std::collections::{BTreeSet, HashSet};

use rusqlite::{Connection, params};

use super::error::StoreError;
use super::messages;
use super::schedule::{self, LeaseChange};
use super::shared::clamp_ms;
use super::write_transaction::{WriteTransaction, read_rows, shown_text};
use crate::model::ExecutionStatus;
use crate::providers::{DeleteInstanceResult, InstanceFilter, PruneOptions, PruneResult, refusal};

/// The most instances of a bulk operation, unless its filter says otherwise.
const DEFAULT_LIMIT: u32 = 1_000;

/// Deletes all of these instances or none.
pub(super) fn delete(
    tx: &mut WriteTransaction<'_, '_>,
    ids: &[String],
    force: bool,
) -> Result<DeleteInstanceResult, StoreError> {
    for id in ids {
        if !force && is_running(tx, id)? {
            return Err(refusal::still_running(id).into());
        }
        refuse_orphans(tx, id, ids)?;
    }
    tx.atomically(|tx| {
        let mut result = DeleteInstanceResult::default();
        for id in ids {
            // An id that is not an instance (yet) has nothing to delete; messages queued for it stay.
            if exists(tx, id)? {
                delete_one(tx, id, &mut result)?;
            }
        }
        Ok(result)
    })
}

/// Tells whether an instance is running, or between two executions with the next one's start still queued.
fn is_running(tx: &WriteTransaction<'_, '_>, instance: &str) -> Result<bool, StoreError> {
    let statuses = statuses(tx, instance)?;
    Ok(match statuses.and_then(|(status, _)| ExecutionStatus::parse(&status)) {
        Some(ExecutionStatus::Running) => true,
        Some(ExecutionStatus::ContinuedAsNew) => messages::has_start(tx, instance)?,
        Some(ExecutionStatus::Completed | ExecutionStatus::Failed) | None => false,
    })
}

fn exists(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    Ok(tx.row("SELECT 1 FROM instances WHERE instance_id = ?1", [instance], |_| Ok(()))?.is_some())
}

/// The status of the current execution of an instance, empty if that has no row; and the one that it is listed with.
fn statuses(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<Option<(String, String)>> {
    tx.row(
        "SELECT ifnull(e.status, ''), i.listed_status FROM instances i
         LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.instance_id = ?1",
        [instance],
        |row| Ok((shown_text(row, 0)?, shown_text(row, 1)?)),
    )
}

fn refuse_orphans(tx: &WriteTransaction<'_, '_>, parent: &str, ids: &[String]) -> Result<(), StoreError> {
    let children = super::reads::list_children(tx.connection(), parent)?;
    match children.into_iter().find(|child| !ids.contains(child)) {
        Some(child) => Err(refusal::orphaned_child(parent, &child).into()),
        None => Ok(()),
    }
}

fn delete_one(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    result: &mut DeleteInstanceResult,
) -> Result<(), StoreError> {
    let (status, listed) = statuses(tx, instance)?.unwrap_or_default();
    let remove = |sql: &'static str| -> rusqlite::Result<u64> { Ok(tx.execute(sql, [instance])? as u64) };
    let events = remove("DELETE FROM history WHERE instance_id = ?1")?;
    let executions = remove("DELETE FROM executions WHERE instance_id = ?1")?;
    let messages = remove("DELETE FROM orchestrator_queue WHERE instance_id = ?1")?;
    let work = remove("DELETE FROM worker_queue WHERE instance_id = ?1")?;
    remove("DELETE FROM instance_schedule WHERE instance_id = ?1")?;
    remove("DELETE FROM kv_store WHERE instance_id = ?1")?;
    remove("DELETE FROM kv_delta WHERE instance_id = ?1")?;
    remove("DELETE FROM obstacles WHERE instance_id = ?1")?;
    let instances = remove("DELETE FROM instances WHERE instance_id = ?1")?;

    result.instances_deleted += instances;
    result.executions_deleted += executions;
    result.events_deleted += events;
    result.queue_messages_deleted += messages + work + delete_queued_children(tx, instance)?;
    let totals = &mut tx.effects.totals;
    totals.instances -= instances as i64;
    totals.executions -= executions as i64;
    totals.events -= events as i64;
    totals.count_status(&status, &listed, -1);
    tx.effects.changed_instances.push(instance.to_string());
    // This may have freed activities of a session.
    tx.effects.work_ready |= work > 0;
    Ok(())
}

/// Deletes the queued starts of an instance's children; returns how many messages it deleted.
fn delete_queued_children(tx: &mut WriteTransaction<'_, '_>, parent: &str) -> Result<u64, StoreError> {
    let children = tx.rows(
        "SELECT instance_id FROM orchestrator_queue WHERE parent_instance_id = ?1",
        [parent],
        |row| shown_text(row, 0),
    )?;
    let mut deleted = 0;
    for child in children.into_iter().collect::<BTreeSet<_>>() {
        let turn = turn_of_child(tx, &child, parent)?;
        deleted += tx.execute(
            "DELETE FROM orchestrator_queue WHERE parent_instance_id = ?1 AND instance_id = ?2",
            [parent, &child],
        )?;
        if !(exists(tx, &child)? || has_history(tx, &child)? || messages::has_start(tx, &child)?) {
            // Other messages for this id would reach a later child of the same id.
            deleted += tx.execute("DELETE FROM orchestrator_queue WHERE instance_id = ?1", [&child])?;
            tx.execute("DELETE FROM instance_schedule WHERE instance_id = ?1", [&child])?;
        } else if turn != Some(TurnOfChild::WithoutStart) {
            schedule::settle(tx, &child, tx.now_ms(), LeaseChange::End)?;
        }
    }
    Ok(deleted as u64)
}

/// A turn that a runtime is taking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnOfChild {
    /// Its commit would tell the parent, or a later parent of the same id, about the child.
    WithStart,
    WithoutStart,
}

/// Finds the turn of an instance, and whether a start by this parent is among its messages.
fn turn_of_child(
    tx: &WriteTransaction<'_, '_>,
    child: &str,
    parent: &str,
) -> rusqlite::Result<Option<TurnOfChild>> {
    tx.row(
        "SELECT EXISTS (
            SELECT 1 FROM orchestrator_queue q
            WHERE q.parent_instance_id = ?2 AND q.instance_id = ?1 AND q.parked_at IS NULL
            AND q.visible_at <= s.batch_visible_at AND q.id <= ifnull(s.batch_start_id, s.batch_last_id))
         FROM instance_schedule s WHERE s.instance_id = ?1 AND s.lock_token IS NOT NULL",
        [child, parent],
        |row| Ok(if row.get(0)? { TurnOfChild::WithStart } else { TurnOfChild::WithoutStart }),
    )
}

fn has_history(tx: &WriteTransaction<'_, '_>, instance: &str) -> rusqlite::Result<bool> {
    let found = tx.row("SELECT 1 FROM history WHERE instance_id = ?1 LIMIT 1", [instance], |_| Ok(()))?;
    Ok(found.is_some())
}

/// No next execution waits to be started.
const AT_REST: &str = "NOT EXISTS (
    SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i.instance_id AND q.parked_at IS NULL AND q.class = 'start')";

/// Instances that have ended: the index `executions_ended` finds them. CROSS JOIN keeps its order.
const ENDED: &str = "FROM executions e
    CROSS JOIN instances i ON i.instance_id = e.instance_id AND i.current_execution_id = e.execution_id
    WHERE e.status IN ('Completed', 'Failed') AND e.completed_at < ?1";

/// Instances whose last execution was continued as new. They are found by skipping from instance to instance in the index
/// `executions_continued`, however many executions each has had.
const CONTINUED: &str = "FROM (
        WITH RECURSIVE continued (id) AS (
            SELECT min(instance_id) FROM executions WHERE status = 'ContinuedAsNew'
            UNION ALL
            SELECT (SELECT min(n.instance_id) FROM executions n
                WHERE n.status = 'ContinuedAsNew' AND n.instance_id > c.id)
            FROM continued c WHERE c.id IS NOT NULL)
        SELECT id FROM continued WHERE id IS NOT NULL) c
    CROSS JOIN instances i ON i.instance_id = c.id
    CROSS JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    WHERE e.status = 'ContinuedAsNew' AND e.completed_at < ?1";

/// Instances of a list, which travels as one JSON array, however many they are.
const LISTED: &str = "FROM (SELECT DISTINCT value FROM json_each(?3)) wanted
    JOIN instances i ON i.instance_id = wanted.value
    JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    WHERE (?1 IS NULL OR e.completed_at < ?1)";

/// Finds finished roots, those that ended first in front. A finished root is at rest: nothing of it runs, and no next
/// execution waits to be started.
pub(super) fn finished_roots(
    connection: &Connection,
    filter: &InstanceFilter,
) -> rusqlite::Result<Vec<String>> {
    const IS_ROOT: &str = "i.parent_instance_id IS NULL";
    const BY_END: &str = "e.completed_at, i.incarnation";
    let root_at_rest = format!("{IS_ROOT} AND {AT_REST}");
    if filter.instance_ids.is_some() {
        let finished = format!(
            "{IS_ROOT} AND (e.status IN ('Completed', 'Failed') OR (e.status = 'ContinuedAsNew' AND {AT_REST}))"
        );
        return listed(connection, filter, &finished, BY_END);
    }
    by_time(connection, filter, [(ENDED, IS_ROOT), (CONTINUED, &root_at_rest)])
}

/// Finds the instances that a bulk prune looks at: any status, children too. Those that were created first are in front, or
/// those that ended first if that is a condition.
pub(super) fn prunable(connection: &Connection, filter: &InstanceFilter) -> rusqlite::Result<Vec<String>> {
    if filter.instance_ids.is_some() {
        return listed(connection, filter, "true", "i.incarnation");
    }
    if filter.completed_before.is_some() {
        return by_time(connection, filter, [(ENDED, "true"), (CONTINUED, "true")]);
    }
    let oldest = "SELECT i.instance_id FROM instances i WHERE EXISTS (
            SELECT 1 FROM executions e
            WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id)
        ORDER BY i.incarnation LIMIT ?1";
    read_rows(connection, oldest, [page(filter)], |row| row.get(0))
}

/// How many instances a bulk operation takes.
fn page(filter: &InstanceFilter) -> i64 {
    i64::from(filter.limit.unwrap_or(DEFAULT_LIMIT))
}

fn listed(
    connection: &Connection,
    filter: &InstanceFilter,
    condition: &str,
    order: &str,
) -> rusqlite::Result<Vec<String>> {
    let sql = format!("SELECT i.instance_id {LISTED} AND {condition} ORDER BY {order} LIMIT ?2");
    let ids = serde_json::json!(filter.instance_ids).to_string();
    let before = filter.completed_before.map(clamp_ms);
    read_rows(connection, &sql, params![before, page(filter), ids], |row| row.get(0))
}

fn by_time_sql(source: &str, condition: &str) -> String {
    format!("SELECT i.instance_id {source} AND {condition} ORDER BY e.completed_at, i.incarnation LIMIT ?2")
}

/// Takes from each source what the ones before have left room for.
fn by_time(
    connection: &Connection,
    filter: &InstanceFilter,
    sources: [(&str, &str); 2],
) -> rusqlite::Result<Vec<String>> {
    let before = filter.completed_before.map_or(i64::MAX, clamp_ms);
    let mut found: Vec<String> = Vec::new();
    for (source, condition) in sources {
        let sql = by_time_sql(source, condition);
        let room = page(filter).saturating_sub(i64::try_from(found.len()).unwrap_or(i64::MAX));
        found.extend(read_rows(connection, &sql, [before, room], |row| row.get(0))?);
    }
    Ok(found)
}

/// Deletes a finished root with all its descendants, running ones too. Keeps a root that runs after all.
pub(super) fn delete_tree(
    tx: &mut WriteTransaction<'_, '_>,
    root: &str,
) -> Result<DeleteInstanceResult, StoreError> {
    if is_running(tx, root)? {
        return Ok(DeleteInstanceResult::default());
    }
    let mut tree = vec![root.to_string()];
    let mut seen = HashSet::from([root.to_string()]);
    let mut next = 0;
    while let Some(parent) = tree.get(next) {
        let children = super::reads::list_children(tx.connection(), parent)?;
        tree.extend(children.into_iter().filter(|child| seen.insert(child.clone())));
        next += 1;
    }
    delete(tx, &tree, true)
}

/// Removes old executions of one instance, unless it has been deleted in the meantime.
pub(super) fn prune_if_there(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    options: &PruneOptions,
) -> Result<PruneResult, StoreError> {
    if exists(tx, instance)? { prune(tx, instance, options) } else { Ok(PruneResult::default()) }
}

/// Removes old executions of one instance.
pub(super) fn prune(
    tx: &mut WriteTransaction<'_, '_>,
    instance: &str,
    options: &PruneOptions,
) -> Result<PruneResult, StoreError> {
    let current: Option<i64> =
        tx.row("SELECT current_execution_id FROM instances WHERE instance_id = ?1", [instance], |row| {
            row.get(0)
        })?;
    let current = current.ok_or_else(|| refusal::instance_not_found("prune_executions", instance))?;
    // The current execution counts as one of the kept ones.
    let keep_last = i64::from(options.keep_last.unwrap_or(1).max(1));
    let old = tx.rows(
        "SELECT execution_id FROM executions
         WHERE instance_id = ?1 AND execution_id <> ?2 AND status <> 'Running'
         AND execution_id NOT IN (
            SELECT execution_id FROM executions WHERE instance_id = ?1 ORDER BY execution_id DESC LIMIT ?3)
         AND (?4 IS NULL OR completed_at < ?4)",
        params![instance, current, keep_last, options.completed_before.map(clamp_ms)],
        |row| row.get::<_, i64>(0),
    )?;
    tx.atomically(|tx| {
        let mut result = PruneResult { instances_processed: 1, ..Default::default() };
        for execution_id in old {
            let key = params![instance, execution_id];
            result.events_deleted +=
                tx.execute("DELETE FROM history WHERE instance_id = ?1 AND execution_id = ?2", key)? as u64;
            result.executions_deleted += tx
                .execute("DELETE FROM executions WHERE instance_id = ?1 AND execution_id = ?2", key)?
                as u64;
        }
        tx.effects.totals.events -= result.events_deleted as i64;
        tx.effects.totals.executions -= result.executions_deleted as i64;
        Ok(result)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use super::*;

    #[test]
    fn a_bulk_removal_finds_what_has_ended_by_an_index() {
        let connection = Connection::open_in_memory().unwrap();
        let location = super::super::url::parse("sqlite::memory:", false).unwrap();
        super::super::schema::prepare(&connection, &location, super::super::Migrations::Apply).unwrap();
        for (source, index) in [(ENDED, "executions_ended"), (CONTINUED, "executions_continued")] {
            let sql = format!("EXPLAIN QUERY PLAN {}", by_time_sql(source, "true"));
            let mut statement = connection.prepare(&sql).unwrap();
            let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
            let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
            assert!(steps.iter().any(|step| step.contains(index)), "{steps:#?}");
            let scans = |step: &&String| step.starts_with("SCAN i") || step.starts_with("SCAN e");
            let scanned: Vec<_> = steps.iter().filter(scans).collect();
            assert!(scanned.is_empty(), "{steps:#?}");
        }
    }
}
