-- Claims that nothing stands in the way of: no dead entries, no instance or activity that cannot be claimed, no deadlock.
--
-- FLOORS. A claim looks for the lowest entries of a few indexes: arrivals and ready rows by id, times by when they are due.
-- What was there is dead soon. While somebody holds a snapshot (a dump, a long transaction, a standby that reports its
-- own), neither vacuum nor the index itself may remove these entries, and each claim would pass all of them. So a
-- connection counts what its claims pass. If that is much, it remembers floors, in settings of its session, and begins
-- there.
--
--   - A floor is where the first live entry was a moment ago (half a second to one; at first, where it is), or where the
--     next new one would have been. Whoever commits within that moment is found above it.
--   - The connection also finds what its own calls put below a floor.
--   - Everything else below a floor is found by the next claim that uses no floor: after one to thirty seconds, so
--     that such claims take about a tenth of the time. It also forgets the floors if few dead entries are left.
--
-- Nothing depends on a floor but when a row is found. Rows that others put below one (a lease that was given back
-- or ran out, a message that took long to commit) may be found that much later, after younger ones. As long as claims
-- pass few entries, as they do when nobody holds a snapshot, there are no floors.

-- Tells whether claims of a kind (`instances` or `work`) have been slow on this session within the last minute. Otherwise it
-- costs nothing to ask: the setting is empty.
CREATE FUNCTION are_slow_1(p_kind text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_setting text := 'duroxide.slow_' || p_kind;
BEGIN
    IF current_setting(v_setting)::bigint - now_ms_1(NULL) BETWEEN 1 AND 60000 THEN
        RETURN true;
    END IF;
    PERFORM set_config(v_setting, '', false);
    RETURN false;
END $$;

-- Notes that claims of a kind are slow on this session, so that the next one looks why.
CREATE FUNCTION are_slow_now_1(p_kind text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('duroxide.slow_' || p_kind, (now_ms_1(NULL) + 60000)::text, false);
END $$;

-- The setting for the floors of claims for these classes or routes (NULL for all).
CREATE FUNCTION floors_setting_1(p_kind text, p_keys text[]) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT 'duroxide.floors_' || p_kind || '_' || to_hex(coalesce(hash_array(p_keys), 0)) $$;

-- The floors of this session, if they are this schema's and for the same kind of claim.
CREATE FUNCTION floors_1(p_setting text, p_keys text[]) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    v_floors jsonb := nullif(current_setting(p_setting, true), '')::jsonb;
BEGIN
    RETURN CASE WHEN v_floors ->> 'schema' = current_schema() AND v_floors -> 'asked' = coalesce(to_jsonb(p_keys), 'null')
        THEN v_floors END;
END $$;

-- Remembers floors after a claim. `p_here` are the floors that the next moment's claims begin at, and `p_keys` the
-- classes or routes that there are. `p_is_left` tells that something is known to be left below a floor.
CREATE FUNCTION keep_floors_1(
    p_setting text, p_floors jsonb, p_is_bounded boolean, p_took_ms bigint, p_asked text[], p_keys text[], p_here jsonb,
    p_is_left boolean)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_clock bigint := now_ms_1(NULL);
    v_floors jsonb := p_floors;
    v_full_at bigint;
BEGIN
    IF v_floors IS NULL THEN
        v_floors := jsonb_build_object('schema', current_schema(), 'asked', p_asked, 'floor', NULL);
    END IF;
    IF p_here IS NOT NULL THEN
        -- Where they were a moment ago, and where they are.
        v_floors := v_floors || jsonb_build_object(
            'floor', coalesce(v_floors -> 'mark', p_here), 'mark', p_here, 'marked_at', v_clock);
    END IF;
    IF v_floors -> 'floor' IS NULL OR v_floors -> 'floor' = 'null' THEN
        v_full_at := 0;
    ELSIF p_is_bounded THEN
        v_full_at := CASE WHEN p_is_left THEN 0 ELSE (v_floors ->> 'full_at')::bigint END;
    ELSE
        v_full_at := v_clock + CASE WHEN p_is_left THEN least(30000, 100 + 2 * p_took_ms)
            ELSE greatest(1000, least(30000, 10 * p_took_ms)) END;
    END IF;
    v_floors := v_floors || jsonb_build_object('full_at', v_full_at);
    IF p_keys IS NOT NULL THEN
        v_floors := v_floors || jsonb_build_object('keys', p_keys);
    END IF;
    PERFORM set_config(p_setting, v_floors::text, false);
END $$;

-- Where the next id of a table will be, at least; 0 if this role must not know.
CREATE FUNCTION next_id_1(p_sequence regclass) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT has_sequence_privilege(p_sequence, 'USAGE') AND NOT has_sequence_privilege(p_sequence, 'SELECT') THEN
        RETURN 0;
    END IF;
    RETURN coalesce(pg_sequence_last_value(p_sequence), 0) + 1;
END $$;

-- The first ready instance of these classes from a floor on, as its place in the line.
CREATE FUNCTION first_in_line_1(p_classes text[], p_from bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT min(f.ready_seq) FROM unnest(p_classes) c(class) CROSS JOIN LATERAL (
        SELECT s.ready_seq FROM instance_schedule s WHERE s.class = c.class AND s.ready_seq >= p_from
        ORDER BY s.ready_seq LIMIT 1) f);
END $$;

-- Those of these instances that are ready. Looked up one by one: the planner must not think of the index of ready ones.
CREATE FUNCTION ready_among_1(p_instances text[]) RETURNS TABLE (instance_id text, class text, ready_seq bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT f.* FROM unnest(p_instances) i CROSS JOIN LATERAL (
        SELECT s.instance_id, s.class, s.ready_seq FROM instance_schedule s WHERE s.instance_id = i OFFSET 0) f
    WHERE f.ready_seq IS NOT NULL;
END $$;

-- Tells whether an instance of these classes is ready, from a floor on or among those that were placed just now.
CREATE FUNCTION is_line_1(p_classes text[], p_from bigint, p_placed text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN first_in_line_1(p_classes, p_from) IS NOT NULL
        OR (p_placed IS NOT NULL AND EXISTS (SELECT 1 FROM ready_among_1(p_placed)));
END $$;

-- Moves the floors for instances, begins to use some, or forgets them. `p_is_exhausted` tells that the claim has left nobody.
CREATE FUNCTION move_instance_floors_1(
    p_setting text, p_floors jsonb, p_is_bounded boolean, p_is_slow boolean, p_began timestamptz, p_now bigint,
    p_next_due bigint, p_allowed text[], p_placed text[], p_is_exhausted boolean)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_classes text[] := p_allowed;
    v_arrival bigint;
    v_ready bigint;
    v_from bigint := coalesce((p_floors -> 'floor' ->> 'ready')::bigint, 0);
    v_here jsonb;
    v_is_left boolean;
BEGIN
    IF NOT p_is_bounded AND NOT p_is_slow THEN
        PERFORM set_config(p_setting, '', false);
        RETURN;
    END IF;
    PERFORM are_slow_now_1('instances');
    IF v_classes IS NULL THEN
        v_classes := CASE WHEN p_is_bounded THEN ARRAY(SELECT jsonb_array_elements_text(p_floors -> 'keys'))
            WHEN p_is_exhausted THEN '{}' ELSE ready_classes_1() END;
        v_classes := ARRAY(
            SELECT '' UNION SELECT unnest(v_classes)
            UNION SELECT r.class FROM ready_among_1(p_placed) r);
    END IF;
    IF p_is_bounded THEN
        v_is_left := p_placed IS NOT NULL
            AND EXISTS (SELECT 1 FROM ready_among_1(p_placed) r WHERE r.ready_seq < v_from);
    ELSIF v_from > 0 AND NOT p_is_exhausted THEN
        v_is_left := coalesce(first_in_line_1(v_classes, 0) < v_from, false);
    END IF;
    IF p_floors IS NULL OR now_ms_1(NULL) - (p_floors ->> 'marked_at')::bigint >= 500 THEN
        -- Ids are read before what they are compared with.
        v_arrival := next_id_1('arrivals_id_seq');
        v_ready := next_id_1('orchestrator_queue_id_seq');
        v_here := jsonb_build_object(
            'arrival', CASE WHEN p_floors IS NULL AND p_is_exhausted THEN v_arrival ELSE coalesce(
                (SELECT a.id FROM arrivals a WHERE a.id >= coalesce((p_floors -> 'floor' ->> 'arrival')::bigint, 0)
                 ORDER BY a.id LIMIT 1), v_arrival) END,
            'due', least(p_now, p_next_due),
            'ready', CASE WHEN p_floors IS NULL AND p_is_exhausted THEN v_ready
                ELSE coalesce(first_in_line_1(v_classes, v_from), v_ready) END);
    END IF;
    PERFORM keep_floors_1(p_setting, p_floors, p_is_bounded,
        (extract(epoch FROM clock_timestamp() - p_began) * 1000)::bigint, p_allowed, v_classes, v_here,
        coalesce(v_is_left, false));
END $$;

-- As before. `id + 0` keeps the planner from the index of ids, in which it would look for this instance among all that there
-- ever were.
CREATE OR REPLACE FUNCTION outlook_1(p_instance text, p_now bigint)
RETURNS TABLE (head bigint, next_visible bigint, parked_since bigint)
LANGUAGE sql STABLE AS $$
    SELECT
        least(
            (SELECT id FROM orchestrator_queue
             WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at = 0 ORDER BY visible_at, id LIMIT 1),
            (SELECT min(id + 0) FROM orchestrator_queue
             WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at > 0 AND visible_at <= p_now)),
        (SELECT visible_at FROM orchestrator_queue
         WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at > p_now ORDER BY visible_at LIMIT 1),
        (SELECT min(parked_at) FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NOT NULL)
$$;

-- As `absorb_1`, from a floor on.
CREATE FUNCTION absorb_2(p_touched text[], p_from bigint, OUT more boolean, OUT busy boolean, OUT fresh text[],
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
    IF EXISTS (SELECT 1 FROM arrivals WHERE id >= p_from) THEN
        WITH gone AS (
            DELETE FROM arrivals a WHERE a.id = ANY (ARRAY(
                SELECT o.id FROM arrivals o WHERE o.id >= p_from ORDER BY o.id LIMIT 32 FOR UPDATE SKIP LOCKED))
            RETURNING a.instances)
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
    FROM unnest(fresh) t(i)
    LEFT JOIN instance_schedule s ON s.instance_id = t.i AND s.instance_id = ANY (fresh);
END $$;

-- Moves these instances, which the caller has locked, to where they belong now.
CREATE FUNCTION promote_instances_1(p_due text[], p_now bigint, p_parking_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_dropped bigint;
BEGIN
    WITH gone AS (
        DELETE FROM orchestrator_queue
        WHERE instance_id = ANY (p_due) AND parked_at IS NOT NULL AND parked_at <= p_now - p_parking_ms
        RETURNING id, instance_id, octet_length(work_item) AS size, left(work_item, 4096) AS beginning),
    noted AS (
        INSERT INTO dropped_messages (instance_id, dropped_at, size, work_item)
        SELECT n.instance_id, p_now, n.size, n.beginning
        FROM (SELECT * FROM gone ORDER BY id DESC LIMIT 1000) n ORDER BY n.id)
    SELECT count(*) INTO v_dropped FROM gone;
    IF v_dropped > 0 THEN
        PERFORM count_dropped_1(p_now, v_dropped);
    END IF;
    -- The token stays: whoever holds it may still give the turn back, until somebody takes over.
    UPDATE instance_schedule s SET
        ready_seq = o.head, due_at = least(o.next_visible, o.parked_since + p_parking_ms),
        parked = o.parked_since IS NOT NULL,
        lock_token = CASE WHEN o.head IS NOT NULL THEN s.lock_token END
    FROM unnest(p_due) t(i) CROSS JOIN LATERAL outlook_1(t.i, p_now) o
    WHERE s.instance_id = t.i AND s.instance_id = ANY (p_due);
    DELETE FROM instance_schedule WHERE instance_id = ANY (p_due) AND ready_seq IS NULL AND due_at IS NULL;
END $$;

-- As `promote_1`, from a floor on; returns the instances that it moved.
CREATE FUNCTION promote_2(p_now bigint, p_parking_ms bigint, p_from bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_due text[];
BEGIN
    SELECT array_agg(d.instance_id) INTO v_due FROM (
        SELECT instance_id FROM instance_schedule WHERE due_at <= p_now AND due_at >= p_from ORDER BY due_at LIMIT 256
        FOR UPDATE SKIP LOCKED) d;
    IF v_due IS NOT NULL THEN
        PERFORM promote_instances_1(v_due, p_now, p_parking_ms);
    END IF;
    RETURN v_due;
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
--
-- If claims pass many entries that are dead, they begin at floors; see above.
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
    v_read bigint := pg_stat_get_xact_tuples_returned('instance_schedule_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('instance_schedule_due'::regclass)
        + pg_stat_get_xact_tuples_returned('arrivals_pkey'::regclass);
    v_began timestamptz := clock_timestamp();
    v_setting text;
    v_floors jsonb;
    v_is_bounded boolean := false;
    v_from_arrival bigint := 0;
    v_from_due bigint := -9223372036854775807;
    v_until_due bigint := 9223372036854775807;
    v_from_ready bigint := 0;
    v_ready_classes text[];
    v_all_classes text[];
    v_placed text[];
    v_low text[];
BEGIN
    IF coalesce(current_setting('duroxide.slow_instances', true), '') <> '' AND are_slow_1('instances') THEN
        v_setting := floors_setting_1('instances', p_allowed);
        v_floors := floors_1(v_setting, p_allowed);
        v_is_bounded := coalesce((v_floors ->> 'full_at')::bigint - now_ms_1(NULL) BETWEEN 1 AND 31000, false);
        IF v_is_bounded THEN
            v_from_arrival := v_floors -> 'floor' -> 'arrival';
            v_from_due := least((v_floors -> 'floor' -> 'due')::bigint, v_now);
            -- Leases that ended early are dead entries that are still to come.
            v_until_due := v_now + 500;
            v_from_ready := v_floors -> 'floor' -> 'ready';
            v_ready_classes := coalesce(p_allowed, ARRAY(SELECT jsonb_array_elements_text(v_floors -> 'keys')));
        END IF;
    END IF;
    SELECT EXISTS (SELECT 1 FROM arrivals a WHERE a.id >= v_from_arrival)
            OR EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = ANY (p_touched)),
        EXISTS (SELECT 1 FROM instance_schedule s WHERE s.due_at <= v_now AND s.due_at >= v_from_due),
        v_setting IS NULL AND EXISTS (SELECT 1 FROM instance_schedule s WHERE s.ready_seq IS NOT NULL)
    INTO v_some_arrived, v_some_are_due, v_is_line;
    IF v_some_arrived THEN
        SELECT a.more, a.busy, a.fresh, a.waiting INTO v_more, v_busy, v_fresh, v_waiting
        FROM absorb_2(p_touched, v_from_arrival) a;
        IF v_waiting IS NOT NULL THEN
            PERFORM place_1(v_waiting, v_now, p_parking_ms);
        END IF;
    END IF;
    IF v_some_are_due THEN
        v_placed := promote_2(v_now, p_parking_ms, v_from_due);
        v_more := coalesce(cardinality(v_placed) = 256, false) OR v_more;
    END IF;
    IF v_is_bounded THEN
        v_placed := v_placed || v_waiting;
        v_is_line := v_fresh IS NOT NULL AND is_line_1(v_ready_classes, v_from_ready, v_placed);
    ELSIF v_setting IS NOT NULL THEN
        -- One look has to do.
        v_all_classes := ready_classes_1();
        v_is_line := v_all_classes <> '{}';
    ELSIF v_waiting IS NOT NULL OR v_some_are_due THEN
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
                        SELECT min(q.id + 0) FROM orchestrator_queue q
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
                v_placed := v_placed || v_fresh;
                v_fresh := NULL;
                v_in_line := true;
            END IF;
            IF v_is_bounded THEN
                v_classes := v_ready_classes;
                IF v_placed IS NOT NULL THEN
                    v_classes := ARRAY(SELECT unnest(v_classes) UNION SELECT r.class FROM ready_among_1(v_placed) r);
                    v_low := ARRAY(
                        SELECT r.instance_id FROM ready_among_1(v_placed) r WHERE r.ready_seq < v_from_ready);
                END IF;
            ELSIF v_all_classes IS NOT NULL AND NOT v_in_line THEN
                v_classes := v_all_classes;
                v_all_classes := NULL;
            ELSE
                v_classes := ready_classes_1();
            END IF;
            IF p_known IS NOT NULL AND NOT v_classes <@ p_known THEN
                SELECT array_agg(c) INTO unknown_classes FROM unnest(v_classes) c WHERE c <> ALL (p_known);
                EXIT;
            END IF;
            IF p_known IS NOT NULL THEN
                SELECT coalesce(array_agg(c), '{}') INTO v_classes FROM unnest(v_classes) c WHERE c = ANY (p_allowed);
            END IF;
            -- Those that others are about to lease are skipped.
            IF v_is_bounded THEN
                SELECT array_agg(x.instance_id ORDER BY x.ready_seq), array_agg(x.lapsed ORDER BY x.ready_seq),
                    array_agg(x.parked ORDER BY x.ready_seq)
                INTO v_candidates, v_are_lapsed, v_are_parked FROM (
                    SELECT h.* FROM unnest(v_classes) c(class) CROSS JOIN LATERAL (
                        SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked
                        FROM instance_schedule s WHERE s.class = c.class AND s.ready_seq >= v_from_ready
                        ORDER BY s.ready_seq LIMIT p_max - v_found FOR UPDATE SKIP LOCKED) h
                    UNION ALL
                    SELECT l.instance_id, l.ready_seq, l.lapsed, l.parked FROM (
                        SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked, s.class
                        FROM instance_schedule s WHERE s.instance_id = ANY (v_low)
                        ORDER BY s.instance_id OFFSET 0 FOR UPDATE SKIP LOCKED) l
                    WHERE l.ready_seq < v_from_ready AND l.class = ANY (v_classes)
                    ORDER BY ready_seq LIMIT p_max - v_found) x;
            ELSE
                SELECT array_agg(x.instance_id ORDER BY x.ready_seq), array_agg(x.lapsed ORDER BY x.ready_seq),
                    array_agg(x.parked ORDER BY x.ready_seq)
                INTO v_candidates, v_are_lapsed, v_are_parked FROM (
                    SELECT h.* FROM unnest(v_classes) c(class) CROSS JOIN LATERAL (
                        SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked
                        FROM instance_schedule s WHERE s.class = c.class AND s.ready_seq IS NOT NULL
                        ORDER BY s.ready_seq LIMIT p_max - v_found FOR UPDATE SKIP LOCKED) h
                    ORDER BY h.ready_seq LIMIT p_max - v_found) x;
            END IF;
            EXIT WHEN v_candidates IS NULL;
        END IF;
        v_place := 0;
        FOREACH v_one IN ARRAY v_candidates LOOP
            v_place := v_place + 1;
            IF NOT v_is_fresh AND v_are_lapsed[v_place] THEN
                -- An attempt whose lease ran out is counted by whoever takes over.
                UPDATE orchestrator_queue q SET attempt_count = q.attempt_count + 1 WHERE q.id = ANY (ARRAY(
                    SELECT b FROM instance_schedule s, unnest(s.batch) b WHERE s.instance_id = v_one));
            END IF;

            -- The oldest ones, as many as fit. Sizes are known without reading the texts. `id + 0` keeps the planner from
            -- the index of ids, in which it would look for this instance among all that there ever were.
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
                         ORDER BY id + 0 LIMIT v_max_messages + 1)) q) u) m;
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
                         ORDER BY id + 0 LIMIT v_max_messages)
                        UNION ALL
                        (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                         WHERE instance_id = v_one AND parked_at IS NULL AND visible_at = 0 AND class <> 'start'
                         ORDER BY visible_at, id LIMIT v_max_messages)
                        UNION ALL
                        (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                         WHERE instance_id = v_one AND parked_at IS NULL AND visible_at > 0 AND visible_at <= v_now
                            AND class <> 'start'
                         ORDER BY id + 0 LIMIT v_max_messages)) q) m
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
                v_placed := v_placed || v_one;
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
            v_placed := v_placed || v_fresh;
            v_fresh := NULL;
            v_in_line := true;
        END IF;
        -- Nobody was in line, and nobody is.
        EXIT WHEN v_found >= p_max OR (v_is_fresh AND NOT v_in_line);
    END LOOP;
    IF v_waiting IS NOT NULL AND NOT v_in_line THEN
        v_in_line := EXISTS (SELECT 1 FROM ready_among_1(v_waiting));
    END IF;
    instance := NULL;
    start_event := NULL;
    texts := NULL;
    now_at := now_ms_1(p_now);
    IF NOT v_some_are_due THEN
        v_from_due := v_now;
    END IF;
    next_due := least(
        (SELECT s.due_at FROM instance_schedule s WHERE s.due_at >= v_from_due AND s.due_at <= v_until_due
         ORDER BY s.due_at LIMIT 1),
        nullif(v_until_due, 9223372036854775807));
    v_read := pg_stat_get_xact_tuples_returned('instance_schedule_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('instance_schedule_due'::regclass)
        + pg_stat_get_xact_tuples_returned('arrivals_pkey'::regclass) - v_read;
    IF v_setting IS NULL THEN
        IF v_read > 1000 + 8 * least(p_max, 1000) THEN
            PERFORM move_instance_floors_1(floors_setting_1('instances', p_allowed), NULL, false, true, v_began, v_now,
                next_due, p_allowed, v_placed, v_found < p_max AND NOT v_more);
        END IF;
    ELSIF NOT v_is_bounded OR v_placed IS NOT NULL OR now_ms_1(NULL) - (v_floors -> 'marked_at')::bigint >= 500 THEN
        PERFORM move_instance_floors_1(v_setting, v_floors, v_is_bounded, v_read > 1000 + 8 * least(p_max, 1000), v_began,
            v_now, next_due, p_allowed, v_placed, v_found < p_max AND NOT v_more);
    END IF;
    more := v_more;
    busy := v_busy;
    dropped_for := v_dropped_for;
    dropped_count := v_dropped_count;
    in_line := v_in_line;
    RETURN NEXT;
END $$;

-- Those of these activities that are ready, have no session, and are below a floor. The caller has made them ready just now.
-- Looked up one by one: the planner must not think of the index of ready ones.
CREATE FUNCTION low_work_1(p_ids bigint[], p_routes text[], p_from bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT array_agg(f.id ORDER BY f.id) FROM unnest(p_ids) i CROSS JOIN LATERAL (
        SELECT w.id, w.route, w.due_at, w.session_id FROM worker_queue w WHERE w.id = i OFFSET 0) f
    WHERE f.id < p_from AND f.route = ANY (p_routes) AND f.due_at IS NULL AND f.session_id IS NULL);
END $$;

-- The oldest ready activities of these routes without a session, locked; from a floor on, and of those that were made ready
-- just now also below it. NULL if there are none.
CREATE FUNCTION oldest_work_2(p_max integer, p_routes text[], p_from bigint, p_promoted bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_ids bigint[];
    v_low bigint[];
BEGIN
    IF p_promoted IS NOT NULL AND p_from > 0 THEN
        v_low := (low_work_1(p_promoted, p_routes, p_from))[1:p_max];
        p_max := p_max - coalesce(cardinality(v_low), 0);
    END IF;
    IF cardinality(p_routes) = 1 THEN
        SELECT array_agg(l.id) INTO v_ids FROM (
            SELECT w.id FROM worker_queue w
            WHERE w.route = p_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL AND w.id >= p_from
            ORDER BY w.id LIMIT p_max FOR UPDATE SKIP LOCKED) l;
    ELSE
        SELECT array_agg(x.id ORDER BY x.id) INTO v_ids FROM (
            SELECT h.id FROM unnest(p_routes) r(route) CROSS JOIN LATERAL (
                SELECT w.id FROM worker_queue w
                WHERE w.route = r.route AND w.due_at IS NULL AND w.session_id IS NULL AND w.id >= p_from
                ORDER BY w.id LIMIT p_max FOR UPDATE SKIP LOCKED) h
            ORDER BY h.id LIMIT p_max) x;
    END IF;
    RETURN v_low || v_ids;
END $$;

-- Whom seated activities are for, by hopping from one to the next in the index.
CREATE FUNCTION seat_owners_1() RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (WITH RECURSIVE c (owner) AS (
        (SELECT ready_for FROM worker_queue WHERE ready_for IS NOT NULL ORDER BY ready_for LIMIT 1)
        UNION ALL
        SELECT (SELECT w.ready_for FROM worker_queue w
                WHERE w.ready_for IS NOT NULL AND w.ready_for > c.owner ORDER BY w.ready_for LIMIT 1)
        FROM c WHERE c.owner IS NOT NULL)
    SELECT coalesce(array_agg(owner), '{}') FROM c WHERE owner IS NOT NULL);
END $$;

-- The first activity that is seated for one of these, from a floor on.
CREATE FUNCTION first_seated_1(p_owners text[], p_from bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT min(f.id) FROM unnest(p_owners) o(owner) CROSS JOIN LATERAL (
        SELECT w.id FROM worker_queue w WHERE w.ready_for = o.owner AND w.id >= p_from ORDER BY w.id LIMIT 1) f);
END $$;

-- Frees sessions and makes activities ready whose time has come, from floors on. Tells whether there may be more of them,
-- which activities it made ready, and whether it looked at seats.
--
-- Locks are taken in the order of the store: first, without waiting, activities that are due; then what keeps others from
-- changing the same sessions; then the activities that have or may get a seat, by id; then rows of `sessions`.
CREATE FUNCTION promote_work_2(
    p_now bigint, p_from_due bigint, p_from_session_due bigint, p_from_arrival bigint,
    OUT more boolean, OUT promoted bigint[], OUT seated boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_due_sessions text[];
    v_sessions text[];
    v_routes text[];
    v_more_sessions text[];
    v_more_routes text[];
    v_freed text[];
    v_notes bigint;
BEGIN
    SELECT array_agg(d.id), array_agg(d.session_id) FILTER (WHERE d.session_id IS NOT NULL),
        array_agg(d.route) FILTER (WHERE d.session_id IS NOT NULL)
    INTO promoted, v_sessions, v_routes FROM (
        SELECT w.id, w.session_id, w.route FROM worker_queue w WHERE w.due_at <= p_now AND w.due_at >= p_from_due
        ORDER BY w.due_at LIMIT 256 FOR UPDATE SKIP LOCKED) d;
    WITH gone AS (
        DELETE FROM session_arrivals a WHERE a.id = ANY (ARRAY(
            SELECT o.id FROM session_arrivals o WHERE o.id >= p_from_arrival ORDER BY o.id LIMIT 32
            FOR UPDATE SKIP LOCKED))
        RETURNING a.sessions, a.routes)
    SELECT count(*), (SELECT array_agg(s) FROM gone g, unnest(g.sessions) s),
        (SELECT array_agg(r) FROM gone g, unnest(g.routes) r)
    INTO v_notes, v_more_sessions, v_more_routes FROM gone;
    SELECT array_agg(d.session_id) INTO v_due_sessions FROM (
        SELECT s.session_id FROM sessions s WHERE s.due_at <= p_now AND s.due_at >= p_from_session_due
        ORDER BY s.due_at LIMIT 256) d;
    more := coalesce(cardinality(promoted) = 256, false) OR coalesce(cardinality(v_due_sessions) = 256, false)
        OR v_notes = 32;
    v_sessions := v_sessions || v_more_sessions;
    v_routes := v_routes || v_more_routes;
    seated := v_sessions IS NOT NULL OR v_due_sessions IS NOT NULL;
    IF seated THEN
        PERFORM lock_sessions_1(v_due_sessions || v_sessions);
    END IF;
    IF promoted IS NOT NULL THEN
        -- The token stays: whoever holds it may still give the activity back, until somebody takes over.
        UPDATE worker_queue w SET due_at = NULL WHERE w.id = ANY (promoted);
    END IF;
    IF v_due_sessions IS NOT NULL THEN
        PERFORM 1 FROM worker_queue w WHERE w.id IN (
            SELECT h.id FROM worker_queue h
            WHERE h.session_id = ANY (v_due_sessions || v_sessions) AND h.ready_for IS NOT NULL
            UNION
            SELECT f.id FROM unnest(v_sessions, v_routes) p(s, r) CROSS JOIN LATERAL (
                SELECT i.id FROM worker_queue i WHERE i.session_id = p.s AND i.route = p.r AND i.due_at IS NULL
                ORDER BY i.id LIMIT 1) f)
        ORDER BY w.id FOR UPDATE;
        WITH freed AS (
            UPDATE sessions s SET due_at = NULL WHERE s.session_id = ANY (ARRAY(
                SELECT d.session_id FROM sessions d WHERE d.session_id = ANY (v_due_sessions) AND d.due_at <= p_now
                ORDER BY d.session_id FOR UPDATE SKIP LOCKED))
            RETURNING s.session_id)
        SELECT array_agg(session_id) INTO v_freed FROM freed;
        IF v_freed IS NOT NULL THEN
            UPDATE worker_queue w SET ready_for = '' WHERE w.session_id = ANY (v_freed) AND w.ready_for IS NOT NULL;
        END IF;
    END IF;
    IF v_sessions IS NOT NULL THEN
        PERFORM seat_1(v_sessions, v_routes);
    END IF;
END $$;

-- The oldest seated activity that this owner may take, from a floor on, leased to nobody else meanwhile, and its session
-- made the owner's. `is_busy` tells that there is one whose session somebody is changing.
--
-- Its locks are those of `promote_work_2`, in the same order. It waits for none but that of the session's row, the last.
CREATE FUNCTION take_seated_2(
    p_now bigint, p_owner text, p_session_ms bigint, p_routes text[], p_before bigint, p_from bigint,
    OUT id bigint, OUT is_busy boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_id bigint;
    v_session text;
    v_route text;
    v_next bigint;
    v_seats bigint[];
    v_until bigint;
BEGIN
    is_busy := false;
    SELECT w.id, w.session_id, w.route INTO v_id, v_session, v_route FROM (
        (SELECT id, session_id, route FROM worker_queue
         WHERE ready_for = '' AND (p_routes IS NULL OR route = ANY (p_routes)) AND id < p_before AND id >= p_from
         ORDER BY id LIMIT 1)
        UNION ALL
        (SELECT id, session_id, route FROM worker_queue
         WHERE ready_for = p_owner AND (p_routes IS NULL OR route = ANY (p_routes)) AND id < p_before AND id >= p_from
         ORDER BY id LIMIT 1)) w
    ORDER BY w.id LIMIT 1;
    IF v_id IS NULL THEN
        RETURN;
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema() || chr(31) || v_session, 18)) THEN
        is_busy := true;
        RETURN;
    END IF;
    -- Others may have come first.
    v_next := (SELECT w.id FROM worker_queue w
               WHERE w.session_id = v_session AND w.route = v_route AND w.due_at IS NULL AND w.id <> v_id
               ORDER BY w.id LIMIT 1);
    SELECT array_agg(l.id) INTO v_seats FROM (
        SELECT w.id FROM worker_queue w
        WHERE w.session_id = v_session AND w.due_at IS NULL AND (w.ready_for IS NOT NULL OR w.id = v_next)
        ORDER BY w.id FOR UPDATE SKIP LOCKED) l;
    IF coalesce(v_id <> ALL (v_seats), true) OR v_next <> ALL (v_seats)
        OR NOT EXISTS (SELECT 1 FROM worker_queue w WHERE w.id = v_id AND w.ready_for IN ('', p_owner))
        OR EXISTS (SELECT 1 FROM sessions s WHERE s.session_id = v_session AND s.worker_id <> p_owner
                   AND s.due_at IS NOT NULL AND s.locked_until > p_now) THEN
        RETURN;
    END IF;
    -- Its activities with other routes are the owner's too from now on, and the next one takes the seat.
    UPDATE worker_queue w SET ready_for = CASE WHEN w.id <> v_id THEN p_owner END WHERE w.id = ANY (v_seats);
    v_until := p_now + least(p_session_ms, 9223372036854775807 - p_now);
    INSERT INTO sessions AS s (session_id, worker_id, locked_until, last_activity_at, due_at)
    VALUES (v_session, p_owner, v_until, p_now, v_until)
    ON CONFLICT (session_id) DO UPDATE SET worker_id = p_owner, last_activity_at = p_now,
        locked_until = CASE WHEN s.worker_id = p_owner THEN greatest(s.locked_until, v_until) ELSE v_until END,
        due_at = CASE WHEN s.worker_id = p_owner THEN greatest(s.locked_until, v_until) ELSE v_until END;
    id := v_id;
END $$;

-- Moves the floors for activities, begins to use some, or forgets them. `p_is_exhausted` tells that nothing is left that is due,
-- and no activity without a session.
CREATE FUNCTION move_work_floors_1(
    p_setting text, p_floors jsonb, p_is_bounded boolean, p_is_slow boolean, p_began timestamptz, p_now bigint,
    p_routes text[], p_all_routes text[], p_taken bigint[], p_is_left boolean, p_is_exhausted boolean)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_floor jsonb := p_floors -> 'floor';
    v_from bigint := coalesce((v_floor ->> 'ready')::bigint, 0);
    v_from_seated bigint := coalesce((v_floor ->> 'seated')::bigint, 0);
    v_earliest bigint := -9223372036854775807;
    v_arrival bigint;
    v_id bigint;
    v_owners text[];
    v_here jsonb;
    v_is_left boolean := p_is_left;
BEGIN
    IF NOT p_is_bounded AND NOT p_is_slow THEN
        PERFORM set_config(p_setting, '', false);
        RETURN;
    END IF;
    PERFORM are_slow_now_1('work');
    IF NOT p_is_bounded AND v_from > 0 AND NOT p_is_exhausted THEN
        v_is_left := EXISTS (
            SELECT 1 FROM unnest(p_all_routes) r(route) CROSS JOIN LATERAL (
                SELECT 1 FROM worker_queue w WHERE w.route = r.route AND w.due_at IS NULL AND w.session_id IS NULL
                    AND w.id < v_from AND w.id <> ALL (coalesce(p_taken, '{}')) ORDER BY w.id LIMIT 1) f);
    END IF;
    IF p_floors IS NULL OR now_ms_1(NULL) - (p_floors ->> 'marked_at')::bigint >= 500 THEN
        -- Ids are read before what they are compared with.
        v_arrival := next_id_1('session_arrivals_id_seq');
        v_id := next_id_1('worker_queue_id_seq');
        v_owners := CASE WHEN p_is_bounded THEN ARRAY(SELECT jsonb_array_elements_text(v_floor -> 'owners'))
            ELSE seat_owners_1() END;
        v_here := jsonb_build_object(
            'arrival', coalesce(
                (SELECT a.id FROM session_arrivals a WHERE a.id >= coalesce((v_floor ->> 'arrival')::bigint, 0)
                 ORDER BY a.id LIMIT 1), v_arrival),
            'due', CASE WHEN p_is_exhausted THEN p_now ELSE least(p_now, (
                SELECT w.due_at FROM worker_queue w
                WHERE w.due_at >= coalesce((v_floor ->> 'due')::bigint, v_earliest) AND w.due_at <= p_now
                ORDER BY w.due_at LIMIT 1)) END,
            'session_due', least(p_now, (
                SELECT s.due_at FROM sessions s
                WHERE s.due_at >= coalesce((v_floor ->> 'session_due')::bigint, v_earliest) AND s.due_at <= p_now
                ORDER BY s.due_at LIMIT 1)),
            'ready', CASE WHEN p_floors IS NULL AND p_is_exhausted THEN v_id ELSE coalesce((
                SELECT min(f.id) FROM unnest(p_all_routes) r(route) CROSS JOIN LATERAL (
                    SELECT w.id FROM worker_queue w WHERE w.route = r.route AND w.due_at IS NULL AND w.session_id IS NULL
                        AND w.id >= v_from ORDER BY w.id LIMIT 1) f), v_id) END,
            'seated', coalesce(first_seated_1(v_owners, v_from_seated), v_id), 'owners', v_owners);
    END IF;
    PERFORM keep_floors_1(p_setting, p_floors, p_is_bounded,
        (extract(epoch FROM clock_timestamp() - p_began) * 1000)::bigint, p_routes, p_all_routes, v_here,
        coalesce(v_is_left, false));
END $$;

-- Looks for activities without a session that can be leased, the oldest of these routes (NULL for all), and locks them. This
-- is for sessions whose claims are slow; see above.
--
-- First it tells whether something else has to be looked at: activities or sessions whose time has come, seats that have
-- changed. With `p_promote` it does so; otherwise it also asks for activities that have a seat, and if there is any of this,
-- looks for no others. With `p_promote`, `next_due` is when to look again; from floors on it may be too early.
CREATE FUNCTION ready_work_1(
    p_now bigint, p_max integer, p_routes text[], p_promote boolean,
    OUT some_due boolean, OUT more boolean, OUT ids bigint[], OUT next_due bigint, OUT from_seated bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_read bigint := pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
        + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
        + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass);
    v_began timestamptz := clock_timestamp();
    v_setting text := floors_setting_1('work', p_routes);
    v_floors jsonb := floors_1(v_setting, p_routes);
    v_is_bounded boolean := coalesce((v_floors ->> 'full_at')::bigint - now_ms_1(NULL) BETWEEN 1 AND 31000, false);
    v_from_arrival bigint := 0;
    v_from_due bigint := -9223372036854775807;
    v_from_session_due bigint := -9223372036854775807;
    v_until bigint := 9223372036854775807;
    v_from bigint := 0;
    v_routes text[] := p_routes;
    v_promoted record;
    v_ready bigint[];
    v_is_left boolean := false;
    v_is_marked boolean := false;
BEGIN
    from_seated := 0;
    IF v_is_bounded THEN
        v_from_arrival := v_floors -> 'floor' -> 'arrival';
        v_from_due := least((v_floors -> 'floor' -> 'due')::bigint, p_now);
        v_from_session_due := least((v_floors -> 'floor' -> 'session_due')::bigint, p_now);
        v_from := v_floors -> 'floor' -> 'ready';
        from_seated := v_floors -> 'floor' -> 'seated';
        v_routes := coalesce(p_routes, ARRAY(SELECT jsonb_array_elements_text(v_floors -> 'keys')));
        -- Leases that ended early are dead entries that are still to come.
        v_until := p_now + 500;
    END IF;
    some_due := EXISTS (SELECT 1 FROM worker_queue w WHERE w.due_at <= p_now AND w.due_at >= v_from_due)
        OR EXISTS (SELECT 1 FROM sessions s WHERE s.due_at <= p_now AND s.due_at >= v_from_session_due)
        OR EXISTS (SELECT 1 FROM session_arrivals a WHERE a.id >= v_from_arrival);
    more := false;
    IF p_promote THEN
        IF some_due THEN
            v_promoted := promote_work_2(p_now, v_from_due, v_from_session_due, v_from_arrival);
            more := v_promoted.more;
            v_ready := v_promoted.promoted;
            IF v_promoted.seated THEN
                from_seated := 0;
            END IF;
        END IF;
    ELSIF NOT some_due THEN
        some_due := CASE WHEN v_is_bounded
            THEN first_seated_1(ARRAY(SELECT jsonb_array_elements_text(v_floors -> 'floor' -> 'owners')), from_seated)
                IS NOT NULL
            ELSE EXISTS (SELECT 1 FROM worker_queue w WHERE w.ready_for IS NOT NULL) END;
    END IF;
    IF p_promote OR NOT some_due THEN
        v_routes := coalesce(v_routes, ready_routes_1());
        ids := oldest_work_2(p_max, v_routes, v_from, v_ready);
    END IF;
    IF NOT some_due THEN
        v_from_due := p_now;
    END IF;
    IF p_promote THEN
        next_due := least(
            (SELECT w.due_at FROM worker_queue w WHERE w.due_at >= v_from_due AND w.due_at <= v_until
             ORDER BY w.due_at LIMIT 1),
            (SELECT s.due_at FROM sessions s WHERE s.due_at >= v_from_session_due AND s.due_at <= v_until
             ORDER BY s.due_at LIMIT 1),
            nullif(v_until, 9223372036854775807));
    END IF;
    v_read := pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
        + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
        + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass) - v_read;
    IF v_is_bounded THEN
        v_is_left := v_ready IS NOT NULL AND NOT coalesce(low_work_1(v_ready, v_routes, v_from) <@ ids, true);
        v_is_marked := NOT v_is_left AND now_ms_1(NULL) - (v_floors -> 'marked_at')::bigint < 500;
    END IF;
    IF NOT v_is_marked THEN
        PERFORM move_work_floors_1(v_setting, v_floors, v_is_bounded, v_read > 1000 + 8 * least(p_max, 1000), v_began, p_now,
            p_routes,
            coalesce(p_routes, ARRAY(SELECT '' UNION SELECT unnest(coalesce(v_routes, ready_routes_1())))), ids, v_is_left,
            NOT some_due AND coalesce(cardinality(ids), 0) < p_max);
    END IF;
END $$;

-- Leases up to `p_max` activities, oldest first; at most one of them is bound to a session, and none if `p_owner` is
-- NULL. `p_routes` are those the caller serves, NULL for all. Tokens begin with `lock_` and the seed. The last row has no
-- id and describes the rest.
CREATE OR REPLACE FUNCTION claim_work_1(
    p_now bigint, p_max integer, p_lease_ms bigint, p_owner text, p_session_ms bigint, p_routes text[], p_seed text)
RETURNS TABLE (
    id bigint, token text, attempts bigint, item text, now_at bigint, next_due bigint, more boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_read bigint := pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
        + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
        + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass);
    v_now bigint := now_ms_1(p_now);
    v_is_slow boolean := false;
    v_ready record;
    v_promoted record;
    v_more boolean := false;
    v_ids bigint[];
    v_next_due bigint;
    v_from_seated bigint := 0;
    v_seated record;
BEGIN
    IF current_setting('duroxide.slow_work', true) <> '' THEN
        v_is_slow := are_slow_1('work');
    END IF;
    IF v_is_slow THEN
        v_ready := ready_work_1(v_now, p_max, p_routes, true);
        v_ids := v_ready.ids;
        v_more := v_ready.more;
        v_from_seated := v_ready.from_seated;
        v_next_due := v_ready.next_due;
    ELSE
        IF work_is_due_1(v_now) THEN
            v_promoted := promote_work_2(v_now, -9223372036854775807, -9223372036854775807, 0);
            v_more := v_promoted.more;
        END IF;
        v_ids := oldest_work_1(p_max, p_routes);
    END IF;
    IF p_owner IS NOT NULL THEN
        v_seated := take_seated_2(v_now, p_owner, p_session_ms, p_routes,
            CASE WHEN cardinality(v_ids) >= p_max THEN v_ids[p_max] ELSE 9223372036854775807 END, v_from_seated);
        v_more := v_more OR v_seated.is_busy;
        IF v_seated.id IS NOT NULL THEN
            v_ids := v_ids[1:p_max - 1] || v_seated.id;
        END IF;
    END IF;
    IF v_ids IS NOT NULL THEN
        RETURN QUERY SELECT l.id, l.token, l.attempts, l.item, NULL::bigint, NULL::bigint, NULL::boolean
        FROM lease_work_1(p_now, v_ids, p_lease_ms, p_seed) l ORDER BY l.id;
    END IF;
    IF v_is_slow THEN
        IF v_ids IS NOT NULL THEN
            v_next_due := least(v_next_due, v_now + least(p_lease_ms, 9223372036854775807 - v_now));
        END IF;
        RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::bigint, NULL::text, now_ms_1(p_now), v_next_due,
            v_ids IS NULL AND v_more;
    ELSE
        RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::bigint, NULL::text, now_ms_1(p_now),
            least((SELECT w.due_at FROM worker_queue w WHERE w.due_at IS NOT NULL ORDER BY w.due_at LIMIT 1),
                  (SELECT s.due_at FROM sessions s WHERE s.due_at IS NOT NULL ORDER BY s.due_at LIMIT 1)),
            v_ids IS NULL AND v_more;
        v_read := pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
            + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
            + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
            + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
            + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass) - v_read;
        IF v_read > 1000 + 8 * least(p_max, 1000) THEN
            PERFORM are_slow_now_1('work');
        END IF;
    END IF;
