-- Waiting for locks: leases are renewed and given back without waiting for rows that somebody holds, claims whose answer was
-- lost are found by their leases' ends, and starts of one id meet in an index instead of in locks of the whole server.

-- Renews leases on instances, each by itself; never shortens one. A lease that was live when its request arrived is honoured,
-- however long that waited, as long as nobody has taken over. Answers for each: 0 not held, 1 renewed, 2 somebody holds its
-- row just now, so that it has to be asked again.
CREATE FUNCTION renew_turns_2(
    p_now bigint, p_instance text[], p_token text[], p_waited_ms bigint[], p_extend_ms bigint[])
RETURNS integer[]
LANGUAGE plpgsql AS $$
DECLARE
    v_arrived bigint := now_ms_1(p_now);
    v_now bigint;
    v_until bigint;
    v_answer integer;
    v_answers integer[] := '{}';
BEGIN
    FOR v_at IN 1..cardinality(p_token) LOOP
        SELECT s.locked_until INTO v_until FROM instance_schedule s
        WHERE s.instance_id = p_instance[v_at] AND s.lock_token = p_token[v_at] FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            SELECT 2 * count(*) INTO v_answer FROM instance_schedule s
            WHERE s.instance_id = p_instance[v_at] AND s.lock_token = p_token[v_at];
        ELSIF v_until IS NULL OR v_until <= v_arrived - p_waited_ms[v_at] THEN
            v_answer := 0;
        ELSE
            v_now := now_ms_1(p_now);
            v_until := greatest(v_until, v_now + least(p_extend_ms[v_at], 9223372036854775807 - v_now));
            UPDATE instance_schedule s SET locked_until = v_until, due_at = v_until, ready_seq = NULL
            WHERE s.instance_id = p_instance[v_at];
            v_answer := 1;
        END IF;
        v_answers := v_answers || v_answer;
    END LOOP;
    RETURN v_answers;
END $$;

-- Renews leases on activities, as `renew_turns_2` does for instances.
CREATE FUNCTION renew_work_2(p_now bigint, p_id bigint[], p_token text[], p_waited_ms bigint[], p_extend_ms bigint[])
RETURNS integer[]
LANGUAGE plpgsql AS $$
DECLARE
    v_arrived bigint := now_ms_1(p_now);
    v_now bigint;
    v_until bigint;
    v_session text;
    v_route text;
    v_due_at bigint;
    v_sessions text[];
    v_left text[];
    v_routes text[];
    v_answer integer;
    v_answers integer[] := '{}';
BEGIN
    FOR v_at IN 1..cardinality(p_token) LOOP
        SELECT w.locked_until, w.session_id, w.route, w.due_at INTO v_until, v_session, v_route, v_due_at
        FROM worker_queue w WHERE w.id = p_id[v_at] AND w.lock_token = p_token[v_at] FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            SELECT 2 * count(*) INTO v_answer FROM worker_queue w
            WHERE w.id = p_id[v_at] AND w.lock_token = p_token[v_at];
        ELSIF v_until IS NULL OR v_until <= v_arrived - p_waited_ms[v_at] THEN
            v_answer := 0;
        ELSE
            v_now := now_ms_1(p_now);
            v_until := greatest(v_until, v_now + least(p_extend_ms[v_at], 9223372036854775807 - v_now));
            UPDATE worker_queue w SET locked_until = v_until, due_at = v_until, ready_for = NULL WHERE w.id = p_id[v_at];
            IF v_session IS NOT NULL THEN
                v_sessions := v_sessions || v_session;
                IF v_due_at IS NULL THEN
                    -- Others have seen the lease run out and given it the seat, which is the next one's now.
                    v_left := v_left || v_session;
                    v_routes := v_routes || v_route;
                END IF;
            END IF;
            v_answer := 1;
        END IF;
        v_answers := v_answers || v_answer;
    END LOOP;
    IF v_sessions IS NOT NULL THEN
        -- Whoever holds one uses it just now.
        UPDATE sessions s SET last_activity_at = v_now FROM (
            SELECT u.session_id FROM sessions u WHERE u.session_id = ANY (v_sessions) AND u.locked_until > v_now
            ORDER BY u.session_id FOR UPDATE SKIP LOCKED) f
        WHERE s.session_id = f.session_id;
    END IF;
    IF v_left IS NOT NULL THEN
        INSERT INTO session_arrivals (sessions, routes) VALUES (v_left, v_routes);
    END IF;
    RETURN v_answers;
END $$;

