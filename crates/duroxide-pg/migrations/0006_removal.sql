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

-- The first of these instances that is running, or between two executions with the next one's start still queued; NULL if
-- none is.
CREATE FUNCTION first_running_1(p_instances text[], OUT place bigint, OUT instance text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT u.place, u.i INTO place, instance FROM unnest(p_instances) WITH ORDINALITY u(i, place)
    JOIN instances n ON n.instance_id = u.i
    JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
    WHERE e.status = 'Running' OR (e.status = 'ContinuedAsNew' AND (
        SELECT 1 FROM orchestrator_queue q
        WHERE q.instance_id = u.i AND q.parked_at IS NULL AND q.class = 'start' LIMIT 1) IS NOT NULL)
    ORDER BY u.place LIMIT 1;
END $$;

-- The first of these instances that has a child which is not among them, and its oldest one; NULL if none has.
CREATE FUNCTION first_orphan_1(p_instances text[], OUT place bigint, OUT instance text, OUT child text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT u.place, u.i, c.instance_id INTO place, instance, child FROM unnest(p_instances) WITH ORDINALITY u(i, place)
    JOIN instances c ON c.parent_instance_id = u.i
    WHERE c.instance_id NOT IN (SELECT unnest(p_instances))
    ORDER BY u.place, c.incarnation LIMIT 1;
END $$;

-- Deletes all of these instances or none. Returns what was removed, or why nothing was: an instance that is running, or
-- a child (of `refused`) that would be left behind.
CREATE FUNCTION delete_instances_1(p_slot integer, p_instances text[], p_force boolean,
    OUT instances_deleted bigint, OUT executions_deleted bigint, OUT events_deleted bigint, OUT messages_deleted bigint,
    OUT refused text, OUT orphan text)
LANGUAGE plpgsql AS $$
DECLARE
    v_busy_at bigint;
    v_busy text;
    v_parent record;
    v_present text[];
    v_count bigint;
    v_running bigint;
    v_completed bigint;
    v_failed bigint;
BEGIN
    executions_deleted := 0;
    events_deleted := 0;
    messages_deleted := 0;
    PERFORM lock_instances_1(p_instances);
    IF NOT p_force THEN
        SELECT r.place, r.instance INTO v_busy_at, v_busy FROM first_running_1(p_instances) r;
    END IF;
    v_parent := first_orphan_1(p_instances);
    IF v_busy_at IS NOT NULL OR v_parent.place IS NOT NULL THEN
        -- It is the first one that is told of; if it has both, that it runs.
        IF v_busy_at <= v_parent.place OR v_parent.place IS NULL THEN
            refused := v_busy;
        ELSE
            refused := v_parent.instance;
            orphan := v_parent.child;
        END IF;
        instances_deleted := 0;
        PERFORM unlock_instances_1(p_instances);
        RETURN;
    END IF;
    -- An id that is not an instance (yet) has nothing to delete; what is queued for it stays.
    SELECT array_agg(n.instance_id), count(*), count(*) FILTER (WHERE e.status = 'Running'),
        count(*) FILTER (WHERE e.status = 'Completed'), count(*) FILTER (WHERE e.status = 'Failed')
    INTO v_present, instances_deleted, v_running, v_completed, v_failed FROM instances n
    LEFT JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
    WHERE n.instance_id = ANY (p_instances);
    IF v_present IS NOT NULL THEN
        DELETE FROM history WHERE instance_id = ANY (v_present);
        GET DIAGNOSTICS events_deleted = ROW_COUNT;
        DELETE FROM executions WHERE instance_id = ANY (v_present);
        GET DIAGNOSTICS executions_deleted = ROW_COUNT;
        DELETE FROM orchestrator_queue WHERE instance_id = ANY (v_present) AND parked_at IS NULL;
        GET DIAGNOSTICS messages_deleted = ROW_COUNT;
        DELETE FROM orchestrator_queue WHERE instance_id = ANY (v_present) AND parked_at IS NOT NULL;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        messages_deleted := messages_deleted + v_count;
        WITH doomed AS (
            SELECT id FROM worker_queue WHERE instance_id = ANY (v_present) ORDER BY id FOR UPDATE),
        gone AS (DELETE FROM worker_queue w USING doomed d WHERE w.id = d.id RETURNING w.session_id, w.route),
        seats AS (
            INSERT INTO session_arrivals (sessions, routes)
            SELECT array_agg(session_id), array_agg(route) FROM gone WHERE session_id IS NOT NULL HAVING count(*) > 0)
        SELECT count(*) INTO v_count FROM gone;
        messages_deleted := messages_deleted + v_count;
        DELETE FROM kv_store WHERE instance_id = ANY (v_present);
        DELETE FROM kv_delta WHERE instance_id = ANY (v_present);
        DELETE FROM instance_schedule WHERE instance_id = ANY (v_present);
        DELETE FROM instances WHERE instance_id = ANY (v_present);
    END IF;
    PERFORM unlock_instances_1(p_instances);
    PERFORM add_totals_1(p_slot, -instances_deleted, -executions_deleted, -events_deleted, -v_running, -v_completed,
        -v_failed);
END $$;

-- Deletes a finished root with all its descendants, running ones too. A root that is running after all stays.
CREATE FUNCTION delete_tree_1(p_slot integer, p_root text,
    OUT instances_deleted bigint, OUT executions_deleted bigint, OUT events_deleted bigint, OUT messages_deleted bigint,
    OUT refused text, OUT orphan text, OUT deleted text[])
LANGUAGE plpgsql AS $$
DECLARE
    v_busy record;
BEGIN
    PERFORM lock_instances_1(ARRAY[p_root]);
    v_busy := first_running_1(ARRAY[p_root]);
    IF v_busy.place IS NOT NULL THEN
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
