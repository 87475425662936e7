-- Committing turns, many at a time.

-- Commits turns; each wholly or not at all, whatever becomes of the others. Arrays of one turn a position; what a turn
-- has several of (events, activities, messages) comes in arrays of its own, with the turn's position in `…_turn`.
--
-- Answers a verdict for each: 0 committed (`detail` is the instance's incarnation, NULL if it has no row), 1 the token is unknown, 2 the lease ran out before the ack arrived, 3 an event
-- is there already (`detail` says which). Duplicate events are looked for only if `p_careful`; otherwise they make the
-- whole statement fail, and the caller has to try the turns one by one. The first row has position 0 and says at what
-- time, and when the earliest delayed message is due.
CREATE FUNCTION ack_turns_1(
    p_now bigint, p_committer text, p_slot integer, p_careful boolean,
    p_token text[], p_instance text[], p_waited_ms bigint[], p_execution bigint[], p_status text[], p_terminal boolean[],
    p_output text[], p_name text[], p_version text[], p_parent text[], p_pinned text[], p_major bigint[],
    p_minor bigint[], p_patch bigint[], p_custom_set boolean[], p_custom text[], p_kv_cleared boolean[],
    p_event_turn integer[], p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_kv_turn integer[], p_kv_key text[], p_kv_value text[], p_kv_ms bigint[],
    p_work_turn integer[], p_work_instance text[], p_work_execution bigint[], p_work_activity bigint[],
    p_work_session text[], p_work_route text[], p_work_item text[],
    p_cancel_turn integer[], p_cancel_instance text[], p_cancel_execution bigint[], p_cancel_activity bigint[],
    p_message_turn integer[], p_message_instance text[], p_message_class text[], p_message_due bigint[],
    p_message_item text[])
RETURNS TABLE (place integer, verdict integer, detail bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_arrived bigint := now_ms_1(p_now);
    v_now bigint;
    v_verdict integer[];
    v_detail bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_token)]);
    v_ok integer[];
    v_mine text[];
    v_before bigint[];
    v_before_status text[];
    v_batch bigint[];
    v_ended text[];
    v_created text[];
    v_touched text[];
    v_next_due bigint;
    v_events bigint;
    r record;
