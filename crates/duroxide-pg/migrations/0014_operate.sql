-- What operators do: put rows that were set aside back into their queues, and remove many instances.

-- Puts rows that were set aside back at the end of their queues, in the order of `p_id`; the ids that were still there are
-- returned. `p_class` is NULL for an activity. The caller has decoded the texts; they go back as they are.
CREATE FUNCTION retry_quarantined_1(
    p_now bigint, p_id bigint[], p_instance text[], p_class text[], p_due bigint[], p_parent text[],
    p_execution bigint[], p_activity bigint[], p_session text[], p_route text[])
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_retried bigint[];
    v_messages integer[];
    v_message_texts text[];
    v_activities integer[];
    v_activity_texts text[];
BEGIN
    WITH gone AS (DELETE FROM quarantine q WHERE q.id = ANY (p_id) RETURNING q.id, q.work_item)
    SELECT array_agg(g.id),
        array_agg(r.place ORDER BY r.place) FILTER (WHERE p_class[r.place] IS NOT NULL),
        array_agg(g.work_item ORDER BY r.place) FILTER (WHERE p_class[r.place] IS NOT NULL),
        array_agg(r.place ORDER BY r.place) FILTER (WHERE p_class[r.place] IS NULL),
        array_agg(g.work_item ORDER BY r.place) FILTER (WHERE p_class[r.place] IS NULL)
    INTO v_retried, v_messages, v_message_texts, v_activities, v_activity_texts
    FROM gone g JOIN unnest(p_id) WITH ORDINALITY r(id, place) ON r.id = g.id;
    IF v_messages IS NOT NULL THEN
        PERFORM * FROM enqueue_messages_2(p_now, NULL, NULL, NULL,
            ARRAY(SELECT p_instance[o] FROM unnest(v_messages) WITH ORDINALITY m(o, place) ORDER BY place),
            ARRAY(SELECT p_class[o] FROM unnest(v_messages) WITH ORDINALITY m(o, place) ORDER BY place),
            array_fill(0::bigint, ARRAY[cardinality(v_messages)]),
            ARRAY(SELECT p_due[o] FROM unnest(v_messages) WITH ORDINALITY m(o, place) ORDER BY place),
            v_message_texts,
            ARRAY(SELECT p_parent[o] FROM unnest(v_messages) WITH ORDINALITY m(o, place) ORDER BY place),
            0, 0, 0, NULL, NULL, NULL);
    END IF;
    IF v_activities IS NOT NULL THEN
        PERFORM enqueue_work_1(p_now, NULL, NULL, NULL,
            ARRAY(SELECT p_instance[o] FROM unnest(v_activities) WITH ORDINALITY m(o, place) ORDER BY place),
            ARRAY(SELECT p_execution[o] FROM unnest(v_activities) WITH ORDINALITY m(o, place) ORDER BY place),
            ARRAY(SELECT p_activity[o] FROM unnest(v_activities) WITH ORDINALITY m(o, place) ORDER BY place),
            ARRAY(SELECT p_session[o] FROM unnest(v_activities) WITH ORDINALITY m(o, place) ORDER BY place),
            ARRAY(SELECT p_route[o] FROM unnest(v_activities) WITH ORDINALITY m(o, place) ORDER BY place),
            v_activity_texts);
    END IF;
    RETURN coalesce(v_retried, '{}');
END $$;

-- Removes rows from quarantine for good: those with these ids, and those that were set aside before a time. Returns how many.
CREATE FUNCTION purge_quarantined_1(p_ids bigint[], p_before bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_count bigint;
BEGIN
    DELETE FROM quarantine WHERE id = ANY (p_ids) OR quarantined_at < p_before;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- Instances that have ended, by when they did: an execution that has completed or failed is the last of its instance.
-- So a bulk deletion finds the oldest without looking at any that run.
CREATE INDEX executions_ended ON executions (completed_at) WHERE status IN ('Completed', 'Failed');

-- Instances that were continued as new. Few of them are between two executions, and these are found by skipping from
-- instance to instance.
CREATE INDEX executions_continued ON executions (instance_id) WHERE status = 'ContinuedAsNew';
