-- Instances that nobody can claim, because neither their turn nor their failure could be stored.
--
-- A blocked instance is leased by nobody for ever: its row in `instance_schedule` has a token that no caller holds and no
-- time at which it is looked at again. So whoever claims instances leaves it alone without knowing of it, builds that are
-- older than this migration among them. It goes with its row when the instance is deleted.
ALTER TABLE instance_schedule ADD COLUMN blocked_at bigint, ADD COLUMN blocked_reason text;
CREATE INDEX instance_schedule_blocked ON instance_schedule (blocked_at, instance_id) WHERE blocked_at IS NOT NULL;

-- Ends a lease and keeps its instance from being claimed; false if the lease is not live. A turn that was refused because
-- its lease had run out is no reason to block anything. The call comes on a connection that does not wait for the disk
-- otherwise.
CREATE FUNCTION block_instance_1(p_now bigint, p_instance text, p_token text, p_reason text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    UPDATE instance_schedule SET
        ready_seq = NULL, due_at = NULL, lock_token = 'blocked_' || gen_random_uuid(),
        locked_until = 9223372036854775807, locked_at = now_ms_1(p_now), batch = '{}',
        blocked_at = now_ms_1(p_now), blocked_reason = p_reason
    WHERE instance_id = p_instance AND lock_token = p_token AND locked_until > now_ms_1(p_now);
    RETURN FOUND;
END $$;

-- Lets an instance be claimed again, as if its messages had never been delivered; tells whether it was blocked.
CREATE FUNCTION unblock_instance_1(p_instance text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    DELETE FROM instance_schedule WHERE instance_id = p_instance AND blocked_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE orchestrator_queue SET attempt_count = 0 WHERE instance_id = p_instance AND attempt_count > 0;
    INSERT INTO arrivals (instances) VALUES (ARRAY[p_instance]);
    RETURN true;
END $$;
