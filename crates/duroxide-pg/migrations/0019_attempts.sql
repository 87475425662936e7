-- What attempts of activities leave behind, and activities that are completed from elsewhere. Both are in the text of the
-- activity, where builds before this one ignore them; so there is nothing to change in the tables.

-- Writes the text of a held activity anew; with a delay, also gives the activity back, and does not count the attempt. As with
-- `abandon_work_1`, the lease may have run out as long as nobody has taken over.
CREATE FUNCTION store_attempt_1(p_now bigint, p_id bigint, p_token text, p_item text, p_delay_ms bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE worker_queue SET work_item = p_item WHERE id = p_id AND lock_token = p_token;
    IF NOT FOUND OR p_delay_ms IS NULL THEN
        RETURN FOUND;
    END IF;
    RETURN abandon_work_1(p_now, p_id, p_token, p_delay_ms, true);
END $$;

-- Ends an activity, whether or not a worker runs it, and sends its completion; `false` if it is not there.
CREATE FUNCTION complete_activity_1(
    p_now bigint, p_id bigint, p_instance text, p_execution bigint, p_activity bigint, p_class text, p_item text)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_session text;
    v_route text;
BEGIN
    DELETE FROM worker_queue w
    WHERE w.id = p_id AND w.instance_id = p_instance AND w.execution_id = p_execution AND w.activity_id = p_activity
    RETURNING w.session_id, w.route INTO v_session, v_route;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF v_session IS NOT NULL THEN
        -- It may have had its session's turn.
        INSERT INTO session_arrivals (sessions, routes) VALUES (ARRAY[v_session], ARRAY[v_route]);
    END IF;
    INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
    VALUES (p_instance, p_class, now_ms_1(p_now), p_item);
    INSERT INTO arrivals (instances) VALUES (ARRAY[p_instance]);
    RETURN true;
END $$;
