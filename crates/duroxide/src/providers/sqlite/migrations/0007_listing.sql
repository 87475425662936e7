-- Listings. `listed_status` is that of the current execution, except that 'Cancelled' tells an instance that was cancelled from one
-- that failed. `updated_10s` is `updated_at` in tens of seconds: most turns change no index.
-- `root_instance_id` is the instance at the top of the tree of a child.
ALTER TABLE instances ADD COLUMN listed_status TEXT NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN updated_10s INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instances ADD COLUMN root_instance_id TEXT;
UPDATE instances SET updated_10s = updated_at / 10000, listed_status = coalesce((
    SELECT e.status FROM executions e
    WHERE e.instance_id = instances.instance_id AND e.execution_id = instances.current_execution_id), '');
UPDATE instances SET listed_status = 'Cancelled' WHERE listed_status = 'Failed' AND EXISTS (
    SELECT 1 FROM history h
    WHERE h.instance_id = instances.instance_id AND h.execution_id = instances.current_execution_id
        AND h.event_type = 'OrchestrationFailed' AND json_valid(h.event_data)
        AND json_extract(h.event_data, '$.details.Application.kind.Cancelled') IS NOT NULL);
WITH RECURSIVE tree (instance_id, root) AS (
    SELECT i.instance_id, coalesce(i.parent_instance_id, i.instance_id) FROM instances i
    WHERE i.parent_instance_id IS NULL
        OR NOT EXISTS (SELECT 1 FROM instances p WHERE p.instance_id = i.parent_instance_id)
    UNION
    SELECT c.instance_id, t.root FROM tree t JOIN instances c ON c.parent_instance_id = t.instance_id)
UPDATE instances SET root_instance_id = tree.root FROM tree
    WHERE tree.instance_id = instances.instance_id AND instances.parent_instance_id IS NOT NULL;
UPDATE instances SET root_instance_id = parent_instance_id
    WHERE parent_instance_id IS NOT NULL AND root_instance_id IS NULL;

-- There are few combinations of status, orchestration and version, so a page of a listing is a merge of a few of them.
CREATE INDEX instances_by_creation ON instances (listed_status, orchestration_name, orchestration_version, created_at);
CREATE INDEX instances_by_update ON instances (listed_status, orchestration_name, orchestration_version, updated_10s);
DROP INDEX instances_by_parent;
CREATE INDEX instances_by_parent ON instances (parent_instance_id, created_at) WHERE parent_instance_id IS NOT NULL;
CREATE INDEX instances_by_root ON instances (root_instance_id, created_at) WHERE root_instance_id IS NOT NULL;
CREATE INDEX instances_by_custom_status ON instances (substr(custom_status, 1, 100), created_at)
    WHERE custom_status IS NOT NULL;
-- Queued starts, which are instances to be.
CREATE INDEX orchestrator_queue_starts ON orchestrator_queue (created_at) WHERE class = 'start';

-- How many instances began and ended in each minute since the epoch, for a day.
CREATE TABLE minute_rates (
    minute    INTEGER PRIMARY KEY,
    started   INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed    INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The runtimes that reported lately; `info` is JSON.
CREATE TABLE workers (
    worker_id    TEXT PRIMARY KEY,
    last_seen_at INTEGER NOT NULL,
    info         TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What runtimes could not do and will try again. `activity_id` is 0 for a turn.
CREATE TABLE obstacles (
    instance_id  TEXT NOT NULL,
    execution_id INTEGER NOT NULL,
    activity_id  INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    version      TEXT,
    reason       TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    since_at     INTEGER NOT NULL,
    next_try_at  INTEGER NOT NULL,
    PRIMARY KEY (instance_id, execution_id, activity_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX obstacles_by_next_try ON obstacles (next_try_at);
