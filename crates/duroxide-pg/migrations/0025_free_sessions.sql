-- A session whose lease a claim has seen run out stays free until the next claim of it, even if the server's clock is set back:
-- its old owner cannot renew it any more while others take its activities. The rest of the function stays as it is.
DO $$
DECLARE
    v_before text := pg_catalog.pg_get_functiondef('promote_work_2'::regproc);
    v_after text := replace(v_before, 'UPDATE sessions s SET due_at = NULL WHERE',
        'UPDATE sessions s SET due_at = NULL, locked_until = 0 WHERE');
BEGIN
    IF v_after = v_before THEN
        RAISE EXCEPTION 'promote_work_2 is not the one of migration 0013';
    END IF;
    EXECUTE v_after;
END $$;