END $$;

-- As before; looks for activities by `ready_work_1`.
CREATE OR REPLACE FUNCTION ack_turns_2(
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
    v_ready record;
    v_read bigint;
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
        v_read := pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
            + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
            + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
            + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
            + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass);
        IF coalesce(current_setting('duroxide.slow_work', true), '') <> '' AND are_slow_1('work') THEN
            v_ready := ready_work_1(v_now, p_claim_max, p_claim_routes, false);
            IF v_ready.some_due THEN
                v_notes := 4;
                p_claim_max := 0;
            ELSE
                v_old := v_ready.ids;
            END IF;
            v_read := NULL;
        ELSIF EXISTS (SELECT 1 FROM worker_queue WHERE due_at <= v_now)
            OR EXISTS (SELECT 1 FROM sessions WHERE due_at <= v_now) OR EXISTS (SELECT 1 FROM session_arrivals)
            OR EXISTS (SELECT 1 FROM worker_queue WHERE ready_for IS NOT NULL) THEN
            v_notes := 4;
            p_claim_max := 0;
        ELSE
            v_old := oldest_work_1(p_claim_max, p_claim_routes);
        END IF;
        IF pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
            + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
            + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
            + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
            + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass)
            - v_read > 1000 + 8 * least(p_claim_max, 1000) THEN
            PERFORM are_slow_now_1('work');
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

