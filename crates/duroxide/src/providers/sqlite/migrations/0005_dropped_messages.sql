-- The newest messages that were dropped because their instance did not exist, with the beginnings of their texts, and how
-- many there ever were.
CREATE TABLE dropped_messages (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT NOT NULL,
    dropped_at  INTEGER NOT NULL,
    size        INTEGER NOT NULL,
    work_item   TEXT NOT NULL
) STRICT;
ALTER TABLE totals ADD COLUMN dropped_messages INTEGER NOT NULL DEFAULT 0;
