-- Processes that are known to be dead: their leases are released at once instead of running out.
--
-- A process that takes leases has a row in `lease_holders`, and holds an advisory lock on a session of its own; the row has the
-- lock's key. The server lets go of the lock when that session ends. Whoever finds the lock of a row free, and finds it free
-- again a moment later, releases the leases of that process: the tokens of all its leases begin with its name.
--
--   - A process that lives and has lost its session makes another, with another key, and notes that in its row. Until then
--     others wait for a moment. If they wait in vain, it finds that its leases are gone: its tokens are refused.
--   - When the server crashes, or another one takes over, all locks are free at once and nobody has died. So the table is
--     unlogged: it is empty then. When the server was stopped in an orderly way, the rows are of another start of it.
--   - Whoever has no row (behind a pooler that shares sessions, or from an older build) keeps its leases until they run out.
CREATE UNLOGGED TABLE lease_holders (
    -- What the tokens of its leases begin with, after `lock_`.
    holder       text COLLATE "C" PRIMARY KEY,
    lock_key     bigint NOT NULL,
    server_start timestamptz NOT NULL,
    -- None of its leases lasts longer.
    lease_ms     bigint NOT NULL,
    -- The names by which it owns sessions.
    owners       text[] NOT NULL,
    -- It does not tell which of its leased work runs, so every attempt counts.
    counts_all   boolean NOT NULL
) WITH (fillfactor = 50);

-- The token of the lease whose code is known to run. It is set only for work that was tried before; see
-- `release_holder_1`.
ALTER TABLE instance_schedule ADD COLUMN running_token text COLLATE "C";
ALTER TABLE worker_queue ADD COLUMN running_token text COLLATE "C";

-- Makes a process known, or notes its new lock. The key is a new one, so nobody else holds its lock.
CREATE FUNCTION join_holders_1(
    p_holder text, p_lock_key bigint, p_lease_ms bigint, p_owners text[], p_counts_all boolean)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_advisory_lock(p_lock_key);
    INSERT INTO lease_holders AS w (holder, lock_key, server_start, lease_ms, owners, counts_all)
    VALUES (p_holder, p_lock_key, pg_catalog.pg_postmaster_start_time(), p_lease_ms, p_owners, p_counts_all)
    ON CONFLICT (holder) DO UPDATE SET lock_key = excluded.lock_key, server_start = excluded.server_start,
        lease_ms = excluded.lease_ms, owners = excluded.owners, counts_all = excluded.counts_all;
END $$;