-- Gives a turn back. A lease that has run out can still be given back as long as nobody has taken over. Answers as
-- `renew_turns_2`.
CREATE FUNCTION abandon_turn_2(p_now bigint, p_instance text, p_token text, p_delay_ms bigint, p_ignore_attempt boolean)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_batch bigint[];
BEGIN
    SELECT s.batch INTO v_batch FROM instance_schedule s
    WHERE s.instance_id = p_instance AND s.lock_token = p_token FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN (SELECT 2 * count(*) FROM instance_schedule s WHERE s.instance_id = p_instance AND s.lock_token = p_token);
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
    RETURN 1;
END $$;

-- Gives an activity back, as `abandon_turn_2` does a turn.
CREATE FUNCTION abandon_work_2(p_now bigint, p_id bigint, p_token text, p_delay_ms bigint, p_ignore_attempt boolean)
RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM worker_queue WHERE id = p_id AND lock_token = p_token FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN (SELECT 2 * count(*) FROM worker_queue WHERE id = p_id AND lock_token = p_token);
    END IF;
    RETURN abandon_work_1(p_now, p_id, p_token, p_delay_ms, p_ignore_attempt)::integer;
END $$;

-- Gives back leases of which nobody knows, because the answer of the call that took them was lost. Their tokens begin with
-- `lock_` and the seed, and none of them lasts longer than `p_lease_ms`.
CREATE FUNCTION release_claims_2(p_now bigint, p_seed text, p_lease_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_until bigint := v_now + least(p_lease_ms, 9223372036854775807 - v_now);
    v_instances text[];
    v_sessions text[];
    v_routes text[];
BEGIN
    WITH gone AS (
        DELETE FROM instance_schedule s
        WHERE s.due_at <= v_until AND starts_with(s.lock_token, 'lock_' || p_seed || '_') RETURNING s.instance_id)
    SELECT array_agg(instance_id) INTO v_instances FROM gone;
    IF v_instances IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_instances);
    END IF;
    WITH back AS (
        UPDATE worker_queue w SET lock_token = NULL, locked_until = NULL, due_at = NULL, visible_at = 0, ready_for = NULL,
            attempt_count = greatest(w.attempt_count - 1, 0)
        WHERE w.due_at <= v_until AND starts_with(w.lock_token, 'lock_' || p_seed || '_')
        RETURNING w.session_id, w.route)
    SELECT array_agg(session_id), array_agg(route) INTO v_sessions, v_routes FROM back WHERE session_id IS NOT NULL;
    IF v_sessions IS NOT NULL THEN
        INSERT INTO session_arrivals (sessions, routes) VALUES (v_sessions, v_routes);
    END IF;
END $$;

-- A start that is queued only if its id is free. The index lets two of one id meet and no others: the second waits for
-- what becomes of the first. (A lock on each id is one of the whole server, which has room for few thousands.)
ALTER TABLE orchestrator_queue ADD COLUMN is_sole_start boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX orchestrator_queue_sole_start ON orchestrator_queue (instance_id) WHERE is_sole_start;

-- Queues starts of instances that have neither a row nor a start in the queue, as far as the caller can see. Returns the
-- instances that got one. Ids must be different; they meet those of others in one order.
CREATE FUNCTION queue_sole_starts_1(p_now bigint, p_instance text[], p_item text[], p_parent text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_new text[];
    v_taken text[];
BEGIN
    WITH new AS (
        INSERT INTO orchestrator_queue AS q (instance_id, class, created_at, work_item, parent_instance_id, is_sole_start)
        SELECT s.i, 'start', p_now, s.item, s.parent, true FROM unnest(p_instance, p_item, p_parent) s(i, item, parent)
        ORDER BY s.i COLLATE "C"
        ON CONFLICT (instance_id) WHERE is_sole_start DO NOTHING
        RETURNING q.instance_id)
    SELECT array_agg(instance_id) INTO v_new FROM new;
    -- From here on nobody else queues one. Somebody may have, and its turn may be over, after the caller looked.
    SELECT array_agg(i) INTO v_taken FROM unnest(v_new) i
    WHERE EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = i)
        OR EXISTS (SELECT 1 FROM history h WHERE h.instance_id = i);
    IF v_taken IS NOT NULL THEN
        DELETE FROM orchestrator_queue WHERE instance_id = ANY (v_taken) AND is_sole_start;
        SELECT array_agg(i) INTO v_new FROM unnest(v_new) i WHERE i <> ALL (v_taken);
    END IF;
    RETURN v_new;
END $$;

