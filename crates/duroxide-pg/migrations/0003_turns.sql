-- Committing turns, many at a time.

-- Commits turns; each wholly or not at all, whatever becomes of the others. Arrays of one turn a position, in the order
-- of their instances' ids; what a turn has several of (events, activities, messages) comes in arrays of its own, with the
-- turn's position in `…_turn`. One after the other and not as a set: a plain statement for each turn costs less than one
-- that joins arrays, whether there is one turn or a hundred.
--
-- Answers a verdict for each: 0 committed (`detail` is the instance's incarnation, NULL if it has no row), 1 the token is
-- unknown, 2 the lease ran out before the ack arrived, 3 an event is there already (`detail` says which). Duplicate
-- events are looked for only if `p_careful`; otherwise they make the whole statement fail, and the caller has to try the
-- turns one by one.
--
-- If `p_claim_max` is not 0, activities are leased along with it, as `claim_work_1` would for somebody without sessions,
-- with tokens that begin with `lock_` and the seed. Rows without a verdict are these: `place` is the position among the
-- turns' activities, NULL for an older one, which comes with its `item`.
--
-- The last row has position 0; `detail` is when the earliest delayed message is due, and `verdict` adds up what others
-- have to know: 1 instances have messages, 2 activities are ready, 4 nothing was leased, because there is more to look at.
CREATE FUNCTION ack_turns_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_slot integer, p_careful boolean,
    p_token text[], p_instance text[], p_waited_ms bigint[], p_execution bigint[], p_status text[], p_terminal boolean[],
    p_output text[], p_name text[], p_version text[], p_parent text[], p_pinned text[], p_major bigint[],
    p_minor bigint[], p_patch bigint[], p_custom_set boolean[], p_custom text[], p_kv_cleared boolean[],
    p_event_turn integer[], p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_kv_turn integer[], p_kv_key text[], p_kv_value text[], p_kv_ms bigint[],
    p_work_turn integer[], p_work_instance text[], p_work_execution bigint[], p_work_activity bigint[],
    p_work_session text[], p_work_route text[], p_work_item text[],
    p_cancel_turn integer[], p_cancel_instance text[], p_cancel_execution bigint[], p_cancel_activity bigint[],
    p_message_turn integer[], p_message_instance text[], p_message_class text[], p_message_due bigint[],
    p_message_item text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text)
