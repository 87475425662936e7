-- Messages that may come before the start of their instance: what is dropped is counted and listed, and a message can bring
-- the start along.

-- The newest messages that were dropped because their instance did not exist, with the beginnings of their texts.
CREATE TABLE dropped_messages (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id text COLLATE "C" NOT NULL,
    dropped_at  bigint NOT NULL,
    size        bigint NOT NULL,
    work_item   text NOT NULL
);

-- How many were ever dropped. Each connection writes a row of its own, so that none waits for another.
CREATE TABLE dropped_totals (
    backend  integer PRIMARY KEY,
    messages bigint NOT NULL
);

-- Counts messages that the caller has dropped and noted, and forgets those of long ago: the newest 1000 of a week are kept.
CREATE FUNCTION count_dropped_1(p_now bigint, p_count bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dropped_totals AS t (backend, messages) VALUES (pg_backend_pid(), p_count)
    ON CONFLICT (backend) DO UPDATE SET messages = t.messages + excluded.messages;
    -- Those that somebody else is removing are left to them.
    DELETE FROM dropped_messages m USING (
        SELECT id FROM dropped_messages
        WHERE dropped_at <= p_now - 604800000
            OR id < (SELECT id FROM dropped_messages ORDER BY id DESC OFFSET 999 LIMIT 1)
        FOR UPDATE SKIP LOCKED) o
    WHERE m.id = o.id;
END $$;

-- As before; what has been parked for too long is noted and counted as dropped.
CREATE OR REPLACE FUNCTION promote_1(p_now bigint, p_parking_ms bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_due text[];
    v_dropped bigint;
BEGIN
    SELECT array_agg(d.instance_id) INTO v_due FROM (
        SELECT instance_id FROM instance_schedule WHERE due_at <= p_now ORDER BY due_at LIMIT 256
        FOR UPDATE SKIP LOCKED) d;
    IF v_due IS NULL THEN
        RETURN false;
    END IF;
    WITH gone AS (
        DELETE FROM orchestrator_queue
        WHERE instance_id = ANY (v_due) AND parked_at IS NOT NULL AND parked_at <= p_now - p_parking_ms
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
    FROM unnest(v_due) t(i) CROSS JOIN LATERAL outlook_1(t.i, p_now) o
    WHERE s.instance_id = t.i;
    DELETE FROM instance_schedule WHERE instance_id = ANY (v_due) AND ready_seq IS NULL AND due_at IS NULL;
    RETURN cardinality(v_due) = 256;
END $$;

-- As before; what is dropped, other than completions, is noted and counted. A queue message whose sender wants it parked has the class of
-- a signal.
CREATE OR REPLACE FUNCTION set_aside_1(p_instance text, p_now bigint, p_parking_ms bigint) RETURNS bigint
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
            WITH seen AS (
                DELETE FROM orchestrator_queue WHERE id = ANY (v_seen)
                RETURNING id, octet_length(work_item) AS size, left(work_item, 4096) AS beginning),
            parked AS (
                DELETE FROM orchestrator_queue WHERE instance_id = p_instance AND parked_at IS NOT NULL
                RETURNING id, octet_length(work_item) AS size, left(work_item, 4096) AS beginning),
            gone AS (SELECT * FROM seen UNION ALL SELECT * FROM parked),
            noted AS (
                INSERT INTO dropped_messages (instance_id, dropped_at, size, work_item)
                SELECT p_instance, p_now, n.size, n.beginning
                FROM (SELECT * FROM gone ORDER BY id DESC LIMIT 1000) n ORDER BY n.id)
            SELECT count(*) INTO v_more FROM gone;
            IF v_more > 0 THEN
                PERFORM count_dropped_1(p_now, v_more);
            END IF;
            v_dropped := v_dropped + v_more;
        END IF;
    END IF;
    DELETE FROM instance_schedule WHERE instance_id = p_instance;
    PERFORM place_1(ARRAY[p_instance], p_now, p_parking_ms);
    RETURN v_dropped;
END $$;

-- What became of each message that brought a start along; see `start_with_messages_1`. NULL if there are none, as nearly
-- always.
ALTER TABLE committers ADD COLUMN deliveries integer[];

-- As before, and there are no deliveries in the batch yet.
CREATE OR REPLACE FUNCTION begin_batch_1(p_committer text, p_epoch bigint, p_batch bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE committers SET batch = p_batch, turn_verdicts = NULL, refused_work = NULL, taken_starts = NULL,
        deliveries = NULL, seen_at = now()
    WHERE committer = p_committer AND epoch = p_epoch;
    IF NOT FOUND THEN
        -- Whoever hears of this begins a new epoch.
        RAISE EXCEPTION 'this batch was given up by its committer' USING ERRCODE = 'connection_does_not_exist';
    END IF;
    RETURN true;
END $$;

-- As before, and a batch that is all turns has no deliveries.
CREATE OR REPLACE FUNCTION note_turns_1(
    p_committer text, p_epoch bigint, p_batch bigint, p_verdict integer[], p_instances bigint, p_executions bigint,
    p_events bigint, p_running bigint, p_completed bigint, p_failed bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE committers SET batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN 0 <> ANY (p_verdict) THEN p_verdict END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
        deliveries = CASE WHEN p_batch IS NULL THEN deliveries END,
        seen_at = now(), instances = instances + p_instances, executions = executions + p_executions,
        events = events + p_events, running_instances = running_instances + p_running,
        completed_instances = completed_instances + p_completed, failed_instances = failed_instances + p_failed
    WHERE committer = p_committer AND epoch = p_epoch;
    IF NOT FOUND THEN
        -- Whoever hears of this begins a new epoch.
        RAISE EXCEPTION 'this batch was given up by its committer' USING ERRCODE = 'connection_does_not_exist';
    END IF;
    RETURN true;
END $$;

-- As `begin_epoch_1`, and tells what became of the deliveries of the last batch.
CREATE FUNCTION begin_epoch_2(p_committer text, OUT epoch bigint, OUT batch bigint, OUT turn_verdicts integer[],
    OUT refused_work integer[], OUT taken_starts integer[], OUT deliveries integer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT b.epoch, b.batch, b.turn_verdicts, b.refused_work, b.taken_starts
    INTO epoch, batch, turn_verdicts, refused_work, taken_starts FROM begin_epoch_1(p_committer) b;
    -- The row is locked since then.
    SELECT c.deliveries INTO deliveries FROM committers c WHERE c.committer = p_committer;
END $$;

-- Enqueues a message for each instance that has not ended, with a start if its id is free: no row, no history, no start in
-- the queue. A lock on each id keeps others from deciding about it at the same time. Returns what became of each: 0 started,
-- 1 delivered to an instance that was there, 2 not enqueued because the instance has ended.
CREATE FUNCTION start_with_messages_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_instance text[], p_start text[], p_message text[])
RETURNS integer[]
LANGUAGE plpgsql AS $$
DECLARE
    v_noted boolean;
    v_now bigint;
    v_outcome integer[];
    v_touched text[];
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    -- The same lock as that of `enqueue_starts_1`.
    PERFORM pg_advisory_xact_lock(k.key) FROM (
        SELECT DISTINCT hashtextextended(current_schema() || chr(31) || i, 17) AS key FROM unnest(p_instance) i
        ORDER BY 1) k;
    v_now := now_ms_1(p_now);
    SELECT array_agg(CASE WHEN s.has_ended THEN 2 WHEN s.is_taken OR s.nth > 1 THEN 1 ELSE 0 END ORDER BY s.place)
    INTO v_outcome FROM (
        SELECT a.place, row_number() OVER (PARTITION BY a.i ORDER BY a.place) AS nth,
            EXISTS (SELECT 1 FROM instances n JOIN executions e
                    ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
                    WHERE n.instance_id = a.i AND e.status IN ('Completed', 'Failed')) AS has_ended,
            EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = a.i)
                OR EXISTS (SELECT 1 FROM history h WHERE h.instance_id = a.i)
                OR EXISTS (SELECT 1 FROM orchestrator_queue q
                           WHERE q.instance_id = a.i AND q.parked_at IS NULL AND q.class = 'start') AS is_taken
        FROM unnest(p_instance) WITH ORDINALITY a(i, place)) s;
    INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
    SELECT s.i, x.class, v_now, x.item
    FROM unnest(p_instance, p_start, p_message, v_outcome) WITH ORDINALITY s(i, start, message, outcome, place)
    CROSS JOIN LATERAL (VALUES (1, 'start', s.start), (2, 'queue', s.message)) x(part, class, item)
    WHERE s.outcome = 0 OR (s.outcome = 1 AND x.part = 2)
    ORDER BY s.place, x.part;
    SELECT array_agg(DISTINCT s.i) INTO v_touched FROM unnest(p_instance, v_outcome) s(i, outcome) WHERE s.outcome < 2;
    IF v_touched IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_touched);
    END IF;
    UPDATE committers SET deliveries = v_outcome WHERE committer = p_committer;
    RETURN v_outcome;
END $$;
