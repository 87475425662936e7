-- Instances that have ended, by when they did: an execution that has completed or failed is the last of its instance. So a
-- bulk deletion finds the oldest without looking at any that run.
CREATE INDEX executions_ended ON executions (completed_at) WHERE status IN ('Completed', 'Failed');

-- Instances that were continued as new. Few of them are between two executions, and these are found by skipping from
-- instance to instance.
CREATE INDEX executions_continued ON executions (instance_id) WHERE status = 'ContinuedAsNew';