BEGIN
    PERFORM 1 FROM instance_schedule s WHERE s.instance_id = ANY (p_instance) ORDER BY s.instance_id FOR UPDATE;
    v_now := now_ms_1(p_now);
    SELECT array_agg(CASE WHEN s.instance_id IS NULL THEN 1 WHEN s.locked_until <= v_arrived - u.waited THEN 2 ELSE 0 END
                     ORDER BY u.place)
    INTO v_verdict
    FROM unnest(p_token, p_instance, p_waited_ms) WITH ORDINALITY u(token, instance_id, waited, place)
    LEFT JOIN instance_schedule s ON s.instance_id = u.instance_id AND s.lock_token = u.token;
    IF p_careful THEN
        FOR r IN
            SELECT e.turn, min(e.id) AS id FROM unnest(p_event_turn, p_event_id) e(turn, id)
            JOIN history h ON h.instance_id = p_instance[e.turn] AND h.execution_id = p_execution[e.turn]
                AND h.event_id = e.id
            WHERE v_verdict[e.turn] = 0 GROUP BY e.turn
        LOOP
            v_verdict[r.turn] := 3;
            v_detail[r.turn] := r.id;
        END LOOP;
    END IF;
    IF 0 <> ANY (v_verdict) THEN
        UPDATE committers SET turn_verdicts = v_verdict WHERE committer = p_committer;
    END IF;
    SELECT array_agg(u.place), array_agg(p_instance[u.place]) INTO v_ok, v_mine
    FROM unnest(v_verdict) WITH ORDINALITY u(verdict, place) WHERE u.verdict = 0;
    IF v_ok IS NULL THEN
        RETURN QUERY SELECT 0, 0, NULL::bigint
            UNION ALL SELECT u.place::integer, u.verdict, v_detail[u.place]
            FROM unnest(v_verdict) WITH ORDINALITY u(verdict, place);
        RETURN;
    END IF;

    INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
    SELECT p_instance[e.turn], p_execution[e.turn], e.id, e.type, v_now, e.data
    FROM unnest(p_event_turn, p_event_id, p_event_type, p_event_data) e(turn, id, type, data)
    WHERE v_verdict[e.turn] = 0;
    GET DIAGNOSTICS v_events = ROW_COUNT;

    -- The instances and executions as they were.
    SELECT array_agg(n.current_execution_id ORDER BY u.place), array_agg(e.status ORDER BY u.place)
    INTO v_before, v_before_status
    FROM unnest(p_instance) WITH ORDINALITY u(instance_id, place)
    LEFT JOIN instances n ON n.instance_id = u.instance_id
    LEFT JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id;

    -- Executions that are not known to be there, then changes of those that were there.
    WITH made AS (
        INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, duroxide_version_major,
            duroxide_version_minor, duroxide_version_patch, output)
        SELECT p_instance[o], p_execution[o], coalesce(p_status[o], 'Running'), v_now,
            CASE WHEN p_terminal[o] THEN v_now END, p_major[o], p_minor[o], p_patch[o],
            CASE WHEN p_status[o] IS NOT NULL THEN p_output[o] END
        FROM unnest(v_ok) o
        WHERE v_before_status[o] IS NULL OR v_before[o] <> p_execution[o]
        ON CONFLICT DO NOTHING
        RETURNING instance_id)
    SELECT coalesce(array_agg(instance_id), '{}') INTO v_created FROM made;
    UPDATE executions e SET
        status = coalesce(p_status[o], e.status),
        output = CASE WHEN p_status[o] IS NOT NULL THEN p_output[o] ELSE e.output END,
        completed_at = CASE WHEN p_status[o] IS NULL THEN e.completed_at WHEN p_terminal[o] THEN v_now END,
        duroxide_version_major = CASE WHEN p_pinned[o] IS NOT NULL THEN p_major[o] ELSE e.duroxide_version_major END,
        duroxide_version_minor = CASE WHEN p_pinned[o] IS NOT NULL THEN p_minor[o] ELSE e.duroxide_version_minor END,
        duroxide_version_patch = CASE WHEN p_pinned[o] IS NOT NULL THEN p_patch[o] ELSE e.duroxide_version_patch END
    FROM unnest(v_ok) o
    WHERE e.instance_id = p_instance[o] AND e.execution_id = p_execution[o]
        AND (p_status[o] IS NOT NULL OR p_pinned[o] IS NOT NULL) AND p_instance[o] <> ALL (v_created);

    UPDATE instances n SET
        updated_at = v_now,
        current_execution_id = greatest(n.current_execution_id, p_execution[o]),
        pinned_version = CASE
            WHEN p_pinned[o] IS NOT NULL AND p_execution[o] >= n.current_execution_id THEN p_pinned[o]
            WHEN p_pinned[o] IS NULL AND p_execution[o] > n.current_execution_id THEN ''
            ELSE n.pinned_version END,
        orchestration_name = CASE WHEN p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL THEN p_name[o]
            ELSE n.orchestration_name END,
        orchestration_version = CASE WHEN p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL THEN p_version[o]
            ELSE n.orchestration_version END,
        custom_status = CASE WHEN p_custom_set[o] THEN p_custom[o] ELSE n.custom_status END,
        custom_status_version = n.custom_status_version + CASE WHEN p_custom_set[o] THEN 1 ELSE 0 END
    FROM unnest(v_ok) o
    WHERE n.instance_id = p_instance[o] AND v_before[o] IS NOT NULL;
    INSERT INTO instances (instance_id, orchestration_name, orchestration_version, current_execution_id, created_at,
        updated_at, parent_instance_id, pinned_version, custom_status_version, custom_status)
    SELECT p_instance[o], p_name[o], p_version[o], p_execution[o], v_now, v_now, p_parent[o], coalesce(p_pinned[o], ''),
        CASE WHEN p_custom_set[o] THEN 1 ELSE 0 END, p_custom[o]
    FROM unnest(v_ok) o
    WHERE v_before[o] IS NULL AND p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL
    ORDER BY o;

    PERFORM count_turns_1(p_slot, v_events, cardinality(v_created), v_ok, p_instance, p_execution, p_status, p_name,
        p_version, v_before, v_before_status);

    IF cardinality(p_kv_turn) > 0 OR true = ANY (p_kv_cleared) THEN
        PERFORM change_values_1(v_now, v_verdict, p_instance, p_kv_cleared, p_kv_turn, p_kv_key, p_kv_value, p_kv_ms);
    END IF;
    SELECT array_agg(p_instance[o]) INTO v_ended FROM unnest(v_ok) o WHERE p_terminal[o];
    IF v_ended IS NOT NULL THEN
        PERFORM merge_values_1(v_ended);
    END IF;

    IF cardinality(p_work_turn) > 0 THEN
        INSERT INTO worker_queue (instance_id, execution_id, activity_id, session_id, route, created_at, work_item)
        SELECT w.instance_id, w.execution_id, w.activity_id, w.session_id, w.route, v_now, w.item
        FROM unnest(p_work_turn, p_work_instance, p_work_execution, p_work_activity, p_work_session, p_work_route,
            p_work_item) WITH ORDINALITY w(turn, instance_id, execution_id, activity_id, session_id, route, item, place)
        WHERE v_verdict[w.turn] = 0 ORDER BY w.place;
        INSERT INTO session_arrivals (sessions, routes)
        SELECT array_agg(w.session_id), array_agg(w.route)
        FROM unnest(p_work_turn, p_work_session, p_work_route) w(turn, session_id, route)
        WHERE v_verdict[w.turn] = 0 AND w.session_id IS NOT NULL HAVING count(*) > 0;
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

    SELECT array_agg(b) INTO v_batch FROM instance_schedule s, unnest(s.batch) b WHERE s.instance_id = ANY (v_mine);
    DELETE FROM orchestrator_queue WHERE id = ANY (v_batch);
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

    -- The leases are over. Whoever still has messages is looked at again, by the next fetch.
    DELETE FROM instance_schedule WHERE instance_id = ANY (v_mine);
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
    END IF;
    RETURN QUERY SELECT 0, CASE WHEN v_touched IS NULL THEN 0 ELSE 1 END, v_next_due
        UNION ALL SELECT u.place::integer, u.verdict, CASE WHEN u.verdict = 0
            THEN (SELECT n.incarnation FROM instances n WHERE n.instance_id = p_instance[u.place])
            ELSE v_detail[u.place] END
        FROM unnest(v_verdict) WITH ORDINALITY u(verdict, place);
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

