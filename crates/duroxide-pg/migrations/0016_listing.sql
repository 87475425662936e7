-- Listings. `listed_status` is that of the current execution, except that 'Cancelled' tells an instance that was cancelled from one
-- that failed. `updated_10s` is `updated_at` in tens of seconds: most turns change no index.
-- `root_instance_id` is the instance at the top of the tree of a child. Nobody has to write them: the column is generated,
-- and triggers keep the others, when an instance begins and when it ends; also for builds that do not know of them.
ALTER TABLE instances
    ADD COLUMN listed_status text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN root_instance_id text COLLATE "C",
    ADD COLUMN updated_10s bigint GENERATED ALWAYS AS (updated_at / 10000) STORED;
UPDATE instances i SET listed_status = CASE
        WHEN e.status = 'Failed' AND EXISTS (
            SELECT 1 FROM history h
            WHERE h.instance_id = e.instance_id AND h.execution_id = e.execution_id AND h.event_type = 'OrchestrationFailed'
                AND h.event_data LIKE '%"kind":{"Cancelled":{%')
        THEN 'Cancelled' ELSE e.status END
    FROM executions e WHERE e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id;
WITH RECURSIVE tree (instance_id, root) AS (
    SELECT i.instance_id, coalesce(i.parent_instance_id, i.instance_id) FROM instances i
    WHERE i.parent_instance_id IS NULL
        OR NOT EXISTS (SELECT 1 FROM instances p WHERE p.instance_id = i.parent_instance_id)
    UNION
    SELECT c.instance_id, t.root FROM tree t JOIN instances c ON c.parent_instance_id = t.instance_id)
UPDATE instances i SET root_instance_id = t.root FROM tree t
    WHERE t.instance_id = i.instance_id AND i.parent_instance_id IS NOT NULL;
UPDATE instances SET root_instance_id = parent_instance_id
    WHERE parent_instance_id IS NOT NULL AND root_instance_id IS NULL;

-- There are few combinations of status, orchestration and version, so a page of a listing is a merge of a few of them.
CREATE INDEX instances_by_creation
    ON instances (listed_status, orchestration_name, orchestration_version, created_at, incarnation);
CREATE INDEX instances_by_update ON instances (listed_status, orchestration_name, orchestration_version, updated_10s, incarnation);
DROP INDEX instances_by_parent;
CREATE INDEX instances_by_parent ON instances (parent_instance_id, created_at, incarnation)
    WHERE parent_instance_id IS NOT NULL;
CREATE INDEX instances_by_root ON instances (root_instance_id, created_at, incarnation) WHERE root_instance_id IS NOT NULL;
CREATE INDEX instances_by_custom_status ON instances (substr(custom_status, 1, 100), created_at, incarnation)
    WHERE custom_status IS NOT NULL;
-- Queued starts, which are instances to be.
CREATE INDEX orchestrator_queue_starts ON orchestrator_queue (created_at, id) WHERE class = 'start';

-- A new instance: its execution was recorded before.
CREATE FUNCTION list_instance_1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.listed_status := coalesce((
        SELECT e.status FROM executions e
        WHERE e.instance_id = NEW.instance_id AND e.execution_id = NEW.current_execution_id), '');
    IF NEW.parent_instance_id IS NOT NULL THEN
        NEW.root_instance_id := coalesce((
            SELECT coalesce(p.root_instance_id, p.instance_id) FROM instances p
            WHERE p.instance_id = NEW.parent_instance_id), NEW.parent_instance_id);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER instance_is_listed BEFORE INSERT ON instances FOR EACH ROW EXECUTE FUNCTION list_instance_1();

-- The current execution ends, or the next one begins.
CREATE FUNCTION list_status_1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE instances SET listed_status = NEW.status
    WHERE instance_id = NEW.instance_id AND current_execution_id <= NEW.execution_id AND listed_status <> NEW.status;
    RETURN NULL;
END $$;
CREATE TRIGGER status_is_listed AFTER UPDATE OF status ON executions FOR EACH ROW
    WHEN (NEW.status <> OLD.status) EXECUTE FUNCTION list_status_1();
CREATE TRIGGER execution_is_listed AFTER INSERT ON executions FOR EACH ROW
    WHEN (NEW.execution_id > 1) EXECUTE FUNCTION list_status_1();

-- An instance that was cancelled has failed; only its last event tells the difference. Quotation marks inside a text are
-- escaped, so no text looks like this.
CREATE FUNCTION list_cancellation_1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE instances SET listed_status = 'Cancelled'
    WHERE instance_id = NEW.instance_id AND current_execution_id = NEW.execution_id AND listed_status = 'Failed';
    RETURN NULL;
END $$;
CREATE TRIGGER cancellation_is_listed AFTER INSERT ON history FOR EACH ROW
    WHEN (NEW.event_type = 'OrchestrationFailed' AND NEW.event_data LIKE '%"kind":{"Cancelled":{%')
    EXECUTE FUNCTION list_cancellation_1();