-- Notes what has changed about a process.
CREATE FUNCTION describe_holder_1(
    p_holder text, p_lock_key bigint, p_lease_ms bigint, p_owners text[], p_counts_all boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease_holders SET lease_ms = p_lease_ms, owners = p_owners, counts_all = p_counts_all
    WHERE holder = p_holder AND lock_key = p_lock_key;
    RETURN FOUND;
END $$;

-- Forgets a process that ends in an orderly way. What it still has leased runs out.
CREATE FUNCTION leave_holders_1(p_holder text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lease_holders WHERE holder = p_holder;
END $$;

-- Looks at the next `p_max` processes after this one and at the first ones before it. Returns those whose lock is free, and
-- last a row without a holder that tells how many were looked at.
CREATE FUNCTION silent_holders_1(p_holder text, p_max integer)
RETURNS TABLE (holder text, lock_key bigint, looked_at bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_holders text[];
    v_keys bigint[];
BEGIN
    SELECT pg_catalog.array_agg(w.holder), pg_catalog.array_agg(w.lock_key) INTO v_holders, v_keys FROM (
        (SELECT o.holder, o.lock_key, o.server_start FROM lease_holders o WHERE o.holder > p_holder ORDER BY o.holder LIMIT p_max)
        UNION ALL
        (SELECT o.holder, o.lock_key, o.server_start FROM lease_holders o WHERE o.holder < p_holder ORDER BY o.holder LIMIT p_max)) w
    WHERE w.server_start = pg_catalog.pg_postmaster_start_time();
    looked_at := coalesce(pg_catalog.cardinality(v_holders), 0);
    FOR v_at IN 1..looked_at LOOP
        -- Held until this call is over, and in nobody's way: whoever lives holds it already.
        IF pg_catalog.pg_try_advisory_xact_lock_shared(v_keys[v_at]) THEN
            holder := v_holders[v_at];
            lock_key := v_keys[v_at];
            RETURN NEXT;
        END IF;
    END LOOP;
    holder := NULL;
    lock_key := NULL;
    RETURN NEXT;
END $$;

-- Releases the leases of a process whose lock is free: instances, activities, sessions. Returns how many, and whether some
-- were left because somebody holds their rows just now, most likely a last transaction of that process. `is_dead` is false if
-- the process has another lock meanwhile, or somebody else is doing this. With `p_forget` its row goes as well.
--
-- The attempt counts if the work was running, and may have been the cause. A process tells so (`mark_running_1`) only of work
-- that was tried before: of work that was leased for the first time, the attempt counts in any case. So nothing is written
-- for work that goes well, and after a first crash the work that causes the next ones is told from the work beside it.
CREATE FUNCTION release_holder_1(p_now bigint, p_holder text, p_lock_key bigint, p_forget boolean,
    OUT is_dead boolean, OUT instances bigint, OUT activities bigint, OUT sessions bigint, OUT some_left boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_dead lease_holders;
    v_now bigint := now_ms_1(p_now);
    v_until bigint;
    v_prefix text := 'lock_' || p_holder;
    v_instances text[];
    v_running bigint[];
    v_batches bigint[];
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
            RETURNING s.batch, s.running_token IS NOT DISTINCT FROM s.lock_token AS is_running)
        SELECT pg_catalog.array_agg(b), pg_catalog.array_agg(b) FILTER (WHERE g.is_running) INTO v_batches, v_running
        FROM gone g, pg_catalog.unnest(g.batch) b;
        UPDATE orchestrator_queue q SET attempt_count = q.attempt_count + 1
        WHERE q.id = ANY (v_batches)
            AND (v_dead.counts_all OR q.attempt_count = 0 OR q.id = ANY (v_running));
        INSERT INTO arrivals (instances) VALUES (v_instances);
    END IF;

    SELECT pg_catalog.array_agg(l.id) INTO v_activities FROM (
        SELECT w.id FROM worker_queue w WHERE w.due_at <= v_until AND pg_catalog.starts_with(w.lock_token, v_prefix)
        ORDER BY w.id FOR UPDATE SKIP LOCKED) l;
    IF v_activities IS NOT NULL THEN
        WITH back AS (
            UPDATE worker_queue w SET lock_token = NULL, locked_until = NULL, due_at = NULL, visible_at = 0,
                ready_for = NULL, running_token = NULL,
                attempt_count = CASE
                    WHEN v_dead.counts_all OR w.attempt_count <= 1 OR w.running_token IS NOT DISTINCT FROM w.lock_token
                    THEN w.attempt_count ELSE w.attempt_count - 1 END
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

-- Notes that the code of a lease is about to run, or has ended: of an instance, or of an activity if `p_id` is given and the
-- token is an activity's. It waits for nobody: whoever holds the row is about to end the lease.
CREATE FUNCTION mark_running_1(p_instance text, p_id bigint, p_token text, p_is_running boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM instance_schedule s WHERE s.instance_id = p_instance AND s.lock_token = p_token FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE instance_schedule s SET running_token = CASE WHEN p_is_running THEN p_token END
        WHERE s.instance_id = p_instance;
        RETURN;
    END IF;
    PERFORM 1 FROM worker_queue w WHERE w.id = p_id AND w.lock_token = p_token FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE worker_queue w SET running_token = CASE WHEN p_is_running THEN p_token END WHERE w.id = p_id;
    END IF;
END $$;
