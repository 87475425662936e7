-- Which instance comes next, and leasing it.
--
-- Functions carry a version in their name. A build calls the versions that it knows, so that builds of two versions can
-- run side by side on one schema; a new version of a function is added, never put in the place of an old one.

-- The time by which everything is decided: the database's, or the one that a test hands in.
CREATE FUNCTION now_ms_1(p_now bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- What the messages of an instance say about its place: the oldest visible one, when another becomes visible, and since
-- when the longest parked one is parked.
CREATE FUNCTION outlook_1(p_instance text, p_now bigint)
RETURNS TABLE (head bigint, next_visible bigint, parked_since bigint)
LANGUAGE sql STABLE AS $$
    SELECT
        least(
            (SELECT id FROM orchestrator_queue
             WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at = 0 ORDER BY visible_at, id LIMIT 1),
            (SELECT min(id) FROM orchestrator_queue
             WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at > 0 AND visible_at <= p_now)),
        (SELECT visible_at FROM orchestrator_queue
         WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at > p_now ORDER BY visible_at LIMIT 1),
        (SELECT min(parked_at) FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NOT NULL)
$$;

-- Puts instances that are neither ready nor leased where they belong. The caller saw a change of each of them after that
-- was committed; what is written only ever moves an instance forward, so an older view does no harm.
CREATE FUNCTION place_1(p_instances text[], p_now bigint, p_parking_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO instance_schedule AS s (instance_id, class, ready_seq, due_at, parked)
    SELECT t.instance_id, coalesce(n.pinned_version, ''), o.head, least(o.next_visible, o.parked_since + p_parking_ms),
        o.parked_since IS NOT NULL
    FROM (SELECT DISTINCT i COLLATE "C" AS instance_id FROM unnest(p_instances) i) t
    LEFT JOIN instances n ON n.instance_id = t.instance_id
    CROSS JOIN LATERAL outlook_1(t.instance_id, p_now) o
    WHERE coalesce(o.head, o.next_visible, o.parked_since) IS NOT NULL
    ORDER BY t.instance_id
    ON CONFLICT (instance_id) DO UPDATE SET
        class = excluded.class,
        ready_seq = least(s.ready_seq, excluded.ready_seq),
        due_at = least(s.due_at, excluded.due_at),
        parked = s.parked OR excluded.parked
    WHERE s.lock_token IS NULL;
END $$;

-- Looks at the instances that others touched, and at those that the caller's own transaction did. Returns whether there
-- may be more of them, whether some were left alone because somebody is committing a turn of theirs right now, and those
-- that nobody has scheduled yet, or that wait for a later moment: it is for the caller to place or to lease them.
CREATE FUNCTION absorb_1(p_touched text[], OUT more boolean, OUT busy boolean, OUT fresh text[],
    OUT waiting text[])
LANGUAGE plpgsql AS $$
DECLARE
    v_rows integer := 0;
    v_taken text[];
    v_present text[];
    v_free text[];
BEGIN
    busy := false;
    fresh := p_touched;
    IF EXISTS (SELECT 1 FROM arrivals) THEN
        WITH oldest AS (SELECT id FROM arrivals ORDER BY id LIMIT 32 FOR UPDATE SKIP LOCKED),
             gone AS (DELETE FROM arrivals a USING oldest o WHERE a.id = o.id RETURNING a.instances)
        SELECT count(*), (SELECT array_agg(DISTINCT i) FROM gone g, unnest(g.instances || p_touched) i)
        INTO v_rows, v_taken FROM gone;
        fresh := coalesce(v_taken, p_touched);
    END IF;
    more := v_rows = 32;
    IF fresh IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(instance_id) INTO v_present FROM instance_schedule WHERE instance_id = ANY (fresh);
    IF v_present IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(l.instance_id) INTO v_free FROM (
        SELECT instance_id FROM instance_schedule WHERE instance_id = ANY (v_present)
        ORDER BY instance_id FOR UPDATE SKIP LOCKED) l;
    IF cardinality(v_present) > coalesce(cardinality(v_free), 0) THEN
        busy := true;
        INSERT INTO arrivals (instances)
        SELECT array_agg(i) FROM unnest(v_present) i WHERE i <> ALL (coalesce(v_free, '{}'));
    END IF;
    -- What is ready keeps its place, what is leased is looked at when the lease ends.
    SELECT array_agg(t.i) FILTER (WHERE s.instance_id IS NULL),
        array_agg(t.i) FILTER (WHERE t.i = ANY (v_free) AND s.ready_seq IS NULL AND s.lock_token IS NULL)
    INTO fresh, waiting
    FROM unnest(fresh) t(i) LEFT JOIN instance_schedule s ON s.instance_id = t.i;
END $$;

-- Moves instances whose time has come to where they belong now; tells whether there may be more of them.
CREATE FUNCTION promote_1(p_now bigint, p_parking_ms bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_due text[];
BEGIN
    SELECT array_agg(d.instance_id) INTO v_due FROM (
        SELECT instance_id FROM instance_schedule WHERE due_at <= p_now ORDER BY due_at LIMIT 256
        FOR UPDATE SKIP LOCKED) d;
    IF v_due IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM orchestrator_queue
    WHERE instance_id = ANY (v_due) AND parked_at IS NOT NULL AND parked_at <= p_now - p_parking_ms;
    -- The token stays: whoever holds it may still give the turn back, until somebody takes over.
    UPDATE instance_schedule s SET
        ready_seq = o.head, due_at = least(o.next_visible, o.parked_since + p_parking_ms),
        parked = o.parked_since IS NOT NULL,
        lock_token = CASE WHEN o.head IS NOT NULL THEN s.lock_token END
    FROM unnest(v_due) t(i) CROSS JOIN LATERAL outlook_1(t.i, p_now) o
    WHERE s.instance_id = t.i;
    DELETE FROM instance_schedule WHERE instance_id = ANY (v_due) AND ready_seq IS NULL AND due_at IS NULL;
    RETURN cardinality(v_due) = 256;
END $$;

-- Deals with the visible messages of an instance that does not exist. Completions belong to an instance that is gone and
-- are dropped, or they would reach a later one of the same id. Signals and cancellations may have overtaken the start:
-- they are parked, with whatever came with them. Returns how many messages were dropped.
CREATE FUNCTION set_aside_1(p_instance text, p_now bigint, p_parking_ms bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_seen bigint[];
    v_start boolean;
    v_signal boolean;
    v_dropped bigint := 0;
    v_more bigint;
BEGIN
    -- Others append at any moment, a start among them. Only what is seen here is dealt with.
    SELECT array_agg(id), bool_or(class = 'start'), bool_or(class = 'signal') INTO v_seen, v_start, v_signal
    FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at <= p_now;
    IF v_seen IS NOT NULL AND NOT v_start THEN
        DELETE FROM orchestrator_queue WHERE id = ANY (v_seen) AND class = 'completion';
        GET DIAGNOSTICS v_dropped = ROW_COUNT;
        IF v_signal
            OR EXISTS (SELECT 1 FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NULL
                       AND class = 'start')
            OR EXISTS (SELECT 1 FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NOT NULL
                       AND class = 'signal') THEN
            UPDATE orchestrator_queue SET parked_at = p_now WHERE id = ANY (v_seen);
        ELSE
            DELETE FROM orchestrator_queue WHERE id = ANY (v_seen);
            GET DIAGNOSTICS v_more = ROW_COUNT;
            v_dropped := v_dropped + v_more;
            DELETE FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NOT NULL;
            GET DIAGNOSTICS v_more = ROW_COUNT;
            v_dropped := v_dropped + v_more;
        END IF;
    END IF;
    DELETE FROM instance_schedule WHERE instance_id = p_instance;
    PERFORM place_1(ARRAY[p_instance], p_now, p_parking_ms);
    RETURN v_dropped;
END $$;

-- The versions that ready instances are pinned to, by hopping from one to the next in the index.
CREATE FUNCTION ready_classes_1() RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (WITH RECURSIVE c (class) AS (
        (SELECT class FROM instance_schedule WHERE ready_seq IS NOT NULL ORDER BY class LIMIT 1)
        UNION ALL
        SELECT (SELECT s.class FROM instance_schedule s
                WHERE s.ready_seq IS NOT NULL AND s.class > c.class ORDER BY s.class LIMIT 1)
        FROM c WHERE c.class IS NOT NULL)
    SELECT coalesce(array_agg(class), '{}') FROM c WHERE class IS NOT NULL);
END $$;

-- What is known of an instance that has no row: the highest execution that it has anything of, or 1, that execution's
-- last event, or 0, and its status.
CREATE FUNCTION rowless_1(p_instance text, OUT execution bigint, OUT last_event bigint, OUT status text)
LANGUAGE plpgsql AS $$
DECLARE
    v_recorded bigint;
BEGIN
    SELECT h.execution_id, h.event_id INTO execution, last_event FROM history h
    WHERE h.instance_id = p_instance ORDER BY h.execution_id DESC, h.event_id DESC LIMIT 1;
    SELECT e.execution_id, e.status INTO v_recorded, status FROM executions e
    WHERE e.instance_id = p_instance AND e.execution_id >= coalesce(execution, 1) ORDER BY e.execution_id DESC LIMIT 1;
    IF v_recorded > execution THEN
        last_event := NULL;
    END IF;
    execution := greatest(v_recorded, execution, 1);
    last_event := coalesce(last_event, 0);
END $$;

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
CREATE FUNCTION claim_instances_1(
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

            SELECT array_agg(q.id ORDER BY q.id), array_agg(q.attempt_count ORDER BY q.id),
                array_agg(q.work_item ORDER BY q.id), coalesce(bool_or(q.class = 'start'), false),
                EXISTS (SELECT 1 FROM orchestrator_queue p WHERE p.instance_id = v_one AND p.parked_at IS NOT NULL)
            INTO message_ids, attempts, texts, v_has_start, v_has_parked FROM orchestrator_queue q
            WHERE q.instance_id = v_one AND q.parked_at IS NULL AND q.visible_at <= v_now;
            SELECT n.orchestration_name, n.orchestration_version, n.current_execution_id, n.incarnation, n.pinned_version,
                (SELECT e.status FROM executions e
                 WHERE e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id),
                coalesce((SELECT h.event_id FROM history h
                          WHERE h.instance_id = n.instance_id AND h.execution_id = n.current_execution_id
                          ORDER BY h.event_id DESC LIMIT 1), 0)
            INTO name, version, execution, incarnation, v_class, status, last_event
            FROM instances n WHERE n.instance_id = v_one;
            start_event := NULL;
            IF NOT FOUND THEN
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

-- Extends a live lease on an instance; never shortens it. A lease that was live when the request arrived is honoured,
-- however long that waited, as long as nobody has taken over.
CREATE FUNCTION renew_turn_1(p_now bigint, p_instance text, p_token text, p_waited_ms bigint, p_extend_ms bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_arrived bigint := now_ms_1(p_now) - p_waited_ms;
    v_until bigint;
BEGIN
    SELECT locked_until INTO v_until FROM instance_schedule
    WHERE instance_id = p_instance AND lock_token = p_token FOR UPDATE;
    IF v_until IS NULL OR v_until <= v_arrived THEN
        RETURN false;
    END IF;
    v_until := greatest(v_until, now_ms_1(p_now) + least(p_extend_ms, 9223372036854775807 - now_ms_1(p_now)));
    UPDATE instance_schedule SET locked_until = v_until, due_at = v_until, ready_seq = NULL
    WHERE instance_id = p_instance;
    RETURN true;
END $$;

-- Gives a turn back. A lease that has run out can still be given back as long as nobody has taken over.
CREATE FUNCTION abandon_turn_1(p_now bigint, p_instance text, p_token text, p_delay_ms bigint, p_ignore_attempt boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_batch bigint[];
BEGIN
    SELECT batch INTO v_batch FROM instance_schedule
    WHERE instance_id = p_instance AND lock_token = p_token FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT p_ignore_attempt THEN
        UPDATE orchestrator_queue SET attempt_count = attempt_count + 1 WHERE id = ANY (v_batch);
    END IF;
    IF p_delay_ms > 0 THEN
        UPDATE orchestrator_queue
        SET visible_at = now_ms_1(p_now) + least(p_delay_ms, 9223372036854775807 - now_ms_1(p_now))
        WHERE id = ANY (v_batch);
    END IF;
    DELETE FROM instance_schedule WHERE instance_id = p_instance;
    INSERT INTO arrivals (instances) VALUES (ARRAY[p_instance]);
    RETURN true;
END $$;