-- How many instances began and ended in each minute since the epoch, by the database's clock, for a day. Each committer has rows of its own, so that
-- they do not wait for each other; it writes once for each batch in which an instance began or ended.
CREATE TABLE minute_rates (
    minute    bigint NOT NULL,
    committer text COLLATE "C" NOT NULL,
    started   bigint NOT NULL,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    PRIMARY KEY (minute, committer)
) WITH (fillfactor = 50);
CREATE FUNCTION count_minute_1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO minute_rates AS r (minute, committer, started, completed, failed)
    VALUES (floor(extract(epoch FROM NEW.seen_at) / 60)::bigint, NEW.committer, greatest(NEW.instances - OLD.instances, 0),
        greatest(NEW.completed_instances - OLD.completed_instances, 0),
        greatest(NEW.failed_instances - OLD.failed_instances, 0))
    ON CONFLICT (minute, committer) DO UPDATE SET started = r.started + excluded.started,
        completed = r.completed + excluded.completed, failed = r.failed + excluded.failed;
    RETURN NULL;
END $$;
CREATE TRIGGER minute_is_counted AFTER UPDATE OF instances, completed_instances, failed_instances ON committers FOR EACH ROW
    WHEN (NEW.instances > OLD.instances OR NEW.completed_instances > OLD.completed_instances
        OR NEW.failed_instances > OLD.failed_instances)
    EXECUTE FUNCTION count_minute_1();

-- The runtimes that reported lately; `info` is JSON.
CREATE TABLE workers (
    worker_id    text COLLATE "C" PRIMARY KEY,
    last_seen_at bigint NOT NULL,
    info         text NOT NULL
) WITH (fillfactor = 50);

-- What runtimes could not do and will try again. `activity_id` is 0 for a turn.
CREATE TABLE obstacles (
    instance_id  text COLLATE "C" NOT NULL,
    execution_id bigint NOT NULL,
    activity_id  bigint NOT NULL,
    kind         text NOT NULL,
    name         text NOT NULL,
    version      text,
    reason       text NOT NULL,
    attempts     bigint NOT NULL,
    since_at     bigint NOT NULL,
    next_try_at  bigint NOT NULL,
    PRIMARY KEY (instance_id, execution_id, activity_id)
) WITH (fillfactor = 50);
CREATE INDEX obstacles_by_next_try ON obstacles (next_try_at);

-- Takes the heartbeat of a runtime. Nobody waits for its sync: what a crash loses is reported again soon.
CREATE FUNCTION report_worker_1(
    p_now bigint, p_worker text, p_info text, p_forgotten_ms bigint, p_instance text[], p_execution bigint[],
    p_activity bigint[], p_kind text[], p_name text[], p_version text[], p_reason text[], p_attempts bigint[],
    p_since bigint[], p_next_try bigint[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO workers AS w (worker_id, last_seen_at, info) VALUES (p_worker, v_now, p_info)
    ON CONFLICT (worker_id) DO UPDATE SET last_seen_at = excluded.last_seen_at, info = excluded.info;
    -- Whoever else removes the same rows does it as well.
    DELETE FROM workers w WHERE w.worker_id IN (
        SELECT o.worker_id FROM workers o WHERE o.last_seen_at < v_now - 600000 FOR UPDATE SKIP LOCKED);
    DELETE FROM minute_rates m WHERE (m.minute, m.committer) IN (
        SELECT o.minute, o.committer FROM minute_rates o WHERE o.minute <= now_ms_1(NULL) / 60000 - 1440
        ORDER BY o.minute LIMIT 1000 FOR UPDATE SKIP LOCKED);
    DELETE FROM obstacles b WHERE (b.instance_id, b.execution_id, b.activity_id) IN (
        SELECT o.instance_id, o.execution_id, o.activity_id FROM obstacles o WHERE o.next_try_at < v_now - p_forgotten_ms
        ORDER BY o.next_try_at LIMIT 1000 FOR UPDATE SKIP LOCKED);
    INSERT INTO obstacles AS b (instance_id, execution_id, activity_id, kind, name, version, reason, attempts, since_at,
        next_try_at)
    SELECT * FROM unnest(p_instance, p_execution, p_activity, p_kind, p_name, p_version, p_reason, p_attempts, p_since,
        p_next_try) o(instance_id, execution_id, activity_id) ORDER BY o.instance_id, o.execution_id, o.activity_id
    ON CONFLICT (instance_id, execution_id, activity_id) DO UPDATE SET kind = excluded.kind, name = excluded.name,
        version = excluded.version, reason = excluded.reason, attempts = excluded.attempts,
        next_try_at = excluded.next_try_at;
END $$;

CREATE FUNCTION retire_worker_1(p_worker text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM workers WHERE worker_id = p_worker;
END $$;

-- Runs a statement of a listing, which the store composes; its texts are parameters.
CREATE FUNCTION listed_1(p_statement text, p_texts text[]) RETURNS TABLE (seq bigint, at bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY EXECUTE p_statement USING p_texts;
END $$;
