-- A turn gets as many messages as fit, by count and by size; the rest stays for the next one, in order.
--
-- Connections say what fits by the settings `duroxide.max_turn_messages` and `duroxide.max_turn_bytes`.

-- Leases up to `p_max` instances, those with the oldest messages; they come in no particular order.
--
-- `p_known` are the classes that the caller has made up its mind about, `p_allowed` those it takes; both NULL for any.
-- If a ready instance is of another class, nobody in line is leased and `unknown_classes` asks about it. `p_touched` are
-- instances that got messages in the caller's own transaction. Tokens begin with `lock_` and the seed.
--
-- An instance stands in line by its row in `instance_schedule`. If the line is empty, those that just arrived are leased
-- without standing in it first.
--
-- The last row has no instance and describes the rest: the time, whether there is more to look at, when to look again,
-- and whether some that just arrived stand in line now.
CREATE OR REPLACE FUNCTION claim_instances_1(
    p_now bigint, p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text,
    p_touched text[])
RETURNS TABLE (
    instance text, token text, name text, version text, execution bigint, incarnation bigint, last_event bigint,
    status text, start_event text, message_ids bigint[], attempts bigint[], texts text[],
    now_at bigint, next_due bigint, more boolean, busy boolean, unknown_classes text[],
    dropped_for text[], dropped_count bigint[], in_line boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_until bigint;
    v_some_arrived boolean;
    v_some_are_due boolean;
    v_is_line boolean;
    v_fresh text[] := p_touched;
    v_waiting text[];
    v_set_aside integer := 0;
    v_classes text[];
    v_candidates text[];
    v_are_lapsed boolean[];
    v_are_parked boolean[];
    v_place integer;
    v_is_fresh boolean;
    v_found integer := 0;
    v_one text;
    v_class text;
    v_has_start boolean;
    v_has_parked boolean;
    v_dropped bigint;
    v_more boolean := false;
    v_busy boolean := false;
    v_in_line boolean := false;
    v_dropped_for text[];
    v_dropped_count bigint[];
    v_max_messages integer := coalesce(nullif(current_setting('duroxide.max_turn_messages', true), '')::integer, 1000);
    v_max_bytes bigint := coalesce(nullif(current_setting('duroxide.max_turn_bytes', true), '')::bigint, 16777216);
    v_has_more boolean;
    v_is_known boolean;
    v_bytes bigint;
    v_total bigint := 0;
BEGIN
    SELECT EXISTS (SELECT 1 FROM arrivals)
            OR EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = ANY (p_touched)),
        EXISTS (SELECT 1 FROM instance_schedule s WHERE s.due_at <= v_now),
        EXISTS (SELECT 1 FROM instance_schedule s WHERE s.ready_seq IS NOT NULL)
    INTO v_some_arrived, v_some_are_due, v_is_line;
    IF v_some_arrived THEN
        SELECT a.more, a.busy, a.fresh, a.waiting INTO v_more, v_busy, v_fresh, v_waiting FROM absorb_1(p_touched) a;
        IF v_waiting IS NOT NULL THEN
            PERFORM place_1(v_waiting, v_now, p_parking_ms);
        END IF;
    END IF;
    IF v_some_are_due THEN
        v_more := promote_1(v_now, p_parking_ms) OR v_more;
    END IF;
    IF v_waiting IS NOT NULL OR v_some_are_due THEN
        v_is_line := EXISTS (SELECT 1 FROM instance_schedule s WHERE s.ready_seq IS NOT NULL);
    END IF;
    LOOP
        v_is_fresh := v_fresh IS NOT NULL AND NOT v_is_line;
        IF v_is_fresh THEN
            v_candidates := v_fresh;
            v_fresh := NULL;
            IF cardinality(v_candidates) > p_max THEN
                SELECT array_agg(f.i) FILTER (WHERE f.place <= p_max), array_agg(f.i) FILTER (WHERE f.place > p_max)
                INTO v_candidates, v_fresh FROM (
                    SELECT i, row_number() OVER (ORDER BY (
                        SELECT min(q.id) FROM orchestrator_queue q
                        WHERE q.instance_id = i AND q.parked_at IS NULL AND q.visible_at <= v_now)) AS place
                    FROM unnest(v_candidates) i) f;
            END IF;
            IF cardinality(v_candidates) > 1 THEN
                -- Two processes that lease the same ones wait for each other in one order.
                SELECT array_agg(i ORDER BY i COLLATE "C") INTO v_candidates FROM unnest(v_candidates) i;
            END IF;
        ELSE
            IF v_fresh IS NOT NULL THEN
                PERFORM place_1(v_fresh, v_now, p_parking_ms);
                v_fresh := NULL;
                v_in_line := true;
            END IF;
            v_classes := ready_classes_1();
            IF p_known IS NOT NULL AND NOT v_classes <@ p_known THEN
                SELECT array_agg(c) INTO unknown_classes FROM unnest(v_classes) c WHERE c <> ALL (p_known);
                EXIT;
            END IF;
            IF p_known IS NOT NULL THEN
                SELECT coalesce(array_agg(c), '{}') INTO v_classes FROM unnest(v_classes) c WHERE c = ANY (p_allowed);
            END IF;
            -- Those that others are about to lease are skipped.
            SELECT array_agg(x.instance_id ORDER BY x.ready_seq), array_agg(x.lapsed ORDER BY x.ready_seq),
                array_agg(x.parked ORDER BY x.ready_seq)
            INTO v_candidates, v_are_lapsed, v_are_parked FROM (
                SELECT h.* FROM unnest(v_classes) c(class) CROSS JOIN LATERAL (
                    SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked
                    FROM instance_schedule s WHERE s.class = c.class AND s.ready_seq IS NOT NULL
                    ORDER BY s.ready_seq LIMIT p_max - v_found FOR UPDATE SKIP LOCKED) h
                ORDER BY h.ready_seq LIMIT p_max - v_found) x;
            EXIT WHEN v_candidates IS NULL;
        END IF;
        v_place := 0;
        FOREACH v_one IN ARRAY v_candidates LOOP
            v_place := v_place + 1;
            IF NOT v_is_fresh AND v_are_lapsed[v_place] THEN
                -- An attempt whose lease ran out is counted by whoever takes over.
                UPDATE orchestrator_queue q SET attempt_count = q.attempt_count + 1 WHERE q.id IN (
                    SELECT b FROM instance_schedule s, unnest(s.batch) b WHERE s.instance_id = v_one);
            END IF;

            -- The oldest ones, as many as fit. Sizes are known without reading the texts.
            SELECT array_agg(m.id ORDER BY m.id) FILTER (WHERE m.fits),
                array_agg(m.attempt_count ORDER BY m.id) FILTER (WHERE m.fits),
                array_agg(m.work_item ORDER BY m.id) FILTER (WHERE m.fits),
                coalesce(bool_or(m.class = 'start') FILTER (WHERE m.fits), false),
                coalesce(max(m.upto) FILTER (WHERE m.fits), 0), coalesce(NOT bool_and(m.fits), false),
                EXISTS (SELECT 1 FROM orchestrator_queue p WHERE p.instance_id = v_one AND p.parked_at IS NOT NULL)
            INTO message_ids, attempts, texts, v_has_start, v_bytes, v_has_more, v_has_parked FROM (
                SELECT u.*, u.place <= v_max_messages AND (u.upto <= v_max_bytes OR u.place = 1) AS fits FROM (
                    SELECT q.*, row_number() OVER (ORDER BY q.id) AS place,
                        sum(octet_length(q.work_item)) OVER (ORDER BY q.id) AS upto
                    FROM (
                        (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                         WHERE instance_id = v_one AND parked_at IS NULL AND visible_at = 0
                         ORDER BY visible_at, id LIMIT v_max_messages + 1)
                        UNION ALL
                        (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                         WHERE instance_id = v_one AND parked_at IS NULL AND visible_at > 0 AND visible_at <= v_now
                         ORDER BY id LIMIT v_max_messages + 1)) q) u) m;
            SELECT n.orchestration_name, n.orchestration_version, n.current_execution_id, n.incarnation, n.pinned_version,
                (SELECT e.status FROM executions e
                 WHERE e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id),
                coalesce((SELECT h.event_id FROM history h
                          WHERE h.instance_id = n.instance_id AND h.execution_id = n.current_execution_id
                          ORDER BY h.event_id DESC LIMIT 1), 0)
            INTO name, version, execution, incarnation, v_class, status, last_event
            FROM instances n WHERE n.instance_id = v_one;
            v_is_known := FOUND;
            IF v_has_more AND (NOT v_is_known OR status = 'ContinuedAsNew') THEN
                -- An execution is to begin. What starts it comes first, wherever it is in the queue.
                SELECT array_agg(m.id ORDER BY m.id), array_agg(m.attempt_count ORDER BY m.id),
                    array_agg(m.work_item ORDER BY m.id), coalesce(bool_or(m.class = 'start'), false),
                    coalesce(max(m.upto), 0)
                INTO message_ids, attempts, texts, v_has_start, v_bytes FROM (
                    SELECT q.*, row_number() OVER (ORDER BY q.class <> 'start', q.id) AS place,
                        sum(octet_length(q.work_item)) OVER (ORDER BY q.class <> 'start', q.id) AS upto
                    FROM (
                        (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                         WHERE instance_id = v_one AND parked_at IS NULL AND visible_at <= v_now AND class = 'start'
                         ORDER BY id LIMIT v_max_messages)
                        UNION ALL
                        (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                         WHERE instance_id = v_one AND parked_at IS NULL AND visible_at = 0 AND class <> 'start'
                         ORDER BY visible_at, id LIMIT v_max_messages)
                        UNION ALL
                        (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                         WHERE instance_id = v_one AND parked_at IS NULL AND visible_at > 0 AND visible_at <= v_now
                            AND class <> 'start'
                         ORDER BY id LIMIT v_max_messages)) q) m
                WHERE m.place <= v_max_messages AND (m.upto <= v_max_bytes OR m.place = 1);
            END IF;
            start_event := NULL;
            IF NOT v_is_known THEN
                execution := 1;
                last_event := 0;
                status := NULL;
                IF EXISTS (SELECT 1 FROM history h WHERE h.instance_id = v_one)
                    OR EXISTS (SELECT 1 FROM executions e WHERE e.instance_id = v_one) THEN
                    SELECT r.execution, r.last_event, r.status INTO execution, last_event, status FROM rowless_1(v_one) r;
                END IF;
                IF last_event = 0 AND NOT v_has_start THEN
                    -- It does not exist.
                    IF v_is_fresh THEN
                        v_fresh := v_fresh || v_one;
                        CONTINUE;
                    END IF;
                    v_dropped := set_aside_1(v_one, v_now, p_parking_ms);
                    v_set_aside := v_set_aside + 1;
                    IF v_dropped > 0 THEN
                        v_dropped_for := v_dropped_for || v_one;
                        v_dropped_count := v_dropped_count || v_dropped;
                    END IF;
                    IF v_set_aside >= 64 THEN
                        v_more := true;
                        p_max := v_found;
                        EXIT;
                    END IF;
                    CONTINUE;
                END IF;
                IF last_event > 0 THEN
                    SELECT h.event_data INTO start_event FROM history h
                    WHERE h.instance_id = v_one AND h.execution_id = execution AND h.event_type = 'OrchestrationStarted'
                    ORDER BY h.event_id LIMIT 1;
                END IF;
                v_class := '';
                incarnation := 0;
            END IF;
            IF v_is_fresh AND (v_has_parked OR (p_known IS NOT NULL AND v_class <> ALL (p_allowed))) THEN
                v_fresh := v_fresh || v_one;
                CONTINUE;
            END IF;
            IF NOT v_is_fresh AND v_are_parked[v_place] THEN
                -- It exists, so they are for it. They are leased with the others in the next round, which finds it again.
                UPDATE orchestrator_queue q SET parked_at = NULL WHERE q.instance_id = v_one AND q.parked_at IS NOT NULL;
                UPDATE instance_schedule s SET parked = false, lock_token = NULL, batch = NULL WHERE s.instance_id = v_one;
                CONTINUE;
            END IF;
            IF message_ids IS NULL THEN
                -- Its messages are for later, or somebody removed them behind the store's back.
                IF NOT v_is_fresh THEN
                    DELETE FROM instance_schedule s WHERE s.instance_id = v_one;
                END IF;
                PERFORM place_1(ARRAY[v_one], v_now, p_parking_ms);
                CONTINUE;
            END IF;
            -- The lease begins now, not when it was asked for.
            v_until := now_ms_1(p_now);
            v_until := v_until + least(p_lease_ms, 9223372036854775807 - v_until);
            token := 'lock_' || p_seed || '_' || v_one;
            IF v_is_fresh THEN
                INSERT INTO instance_schedule (instance_id, class, due_at, lock_token, locked_until, locked_at, batch)
                VALUES (v_one, v_class, v_until, token, v_until, v_now, message_ids)
                ON CONFLICT (instance_id) DO NOTHING;
                IF NOT FOUND THEN
                    -- Somebody else has placed it meanwhile.
                    v_fresh := v_fresh || v_one;
                    CONTINUE;
                END IF;
                -- From here on nobody else takes a turn of it. Somebody may have, after it was read.
                IF (SELECT count(*) FROM orchestrator_queue q WHERE q.id = ANY (message_ids)) < cardinality(message_ids)
                    OR EXISTS (SELECT 1 FROM history h
                               WHERE h.instance_id = v_one AND (h.execution_id, h.event_id) > (execution, last_event))
                    OR (SELECT n.incarnation FROM instances n WHERE n.instance_id = v_one)
                        IS DISTINCT FROM nullif(incarnation, 0) THEN
                    DELETE FROM instance_schedule s WHERE s.instance_id = v_one;
                    v_fresh := v_fresh || v_one;
                    CONTINUE;
                END IF;
            ELSE
                UPDATE instance_schedule s SET ready_seq = NULL, due_at = v_until, parked = false, lock_token = token,
                    locked_until = v_until, locked_at = v_now, batch = message_ids
                WHERE s.instance_id = v_one;
            END IF;
            v_found := v_found + 1;
            instance := v_one;
            RETURN NEXT;
            v_total := v_total + v_bytes;
            IF v_total >= v_max_bytes AND v_found < p_max THEN
                -- It is enough for one answer. The others keep their places.
                IF v_is_fresh THEN
                    v_fresh := v_fresh || v_candidates[v_place + 1:];
                END IF;
                v_more := true;
                p_max := v_found;
                EXIT;
            END IF;
        END LOOP;
        -- What could not be leased at once stands in line, at its end.
        IF v_fresh IS NOT NULL THEN
            PERFORM place_1(v_fresh, v_now, p_parking_ms);
            v_fresh := NULL;
            v_in_line := true;
        END IF;
        -- Nobody was in line, and nobody is.
        EXIT WHEN v_found >= p_max OR (v_is_fresh AND NOT v_in_line);
    END LOOP;
    IF v_waiting IS NOT NULL AND NOT v_in_line THEN
        v_in_line := EXISTS (
            SELECT 1 FROM instance_schedule s WHERE s.instance_id = ANY (v_waiting) AND s.ready_seq IS NOT NULL);
    END IF;
    instance := NULL;
    start_event := NULL;
    texts := NULL;
    now_at := now_ms_1(p_now);
    next_due := (SELECT s.due_at FROM instance_schedule s WHERE s.due_at IS NOT NULL ORDER BY s.due_at LIMIT 1);
    more := v_more;
    busy := v_busy;
    dropped_for := v_dropped_for;
    dropped_count := v_dropped_count;
    in_line := v_in_line;
    RETURN NEXT;
END $$;
