-- A lone start and a lone end by themselves, as `store_step_1` is for what is between them: an instance that does one thing pays
-- for two commits, and for as few statements in each as they need.

-- An instance that is entered with its status needs nobody who looks for it, unless it has a root to be found.
DROP TRIGGER instance_is_listed ON instances;
CREATE TRIGGER instance_is_listed BEFORE INSERT ON instances FOR EACH ROW
    WHEN (NEW.listed_status = '' OR NEW.parent_instance_id IS NOT NULL) EXECUTE FUNCTION list_instance_1();

-- The most common start by itself: no parent, and a turn that changes nothing but history and new activities, which fit the
-- claim, for one route and without sessions. Answers as `store_steps_1`, which it calls if anything is unusual.
CREATE FUNCTION store_start_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text, p_execution bigint, p_name text, p_version text, p_pinned text, p_major bigint, p_minor bigint,
    p_patch bigint, p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_work_activity bigint[], p_work_route text[], p_work_item text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text, p_overtaking_ms bigint,
    OUT verdicts integer[], OUT details bigint[], OUT places integer[], OUT ids bigint[],
    OUT old_ids bigint[], OUT old_attempts bigint[], OUT old_items text[],
    OUT some_ready boolean, OUT some_told boolean, OUT next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_row tid := nullif(pg_catalog.current_setting('duroxide.committer_row', true), '');
    v_taken bigint;
    v_until bigint := v_now + least(p_claim_ms, 9223372036854775807 - v_now);
BEGIN
    -- Whoever queues a start of the same id at the same time meets this one, and looks again. It comes before the place of
    -- the instance, as it does for others.
    INSERT INTO orchestrator_queue AS q (instance_id, class, created_at, work_item, is_sole_start)
    VALUES (p_instance, 'start', v_now, '', true)
    ON CONFLICT (instance_id) WHERE is_sole_start DO NOTHING RETURNING q.id INTO v_taken;
    IF v_taken IS NOT NULL THEN
        DELETE FROM orchestrator_queue q WHERE q.id = v_taken;
        INSERT INTO instance_schedule (instance_id, lock_token) VALUES (p_instance, 'step_' || p_committer)
        ON CONFLICT (instance_id) DO NOTHING;
        IF FOUND THEN
            WITH fits AS MATERIALIZED (
                SELECT 1
                WHERE (SELECT 1 FROM instances n WHERE n.instance_id = p_instance) IS NULL
                    AND (SELECT 1 FROM history h WHERE h.instance_id = p_instance LIMIT 1) IS NULL
                    AND (SELECT 1 FROM executions e WHERE e.instance_id = p_instance LIMIT 1) IS NULL
                    AND (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = p_instance LIMIT 1) IS NULL
                    -- Nothing that waits for its turn is overtaken, unless for a moment.
                    AND (SELECT 1 FROM worker_queue w WHERE w.due_at <= v_now - p_overtaking_ms ORDER BY w.due_at LIMIT 1)
                        IS NULL
                    AND coalesce((SELECT w.created_at FROM worker_queue w
                         WHERE w.route = p_claim_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL
                         ORDER BY w.id LIMIT 1)
                        > v_now - p_overtaking_ms AND pg_catalog.cardinality(p_work_activity) >= p_claim_max, true)),
            begun AS (
                INSERT INTO executions (instance_id, execution_id, status, started_at, duroxide_version_major,
                    duroxide_version_minor, duroxide_version_patch)
                SELECT p_instance, p_execution, 'Running', v_now, p_major, p_minor, p_patch FROM fits),
            made AS (
                INSERT INTO instances AS n (instance_id, orchestration_name, orchestration_version, current_execution_id,
                    created_at, updated_at, pinned_version, listed_status)
                SELECT p_instance, p_name, p_version, p_execution, v_now, v_now, coalesce(p_pinned, ''), 'Running' FROM fits
                RETURNING n.incarnation),
            told AS (
                INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
                SELECT p_instance, p_execution, e.id, e.type, v_now, e.data
                FROM fits, unnest(p_event_id, p_event_type, p_event_data) e(id, type, data)),
            new AS MATERIALIZED (
                SELECT pg_catalog.nextval('worker_queue_id_seq') AS id, w.activity, w.route, w.item
                FROM fits, unnest(p_work_activity, p_work_route, p_work_item) w(activity, route, item)),
            entered AS (
                INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, route, due_at, lock_token, locked_until,
                    attempt_count, created_at, work_item)
                OVERRIDING SYSTEM VALUE
                SELECT n.id, p_instance, p_execution, n.activity, n.route, v_until, 'lock_' || p_claim_seed || '_' || n.id,
                    v_until, 1, v_now, n.item
                FROM new n)
            SELECT '{0}', ARRAY[m.incarnation], ARRAY(SELECT n.id FROM new n) INTO verdicts, details, ids FROM made m;
            DELETE FROM instance_schedule s WHERE s.instance_id = p_instance;
        END IF;
    END IF;
    IF verdicts IS NULL THEN
        SELECT s.* INTO verdicts, details, places, ids, old_ids, old_attempts, old_items, some_ready, some_told, next_due
        FROM store_steps_1(p_now, p_committer, p_epoch, p_batch, false, ARRAY[p_instance], '{0}', ARRAY[p_execution],
            '{0}', ARRAY[NULL::text], ARRAY[p_execution], ARRAY[NULL::text], '{f}', ARRAY[NULL::text],
            ARRAY[p_name], ARRAY[p_version], ARRAY[NULL::text], ARRAY[p_pinned], ARRAY[p_major], ARRAY[p_minor],
            ARRAY[p_patch], '{f}', ARRAY[NULL::text], '{f}', false, '{}', '{}', '{}', '{}',
            pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_event_id)]), p_event_id, p_event_type, p_event_data,
            '{}', '{}', '{}', '{}',
            pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            pg_catalog.array_fill(p_instance, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            pg_catalog.array_fill(p_execution, ARRAY[pg_catalog.cardinality(p_work_activity)]), p_work_activity,
            pg_catalog.array_fill(NULL::text, ARRAY[pg_catalog.cardinality(p_work_activity)]), p_work_route, p_work_item,
            '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
            p_claim_max, p_claim_ms, p_claim_routes, p_claim_seed, p_overtaking_ms) s;
        RETURN;
    END IF;
    places := ARRAY(SELECT pg_catalog.generate_series(1, pg_catalog.cardinality(ids)));
    some_ready := false;
    some_told := false;
    UPDATE committers SET batch = coalesce(p_batch, batch), step_verdicts = NULL, step_batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN p_batch IS NULL THEN turn_verdicts END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
        deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
        seen_at = pg_catalog.now(), instances = instances + 1, executions = executions + 1,
        events = events + pg_catalog.cardinality(p_event_id), running_instances = running_instances + 1
    WHERE ctid = v_row AND committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
    IF FOUND THEN
        PERFORM pg_catalog.set_config('duroxide.committer_row', v_row::text, false);
    ELSE
        some_ready := NOT note_steps_1(p_committer, p_epoch, p_batch, '{0}', 1, 1, pg_catalog.cardinality(p_event_id), 1, 0, 0);
    END IF;
