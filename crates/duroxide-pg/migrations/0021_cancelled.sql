-- How many instances are listed as cancelled: no other total tells them from those that failed. Each connection counts in a row of
-- its own, so that none waits for another.
CREATE TABLE cancelled_totals (
    backend   integer PRIMARY KEY,
    instances bigint NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION count_cancelled_1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cancelled_totals AS t (backend, instances)
    VALUES (pg_catalog.pg_backend_pid(), CASE WHEN TG_OP = 'UPDATE' AND NEW.listed_status = 'Cancelled' THEN 1 ELSE -1 END)
    ON CONFLICT (backend) DO UPDATE SET instances = t.instances + excluded.instances;
    RETURN NULL;
END $$;
CREATE TRIGGER cancellation_is_counted AFTER UPDATE OF listed_status ON instances FOR EACH ROW
    WHEN ((NEW.listed_status = 'Cancelled') <> (OLD.listed_status = 'Cancelled')) EXECUTE FUNCTION count_cancelled_1();
CREATE TRIGGER cancelled_is_removed AFTER DELETE ON instances FOR EACH ROW
    WHEN (OLD.listed_status = 'Cancelled') EXECUTE FUNCTION count_cancelled_1();

-- The triggers keep writers out until this is committed. No connection has the number 0.
INSERT INTO cancelled_totals (backend, instances)
SELECT 0, pg_catalog.count(*) FROM instances WHERE listed_status = 'Cancelled';
