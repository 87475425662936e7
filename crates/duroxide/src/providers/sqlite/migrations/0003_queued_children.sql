-- The parent of a child whose start is queued, so that the start is found when the parent is deleted.
ALTER TABLE orchestrator_queue ADD COLUMN parent_instance_id TEXT;
UPDATE orchestrator_queue
    SET parent_instance_id = json_extract(work_item, '$.StartOrchestration.parent_instance')
    WHERE class = 'start' AND json_valid(work_item);
CREATE INDEX orchestrator_queue_by_parent ON orchestrator_queue (parent_instance_id)
    WHERE parent_instance_id IS NOT NULL;
