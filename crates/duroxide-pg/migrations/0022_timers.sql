-- Timers: the process that has set a timer goes first.
--
-- It has the instance in memory and knows when the timer is due, so it takes the turn at that moment, and stores it as a step.
-- A claim that is made in the same moment, by whatever process, would lease the instance, and the step would be refused: the
-- turn would be taken again, later. So for a few milliseconds claims do not see that the timer is due. The message itself is due
-- at its time; if nobody has stored a step until then, the instance is claimed like any other.

-- Stores steps, each wholly or not at all. `verdicts` has 0 for a step that was stored; 3 if an event of it is there already,
-- which `details` has; 4 if the instance is not what the caller took it for, or a result's activity is not held. Of a stored
-- step, `details` has the incarnation of its instance.
--
-- If `p_are_plain`, no step changes name, version or status of its instance, or begins an execution.
--
-- `p_held` is the incarnation that the caller holds, 0 if the id is to be free; `p_held_execution` and `p_held_event` are
-- where its history ends. `p_timer` is the text of the timer that is the cause, if it is one. Results name the position of
-- their step. Instances are different and in order; so are results, by id.
--
-- New activities that fit the claim are entered as leased, unless an older one has been waiting for `p_overtaking_ms`; `places` and
-- `ids` tell which. What is left of `p_claim_max` goes to the oldest ones: `old_ids`, with attempts and texts.
--
-- An instance that waits for a timer is offered to others `v_head_start` after the timer is due; `next_due` tells when.
CREATE OR REPLACE FUNCTION store_steps_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_careful boolean,
    p_instance text[], p_held bigint[], p_held_execution bigint[], p_held_event bigint[], p_timer text[],
    p_execution bigint[], p_status text[], p_terminal boolean[], p_output text[], p_name text[], p_version text[],
    p_parent text[], p_pinned text[], p_major bigint[], p_minor bigint[], p_patch bigint[], p_custom_set boolean[],
    p_custom text[], p_kv_cleared boolean[], p_are_plain boolean,
    p_result_step integer[], p_result_id bigint[], p_result_token text[], p_result_waited_ms bigint[],
    p_event_turn integer[], p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_kv_turn integer[], p_kv_key text[], p_kv_value text[], p_kv_ms bigint[],
    p_work_turn integer[], p_work_instance text[], p_work_execution bigint[], p_work_activity bigint[],
    p_work_session text[], p_work_route text[], p_work_item text[],
    p_cancel_turn integer[], p_cancel_instance text[], p_cancel_execution bigint[], p_cancel_activity bigint[],
    p_message_turn integer[], p_message_instance text[], p_message_class text[], p_message_due bigint[],
    p_message_item text[], p_message_parent text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text, p_overtaking_ms bigint,
    OUT verdicts integer[], OUT details bigint[], OUT places integer[], OUT ids bigint[],
    OUT old_ids bigint[], OUT old_attempts bigint[], OUT old_items text[],
    OUT some_ready boolean, OUT some_told boolean, OUT next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- Elements of these are found at once, whatever comes before them.
    v_instance text[] := p_instance;
    v_arrived bigint := now_ms_1(p_now);
    v_now bigint := v_arrived;
    v_guard text := 'step_' || p_committer;
    v_are_new boolean;
    v_found text[];
    v_befores text[];
    v_currents bigint[];
    v_timers bigint[];
    v_taken bigint[];
    v_free text[];
    v_has_new boolean;
    v_has_status boolean;
    v_has_free boolean;
    v_has_end boolean;
    v_expected bigint;
    v_session text[];
    v_stored integer[];
    v_over text[];
    v_continued text[];
    v_told text[];
    v_times bigint[];
    v_waiting text[];
    v_count bigint;
    v_events bigint := 0;
    v_executions bigint := 0;
    v_instances bigint := 0;
    v_running bigint := 0;
    v_completed bigint := 0;
    v_failed bigint := 0;
    v_head bigint;
    v_may_overtake boolean;
    v_entered record;
    v_noted boolean;
    -- None by a test's clock, which need not go on by itself.
    v_head_start bigint := CASE WHEN p_now IS NULL THEN 20 ELSE 0 END;
