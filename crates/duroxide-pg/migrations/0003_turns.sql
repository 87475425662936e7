-- Committing turns, many at a time.

-- Commits turns; each wholly or not at all, whatever becomes of the others. Arrays of one turn a position, in the order
-- of their instances' ids; what a turn has several of (events, activities, messages) comes in arrays of its own, with the
-- turn's position in `…_turn`. One after the other and not as a set: a plain statement for each turn costs less than one
-- that joins arrays, whether there is one turn or a hundred. Elements are taken by their position, not
-- by `unnest`, which makes a table of every array.
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
    p_message_item text[],
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
                coalesce(v_pinned, ''), CASE WHEN p_custom_set[v_turn] THEN 1 ELSE 0 END, p_custom[v_turn])
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
        -- As `work_is_due_1` tells; a call of it costs as much again.
        IF EXISTS (SELECT 1 FROM worker_queue WHERE due_at <= v_now)
            OR EXISTS (SELECT 1 FROM sessions WHERE due_at <= v_now) OR EXISTS (SELECT 1 FROM session_arrivals) THEN
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
    IF cardinality(p_message_turn) > 0 THEN
        WITH new AS (
            INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item)
            SELECT p_message_instance[m], p_message_class[m],
                CASE WHEN p_message_due[m] <= v_now THEN 0 ELSE p_message_due[m] END, v_now, p_message_item[m]
            FROM generate_series(1, cardinality(p_message_turn)) m WHERE v_verdict[p_message_turn[m]] = 0 ORDER BY m
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
