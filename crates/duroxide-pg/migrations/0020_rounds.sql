-- Steps of several turns: an execution and the one that continues it, a parent and its child.
--
-- Such steps are stored in rounds, all in one transaction: the first round has the first turns of all steps, the next one the
-- second turns of those that have one, and so on. So the turns of a round are of different instances, and each sees what the
-- rounds before it have left.
--
-- A first turn that does not fit is refused as ever, and the later ones of its step with it. If a later turn does not fit, the
-- whole transaction fails (DX002), and its requests are tried one by one.

-- Stores a round of steps: as `store_steps_1`, with the number of the round, and for each turn the position of its step in the
-- first round.
CREATE FUNCTION store_round_1(
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
    FROM store_steps_1(p_now, p_committer, p_epoch, p_batch, p_careful, p_instance, p_held, p_held_execution, p_held_event,
        p_timer, p_execution, p_status, p_terminal, p_output, p_name, p_version, p_parent, p_pinned, p_major,
        p_minor, p_patch, p_custom_set, p_custom, p_kv_cleared, p_are_plain, p_result_step, p_result_id,
        p_result_token, p_result_waited_ms, p_event_turn, p_event_id, p_event_type, p_event_data, p_kv_turn,
        p_kv_key, p_kv_value, p_kv_ms, p_work_turn, p_work_instance, p_work_execution, p_work_activity,
        p_work_session, p_work_route, p_work_item, p_cancel_turn, p_cancel_instance, p_cancel_execution,
        p_cancel_activity, p_message_turn, p_message_instance, p_message_class, p_message_due, p_message_item,
        p_message_parent, p_claim_max, p_claim_ms, p_claim_routes, p_claim_seed, p_overtaking_ms) s;
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
