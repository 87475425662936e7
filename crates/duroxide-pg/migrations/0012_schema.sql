-- What a schema owes to those who operate it: builds of two versions side by side, change data capture, servers that know no
-- md5, rows of processes that have ended.

-- Which builds may still use the schema: those that know this migration or a later one. NULL if only those that know the
-- row's own migration. `applied_by` is the version of the crate that applied it.
ALTER TABLE duroxide_migrations ADD COLUMN needs_at_least bigint, ADD COLUMN applied_by text;

-- What all processes of a store have to agree on. `notification_salt` goes into the hashes by which they tell each other
-- of instances, so that whoever else hears these cannot try out ids.
CREATE TABLE store_facts (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO store_facts (name, value) VALUES ('notification_salt', gen_random_uuid()::text);

-- A short name for a text that may be longer than an index entry. (Servers that keep to FIPS know no md5. What this is made
-- of depends on the database's encoding, which never changes.)
CREATE FUNCTION text_hash_1(p_text text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN pg_catalog.sha256(pg_catalog.convert_to(p_text, 'UTF8'));
END $$;

-- Every table has a primary key, so that a publication of all tables can tell which row was changed.
ALTER TABLE kv_store ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;
ALTER TABLE kv_delta ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;

-- Builds of the version before call the functions below by the same names; what they ask for by md5 they find through the
-- first column of these indexes.
DROP INDEX kv_store_key;
CREATE UNIQUE INDEX kv_store_by_key ON kv_store (instance_id, text_hash_1(key));
DROP INDEX kv_delta_key;
CREATE UNIQUE INDEX kv_delta_by_key ON kv_delta (instance_id, text_hash_1(key));
DROP INDEX sessions_by_owner;
CREATE INDEX sessions_by_owner ON sessions (text_hash_1(worker_id));

-- As before; keys are found by another hash.
CREATE OR REPLACE FUNCTION change_values_1(
    p_now bigint, p_verdict integer[], p_instance text[], p_cleared boolean[], p_turn integer[], p_key text[],
    p_value text[], p_ms bigint[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_cleared text[];
BEGIN
    SELECT array_agg(p_instance[u.place]) INTO v_cleared
    FROM unnest(p_cleared) WITH ORDINALITY u(cleared, place) WHERE u.cleared AND p_verdict[u.place] = 0;
    IF v_cleared IS NOT NULL THEN
        UPDATE kv_delta SET value = NULL, last_updated_at_ms = p_now WHERE instance_id = ANY (v_cleared);
        INSERT INTO kv_delta (instance_id, key, last_updated_at_ms, value)
        SELECT instance_id, key, p_now, NULL FROM kv_store WHERE instance_id = ANY (v_cleared)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO kv_delta (instance_id, key, last_updated_at_ms, value)
    SELECT p_instance[k.turn], k.key, coalesce(k.ms, p_now), k.value
    FROM unnest(p_turn, p_key, p_value, p_ms) k(turn, key, value, ms) WHERE p_verdict[k.turn] = 0
    ON CONFLICT (instance_id, text_hash_1(key)) DO UPDATE
    SET last_updated_at_ms = excluded.last_updated_at_ms, value = excluded.value;
END $$;

-- As before; keys are found by another hash.
CREATE OR REPLACE FUNCTION merge_values_1(p_instances text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO kv_store (instance_id, key, last_updated_at_ms, value)
    SELECT instance_id, key, last_updated_at_ms, value FROM kv_delta
    WHERE instance_id = ANY (p_instances) AND value IS NOT NULL
    ON CONFLICT (instance_id, text_hash_1(key)) DO UPDATE
    SET last_updated_at_ms = excluded.last_updated_at_ms, value = excluded.value;
    DELETE FROM kv_store s USING kv_delta d
    WHERE d.instance_id = ANY (p_instances) AND d.value IS NULL AND s.instance_id = d.instance_id
        AND text_hash_1(s.key) = text_hash_1(d.key);
    DELETE FROM kv_delta WHERE instance_id = ANY (p_instances);
END $$;

-- As before; owners are found by another hash.
CREATE OR REPLACE FUNCTION renew_sessions_1(p_now bigint, p_owners text[], p_extend_ms bigint, p_idle_ms bigint)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := now_ms_1(p_now);
    v_until bigint := v_now + least(p_extend_ms, 9223372036854775807 - v_now);
    v_renewed bigint;
BEGIN
    UPDATE sessions SET locked_until = greatest(locked_until, v_until), due_at = greatest(locked_until, v_until)
    WHERE text_hash_1(worker_id) IN (SELECT text_hash_1(o) FROM unnest(p_owners) o) AND locked_until > v_now
        AND last_activity_at > v_now - p_idle_ms;
    GET DIAGNOSTICS v_renewed = ROW_COUNT;
    RETURN v_renewed;
END $$;

-- First those of processes that ended long ago: they used to be kept for a month. It locks no row of anybody who
-- works; what follows locks the table, for a moment.
WITH old AS (
    SELECT committer FROM committers WHERE seen_at < now() - interval '1 day' FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM committers c USING old o WHERE c.committer = o.committer RETURNING c.*)
SELECT add_totals_1(-1, sum(instances)::bigint, sum(executions)::bigint, sum(events)::bigint,
    sum(running_instances)::bigint, sum(completed_instances)::bigint, sum(failed_instances)::bigint)
FROM gone HAVING count(*) > 0;

-- When the committer's epoch was begun. Those that are gone are found by it: `seen_at` changes with every batch, so an index
-- on that would cost each of them.
ALTER TABLE committers ADD COLUMN begun_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX committers_by_begin ON committers (begun_at);

-- Removes committers that have shown no life for a day: their processes are gone. What they counted stays, in a slot that no
-- process writes otherwise. One that comes back after all is told that nobody knows its batches any more (`begin_epoch_3`).
CREATE FUNCTION forget_committers_1(p_but text, p_max integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_gone record;
BEGIN
    WITH old AS (
        SELECT committer FROM committers
        WHERE begun_at < now() - interval '1 day' AND seen_at < now() - interval '1 day' AND committer <> p_but
        ORDER BY begun_at LIMIT p_max
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

-- As before; those that are gone are found through an index.
CREATE OR REPLACE FUNCTION begin_epoch_1(p_committer text, OUT epoch bigint, OUT batch bigint, OUT turn_verdicts integer[],
    OUT refused_work integer[], OUT taken_starts integer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO committers AS c (committer) VALUES (p_committer)
    ON CONFLICT (committer) DO UPDATE SET epoch = excluded.epoch, seen_at = now(), begun_at = now()
    RETURNING c.epoch, c.batch, c.turn_verdicts, c.refused_work, c.taken_starts
    INTO epoch, batch, turn_verdicts, refused_work, taken_starts;
    PERFORM forget_committers_1(p_committer, 1000);
END $$;

-- As `begin_epoch_2`, and tells whether the committer was not known.
CREATE FUNCTION begin_epoch_3(p_committer text, OUT epoch bigint, OUT batch bigint, OUT turn_verdicts integer[],
    OUT refused_work integer[], OUT taken_starts integer[], OUT deliveries integer[], OUT is_new boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO committers AS c (committer) VALUES (p_committer)
    ON CONFLICT (committer) DO UPDATE SET epoch = excluded.epoch, seen_at = now(), begun_at = now()
    -- A row that was there has been locked by this transaction.
    RETURNING c.epoch, c.batch, c.turn_verdicts, c.refused_work, c.taken_starts, c.deliveries, c.xmax = 0
    INTO epoch, batch, turn_verdicts, refused_work, taken_starts, deliveries, is_new;
    PERFORM forget_committers_1(p_committer, 1000);
END $$;

-- Removes a committer that has ended, and adds what it counted to the totals of its process.
CREATE FUNCTION end_epoch_1(p_committer text, p_epoch bigint, p_slot integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_gone committers;
BEGIN
    DELETE FROM committers WHERE committer = p_committer AND epoch = p_epoch RETURNING * INTO v_gone;
    IF v_gone.instances <> 0 OR v_gone.executions <> 0 OR v_gone.events <> 0 OR v_gone.running_instances <> 0
        OR v_gone.completed_instances <> 0 OR v_gone.failed_instances <> 0
    THEN
        PERFORM add_totals_1(p_slot, v_gone.instances, v_gone.executions, v_gone.events, v_gone.running_instances,
            v_gone.completed_instances, v_gone.failed_instances);
    END IF;
END $$;
