-- The store's tables. Names and columns are the documented ones, payloads are JSON, times are milliseconds since the
-- epoch, so that a person can read the file with `sqlite3`. What is added makes every fetch a few index probes.
--
-- There are no foreign keys: a turn may be stored for an instance that has no row (yet).

-- The incarnation counts creations over the whole store and is never reused: an id that was deleted and made again is
-- another instance. It is also the order of creation.
CREATE TABLE instances (
    incarnation           INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id           TEXT NOT NULL UNIQUE,
    orchestration_name    TEXT NOT NULL,
    orchestration_version TEXT NOT NULL,
    current_execution_id  INTEGER NOT NULL DEFAULT 1,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL,
    parent_instance_id    TEXT,
    -- The framework version that the current execution is pinned to; '' if to none.
    pinned_version        TEXT NOT NULL DEFAULT '',
    custom_status_version INTEGER NOT NULL DEFAULT 0,
    custom_status         TEXT
) STRICT;
CREATE INDEX instances_by_parent ON instances (parent_instance_id) WHERE parent_instance_id IS NOT NULL;

CREATE TABLE executions (
    instance_id            TEXT NOT NULL,
    execution_id           INTEGER NOT NULL,
    status                 TEXT NOT NULL DEFAULT 'Running',
    started_at             INTEGER NOT NULL,
    completed_at           INTEGER,
    duroxide_version_major INTEGER,
    duroxide_version_minor INTEGER,
    duroxide_version_patch INTEGER,
    output                 TEXT,
    PRIMARY KEY (instance_id, execution_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE history (
    instance_id  TEXT NOT NULL,
    execution_id INTEGER NOT NULL,
    event_id     INTEGER NOT NULL,
    event_type   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    event_data   TEXT NOT NULL,
    PRIMARY KEY (instance_id, execution_id, event_id)
) STRICT, WITHOUT ROWID;

-- Messages for instances. `visible_at` is 0 for a message that is visible at once, so that a clock that steps back
-- hides nothing. A message is written once and deleted once: which lease covers it is told by `instance_schedule`, and
-- `attempt_count` holds the attempts that ended without an ack. `parked_at` is set while its instance does not exist.
-- `lock_token` and `locked_until` are there for readers of the documented columns; the view `instance_locks` says who
-- holds an instance.
CREATE TABLE orchestrator_queue (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id   TEXT NOT NULL,
    class         TEXT NOT NULL,
    parked_at     INTEGER,
    visible_at    INTEGER NOT NULL DEFAULT 0,
    lock_token    TEXT,
    locked_until  INTEGER,
    created_at    INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    work_item     TEXT NOT NULL
) STRICT;
CREATE INDEX orchestrator_queue_by_instance ON orchestrator_queue (instance_id, parked_at, visible_at);

-- One row per instance that has messages or is leased. It is in one of three states:
--   ready    `ready_seq` is the id of its oldest visible message, which decides its place in the queue. A lease that
--            has run out stays noted until somebody takes over.
--   leased   `lock_token` is set and `ready_seq` is not. The lease covers the messages up to `batch_last_id` that were
--            visible at `batch_visible_at`.
--   waiting  neither.
-- `due_at` is the next moment at which the row has to be looked at again: the end of the lease, or the moment when a
-- message becomes visible or has been parked for too long. `parked` tells whether any are parked.
-- `owner` is the open handle that holds the lease, here and in the tables below: its lock file is in NAME-owners.
CREATE TABLE instance_schedule (
    instance_id      TEXT PRIMARY KEY,
    class            TEXT NOT NULL DEFAULT '',
    ready_seq        INTEGER,
    due_at           INTEGER,
    parked           INTEGER NOT NULL DEFAULT 0,
    lock_token       TEXT,
    locked_until     INTEGER,
    locked_at        INTEGER,
    batch_visible_at INTEGER,
    batch_last_id    INTEGER,
    owner            TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX instance_schedule_ready ON instance_schedule (class, ready_seq) WHERE ready_seq IS NOT NULL;
CREATE INDEX instance_schedule_due ON instance_schedule (due_at) WHERE due_at IS NOT NULL;

-- Live and expired leases on instances. A view, which also keeps older builds from taking turns on this file.
CREATE VIEW instance_locks AS
    SELECT instance_id, lock_token, locked_until, locked_at FROM instance_schedule WHERE lock_token IS NOT NULL;

-- Whoever inserts a message schedules its instance. A ready row keeps its place, for ids ascend; a leased one is looked
-- at when its lease ends. A waiting one gets `due_at` 0, which makes the next fetch look at it.
CREATE TRIGGER message_arrives AFTER INSERT ON orchestrator_queue BEGIN
    INSERT INTO instance_schedule (instance_id, class, ready_seq, due_at)
    VALUES (
        NEW.instance_id,
        coalesce((SELECT pinned_version FROM instances WHERE instance_id = NEW.instance_id), ''),
        iif(NEW.visible_at = 0, NEW.id, NULL),
        nullif(NEW.visible_at, 0)
    )
    ON CONFLICT (instance_id) DO UPDATE SET
        due_at = iif(NEW.visible_at = 0, iif(ready_seq IS NULL, 0, due_at), min(ifnull(due_at, NEW.visible_at), NEW.visible_at))
    WHERE ready_seq IS NOT NULL OR lock_token IS NULL;
END;

-- Activities. A row is ready if `due_at` is NULL; otherwise that is when it has to be looked at again: the end of its
-- lease or of its delay. Of the ready rows of one session and tag only the first can be claimed: its `ready_for` is the
-- session's owner, or '' for anybody. It is the head of the session.
CREATE TABLE worker_queue (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id   TEXT NOT NULL,
    execution_id  INTEGER NOT NULL,
    activity_id   INTEGER NOT NULL,
    session_id    TEXT,
    tag           TEXT,
    due_at        INTEGER,
    ready_for     TEXT,
    visible_at    INTEGER NOT NULL DEFAULT 0,
    lock_token    TEXT,
    locked_until  INTEGER,
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    created_at    INTEGER NOT NULL,
    owner         TEXT,
    work_item     TEXT NOT NULL
) STRICT;
CREATE INDEX worker_queue_by_identity ON worker_queue (instance_id, execution_id, activity_id);
CREATE INDEX worker_queue_ready ON worker_queue (tag, id) WHERE due_at IS NULL AND session_id IS NULL;
CREATE INDEX worker_queue_due ON worker_queue (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX worker_queue_by_session ON worker_queue (session_id, tag, due_at, id) WHERE session_id IS NOT NULL;
CREATE INDEX worker_queue_seated ON worker_queue (ready_for, tag, id) WHERE ready_for IS NOT NULL;
CREATE INDEX worker_queue_seats ON worker_queue (session_id, tag) WHERE ready_for IS NOT NULL;

-- A lease on an activity is looked at again when it ends. Older builds do not know that and are kept out.
CREATE TRIGGER lease_without_end BEFORE UPDATE OF lock_token ON worker_queue
WHEN NEW.lock_token IS NOT NULL AND NEW.due_at IS NOT NEW.locked_until BEGIN
    SELECT raise(ABORT, 'this file was upgraded; an older build of duroxide cannot take work from it');
END;

-- `due_at` is the end of the worker's lease until that has been noticed.
CREATE TABLE sessions (
    session_id       TEXT PRIMARY KEY,
    worker_id        TEXT NOT NULL,
    locked_until     INTEGER NOT NULL,
    last_activity_at INTEGER NOT NULL,
    due_at           INTEGER,
    owner            TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_owner ON sessions (worker_id);
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;

CREATE TRIGGER session_item_arrives AFTER INSERT ON worker_queue
WHEN NEW.session_id IS NOT NULL AND NEW.due_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM worker_queue
    WHERE session_id = NEW.session_id AND tag IS NEW.tag AND ready_for IS NOT NULL
) BEGIN
    UPDATE worker_queue SET ready_for = coalesce(
        (SELECT worker_id FROM sessions WHERE session_id = NEW.session_id AND due_at IS NOT NULL), '')
    WHERE id = NEW.id;
END;

CREATE TRIGGER session_item_leaves AFTER DELETE ON worker_queue WHEN OLD.ready_for IS NOT NULL BEGIN
    UPDATE worker_queue SET ready_for = OLD.ready_for WHERE id = (
        SELECT id FROM worker_queue
        WHERE session_id = OLD.session_id AND tag IS OLD.tag AND due_at IS NULL
        ORDER BY id LIMIT 1);
END;

-- The key-value state at the last boundary between executions, and what the running execution changed since. A NULL
-- value is a key that was removed.
CREATE TABLE kv_store (
    instance_id        TEXT NOT NULL,
    key                TEXT NOT NULL,
    last_updated_at_ms INTEGER NOT NULL DEFAULT 0,
    value              TEXT NOT NULL,
    PRIMARY KEY (instance_id, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE kv_delta (
    instance_id        TEXT NOT NULL,
    key                TEXT NOT NULL,
    last_updated_at_ms INTEGER NOT NULL,
    value              TEXT,
    PRIMARY KEY (instance_id, key)
) STRICT, WITHOUT ROWID;

-- Rows that do not decode, with their text as it was.
CREATE TABLE quarantine (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    queue          TEXT NOT NULL,
    instance_id    TEXT,
    reason         TEXT NOT NULL,
    quarantined_at INTEGER NOT NULL,
    work_item      TEXT NOT NULL
) STRICT;

-- Totals, kept in the transactions that change them, so that asking for them scans nothing.
CREATE TABLE totals (
    id                  INTEGER PRIMARY KEY CHECK (id = 1),
    instances           INTEGER NOT NULL DEFAULT 0,
    executions          INTEGER NOT NULL DEFAULT 0,
    events              INTEGER NOT NULL DEFAULT 0,
    running_instances   INTEGER NOT NULL DEFAULT 0,
    completed_instances INTEGER NOT NULL DEFAULT 0,
    failed_instances    INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO totals (id) VALUES (1);

-- Older builds read their ledger of migrations and make an index of this name when they open a file. On this one they
-- can do neither, so they do not open it: they would leave rows behind that nobody finds.
CREATE VIEW _sqlx_migrations AS SELECT 'this file was upgraded; an older build of duroxide cannot use it' AS note;
CREATE VIEW idx_instances_parent AS SELECT note FROM _sqlx_migrations;
