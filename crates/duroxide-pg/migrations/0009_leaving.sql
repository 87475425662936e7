-- What goes with an instance that is deleted or ends, and who takes the seat of an activity that ends late.

-- The parent of a child whose start is queued.
ALTER TABLE orchestrator_queue ADD COLUMN parent_instance_id text COLLATE "C";
CREATE INDEX orchestrator_queue_by_parent ON orchestrator_queue (parent_instance_id)
    WHERE parent_instance_id IS NOT NULL;

-- Finds the parents of starts that are queued already. Each by itself: a text that does not decode has none.
DO $$
DECLARE
    v_start record;
BEGIN
    FOR v_start IN SELECT id, work_item FROM orchestrator_queue WHERE class = 'start' LOOP
        BEGIN
            UPDATE orchestrator_queue
            SET parent_instance_id = v_start.work_item::json -> 'StartOrchestration' ->> 'parent_instance'
            WHERE id = v_start.id;
        EXCEPTION WHEN data_exception THEN
            NULL;
        END;
    END LOOP;
END $$;

-- The children of these instances whose starts are queued.
CREATE FUNCTION queued_children_1(p_parents text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT array_agg(DISTINCT instance_id) FROM orchestrator_queue
            WHERE parent_instance_id = ANY (p_parents));
END $$;

-- Deletes the queued starts of these instances' children, which the caller has locked; returns how many messages went. A
-- turn that somebody is taking with one is over. What else waits for a child that does not exist goes with its start.
CREATE FUNCTION delete_queued_children_1(p_parents text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_child text;
    v_ids bigint[];
    v_count bigint;
    v_deleted bigint := 0;
BEGIN
    FOREACH v_child IN ARRAY coalesce(queued_children_1(p_parents), '{}') LOOP
        WITH gone AS (
            DELETE FROM orchestrator_queue
            WHERE parent_instance_id = ANY (p_parents) AND instance_id = v_child RETURNING id)
        SELECT array_agg(id), count(*) INTO v_ids, v_count FROM gone;
        v_deleted := v_deleted + v_count;
        IF NOT EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = v_child)
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = v_child)
            AND NOT EXISTS (SELECT 1 FROM orchestrator_queue q
                            WHERE q.instance_id = v_child AND q.parked_at IS NULL AND q.class = 'start') THEN
            DELETE FROM orchestrator_queue WHERE instance_id = v_child AND parked_at IS NULL;
            GET DIAGNOSTICS v_count = ROW_COUNT;
            v_deleted := v_deleted + v_count;
            DELETE FROM orchestrator_queue WHERE instance_id = v_child AND parked_at IS NOT NULL;
            GET DIAGNOSTICS v_count = ROW_COUNT;
            v_deleted := v_deleted + v_count;
            DELETE FROM instance_schedule WHERE instance_id = v_child;
        ELSE
            DELETE FROM instance_schedule WHERE instance_id = v_child AND (lock_token IS NULL OR batch && v_ids);
            IF FOUND THEN
                INSERT INTO arrivals (instances) VALUES (ARRAY[v_child]);
            END IF;
        END IF;
    END LOOP;
    RETURN v_deleted;
END $$;

