-- Takes over a file that was written by the published crate, line 0.1 (its schema of version 0.1.32). Runs in one
-- transaction: its tables are moved aside, ours are made by schema.sql (between the two parts of this script), the rows
-- are copied with their times as numbers, and the old tables go.
--
-- Leases are not taken over: whoever held one is not running on this file any more. What it held had been counted as
-- an attempt, and stays counted.
ALTER TABLE instances RENAME TO published_instances;
ALTER TABLE executions RENAME TO published_executions;
ALTER TABLE history RENAME TO published_history;
ALTER TABLE orchestrator_queue RENAME TO published_orchestrator_queue;
ALTER TABLE worker_queue RENAME TO published_worker_queue;
ALTER TABLE sessions RENAME TO published_sessions;
ALTER TABLE kv_store RENAME TO published_kv_store;
ALTER TABLE kv_delta RENAME TO published_kv_delta;
DROP TABLE instance_locks;
DROP TABLE IF EXISTS timer_queue;
DROP TABLE IF EXISTS _sqlx_migrations;
DROP INDEX IF EXISTS idx_instances_parent;
-- schema.sql
INSERT INTO instances (instance_id, orchestration_name, orchestration_version, current_execution_id, created_at,
        updated_at, parent_instance_id, pinned_version, custom_status_version, custom_status)
    SELECT i.instance_id, i.orchestration_name, i.orchestration_version, i.current_execution_id,
        iif(typeof(i.created_at) = 'integer', i.created_at, coalesce(unixepoch(i.created_at), 0) * 1000),
        iif(typeof(i.updated_at) = 'integer', i.updated_at, coalesce(unixepoch(i.updated_at), 0) * 1000),
        i.parent_instance_id,
        coalesce(e.duroxide_version_major || '.' || e.duroxide_version_minor || '.' || e.duroxide_version_patch, ''),
        i.custom_status_version, i.custom_status
    FROM published_instances i
    LEFT JOIN published_executions e
        ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    ORDER BY i.created_at, i.rowid;
INSERT INTO executions
    SELECT instance_id, execution_id, status,
        iif(typeof(started_at) = 'integer', started_at, coalesce(unixepoch(started_at), 0) * 1000),
        CASE
            WHEN status = 'Running' THEN NULL
            WHEN typeof(completed_at) = 'text' THEN unixepoch(completed_at) * 1000
            ELSE completed_at
        END,
        duroxide_version_major, duroxide_version_minor, duroxide_version_patch, output
    FROM published_executions;
INSERT INTO history
    SELECT instance_id, execution_id, event_id, event_type,
        iif(typeof(created_at) = 'integer', created_at, coalesce(unixepoch(created_at), 0) * 1000), event_data
    FROM published_history;
INSERT INTO orchestrator_queue (id, instance_id, class, visible_at, created_at, attempt_count, work_item)
    SELECT id, instance_id,
        CASE substr(work_item, 1, instr(work_item, ':') - 1)
            WHEN '{"StartOrchestration"' THEN 'start'
            WHEN '{"ContinueAsNew"' THEN 'start'
            WHEN '{"QueueMessage"' THEN 'queue'
            WHEN '{"ExternalRaised"' THEN 'signal'
            WHEN '{"CancelInstance"' THEN 'signal'
            ELSE 'completion'
        END,
        CASE
            WHEN typeof(visible_at) = 'text' THEN coalesce(unixepoch(visible_at), 0) * 1000
            ELSE coalesce(visible_at, 0)
        END,
        iif(typeof(created_at) = 'integer', created_at, coalesce(unixepoch(created_at), 0) * 1000),
        attempt_count, work_item
    FROM published_orchestrator_queue ORDER BY id;
INSERT INTO sessions SELECT session_id, worker_id, locked_until, last_activity_at, locked_until, NULL FROM published_sessions;
INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, session_id, tag, due_at, visible_at,
        attempt_count, created_at, work_item)
    SELECT id, coalesce(instance_id, ''), coalesce(execution_id, 0), coalesce(activity_id, 0), session_id, tag,
        nullif(visible_at, 0), visible_at, attempt_count,
        iif(typeof(created_at) = 'integer', created_at, coalesce(unixepoch(created_at), 0) * 1000), work_item
    FROM published_worker_queue ORDER BY id;
INSERT INTO kv_store SELECT instance_id, key, last_updated_at_ms, value FROM published_kv_store;
INSERT INTO kv_delta SELECT instance_id, key, last_updated_at_ms, value FROM published_kv_delta;
DROP TABLE published_instances;
DROP TABLE published_executions;
DROP TABLE published_history;
DROP TABLE published_orchestrator_queue;
DROP TABLE published_worker_queue;
DROP TABLE published_sessions;
DROP TABLE published_kv_store;
DROP TABLE published_kv_delta;
UPDATE totals SET
    instances = (SELECT count(*) FROM instances),
    executions = (SELECT count(*) FROM executions),
    events = (SELECT count(*) FROM history),
    (running_instances, completed_instances, failed_instances) = (
        SELECT coalesce(sum(e.status = 'Running'), 0), coalesce(sum(e.status = 'Completed'), 0),
            coalesce(sum(e.status = 'Failed'), 0)
        FROM instances i JOIN executions e
            ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id);
