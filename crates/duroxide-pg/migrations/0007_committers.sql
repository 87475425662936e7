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

-- Makes the committer known, or begins its next epoch: from here on no earlier batch can be committed. Returns the epoch
-- and the last batch that was, with what was refused in it.
CREATE FUNCTION begin_epoch_1(p_committer text, OUT epoch bigint, OUT batch bigint, OUT turn_verdicts integer[],
    OUT refused_work integer[], OUT taken_starts integer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO committers AS c (committer) VALUES (p_committer)
    ON CONFLICT (committer) DO UPDATE SET epoch = c.epoch + 1, seen_at = now()
    RETURNING c.epoch, c.batch, c.turn_verdicts, c.refused_work, c.taken_starts
    INTO epoch, batch, turn_verdicts, refused_work, taken_starts;
    -- Those of processes that are long gone.
    DELETE FROM committers WHERE seen_at < now() - interval '30 days' AND committer <> p_committer;
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