-- Deletes all of these instances or none. Returns what was removed, or why nothing was: an instance that is running, or
-- a child (of `refused`) that would be left behind. Queued starts of their children go with them.
CREATE OR REPLACE FUNCTION delete_instances_1(p_slot integer, p_instances text[], p_force boolean,
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
    v_locked text[];
BEGIN
    executions_deleted := 0;
    events_deleted := 0;
    messages_deleted := 0;
    -- Their turns are the only ones that start children, so there are no others once these are locked.
    v_locked := p_instances || queued_children_1(p_instances);
    PERFORM lock_instances_1(v_locked);
    v_locked := v_locked || queued_children_1(p_instances);
    PERFORM lock_instances_1(v_locked);
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
        PERFORM unlock_instances_1(v_locked);
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
        messages_deleted := messages_deleted + delete_queued_children_1(v_present);
    END IF;
    PERFORM unlock_instances_1(v_locked);
    PERFORM add_totals_1(p_slot, -instances_deleted, -executions_deleted, -events_deleted, -v_running, -v_completed,
        -v_failed);
END $$;

-- As `enqueue_messages_1`; a start says whose child it is.
CREATE FUNCTION enqueue_messages_2(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text[], p_class text[], p_delay_ms bigint[], p_due bigint[], p_item text[],
    p_parent text[],
    p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS TABLE (
    instance text, token text, name text, version text, execution bigint, incarnation bigint, last_event bigint,
    status text, start_event text, message_ids bigint[], attempts bigint[], texts text[],
    now_at bigint, next_due bigint, more boolean, busy boolean, unknown_classes text[],
    dropped_for text[], dropped_count bigint[], in_line boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_noted boolean;
    v_now bigint;
    v_touched text[];
    v_next_due bigint;
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    v_now := now_ms_1(p_now);
    WITH new AS (
        INSERT INTO orchestrator_queue AS q (instance_id, class, visible_at, created_at, work_item, parent_instance_id)
        SELECT m.instance_id, m.class, CASE WHEN v.at <= v_now THEN 0 ELSE v.at END, v_now, m.item, m.parent
        FROM unnest(p_instance, p_class, p_delay_ms, p_due, p_item, p_parent)
            WITH ORDINALITY m(instance_id, class, delay, due, item, parent, place)
        CROSS JOIN LATERAL (SELECT greatest(v_now + least(m.delay, 9223372036854775807 - v_now), m.due) AS at) v
        ORDER BY m.place
        RETURNING q.instance_id, q.visible_at)
    SELECT array_agg(DISTINCT n.instance_id), min(n.visible_at) FILTER (WHERE n.visible_at > 0)
    INTO v_touched, v_next_due FROM new n;
    IF p_max > 0 THEN
        RETURN QUERY SELECT c.*
        FROM claim_instances_1(p_now, p_max, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, v_touched) c;
    ELSE
        INSERT INTO arrivals (instances) VALUES (v_touched);
        in_line := true;
    END IF;
    now_at := v_now;
    next_due := v_next_due;
    RETURN NEXT;
END $$;

-- As `enqueue_starts_1`; a start says whose child it is.
CREATE FUNCTION enqueue_starts_2(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_instance text[], p_item text[],
    p_parent text[],
    p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS TABLE (
    instance text, token text, name text, version text, execution bigint, incarnation bigint, last_event bigint,
    status text, start_event text, message_ids bigint[], attempts bigint[], texts text[],
    now_at bigint, next_due bigint, more boolean, busy boolean, unknown_classes text[],
    dropped_for text[], dropped_count bigint[], in_line boolean, enqueued integer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_noted boolean;
    v_now bigint;
    v_new integer[];
    v_touched text[];
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    PERFORM pg_advisory_xact_lock(k.key) FROM (
        SELECT DISTINCT hashtextextended(current_schema() || chr(31) || i, 17) AS key FROM unnest(p_instance) i
        ORDER BY 1) k;
    v_now := now_ms_1(p_now);
    SELECT array_agg(f.place ORDER BY f.place) INTO v_new FROM (
        SELECT min(s.place)::integer AS place FROM unnest(p_instance) WITH ORDINALITY s(i, place)
        WHERE NOT EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = s.i)
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = s.i)
            AND NOT EXISTS (SELECT 1 FROM orchestrator_queue q
                            WHERE q.instance_id = s.i AND q.parked_at IS NULL AND q.class = 'start')
        GROUP BY s.i) f;
    IF coalesce(cardinality(v_new), 0) < cardinality(p_instance) THEN
        UPDATE committers SET taken_starts = ARRAY(
            SELECT o FROM generate_subscripts(p_instance, 1) o WHERE v_new IS NULL OR o <> ALL (v_new))
        WHERE committer = p_committer;
    END IF;
    in_line := false;
    IF v_new IS NOT NULL THEN
        INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item, parent_instance_id)
        SELECT p_instance[o], 'start', v_now, p_item[o], p_parent[o] FROM unnest(v_new) o ORDER BY o;
        v_touched := ARRAY(SELECT p_instance[o] FROM unnest(v_new) o);
        IF p_max > 0 THEN
            RETURN QUERY SELECT c.*, NULL::integer[]
            FROM claim_instances_1(p_now, p_max, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, v_touched) c;
        ELSE
            INSERT INTO arrivals (instances) VALUES (v_touched);
            in_line := true;
        END IF;
    END IF;
    enqueued := v_new;
    RETURN NEXT;
END $$;

-- As `ack_turns_1`; a start says whose child it is, and what an instance still has in the queue goes with it when it ends.
-- When it continues as new, that is what the ended execution waited for; signals and messages are for the next one.
CREATE FUNCTION ack_turns_2(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_careful boolean,
    p_token text[], p_instance text[], p_waited_ms bigint[], p_execution bigint[], p_status text[], p_terminal boolean[],
    p_output text[], p_name text[], p_version text[], p_parent text[], p_pinned text[], p_major bigint[],
    p_minor bigint[], p_patch bigint[], p_custom_set boolean[], p_custom text[], p_kv_cleared boolean[],
    p_event_turn integer[], p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_kv_turn integer[], p_kv_key text[], p_kv_value text[], p_kv_ms bigint[],
    p_work_turn integer[], p_work_instance text[], p_work_execution bigint[], p_work_activity bigint[],
    p_work_session text[], p_work_route text[], p_work_item text[],
    p_cancel_turn integer[], p_cancel_instance text[], p_cancel_execution bigint[], p_cancel_activity bigint[],
    p_message_turn integer[], p_message_instance text[], p_message_class text[], p_message_due bigint[],
    p_message_item text[], p_message_parent text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text)
RETURNS TABLE (place integer, verdict integer, detail bigint, token text, attempts bigint, item text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_arrived bigint := now_ms_1(p_now);
    v_now bigint;
    v_instance text;
    v_execution bigint;
    v_status text;
    v_pinned text;
    v_is_named boolean;
    v_verdict integer[] := '{}';
    v_mine text[] := '{}';
    v_ended text[];
    v_over text[];
    v_continued text[];
    v_batch bigint[];
    v_batches bigint[] := '{}';
    v_current bigint;
    v_before text;
    v_after text;
    v_is_new boolean;
    v_instances bigint := 0;
    v_executions bigint := 0;
    v_events bigint := 0;
    v_running bigint := 0;
    v_completed bigint := 0;
    v_failed bigint := 0;
    v_told text[];
    v_touched text[];
    v_next_due bigint;
    v_old bigint[];
    v_work record;
    v_notes integer := 0;
    v_noted boolean;
BEGIN
    FOR v_turn IN 1..cardinality(p_token) LOOP
        v_instance := p_instance[v_turn];
        v_execution := p_execution[v_turn];
        place := v_turn;
        detail := NULL;
        IF p_careful THEN
            SELECT min(h.event_id) INTO detail FROM unnest(p_event_turn, p_event_id) e(turn, id)
            JOIN history h ON h.instance_id = v_instance AND h.execution_id = v_execution AND h.event_id = e.id
            WHERE e.turn = v_turn AND EXISTS (
                SELECT 1 FROM instance_schedule s WHERE s.instance_id = v_instance AND s.lock_token = p_token[v_turn]
                AND s.locked_until > v_arrived - p_waited_ms[v_turn]);
        END IF;
        IF detail IS NOT NULL THEN
            verdict := 3;
        ELSE
            -- The lease is over.
            DELETE FROM instance_schedule s WHERE s.instance_id = v_instance AND s.lock_token = p_token[v_turn]
                AND s.locked_until > v_arrived - p_waited_ms[v_turn] RETURNING s.batch INTO v_batch;
            IF FOUND THEN
                verdict := 0;
            ELSE
                SELECT count(*) + 1 INTO verdict FROM instance_schedule s
                WHERE s.instance_id = v_instance AND s.lock_token = p_token[v_turn];
            END IF;
        END IF;
        v_verdict := v_verdict || verdict;
        IF verdict <> 0 THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        v_mine := v_mine || v_instance;
        v_batches := v_batches || v_batch;
        v_now := now_ms_1(p_now);
        v_status := p_status[v_turn];
        v_pinned := p_pinned[v_turn];
        v_is_named := p_name[v_turn] IS NOT NULL AND p_version[v_turn] IS NOT NULL;

        SELECT n.incarnation, n.current_execution_id, e.status INTO detail, v_current, v_before
        FROM instances n
        LEFT JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
        WHERE n.instance_id = v_instance;
        v_is_new := false;
        IF v_before IS NULL OR v_current <> v_execution THEN
            INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, duroxide_version_major,
                duroxide_version_minor, duroxide_version_patch, output)
            VALUES (v_instance, v_execution, coalesce(v_status, 'Running'), v_now,
                CASE WHEN p_terminal[v_turn] THEN v_now END, p_major[v_turn], p_minor[v_turn], p_patch[v_turn],
                CASE WHEN v_status IS NOT NULL THEN p_output[v_turn] END)
            ON CONFLICT DO NOTHING;
            v_is_new := FOUND;
        END IF;
        IF v_is_new THEN
            v_executions := v_executions + 1;
        ELSIF v_status IS NOT NULL OR v_pinned IS NOT NULL THEN
            UPDATE executions e SET
                status = coalesce(v_status, e.status),
                output = CASE WHEN v_status IS NOT NULL THEN p_output[v_turn] ELSE e.output END,
                completed_at = CASE WHEN v_status IS NULL THEN e.completed_at WHEN p_terminal[v_turn] THEN v_now END,
                duroxide_version_major = CASE WHEN v_pinned IS NOT NULL THEN p_major[v_turn]
                    ELSE e.duroxide_version_major END,
                duroxide_version_minor = CASE WHEN v_pinned IS NOT NULL THEN p_minor[v_turn]
                    ELSE e.duroxide_version_minor END,
                duroxide_version_patch = CASE WHEN v_pinned IS NOT NULL THEN p_patch[v_turn]
                    ELSE e.duroxide_version_patch END
            WHERE e.instance_id = v_instance AND e.execution_id = v_execution;
        END IF;
        IF v_current IS NOT NULL THEN
            UPDATE instances n SET
                updated_at = v_now,
                current_execution_id = greatest(n.current_execution_id, v_execution),
                pinned_version = CASE
                    WHEN v_pinned IS NOT NULL AND v_execution >= n.current_execution_id THEN v_pinned
                    WHEN v_pinned IS NULL AND v_execution > n.current_execution_id THEN ''
                    ELSE n.pinned_version END,
                orchestration_name = CASE WHEN v_is_named THEN p_name[v_turn] ELSE n.orchestration_name END,
                orchestration_version = CASE WHEN v_is_named THEN p_version[v_turn] ELSE n.orchestration_version END,
                custom_status = CASE WHEN p_custom_set[v_turn] THEN p_custom[v_turn] ELSE n.custom_status END,
                custom_status_version = n.custom_status_version + CASE WHEN p_custom_set[v_turn] THEN 1 ELSE 0 END
            WHERE n.incarnation = detail;
        ELSIF v_is_named THEN
            INSERT INTO instances AS n (instance_id, orchestration_name, orchestration_version, current_execution_id,
                created_at, updated_at, parent_instance_id, pinned_version, custom_status_version, custom_status)
            VALUES (v_instance, p_name[v_turn], p_version[v_turn], v_execution, v_now, v_now, p_parent[v_turn],
                -- A turn without a name may have recorded and pinned the execution before.
                coalesce(v_pinned, CASE WHEN NOT v_is_new THEN (
                    SELECT e.duroxide_version_major || '.' || e.duroxide_version_minor || '.' || e.duroxide_version_patch
                    FROM executions e WHERE e.instance_id = v_instance AND e.execution_id = v_execution) END, ''),
                CASE WHEN p_custom_set[v_turn] THEN 1 ELSE 0 END, p_custom[v_turn])
            RETURNING n.incarnation INTO detail;
            v_instances := v_instances + 1;
        END IF;

        -- The status that the instance had, and the one that it has.
        IF detail IS NOT NULL AND (v_current IS NULL OR v_status IS NOT NULL OR v_execution > v_current) THEN
            IF v_execution >= coalesce(v_current, 0) AND v_status IS NOT NULL THEN
                v_after := v_status;
            ELSE
                SELECT e.status INTO v_after FROM executions e
                WHERE e.instance_id = v_instance AND e.execution_id = greatest(v_current, v_execution);
            END IF;
            v_running := v_running + coalesce((v_after = 'Running')::integer, 0)
                - coalesce((v_before = 'Running')::integer, 0);
            v_completed := v_completed + coalesce((v_after = 'Completed')::integer, 0)
                - coalesce((v_before = 'Completed')::integer, 0);
            v_failed := v_failed + coalesce((v_after = 'Failed')::integer, 0)
                - coalesce((v_before = 'Failed')::integer, 0);
        END IF;
        IF p_terminal[v_turn] THEN
            v_ended := v_ended || v_instance;
            IF v_execution < v_current THEN
                NULL;
            ELSIF v_status = 'ContinuedAsNew' THEN
                v_continued := v_continued || v_instance;
            ELSE
                v_over := v_over || v_instance;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
    token := NULL;
    IF cardinality(v_mine) = 0 THEN
        v_noted := note_turns_1(p_committer, p_epoch, p_batch, v_verdict, 0, 0, 0, 0, 0, 0);
        place := 0;
        verdict := 0;
        detail := NULL;
        RETURN NEXT;
        RETURN;
    END IF;

    INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
    SELECT p_instance[p_event_turn[e]], p_execution[p_event_turn[e]], p_event_id[e], p_event_type[e], v_now,
        p_event_data[e]
    FROM generate_series(1, cardinality(p_event_turn)) e WHERE v_verdict[p_event_turn[e]] = 0;
    GET DIAGNOSTICS v_events = ROW_COUNT;

    IF cardinality(p_kv_turn) > 0 OR true = ANY (p_kv_cleared) THEN
        PERFORM change_values_1(v_now, v_verdict, p_instance, p_kv_cleared, p_kv_turn, p_kv_key, p_kv_value, p_kv_ms);
    END IF;
    IF v_ended IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM kv_delta WHERE instance_id = ANY (v_ended)) THEN
            PERFORM merge_values_1(v_ended);
        END IF;
    END IF;
    IF cardinality(p_cancel_turn) > 0 THEN
        WITH gone AS (
            DELETE FROM worker_queue w
            USING unnest(p_cancel_turn, p_cancel_instance, p_cancel_execution, p_cancel_activity)
                c(turn, instance_id, execution_id, activity_id)
            WHERE v_verdict[c.turn] = 0 AND w.instance_id = c.instance_id AND w.execution_id = c.execution_id
                AND w.activity_id = c.activity_id
            RETURNING w.session_id, w.route)
        INSERT INTO session_arrivals (sessions, routes)
        SELECT array_agg(session_id), array_agg(route) FROM gone WHERE session_id IS NOT NULL HAVING count(*) > 0;
    END IF;
    IF p_claim_max > 0 THEN
        -- As `work_is_due_1` tells; a call of it costs as much again. An activity of a session that waits for its turn is
        -- older than those of these turns, and only `claim_work_1` knows who may take it.
        IF EXISTS (SELECT 1 FROM worker_queue WHERE due_at <= v_now)
            OR EXISTS (SELECT 1 FROM sessions WHERE due_at <= v_now) OR EXISTS (SELECT 1 FROM session_arrivals)
            OR EXISTS (SELECT 1 FROM worker_queue WHERE ready_for IS NOT NULL) THEN
            v_notes := 4;
            p_claim_max := 0;
        ELSE
            v_old := oldest_work_1(p_claim_max, p_claim_routes);
        END IF;
        IF v_old IS NOT NULL THEN
            RETURN QUERY SELECT NULL::integer, NULL::integer, l.id, l.token, l.attempts, l.item
            FROM lease_work_1(p_now, v_old, p_claim_ms, p_claim_seed) l;
            p_claim_max := p_claim_max - cardinality(v_old);
        END IF;
    END IF;
    IF cardinality(p_work_turn) > 0 THEN
        v_work := enter_work_1(p_now, v_verdict, p_work_turn, p_work_instance, p_work_execution, p_work_activity,
            p_work_session, p_work_route, p_work_item, p_claim_max, p_claim_ms, p_claim_routes, p_claim_seed);
        FOR v_at IN 1..coalesce(cardinality(v_work.places), 0) LOOP
            place := v_work.places[v_at];
            verdict := NULL;
            detail := v_work.ids[v_at];
            token := work_token_1(p_claim_seed, detail);
            attempts := 1;
            RETURN NEXT;
        END LOOP;
        IF v_work.some_ready THEN
            v_notes := v_notes | 2;
        END IF;
    END IF;

    DELETE FROM orchestrator_queue WHERE id = ANY (v_batches);
    -- What nobody will read goes. A start has somebody who waits for its answer.
    IF v_over IS NOT NULL THEN
        DELETE FROM orchestrator_queue WHERE instance_id = ANY (v_over) AND parked_at IS NULL AND class <> 'start';
    END IF;
    IF v_continued IS NOT NULL THEN
        DELETE FROM orchestrator_queue
        WHERE instance_id = ANY (v_continued) AND parked_at IS NULL AND class = 'completion';
    END IF;
    IF cardinality(p_message_turn) > 0 THEN
        WITH new AS (
            INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item, parent_instance_id)
            SELECT p_message_instance[m], p_message_class[m],
                CASE WHEN p_message_due[m] <= v_now THEN 0 ELSE p_message_due[m] END, v_now, p_message_item[m],
                p_message_parent[m]
            FROM generate_series(1, cardinality(p_message_turn)) m WHERE v_verdict[p_message_turn[m]] = 0
                AND (v_over IS NULL OR p_message_class[m] = 'start'
                    OR p_message_instance[m] <> p_instance[p_message_turn[m]] OR p_message_instance[m] <> ALL (v_over))
                AND (v_continued IS NULL OR p_message_class[m] <> 'completion'
                    OR p_message_instance[m] <> p_instance[p_message_turn[m]]
                    OR p_message_instance[m] <> ALL (v_continued))
            ORDER BY m
            RETURNING instance_id, visible_at)
        SELECT array_agg(DISTINCT instance_id), min(visible_at) FILTER (WHERE visible_at > 0) INTO v_told, v_next_due
        FROM new;
    END IF;
    -- Whoever still has messages is looked at again, by the next fetch. Not EXISTS, which the planner may answer by reading
    -- all of the table into a hash.
    SELECT v_told || array_agg(i) INTO v_touched FROM unnest(v_mine) i
    WHERE (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i AND q.parked_at IS NULL LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i AND q.parked_at IS NOT NULL LIMIT 1) IS NOT NULL;
    IF v_touched IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_touched);
        v_notes := v_notes | 1;
    END IF;
    v_noted := note_turns_1(p_committer, p_epoch, p_batch, v_verdict, v_instances, v_executions, v_events, v_running,
        v_completed, v_failed);
    place := 0;
    verdict := v_notes;
    detail := v_next_due;
    token := NULL;
    attempts := NULL;
    item := NULL;
    RETURN NEXT;
