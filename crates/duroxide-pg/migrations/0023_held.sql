-- Work that was leased and not begun when its process died was not tried.
--
-- The default is that a lease has begun: work that a worker takes up at once, as nearly all is, costs nothing more. A process
-- lists the exceptions in its row: leases that it has held for a moment and not begun. Before it begins one of them, it takes
-- it off the list. So an attempt may be counted too often, for work that was leased just before the end, and never too rarely.
ALTER TABLE lease_holders ADD COLUMN held text[] COLLATE "C" NOT NULL DEFAULT '{}';

-- Notes the tokens of leases that a process holds and has not begun; `false` if it has no row.
CREATE FUNCTION note_held_1(p_holder text, p_held text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease_holders SET held = p_held WHERE holder = p_holder;
    RETURN FOUND;
END $$;

-- Releases the leases of a process whose lock is free: instances, activities, sessions. Returns how many, and whether some
-- were left because somebody holds their rows just now, most likely a last transaction of that process. `is_dead` is false if
-- the process has another lock meanwhile, or somebody else is doing this. With `p_forget` its row goes as well.
--
-- The attempt counts if the work was running, and may have been the cause. A lease that the process took for the first time
-- ran unless it is listed as held; of work that was tried before, the process tells what runs (`mark_running_1`).
CREATE OR REPLACE FUNCTION release_holder_1(p_now bigint, p_holder text, p_lock_key bigint, p_forget boolean,
    OUT is_dead boolean, OUT instances bigint, OUT activities bigint, OUT sessions bigint, OUT some_left boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_dead lease_holders;
    v_now bigint := now_ms_1(p_now);
    v_until bigint;
    v_prefix text := 'lock_' || p_holder;
    v_instances text[];
    v_activities bigint[];
    v_seats text[];
    v_routes text[];
BEGIN
    is_dead := false;
    SELECT * INTO v_dead FROM lease_holders w
    WHERE w.holder = p_holder AND w.lock_key = p_lock_key
        AND w.server_start = pg_catalog.pg_postmaster_start_time() FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF NOT pg_catalog.pg_try_advisory_xact_lock_shared(p_lock_key) THEN
        RETURN;
    END IF;
    is_dead := true;
    v_until := v_now + least(v_dead.lease_ms, 9223372036854775807 - v_now);

    SELECT pg_catalog.array_agg(l.instance_id) INTO v_instances FROM (
        SELECT s.instance_id FROM instance_schedule s
        WHERE s.due_at <= v_until AND pg_catalog.starts_with(s.lock_token, v_prefix)
        ORDER BY s.instance_id FOR UPDATE SKIP LOCKED) l;
    IF v_instances IS NOT NULL THEN
        WITH gone AS (
            DELETE FROM instance_schedule s WHERE s.instance_id = ANY (v_instances)
            RETURNING s.batch, s.running_token IS NOT DISTINCT FROM s.lock_token AS is_marked,
                s.lock_token = ANY (v_dead.held) AS is_held),
        ran AS (
            SELECT pg_catalog.unnest(g.batch) AS id FROM gone g
            WHERE v_dead.counts_all OR CASE
                WHEN EXISTS (SELECT 1 FROM orchestrator_queue t WHERE t.id = ANY (g.batch) AND t.attempt_count > 0)
                THEN g.is_marked ELSE NOT g.is_held END)
        UPDATE orchestrator_queue q SET attempt_count = q.attempt_count + 1 FROM ran r WHERE q.id = r.id;
        INSERT INTO arrivals (instances) VALUES (v_instances);
    END IF;

    SELECT pg_catalog.array_agg(l.id) INTO v_activities FROM (
        SELECT w.id FROM worker_queue w WHERE w.due_at <= v_until AND pg_catalog.starts_with(w.lock_token, v_prefix)
        ORDER BY w.id FOR UPDATE SKIP LOCKED) l;
    IF v_activities IS NOT NULL THEN
        -- The claim has counted the attempt.
        WITH back AS (
            UPDATE worker_queue w SET lock_token = NULL, locked_until = NULL, due_at = NULL, visible_at = 0,
                ready_for = NULL, running_token = NULL,
                attempt_count = w.attempt_count - CASE
                    WHEN v_dead.counts_all OR w.attempt_count = 0 THEN 0
                    WHEN w.attempt_count = 1 THEN (w.lock_token = ANY (v_dead.held))::integer
                    ELSE (w.running_token IS DISTINCT FROM w.lock_token)::integer END
            WHERE w.id = ANY (v_activities) RETURNING w.session_id, w.route)
        SELECT pg_catalog.array_agg(b.session_id), pg_catalog.array_agg(b.route) INTO v_seats, v_routes
        FROM back b WHERE b.session_id IS NOT NULL;
    END IF;

    -- A session is free when its time is over. One whose owner also goes by another process stays that owner's.
    WITH over AS (
        UPDATE sessions s SET locked_until = v_now, due_at = v_now WHERE s.session_id = ANY (ARRAY(
            SELECT o.session_id FROM sessions o
            WHERE text_hash_1(o.worker_id) IN (SELECT text_hash_1(n) FROM pg_catalog.unnest(v_dead.owners) n
                    WHERE NOT EXISTS (SELECT 1 FROM lease_holders w WHERE w.holder <> p_holder AND n = ANY (w.owners)))
                AND o.due_at > v_now
            ORDER BY o.session_id FOR UPDATE SKIP LOCKED))
        RETURNING s.session_id)
    SELECT pg_catalog.count(*) INTO sessions FROM over;
    IF v_seats IS NOT NULL THEN
        INSERT INTO session_arrivals (sessions, routes) VALUES (v_seats, v_routes);
    END IF;

    instances := coalesce(pg_catalog.cardinality(v_instances), 0);
    activities := coalesce(pg_catalog.cardinality(v_activities), 0);
    some_left := EXISTS (SELECT 1 FROM instance_schedule s
            WHERE s.due_at <= v_until AND pg_catalog.starts_with(s.lock_token, v_prefix))
        OR EXISTS (SELECT 1 FROM worker_queue w
            WHERE w.due_at <= v_until AND pg_catalog.starts_with(w.lock_token, v_prefix));
    IF p_forget AND NOT some_left THEN
        DELETE FROM lease_holders w WHERE w.holder = p_holder;
    END IF;
END $$;