RETURNS TABLE (place integer, verdict integer, detail bigint, token text, attempts bigint, item text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_arrived bigint;
    v_now bigint;
    v_verdict integer[] := '{}';
    v_mine text[] := '{}';
    v_ended text[];
    v_batch bigint[];
    v_batches bigint[] := '{}';
    v_current bigint;
    v_before text;
    v_after text;
    v_is_new boolean;
    v_instances bigint := 0;
    v_executions bigint := 0;
    v_events bigint;
    v_running bigint := 0;
    v_completed bigint := 0;
    v_failed bigint := 0;
    v_touched text[];
    v_next_due bigint;
    v_notes integer := 0;
    t record;
BEGIN
    IF p_batch IS NOT NULL THEN
        PERFORM begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    v_arrived := now_ms_1(p_now);
    FOR t IN
        SELECT * FROM unnest(p_token, p_instance, p_waited_ms, p_execution, p_status, p_terminal, p_output, p_name,
            p_version, p_parent, p_pinned, p_major, p_minor, p_patch, p_custom_set, p_custom)
        WITH ORDINALITY u(token, instance, waited, execution, status, terminal, output, name, version, parent, pinned,
            major, minor, patch, custom_set, custom, place)
    LOOP
        place := t.place;
        detail := NULL;
        IF p_careful THEN
            SELECT min(h.event_id) INTO detail FROM unnest(p_event_turn, p_event_id) e(turn, id)
            JOIN history h ON h.instance_id = t.instance AND h.execution_id = t.execution AND h.event_id = e.id
            WHERE e.turn = t.place AND EXISTS (
                SELECT 1 FROM instance_schedule s WHERE s.instance_id = t.instance AND s.lock_token = t.token
                AND s.locked_until > v_arrived - t.waited);
        END IF;
        IF detail IS NOT NULL THEN
            verdict := 3;
        ELSE
            -- The lease is over.
            DELETE FROM instance_schedule s WHERE s.instance_id = t.instance AND s.lock_token = t.token
                AND s.locked_until > v_arrived - t.waited RETURNING s.batch INTO v_batch;
            IF FOUND THEN
                verdict := 0;
            ELSE
                SELECT count(*) + 1 INTO verdict FROM instance_schedule s
                WHERE s.instance_id = t.instance AND s.lock_token = t.token;
            END IF;
        END IF;
        v_verdict := v_verdict || verdict;
        IF verdict <> 0 THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        v_mine := v_mine || t.instance;
        v_batches := v_batches || v_batch;
        v_now := now_ms_1(p_now);

        SELECT n.incarnation, n.current_execution_id, e.status INTO detail, v_current, v_before
        FROM instances n
        LEFT JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
        WHERE n.instance_id = t.instance;
        v_is_new := false;
        IF v_before IS NULL OR v_current <> t.execution THEN
            INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, duroxide_version_major,
                duroxide_version_minor, duroxide_version_patch, output)
            VALUES (t.instance, t.execution, coalesce(t.status, 'Running'), v_now, CASE WHEN t.terminal THEN v_now END,
                t.major, t.minor, t.patch, CASE WHEN t.status IS NOT NULL THEN t.output END)
            ON CONFLICT DO NOTHING;
            v_is_new := FOUND;
        END IF;
        IF v_is_new THEN
            v_executions := v_executions + 1;
        ELSIF t.status IS NOT NULL OR t.pinned IS NOT NULL THEN
            UPDATE executions e SET
                status = coalesce(t.status, e.status),
                output = CASE WHEN t.status IS NOT NULL THEN t.output ELSE e.output END,
                completed_at = CASE WHEN t.status IS NULL THEN e.completed_at WHEN t.terminal THEN v_now END,
                duroxide_version_major = CASE WHEN t.pinned IS NOT NULL THEN t.major ELSE e.duroxide_version_major END,
                duroxide_version_minor = CASE WHEN t.pinned IS NOT NULL THEN t.minor ELSE e.duroxide_version_minor END,
                duroxide_version_patch = CASE WHEN t.pinned IS NOT NULL THEN t.patch ELSE e.duroxide_version_patch END
            WHERE e.instance_id = t.instance AND e.execution_id = t.execution;
        END IF;
        IF v_current IS NOT NULL THEN
            UPDATE instances n SET
                updated_at = v_now,
                current_execution_id = greatest(n.current_execution_id, t.execution),
                pinned_version = CASE
                    WHEN t.pinned IS NOT NULL AND t.execution >= n.current_execution_id THEN t.pinned
                    WHEN t.pinned IS NULL AND t.execution > n.current_execution_id THEN ''
                    ELSE n.pinned_version END,
                orchestration_name = CASE WHEN t.name IS NOT NULL AND t.version IS NOT NULL THEN t.name
                    ELSE n.orchestration_name END,
                orchestration_version = CASE WHEN t.name IS NOT NULL AND t.version IS NOT NULL THEN t.version
                    ELSE n.orchestration_version END,
                custom_status = CASE WHEN t.custom_set THEN t.custom ELSE n.custom_status END,
                custom_status_version = n.custom_status_version + CASE WHEN t.custom_set THEN 1 ELSE 0 END
            WHERE n.incarnation = detail;
        ELSIF t.name IS NOT NULL AND t.version IS NOT NULL THEN
            INSERT INTO instances AS n (instance_id, orchestration_name, orchestration_version, current_execution_id,
                created_at, updated_at, parent_instance_id, pinned_version, custom_status_version, custom_status)
            VALUES (t.instance, t.name, t.version, t.execution, v_now, v_now, t.parent, coalesce(t.pinned, ''),
                CASE WHEN t.custom_set THEN 1 ELSE 0 END, t.custom)
            RETURNING n.incarnation INTO detail;
            v_instances := v_instances + 1;
        END IF;

        -- The status that the instance had, and the one that it has.
        IF detail IS NOT NULL AND (v_current IS NULL OR t.status IS NOT NULL OR t.execution > v_current) THEN
            IF t.execution >= coalesce(v_current, 0) AND t.status IS NOT NULL THEN
                v_after := t.status;
            ELSE
                SELECT e.status INTO v_after FROM executions e
                WHERE e.instance_id = t.instance AND e.execution_id = greatest(v_current, t.execution);
            END IF;
            v_running := v_running + coalesce((v_after = 'Running')::integer, 0)
                - coalesce((v_before = 'Running')::integer, 0);
            v_completed := v_completed + coalesce((v_after = 'Completed')::integer, 0)
                - coalesce((v_before = 'Completed')::integer, 0);
            v_failed := v_failed + coalesce((v_after = 'Failed')::integer, 0)
                - coalesce((v_before = 'Failed')::integer, 0);
        END IF;
        IF t.terminal THEN
            v_ended := v_ended || t.instance;
        END IF;
        RETURN NEXT;
    END LOOP;
    IF cardinality(v_mine) < cardinality(v_verdict) THEN
        UPDATE committers SET turn_verdicts = v_verdict WHERE committer = p_committer;
    END IF;
    token := NULL;
    IF cardinality(v_mine) = 0 THEN
        place := 0;
        verdict := 0;
        detail := NULL;
        RETURN NEXT;
        RETURN;
    END IF;

    INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
    SELECT p_instance[e.turn], p_execution[e.turn], e.id, e.type, v_now, e.data
    FROM unnest(p_event_turn, p_event_id, p_event_type, p_event_data) e(turn, id, type, data)
    WHERE v_verdict[e.turn] = 0;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    PERFORM add_totals_1(p_slot, v_instances, v_executions, v_events, v_running, v_completed, v_failed);

    IF cardinality(p_kv_turn) > 0 OR true = ANY (p_kv_cleared) THEN
        PERFORM change_values_1(v_now, v_verdict, p_instance, p_kv_cleared, p_kv_turn, p_kv_key, p_kv_value, p_kv_ms);
    END IF;
    IF v_ended IS NOT NULL AND EXISTS (SELECT 1 FROM kv_delta WHERE instance_id = ANY (v_ended)) THEN
        PERFORM merge_values_1(v_ended);
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
    IF cardinality(p_work_turn) > 0 OR p_claim_max > 0 THEN
        FOR t IN
            SELECT * FROM enter_work_1(p_now, v_verdict, p_work_turn, p_work_instance, p_work_execution, p_work_activity,
                p_work_session, p_work_route, p_work_item, p_claim_max, p_claim_ms, p_claim_routes, p_claim_seed)
        LOOP
            IF t.notes IS NOT NULL THEN
                v_notes := t.notes;
                CONTINUE;
            END IF;
            place := t.place;
            verdict := NULL;
            detail := t.id;
            token := t.token;
            attempts := t.attempts;
            item := t.item;
            RETURN NEXT;
        END LOOP;
    END IF;

    DELETE FROM orchestrator_queue WHERE id = ANY (v_batches);
    IF cardinality(p_message_turn) > 0 THEN
        INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
        SELECT m.instance_id, m.class, CASE WHEN m.due <= v_now THEN 0 ELSE m.due END, v_now, m.item
        FROM unnest(p_message_turn, p_message_instance, p_message_class, p_message_due, p_message_item)
            WITH ORDINALITY m(turn, instance_id, class, due, item, place)
        WHERE v_verdict[m.turn] = 0 ORDER BY m.place;
        SELECT array_agg(DISTINCT m.instance_id), min(m.due) FILTER (WHERE m.due > v_now) INTO v_touched, v_next_due
        FROM unnest(p_message_turn, p_message_instance, p_message_due) m(turn, instance_id, due)
        WHERE v_verdict[m.turn] = 0;
    END IF;
    -- Whoever still has messages is looked at again, by the next fetch.
    SELECT array_agg(DISTINCT x.i) INTO v_touched FROM (
        SELECT i FROM unnest(v_touched) i
        UNION ALL
        -- Not EXISTS, which the planner may answer by reading all of the table into a hash.
        SELECT i FROM unnest(v_mine) i
        WHERE (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i AND q.parked_at IS NULL LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = i AND q.parked_at IS NOT NULL LIMIT 1)
                IS NOT NULL) x;
    IF v_touched IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_touched);
        v_notes := v_notes | 1;
    END IF;
    place := 0;
    verdict := v_notes;
    detail := v_next_due;
    token := NULL;
    attempts := NULL;
    item := NULL;
    RETURN NEXT;