-- Counts what turns made and which statuses their instances left and took.
CREATE FUNCTION count_turns_1(
    p_slot integer, p_events bigint, p_executions bigint, p_ok integer[], p_instance text[], p_execution bigint[],
    p_status text[], p_name text[], p_version text[], p_before bigint[], p_before_status text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_instances bigint;
    v_running bigint;
    v_completed bigint;
    v_failed bigint;
BEGIN
    SELECT count(*) FILTER (WHERE p_before[c.o] IS NULL),
        count(*) FILTER (WHERE e.status = 'Running') - count(*) FILTER (WHERE p_before_status[c.o] = 'Running'),
        count(*) FILTER (WHERE e.status = 'Completed') - count(*) FILTER (WHERE p_before_status[c.o] = 'Completed'),
        count(*) FILTER (WHERE e.status = 'Failed') - count(*) FILTER (WHERE p_before_status[c.o] = 'Failed')
    INTO v_instances, v_running, v_completed, v_failed
    FROM unnest(p_ok) c(o)
    LEFT JOIN executions e ON e.instance_id = p_instance[c.o]
        AND e.execution_id = greatest(p_before[c.o], p_execution[c.o])
    WHERE CASE WHEN p_before[c.o] IS NULL THEN p_name[c.o] IS NOT NULL AND p_version[c.o] IS NOT NULL
        ELSE p_status[c.o] IS NOT NULL OR p_execution[c.o] > p_before[c.o] END;
    PERFORM add_totals_1(p_slot, v_instances, p_executions, p_events, v_running, v_completed, v_failed);
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
    IF NOT EXISTS (SELECT 1 FROM kv_delta WHERE instance_id = ANY (p_instances)) THEN
        RETURN;
    END IF;
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