-- As before; ids are kept apart by an index.
CREATE OR REPLACE FUNCTION enqueue_starts_2(
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
    v_now := now_ms_1(p_now);
    SELECT array_agg(f.place ORDER BY f.place) INTO v_new FROM (
        SELECT min(s.place)::integer AS place FROM unnest(p_instance) WITH ORDINALITY s(i, place)
        WHERE NOT EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = s.i)
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = s.i)
            AND NOT EXISTS (SELECT 1 FROM orchestrator_queue q
                            WHERE q.instance_id = s.i AND q.parked_at IS NULL AND q.class = 'start')
        GROUP BY s.i) f;
    IF v_new IS NOT NULL THEN
        -- As `queue_sole_starts_1` does; a call of it costs as much again.
        WITH new AS (
            INSERT INTO orchestrator_queue AS q (instance_id, class, created_at, work_item, parent_instance_id,
                is_sole_start)
            SELECT p_instance[o], 'start', v_now, p_item[o], p_parent[o], true FROM unnest(v_new) o
            ORDER BY p_instance[o] COLLATE "C"
            ON CONFLICT (instance_id) WHERE is_sole_start DO NOTHING
            RETURNING q.instance_id)
        SELECT array_agg(n.instance_id) INTO v_touched FROM new n;
        IF EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = ANY (v_touched)) THEN
            DELETE FROM orchestrator_queue q USING instances n
            WHERE q.instance_id = ANY (v_touched) AND q.is_sole_start AND n.instance_id = q.instance_id;
            SELECT array_agg(i) INTO v_touched FROM unnest(v_touched) i
            WHERE NOT EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = i);
        END IF;
        IF coalesce(cardinality(v_touched), 0) < cardinality(v_new) THEN
            SELECT array_agg(o ORDER BY o) INTO v_new FROM unnest(v_new) o WHERE p_instance[o] = ANY (v_touched);
        END IF;
    END IF;
    IF coalesce(cardinality(v_new), 0) < cardinality(p_instance) THEN
        UPDATE committers SET taken_starts = ARRAY(
            SELECT o FROM generate_subscripts(p_instance, 1) o WHERE v_new IS NULL OR o <> ALL (v_new))
        WHERE committer = p_committer;
    END IF;
    in_line := false;
    IF v_touched IS NOT NULL THEN
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

-- As before; ids are kept apart by an index.
CREATE OR REPLACE FUNCTION start_with_messages_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_instance text[], p_start text[], p_message text[])
RETURNS integer[]
LANGUAGE plpgsql AS $$
DECLARE
    v_noted boolean;
    v_now bigint;
    v_free integer[];
    v_started text[];
    v_outcome integer[];
    v_touched text[];
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    v_now := now_ms_1(p_now);
    SELECT array_agg(f.place ORDER BY f.place) INTO v_free FROM (
        SELECT min(s.place)::integer AS place FROM unnest(p_instance) WITH ORDINALITY s(i, place)
        WHERE NOT EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = s.i)
            AND NOT EXISTS (SELECT 1 FROM orchestrator_queue q
                            WHERE q.instance_id = s.i AND q.parked_at IS NULL AND q.class = 'start')
        GROUP BY s.i) f;
    IF v_free IS NOT NULL THEN
        v_started := queue_sole_starts_1(v_now, ARRAY(SELECT p_instance[o] FROM unnest(v_free) o),
            ARRAY(SELECT p_start[o] FROM unnest(v_free) o), ARRAY(SELECT NULL::text FROM unnest(v_free)));
    END IF;
    -- Whoever has a start in the queue now has not ended. The first message of an id has brought it.
    SELECT array_agg(CASE
            WHEN s.i = ANY (v_started) THEN CASE WHEN s.nth = 1 THEN 0 ELSE 1 END
            WHEN s.has_ended THEN 2 ELSE 1 END ORDER BY s.place)
    INTO v_outcome FROM (
        SELECT a.place, a.i, row_number() OVER (PARTITION BY a.i ORDER BY a.place) AS nth,
            EXISTS (SELECT 1 FROM instances n JOIN executions e
                    ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
                    WHERE n.instance_id = a.i AND e.status IN ('Completed', 'Failed')) AS has_ended
        FROM unnest(p_instance) WITH ORDINALITY a(i, place)) s;
    INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
    SELECT s.i, 'queue', v_now, s.message
    FROM unnest(p_instance, p_message, v_outcome) WITH ORDINALITY s(i, message, outcome, place)
    WHERE s.outcome < 2 ORDER BY s.place;
    SELECT array_agg(DISTINCT s.i) INTO v_touched FROM unnest(p_instance, v_outcome) s(i, outcome) WHERE s.outcome < 2;
    IF v_touched IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_touched);
    END IF;
    UPDATE committers SET deliveries = v_outcome WHERE committer = p_committer;
    RETURN v_outcome;
END $$;
