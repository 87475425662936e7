-- Deleting instances and pruning executions.

-- Keeps everybody else from taking or committing turns of these instances, also those that are not scheduled yet.
CREATE FUNCTION lock_instances_1(p_instances text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO instance_schedule AS s (instance_id)
    SELECT DISTINCT i COLLATE "C" FROM unnest(p_instances) i ORDER BY 1
    ON CONFLICT (instance_id) DO UPDATE SET instance_id = s.instance_id;
END $$;

-- Takes back what was only made to lock.
CREATE FUNCTION unlock_instances_1(p_instances text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_left text[];
BEGIN
    WITH gone AS (
        DELETE FROM instance_schedule
        WHERE instance_id = ANY (p_instances) AND ready_seq IS NULL AND due_at IS NULL AND lock_token IS NULL
        RETURNING instance_id)
    SELECT array_agg(instance_id) INTO v_left FROM gone;
    IF v_left IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_left);
    END IF;
END $$;

-- The status of an instance's current execution; NULL if there is none.
CREATE FUNCTION current_status_1(p_instance text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.status FROM instances i
            JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
            WHERE i.instance_id = p_instance);
END $$;

-- Tells whether an instance is running, or between two executions with the next one's start still queued.
CREATE FUNCTION is_running_1(p_instance text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_status text := current_status_1(p_instance);
BEGIN
    RETURN coalesce(v_status = 'Running' OR (v_status = 'ContinuedAsNew' AND EXISTS (
        SELECT 1 FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NULL AND class = 'start')), false);
END $$;

-- Deletes all of these instances or none. Returns what was removed, or why nothing was: an instance that is running, or
-- a child (of `refused`) that would be left behind.
CREATE FUNCTION delete_instances_1(p_slot integer, p_instances text[], p_force boolean,
    OUT instances_deleted bigint, OUT executions_deleted bigint, OUT events_deleted bigint, OUT messages_deleted bigint,
    OUT refused text, OUT orphan text)
LANGUAGE plpgsql AS $$
DECLARE
    v_one text;
    v_status text;
    v_count bigint;
    v_running bigint := 0;
    v_completed bigint := 0;
    v_failed bigint := 0;
BEGIN
    instances_deleted := 0;
    executions_deleted := 0;
    events_deleted := 0;
    messages_deleted := 0;
    PERFORM lock_instances_1(p_instances);
    FOREACH v_one IN ARRAY p_instances LOOP
        IF NOT p_force AND is_running_1(v_one) THEN
            refused := v_one;
            PERFORM unlock_instances_1(p_instances);
            RETURN;
        END IF;
        SELECT c.instance_id INTO orphan FROM instances c
        WHERE c.parent_instance_id = v_one AND c.instance_id <> ALL (p_instances) ORDER BY c.incarnation LIMIT 1;
        IF orphan IS NOT NULL THEN
            refused := v_one;
            PERFORM unlock_instances_1(p_instances);
            RETURN;
        END IF;
    END LOOP;
    FOREACH v_one IN ARRAY p_instances LOOP
        -- An id that is not an instance (yet) has nothing to delete; what is queued for it stays.
        CONTINUE WHEN NOT EXISTS (SELECT 1 FROM instances WHERE instance_id = v_one);
        v_status := current_status_1(v_one);
        v_running := v_running + CASE WHEN v_status = 'Running' THEN 1 ELSE 0 END;
        v_completed := v_completed + CASE WHEN v_status = 'Completed' THEN 1 ELSE 0 END;
        v_failed := v_failed + CASE WHEN v_status = 'Failed' THEN 1 ELSE 0 END;
        DELETE FROM history WHERE instance_id = v_one;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        events_deleted := events_deleted + v_count;
        DELETE FROM executions WHERE instance_id = v_one;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        executions_deleted := executions_deleted + v_count;
        DELETE FROM orchestrator_queue WHERE instance_id = v_one AND parked_at IS NULL;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        messages_deleted := messages_deleted + v_count;
        DELETE FROM orchestrator_queue WHERE instance_id = v_one AND parked_at IS NOT NULL;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        messages_deleted := messages_deleted + v_count;
        WITH gone AS (DELETE FROM worker_queue WHERE instance_id = v_one RETURNING session_id, route),
        seats AS (
            INSERT INTO session_arrivals (sessions, routes)
            SELECT array_agg(session_id), array_agg(route) FROM gone WHERE session_id IS NOT NULL HAVING count(*) > 0)
        SELECT count(*) INTO v_count FROM gone;
        messages_deleted := messages_deleted + v_count;
        DELETE FROM kv_store WHERE instance_id = v_one;
        DELETE FROM kv_delta WHERE instance_id = v_one;
        DELETE FROM instance_schedule WHERE instance_id = v_one;
        DELETE FROM instances WHERE instance_id = v_one;
        instances_deleted := instances_deleted + 1;
    END LOOP;
    PERFORM unlock_instances_1(p_instances);
    PERFORM add_totals_1(p_slot, -instances_deleted, -executions_deleted, -events_deleted, -v_running, -v_completed,
        -v_failed);
END $$;

-- Deletes a finished root with all its descendants, running ones too. A root that is running after all stays.
CREATE FUNCTION delete_tree_1(p_slot integer, p_root text,
    OUT instances_deleted bigint, OUT executions_deleted bigint, OUT events_deleted bigint, OUT messages_deleted bigint,
    OUT refused text, OUT orphan text, OUT deleted text[])
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_instances_1(ARRAY[p_root]);
    IF is_running_1(p_root) THEN
        PERFORM unlock_instances_1(ARRAY[p_root]);
        refused := p_root;
        RETURN;
    END IF;
    WITH RECURSIVE tree (id) AS (
        SELECT p_root COLLATE "C"
        UNION
        SELECT c.instance_id FROM tree t JOIN instances c ON c.parent_instance_id = t.id)
    SELECT array_agg(id) INTO deleted FROM tree;
    SELECT d.instances_deleted, d.executions_deleted, d.events_deleted, d.messages_deleted, d.refused, d.orphan
    INTO instances_deleted, executions_deleted, events_deleted, messages_deleted, refused, orphan
    FROM delete_instances_1(p_slot, deleted, true) d;
END $$;

-- Removes old executions of one instance; never the current one, never a running one. `found` is false if there is no
-- such instance.
CREATE FUNCTION prune_1(p_slot integer, p_instance text, p_keep_last bigint, p_before bigint,
    OUT found_instance boolean, OUT executions_deleted bigint, OUT events_deleted bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_current bigint;
    v_old bigint[];
BEGIN
    executions_deleted := 0;
    events_deleted := 0;
    SELECT current_execution_id INTO v_current FROM instances WHERE instance_id = p_instance;
    found_instance := v_current IS NOT NULL;
    SELECT array_agg(e.execution_id) INTO v_old FROM executions e
    WHERE e.instance_id = p_instance AND e.execution_id <> v_current AND e.status <> 'Running'
        AND e.execution_id NOT IN (
            SELECT k.execution_id FROM executions k WHERE k.instance_id = p_instance
            ORDER BY k.execution_id DESC LIMIT p_keep_last)
        AND (p_before IS NULL OR e.completed_at < p_before);
    IF v_old IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM history WHERE instance_id = p_instance AND execution_id = ANY (v_old);
    GET DIAGNOSTICS events_deleted = ROW_COUNT;
    DELETE FROM executions WHERE instance_id = p_instance AND execution_id = ANY (v_old);
    GET DIAGNOSTICS executions_deleted = ROW_COUNT;
    PERFORM add_totals_1(p_slot, 0, -executions_deleted, -events_deleted, 0, 0, 0);
END $$;