END $$;

-- The most common end by itself: the result of one activity, and a turn that ends an instance of which nothing else is left,
-- neither messages nor values to be kept. Answers as `store_steps_1`, which it calls if anything is unusual, or if there are
-- activities that the claim could have.
CREATE FUNCTION store_end_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text, p_held bigint, p_execution bigint, p_held_event bigint,
    p_result_id bigint, p_result_token text, p_result_waited_ms bigint, p_status text, p_output text,
    p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text, p_overtaking_ms bigint,
    OUT verdicts integer[], OUT details bigint[], OUT places integer[], OUT ids bigint[],
    OUT old_ids bigint[], OUT old_attempts bigint[], OUT old_items text[],
    OUT some_ready boolean, OUT some_told boolean, OUT next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_row tid := nullif(pg_catalog.current_setting('duroxide.committer_row', true), '');
    v_completed integer := CASE WHEN p_status = 'Completed' THEN 1 ELSE 0 END;
BEGIN
    INSERT INTO instance_schedule (instance_id, lock_token) VALUES (p_instance, 'step_' || p_committer)
    ON CONFLICT (instance_id) DO NOTHING;
    IF FOUND THEN
        WITH fits AS MATERIALIZED (
            SELECT 1 FROM instances n
            WHERE n.incarnation = p_held AND n.instance_id = p_instance AND n.current_execution_id = p_execution
                AND (SELECT h.event_id FROM history h WHERE h.instance_id = p_instance AND h.execution_id = p_execution
                     ORDER BY h.event_id DESC LIMIT 1) = p_held_event
                AND (SELECT e.status FROM executions e
                     WHERE e.instance_id = p_instance AND e.execution_id = p_execution) = 'Running'
                AND (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = p_instance LIMIT 1) IS NULL
                AND (SELECT 1 FROM kv_delta d WHERE d.instance_id = p_instance LIMIT 1) IS NULL
                AND (p_claim_max = 0
                    OR (SELECT 1 FROM worker_queue w
                        WHERE w.route = p_claim_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL LIMIT 1) IS NULL
                    AND (SELECT 1 FROM worker_queue w WHERE w.due_at <= v_now - p_overtaking_ms ORDER BY w.due_at LIMIT 1)
                        IS NULL)),
        done AS (
            DELETE FROM worker_queue w USING fits
            WHERE w.id = p_result_id AND w.lock_token = p_result_token AND w.locked_until > v_now - p_result_waited_ms
                AND w.session_id IS NULL
            RETURNING w.id),
        ended AS (
            UPDATE executions e SET status = p_status, output = p_output, completed_at = v_now FROM done
            WHERE e.instance_id = p_instance AND e.execution_id = p_execution),
        -- With the status that is listed, so that the trigger of the execution has nothing to change.
        touched AS (
            UPDATE instances n SET updated_at = v_now, listed_status = p_status FROM done WHERE n.incarnation = p_held),
        told AS (
            INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
            SELECT p_instance, p_execution, e.id, e.type, v_now, e.data
            FROM done, unnest(p_event_id, p_event_type, p_event_data) e(id, type, data))
        SELECT '{0}', ARRAY[p_held] INTO verdicts, details FROM done;
        DELETE FROM instance_schedule s WHERE s.instance_id = p_instance;
    END IF;
    IF verdicts IS NULL THEN
        SELECT s.* INTO verdicts, details, places, ids, old_ids, old_attempts, old_items, some_ready, some_told, next_due
        FROM store_steps_1(p_now, p_committer, p_epoch, p_batch, false, ARRAY[p_instance], ARRAY[p_held], ARRAY[p_execution],
            ARRAY[p_held_event], ARRAY[NULL::text], ARRAY[p_execution], ARRAY[p_status], '{t}', ARRAY[p_output],
            ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::text], '{NULL}', '{NULL}', '{NULL}', '{f}',
            ARRAY[NULL::text], '{f}', false, '{1}', ARRAY[p_result_id], ARRAY[p_result_token], ARRAY[p_result_waited_ms],
            pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_event_id)]), p_event_id, p_event_type, p_event_data,
            '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
            '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
            p_claim_max, p_claim_ms, p_claim_routes, p_claim_seed, p_overtaking_ms) s;
        RETURN;
    END IF;
    some_ready := false;
    some_told := false;
    UPDATE committers SET batch = coalesce(p_batch, batch), step_verdicts = NULL, step_batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN p_batch IS NULL THEN turn_verdicts END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
        deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
        seen_at = pg_catalog.now(), events = events + pg_catalog.cardinality(p_event_id),
        running_instances = running_instances - 1, completed_instances = completed_instances + v_completed,
        failed_instances = failed_instances + 1 - v_completed
    WHERE ctid = v_row AND committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
    IF FOUND THEN
        PERFORM pg_catalog.set_config('duroxide.committer_row', v_row::text, false);
    ELSE
        some_ready := NOT note_steps_1(p_committer, p_epoch, p_batch, '{0}', 0, 0, pg_catalog.cardinality(p_event_id), -1,
            v_completed, 1 - v_completed);
    END IF;
END $$;

-- How long the process that has set a timer goes first (see 0022): longer if it stores many steps at once, because then the turns
-- of its timers wait for each other. The rest of the function stays as it is.
DO $$
DECLARE
    v_before text := pg_catalog.pg_get_functiondef('store_steps_1'::regproc);
    v_after text := replace(v_before, 'CASE WHEN p_now IS NULL THEN 20 ELSE 0 END',
        'CASE WHEN p_now IS NULL THEN least(20 + 2 * pg_catalog.cardinality(p_instance), 300) ELSE 0 END');
BEGIN
    IF v_after = v_before THEN
        RAISE EXCEPTION 'store_steps_1 is not the one of migration 0022';
    END IF;
    EXECUTE v_after;
END $$;
