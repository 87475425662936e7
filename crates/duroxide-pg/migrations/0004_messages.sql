-- Enqueueing messages and starts, appending to histories, and setting aside what does not decode.

-- Enqueues messages and, if `p_max` is not 0, leases instances along with it, as `claim_instances_1` does. Rows are its
-- rows; one more, the last, has the time, when the earliest delayed message is due, and whether instances have to be
-- looked at.
CREATE FUNCTION enqueue_messages_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint,
    p_instance text[], p_class text[], p_delay_ms bigint[], p_due bigint[], p_item text[],
    p_max integer, p_lease_ms bigint, p_parking_ms bigint, p_known text[], p_allowed text[], p_seed text)
RETURNS TABLE (
    instance text, token text, name text, version text, execution bigint, incarnation bigint, last_event bigint,
    status text, start_event text, message_ids bigint[], attempts bigint[], texts text[],
    now_at bigint, next_due bigint, more boolean, busy boolean, unknown_classes text[],
    dropped_for text[], dropped_count bigint[], in_line boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_noted boolean;
    v_now bigint;
    v_touched text[];
    v_next_due bigint;
BEGIN
    IF p_batch IS NOT NULL THEN
        v_noted := begin_batch_1(p_committer, p_epoch, p_batch);
    END IF;
    v_now := now_ms_1(p_now);
    WITH new AS (
        INSERT INTO orchestrator_queue AS q (instance_id, class, visible_at, created_at, work_item)
        SELECT m.instance_id, m.class, CASE WHEN v.at <= v_now THEN 0 ELSE v.at END, v_now, m.item
        FROM unnest(p_instance, p_class, p_delay_ms, p_due, p_item)
            WITH ORDINALITY m(instance_id, class, delay, due, item, place)
        CROSS JOIN LATERAL (SELECT greatest(v_now + least(m.delay, 9223372036854775807 - v_now), m.due) AS at) v
        ORDER BY m.place
        RETURNING q.instance_id, q.visible_at)
    SELECT array_agg(DISTINCT n.instance_id), min(n.visible_at) FILTER (WHERE n.visible_at > 0)
    INTO v_touched, v_next_due FROM new n;
    IF p_max > 0 THEN
        RETURN QUERY SELECT c.*
        FROM claim_instances_1(p_now, p_max, p_lease_ms, p_parking_ms, p_known, p_allowed, p_seed, v_touched) c;
    ELSE
        INSERT INTO arrivals (instances) VALUES (v_touched);
        in_line := true;
    END IF;
    now_at := v_now;
    next_due := v_next_due;
    RETURN NEXT;
END $$;

-- Enqueues starts of instances whose ids are free: no row, no history, no start in the queue. A lock on each id keeps
-- others from deciding about it at the same time. If `p_max` is not 0 and any was free, leases instances along with it, as
-- `claim_instances_1` does. Rows are its rows; one more, the last, has the positions of those that were enqueued, and
-- whether instances have to be looked at.
CREATE FUNCTION enqueue_starts_1(
    p_now bigint, p_committer text, p_epoch bigint, p_batch bigint, p_instance text[], p_item text[],
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
    PERFORM pg_advisory_xact_lock(k.key) FROM (
        SELECT DISTINCT hashtextextended(current_schema() || chr(31) || i, 17) AS key FROM unnest(p_instance) i
        ORDER BY 1) k;
    v_now := now_ms_1(p_now);
    SELECT array_agg(f.place ORDER BY f.place) INTO v_new FROM (
        SELECT min(s.place)::integer AS place FROM unnest(p_instance) WITH ORDINALITY s(i, place)
        WHERE NOT EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = s.i)
            AND NOT EXISTS (SELECT 1 FROM history h WHERE h.instance_id = s.i)
            AND NOT EXISTS (SELECT 1 FROM orchestrator_queue q
                            WHERE q.instance_id = s.i AND q.parked_at IS NULL AND q.class = 'start')
        GROUP BY s.i) f;
    IF coalesce(cardinality(v_new), 0) < cardinality(p_instance) THEN
        UPDATE committers SET taken_starts = ARRAY(
            SELECT o FROM generate_subscripts(p_instance, 1) o WHERE v_new IS NULL OR o <> ALL (v_new))
        WHERE committer = p_committer;
    END IF;
    in_line := false;
    IF v_new IS NOT NULL THEN
        INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
        SELECT p_instance[o], 'start', v_now, p_item[o] FROM unnest(v_new) o ORDER BY o;
        v_touched := ARRAY(SELECT p_instance[o] FROM unnest(v_new) o);
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

-- Appends events without a turn. Returns the id of an event that is there already, or NULL if all were appended.
CREATE FUNCTION append_events_1(
    p_now bigint, p_slot integer, p_instance text, p_execution bigint, p_id bigint[], p_type text[], p_data text[])
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_taken bigint;
BEGIN
    IF cardinality(p_id) = 0 THEN
        -- Nothing makes no instance.
        RETURN NULL;
    END IF;
    SELECT min(event_id) INTO v_taken FROM history
    WHERE instance_id = p_instance AND execution_id = p_execution AND event_id = ANY (p_id);
    IF v_taken IS NOT NULL THEN
        RETURN v_taken;
    END IF;
    INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
    SELECT p_instance, p_execution, e.id, e.type, now_ms_1(p_now), e.data
    FROM unnest(p_id, p_type, p_data) e(id, type, data);
    PERFORM add_totals_1(p_slot, 0, 0, cardinality(p_id), 0, 0, 0);
    -- Messages that waited for the instance to exist have a history to go with now.
    UPDATE orchestrator_queue SET parked_at = NULL WHERE instance_id = p_instance AND parked_at IS NOT NULL;
    IF FOUND THEN
        INSERT INTO arrivals (instances) VALUES (ARRAY[p_instance]);
    END IF;
    RETURN NULL;
END $$;

-- Moves messages into quarantine. One that is no longer there has been dealt with by somebody else.
CREATE FUNCTION quarantine_messages_1(p_now bigint, p_id bigint[], p_reason text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM orchestrator_queue q USING unnest(p_id, p_reason) b(id, reason) WHERE q.id = b.id
        RETURNING q.id, q.instance_id, b.reason, q.work_item)
    INSERT INTO quarantine (queue, instance_id, reason, quarantined_at, work_item)
    SELECT 'orchestrator_queue', instance_id, reason, now_ms_1(p_now), work_item FROM gone ORDER BY id;
END $$;