-- A committer changes one row again and again. While somebody holds a snapshot the versions of that row pile up, and
-- whoever looks for it by its key passes all of them. So a session remembers where its own last version is.
--
-- As before, and remembers where the committer's row is.
CREATE OR REPLACE FUNCTION begin_batch_1(p_committer text, p_epoch bigint, p_batch bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_row tid := nullif(current_setting('duroxide.committer_row', true), '');
BEGIN
    UPDATE committers SET batch = p_batch, turn_verdicts = NULL, refused_work = NULL, taken_starts = NULL,
        deliveries = NULL, seen_at = now()
    WHERE ctid = v_row AND committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
    IF NOT FOUND THEN
        UPDATE committers SET batch = p_batch, turn_verdicts = NULL, refused_work = NULL, taken_starts = NULL,
            deliveries = NULL, seen_at = now()
        WHERE committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
        IF NOT FOUND THEN
            -- Whoever hears of this begins a new epoch.
            RAISE EXCEPTION 'this batch was given up by its committer' USING ERRCODE = 'connection_does_not_exist';
        END IF;
    END IF;
    PERFORM set_config('duroxide.committer_row', v_row::text, false);
    RETURN true;
END $$;

-- As before, and remembers where the committer's row is.
CREATE OR REPLACE FUNCTION note_turns_1(
    p_committer text, p_epoch bigint, p_batch bigint, p_verdict integer[], p_instances bigint, p_executions bigint,
    p_events bigint, p_running bigint, p_completed bigint, p_failed bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_row tid := nullif(current_setting('duroxide.committer_row', true), '');
BEGIN
    UPDATE committers SET batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN 0 <> ANY (p_verdict) THEN p_verdict END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
        deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
        seen_at = now(), instances = instances + p_instances, executions = executions + p_executions,
        events = events + p_events, running_instances = running_instances + p_running,
        completed_instances = completed_instances + p_completed, failed_instances = failed_instances + p_failed
    WHERE ctid = v_row AND committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
    IF NOT FOUND THEN
        UPDATE committers SET batch = coalesce(p_batch, batch),
            turn_verdicts = CASE WHEN 0 <> ANY (p_verdict) THEN p_verdict END,
            refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
            taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
            deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
            seen_at = now(), instances = instances + p_instances, executions = executions + p_executions,
            events = events + p_events, running_instances = running_instances + p_running,
            completed_instances = completed_instances + p_completed, failed_instances = failed_instances + p_failed
        WHERE committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
        IF NOT FOUND THEN
            -- Whoever hears of this begins a new epoch.
            RAISE EXCEPTION 'this batch was given up by its committer' USING ERRCODE = 'connection_does_not_exist';
        END IF;
    END IF;
    PERFORM set_config('duroxide.committer_row', v_row::text, false);
    RETURN true;
END $$;

-- WHAT CANNOT BE CLAIMED. A claim that fails for a reason that will not pass is made again by these functions, one candidate
-- after the other, each in a subtransaction. They are slower; nobody calls them otherwise.

-- Tells what a failure is about: 2 what is stored (it is damaged, or too large), 1 perhaps that, perhaps the server (its
-- memory, an error in itself), 0 something else: rights, the schema, locks, the connection.
CREATE FUNCTION blame_1(p_state text) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN left(p_state, 2) IN ('21', '22', '23', '54', 'P0') OR p_state IN ('XX001', 'XX002') THEN 2
        WHEN p_state IN ('XX000', '53200') THEN 1
        ELSE 0 END
$$;

-- The reason that is kept with what cannot be claimed.
CREATE FUNCTION unclaimable_1(p_message text, p_state text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT 'it cannot be claimed: ' || p_message || ' (' || p_state || ')' $$;

-- Keeps an instance that nobody holds from being claimed; see `block_instance_1`.
CREATE FUNCTION block_unclaimed_1(p_now bigint, p_instance text, p_reason text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO instance_schedule AS s (instance_id, lock_token, locked_until, locked_at, batch, blocked_at, blocked_reason)
    VALUES (p_instance, 'blocked_' || gen_random_uuid(), 9223372036854775807, now_ms_1(p_now), '{}', now_ms_1(p_now),
        p_reason)
    ON CONFLICT (instance_id) DO UPDATE SET ready_seq = NULL, due_at = NULL, lock_token = excluded.lock_token,
        locked_until = excluded.locked_until, locked_at = excluded.locked_at, batch = '{}',
        blocked_at = excluded.blocked_at, blocked_reason = excluded.blocked_reason;
END $$;

-- As `claim_instances_1`, and blocks instances that cannot be claimed; the last row lists them with the reasons. What may be
-- the server's fault counts as the instance's only if another one could be claimed. What is neither's is raised.
CREATE FUNCTION claim_carefully_1(
    p_now bigint, p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS TABLE (
    instance text, token text, name text, version text, execution bigint, incarnation bigint, last_event bigint,
    status text, start_event text, message_ids bigint[], attempts bigint[], texts text[],
    now_at bigint, next_due bigint, more boolean, busy boolean, unknown_classes text[],
    dropped_for text[], dropped_count bigint[], in_line boolean, blocked text[], blocked_reasons text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_note record;
    v_one text;
    v_class text;
    v_place bigint;
    v_dropped bigint;
    v_claimed integer := 0;
    v_row record;
    v_state text;
    v_message text;
    v_suspects text[] := '{}';
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    blocked := '{}';
    blocked_reasons := '{}';
    -- Instances that others touched get their places.
    FOR v_note IN SELECT a.id, a.instances FROM arrivals a ORDER BY a.id LIMIT 32 FOR UPDATE SKIP LOCKED LOOP
        DELETE FROM arrivals a WHERE a.id = v_note.id;
        FOREACH v_one IN ARRAY v_note.instances LOOP
            IF EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = v_one) THEN
                PERFORM 1 FROM instance_schedule s WHERE s.instance_id = v_one FOR UPDATE SKIP LOCKED;
                IF NOT FOUND THEN
                    -- Somebody is committing a turn of it.
                    INSERT INTO arrivals (instances) VALUES (ARRAY[v_one]);
                    busy := true;
                    CONTINUE;
                END IF;
                CONTINUE WHEN EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = v_one
                    AND (s.lock_token IS NOT NULL OR s.ready_seq IS NOT NULL));
            END IF;
            BEGIN
                PERFORM place_1(ARRAY[v_one], v_now, p_parking_ms);
            EXCEPTION WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT;
                IF blame_1(v_state) < 2 THEN
                    RAISE;
                END IF;
                blocked := blocked || v_one;
                blocked_reasons := blocked_reasons || unclaimable_1(v_message, v_state);
            END;
        END LOOP;
    END LOOP;
    -- Those whose time has come are moved.
    FOR v_one IN SELECT s.instance_id FROM instance_schedule s WHERE s.due_at <= v_now ORDER BY s.due_at LIMIT 256
        FOR UPDATE SKIP LOCKED LOOP
        BEGIN
            PERFORM promote_instances_1(ARRAY[v_one], v_now, p_parking_ms);
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT;
            IF blame_1(v_state) < 2 THEN
                RAISE;
            END IF;
            blocked := blocked || v_one;
            blocked_reasons := blocked_reasons || unclaimable_1(v_message, v_state);
        END;
    END LOOP;
    FOR v_at IN 1..cardinality(blocked) LOOP
        PERFORM block_unclaimed_1(p_now, blocked[v_at], blocked_reasons[v_at]);
    END LOOP;
    -- Then the line, from its head on.
    SELECT array_agg(c) INTO unknown_classes FROM unnest(ready_classes_1()) c
    WHERE p_known IS NOT NULL AND c <> ALL (p_known);
    FOR v_round IN 1..64 LOOP
        EXIT WHEN unknown_classes IS NOT NULL OR v_claimed >= least(p_max, 16);
        SELECT x.instance_id, x.class, x.ready_seq INTO v_one, v_class, v_place FROM (
            SELECT h.* FROM unnest(ready_classes_1()) c(class) CROSS JOIN LATERAL (
                SELECT s.instance_id, s.class, s.ready_seq FROM instance_schedule s
                WHERE s.class = c.class AND s.ready_seq IS NOT NULL
                ORDER BY s.ready_seq LIMIT 1 FOR UPDATE SKIP LOCKED) h
            WHERE p_allowed IS NULL OR c.class = ANY (p_allowed) ORDER BY h.ready_seq LIMIT 1) x;
        EXIT WHEN NOT FOUND;
        BEGIN
            IF (SELECT o.head FROM outlook_1(v_one, v_now) o) IS NULL THEN
                DELETE FROM instance_schedule s WHERE s.instance_id = v_one;
                PERFORM place_1(ARRAY[v_one], v_now, p_parking_ms);
                CONTINUE;
            END IF;
            IF NOT EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = v_one)
                AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = v_one)
                AND NOT EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = v_one AND q.parked_at IS NULL
                                AND q.visible_at <= v_now AND q.class = 'start') THEN
                v_dropped := set_aside_1(v_one, v_now, p_parking_ms);
                IF v_dropped > 0 THEN
                    dropped_for := dropped_for || v_one;
                    dropped_count := dropped_count || v_dropped;
                END IF;
                CONTINUE;
            END IF;
            -- With such floors a claim finds nobody but this one.
            PERFORM are_slow_now_1('instances');
            PERFORM set_config(floors_setting_1('instances', p_allowed), jsonb_build_object(
                'schema', current_schema(), 'asked', p_allowed, 'full_at', now_ms_1(NULL) + 30000,
                'marked_at', now_ms_1(NULL), 'keys', ARRAY[v_class], 'floor', jsonb_build_object(
                    'arrival', 9223372036854775807, 'due', 9223372036854775807, 'ready', v_place))::text, true);
            FOR v_row IN SELECT c.* FROM claim_instances_1(
                    p_now, 1, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, NULL) c WHERE c.instance IS NOT NULL LOOP
                instance := v_row.instance;
                token := v_row.token;
                name := v_row.name;
                version := v_row.version;
                execution := v_row.execution;
                incarnation := v_row.incarnation;
                last_event := v_row.last_event;
                status := v_row.status;
                start_event := v_row.start_event;
                message_ids := v_row.message_ids;
                attempts := v_row.attempts;
                texts := v_row.texts;
                -- It is read here, so that a text that cannot be is noticed.
                PERFORM octet_length(start_event || '');
                RETURN NEXT;
                v_claimed := v_claimed + 1;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT;
            IF blame_1(v_state) = 0 THEN
                RAISE;
            END IF;
            PERFORM block_unclaimed_1(p_now, v_one, unclaimable_1(v_message, v_state));
            IF blame_1(v_state) = 1 THEN
                v_suspects := v_suspects || v_one;
            END IF;
            blocked := blocked || v_one;
            blocked_reasons := blocked_reasons || unclaimable_1(v_message, v_state);
        END;
    END LOOP;
    PERFORM set_config(floors_setting_1('instances', p_allowed), '', false);
    IF v_claimed = 0 AND cardinality(v_suspects) > 0 THEN
        IF cardinality(v_suspects) = cardinality(blocked) THEN
            RAISE EXCEPTION '%', v_message USING ERRCODE = v_state;
        END IF;
        DELETE FROM instance_schedule s WHERE s.instance_id = ANY (v_suspects);
        INSERT INTO arrivals (instances) VALUES (v_suspects);
        SELECT array_agg(b.i), array_agg(b.reason) INTO blocked, blocked_reasons
        FROM unnest(blocked, blocked_reasons) b(i, reason) WHERE b.i <> ALL (v_suspects);
    END IF;
    instance := NULL;
    start_event := NULL;
    texts := NULL;
    now_at := now_ms_1(p_now);
    more := v_claimed > 0 OR cardinality(blocked) > 0 OR EXISTS (SELECT 1 FROM arrivals);
    next_due := (SELECT s.due_at FROM instance_schedule s WHERE s.due_at IS NOT NULL ORDER BY s.due_at LIMIT 1);
    RETURN NEXT;
END $$;

-- Moves an activity into quarantine, without its text if that cannot be read.
CREATE FUNCTION quarantine_unclaimable_1(p_now bigint, p_id bigint, p_reason text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM quarantine_work_1(p_now, ARRAY[p_id], ARRAY[p_reason]);
EXCEPTION WHEN OTHERS THEN
    WITH gone AS (DELETE FROM worker_queue w WHERE w.id = p_id RETURNING w.instance_id, w.session_id, w.route),
    seats AS (
        INSERT INTO session_arrivals (sessions, routes)
        SELECT array_agg(session_id), array_agg(route) FROM gone WHERE session_id IS NOT NULL HAVING count(*) > 0)
    INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
    SELECT 'worker_queue', nullif(instance_id, ''), p_reason || '; its text cannot be read', now_ms_1(p_now), '' FROM gone;
END $$;

-- As `claim_work_1`, and moves activities that cannot be claimed into quarantine; the last row lists them with the reasons.
-- What may be the server's fault counts as the activity's only if another one could be claimed.
CREATE FUNCTION claim_work_carefully_1(
    p_now bigint, p_max integer, p_lease_ms bigint, p_owner text, p_session_ms bigint, p_routes text[], p_seed text)
RETURNS TABLE (
    id bigint, token text, attempts bigint, item text, now_at bigint, next_due bigint, more boolean,
    quarantined bigint[], reasons text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_id bigint;
    v_due record;
    v_seated record;
    v_row record;
    v_claimed integer := 0;
    v_state text;
    v_message text;
    v_suspects bigint[] := '{}';
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    quarantined := '{}';
    reasons := '{}';
    FOR v_due IN SELECT w.id, w.session_id, w.route FROM worker_queue w WHERE w.due_at <= v_now ORDER BY w.due_at LIMIT 256
        FOR UPDATE SKIP LOCKED LOOP
        BEGIN
            UPDATE worker_queue w SET due_at = NULL WHERE w.id = v_due.id;
            IF v_due.session_id IS NOT NULL THEN
                INSERT INTO session_arrivals (sessions, routes) VALUES (ARRAY[v_due.session_id], ARRAY[v_due.route]);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT;
            IF blame_1(v_state) < 2 THEN
                RAISE;
            END IF;
            quarantined := quarantined || v_due.id;
            reasons := reasons || unclaimable_1(v_message, v_state);
        END;
    END LOOP;
    FOR v_round IN 1..64 LOOP
        EXIT WHEN v_claimed >= least(p_max, 16);
        v_id := NULL;
        IF v_round = 1 AND p_owner IS NOT NULL THEN
            v_seated := promote_work_2(v_now, 9223372036854775807, -9223372036854775807, 0);
            v_seated := take_seated_2(v_now, p_owner, p_session_ms, p_routes, 9223372036854775807, 0);
            v_id := v_seated.id;
        END IF;
        v_id := coalesce(v_id, (
            SELECT min(h.id) FROM unnest(coalesce(p_routes, ready_routes_1())) r(route) CROSS JOIN LATERAL (
                SELECT w.id FROM worker_queue w
                WHERE w.route = r.route AND w.due_at IS NULL AND w.session_id IS NULL AND w.id <> ALL (quarantined)
                ORDER BY w.id LIMIT 1 FOR UPDATE SKIP LOCKED) h));
        EXIT WHEN v_id IS NULL;
        BEGIN
            FOR v_row IN SELECT l.* FROM lease_work_1(p_now, ARRAY[v_id], p_lease_ms, p_seed) l LOOP
                id := v_row.id;
                token := v_row.token;
                attempts := v_row.attempts;
                item := v_row.item;
                -- It is read here, so that a text that cannot be is noticed.
                PERFORM octet_length(item || '');
                RETURN NEXT;
                v_claimed := v_claimed + 1;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT;
            IF blame_1(v_state) = 0 THEN
                RAISE;
            END IF;
            IF blame_1(v_state) = 1 THEN
                v_suspects := v_suspects || v_id;
            END IF;
            quarantined := quarantined || v_id;
            reasons := reasons || unclaimable_1(v_message, v_state);
        END;
    END LOOP;
    IF v_claimed = 0 AND cardinality(v_suspects) > 0 THEN
        IF cardinality(v_suspects) = cardinality(quarantined) THEN
            RAISE EXCEPTION '%', v_message USING ERRCODE = v_state;
        END IF;
        SELECT array_agg(b.i), array_agg(b.reason) INTO quarantined, reasons
        FROM unnest(quarantined, reasons) b(i, reason) WHERE b.i <> ALL (v_suspects);
    END IF;
    FOR v_at IN 1..cardinality(quarantined) LOOP
        PERFORM quarantine_unclaimable_1(p_now, quarantined[v_at], reasons[v_at]);
    END LOOP;
    id := NULL;
    token := NULL;
    item := NULL;
    now_at := now_ms_1(p_now);
    next_due := least((SELECT w.due_at FROM worker_queue w WHERE w.due_at IS NOT NULL ORDER BY w.due_at LIMIT 1),
        (SELECT s.due_at FROM sessions s WHERE s.due_at IS NOT NULL ORDER BY s.due_at LIMIT 1));
    more := v_claimed = 0 AND cardinality(quarantined) > 0;
    RETURN NEXT;
END $$;