BEGIN
    IF 0 = ANY (p_held) THEN
        -- Whoever queues a start of the same id at the same time meets this one, and looks again. It comes before the place
        -- of the instance, as it does for others.
        WITH mine AS (
            INSERT INTO orchestrator_queue AS q (instance_id, class, created_at, work_item, is_sole_start)
            SELECT t.i, 'start', v_now, '', true FROM unnest(p_instance, p_held) t(i, held) WHERE t.held = 0
            ON CONFLICT (instance_id) WHERE is_sole_start DO NOTHING RETURNING q.id, q.instance_id)
        SELECT pg_catalog.array_agg(m.id), pg_catalog.array_agg(m.instance_id) INTO v_taken, v_free FROM mine m;
        DELETE FROM orchestrator_queue q WHERE q.id = ANY (v_taken);
    END IF;
    -- From here on nobody else takes a turn of these, until this transaction is over. Those that have no place get one.
    INSERT INTO instance_schedule (instance_id, lock_token) SELECT i, v_guard FROM unnest(p_instance) i
    ON CONFLICT (instance_id) DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_are_new := v_count = pg_catalog.cardinality(p_instance);
    IF NOT v_are_new THEN
        -- Those that wait for a later moment, or stand in line, have one that nobody leases.
        SELECT pg_catalog.array_agg(l.instance_id) INTO v_found FROM (
            SELECT s.instance_id FROM instance_schedule s
            WHERE s.instance_id = ANY (p_instance) AND s.lock_token IS NULL AND s.blocked_at IS NULL AND NOT s.parked
            ORDER BY s.instance_id FOR UPDATE SKIP LOCKED) l;
    END IF;
    -- What is read here was committed before the guards were there, or is ours. A lone step that goes on where the last one
    -- ended is so common that it has a query of its own.
    IF pg_catalog.cardinality(p_instance) = 1 AND v_are_new AND p_held[1] > 0 AND p_timer[1] IS NULL
        AND p_status[1] IS NULL AND p_pinned[1] IS NULL AND p_execution[1] = p_held_execution[1] THEN
        SELECT p_execution INTO v_currents FROM instances n
        WHERE n.incarnation = p_held[1] AND n.instance_id = p_instance[1] AND n.current_execution_id = p_held_execution[1]
            AND (SELECT h.event_id FROM history h
                 WHERE h.instance_id = p_instance[1] AND h.execution_id = p_held_execution[1]
                 ORDER BY h.event_id DESC LIMIT 1) = p_held_event[1]
            AND (SELECT 1 FROM orchestrator_queue q
                 WHERE q.instance_id = p_instance[1] AND q.parked_at IS NULL AND q.visible_at <= v_now LIMIT 1) IS NULL
            AND (SELECT 1 FROM orchestrator_queue q
                 WHERE q.instance_id = p_instance[1] AND q.parked_at IS NOT NULL LIMIT 1) IS NULL;
        IF FOUND THEN
            verdicts := '{0}';
            v_stored := '{1}';
        ELSE
            verdicts := '{4}';
        END IF;
        details := p_held;
    ELSE
        SELECT pg_catalog.array_agg(r.verdict), pg_catalog.array_agg(r.incarnation), pg_catalog.array_agg(r.status),
            pg_catalog.array_agg(r.current), pg_catalog.array_agg(r.timer) FILTER (WHERE r.verdict = 0 AND r.timer IS NOT NULL),
            pg_catalog.array_agg(r.place) FILTER (WHERE r.verdict = 0),
            pg_catalog.bool_or(r.verdict = 0 AND r.held = 0),
            pg_catalog.bool_or(r.verdict = 0 AND (r.held = 0 OR r.execution <> r.current)),
            pg_catalog.bool_or(r.verdict = 0 AND (r.new_status IS NOT NULL OR r.pinned IS NOT NULL)),
            pg_catalog.bool_or(r.verdict = 0 AND r.terminal)
        INTO verdicts, details, v_befores, v_currents, v_timers, v_stored, v_has_free, v_has_new, v_has_status, v_has_end
        FROM (
            SELECT t.place::integer AS place, t.held, t.execution, t.new_status, t.pinned, t.terminal, n.incarnation,
                n.current_execution_id AS current, e.status, m.id AS timer,
                CASE
                    WHEN NOT v_are_new AND t.i <> ALL (coalesce(v_found, '{}')) AND (
                        SELECT s.lock_token FROM instance_schedule s WHERE s.instance_id = t.i) IS DISTINCT FROM v_guard THEN 4
                    WHEN (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = t.i AND q.parked_at IS NULL
                            AND q.visible_at <= v_now AND (m.id IS NULL OR q.id <> m.id) LIMIT 1) IS NOT NULL THEN 4
                    WHEN (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = t.i AND q.parked_at IS NOT NULL LIMIT 1)
                        IS NOT NULL THEN 4
                    WHEN t.timer IS NOT NULL AND m.work_item IS DISTINCT FROM t.timer THEN 4
                    WHEN t.held > 0 THEN CASE WHEN n.incarnation = t.held AND n.current_execution_id = t.held_execution
                        AND coalesce((SELECT h.event_id FROM history h
                            WHERE h.instance_id = t.i AND h.execution_id = n.current_execution_id
                            ORDER BY h.event_id DESC LIMIT 1), 0) = t.held_event THEN 0 ELSE 4 END
                    WHEN t.held < 0 OR n.incarnation IS NOT NULL OR t.held_event <> 0 OR t.i <> ALL (coalesce(v_free, '{}'))
                        THEN 4
                    WHEN (SELECT 1 FROM history h WHERE h.instance_id = t.i LIMIT 1) IS NOT NULL
                        OR (SELECT 1 FROM executions x WHERE x.instance_id = t.i LIMIT 1) IS NOT NULL
                        OR (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = t.i AND q.parked_at IS NULL
                            AND q.class = 'start' LIMIT 1) IS NOT NULL THEN 4
                    ELSE 0 END AS verdict
            FROM unnest(p_instance, p_held, p_held_execution, p_held_event, p_timer, p_execution, p_status, p_pinned,
                    p_terminal) WITH ORDINALITY
                t(i, held, held_execution, held_event, timer, execution, new_status, pinned, terminal, place)
            LEFT JOIN instances n ON n.instance_id = t.i
            LEFT JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
            LEFT JOIN LATERAL (
                SELECT q.id, q.work_item FROM orchestrator_queue q
                WHERE t.timer IS NOT NULL AND q.instance_id = t.i AND q.parked_at IS NULL AND q.visible_at <= v_now
                ORDER BY q.visible_at, q.id LIMIT 1) m ON true
            ORDER BY t.place) r;
    END IF;

    IF p_careful AND v_stored IS NOT NULL THEN
        v_stored := check_steps_1(v_arrived, verdicts, p_instance, p_execution, p_result_step, p_result_id, p_result_token,
            p_result_waited_ms, p_event_turn, p_event_id);
        FOREACH v_count IN ARRAY v_stored LOOP
            IF v_count < 0 THEN
                -- The position of a step with an event that is there, and then that event.
                verdicts[-v_count] := 3;
            ELSE
                verdicts[v_count] := 4;
            END IF;
        END LOOP;
        v_stored := ARRAY(SELECT o FROM pg_catalog.generate_subscripts(verdicts, 1) o WHERE verdicts[o] = 0);
    END IF;
    some_ready := false;
    some_told := false;
    IF coalesce(pg_catalog.cardinality(v_stored), 0) = 0 THEN
        DELETE FROM instance_schedule s WHERE s.instance_id = ANY (p_instance) AND s.lock_token = v_guard;
        v_noted := note_steps_1(p_committer, p_epoch, p_batch, verdicts, 0, 0, 0, 0, 0, 0);
        RETURN;
    END IF;

    IF pg_catalog.cardinality(p_result_step) > 0 THEN
        WITH done AS (
            DELETE FROM worker_queue w
            USING unnest(p_result_step, p_result_id, p_result_token, p_result_waited_ms) r(step, id, token, waited)
            WHERE verdicts[r.step] = 0 AND w.id = r.id AND w.lock_token = r.token AND w.locked_until > v_arrived - r.waited
            RETURNING w.session_id)
        SELECT pg_catalog.count(*), pg_catalog.array_agg(session_id) FILTER (WHERE session_id IS NOT NULL)
        INTO v_count, v_session FROM done;
        v_expected := pg_catalog.cardinality(p_result_step);
        IF pg_catalog.cardinality(v_stored) < pg_catalog.cardinality(p_instance) THEN
            SELECT pg_catalog.count(*) INTO v_expected FROM unnest(p_result_step) s WHERE verdicts[s] = 0;
        END IF;
        IF v_count < v_expected THEN
            RAISE EXCEPTION 'the activity of a result is not held any more' USING ERRCODE = 'DX001';
        END IF;
        IF v_session IS NOT NULL THEN
            UPDATE sessions SET last_activity_at = v_now WHERE session_id = ANY (v_session) AND locked_until > v_now;
        END IF;
    END IF;

    IF v_has_new THEN
        INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, duroxide_version_major,
            duroxide_version_minor, duroxide_version_patch, output)
        SELECT v_instance[o], p_execution[o], coalesce(p_status[o], 'Running'), v_now,
            CASE WHEN p_terminal[o] THEN v_now END, p_major[o], p_minor[o], p_patch[o],
            CASE WHEN p_status[o] IS NOT NULL THEN p_output[o] END
        FROM unnest(v_stored) o WHERE p_held[o] = 0 OR p_execution[o] <> v_currents[o];
        GET DIAGNOSTICS v_executions = ROW_COUNT;
    END IF;
    IF v_has_status THEN
        UPDATE executions e SET
            status = coalesce(p_status[o], e.status),
            output = CASE WHEN p_status[o] IS NOT NULL THEN p_output[o] ELSE e.output END,
            completed_at = CASE WHEN p_status[o] IS NULL THEN e.completed_at WHEN p_terminal[o] THEN v_now END,
            duroxide_version_major = CASE WHEN p_pinned[o] IS NOT NULL THEN p_major[o] ELSE e.duroxide_version_major END,
            duroxide_version_minor = CASE WHEN p_pinned[o] IS NOT NULL THEN p_minor[o] ELSE e.duroxide_version_minor END,
            duroxide_version_patch = CASE WHEN p_pinned[o] IS NOT NULL THEN p_patch[o] ELSE e.duroxide_version_patch END
        FROM unnest(v_stored) o
        WHERE p_held[o] > 0 AND p_execution[o] = v_currents[o] AND (p_status[o] IS NOT NULL OR p_pinned[o] IS NOT NULL)
            AND e.instance_id = v_instance[o] AND e.execution_id = p_execution[o];
        SELECT pg_catalog.sum((s.after = 'Running')::integer) - coalesce(pg_catalog.sum((s.before = 'Running')::integer), 0),
            pg_catalog.sum((s.after = 'Completed')::integer) - coalesce(pg_catalog.sum((s.before = 'Completed')::integer), 0),
            pg_catalog.sum((s.after = 'Failed')::integer) - coalesce(pg_catalog.sum((s.before = 'Failed')::integer), 0)
        INTO v_running, v_completed, v_failed FROM (
            SELECT v_befores[o] AS before, coalesce(p_status[o],
                CASE WHEN p_held[o] = 0 OR p_execution[o] <> v_currents[o] THEN 'Running' ELSE v_befores[o] END) AS after
            FROM unnest(v_stored) o
            -- A turn without a name makes no instance.
            WHERE p_held[o] > 0 OR p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL) s;
    ELSIF v_has_new THEN
        SELECT pg_catalog.count(*) INTO v_running FROM unnest(v_stored) o
        WHERE (p_held[o] = 0 AND p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL
                OR p_held[o] > 0 AND p_execution[o] <> v_currents[o])
            AND v_befores[o] IS DISTINCT FROM 'Running';
    END IF;
    IF p_are_plain THEN
        UPDATE instances n SET updated_at = v_now
        WHERE n.incarnation = ANY (ARRAY(SELECT p_held[o] FROM unnest(v_stored) o));
    ELSE
        UPDATE instances n SET
            updated_at = v_now,
            current_execution_id = p_execution[o],
            pinned_version = CASE WHEN p_pinned[o] IS NOT NULL THEN p_pinned[o]
                WHEN p_execution[o] > n.current_execution_id THEN '' ELSE n.pinned_version END,
            orchestration_name = coalesce(CASE WHEN p_version[o] IS NOT NULL THEN p_name[o] END, n.orchestration_name),
            orchestration_version = coalesce(CASE WHEN p_name[o] IS NOT NULL THEN p_version[o] END, n.orchestration_version),
            custom_status = CASE WHEN p_custom_set[o] THEN p_custom[o] ELSE n.custom_status END,
            custom_status_version = n.custom_status_version + CASE WHEN p_custom_set[o] THEN 1 ELSE 0 END
        FROM unnest(v_stored) o WHERE p_held[o] > 0 AND n.incarnation = p_held[o];
    END IF;
    IF v_has_free THEN
        WITH new AS (
            INSERT INTO instances AS n (instance_id, orchestration_name, orchestration_version, current_execution_id,
                created_at, updated_at, parent_instance_id, pinned_version, custom_status_version, custom_status)
            SELECT v_instance[o], p_name[o], p_version[o], p_execution[o], v_now, v_now, p_parent[o],
                coalesce(p_pinned[o], ''), CASE WHEN p_custom_set[o] THEN 1 ELSE 0 END, p_custom[o]
            FROM unnest(v_stored) o
            WHERE p_held[o] = 0 AND p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL
            RETURNING n.instance_id, n.incarnation)
        SELECT pg_catalog.count(*), pg_catalog.array_agg(coalesce(w.incarnation, d.detail) ORDER BY d.place)
        INTO v_instances, details
        FROM unnest(p_instance, details) WITH ORDINALITY d(i, detail, place)
        LEFT JOIN new w ON w.instance_id = d.i;
        v_instances := (SELECT pg_catalog.count(*) FROM unnest(v_stored) o
            WHERE p_held[o] = 0 AND p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL);
    END IF;

    INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
    SELECT v_instance[e.step], p_execution[e.step], e.id, e.type, v_now, e.data
    FROM unnest(p_event_turn, p_event_id, p_event_type, p_event_data) e(step, id, type, data)
    WHERE verdicts[e.step] = 0;
    GET DIAGNOSTICS v_events = ROW_COUNT;

    IF pg_catalog.cardinality(p_kv_turn) > 0 OR true = ANY (p_kv_cleared) THEN
        PERFORM change_values_1(v_now, verdicts, p_instance, p_kv_cleared, p_kv_turn, p_kv_key, p_kv_value, p_kv_ms);
    END IF;
    IF v_has_end THEN
        SELECT pg_catalog.array_agg(v_instance[o]) FILTER (WHERE p_status[o] <> 'ContinuedAsNew'),
            pg_catalog.array_agg(v_instance[o]) FILTER (WHERE p_status[o] = 'ContinuedAsNew')
        INTO v_over, v_continued FROM unnest(v_stored) o WHERE p_terminal[o];
        IF EXISTS (SELECT 1 FROM kv_delta WHERE instance_id = ANY (v_over || v_continued)) THEN
            PERFORM merge_values_1(v_over || v_continued);
        END IF;
    END IF;
    IF pg_catalog.cardinality(p_cancel_turn) > 0 THEN
        WITH gone AS (
            DELETE FROM worker_queue w
            USING unnest(p_cancel_turn, p_cancel_instance, p_cancel_execution, p_cancel_activity)
                c(step, instance_id, execution_id, activity_id)
            WHERE verdicts[c.step] = 0 AND w.instance_id = c.instance_id AND w.execution_id = c.execution_id
                AND w.activity_id = c.activity_id
            RETURNING w.session_id, w.route)
        INSERT INTO session_arrivals (sessions, routes)
        SELECT pg_catalog.array_agg(session_id), pg_catalog.array_agg(route) FROM gone WHERE session_id IS NOT NULL
        HAVING pg_catalog.count(*) > 0;
    END IF;

    IF p_claim_max > 0 THEN
        -- The oldest that is ready. One whose time came long ago, and whom no claim has looked at yet, is older still.
        IF pg_catalog.cardinality(p_claim_routes) = 1 THEN
            SELECT (SELECT w.created_at FROM worker_queue w
                    WHERE w.route = p_claim_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL ORDER BY w.id LIMIT 1),
                (SELECT 1 FROM worker_queue w WHERE w.due_at <= v_now - p_overtaking_ms ORDER BY w.due_at LIMIT 1) IS NULL
            INTO v_head, v_may_overtake;
        ELSE
            SELECT (SELECT pg_catalog.min(h.created_at) FROM unnest(coalesce(p_claim_routes, ready_routes_1()))
                        r(route) CROSS JOIN LATERAL (
                    SELECT w.created_at FROM worker_queue w
                    WHERE w.route = r.route AND w.due_at IS NULL AND w.session_id IS NULL ORDER BY w.id LIMIT 1) h),
                (SELECT 1 FROM worker_queue w WHERE w.due_at <= v_now - p_overtaking_ms ORDER BY w.due_at LIMIT 1) IS NULL
            INTO v_head, v_may_overtake;
        END IF;
        v_may_overtake := v_may_overtake AND (v_head IS NULL OR v_head > v_now - p_overtaking_ms);
        IF NOT v_may_overtake THEN
            old_ids := oldest_work_1(p_claim_max, p_claim_routes);
            p_claim_max := p_claim_max - coalesce(pg_catalog.cardinality(old_ids), 0);
        END IF;
    END IF;
    IF pg_catalog.cardinality(p_work_turn) > 0 THEN
        v_entered := enter_work_1(p_now, verdicts, p_work_turn, p_work_instance, p_work_execution, p_work_activity,
            p_work_session, p_work_route, p_work_item, p_claim_max, p_claim_ms, p_claim_routes, p_claim_seed);
        places := v_entered.places;
        ids := v_entered.ids;
        some_ready := v_entered.some_ready;
    END IF;
    IF p_claim_max > 0 AND v_may_overtake AND v_head IS NOT NULL
        AND coalesce(pg_catalog.cardinality(places), 0) < p_claim_max THEN
        old_ids := oldest_work_1(p_claim_max - coalesce(pg_catalog.cardinality(places), 0), p_claim_routes);
    END IF;
    IF old_ids IS NOT NULL THEN
        SELECT pg_catalog.array_agg(l.id), pg_catalog.array_agg(l.attempts), pg_catalog.array_agg(l.item)
        INTO old_ids, old_attempts, old_items FROM lease_work_1(p_now, old_ids, p_claim_ms, p_claim_seed) l;
    END IF;

    IF v_timers IS NOT NULL THEN
        DELETE FROM orchestrator_queue WHERE id = ANY (v_timers);
    END IF;
    -- What nobody will read goes. A start has somebody who waits for its answer.
    IF v_over IS NOT NULL THEN
        DELETE FROM orchestrator_queue WHERE instance_id = ANY (v_over) AND parked_at IS NULL AND class <> 'start';
    END IF;
    IF v_continued IS NOT NULL THEN
        DELETE FROM orchestrator_queue
        WHERE instance_id = ANY (v_continued) AND parked_at IS NULL AND class = 'completion';
    END IF;
    IF pg_catalog.cardinality(p_message_turn) > 0 THEN
        WITH new AS (
            INSERT INTO orchestrator_queue (instance_id, class, visible_at, created_at, work_item, parent_instance_id)
            SELECT m.i, m.class, CASE WHEN m.due <= v_now THEN 0 ELSE m.due END, v_now, m.item, m.parent
            FROM unnest(p_message_turn, p_message_instance, p_message_class, p_message_due, p_message_item,
                    p_message_parent) WITH ORDINALITY m(step, i, class, due, item, parent, place)
            WHERE verdicts[m.step] = 0
                AND (v_over IS NULL OR m.class = 'start' OR m.i <> v_instance[m.step] OR m.i <> ALL (v_over))
                AND (v_continued IS NULL OR m.class <> 'completion' OR m.i <> v_instance[m.step]
                    OR m.i <> ALL (v_continued))
            ORDER BY m.place
            RETURNING instance_id, visible_at)
        SELECT pg_catalog.array_agg(instance_id), pg_catalog.array_agg(visible_at),
            least(pg_catalog.min(visible_at) FILTER (WHERE visible_at > 0), 9223372036854775807 - v_head_start) + v_head_start
        INTO v_told, v_times, next_due FROM new;
        IF next_due IS NOT NULL THEN
            -- An instance that only set timers waits for the first of them. Nobody has to look before that.
            WITH waiting AS (
                UPDATE instance_schedule s SET lock_token = NULL, due_at = least(m.at, 9223372036854775807 - v_head_start) + v_head_start,
                    class = coalesce((SELECT n.pinned_version FROM instances n WHERE n.instance_id = s.instance_id), '')
                FROM (SELECT u.i, pg_catalog.min(u.at) AS at FROM unnest(v_told, v_times) u(i, at)
                      GROUP BY u.i HAVING pg_catalog.min(u.at) > 0) m
                WHERE s.instance_id = m.i AND s.lock_token = v_guard RETURNING s.instance_id)
            SELECT pg_catalog.array_agg(instance_id) INTO v_waiting FROM waiting;
        END IF;
        v_told := nullif(ARRAY(SELECT unnest(v_told) EXCEPT SELECT unnest(v_waiting)), '{}');
    END IF;

    DELETE FROM instance_schedule s WHERE s.instance_id = ANY (p_instance) AND s.lock_token = v_guard;
    IF v_found IS NOT NULL THEN
        -- Of those that had a place before, one that stood in line or whose timer came has to get another.
        WITH gone AS (
            DELETE FROM instance_schedule s USING unnest(v_stored) o
            WHERE s.instance_id = v_instance[o] AND s.lock_token IS NULL
                AND (s.ready_seq IS NOT NULL OR p_timer[o] IS NOT NULL OR v_instance[o] = ANY (v_over || v_continued))
            RETURNING s.instance_id)
        SELECT v_told || pg_catalog.array_agg(g.instance_id) INTO v_told FROM gone g
        WHERE (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = g.instance_id LIMIT 1) IS NOT NULL;
    END IF;
    IF v_told IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_told);
        some_told := true;
    END IF;
    v_noted := note_steps_1(p_committer, p_epoch, p_batch, verdicts, v_instances, v_executions, v_events,
        coalesce(v_running, 0), coalesce(v_completed, 0), coalesce(v_failed, 0));
END $$;