END $$;

-- Adds to the totals of a slot.
CREATE FUNCTION add_totals_1(
    p_slot integer, p_instances bigint, p_executions bigint, p_events bigint, p_running bigint, p_completed bigint,
    p_failed bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE totals SET instances = instances + p_instances, executions = executions + p_executions,
        events = events + p_events, running_instances = running_instances + p_running,
        completed_instances = completed_instances + p_completed, failed_instances = failed_instances + p_failed
    WHERE slot = p_slot;
    IF NOT FOUND THEN
        INSERT INTO totals AS t (slot, instances, executions, events, running_instances, completed_instances,
            failed_instances)
        VALUES (p_slot, p_instances, p_executions, p_events, p_running, p_completed, p_failed)
        ON CONFLICT (slot) DO UPDATE SET instances = t.instances + p_instances,
            executions = t.executions + p_executions, events = t.events + p_events,
            running_instances = t.running_instances + p_running,
            completed_instances = t.completed_instances + p_completed,
            failed_instances = t.failed_instances + p_failed;
    END IF;
END $$;

-- Applies changes to the running executions' layer of the key-value stores: first what was cleared as a whole, then key
-- by key, each with its last value.
CREATE FUNCTION change_values_1(
    p_now bigint, p_verdict integer[], p_instance text[], p_cleared boolean[], p_turn integer[], p_key text[],
    p_value text[], p_ms bigint[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_cleared text[];
BEGIN
    SELECT array_agg(p_instance[u.place]) INTO v_cleared
    FROM unnest(p_cleared) WITH ORDINALITY u(cleared, place) WHERE u.cleared AND p_verdict[u.place] = 0;
    IF v_cleared IS NOT NULL THEN
        UPDATE kv_delta SET value = NULL, last_updated_at_ms = p_now WHERE instance_id = ANY (v_cleared);
        INSERT INTO kv_delta (instance_id, key, last_updated_at_ms, value)
        SELECT instance_id, key, p_now, NULL FROM kv_store WHERE instance_id = ANY (v_cleared)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO kv_delta (instance_id, key, last_updated_at_ms, value)
    SELECT p_instance[k.turn], k.key, coalesce(k.ms, p_now), k.value
    FROM unnest(p_turn, p_key, p_value, p_ms) k(turn, key, value, ms) WHERE p_verdict[k.turn] = 0
    ON CONFLICT (instance_id, md5(key)) DO UPDATE
    SET last_updated_at_ms = excluded.last_updated_at_ms, value = excluded.value;
END $$;

-- Makes the running executions' changes part of the state, because they have ended.
CREATE FUNCTION merge_values_1(p_instances text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO kv_store (instance_id, key, last_updated_at_ms, value)
    SELECT instance_id, key, last_updated_at_ms, value FROM kv_delta
    WHERE instance_id = ANY (p_instances) AND value IS NOT NULL
    ON CONFLICT (instance_id, md5(key)) DO UPDATE
    SET last_updated_at_ms = excluded.last_updated_at_ms, value = excluded.value;
    DELETE FROM kv_store s USING kv_delta d
    WHERE d.instance_id = ANY (p_instances) AND d.value IS NULL AND s.instance_id = d.instance_id
        AND md5(s.key) = md5(d.key);
    DELETE FROM kv_delta WHERE instance_id = ANY (p_instances);
END $$;