END $$;

-- Extends a live lease on an activity; never shortens it.
CREATE OR REPLACE FUNCTION renew_work_1(p_now bigint, p_id bigint, p_token text, p_waited_ms bigint, p_extend_ms bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_arrived bigint := now_ms_1(p_now) - p_waited_ms;
    v_now bigint;
    v_until bigint;
    v_session text;
    v_route text;
    v_due_at bigint;
BEGIN
    SELECT locked_until, session_id, route, due_at INTO v_until, v_session, v_route, v_due_at FROM worker_queue
    WHERE id = p_id AND lock_token = p_token FOR UPDATE;
    IF v_until IS NULL OR v_until <= v_arrived THEN
        RETURN false;
    END IF;
    v_now := now_ms_1(p_now);
    v_until := greatest(v_until, v_now + least(p_extend_ms, 9223372036854775807 - v_now));
    UPDATE worker_queue SET locked_until = v_until, due_at = v_until, ready_for = NULL WHERE id = p_id;
    IF v_session IS NOT NULL THEN
        UPDATE sessions SET last_activity_at = v_now WHERE session_id = v_session AND locked_until > v_now;
        IF v_due_at IS NULL THEN
            -- Others have seen the lease run out and given it the seat, which is the next one's now.
            INSERT INTO session_arrivals (sessions, routes) VALUES (ARRAY[v_session], ARRAY[v_route]);
        END IF;
    END IF;
    RETURN true;
END $$;

-- Removes activities and enqueues their completions (NULL for none). One that is no longer held is left alone: it must
-- be leased with this token, by a lease that was live when the ack arrived. If `p_max` is not 0 and any was still held,
-- leases instances along with it, as `claim_instances_1` does. Rows are its rows; one more, the last, has the positions of
-- what was done, and whether any instance got a message.
CREATE OR REPLACE FUNCTION store_results_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_id bigint[], p_token text[], p_waited_ms bigint[], p_instance text[], p_class text[], p_item text[],
    p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS TABLE (
    instance text, token text, name text, version text, execution bigint, incarnation bigint, last_event bigint,
    status text, start_event text, message_ids bigint[], attempts bigint[], texts text[],
    now_at bigint, next_due bigint, more boolean, busy boolean, unknown_classes text[],
    dropped_for text[], dropped_count bigint[], in_line boolean, done integer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_noted boolean;
    v_arrived bigint;
    v_now bigint;
    v_session text;
    v_route text;
    v_seated text;
    v_sessions text[];
    v_left text[];
    v_routes text[];
    v_done integer[];
    v_touched text[];
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    v_arrived := now_ms_1(p_now);
    FOR v_place IN 1 .. cardinality(p_id) LOOP
        DELETE FROM worker_queue w WHERE w.id = p_id[v_place] AND w.lock_token = p_token[v_place]
            AND w.locked_until > v_arrived - p_waited_ms[v_place]
        RETURNING w.session_id, w.route, w.ready_for INTO v_session, v_route, v_seated;
        CONTINUE WHEN NOT FOUND;
        v_now := now_ms_1(p_now);
        v_done := v_done || v_place;
        IF v_session IS NOT NULL THEN
            v_sessions := v_sessions || v_session;
        END IF;
        IF v_seated IS NOT NULL THEN
            v_left := v_left || v_session;
            v_routes := v_routes || v_route;
        END IF;
        IF p_item[v_place] IS NOT NULL THEN
            INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
            VALUES (p_instance[v_place], p_class[v_place], v_now, p_item[v_place]);
            IF v_touched IS NULL OR p_instance[v_place] <> ALL (v_touched) THEN
                v_touched := v_touched || p_instance[v_place];
            END IF;
        END IF;
    END LOOP;
    IF v_sessions IS NOT NULL THEN
        UPDATE sessions SET last_activity_at = v_now WHERE session_id = ANY (v_sessions) AND locked_until > v_now;
    END IF;
    IF v_left IS NOT NULL THEN
        -- Others had seen the leases run out and given these their seats.
        INSERT INTO session_arrivals (sessions, routes) VALUES (v_left, v_routes);
    END IF;
    IF coalesce(cardinality(v_done), 0) < cardinality(p_id) THEN
        UPDATE committers SET refused_work = ARRAY(
            SELECT o FROM generate_subscripts(p_id, 1) o WHERE v_done IS NULL OR o <> ALL (v_done))
        WHERE committer = p_committer;
    END IF;
    IF p_max > 0 AND v_done IS NOT NULL THEN
        RETURN QUERY SELECT c.*, NULL::integer[]
        FROM claim_instances_1(p_now, p_max, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, v_touched) c;
    ELSIF v_touched IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_touched);
    END IF;
    in_line := v_touched IS NOT NULL;
    done := v_done;
    RETURN NEXT;
END $$;

-- Moves activities into quarantine. One that is no longer there has been dealt with by somebody else.
CREATE OR REPLACE FUNCTION quarantine_work_1(p_now bigint, p_id bigint[], p_reason text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM worker_queue w USING unnest(p_id, p_reason) b(id, reason) WHERE w.id = b.id
        RETURNING w.id, w.instance_id, w.session_id, w.route, b.reason, w.work_item),
    seats AS (
        INSERT INTO session_arrivals (sessions, routes)
        SELECT array_agg(session_id), array_agg(route) FROM gone WHERE session_id IS NOT NULL HAVING count(*) > 0)
    INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
    SELECT 'worker_queue', nullif(instance_id, ''), reason, now_ms_1(p_now), work_item FROM gone ORDER BY id;
END $$;
