-- Instances that nobody can claim, because neither their turn nor their failure could be stored. A blocked instance is
-- leased by nobody for ever: its row has a token that no caller holds and no time at which it is looked at again.
ALTER TABLE instance_schedule ADD COLUMN blocked_at INTEGER;
ALTER TABLE instance_schedule ADD COLUMN blocked_reason TEXT;
CREATE INDEX instance_schedule_blocked ON instance_schedule (blocked_at) WHERE blocked_at IS NOT NULL;
