-- How many instances are listed as cancelled: no other total tells them from those that failed. There are a few rows, and each
-- connection counts in one of them, so that two of them rarely wait for each other.
CREATE TABLE cancelled_totals (
    place     integer PRIMARY KEY,
    instances bigint NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION count_cancelled_1() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cancelled_totals AS t (place, instances)
    VALUES (pg_catalog.pg_backend_pid() % 64 + 1, CASE WHEN TG_OP = 'UPDATE' AND NEW.listed_status = 'Cancelled' THEN 1 ELSE -1 END)
    ON CONFLICT (place) DO UPDATE SET instances = t.instances + excluded.instances;
    RETURN NULL;
END $$;
CREATE TRIGGER cancellation_is_counted AFTER UPDATE OF listed_status ON instances FOR EACH ROW
    WHEN ((NEW.listed_status = 'Cancelled') <> (OLD.listed_status = 'Cancelled')) EXECUTE FUNCTION count_cancelled_1();
CREATE TRIGGER cancelled_is_removed AFTER DELETE ON instances FOR EACH ROW
    WHEN (OLD.listed_status = 'Cancelled') EXECUTE FUNCTION count_cancelled_1();

-- The triggers keep writers out until this is committed. No connection counts in the place 0.
INSERT INTO cancelled_totals (place, instances)
SELECT 0, pg_catalog.count(*) FROM instances WHERE listed_status = 'Cancelled';
