-- Batches as sets, and functions of one idea each. Where their comments do not say otherwise, they do what the functions of the
-- versions before did; these stay for builds that call them. What the head of 0003 says of sets ("one after the other and not as a
-- set") does not hold any more.

-- An instance that was leased, as every function answers that leases instances; `SELECT *` of such a function has a column for
-- each. The last row of an answer has no instance and describes the rest.
CREATE TYPE instance_claim AS (
    -- The lease, and what the instance is: NULL or 0 if it is to be.
    instance         text,
    token            text,
    name             text,
    version          text,
    execution        bigint,
    incarnation      bigint,
    last_event       bigint,
    status           text,
    start_event      text,
    -- The messages that the lease covers.
    message_ids      bigint[],
    attempts         bigint[],
    texts            text[],
    -- Of the last row: the time, when to look again, whether there is more to look at, whether a turn is just being stored,
    -- the classes that the caller has to decide about, what was dropped, and whether some that just arrived got a place in line.
    now_at           bigint,
    next_due         bigint,
    more             boolean,
    busy             boolean,
    unknown_classes  text[],
    dropped_for      text[],
    dropped_count    bigint[],
    in_line          boolean,
    -- Which of the results or starts that came with the claim were stored.
    done             integer[],
    -- Instances that could not be claimed, and why.
    blocked          text[],
    blocked_reasons  text[]
);

-- Removes activities and enqueues their completions (NULL for none). One that is no longer held is left alone: it must
-- be leased with this token, by a lease that was live when the ack arrived. If `p_max` is not 0 and any was still held,
-- leases instances along with it, as `claim_instances_2` does. The last row has the positions of what was done, and whether any
-- instance got a message.
CREATE FUNCTION store_results_2(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_id bigint[], p_token text[], p_waited_ms bigint[], p_instance text[], p_class text[], p_item text[],
    p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS SETOF instance_claim
LANGUAGE plpgsql AS $$
DECLARE
    v_noted boolean;
    v_arrived bigint;
    v_now bigint;
    v_done integer[];
    v_sessions text[];
    v_left text[];
    v_routes text[];
    v_touched text[];
    v_about instance_claim;
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    v_arrived := now_ms_1(p_now);
    WITH gone AS (
        -- In the order of the array, in which others lock them as well.
        DELETE FROM worker_queue w
        USING unnest(p_id, p_token, p_waited_ms, p_instance, p_class, p_item)
            WITH ORDINALITY r(id, token, waited, instance, class, item, place)
        WHERE w.id = r.id AND w.lock_token = r.token AND w.locked_until > v_arrived - r.waited
        RETURNING r.place, r.instance, r.class, r.item, w.session_id, w.route, w.ready_for),
    told AS (
        INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
        SELECT g.instance, g.class, now_ms_1(p_now), g.item FROM gone g WHERE g.item IS NOT NULL ORDER BY g.place)
    SELECT array_agg(g.place::integer ORDER BY g.place),
        array_agg(g.session_id) FILTER (WHERE g.session_id IS NOT NULL),
        array_agg(g.session_id ORDER BY g.place) FILTER (WHERE g.ready_for IS NOT NULL),
        array_agg(g.route ORDER BY g.place) FILTER (WHERE g.ready_for IS NOT NULL),
        array_agg(DISTINCT g.instance COLLATE "C") FILTER (WHERE g.item IS NOT NULL)
    INTO v_done, v_sessions, v_left, v_routes, v_touched FROM gone g;
    IF v_sessions IS NOT NULL THEN
        v_now := now_ms_1(p_now);
        UPDATE sessions SET last_activity_at = v_now WHERE session_id = ANY (v_sessions) AND locked_until > v_now;
    END IF;
    IF v_left IS NOT NULL THEN
        -- Other claims had seen these leases run out, and made the next activities of the sessions claimable.
        INSERT INTO session_arrivals (sessions, routes) VALUES (v_left, v_routes);
    END IF;
    IF coalesce(cardinality(v_done), 0) < cardinality(p_id) THEN
        UPDATE committers SET refused_work = ARRAY(
            SELECT o FROM generate_subscripts(p_id, 1) o WHERE v_done IS NULL OR o <> ALL (v_done))
        WHERE committer = p_committer;
    END IF;
    IF p_max > 0 AND v_done IS NOT NULL THEN
        RETURN QUERY SELECT c.*
        FROM claim_instances_2(p_now, p_max, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, v_touched) c;
    ELSIF v_touched IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_touched);
    END IF;
    v_about.in_line := v_touched IS NOT NULL;
    v_about.done := v_done;
    RETURN NEXT v_about;
END $$;

-- Guards the instances of steps, and tells which steps fit: `verdicts` has 0 for those, whose positions are in `fits`, and 4 for
-- others.
--
-- Of each instance it has the incarnation (`details`), the execution (`currents`) and its status (`befores`), as far as the
-- caller needs them; `timers` are the messages of timers that are causes. `had_places` tells that some had a place in the
-- schedule. The flags tell what there is among the steps that fit: new instances, new executions, changes of a status, ends.
CREATE FUNCTION judge_steps_1(
    p_at bigint, p_guard text, p_instance text[], p_held bigint[], p_held_execution bigint[], p_held_event bigint[],
    p_timer text[], p_execution bigint[], p_status text[], p_terminal boolean[], p_pinned text[],
    OUT verdicts integer[], OUT details bigint[], OUT had_places boolean, OUT befores text[], OUT currents bigint[],
    OUT timers bigint[], OUT fits integer[], OUT has_free boolean, OUT has_new boolean, OUT has_status boolean,
    OUT has_end boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_count bigint;
    v_are_new boolean;
    v_found text[];
    v_taken bigint[];
    v_free text[];
BEGIN
    IF 0 = ANY (p_held) THEN
        -- A transaction that queues a start of the same id at the same time meets this row, and looks again. It comes before the place
        -- of the instance, as it does for others.
        WITH mine AS (
            INSERT INTO orchestrator_queue AS q (instance_id, class, created_at, work_item, is_sole_start)
            SELECT t.i, 'start', p_at, '', true FROM unnest(p_instance, p_held) t(i, held) WHERE t.held = 0
            ON CONFLICT (instance_id) WHERE is_sole_start DO NOTHING RETURNING q.id, q.instance_id)
        SELECT pg_catalog.array_agg(m.id), pg_catalog.array_agg(m.instance_id) INTO v_taken, v_free FROM mine m;
        DELETE FROM orchestrator_queue q WHERE q.id = ANY (v_taken);
    END IF;
    -- From here on no other transaction takes a turn of these, until this one is over. Those that have no place get one.
    INSERT INTO instance_schedule (instance_id, lock_token) SELECT i, p_guard FROM unnest(p_instance) i
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
        SELECT p_execution INTO currents FROM instances n
        WHERE n.incarnation = p_held[1] AND n.instance_id = p_instance[1] AND n.current_execution_id = p_held_execution[1]
            AND coalesce((SELECT h.event_id FROM history h
                 WHERE h.instance_id = p_instance[1] AND h.execution_id = p_held_execution[1]
                 ORDER BY h.event_id DESC LIMIT 1), 0) = p_held_event[1]
            AND (SELECT 1 FROM orchestrator_queue q
                 WHERE q.instance_id = p_instance[1] AND q.parked_at IS NULL AND q.visible_at <= p_at LIMIT 1) IS NULL
            AND (SELECT 1 FROM orchestrator_queue q
                 WHERE q.instance_id = p_instance[1] AND q.parked_at IS NOT NULL LIMIT 1) IS NULL;
        IF FOUND THEN
            verdicts := '{0}';
            fits := '{1}';
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
        INTO verdicts, details, befores, currents, timers, fits, has_free, has_new, has_status, has_end
        FROM (
            SELECT t.place::integer AS place, t.held, t.execution, t.new_status, t.pinned, t.terminal, n.incarnation,
                n.current_execution_id AS current, e.status, m.id AS timer,
                CASE
                    WHEN NOT v_are_new AND t.i <> ALL (coalesce(v_found, '{}')) AND (
                        SELECT s.lock_token FROM instance_schedule s WHERE s.instance_id = t.i) IS DISTINCT FROM p_guard THEN 4
                    WHEN (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = t.i AND q.parked_at IS NULL
                            AND q.visible_at <= p_at AND (m.id IS NULL OR q.id <> m.id) LIMIT 1) IS NOT NULL THEN 4
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
                WHERE t.timer IS NOT NULL AND q.instance_id = t.i AND q.parked_at IS NULL AND q.visible_at <= p_at
                ORDER BY q.visible_at, q.id LIMIT 1) m ON true
            ORDER BY t.place) r;
    END IF;
    had_places := v_found IS NOT NULL;
END $$;

-- What `store_steps_1` and `ack_turns_3` share stands in these functions. Those without an answer return a value, because PL/pgSQL
-- calls them faster in an assignment than in a PERFORM. `p_verdicts` has 0 for the turns that are stored, whose positions `p_turn`
-- names.
--
-- Writes what turns (`p_fits`) change of their instances, unless they are plain: executions and their status, names, versions, the
-- custom status; and makes the instances that are new.
--
-- `p_details`, `p_befores` and `p_currents` have incarnation, status and current execution of each instance, as the store had them.
-- The flags tell what there may be among the turns: new executions, changes of a status, new instances. Returns the incarnations with
-- those of the new instances, how many instances and executions are new, and by how many the instances of each status have grown.
CREATE FUNCTION write_states_1(
    p_at bigint, p_fits integer[], p_details bigint[], p_befores text[], p_currents bigint[], p_has_new boolean,
    p_has_status boolean, p_has_free boolean,
    p_instance text[], p_execution bigint[], p_status text[], p_terminal boolean[], p_output text[], p_name text[],
    p_version text[], p_parent text[], p_pinned text[], p_major bigint[], p_minor bigint[], p_patch bigint[],
    p_custom_set boolean[], p_custom text[],
    OUT details bigint[], OUT new_instances bigint, OUT new_executions bigint, OUT running bigint, OUT completed bigint,
    OUT failed bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- Elements of this are found at once, whatever comes before them.
    v_instance text[] := p_instance;
    v_begun text[];
BEGIN
    details := p_details;
    new_instances := 0;
    new_executions := 0;
    IF p_has_new THEN
        WITH new AS (
            INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at, duroxide_version_major,
                duroxide_version_minor, duroxide_version_patch, output)
            SELECT v_instance[o], p_execution[o], coalesce(p_status[o], 'Running'), p_at,
                CASE WHEN p_terminal[o] THEN p_at END, p_major[o], p_minor[o], p_patch[o],
                CASE WHEN p_status[o] IS NOT NULL THEN p_output[o] END
            FROM unnest(p_fits) o WHERE p_befores[o] IS NULL OR p_currents[o] <> p_execution[o]
            ON CONFLICT DO NOTHING RETURNING instance_id)
        SELECT pg_catalog.array_agg(w.instance_id), pg_catalog.count(*) INTO v_begun, new_executions FROM new w;
    END IF;
    IF p_has_status THEN
        UPDATE executions e SET
            status = coalesce(p_status[o], e.status),
            output = CASE WHEN p_status[o] IS NOT NULL THEN p_output[o] ELSE e.output END,
            completed_at = CASE WHEN p_status[o] IS NULL THEN e.completed_at WHEN p_terminal[o] THEN p_at END,
            duroxide_version_major = CASE WHEN p_pinned[o] IS NOT NULL THEN p_major[o] ELSE e.duroxide_version_major END,
            duroxide_version_minor = CASE WHEN p_pinned[o] IS NOT NULL THEN p_minor[o] ELSE e.duroxide_version_minor END,
            duroxide_version_patch = CASE WHEN p_pinned[o] IS NOT NULL THEN p_patch[o] ELSE e.duroxide_version_patch END
        FROM unnest(p_fits) o
        WHERE (p_status[o] IS NOT NULL OR p_pinned[o] IS NOT NULL) AND (v_begun IS NULL OR v_instance[o] <> ALL (v_begun))
            AND e.instance_id = v_instance[o] AND e.execution_id = p_execution[o];
    END IF;
    UPDATE instances n SET
        updated_at = p_at,
        current_execution_id = greatest(n.current_execution_id, p_execution[o]),
        pinned_version = CASE
            WHEN p_pinned[o] IS NOT NULL AND p_execution[o] >= n.current_execution_id THEN p_pinned[o]
            WHEN p_pinned[o] IS NULL AND p_execution[o] > n.current_execution_id THEN ''
            ELSE n.pinned_version END,
        orchestration_name = coalesce(CASE WHEN p_version[o] IS NOT NULL THEN p_name[o] END, n.orchestration_name),
        orchestration_version = coalesce(CASE WHEN p_name[o] IS NOT NULL THEN p_version[o] END, n.orchestration_version),
        custom_status = CASE WHEN p_custom_set[o] THEN p_custom[o] ELSE n.custom_status END,
        custom_status_version = n.custom_status_version + CASE WHEN p_custom_set[o] THEN 1 ELSE 0 END
    FROM unnest(p_fits) o WHERE p_currents[o] IS NOT NULL AND n.incarnation = p_details[o];
    IF p_has_free THEN
        WITH new AS (
            INSERT INTO instances AS n (instance_id, orchestration_name, orchestration_version, current_execution_id,
                created_at, updated_at, parent_instance_id, pinned_version, custom_status_version, custom_status)
            SELECT v_instance[o], p_name[o], p_version[o], p_execution[o], p_at, p_at, p_parent[o],
                -- A turn without a name may have recorded and pinned the execution before.
                coalesce(p_pinned[o], CASE WHEN v_begun IS NULL OR v_instance[o] <> ALL (v_begun) THEN (
                    SELECT e.duroxide_version_major || '.' || e.duroxide_version_minor || '.' || e.duroxide_version_patch
                    FROM executions e WHERE e.instance_id = v_instance[o] AND e.execution_id = p_execution[o]) END, ''),
                CASE WHEN p_custom_set[o] THEN 1 ELSE 0 END, p_custom[o]
            FROM unnest(p_fits) o WHERE p_currents[o] IS NULL AND p_name[o] IS NOT NULL AND p_version[o] IS NOT NULL
            ORDER BY o
            RETURNING n.instance_id, n.incarnation)
        SELECT pg_catalog.count(w.incarnation), pg_catalog.array_agg(coalesce(w.incarnation, d.detail) ORDER BY d.place)
        INTO new_instances, details
        FROM unnest(p_instance, p_details) WITH ORDINALITY d(i, detail, place)
        LEFT JOIN new w ON w.instance_id = d.i;
    END IF;
    IF p_has_new OR p_has_status THEN
        -- The statuses that the instances had, and those that they have. A turn without a name makes no instance.
        SELECT pg_catalog.sum((s.after = 'Running')::integer) - coalesce(pg_catalog.sum((s.before = 'Running')::integer), 0),
            pg_catalog.sum((s.after = 'Completed')::integer) - coalesce(pg_catalog.sum((s.before = 'Completed')::integer), 0),
            pg_catalog.sum((s.after = 'Failed')::integer) - coalesce(pg_catalog.sum((s.before = 'Failed')::integer), 0)
        INTO running, completed, failed FROM (
            SELECT p_befores[o] AS before, CASE
                WHEN p_status[o] IS NOT NULL AND p_execution[o] >= coalesce(p_currents[o], 0) THEN p_status[o]
                ELSE (SELECT e.status FROM executions e WHERE e.instance_id = v_instance[o]
                    AND e.execution_id = greatest(p_currents[o], p_execution[o])) END AS after
            FROM unnest(p_fits) o
            WHERE details[o] IS NOT NULL
                AND (p_currents[o] IS NULL OR p_status[o] IS NOT NULL OR p_execution[o] > p_currents[o])) s;
    END IF;
END $$;

-- Removes activities that turns have cancelled, and lets claims look at what that frees in sessions.
CREATE FUNCTION cancel_work_1(
    p_verdicts integer[], p_turn integer[], p_instance text[], p_execution bigint[], p_activity bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM worker_queue w
        USING unnest(p_turn, p_instance, p_execution, p_activity) c(turn, instance_id, execution_id, activity_id)
        WHERE p_verdicts[c.turn] = 0 AND w.instance_id = c.instance_id AND w.execution_id = c.execution_id
            AND w.activity_id = c.activity_id
        RETURNING w.session_id, w.route)
    INSERT INTO session_arrivals (sessions, routes)
    SELECT pg_catalog.array_agg(session_id), pg_catalog.array_agg(route) FROM gone WHERE session_id IS NOT NULL
    HAVING pg_catalog.count(*) > 0;
    RETURN true;
END $$;

-- Enters activities, those of turns with verdict 0; up to `p_room` of those that have no session and one of the routes (NULL for all)
-- are leased at once. Returns the positions and ids of these, and whether there are others.
CREATE FUNCTION enter_work_2(
    p_now bigint, p_verdicts integer[], p_turn integer[], p_instance text[], p_execution bigint[], p_activity bigint[],
    p_session text[], p_route text[], p_item text[], p_room integer, p_lease_ms bigint, p_routes text[], p_seed text,
    OUT places integer[], OUT ids bigint[], OUT some_ready boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_until bigint := v_now + least(p_lease_ms, 9223372036854775807 - v_now);
    v_sessions text[];
    v_routes text[];
BEGIN
    WITH fits AS (
        SELECT w.*, w.session IS NULL AND (p_routes IS NULL OR w.route = ANY (p_routes)) AS may_go
        FROM unnest(p_turn, p_instance, p_execution, p_activity, p_session, p_route, p_item)
            WITH ORDINALITY w(turn, i, execution, activity, session, route, item, place)
        WHERE p_verdicts[w.turn] = 0),
    new AS MATERIALIZED (
        SELECT f.*, pg_catalog.nextval('worker_queue_id_seq') AS id,
            f.may_go AND pg_catalog.count(*) FILTER (WHERE f.may_go) OVER (ORDER BY f.place) <= p_room AS goes
        FROM fits f),
    entered AS (
        INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, session_id, route, due_at, lock_token, locked_until,
            attempt_count, created_at, work_item)
        OVERRIDING SYSTEM VALUE
        SELECT n.id, n.i, n.execution, n.activity, n.session, n.route, CASE WHEN n.goes THEN v_until END,
            CASE WHEN n.goes THEN work_token_1(p_seed, n.id) END, CASE WHEN n.goes THEN v_until END,
            n.goes::integer, v_now, n.item
        FROM new n)
    SELECT pg_catalog.array_agg(n.place::integer) FILTER (WHERE n.goes), pg_catalog.array_agg(n.id) FILTER (WHERE n.goes),
        coalesce(pg_catalog.bool_or(NOT n.goes), false),
        pg_catalog.array_agg(n.session) FILTER (WHERE n.session IS NOT NULL),
        pg_catalog.array_agg(n.route) FILTER (WHERE n.session IS NOT NULL)
    INTO places, ids, some_ready, v_sessions, v_routes FROM new n;
    IF v_sessions IS NOT NULL THEN
        INSERT INTO session_arrivals (sessions, routes) VALUES (v_sessions, v_routes);
    END IF;
END $$;

-- Removes messages that no turn will read: all of an instance that is over, except a start, whose sender waits for its answer;
-- of one that was continued as new, those that the execution before waited for.
CREATE FUNCTION drop_unread_1(p_over text[], p_continued text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF p_over IS NOT NULL THEN
        DELETE FROM orchestrator_queue WHERE instance_id = ANY (p_over) AND parked_at IS NULL AND class <> 'start';
    END IF;
    IF p_continued IS NOT NULL THEN
        DELETE FROM orchestrator_queue
        WHERE instance_id = ANY (p_continued) AND parked_at IS NULL AND class = 'completion';
    END IF;
    RETURN true;
END $$;

-- Enqueues messages of turns, except those that `drop_unread_1` would remove. `p_of` has the instances of the turns. Returns, of
-- each message, the instance that got it and when it is due (0 for now); and the earliest time of those that are due later.
CREATE FUNCTION enqueue_of_turns_1(
    p_at bigint, p_verdicts integer[], p_of text[], p_over text[], p_continued text[],
    p_turn integer[], p_instance text[], p_class text[], p_due bigint[], p_item text[], p_parent text[],
    OUT instances text[], OUT times bigint[], OUT first_due bigint)
LANGUAGE plpgsql AS $$
BEGIN
    WITH new AS (
        INSERT INTO orchestrator_queue AS q (instance_id, class, visible_at, created_at, work_item, parent_instance_id)
        SELECT m.i, m.class, CASE WHEN m.due <= p_at THEN 0 ELSE m.due END, p_at, m.item, m.parent
        FROM unnest(p_turn, p_instance, p_class, p_due, p_item, p_parent)
            WITH ORDINALITY m(turn, i, class, due, item, parent, place)
        WHERE p_verdicts[m.turn] = 0
            AND (p_over IS NULL OR m.class = 'start' OR m.i <> p_of[m.turn] OR m.i <> ALL (p_over))
            AND (p_continued IS NULL OR m.class <> 'completion' OR m.i <> p_of[m.turn] OR m.i <> ALL (p_continued))
        ORDER BY m.place
        RETURNING q.instance_id, q.visible_at)
    SELECT pg_catalog.array_agg(n.instance_id), pg_catalog.array_agg(n.visible_at),
        pg_catalog.min(n.visible_at) FILTER (WHERE n.visible_at > 0)
    INTO instances, times, first_due FROM new n;
END $$;

-- Removes the activities whose results cause the steps with verdict 0. Each has to be held: leased with its token, by a lease that was
-- live when the step arrived.
CREATE FUNCTION end_work_of_steps_1(
    p_at bigint, p_verdicts integer[], p_step integer[], p_id bigint[], p_token text[], p_waited_ms bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_sessions text[];
    v_count bigint;
BEGIN
    WITH done AS (
        DELETE FROM worker_queue w
        USING unnest(p_step, p_id, p_token, p_waited_ms) r(step, id, token, waited)
        WHERE p_verdicts[r.step] = 0 AND w.id = r.id AND w.lock_token = r.token AND w.locked_until > p_at - r.waited
        RETURNING w.session_id)
    SELECT pg_catalog.count(*), pg_catalog.array_agg(session_id) FILTER (WHERE session_id IS NOT NULL)
    INTO v_count, v_sessions FROM done;
    IF v_count < pg_catalog.cardinality(p_step)
        AND v_count < (SELECT pg_catalog.count(*) FROM unnest(p_step) s WHERE p_verdicts[s] = 0) THEN
        RAISE EXCEPTION 'the activity of a result is not held any more' USING ERRCODE = 'DX001';
    END IF;
    IF v_sessions IS NOT NULL THEN
        UPDATE sessions SET last_activity_at = p_at WHERE session_id = ANY (v_sessions) AND locked_until > p_at;
    END IF;
    RETURN true;
END $$;

-- As before, but nothing is left of a place for messages that another transaction has removed meanwhile: the insertion waits for
-- the end of an instance, and enters what it had read before.
CREATE OR REPLACE FUNCTION place_1(p_instances text[], p_now bigint, p_parking_ms bigint) RETURNS void
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
    -- A place in the line is looked at soon in any case.
    DELETE FROM instance_schedule s
    WHERE s.instance_id = ANY (p_instances) AND s.lock_token IS NULL AND s.ready_seq IS NULL AND s.blocked_at IS NULL
        AND (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = s.instance_id LIMIT 1) IS NULL;
END $$;

-- Tells whether a step may hand its own activities over ahead of those that are ready: the oldest of these (`head` has its time,
-- NULL if there is none) is younger than `p_overtaking_ms`. If `some_are_due`, the time of an older one has come and no claim has
-- looked at it yet: then a step leases nothing, because only a claim finds the right order.
CREATE FUNCTION may_overtake_1(
    p_at bigint, p_overtaking_ms bigint, p_routes text[], OUT head bigint, OUT may_overtake boolean,
    OUT some_are_due boolean)
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.cardinality(p_routes) = 1 THEN
        SELECT (SELECT w.created_at FROM worker_queue w
                WHERE w.route = p_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL ORDER BY w.id LIMIT 1),
            EXISTS (SELECT 1 FROM worker_queue w WHERE w.due_at <= p_at AND w.created_at <= p_at - p_overtaking_ms)
        INTO head, some_are_due;
    ELSE
        SELECT (SELECT pg_catalog.min(h.created_at) FROM unnest(coalesce(p_routes, ready_routes_1()))
                    r(route) CROSS JOIN LATERAL (
                SELECT w.created_at FROM worker_queue w
                WHERE w.route = r.route AND w.due_at IS NULL AND w.session_id IS NULL ORDER BY w.id LIMIT 1) h),
            EXISTS (SELECT 1 FROM worker_queue w WHERE w.due_at <= p_at AND w.created_at <= p_at - p_overtaking_ms)
        INTO head, some_are_due;
    END IF;
    may_overtake := NOT some_are_due AND (head IS NULL OR head > p_at - p_overtaking_ms);
END $$;

-- Lets the instances of steps that only set timers wait for the first of them, and returns them. Nobody has to look before that.
CREATE FUNCTION let_wait_1(p_guard text, p_head_start bigint, p_told text[], p_times bigint[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    v_waiting text[];
BEGIN
    WITH waiting AS (
        UPDATE instance_schedule s SET lock_token = NULL,
            due_at = least(m.at, 9223372036854775807 - p_head_start) + p_head_start,
            class = coalesce((SELECT n.pinned_version FROM instances n WHERE n.instance_id = s.instance_id), '')
        FROM (SELECT u.i, pg_catalog.min(u.at) AS at FROM unnest(p_told, p_times) u(i, at)
              GROUP BY u.i HAVING pg_catalog.min(u.at) > 0) m
        WHERE s.instance_id = m.i AND s.lock_token = p_guard RETURNING s.instance_id)
    SELECT pg_catalog.array_agg(instance_id) INTO v_waiting FROM waiting;
    RETURN v_waiting;
END $$;

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
-- An instance that waits for a timer is offered to others `v_head_start` after the timer is due, which is longer if many steps
-- are stored at once: the turns of their timers wait for each other. `next_due` tells when.
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
    v_had_places boolean;
    v_befores text[];
    v_currents bigint[];
    v_timers bigint[];
    v_has_new boolean;
    v_has_status boolean;
    v_has_free boolean;
    v_has_end boolean;
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
    v_some_are_due boolean;
    v_noted boolean;
    -- None by a test's clock, which need not go on by itself.
    v_head_start bigint := CASE WHEN p_now IS NULL THEN least(20 + 2 * pg_catalog.cardinality(p_instance), p_overtaking_ms) ELSE 0 END;
BEGIN
    SELECT j.verdicts, j.details, j.had_places, j.befores, j.currents, j.timers, j.fits, j.has_free, j.has_new, j.has_status,
        j.has_end
    INTO verdicts, details, v_had_places, v_befores, v_currents, v_timers, v_stored, v_has_free, v_has_new, v_has_status,
        v_has_end
    FROM judge_steps_1(p_at => v_now, p_guard => v_guard, p_instance => p_instance, p_held => p_held,
        p_held_execution => p_held_execution, p_held_event => p_held_event, p_timer => p_timer, p_execution => p_execution,
        p_status => p_status, p_terminal => p_terminal, p_pinned => p_pinned) j;
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
        v_noted := end_work_of_steps_1(p_at => v_now, p_verdicts => verdicts, p_step => p_result_step, p_id => p_result_id,
            p_token => p_result_token, p_waited_ms => p_result_waited_ms);
    END IF;
    IF p_are_plain THEN
        UPDATE instances n SET updated_at = v_now
        WHERE n.incarnation = ANY (ARRAY(SELECT p_held[o] FROM unnest(v_stored) o));
    ELSE
        SELECT w.details, w.new_instances, w.new_executions, w.running, w.completed, w.failed
        INTO details, v_instances, v_executions, v_running, v_completed, v_failed
        FROM write_states_1(p_at => v_now, p_fits => v_stored, p_details => details, p_befores => v_befores,
            p_currents => v_currents, p_has_new => v_has_new, p_has_status => v_has_status, p_has_free => v_has_free,
            p_instance => p_instance, p_execution => p_execution, p_status => p_status, p_terminal => p_terminal,
            p_output => p_output, p_name => p_name, p_version => p_version, p_parent => p_parent, p_pinned => p_pinned,
            p_major => p_major, p_minor => p_minor, p_patch => p_patch, p_custom_set => p_custom_set, p_custom => p_custom) w;
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
        v_noted := cancel_work_1(p_verdicts => verdicts, p_turn => p_cancel_turn, p_instance => p_cancel_instance,
            p_execution => p_cancel_execution, p_activity => p_cancel_activity);
    END IF;

    IF p_claim_max > 0 THEN
        SELECT o.head, o.may_overtake, o.some_are_due INTO v_head, v_may_overtake, v_some_are_due
        FROM may_overtake_1(p_at => v_now, p_overtaking_ms => p_overtaking_ms, p_routes => p_claim_routes) o;
        IF v_some_are_due THEN
            p_claim_max := 0;
        END IF;
    END IF;
    IF pg_catalog.cardinality(p_work_turn) > 0 THEN
        SELECT w.places, w.ids, w.some_ready INTO places, ids, some_ready
        FROM enter_work_2(p_now => p_now, p_verdicts => verdicts, p_turn => p_work_turn, p_instance => p_work_instance,
            p_execution => p_work_execution, p_activity => p_work_activity, p_session => p_work_session,
            -- New ones that may not overtake stand in line, and are leased from there.
            p_route => p_work_route, p_item => p_work_item, p_room => CASE WHEN v_may_overtake THEN p_claim_max ELSE 0 END,
            p_lease_ms => p_claim_ms, p_routes => p_claim_routes, p_seed => p_claim_seed) w;
    END IF;
    IF p_claim_max > 0 AND v_head IS NOT NULL
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
    IF v_over IS NOT NULL OR v_continued IS NOT NULL THEN
        v_noted := drop_unread_1(p_over => v_over, p_continued => v_continued);
    END IF;
    IF pg_catalog.cardinality(p_message_turn) > 0 THEN
        SELECT m.instances, m.times, least(m.first_due, 9223372036854775807 - v_head_start) + v_head_start
        INTO v_told, v_times, next_due
        FROM enqueue_of_turns_1(p_at => v_now, p_verdicts => verdicts, p_of => p_instance, p_over => v_over,
            p_continued => v_continued, p_turn => p_message_turn, p_instance => p_message_instance,
            p_class => p_message_class, p_due => p_message_due, p_item => p_message_item, p_parent => p_message_parent) m;
        IF next_due IS NOT NULL THEN
            v_waiting := let_wait_1(p_guard => v_guard, p_head_start => v_head_start, p_told => v_told, p_times => v_times);
        END IF;
        v_told := nullif(ARRAY(SELECT unnest(v_told) EXCEPT SELECT unnest(v_waiting)), '{}');
    END IF;

    DELETE FROM instance_schedule s WHERE s.instance_id = ANY (p_instance) AND s.lock_token = v_guard;
    IF v_had_places THEN
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

-- The callers of it, as before, but with its parameters by name: two neighbours of one type cannot change places unnoticed.
CREATE OR REPLACE FUNCTION store_start_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text, p_execution bigint, p_name text, p_version text, p_pinned text, p_major bigint, p_minor bigint,
    p_patch bigint, p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_work_activity bigint[], p_work_route text[], p_work_item text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text, p_overtaking_ms bigint,
    OUT verdicts integer[], OUT details bigint[], OUT places integer[], OUT ids bigint[],
    OUT old_ids bigint[], OUT old_attempts bigint[], OUT old_items text[],
    OUT some_ready boolean, OUT some_told boolean, OUT next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_row tid := nullif(pg_catalog.current_setting('duroxide.committer_row', true), '');
    v_taken bigint;
    v_until bigint := v_now + least(p_claim_ms, 9223372036854775807 - v_now);
BEGIN
    -- A transaction that queues a start of the same id at the same time meets this row, and looks again. It comes before the place of
    -- the instance, as it does for others.
    INSERT INTO orchestrator_queue AS q (instance_id, class, created_at, work_item, is_sole_start)
    VALUES (p_instance, 'start', v_now, '', true)
    ON CONFLICT (instance_id) WHERE is_sole_start DO NOTHING RETURNING q.id INTO v_taken;
    IF v_taken IS NOT NULL THEN
        DELETE FROM orchestrator_queue q WHERE q.id = v_taken;
        INSERT INTO instance_schedule (instance_id, lock_token) VALUES (p_instance, 'step_' || p_committer)
        ON CONFLICT (instance_id) DO NOTHING;
        IF FOUND THEN
            WITH fits AS MATERIALIZED (
                SELECT 1
                WHERE (SELECT 1 FROM instances n WHERE n.instance_id = p_instance) IS NULL
                    AND (SELECT 1 FROM history h WHERE h.instance_id = p_instance LIMIT 1) IS NULL
                    AND (SELECT 1 FROM executions e WHERE e.instance_id = p_instance LIMIT 1) IS NULL
                    AND (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = p_instance LIMIT 1) IS NULL
                    -- Nothing that waits for its turn is overtaken, unless for a moment.
                    AND (SELECT 1 FROM worker_queue w WHERE w.due_at <= v_now AND w.created_at <= v_now - p_overtaking_ms
                     ORDER BY w.due_at LIMIT 1)
                        IS NULL
                    AND coalesce((SELECT w.created_at FROM worker_queue w
                         WHERE w.route = p_claim_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL
                         ORDER BY w.id LIMIT 1)
                        > v_now - p_overtaking_ms AND pg_catalog.cardinality(p_work_activity) >= p_claim_max, true)),
            begun AS (
                INSERT INTO executions (instance_id, execution_id, status, started_at, duroxide_version_major,
                    duroxide_version_minor, duroxide_version_patch)
                SELECT p_instance, p_execution, 'Running', v_now, p_major, p_minor, p_patch FROM fits),
            made AS (
                INSERT INTO instances AS n (instance_id, orchestration_name, orchestration_version, current_execution_id,
                    created_at, updated_at, pinned_version, listed_status)
                SELECT p_instance, p_name, p_version, p_execution, v_now, v_now, coalesce(p_pinned, ''), 'Running' FROM fits
                RETURNING n.incarnation),
            told AS (
                INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
                SELECT p_instance, p_execution, e.id, e.type, v_now, e.data
                FROM fits, unnest(p_event_id, p_event_type, p_event_data) e(id, type, data)),
            new AS MATERIALIZED (
                SELECT pg_catalog.nextval('worker_queue_id_seq') AS id, w.activity, w.route, w.item
                FROM fits, unnest(p_work_activity, p_work_route, p_work_item) w(activity, route, item)),
            entered AS (
                INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, route, due_at, lock_token, locked_until,
                    attempt_count, created_at, work_item)
                OVERRIDING SYSTEM VALUE
                SELECT n.id, p_instance, p_execution, n.activity, n.route, v_until, 'lock_' || p_claim_seed || '_' || n.id,
                    v_until, 1, v_now, n.item
                FROM new n)
            SELECT '{0}', ARRAY[m.incarnation], ARRAY(SELECT n.id FROM new n) INTO verdicts, details, ids FROM made m;
            DELETE FROM instance_schedule s WHERE s.instance_id = p_instance;
        END IF;
    END IF;
    IF verdicts IS NULL THEN
        SELECT s.* INTO verdicts, details, places, ids, old_ids, old_attempts, old_items, some_ready, some_told, next_due
        FROM store_steps_1(
            p_now => p_now, p_committer => p_committer, p_epoch => p_epoch, p_batch => p_batch, p_careful => false,
            p_instance => ARRAY[p_instance], p_held => '{0}', p_held_execution => ARRAY[p_execution], p_held_event => '{0}',
            p_timer => ARRAY[NULL::text], p_execution => ARRAY[p_execution], p_status => ARRAY[NULL::text], p_terminal => '{f}',
            p_output => ARRAY[NULL::text], p_name => ARRAY[p_name], p_version => ARRAY[p_version],
            p_parent => ARRAY[NULL::text], p_pinned => ARRAY[p_pinned], p_major => ARRAY[p_major], p_minor => ARRAY[p_minor],
            p_patch => ARRAY[p_patch], p_custom_set => '{f}', p_custom => ARRAY[NULL::text], p_kv_cleared => '{f}',
            p_are_plain => false, p_result_step => '{}', p_result_id => '{}', p_result_token => '{}',
            p_result_waited_ms => '{}', p_event_turn => pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_event_id)]),
            p_event_id => p_event_id, p_event_type => p_event_type, p_event_data => p_event_data, p_kv_turn => '{}',
            p_kv_key => '{}', p_kv_value => '{}', p_kv_ms => '{}',
            p_work_turn => pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_instance => pg_catalog.array_fill(p_instance, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_execution => pg_catalog.array_fill(p_execution, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_activity => p_work_activity,
            p_work_session => pg_catalog.array_fill(NULL::text, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_route => p_work_route, p_work_item => p_work_item, p_cancel_turn => '{}', p_cancel_instance => '{}',
            p_cancel_execution => '{}', p_cancel_activity => '{}', p_message_turn => '{}', p_message_instance => '{}',
            p_message_class => '{}', p_message_due => '{}', p_message_item => '{}', p_message_parent => '{}',
            p_claim_max => p_claim_max, p_claim_ms => p_claim_ms, p_claim_routes => p_claim_routes,
            p_claim_seed => p_claim_seed, p_overtaking_ms => p_overtaking_ms) s;
        RETURN;
    END IF;
    places := ARRAY(SELECT pg_catalog.generate_series(1, pg_catalog.cardinality(ids)));
    some_ready := false;
    some_told := false;
    UPDATE committers SET batch = coalesce(p_batch, batch), step_verdicts = NULL, step_batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN p_batch IS NULL THEN turn_verdicts END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
        deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
        seen_at = pg_catalog.now(), instances = instances + 1, executions = executions + 1,
        events = events + pg_catalog.cardinality(p_event_id), running_instances = running_instances + 1
    WHERE ctid = v_row AND committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
    IF FOUND THEN
        PERFORM pg_catalog.set_config('duroxide.committer_row', v_row::text, false);
    ELSE
        some_ready := NOT note_steps_1(p_committer, p_epoch, p_batch, '{0}', 1, 1, pg_catalog.cardinality(p_event_id), 1, 0, 0);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION store_step_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text, p_held bigint, p_execution bigint, p_held_event bigint,
    p_result_id bigint, p_result_token text, p_result_waited_ms bigint,
    p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_work_activity bigint[], p_work_route text[], p_work_item text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text, p_overtaking_ms bigint,
    OUT verdicts integer[], OUT details bigint[], OUT places integer[], OUT ids bigint[],
    OUT old_ids bigint[], OUT old_attempts bigint[], OUT old_items text[],
    OUT some_ready boolean, OUT some_told boolean, OUT next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_row tid := nullif(pg_catalog.current_setting('duroxide.committer_row', true), '');
    v_is_new boolean;
    v_until bigint := v_now + least(p_claim_ms, 9223372036854775807 - v_now);
BEGIN
    INSERT INTO instance_schedule (instance_id, lock_token) VALUES (p_instance, 'step_' || p_committer)
    ON CONFLICT (instance_id) DO NOTHING;
    v_is_new := FOUND;
    IF v_is_new THEN
        WITH fits AS MATERIALIZED (
            SELECT 1 FROM instances n
            WHERE n.incarnation = p_held AND n.instance_id = p_instance AND n.current_execution_id = p_execution
                AND (SELECT h.event_id FROM history h WHERE h.instance_id = p_instance AND h.execution_id = p_execution
                     ORDER BY h.event_id DESC LIMIT 1) = p_held_event
                AND (SELECT 1 FROM orchestrator_queue q
                     WHERE q.instance_id = p_instance AND q.parked_at IS NULL AND q.visible_at <= v_now LIMIT 1) IS NULL
                AND (SELECT 1 FROM orchestrator_queue q
                     WHERE q.instance_id = p_instance AND q.parked_at IS NOT NULL LIMIT 1) IS NULL
                -- Nothing that waits for its turn is overtaken, unless for a moment.
                AND (SELECT 1 FROM worker_queue w WHERE w.due_at <= v_now AND w.created_at <= v_now - p_overtaking_ms
                     ORDER BY w.due_at LIMIT 1) IS NULL
                AND coalesce((SELECT w.created_at FROM worker_queue w
                     WHERE w.route = p_claim_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL ORDER BY w.id LIMIT 1)
                    > v_now - p_overtaking_ms AND pg_catalog.cardinality(p_work_activity) >= p_claim_max, true)),
        done AS (
            DELETE FROM worker_queue w USING fits
            WHERE w.id = p_result_id AND w.lock_token = p_result_token AND w.locked_until > v_now - p_result_waited_ms
                AND w.session_id IS NULL
            RETURNING w.id),
        touched AS (UPDATE instances n SET updated_at = v_now FROM done WHERE n.incarnation = p_held),
        told AS (
            INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
            SELECT p_instance, p_execution, e.id, e.type, v_now, e.data
            FROM done, unnest(p_event_id, p_event_type, p_event_data) e(id, type, data)),
        new AS MATERIALIZED (
            SELECT pg_catalog.nextval('worker_queue_id_seq') AS id, w.activity, w.route, w.item
            FROM done, unnest(p_work_activity, p_work_route, p_work_item) w(activity, route, item)),
        entered AS (
            INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, route, due_at, lock_token, locked_until,
                attempt_count, created_at, work_item)
            OVERRIDING SYSTEM VALUE
            SELECT n.id, p_instance, p_execution, n.activity, n.route, v_until, 'lock_' || p_claim_seed || '_' || n.id, v_until, 1,
                v_now, n.item
            FROM new n)
        SELECT '{0}', ARRAY[p_held], ARRAY(SELECT n.id FROM new n) INTO verdicts, details, ids FROM done;
        DELETE FROM instance_schedule s WHERE s.instance_id = p_instance;
    END IF;
    IF verdicts IS NULL THEN
        SELECT s.* INTO verdicts, details, places, ids, old_ids, old_attempts, old_items, some_ready, some_told, next_due
        FROM store_steps_1(
            p_now => p_now, p_committer => p_committer, p_epoch => p_epoch, p_batch => p_batch, p_careful => false,
            p_instance => ARRAY[p_instance], p_held => ARRAY[p_held], p_held_execution => ARRAY[p_execution],
            p_held_event => ARRAY[p_held_event], p_timer => ARRAY[NULL::text], p_execution => ARRAY[p_execution],
            p_status => ARRAY[NULL::text], p_terminal => '{f}', p_output => ARRAY[NULL::text], p_name => ARRAY[NULL::text],
            p_version => ARRAY[NULL::text], p_parent => ARRAY[NULL::text], p_pinned => ARRAY[NULL::text], p_major => '{NULL}',
            p_minor => '{NULL}', p_patch => '{NULL}', p_custom_set => '{f}', p_custom => ARRAY[NULL::text],
            p_kv_cleared => '{f}', p_are_plain => true, p_result_step => '{1}', p_result_id => ARRAY[p_result_id],
            p_result_token => ARRAY[p_result_token], p_result_waited_ms => ARRAY[p_result_waited_ms],
            p_event_turn => pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_event_id)]), p_event_id => p_event_id,
            p_event_type => p_event_type, p_event_data => p_event_data, p_kv_turn => '{}', p_kv_key => '{}', p_kv_value => '{}',
            p_kv_ms => '{}', p_work_turn => pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_instance => pg_catalog.array_fill(p_instance, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_execution => pg_catalog.array_fill(p_execution, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_activity => p_work_activity,
            p_work_session => pg_catalog.array_fill(NULL::text, ARRAY[pg_catalog.cardinality(p_work_activity)]),
            p_work_route => p_work_route, p_work_item => p_work_item, p_cancel_turn => '{}', p_cancel_instance => '{}',
            p_cancel_execution => '{}', p_cancel_activity => '{}', p_message_turn => '{}', p_message_instance => '{}',
            p_message_class => '{}', p_message_due => '{}', p_message_item => '{}', p_message_parent => '{}',
            p_claim_max => p_claim_max, p_claim_ms => p_claim_ms, p_claim_routes => p_claim_routes,
            p_claim_seed => p_claim_seed, p_overtaking_ms => p_overtaking_ms) s;
        RETURN;
    END IF;
    places := ARRAY(SELECT pg_catalog.generate_series(1, pg_catalog.cardinality(ids)));
    some_ready := false;
    some_told := false;
    UPDATE committers SET batch = coalesce(p_batch, batch), step_verdicts = NULL, step_batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN p_batch IS NULL THEN turn_verdicts END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
        deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
        seen_at = pg_catalog.now(), events = events + pg_catalog.cardinality(p_event_id)
    WHERE ctid = v_row AND committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
    IF FOUND THEN
        PERFORM pg_catalog.set_config('duroxide.committer_row', v_row::text, false);
    ELSE
        some_ready := NOT note_steps_1(p_committer, p_epoch, p_batch, '{0}', 0, 0, pg_catalog.cardinality(p_event_id), 0, 0, 0);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION store_end_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text, p_held bigint, p_execution bigint, p_held_event bigint,
    p_result_id bigint, p_result_token text, p_result_waited_ms bigint, p_status text, p_output text,
    p_event_id bigint[], p_event_type text[], p_event_data text[],
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text, p_overtaking_ms bigint,
    OUT verdicts integer[], OUT details bigint[], OUT places integer[], OUT ids bigint[],
    OUT old_ids bigint[], OUT old_attempts bigint[], OUT old_items text[],
    OUT some_ready boolean, OUT some_told boolean, OUT next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_row tid := nullif(pg_catalog.current_setting('duroxide.committer_row', true), '');
    v_completed integer := CASE WHEN p_status = 'Completed' THEN 1 ELSE 0 END;
BEGIN
    INSERT INTO instance_schedule (instance_id, lock_token) VALUES (p_instance, 'step_' || p_committer)
    ON CONFLICT (instance_id) DO NOTHING;
    IF FOUND THEN
        WITH fits AS MATERIALIZED (
            SELECT 1 FROM instances n
            WHERE n.incarnation = p_held AND n.instance_id = p_instance AND n.current_execution_id = p_execution
                AND (SELECT h.event_id FROM history h WHERE h.instance_id = p_instance AND h.execution_id = p_execution
                     ORDER BY h.event_id DESC LIMIT 1) = p_held_event
                AND (SELECT e.status FROM executions e
                     WHERE e.instance_id = p_instance AND e.execution_id = p_execution) = 'Running'
                AND (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = p_instance LIMIT 1) IS NULL
                AND (SELECT 1 FROM kv_delta d WHERE d.instance_id = p_instance LIMIT 1) IS NULL
                AND (p_claim_max = 0
                    OR (SELECT 1 FROM worker_queue w
                        WHERE w.route = p_claim_routes[1] AND w.due_at IS NULL AND w.session_id IS NULL LIMIT 1) IS NULL
                    AND (SELECT 1 FROM worker_queue w WHERE w.due_at <= v_now AND w.created_at <= v_now - p_overtaking_ms
                     ORDER BY w.due_at LIMIT 1)
                        IS NULL)),
        done AS (
            DELETE FROM worker_queue w USING fits
            WHERE w.id = p_result_id AND w.lock_token = p_result_token AND w.locked_until > v_now - p_result_waited_ms
                AND w.session_id IS NULL
            RETURNING w.id),
        ended AS (
            UPDATE executions e SET status = p_status, output = p_output, completed_at = v_now FROM done
            WHERE e.instance_id = p_instance AND e.execution_id = p_execution),
        -- With the status that is listed, so that the trigger of the execution has nothing to change.
        touched AS (
            UPDATE instances n SET updated_at = v_now, listed_status = p_status FROM done WHERE n.incarnation = p_held),
        told AS (
            INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
            SELECT p_instance, p_execution, e.id, e.type, v_now, e.data
            FROM done, unnest(p_event_id, p_event_type, p_event_data) e(id, type, data))
        SELECT '{0}', ARRAY[p_held] INTO verdicts, details FROM done;
        DELETE FROM instance_schedule s WHERE s.instance_id = p_instance;
    END IF;
    IF verdicts IS NULL THEN
        SELECT s.* INTO verdicts, details, places, ids, old_ids, old_attempts, old_items, some_ready, some_told, next_due
        FROM store_steps_1(
            p_now => p_now, p_committer => p_committer, p_epoch => p_epoch, p_batch => p_batch, p_careful => false,
            p_instance => ARRAY[p_instance], p_held => ARRAY[p_held], p_held_execution => ARRAY[p_execution],
            p_held_event => ARRAY[p_held_event], p_timer => ARRAY[NULL::text], p_execution => ARRAY[p_execution],
            p_status => ARRAY[p_status], p_terminal => '{t}', p_output => ARRAY[p_output], p_name => ARRAY[NULL::text],
            p_version => ARRAY[NULL::text], p_parent => ARRAY[NULL::text], p_pinned => ARRAY[NULL::text], p_major => '{NULL}',
            p_minor => '{NULL}', p_patch => '{NULL}', p_custom_set => '{f}', p_custom => ARRAY[NULL::text],
            p_kv_cleared => '{f}', p_are_plain => false, p_result_step => '{1}', p_result_id => ARRAY[p_result_id],
            p_result_token => ARRAY[p_result_token], p_result_waited_ms => ARRAY[p_result_waited_ms],
            p_event_turn => pg_catalog.array_fill(1, ARRAY[pg_catalog.cardinality(p_event_id)]), p_event_id => p_event_id,
            p_event_type => p_event_type, p_event_data => p_event_data, p_kv_turn => '{}', p_kv_key => '{}', p_kv_value => '{}',
            p_kv_ms => '{}', p_work_turn => '{}', p_work_instance => '{}', p_work_execution => '{}', p_work_activity => '{}',
            p_work_session => '{}', p_work_route => '{}', p_work_item => '{}', p_cancel_turn => '{}', p_cancel_instance => '{}',
            p_cancel_execution => '{}', p_cancel_activity => '{}', p_message_turn => '{}', p_message_instance => '{}',
            p_message_class => '{}', p_message_due => '{}', p_message_item => '{}', p_message_parent => '{}',
            p_claim_max => p_claim_max, p_claim_ms => p_claim_ms, p_claim_routes => p_claim_routes,
            p_claim_seed => p_claim_seed, p_overtaking_ms => p_overtaking_ms) s;
        RETURN;
    END IF;
    some_ready := false;
    some_told := false;
    UPDATE committers SET batch = coalesce(p_batch, batch), step_verdicts = NULL, step_batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN p_batch IS NULL THEN turn_verdicts END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
        deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
        seen_at = pg_catalog.now(), events = events + pg_catalog.cardinality(p_event_id),
        running_instances = running_instances - 1, completed_instances = completed_instances + v_completed,
        failed_instances = failed_instances + 1 - v_completed
    WHERE ctid = v_row AND committer = p_committer AND epoch = p_epoch RETURNING ctid INTO v_row;
    IF FOUND THEN
        PERFORM pg_catalog.set_config('duroxide.committer_row', v_row::text, false);
    ELSE
        some_ready := NOT note_steps_1(p_committer, p_epoch, p_batch, '{0}', 0, 0, pg_catalog.cardinality(p_event_id), -1,
            v_completed, 1 - v_completed);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION store_round_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_careful boolean, p_round integer,
    p_step integer[], p_instance text[], p_held bigint[], p_held_execution bigint[], p_held_event bigint[], p_timer text[],
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
    v_first integer[];
BEGIN
    IF p_round > 1 THEN
        -- What became of the first turns. A turn whose step was refused is made one that fits nowhere.
        v_first := pg_catalog.current_setting('duroxide.first_verdicts', true)::integer[];
        SELECT pg_catalog.array_agg(CASE WHEN v_first[t.step] = 0 THEN t.held ELSE -1 END ORDER BY t.place) INTO p_held
        FROM unnest(p_held, p_step) WITH ORDINALITY t(held, step, place);
    END IF;
    SELECT s.verdicts, s.details, s.places, s.ids, s.old_ids, s.old_attempts, s.old_items, s.some_ready, s.some_told, s.next_due
    INTO verdicts, details, places, ids, old_ids, old_attempts, old_items, some_ready, some_told, next_due
    FROM store_steps_1(
            p_now => p_now, p_committer => p_committer, p_epoch => p_epoch, p_batch => p_batch, p_careful => p_careful,
            p_instance => p_instance, p_held => p_held, p_held_execution => p_held_execution, p_held_event => p_held_event,
            p_timer => p_timer, p_execution => p_execution, p_status => p_status, p_terminal => p_terminal,
            p_output => p_output, p_name => p_name, p_version => p_version, p_parent => p_parent, p_pinned => p_pinned,
            p_major => p_major, p_minor => p_minor, p_patch => p_patch, p_custom_set => p_custom_set, p_custom => p_custom,
            p_kv_cleared => p_kv_cleared, p_are_plain => p_are_plain, p_result_step => p_result_step,
            p_result_id => p_result_id, p_result_token => p_result_token, p_result_waited_ms => p_result_waited_ms,
            p_event_turn => p_event_turn, p_event_id => p_event_id, p_event_type => p_event_type, p_event_data => p_event_data,
            p_kv_turn => p_kv_turn, p_kv_key => p_kv_key, p_kv_value => p_kv_value, p_kv_ms => p_kv_ms,
            p_work_turn => p_work_turn, p_work_instance => p_work_instance, p_work_execution => p_work_execution,
            p_work_activity => p_work_activity, p_work_session => p_work_session, p_work_route => p_work_route,
            p_work_item => p_work_item, p_cancel_turn => p_cancel_turn, p_cancel_instance => p_cancel_instance,
            p_cancel_execution => p_cancel_execution, p_cancel_activity => p_cancel_activity, p_message_turn => p_message_turn,
            p_message_instance => p_message_instance, p_message_class => p_message_class, p_message_due => p_message_due,
            p_message_item => p_message_item, p_message_parent => p_message_parent, p_claim_max => p_claim_max,
            p_claim_ms => p_claim_ms, p_claim_routes => p_claim_routes, p_claim_seed => p_claim_seed,
            p_overtaking_ms => p_overtaking_ms) s;
    IF p_round = 1 THEN
        PERFORM pg_catalog.set_config('duroxide.first_verdicts', verdicts::text, true);
    ELSIF 0 <> ANY (verdicts) THEN
        IF EXISTS (SELECT 1 FROM unnest(verdicts, p_step) t(verdict, step) WHERE t.verdict <> 0 AND v_first[t.step] = 0) THEN
            RAISE EXCEPTION 'a later turn of a step does not fit' USING ERRCODE = 'DX002';
        END IF;
    END IF;
    IF p_round > 1 AND 0 <> ANY (v_first) THEN
        -- A committer that did not hear the answer asks what became of the first turns.
        UPDATE committers SET step_verdicts = v_first WHERE committer = p_committer AND epoch = p_epoch;
    END IF;
END $$;

-- Ends the leases of turns, and tells what became of each: `verdicts` has 0 if the lease was live, 1 if the token is not that of
-- the lease, 2 if the lease had run out, 3 if an event of the turn is there already, which `details` has. (Whether any is, it
-- looks only if `p_careful`; such a turn keeps its lease.) `fits` are the positions of those with 0, and `messages` what their
-- leases covered.
--
-- Of each instance whose turn fits it has the incarnation (`details`), the execution (`currents`) and its status (`befores`).
CREATE FUNCTION judge_turns_1(
    p_now bigint, p_careful boolean, p_token text[], p_instance text[], p_waited_ms bigint[], p_execution bigint[],
    p_event_turn integer[], p_event_id bigint[],
    OUT verdicts integer[], OUT details bigint[], OUT fits integer[], OUT messages bigint[], OUT currents bigint[],
    OUT befores text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_arrived bigint := now_ms_1(p_now);
BEGIN
    IF NOT p_careful AND cardinality(p_token) = 1 THEN
        -- A lone turn is so common that it has queries of its own.
        DELETE FROM instance_schedule s WHERE s.instance_id = p_instance[1] AND s.lock_token = p_token[1]
            AND s.locked_until > v_arrived - p_waited_ms[1] RETURNING s.batch INTO messages;
        IF FOUND THEN
            verdicts := '{0}';
            fits := '{1}';
            SELECT ARRAY[n.incarnation], ARRAY[n.current_execution_id], ARRAY[e.status] INTO details, currents, befores
            FROM instances n
            LEFT JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
            WHERE n.instance_id = p_instance[1];
            RETURN;
        END IF;
    END IF;
    IF p_careful THEN
        SELECT array_agg((
            SELECT min(h.event_id) FROM unnest(p_event_turn, p_event_id) e(turn, id)
            JOIN history h ON h.instance_id = t.i AND h.execution_id = t.execution AND h.event_id = e.id
            WHERE e.turn = t.place AND EXISTS (
                SELECT 1 FROM instance_schedule s WHERE s.instance_id = t.i AND s.lock_token = t.token
                AND s.locked_until > v_arrived - t.waited)) ORDER BY t.place)
        INTO details
        FROM unnest(p_instance, p_token, p_waited_ms, p_execution) WITH ORDINALITY t(i, token, waited, execution, place);
    END IF;
    WITH gone AS (
        -- In the order of the array, in which others lock them as well.
        DELETE FROM instance_schedule s
        USING unnest(p_instance, p_token, p_waited_ms) WITH ORDINALITY t(i, token, waited, place)
        WHERE s.instance_id = t.i AND s.lock_token = t.token AND s.locked_until > v_arrived - t.waited
            AND details[t.place::integer] IS NULL
        RETURNING t.place::integer AS place, s.batch)
    SELECT array_agg(g.place ORDER BY g.place), (SELECT array_agg(m) FROM gone o, unnest(o.batch) m)
    INTO fits, messages FROM gone g;
    -- The leases are over, so nobody else changes these instances before the commit.
    SELECT array_agg(r.verdict), array_agg(r.detail), array_agg(r.current), array_agg(r.status)
    INTO verdicts, details, currents, befores
    FROM (
        SELECT v.verdict, CASE WHEN v.verdict = 0 THEN n.incarnation ELSE t.detail END AS detail,
            n.current_execution_id AS current, e.status
        FROM unnest(p_instance, p_token, details) WITH ORDINALITY t(i, token, detail, place)
        CROSS JOIN LATERAL (SELECT CASE
            WHEN t.place = ANY (fits) THEN 0
            WHEN t.detail IS NOT NULL THEN 3
            ELSE 1 + (SELECT count(*)::integer FROM instance_schedule s WHERE s.instance_id = t.i AND s.lock_token = t.token)
            END AS verdict OFFSET 0) v
        LEFT JOIN instances n ON n.instance_id = t.i AND v.verdict = 0
        LEFT JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
        ORDER BY t.place) r;
END $$;

-- Leases the oldest activities along with a commit, up to `p_max`. If something else has to be looked at before anything is leased,
-- it leases nothing and says so: callers have to ask for themselves. An activity of a session that waits for its turn is older than
-- those of the commit, and only `claim_work_1` knows who may take it.
CREATE FUNCTION lease_along_1(
    p_now bigint, p_at bigint, p_max integer, p_lease_ms bigint, p_routes text[], p_seed text,
    OUT leases_nothing boolean, OUT ids bigint[], OUT attempts bigint[], OUT items text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ready record;
    -- NULL if the caller does not ask how much this reads.
    v_read bigint := pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
        + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
        + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass);
BEGIN
    leases_nothing := false;
    IF coalesce(current_setting('duroxide.slow_work', true), '') <> '' AND are_slow_1('work') THEN
        v_ready := ready_work_1(p_at, p_max, p_routes, false);
        leases_nothing := v_ready.some_due;
        ids := CASE WHEN NOT v_ready.some_due THEN v_ready.ids END;
        v_read := NULL;
    -- As `work_is_due_1` tells; a call of it costs as much again.
    ELSIF EXISTS (SELECT 1 FROM worker_queue WHERE due_at <= p_at)
        OR EXISTS (SELECT 1 FROM sessions WHERE due_at <= p_at) OR EXISTS (SELECT 1 FROM session_arrivals)
        OR EXISTS (SELECT 1 FROM worker_queue WHERE ready_for IS NOT NULL) THEN
        leases_nothing := true;
    ELSE
        ids := oldest_work_1(p_max, p_routes);
    END IF;
    IF pg_stat_get_xact_tuples_returned('worker_queue_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_due'::regclass)
        + pg_stat_get_xact_tuples_returned('worker_queue_seated'::regclass)
        + pg_stat_get_xact_tuples_returned('sessions_due'::regclass)
        + pg_stat_get_xact_tuples_returned('session_arrivals_pkey'::regclass)
        - v_read > 1000 + 8 * least(CASE WHEN leases_nothing THEN 0 ELSE p_max END, 1000) THEN
        PERFORM are_slow_now_1('work');
    END IF;
    IF ids IS NOT NULL THEN
        SELECT array_agg(l.id), array_agg(l.attempts), array_agg(l.item)
        INTO ids, attempts, items FROM lease_work_1(p_now, ids, p_lease_ms, p_seed) l;
    END IF;
END $$;

-- Stores turns of leased instances, each wholly or not at all; `verdicts` and `details` as `judge_turns_1` has them, and the
-- incarnation of the instance of a turn that was stored.
--
-- The oldest activities are leased first, as `lease_along_1` does: `old_ids`, with attempts and texts. If that leaves some of
-- `p_claim_max`, it goes to new ones: `places` and `ids` tell which.
--
-- What an instance still has in the queue goes with it when it ends. When it continues as new, that is what the ended execution
-- waited for; signals and messages are for the next one.
CREATE FUNCTION ack_turns_3(
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
    p_claim_max integer, p_claim_ms bigint, p_claim_routes text[], p_claim_seed text,
    OUT verdicts integer[], OUT details bigint[], OUT places integer[], OUT ids bigint[],
    OUT old_ids bigint[], OUT old_attempts bigint[], OUT old_items text[],
    OUT leases_nothing boolean, OUT some_ready boolean, OUT some_told boolean, OUT next_due bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- Elements of this are found at once, whatever comes before them.
    v_instance text[] := p_instance;
    v_now bigint;
    v_stored integer[];
    v_messages bigint[];
    v_one integer;
    v_befores text[];
    v_currents bigint[];
    v_are_plain boolean;
    v_has_new boolean;
    v_has_status boolean;
    v_has_free boolean;
    v_has_end boolean;
    v_ended text[];
    v_over text[];
    v_continued text[];
    v_told text[];
    v_instances bigint := 0;
    v_executions bigint := 0;
    v_events bigint := 0;
    v_running bigint := 0;
    v_completed bigint := 0;
    v_failed bigint := 0;
    v_noted boolean;
BEGIN
    SELECT j.verdicts, j.details, j.fits, j.messages, j.currents, j.befores
    INTO verdicts, details, v_stored, v_messages, v_currents, v_befores
    FROM judge_turns_1(p_now => p_now, p_careful => p_careful, p_token => p_token, p_instance => p_instance,
        p_waited_ms => p_waited_ms, p_execution => p_execution, p_event_turn => p_event_turn, p_event_id => p_event_id) j;
    leases_nothing := false;
    some_ready := false;
    some_told := false;
    IF v_stored IS NULL THEN
        v_noted := note_turns_1(p_committer, p_epoch, p_batch, verdicts, 0, 0, 0, 0, 0, 0);
        RETURN;
    END IF;
    v_now := now_ms_1(p_now);
    IF cardinality(v_stored) = 1 THEN
        v_one := v_stored[1];
        v_has_new := v_befores[v_one] IS NULL OR v_currents[v_one] <> p_execution[v_one];
        v_has_status := p_status[v_one] IS NOT NULL OR p_pinned[v_one] IS NOT NULL;
        v_has_free := v_currents[v_one] IS NULL;
        v_has_end := p_terminal[v_one];
        v_are_plain := NOT (v_has_new OR v_has_status OR v_has_free OR p_custom_set[v_one]) AND p_name[v_one] IS NULL;
    ELSE
        SELECT bool_or(v_befores[o] IS NULL OR v_currents[o] <> p_execution[o]),
            bool_or(p_status[o] IS NOT NULL OR p_pinned[o] IS NOT NULL), bool_or(v_currents[o] IS NULL),
            bool_or(p_terminal[o]), bool_and(v_befores[o] IS NOT NULL AND v_currents[o] = p_execution[o]
                AND p_status[o] IS NULL AND p_pinned[o] IS NULL AND NOT p_custom_set[o] AND p_name[o] IS NULL)
        INTO v_has_new, v_has_status, v_has_free, v_has_end, v_are_plain FROM unnest(v_stored) o;
    END IF;

    IF v_are_plain THEN
        UPDATE instances n SET updated_at = v_now
        WHERE n.incarnation = ANY (ARRAY(SELECT details[o] FROM unnest(v_stored) o));
    ELSE
        SELECT w.details, w.new_instances, w.new_executions, w.running, w.completed, w.failed
        INTO details, v_instances, v_executions, v_running, v_completed, v_failed
        FROM write_states_1(p_at => v_now, p_fits => v_stored, p_details => details, p_befores => v_befores,
            p_currents => v_currents, p_has_new => v_has_new, p_has_status => v_has_status, p_has_free => v_has_free,
            p_instance => p_instance, p_execution => p_execution, p_status => p_status, p_terminal => p_terminal,
            p_output => p_output, p_name => p_name, p_version => p_version, p_parent => p_parent, p_pinned => p_pinned,
            p_major => p_major, p_minor => p_minor, p_patch => p_patch, p_custom_set => p_custom_set, p_custom => p_custom) w;
    END IF;

    INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
    SELECT v_instance[e.turn], p_execution[e.turn], e.id, e.type, v_now, e.data
    FROM unnest(p_event_turn, p_event_id, p_event_type, p_event_data) e(turn, id, type, data)
    WHERE verdicts[e.turn] = 0;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    IF cardinality(p_kv_turn) > 0 OR true = ANY (p_kv_cleared) THEN
        PERFORM change_values_1(v_now, verdicts, p_instance, p_kv_cleared, p_kv_turn, p_kv_key, p_kv_value, p_kv_ms);
    END IF;
    IF v_has_end THEN
        -- What ends an execution that is not the current one ends no instance.
        SELECT array_agg(t.i),
            array_agg(t.i) FILTER (WHERE t.is_current AND t.status IS DISTINCT FROM 'ContinuedAsNew'),
            array_agg(t.i) FILTER (WHERE t.is_current AND t.status = 'ContinuedAsNew')
        INTO v_ended, v_over, v_continued FROM (
            SELECT v_instance[o] AS i, p_status[o] AS status, coalesce(p_execution[o] >= v_currents[o], true) AS is_current
            FROM unnest(v_stored) o WHERE p_terminal[o]) t;
        IF EXISTS (SELECT 1 FROM kv_delta WHERE instance_id = ANY (v_ended)) THEN
            PERFORM merge_values_1(v_ended);
        END IF;
    END IF;
    IF cardinality(p_cancel_turn) > 0 THEN
        v_noted := cancel_work_1(p_verdicts => verdicts, p_turn => p_cancel_turn, p_instance => p_cancel_instance,
            p_execution => p_cancel_execution, p_activity => p_cancel_activity);
    END IF;

    IF p_claim_max > 0 THEN
        SELECT a.leases_nothing, a.ids, a.attempts, a.items INTO leases_nothing, old_ids, old_attempts, old_items
        FROM lease_along_1(p_now => p_now, p_at => v_now, p_max => p_claim_max, p_lease_ms => p_claim_ms,
            p_routes => p_claim_routes, p_seed => p_claim_seed) a;
        p_claim_max := CASE WHEN leases_nothing THEN 0 ELSE p_claim_max - coalesce(cardinality(old_ids), 0) END;
    END IF;
    IF cardinality(p_work_turn) > 0 THEN
        SELECT w.places, w.ids, w.some_ready INTO places, ids, some_ready
        FROM enter_work_2(p_now => p_now, p_verdicts => verdicts, p_turn => p_work_turn, p_instance => p_work_instance,
            p_execution => p_work_execution, p_activity => p_work_activity, p_session => p_work_session,
            p_route => p_work_route, p_item => p_work_item, p_room => p_claim_max, p_lease_ms => p_claim_ms,
            p_routes => p_claim_routes, p_seed => p_claim_seed) w;
    END IF;

    DELETE FROM orchestrator_queue WHERE id = ANY (v_messages);
    IF v_over IS NOT NULL OR v_continued IS NOT NULL THEN
        v_noted := drop_unread_1(p_over => v_over, p_continued => v_continued);
    END IF;
    IF cardinality(p_message_turn) > 0 THEN
        SELECT (SELECT array_agg(DISTINCT i) FROM unnest(m.instances) i), m.first_due INTO v_told, next_due
        FROM enqueue_of_turns_1(p_at => v_now, p_verdicts => verdicts, p_of => p_instance, p_over => v_over,
            p_continued => v_continued, p_turn => p_message_turn, p_instance => p_message_instance,
            p_class => p_message_class, p_due => p_message_due, p_item => p_message_item, p_parent => p_message_parent) m;
    END IF;
    -- The next fetch looks again at instances that still have messages. Not EXISTS, which the planner may answer by reading
    -- all of the table into a hash.
    SELECT v_told || array_agg(v_instance[o]) INTO v_told FROM unnest(v_stored) o
    WHERE (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = v_instance[o] AND q.parked_at IS NULL LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = v_instance[o] AND q.parked_at IS NOT NULL LIMIT 1)
            IS NOT NULL;
    IF v_told IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_told);
        some_told := true;
    END IF;
    v_noted := note_turns_1(p_committer, p_epoch, p_batch, verdicts, v_instances, v_executions, v_events,
        coalesce(v_running, 0), coalesce(v_completed, 0), coalesce(v_failed, 0));
END $$;

-- The messages that a lease of an instance covers: the oldest ones, as many as fit; the first one fits always if `p_takes_first`.
-- Sizes are known without reading the texts. `id + 0` keeps the planner from the index of ids, in which it would look for this
-- instance among all that there ever were.
CREATE FUNCTION messages_to_lease_1(
    p_instance text, p_at bigint, p_max integer, p_max_bytes bigint, p_takes_first boolean)
RETURNS TABLE (
    ids bigint[], attempts bigint[], texts text[], has_start boolean, bytes bigint, has_more boolean, has_parked boolean)
LANGUAGE sql STABLE AS $$
    SELECT array_agg(m.id ORDER BY m.id) FILTER (WHERE m.fits), array_agg(m.attempt_count ORDER BY m.id) FILTER (WHERE m.fits),
        array_agg(m.work_item ORDER BY m.id) FILTER (WHERE m.fits),
        coalesce(bool_or(m.class = 'start') FILTER (WHERE m.fits), false),
        coalesce(max(m.upto) FILTER (WHERE m.fits), 0)::bigint, coalesce(NOT bool_and(m.fits), false),
        EXISTS (SELECT 1 FROM orchestrator_queue p WHERE p.instance_id = p_instance AND p.parked_at IS NOT NULL)
    FROM (
        SELECT u.*, u.place <= p_max AND (u.upto <= p_max_bytes OR p_takes_first AND u.place = 1) AS fits FROM (
            SELECT q.*, row_number() OVER (ORDER BY q.id) AS place,
                sum(octet_length(q.work_item)) OVER (ORDER BY q.id) AS upto
            FROM (
                (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                 WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at = 0
                 ORDER BY visible_at, id LIMIT p_max + 1)
                UNION ALL
                (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
                 WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at > 0 AND visible_at <= p_at
                 ORDER BY id + 0 LIMIT p_max + 1)) q) u) m
$$;

-- The same for an execution that is to begin: what starts it comes first, wherever it is in the queue.
CREATE FUNCTION start_and_messages_to_lease_1(p_instance text, p_at bigint, p_max integer, p_max_bytes bigint)
RETURNS TABLE (ids bigint[], attempts bigint[], texts text[], has_start boolean, bytes bigint)
LANGUAGE sql STABLE AS $$
    SELECT array_agg(m.id ORDER BY m.id), array_agg(m.attempt_count ORDER BY m.id), array_agg(m.work_item ORDER BY m.id),
        coalesce(bool_or(m.class = 'start'), false), coalesce(max(m.upto), 0)::bigint
    FROM (
        SELECT q.*, row_number() OVER (ORDER BY q.class <> 'start', q.id) AS place,
            sum(octet_length(q.work_item)) OVER (ORDER BY q.class <> 'start', q.id) AS upto
        FROM (
            (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
             WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at <= p_at AND class = 'start'
             ORDER BY id + 0 LIMIT p_max)
            UNION ALL
            (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
             WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at = 0 AND class <> 'start'
             ORDER BY visible_at, id LIMIT p_max)
            UNION ALL
            (SELECT id, class, attempt_count, work_item FROM orchestrator_queue
             WHERE instance_id = p_instance AND parked_at IS NULL AND visible_at > 0 AND visible_at <= p_at AND class <> 'start'
             ORDER BY id + 0 LIMIT p_max)) q) m
    WHERE m.place <= p_max AND (m.upto <= p_max_bytes OR m.place = 1)
$$;

-- What an instance is, if it has a row.
CREATE FUNCTION instance_to_lease_1(p_instance text)
RETURNS TABLE (name text, version text, execution bigint, incarnation bigint, class text, status text, last_event bigint)
LANGUAGE sql STABLE AS $$
    SELECT n.orchestration_name, n.orchestration_version, n.current_execution_id, n.incarnation, n.pinned_version,
        (SELECT e.status FROM executions e WHERE e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id),
        coalesce((SELECT h.event_id FROM history h
                  WHERE h.instance_id = n.instance_id AND h.execution_id = n.current_execution_id
                  ORDER BY h.event_id DESC LIMIT 1), 0)
    FROM instances n WHERE n.instance_id = p_instance
$$;

-- Leases those of these instances about which nothing is unusual, all at once: they exist or are to be started, nothing was parked
-- for them, no lease of them has run out, and none has more to be told than its share of `p_room` (bytes).
--
-- Candidates are `p_are_fresh`: they have just arrived, and have no place in the schedule. Or the caller has locked their places,
-- and tells which leases have run out, and for which messages are parked. `p_allowed` are the classes that the caller takes.
--
-- `unusual` are the positions of those that have to be looked at one by one, and `again` fresh ones that another transaction
-- has taken or changed meanwhile.
CREATE FUNCTION lease_usual_1(
    p_now bigint, p_at bigint, p_candidates text[], p_are_fresh boolean, p_are_lapsed boolean[], p_are_parked boolean[],
    p_allowed text[], p_lease_ms bigint, p_seed text, p_room bigint,
    OUT claims instance_claim[], OUT bytes bigint, OUT unusual integer[], OUT again text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_max_messages integer := coalesce(nullif(current_setting('duroxide.max_turn_messages', true), '')::integer, 1000);
    v_share bigint := (p_room - 1) / cardinality(p_candidates);
    v_classes text[];
    v_until bigint;
    v_count bigint;
    v_leased text[];
    v_changed text[];
BEGIN
    SELECT array_agg(ROW(s.i, 'lock_' || p_seed || '_' || s.i, s.name, s.version, coalesce(s.execution, 1),
                coalesce(s.incarnation, 0), coalesce(s.last_event, 0), s.status, NULL, s.ids, s.attempts, s.texts,
                NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::instance_claim)
            FILTER (WHERE s.is_usual),
        array_agg(coalesce(s.class, '')) FILTER (WHERE s.is_usual),
        array_agg(s.place::integer) FILTER (WHERE NOT s.is_usual), sum(s.bytes) FILTER (WHERE s.is_usual)
    INTO claims, v_classes, unusual, bytes
    FROM (
        SELECT c.i, c.place, k.*, m.ids, m.attempts, m.texts, m.bytes, m.ids IS NOT NULL AND NOT m.has_more
            AND NOT coalesce(c.is_lapsed, false) AND NOT coalesce(c.is_parked, false)
            AND NOT (p_are_fresh AND (m.has_parked OR (coalesce(k.class, '') <> ALL (p_allowed)) IS TRUE))
            AND (k.incarnation IS NOT NULL OR m.has_start
                AND (SELECT 1 FROM history h WHERE h.instance_id = c.i LIMIT 1) IS NULL
                AND (SELECT 1 FROM executions e WHERE e.instance_id = c.i LIMIT 1) IS NULL) AS is_usual
        FROM unnest(p_candidates, p_are_lapsed, p_are_parked) WITH ORDINALITY c(i, is_lapsed, is_parked, place)
        CROSS JOIN LATERAL messages_to_lease_1(c.i, p_at, v_max_messages, v_share, false) m
        LEFT JOIN LATERAL instance_to_lease_1(c.i) k ON true
        ORDER BY c.place) s;
    IF claims IS NULL THEN
        RETURN;
    END IF;
    -- The leases begin now, not when they were asked for.
    v_until := now_ms_1(p_now);
    v_until := v_until + least(p_lease_ms, 9223372036854775807 - v_until);
    IF NOT p_are_fresh THEN
        WITH leased AS (
            UPDATE instance_schedule s SET ready_seq = NULL, due_at = v_until, parked = false, lock_token = c.token,
                locked_until = v_until, locked_at = p_at, batch = c.message_ids
            FROM unnest(claims) c WHERE s.instance_id = c.instance AND s.ready_seq >= c.message_ids[1]
            RETURNING s.instance_id)
        SELECT array_agg(l.instance_id), count(*) INTO v_leased, v_count FROM leased l;
        IF v_count < cardinality(claims) THEN
            -- The others have lost the messages that gave them their places.
            SELECT array_agg(c) FILTER (WHERE c.instance = ANY (v_leased)),
                unusual || array_agg(array_position(p_candidates, c.instance))
                    FILTER (WHERE (c.instance = ANY (v_leased)) IS NOT TRUE)
            INTO claims, unusual FROM unnest(claims) c;
        END IF;
        RETURN;
    END IF;
    WITH leased AS (
        INSERT INTO instance_schedule (instance_id, class, due_at, lock_token, locked_until, locked_at, batch)
        SELECT c.instance, c.class, v_until, c.token, v_until, p_at, c.message_ids FROM unnest(v_classes, claims) c(class)
        ON CONFLICT (instance_id) DO NOTHING RETURNING instance_id)
    SELECT array_agg(l.instance_id), count(*) INTO v_leased, v_count FROM leased l;
    IF v_count < cardinality(claims) THEN
        -- Another transaction has placed the others meanwhile.
        SELECT array_agg(c) FILTER (WHERE c.instance = ANY (v_leased)),
            array_agg(c.instance) FILTER (WHERE (c.instance = ANY (v_leased)) IS NOT TRUE)
        INTO claims, again FROM unnest(claims) c;
    END IF;
    -- From here on no other transaction takes a turn of these. One may have, after they were read.
    SELECT array_agg(c.instance) INTO v_changed FROM unnest(claims) c
    WHERE (SELECT count(*) FROM orchestrator_queue q WHERE q.id = ANY (c.message_ids)) < cardinality(c.message_ids)
        OR (SELECT 1 FROM history h WHERE h.instance_id = c.instance
            AND (h.execution_id, h.event_id) > (c.execution, c.last_event) LIMIT 1) IS NOT NULL
        OR (SELECT n.incarnation FROM instances n WHERE n.instance_id = c.instance)
            IS DISTINCT FROM nullif(c.incarnation, 0);
    IF v_changed IS NOT NULL THEN
        DELETE FROM instance_schedule s WHERE s.instance_id = ANY (v_changed);
        again := again || v_changed;
        SELECT array_agg(c) INTO claims FROM unnest(claims) c WHERE c.instance <> ALL (v_changed);
    END IF;
END $$;

-- Leases one instance, whatever is unusual about it; the parameters are those of `lease_usual_1`. What becomes of it is the
-- `outcome`: `leased`; `again` if it has just arrived and has to stand in line; `placed` if its messages are for later; `unparked` if
-- messages that waited for it to exist are for it now, and it stays where it is in the line; `moved` if the message that gave it its
-- place is hidden again, because a clock was set back: its next message gives it another; `set aside` if it does not exist, with the
-- number of messages that were `dropped`.
CREATE FUNCTION lease_one_1(
    p_now bigint, p_at bigint, p_instance text, p_is_fresh boolean, p_is_lapsed boolean, p_is_parked boolean,
    p_allowed text[], p_lease_ms bigint, p_parking_ms bigint, p_seed text, p_max_bytes bigint,
    OUT outcome text, OUT claim instance_claim, OUT bytes bigint, OUT dropped bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_max_messages integer := coalesce(nullif(current_setting('duroxide.max_turn_messages', true), '')::integer, 1000);
    v_has_start boolean;
    v_has_more boolean;
    v_has_parked boolean;
    v_is_known boolean;
    v_class text;
    v_head bigint;
    v_until bigint;
BEGIN
    IF p_is_lapsed THEN
        -- The claim that takes over counts the attempt whose lease ran out.
        UPDATE orchestrator_queue q SET attempt_count = q.attempt_count + 1 WHERE q.id = ANY (ARRAY(
            SELECT b FROM instance_schedule s, unnest(s.batch) b WHERE s.instance_id = p_instance));
    END IF;
    SELECT m.ids, m.attempts, m.texts, m.has_start, m.bytes, m.has_more, m.has_parked
    INTO claim.message_ids, claim.attempts, claim.texts, v_has_start, bytes, v_has_more, v_has_parked
    FROM messages_to_lease_1(p_instance, p_at, v_max_messages, p_max_bytes, true) m;
    v_head := claim.message_ids[1];
    SELECT k.name, k.version, k.execution, k.incarnation, k.class, k.status, k.last_event
    INTO claim.name, claim.version, claim.execution, claim.incarnation, v_class, claim.status, claim.last_event
    FROM instance_to_lease_1(p_instance) k;
    v_is_known := FOUND;
    IF v_has_more AND (NOT v_is_known OR claim.status = 'ContinuedAsNew') THEN
        SELECT m.ids, m.attempts, m.texts, m.has_start, m.bytes
        INTO claim.message_ids, claim.attempts, claim.texts, v_has_start, bytes
        FROM start_and_messages_to_lease_1(p_instance, p_at, v_max_messages, p_max_bytes) m;
    END IF;
    IF NOT v_is_known THEN
        claim.execution := 1;
        claim.last_event := 0;
        IF EXISTS (SELECT 1 FROM history h WHERE h.instance_id = p_instance)
            OR EXISTS (SELECT 1 FROM executions e WHERE e.instance_id = p_instance) THEN
            SELECT r.execution, r.last_event, r.status INTO claim.execution, claim.last_event, claim.status
            FROM rowless_1(p_instance) r;
        END IF;
        IF NOT v_has_start AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = p_instance) THEN
            -- It does not exist.
            IF p_is_fresh THEN
                outcome := 'again';
            ELSE
                outcome := 'set aside';
                dropped := set_aside_1(p_instance, p_at, p_parking_ms);
            END IF;
            RETURN;
        END IF;
        IF claim.last_event > 0 THEN
            SELECT h.event_data INTO claim.start_event FROM history h
            WHERE h.instance_id = p_instance AND h.execution_id = claim.execution AND h.event_type = 'OrchestrationStarted'
            ORDER BY h.event_id LIMIT 1;
        END IF;
        v_class := '';
        claim.incarnation := 0;
    END IF;
    IF p_is_fresh AND (v_has_parked OR (v_class <> ALL (p_allowed)) IS TRUE) THEN
        outcome := 'again';
        RETURN;
    END IF;
    IF p_is_parked THEN
        -- It exists, so they are for it.
        UPDATE orchestrator_queue q SET parked_at = NULL WHERE q.instance_id = p_instance AND q.parked_at IS NOT NULL;
        UPDATE instance_schedule s SET parked = false, lock_token = NULL, batch = NULL WHERE s.instance_id = p_instance;
        outcome := 'unparked';
        RETURN;
    END IF;
    IF claim.message_ids IS NULL THEN
        -- Its messages are for later, or an operator removed them behind the store's back.
        IF NOT p_is_fresh THEN
            DELETE FROM instance_schedule s WHERE s.instance_id = p_instance;
        END IF;
        PERFORM place_1(ARRAY[p_instance], p_at, p_parking_ms);
        outcome := 'placed';
        RETURN;
    END IF;
    -- The lease begins now, not when it was asked for.
    v_until := now_ms_1(p_now);
    v_until := v_until + least(p_lease_ms, 9223372036854775807 - v_until);
    claim.instance := p_instance;
    claim.token := 'lock_' || p_seed || '_' || p_instance;
    outcome := 'leased';
    IF NOT p_is_fresh THEN
        UPDATE instance_schedule s SET ready_seq = NULL, due_at = v_until, parked = false, lock_token = claim.token,
            locked_until = v_until, locked_at = p_at, batch = claim.message_ids
        WHERE s.instance_id = p_instance AND s.ready_seq >= v_head;
        IF NOT FOUND THEN
            outcome := 'moved';
            UPDATE instance_schedule s SET ready_seq = v_head WHERE s.instance_id = p_instance;
            IF p_is_lapsed THEN
                -- Nobody takes over yet.
                UPDATE orchestrator_queue q SET attempt_count = q.attempt_count - 1 WHERE q.id = ANY (ARRAY(
                    SELECT b FROM instance_schedule s, unnest(s.batch) b WHERE s.instance_id = p_instance));
            END IF;
        END IF;
        RETURN;
    END IF;
    INSERT INTO instance_schedule (instance_id, class, due_at, lock_token, locked_until, locked_at, batch)
    VALUES (p_instance, v_class, v_until, claim.token, v_until, p_at, claim.message_ids)
    ON CONFLICT (instance_id) DO NOTHING;
    IF NOT FOUND THEN
        -- Another transaction has placed it meanwhile.
        outcome := 'again';
        RETURN;
    END IF;
    -- From here on no other transaction takes a turn of it. One may have, after it was read.
    IF (SELECT count(*) FROM orchestrator_queue q WHERE q.id = ANY (claim.message_ids)) < cardinality(claim.message_ids)
        OR EXISTS (SELECT 1 FROM history h WHERE h.instance_id = p_instance
                   AND (h.execution_id, h.event_id) > (claim.execution, claim.last_event))
        OR (SELECT n.incarnation FROM instances n WHERE n.instance_id = p_instance)
            IS DISTINCT FROM nullif(claim.incarnation, 0) THEN
        DELETE FROM instance_schedule s WHERE s.instance_id = p_instance;
        outcome := 'again';
    END IF;
END $$;

-- Those in line, from its head on and from a floor on, locked. Those that others are about to lease are skipped. With a floor, `p_low`
-- are instances that were placed just now below it.
CREATE FUNCTION candidates_in_line_1(
    p_classes text[], p_max integer, p_from bigint, p_low text[],
    OUT candidates text[], OUT are_lapsed boolean[], OUT are_parked boolean[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF p_from IS NULL THEN
        SELECT array_agg(x.instance_id ORDER BY x.ready_seq), array_agg(x.lapsed ORDER BY x.ready_seq),
            array_agg(x.parked ORDER BY x.ready_seq)
        INTO candidates, are_lapsed, are_parked FROM (
            SELECT h.* FROM unnest(p_classes) c(class) CROSS JOIN LATERAL (
                SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked
                FROM instance_schedule s WHERE s.class = c.class AND s.ready_seq IS NOT NULL
                ORDER BY s.ready_seq LIMIT p_max FOR UPDATE SKIP LOCKED) h
            ORDER BY h.ready_seq LIMIT p_max) x;
    ELSE
        SELECT array_agg(x.instance_id ORDER BY x.ready_seq), array_agg(x.lapsed ORDER BY x.ready_seq),
            array_agg(x.parked ORDER BY x.ready_seq)
        INTO candidates, are_lapsed, are_parked FROM (
            SELECT h.* FROM unnest(p_classes) c(class) CROSS JOIN LATERAL (
                SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked
                FROM instance_schedule s WHERE s.class = c.class AND s.ready_seq >= p_from
                ORDER BY s.ready_seq LIMIT p_max FOR UPDATE SKIP LOCKED) h
            UNION ALL
            SELECT l.instance_id, l.ready_seq, l.lapsed, l.parked FROM (
                SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked, s.class
                FROM instance_schedule s WHERE s.instance_id = ANY (p_low)
                ORDER BY s.instance_id OFFSET 0 FOR UPDATE SKIP LOCKED) l
            WHERE l.ready_seq < p_from AND l.class = ANY (p_classes)
            ORDER BY ready_seq LIMIT p_max) x;
    END IF;
END $$;

-- Those of these that have just arrived that are leased first, `p_max` of them, with the oldest messages; and the `rest`.
CREATE FUNCTION first_of_fresh_1(p_fresh text[], p_max integer, p_at bigint, OUT candidates text[], OUT rest text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    candidates := p_fresh;
    IF cardinality(candidates) > p_max THEN
        SELECT array_agg(f.i) FILTER (WHERE f.place <= p_max), array_agg(f.i) FILTER (WHERE f.place > p_max)
        INTO candidates, rest FROM (
            SELECT i, row_number() OVER (ORDER BY (
                SELECT min(q.id + 0) FROM orchestrator_queue q
                WHERE q.instance_id = i AND q.parked_at IS NULL AND q.visible_at <= p_at)) AS place
            FROM unnest(candidates) i) f;
    END IF;
    -- Two processes that lease the same ones wait for each other in one order.
    SELECT array_agg(i ORDER BY i COLLATE "C") INTO candidates FROM unnest(candidates) i;
END $$;

-- The floors of a claim on a session whose claims are slow; see 0013. The claim is bounded if it begins at them.
CREATE FUNCTION instance_floors_1(
    p_allowed text[], p_at bigint,
    OUT setting text, OUT floors jsonb, OUT is_bounded boolean, OUT from_arrival bigint, OUT from_due bigint,
    OUT until_due bigint, OUT from_ready bigint, OUT ready_classes text[])
LANGUAGE plpgsql AS $$
BEGIN
    setting := floors_setting_1('instances', p_allowed);
    floors := floors_1(setting, p_allowed);
    is_bounded := coalesce((floors ->> 'full_at')::bigint - now_ms_1(NULL) BETWEEN 1 AND 31000, false);
    IF is_bounded THEN
        from_arrival := floors -> 'floor' -> 'arrival';
        from_due := least((floors -> 'floor' -> 'due')::bigint, p_at);
        -- Leases that ended early are dead entries that are still to come.
        until_due := p_at + 500;
        from_ready := floors -> 'floor' -> 'ready';
        ready_classes := coalesce(p_allowed, ARRAY(SELECT jsonb_array_elements_text(floors -> 'keys')));
    ELSE
        from_arrival := 0;
        from_due := -9223372036854775807;
        until_due := 9223372036854775807;
    END IF;
END $$;

-- How many entries of the indexes that claims look through this transaction has read.
CREATE FUNCTION entries_read_1() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT pg_stat_get_xact_tuples_returned('instance_schedule_ready'::regclass)
        + pg_stat_get_xact_tuples_returned('instance_schedule_due'::regclass)
        + pg_stat_get_xact_tuples_returned('arrivals_pkey'::regclass)
$$;

-- Leases up to `p_max` instances, those with the oldest messages; they come in no particular order.
--
-- `p_known` are the classes that the caller has made up its mind about, `p_allowed` those it takes; both NULL for any.
-- If a ready instance is of another class, nobody in line is leased and `unknown_classes` asks about it. `p_touched` are
-- instances that got messages in the caller's own transaction. Tokens begin with `lock_` and the seed.
--
-- An instance stands in line by its row in `instance_schedule`. If the line is empty, those that just arrived are leased
-- without standing in it first. If claims pass many entries that are dead, they begin at floors; see 0013.
CREATE FUNCTION claim_instances_2(
    p_now bigint, p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text,
    p_touched text[])
RETURNS SETOF instance_claim
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_read bigint := entries_read_1();
    v_began timestamptz := clock_timestamp();
    v_max_bytes bigint := coalesce(nullif(current_setting('duroxide.max_turn_bytes', true), '')::bigint, 16777216);
    -- The classes that the caller takes, NULL for any.
    v_allowed text[] := CASE WHEN p_known IS NOT NULL THEN p_allowed END;
    v_setting text;
    v_floors jsonb;
    v_is_bounded boolean := false;
    v_from_arrival bigint := 0;
    v_from_due bigint := -9223372036854775807;
    v_until_due bigint := 9223372036854775807;
    v_from_ready bigint;
    v_ready_classes text[];
    v_some_arrived boolean;
    v_some_are_due boolean;
    v_is_line boolean;
    v_fresh text[] := p_touched;
    v_waiting text[];
    v_placed text[];
    v_all_classes text[];
    v_classes text[];
    v_candidates text[];
    v_are_lapsed boolean[];
    v_are_parked boolean[];
    v_is_fresh boolean;
    v_usual record;
    v_unusual integer[];
    v_instance text;
    v_one record;
    v_claim instance_claim;
    v_found integer := 0;
    v_total bigint := 0;
    v_set_aside integer := 0;
    v_in_line boolean := false;
    v_about instance_claim;
BEGIN
    v_about.more := false;
    v_about.busy := false;
    IF coalesce(current_setting('duroxide.slow_instances', true), '') <> '' AND are_slow_1('instances') THEN
        SELECT f.setting, f.floors, f.is_bounded, f.from_arrival, f.from_due, f.until_due, f.from_ready, f.ready_classes
        INTO v_setting, v_floors, v_is_bounded, v_from_arrival, v_from_due, v_until_due, v_from_ready, v_ready_classes
        FROM instance_floors_1(p_allowed, v_now) f;
    END IF;
    SELECT EXISTS (SELECT 1 FROM arrivals a WHERE a.id >= v_from_arrival)
            OR EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = ANY (p_touched)),
        EXISTS (SELECT 1 FROM instance_schedule s WHERE s.due_at <= v_now AND s.due_at >= v_from_due),
        v_setting IS NULL AND EXISTS (SELECT 1 FROM instance_schedule s WHERE s.ready_seq IS NOT NULL)
    INTO v_some_arrived, v_some_are_due, v_is_line;
    IF v_some_arrived THEN
        SELECT a.more, a.busy, a.fresh, a.waiting INTO v_about.more, v_about.busy, v_fresh, v_waiting
        FROM absorb_2(p_touched, v_from_arrival) a;
        IF v_waiting IS NOT NULL THEN
            PERFORM place_1(v_waiting, v_now, p_parking_ms);
        END IF;
    END IF;
    IF v_some_are_due THEN
        v_placed := promote_2(v_now, p_parking_ms, v_from_due);
        v_about.more := coalesce(cardinality(v_placed) = 256, false) OR v_about.more;
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
            IF cardinality(v_candidates) > 1 THEN
                SELECT f.candidates, f.rest INTO v_candidates, v_fresh FROM first_of_fresh_1(v_candidates, p_max, v_now) f;
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
                END IF;
            ELSIF v_all_classes IS NOT NULL AND NOT v_in_line THEN
                v_classes := v_all_classes;
                v_all_classes := NULL;
            ELSE
                v_classes := ready_classes_1();
            END IF;
            IF p_known IS NOT NULL AND NOT v_classes <@ p_known THEN
                SELECT array_agg(c) INTO v_about.unknown_classes FROM unnest(v_classes) c WHERE c <> ALL (p_known);
                EXIT;
            END IF;
            IF p_known IS NOT NULL THEN
                SELECT coalesce(array_agg(c), '{}') INTO v_classes FROM unnest(v_classes) c WHERE c = ANY (p_allowed);
            END IF;
            EXIT WHEN v_classes = '{}';
            SELECT l.candidates, l.are_lapsed, l.are_parked INTO v_candidates, v_are_lapsed, v_are_parked
            FROM candidates_in_line_1(v_classes, p_max - v_found, v_from_ready, CASE WHEN v_placed IS NOT NULL AND v_is_bounded
                THEN ARRAY(SELECT r.instance_id FROM ready_among_1(v_placed) r WHERE r.ready_seq < v_from_ready) END) l;
            EXIT WHEN v_candidates IS NULL;
        END IF;
        v_unusual := '{1,2,3}';
        v_unusual := v_unusual[:cardinality(v_candidates)];
        IF cardinality(v_candidates) > 3 THEN
            -- Fewer cost less one by one.
            v_usual := lease_usual_1(p_now => p_now, p_at => v_now, p_candidates => v_candidates, p_are_fresh => v_is_fresh,
                p_are_lapsed => v_are_lapsed, p_are_parked => v_are_parked, p_allowed => v_allowed, p_lease_ms => p_lease_ms,
                p_seed => p_seed, p_room => v_max_bytes - v_total);
            v_unusual := v_usual.unusual;
            v_fresh := v_fresh || v_usual.again;
            IF v_usual.claims IS NOT NULL THEN
                RETURN QUERY SELECT c.* FROM unnest(v_usual.claims) c;
                v_found := v_found + cardinality(v_usual.claims);
                v_total := v_total + v_usual.bytes;
            END IF;
        END IF;
        FOR v_at IN 1..coalesce(cardinality(v_unusual), 0) LOOP
            v_instance := v_candidates[v_unusual[v_at]];
            v_one := lease_one_1(p_now => p_now, p_at => v_now, p_instance => v_instance,
                p_is_fresh => v_is_fresh, p_is_lapsed => v_are_lapsed[v_unusual[v_at]],
                p_is_parked => v_are_parked[v_unusual[v_at]], p_allowed => v_allowed, p_lease_ms => p_lease_ms,
                p_parking_ms => p_parking_ms, p_seed => p_seed, p_max_bytes => v_max_bytes);
            CASE v_one.outcome
            WHEN 'leased' THEN
                v_claim := v_one.claim;
                RETURN NEXT v_claim;
                v_found := v_found + 1;
                v_total := v_total + v_one.bytes;
                IF v_total >= v_max_bytes AND v_found < p_max THEN
                    -- It is enough for one answer. The others keep their places.
                    IF v_is_fresh THEN
                        v_fresh := v_fresh || ARRAY(SELECT v_candidates[o] FROM unnest(v_unusual[v_at + 1:]) o);
                    END IF;
                    v_about.more := true;
                    p_max := v_found;
                    EXIT;
                END IF;
            WHEN 'again' THEN
                v_fresh := v_fresh || v_instance;
            WHEN 'placed' THEN
                v_placed := v_placed || v_instance;
            WHEN 'set aside' THEN
                v_set_aside := v_set_aside + 1;
                IF v_one.dropped > 0 THEN
                    v_about.dropped_for := v_about.dropped_for || v_instance;
                    v_about.dropped_count := v_about.dropped_count || v_one.dropped;
                END IF;
                IF v_set_aside >= 64 THEN
                    v_about.more := true;
                    p_max := v_found;
                    EXIT;
                END IF;
            ELSE
                -- It is leased with the others in the next round, which finds it again.
                NULL;
            END CASE;
        END LOOP;
        v_are_lapsed := NULL;
        v_are_parked := NULL;
        -- What could not be leased at once stands in line, at its end.
        IF cardinality(v_fresh) > 0 THEN
            PERFORM place_1(v_fresh, v_now, p_parking_ms);
            v_placed := v_placed || v_fresh;
            v_in_line := true;
        END IF;
        v_fresh := NULL;
        -- Nobody was in line, and nobody is.
        EXIT WHEN v_found >= p_max OR (v_is_fresh AND NOT v_in_line);
    END LOOP;
    IF v_waiting IS NOT NULL AND NOT v_in_line THEN
        v_in_line := EXISTS (SELECT 1 FROM ready_among_1(v_waiting));
    END IF;
    v_about.now_at := now_ms_1(p_now);
    IF NOT v_some_are_due THEN
        v_from_due := v_now;
    END IF;
    v_about.next_due := least(
        (SELECT s.due_at FROM instance_schedule s WHERE s.due_at >= v_from_due AND s.due_at <= v_until_due
         ORDER BY s.due_at LIMIT 1),
        nullif(v_until_due, 9223372036854775807));
    v_read := entries_read_1() - v_read;
    IF v_setting IS NULL THEN
        IF v_read > 1000 + 8 * least(p_max, 1000) THEN
            PERFORM move_instance_floors_1(floors_setting_1('instances', p_allowed), NULL, false, true, v_began, v_now,
                v_about.next_due, p_allowed, v_placed, v_found < p_max AND NOT v_about.more);
        END IF;
    ELSIF NOT v_is_bounded OR v_placed IS NOT NULL OR now_ms_1(NULL) - (v_floors -> 'marked_at')::bigint >= 500 THEN
        PERFORM move_instance_floors_1(v_setting, v_floors, v_is_bounded, v_read > 1000 + 8 * least(p_max, 1000), v_began,
            v_now, v_about.next_due, p_allowed, v_placed, v_found < p_max AND NOT v_about.more);
    END IF;
    v_about.in_line := v_in_line;
    RETURN NEXT v_about;
END $$;

-- As `claim_instances_2`, one candidate after the other, each in a subtransaction, and blocks instances that cannot be claimed; the
-- last row lists them with the reasons. What may be the server's fault counts as the instance's only if another one could be
-- claimed. What is neither's is raised. It is slower, so the store calls it only after a claim has failed.
CREATE FUNCTION claim_carefully_2(
    p_now bigint, p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS SETOF instance_claim
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_note record;
    v_one text;
    v_is_lapsed boolean;
    v_is_parked boolean;
    v_claimed integer := 0;
    v_outcome record;
    v_claim instance_claim;
    v_about instance_claim;
    v_allowed text[] := CASE WHEN p_known IS NOT NULL THEN p_allowed END;
    v_max_bytes bigint := coalesce(nullif(current_setting('duroxide.max_turn_bytes', true), '')::bigint, 16777216);
    v_state text;
    v_message text;
    v_suspects text[] := '{}';
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    v_about.blocked := '{}';
    v_about.blocked_reasons := '{}';
    -- Instances that others touched get their places.
    FOR v_note IN SELECT a.id, a.instances FROM arrivals a ORDER BY a.id LIMIT 32 FOR UPDATE SKIP LOCKED LOOP
        DELETE FROM arrivals a WHERE a.id = v_note.id;
        FOREACH v_one IN ARRAY v_note.instances LOOP
            IF EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = v_one) THEN
                PERFORM 1 FROM instance_schedule s WHERE s.instance_id = v_one FOR UPDATE SKIP LOCKED;
                IF NOT FOUND THEN
                    -- Another transaction is committing a turn of it.
                    INSERT INTO arrivals (instances) VALUES (ARRAY[v_one]);
                    v_about.busy := true;
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
                v_about.blocked := v_about.blocked || v_one;
                v_about.blocked_reasons := v_about.blocked_reasons || unclaimable_1(v_message, v_state);
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
            v_about.blocked := v_about.blocked || v_one;
            v_about.blocked_reasons := v_about.blocked_reasons || unclaimable_1(v_message, v_state);
        END;
    END LOOP;
    FOR v_at IN 1..cardinality(v_about.blocked) LOOP
        PERFORM block_unclaimed_1(p_now, v_about.blocked[v_at], v_about.blocked_reasons[v_at]);
    END LOOP;
    -- Then the line, from its head on.
    SELECT array_agg(c) INTO v_about.unknown_classes FROM unnest(ready_classes_1()) c
    WHERE p_known IS NOT NULL AND c <> ALL (p_known);
    FOR v_round IN 1..64 LOOP
        EXIT WHEN v_about.unknown_classes IS NOT NULL OR v_claimed >= least(p_max, 16);
        SELECT x.instance_id, x.lapsed, x.parked INTO v_one, v_is_lapsed, v_is_parked FROM (
            SELECT h.* FROM unnest(ready_classes_1()) c(class) CROSS JOIN LATERAL (
                SELECT s.instance_id, s.ready_seq, s.lock_token IS NOT NULL AS lapsed, s.parked FROM instance_schedule s
                WHERE s.class = c.class AND s.ready_seq IS NOT NULL
                ORDER BY s.ready_seq LIMIT 1 FOR UPDATE SKIP LOCKED) h
            WHERE p_allowed IS NULL OR c.class = ANY (p_allowed) ORDER BY h.ready_seq LIMIT 1) x;
        EXIT WHEN NOT FOUND;
        BEGIN
            v_outcome := lease_one_1(p_now => p_now, p_at => v_now, p_instance => v_one, p_is_fresh => false,
                p_is_lapsed => v_is_lapsed, p_is_parked => v_is_parked, p_allowed => v_allowed, p_lease_ms => p_lease_ms,
                p_parking_ms => p_parking_ms, p_seed => p_seed, p_max_bytes => v_max_bytes);
            IF v_outcome.outcome = 'leased' THEN
                v_claim := v_outcome.claim;
                -- It is read here, so that a text that cannot be is noticed.
                PERFORM octet_length(v_claim.start_event || '');
                RETURN NEXT v_claim;
                v_claimed := v_claimed + 1;
            ELSIF v_outcome.dropped > 0 THEN
                v_about.dropped_for := v_about.dropped_for || v_one;
                v_about.dropped_count := v_about.dropped_count || v_outcome.dropped;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS v_state = RETURNED_SQLSTATE, v_message = MESSAGE_TEXT;
            IF blame_1(v_state) = 0 THEN
                RAISE;
            END IF;
            PERFORM block_unclaimed_1(p_now, v_one, unclaimable_1(v_message, v_state));
            IF blame_1(v_state) = 1 THEN
                v_suspects := v_suspects || v_one;
            END IF;
            v_about.blocked := v_about.blocked || v_one;
            v_about.blocked_reasons := v_about.blocked_reasons || unclaimable_1(v_message, v_state);
        END;
    END LOOP;
    IF v_claimed = 0 AND cardinality(v_suspects) > 0 THEN
        IF cardinality(v_suspects) = cardinality(v_about.blocked) THEN
            RAISE EXCEPTION '%', v_message USING ERRCODE = v_state;
        END IF;
        DELETE FROM instance_schedule s WHERE s.instance_id = ANY (v_suspects);
        INSERT INTO arrivals (instances) VALUES (v_suspects);
        SELECT array_agg(b.i), array_agg(b.reason) INTO v_about.blocked, v_about.blocked_reasons
        FROM unnest(v_about.blocked, v_about.blocked_reasons) b(i, reason) WHERE b.i <> ALL (v_suspects);
    END IF;
    v_about.now_at := now_ms_1(p_now);
    v_about.more := v_claimed > 0 OR cardinality(v_about.blocked) > 0 OR EXISTS (SELECT 1 FROM arrivals);
    v_about.next_due := (SELECT s.due_at FROM instance_schedule s WHERE s.due_at IS NOT NULL ORDER BY s.due_at LIMIT 1);
    RETURN NEXT v_about;
END $$;

-- Enqueues messages; a start says whose child it is. If `p_max` is not 0, leases instances along with them, as `claim_instances_2`
-- does. The last row has the time, when the first of those that are for later is due, and whether any instance got a message.
CREATE FUNCTION enqueue_messages_3(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text[], p_class text[], p_delay_ms bigint[], p_due bigint[], p_item text[],
    p_parent text[],
    p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS SETOF instance_claim
LANGUAGE plpgsql AS $$
DECLARE
    v_noted boolean;
    v_now bigint;
    v_touched text[];
    v_about instance_claim;
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
        FROM claim_instances_2(p_now, p_max, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, v_touched) c;
    ELSE
        INSERT INTO arrivals (instances) VALUES (v_touched);
        v_about.in_line := true;
    END IF;
    v_about.now_at := v_now;
    v_about.next_due := v_next_due;
    RETURN NEXT v_about;
END $$;

-- Enqueues starts of instances whose ids are free, and leases instances along with them, as `claim_instances_2` does, if `p_max` is
-- not 0. The last row has the positions of those that were enqueued. Ids are kept apart by an index.
CREATE FUNCTION enqueue_starts_3(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_instance text[], p_item text[],
    p_parent text[],
    p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS SETOF instance_claim
LANGUAGE plpgsql AS $$
DECLARE
    v_noted boolean;
    v_now bigint;
    v_new integer[];
    v_touched text[];
    v_about instance_claim;
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
    v_about.in_line := false;
    IF v_touched IS NOT NULL THEN
        IF p_max > 0 THEN
            RETURN QUERY SELECT c.*
            FROM claim_instances_2(p_now, p_max, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, v_touched) c;
        ELSE
            INSERT INTO arrivals (instances) VALUES (v_touched);
            v_about.in_line := true;
        END IF;
    END IF;
    v_about.done := v_new;
    RETURN NEXT v_about;
END $$;

-- As `start_with_messages_1`; a start says whose child it is.
CREATE FUNCTION start_with_messages_2(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_instance text[], p_start text[],
    p_parent text[], p_message text[])
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
            ARRAY(SELECT p_start[o] FROM unnest(v_free) o), ARRAY(SELECT p_parent[o] FROM unnest(v_free) o));
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
