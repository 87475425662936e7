-- Activities and sessions.

-- Tells whether sessions or activities have to be looked at before anything is leased: their time has come, or their
-- seats have changed.
CREATE FUNCTION work_is_due_1(p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM worker_queue WHERE due_at <= p_now)
        OR EXISTS (SELECT 1 FROM sessions WHERE due_at <= p_now) OR EXISTS (SELECT 1 FROM session_arrivals);
END $$;

-- The oldest ready activities of these routes (NULL for all) without a session, locked; NULL if there are none.
CREATE FUNCTION oldest_work_1(p_max integer, p_routes text[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_routes text[] := coalesce(p_routes, ready_routes_1());
    v_ids bigint[];
BEGIN
    IF cardinality(v_routes) = 1 THEN
        SELECT array_agg(l.id) INTO v_ids FROM (
            SELECT w.id FROM worker_queue w
            WHERE w.route = v_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL
            ORDER BY w.id LIMIT p_max FOR UPDATE SKIP LOCKED) l;
    ELSE
        SELECT array_agg(x.id ORDER BY x.id) INTO v_ids FROM (
            SELECT h.id FROM unnest(v_routes) r(route) CROSS JOIN LATERAL (
                SELECT w.id FROM worker_queue w
                WHERE w.route = r.route AND w.due_at IS NULL AND w.session_id IS NULL
                ORDER BY w.id LIMIT p_max FOR UPDATE SKIP LOCKED) h
            ORDER BY h.id LIMIT p_max) x;
    END IF;
    RETURN v_ids;
END $$;

-- The token of a lease on an activity.
CREATE FUNCTION work_token_1(p_seed text, p_id bigint) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT 'lock_' || p_seed || '_' || p_id $$;

-- Leases activities that the caller has locked.
CREATE FUNCTION lease_work_1(p_now bigint, p_ids bigint[], p_lease_ms bigint, p_seed text)
RETURNS TABLE (id bigint, token text, attempts bigint, item text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_until bigint := v_now + least(p_lease_ms, 9223372036854775807 - v_now);
BEGIN
    RETURN QUERY
    UPDATE worker_queue w SET lock_token = work_token_1(p_seed, w.id), locked_until = v_until, due_at = v_until,
        ready_for = NULL, attempt_count = w.attempt_count + 1
    WHERE w.id = ANY (p_ids)
    RETURNING w.id, w.lock_token, w.attempt_count, w.work_item;
END $$;

-- Enters activities, those of turns with verdict 0; up to `p_room` of those that have no session and one of the routes
-- (NULL for all) are leased at once. Returns the positions and ids of these, and whether there are others.
CREATE FUNCTION enter_work_1(
    p_now bigint, p_verdict integer[], p_turn integer[], p_instance text[], p_execution bigint[], p_activity bigint[],
    p_session text[], p_route text[], p_item text[], p_room integer, p_lease_ms bigint, p_routes text[], p_seed text,
    OUT places integer[], OUT ids bigint[], OUT some_ready boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_until bigint := v_now + least(p_lease_ms, 9223372036854775807 - v_now);
    v_ready integer[];
    v_sessions text[];
    v_routes text[];
BEGIN
    FOR v_place IN 1..cardinality(p_turn) LOOP
        CONTINUE WHEN p_verdict[p_turn[v_place]] <> 0;
        IF p_room > 0 AND p_session[v_place] IS NULL AND (p_routes IS NULL OR p_route[v_place] = ANY (p_routes)) THEN
            places := places || v_place;
            ids := ids || nextval('worker_queue_id_seq');
            p_room := p_room - 1;
            CONTINUE;
        END IF;
        v_ready := v_ready || v_place;
        IF p_session[v_place] IS NOT NULL THEN
            v_sessions := v_sessions || p_session[v_place];
            v_routes := v_routes || p_route[v_place];
        END IF;
    END LOOP;
    IF places IS NOT NULL THEN
        INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, route, due_at, lock_token, locked_until,
            attempt_count, created_at, work_item)
        OVERRIDING SYSTEM VALUE
        SELECT ids[o], p_instance[places[o]], p_execution[places[o]], p_activity[places[o]], p_route[places[o]], v_until,
            work_token_1(p_seed, ids[o]), v_until, 1, v_now, p_item[places[o]]
        FROM generate_series(1, cardinality(places)) o;
    END IF;
    some_ready := v_ready IS NOT NULL;
    IF some_ready THEN
        INSERT INTO worker_queue (instance_id, execution_id, activity_id, session_id, route, created_at, work_item)
        SELECT p_instance[o], p_execution[o], p_activity[o], p_session[o], p_route[o], v_now, p_item[o]
        FROM unnest(v_ready) o ORDER BY o;
    END IF;
    IF v_sessions IS NOT NULL THEN
        INSERT INTO session_arrivals (sessions, routes) VALUES (v_sessions, v_routes);
    END IF;
END $$;

-- Enqueues activities, ready at once.
CREATE FUNCTION enqueue_work_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_instance text[], p_execution bigint[],
    p_activity bigint[], p_session text[], p_route text[], p_item text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_noted boolean;
    v_entered record;
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    v_entered := enter_work_1(p_now, ARRAY[0], array_fill(1, ARRAY[cardinality(p_item)]), p_instance, p_execution,
        p_activity, p_session, p_route, p_item, 0, 0, NULL, NULL);
END $$;

-- Removes activities and enqueues their completions (NULL for none). One that is no longer held is left alone: it must
-- be leased with this token, by a lease that was live when the ack arrived. If `p_max` is not 0 and any was still held,
-- leases instances along with it, as `claim_instances_1` does. Rows are its rows; one more, the last, has the positions of
-- what was done, and whether any instance got a message.
CREATE FUNCTION store_results_1(
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
    v_sessions text[];
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
        RETURNING w.session_id INTO v_session;
        CONTINUE WHEN NOT FOUND;
        v_now := now_ms_1(p_now);
        v_done := v_done || v_place;
        IF v_session IS NOT NULL THEN
            v_sessions := v_sessions || v_session;
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

-- Keeps two fetches from changing one session at the same time.
CREATE FUNCTION lock_sessions_1(p_sessions text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(k.key) FROM (
        SELECT DISTINCT hashtextextended(current_schema() || chr(31) || s, 18) AS key FROM unnest(p_sessions) s
        ORDER BY 1) k;
END $$;

-- Seats the first ready activity of each of these sessions and routes, for the session's owner or for anybody.
CREATE FUNCTION seat_1(p_sessions text[], p_routes text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_sessions_1(p_sessions);
    WITH pairs AS (SELECT DISTINCT s, r FROM unnest(p_sessions, p_routes) p(s, r)),
    first AS (
        SELECT p.s, p.r, f.id FROM pairs p LEFT JOIN LATERAL (
            SELECT w.id FROM worker_queue w
            WHERE w.session_id = p.s AND w.route = p.r AND w.due_at IS NULL ORDER BY w.id LIMIT 1) f ON true)
    UPDATE worker_queue w SET ready_for = CASE WHEN w.id = f.id THEN
        coalesce((SELECT worker_id FROM sessions s WHERE s.session_id = f.s AND s.due_at IS NOT NULL), '') END
    FROM first f
    WHERE w.session_id = f.s AND w.route = f.r AND w.due_at IS NULL AND (w.id = f.id OR w.ready_for IS NOT NULL);
END $$;

-- Frees sessions and makes activities ready whose time has come; tells whether there may be more of them.
CREATE FUNCTION promote_work_1(p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_freed text[];
    v_count bigint;
    v_sessions text[];
    v_routes text[];
    v_more_sessions text[];
    v_more_routes text[];
    v_more boolean;
BEGIN
    WITH due AS (
        SELECT session_id FROM sessions WHERE due_at <= p_now ORDER BY due_at LIMIT 256 FOR UPDATE SKIP LOCKED),
    freed AS (
        UPDATE sessions s SET due_at = NULL FROM due d WHERE s.session_id = d.session_id RETURNING s.session_id)
    SELECT array_agg(session_id) INTO v_freed FROM freed;
    IF v_freed IS NOT NULL THEN
        UPDATE worker_queue SET ready_for = '' WHERE session_id = ANY (v_freed) AND ready_for IS NOT NULL;
    END IF;
    WITH due AS (
        SELECT id FROM worker_queue WHERE due_at <= p_now ORDER BY due_at LIMIT 256 FOR UPDATE SKIP LOCKED),
    ready AS (
        -- The token stays: whoever holds it may still give the activity back, until somebody takes over.
        UPDATE worker_queue w SET due_at = NULL FROM due d WHERE w.id = d.id RETURNING w.session_id, w.route)
    SELECT count(*), array_agg(session_id) FILTER (WHERE session_id IS NOT NULL),
        array_agg(route) FILTER (WHERE session_id IS NOT NULL)
    INTO v_count, v_sessions, v_routes FROM ready;
    v_more := v_count = 256 OR cardinality(v_freed) = 256;
    WITH oldest AS (SELECT id FROM session_arrivals ORDER BY id LIMIT 32 FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM session_arrivals a USING oldest o WHERE a.id = o.id RETURNING a.sessions, a.routes)
    SELECT count(*), (SELECT array_agg(s) FROM gone g, unnest(g.sessions) s),
        (SELECT array_agg(r) FROM gone g, unnest(g.routes) r)
    INTO v_count, v_more_sessions, v_more_routes FROM gone;
    IF v_sessions IS NOT NULL OR v_more_sessions IS NOT NULL THEN
        PERFORM seat_1(v_sessions || v_more_sessions, v_routes || v_more_routes);
    END IF;
    RETURN coalesce(v_more, false) OR v_count = 32;
END $$;

-- The routes that ready activities have, by hopping from one to the next in the index.
CREATE FUNCTION ready_routes_1() RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (WITH RECURSIVE c (route) AS (
        (SELECT route FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL ORDER BY route LIMIT 1)
        UNION ALL
        SELECT (SELECT w.route FROM worker_queue w WHERE w.due_at IS NULL AND w.session_id IS NULL
                AND w.route > c.route ORDER BY w.route LIMIT 1)
        FROM c WHERE c.route IS NOT NULL)
    SELECT coalesce(array_agg(route), '{}') FROM c WHERE route IS NOT NULL);
END $$;

-- The oldest seated activity that this owner may take, leased to nobody else meanwhile, and its session made the owner's.
CREATE FUNCTION take_seated_1(
    p_now bigint, p_owner text, p_session_ms bigint, p_routes text[], p_before bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
    v_session text;
    v_route text;
    v_until bigint;
BEGIN
    SELECT w.id, w.session_id, w.route INTO v_id, v_session, v_route FROM (
        (SELECT id, session_id, route FROM worker_queue
         WHERE ready_for = '' AND (p_routes IS NULL OR route = ANY (p_routes)) AND id < p_before
         ORDER BY id LIMIT 1)
        UNION ALL
        (SELECT id, session_id, route FROM worker_queue
         WHERE ready_for = p_owner AND (p_routes IS NULL OR route = ANY (p_routes)) AND id < p_before
         ORDER BY id LIMIT 1)) w
    ORDER BY w.id LIMIT 1;
    IF v_id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM lock_sessions_1(ARRAY[v_session]);
    -- Others may have come first while we waited.
    PERFORM 1 FROM worker_queue WHERE id = v_id AND ready_for IN ('', p_owner) FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR EXISTS (SELECT 1 FROM sessions WHERE session_id = v_session AND worker_id <> p_owner
                            AND due_at IS NOT NULL AND locked_until > p_now) THEN
        RETURN NULL;
    END IF;
    v_until := p_now + least(p_session_ms, 9223372036854775807 - p_now);
    INSERT INTO sessions AS s (session_id, worker_id, locked_until, last_activity_at, due_at)
    VALUES (v_session, p_owner, v_until, p_now, v_until)
    ON CONFLICT (session_id) DO UPDATE SET worker_id = p_owner, last_activity_at = p_now,
        locked_until = CASE WHEN s.worker_id = p_owner THEN greatest(s.locked_until, v_until) ELSE v_until END,
        due_at = CASE WHEN s.worker_id = p_owner THEN greatest(s.locked_until, v_until) ELSE v_until END;
    -- Its activities with other routes are the owner's too from now on, and the next one takes the seat.
    UPDATE worker_queue SET ready_for = p_owner
    WHERE session_id = v_session AND due_at IS NULL AND ready_for IS NOT NULL AND ready_for <> p_owner;
    UPDATE worker_queue SET ready_for = NULL WHERE id = v_id;
    UPDATE worker_queue SET ready_for = p_owner WHERE id = (
        SELECT id FROM worker_queue
        WHERE session_id = v_session AND route = v_route AND due_at IS NULL AND id <> v_id ORDER BY id LIMIT 1);
    RETURN v_id;
END $$;

-- Leases up to `p_max` activities, oldest first; at most one of them is bound to a session, and none if `p_owner` is
-- NULL. `p_routes` are those the caller serves, NULL for all. Tokens begin with `lock_` and the seed. The last row has no
-- id and describes the rest.
CREATE FUNCTION claim_work_1(
    p_now bigint, p_max integer, p_lease_ms bigint, p_owner text, p_session_ms bigint, p_routes text[], p_seed text)
RETURNS TABLE (
    id bigint, token text, attempts bigint, item text, now_at bigint, next_due bigint, more boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_more boolean := false;
    v_ids bigint[];
    v_seated bigint;
BEGIN
    IF work_is_due_1(v_now) THEN
        v_more := promote_work_1(v_now);
    END IF;
    v_ids := oldest_work_1(p_max, p_routes);
    IF p_owner IS NOT NULL THEN
        v_seated := take_seated_1(v_now, p_owner, p_session_ms, p_routes,
            CASE WHEN cardinality(v_ids) >= p_max THEN v_ids[p_max] ELSE 9223372036854775807 END);
        IF v_seated IS NOT NULL THEN
            v_ids := v_ids[1:p_max - 1] || v_seated;
        END IF;
    END IF;
    IF v_ids IS NOT NULL THEN
        RETURN QUERY SELECT l.id, l.token, l.attempts, l.item, NULL::bigint, NULL::bigint, NULL::boolean
        FROM lease_work_1(p_now, v_ids, p_lease_ms, p_seed) l ORDER BY l.id;
    END IF;
    RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::bigint, NULL::text, now_ms_1(p_now),
        least((SELECT w.due_at FROM worker_queue w WHERE w.due_at IS NOT NULL ORDER BY w.due_at LIMIT 1),
              (SELECT s.due_at FROM sessions s WHERE s.due_at IS NOT NULL ORDER BY s.due_at LIMIT 1)),
        v_ids IS NULL AND v_more;
END $$;

-- Extends a live lease on an activity; never shortens it.
CREATE FUNCTION renew_work_1(p_now bigint, p_id bigint, p_token text, p_waited_ms bigint, p_extend_ms bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_arrived bigint := now_ms_1(p_now) - p_waited_ms;
    v_now bigint;
    v_until bigint;
    v_session text;
BEGIN
    SELECT locked_until, session_id INTO v_until, v_session FROM worker_queue
    WHERE id = p_id AND lock_token = p_token FOR UPDATE;
    IF v_until IS NULL OR v_until <= v_arrived THEN
        RETURN false;
    END IF;
    v_now := now_ms_1(p_now);
    v_until := greatest(v_until, v_now + least(p_extend_ms, 9223372036854775807 - v_now));
    UPDATE worker_queue SET locked_until = v_until, due_at = v_until, ready_for = NULL WHERE id = p_id;
    IF v_session IS NOT NULL THEN
        UPDATE sessions SET last_activity_at = v_now WHERE session_id = v_session AND locked_until > v_now;
    END IF;
    RETURN true;
END $$;

-- Gives an activity back. A lease that has run out can still be given back as long as nobody has taken over.
CREATE FUNCTION abandon_work_1(p_now bigint, p_id bigint, p_token text, p_delay_ms bigint, p_ignore_attempt boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_visible_at bigint;
    v_session text;
    v_route text;
BEGIN
    PERFORM 1 FROM worker_queue WHERE id = p_id AND lock_token = p_token FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_delay_ms > 0 THEN
        v_visible_at := now_ms_1(p_now) + least(p_delay_ms, 9223372036854775807 - now_ms_1(p_now));
    END IF;
    UPDATE worker_queue SET lock_token = NULL, locked_until = NULL, visible_at = coalesce(v_visible_at, 0),
        due_at = v_visible_at, ready_for = NULL,
        attempt_count = greatest(attempt_count - CASE WHEN p_ignore_attempt THEN 1 ELSE 0 END, 0)
    WHERE id = p_id RETURNING session_id, route INTO v_session, v_route;
    IF v_session IS NOT NULL THEN
        INSERT INTO session_arrivals (sessions, routes) VALUES (ARRAY[v_session], ARRAY[v_route]);
    END IF;
    RETURN true;
END $$;

-- Extends the live sessions of these owners that were used within the idle time; returns how many.
CREATE FUNCTION renew_sessions_1(p_now bigint, p_owners text[], p_extend_ms bigint, p_idle_ms bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_until bigint := v_now + least(p_extend_ms, 9223372036854775807 - v_now);
    v_renewed bigint;
BEGIN
    UPDATE sessions SET locked_until = greatest(locked_until, v_until), due_at = greatest(locked_until, v_until)
    WHERE md5(worker_id) IN (SELECT md5(o) FROM unnest(p_owners) o) AND locked_until > v_now
        AND last_activity_at > v_now - p_idle_ms;
    GET DIAGNOSTICS v_renewed = ROW_COUNT;
    RETURN v_renewed;
END $$;

-- Removes sessions that have expired and have nothing queued; returns how many.
CREATE FUNCTION remove_sessions_1(p_now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_removed bigint;
BEGIN
    DELETE FROM sessions s WHERE s.locked_until <= v_now
        AND NOT EXISTS (SELECT 1 FROM worker_queue w WHERE w.session_id = s.session_id);
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    RETURN v_removed;
END $$;

-- Moves activities into quarantine. One that is no longer there has been dealt with by somebody else.
CREATE FUNCTION quarantine_work_1(p_now bigint, p_id bigint[], p_reason text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM worker_queue w USING unnest(p_id, p_reason) b(id, reason) WHERE w.id = b.id
        RETURNING w.id, w.instance_id, b.reason, w.work_item)
    INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
    SELECT 'worker_queue', nullif(instance_id, ''), reason, now_ms_1(p_now), work_item FROM gone ORDER BY id;
END $$;
