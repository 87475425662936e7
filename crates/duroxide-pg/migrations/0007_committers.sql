-- Resolving a commit whose answer was lost; see the table `committers`.

-- Notes that this transaction is the batch. Fails if the committer has given up on it.
CREATE FUNCTION begin_batch_1(p_committer text, p_epoch bigint, p_batch bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE committers SET batch = p_batch, turn_verdicts = NULL, refused_work = NULL, taken_starts = NULL, seen_at = now()
    WHERE committer = p_committer AND epoch = p_epoch;
    IF NOT FOUND THEN
        -- Whoever hears of this begins a new epoch.
        RAISE EXCEPTION 'this batch was given up by its committer' USING ERRCODE = 'connection_does_not_exist';
    END IF;
    RETURN true;
END $$;

-- Notes what became of turns, and adds to the committer's totals. If `p_batch` is not NULL, the turns are all of the batch,
-- and this is the note that it was made; otherwise `begin_batch_1` has made that, and others may have added to it.
--
-- It is the last thing that the transaction does, and yet nobody can begin an epoch without knowing of the batch. If the
-- next epoch was begun before, this finds no row, or none any more once it has waited for the row, and fails, and with it
-- all that the transaction has done. Otherwise the row is locked from here to the commit, and whoever begins an epoch waits
-- for that and reads the note.
CREATE FUNCTION note_turns_1(
    p_committer text, p_epoch bigint, p_batch bigint, p_verdict integer[], p_instances bigint, p_executions bigint,
    p_events bigint, p_running bigint, p_completed bigint, p_failed bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE committers SET batch = coalesce(p_batch, batch),
        turn_verdicts = CASE WHEN 0 <> ANY (p_verdict) THEN p_verdict END,
        refused_work = CASE WHEN p_batch IS NULL THEN refused_work END,
        taken_starts = CASE WHEN p_batch IS NULL THEN taken_starts END,
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

-- Makes the committer known, or begins its next epoch: from here on no earlier batch can be committed. Returns the epoch
-- and the last batch that was, with what was refused in it.
CREATE FUNCTION begin_epoch_1(p_committer text, OUT epoch bigint, OUT batch bigint, OUT turn_verdicts integer[],
    OUT refused_work integer[], OUT taken_starts integer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_gone record;
BEGIN
    INSERT INTO committers AS c (committer) VALUES (p_committer)
    ON CONFLICT (committer) DO UPDATE SET epoch = excluded.epoch, seen_at = now()
    RETURNING c.epoch, c.batch, c.turn_verdicts, c.refused_work, c.taken_starts
    INTO epoch, batch, turn_verdicts, refused_work, taken_starts;
    -- Those of processes that are long gone. What they counted stays, in a slot that no process writes otherwise.
    WITH old AS (
        SELECT committer FROM committers WHERE seen_at < now() - interval '30 days' AND committer <> p_committer
        FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM committers c USING old o WHERE c.committer = o.committer RETURNING c.*)
    SELECT sum(instances)::bigint AS instances, sum(executions)::bigint AS executions, sum(events)::bigint AS events,
        sum(running_instances)::bigint AS running, sum(completed_instances)::bigint AS completed,
        sum(failed_instances)::bigint AS failed
    INTO v_gone FROM gone HAVING count(*) > 0;
    IF FOUND THEN
        PERFORM add_totals_1(-1, v_gone.instances, v_gone.executions, v_gone.events, v_gone.running, v_gone.completed,
            v_gone.failed);
    END IF;
END $$;

-- Gives back the leases of a batch that was committed, but whose answer was lost: nobody knows of them. Their tokens begin
-- with `lock_` and the seed.
CREATE FUNCTION release_claims_1(p_seed text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_instances text[];
BEGIN
    WITH gone AS (
        DELETE FROM instance_schedule WHERE starts_with(lock_token, 'lock_' || p_seed || '_') RETURNING instance_id)
    SELECT array_agg(instance_id) INTO v_instances FROM gone;
    IF v_instances IS NOT NULL THEN
        INSERT INTO arrivals (instances) VALUES (v_instances);
    END IF;
    -- They have no sessions.
    UPDATE worker_queue SET lock_token = NULL, locked_until = NULL, due_at = NULL, visible_at = 0,
        attempt_count = greatest(attempt_count - 1, 0)
    WHERE starts_with(lock_token, 'lock_' || p_seed || '_');
END $$;
