-- A lease may cover only the oldest messages of an instance. Then `batch_last_id` is the last of them, and `batch_start_id`
-- the last start among them: a start may be taken along from further behind. It is NULL if the lease covers all messages that
-- were visible.
ALTER TABLE instance_schedule ADD COLUMN batch_start_id INTEGER;
