-- The store's tables. Names and columns are the documented ones where they exist, payloads are JSON in text, times are
-- milliseconds since the epoch, so that a person can read them with psql. What is added makes every fetch a few index
-- probes, and lets many processes write without waiting for each other.
--
-- Deleting and pruning leave room behind that is used again once it was vacuumed, so that happens early everywhere.
--
-- There are no foreign keys: a turn may be stored for an instance that has no row (yet). Texts that are compared have
-- the collation "C": bytes, the same everywhere.
--
-- Locks are taken in one order: instance_schedule by id, then worker_queue by id, then sessions. Results are the exception:
-- they remove an activity and then lease its instance, and skip what somebody else holds.

-- The incarnation counts creations over the whole store and is never reused: an id that was deleted and made again is
-- another instance. It is also the order of creation.
CREATE TABLE instances (
    incarnation           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id           text COLLATE "C" NOT NULL UNIQUE,
    orchestration_name    text NOT NULL,
    orchestration_version text NOT NULL,
    current_execution_id  bigint NOT NULL DEFAULT 1,
    created_at            bigint NOT NULL,
    updated_at            bigint NOT NULL,
    parent_instance_id    text COLLATE "C",
    -- The framework version that the current execution is pinned to; '' if to none.
    pinned_version        text COLLATE "C" NOT NULL DEFAULT '',
    custom_status_version bigint NOT NULL DEFAULT 0,
    custom_status         text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX instances_by_parent ON instances (parent_instance_id) WHERE parent_instance_id IS NOT NULL;

CREATE TABLE executions (
    instance_id            text COLLATE "C" NOT NULL,
    execution_id           bigint NOT NULL,
    status                 text COLLATE "C" NOT NULL DEFAULT 'Running',
    started_at             bigint NOT NULL,
    completed_at           bigint,
    duroxide_version_major bigint,
    duroxide_version_minor bigint,
    duroxide_version_patch bigint,
    output                 text,
    PRIMARY KEY (instance_id, execution_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE history (
    instance_id  text COLLATE "C" NOT NULL,
    execution_id bigint NOT NULL,
    event_id     bigint NOT NULL,
    event_type   text COLLATE "C" NOT NULL,
    created_at   bigint NOT NULL,
    event_data   text NOT NULL,
    PRIMARY KEY (instance_id, execution_id, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Messages for instances. `visible_at` is 0 for a message that is visible at once, so that a clock that steps back hides
-- nothing. A message is written once and deleted once: which lease covers it is told by `instance_schedule.batch`, and
-- `attempt_count` holds the attempts that ended without an ack. `parked_at` is set while its instance does not exist.
CREATE TABLE orchestrator_queue (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id   text COLLATE "C" NOT NULL,
    class         text COLLATE "C" NOT NULL,
    parked_at     bigint,
    visible_at    bigint NOT NULL DEFAULT 0,
    created_at    bigint NOT NULL,
    attempt_count bigint NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    work_item     text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX orchestrator_queue_by_instance ON orchestrator_queue (instance_id, visible_at, id) WHERE parked_at IS NULL;
CREATE INDEX orchestrator_queue_parked ON orchestrator_queue (instance_id) WHERE parked_at IS NOT NULL;

-- Instances that may have something new: whoever enqueues a message or ends a lease appends to this table and waits for
-- nobody; the next fetch takes the rows away and looks at the instances. One row holds all that one commit touched.
CREATE TABLE arrivals (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instances text[] NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);

-- One row per instance that waits for its turn, for a moment, or for the end of a lease. It is in one of three states:
--   ready    `ready_seq` is the id of its oldest visible message, which is its place in the line. A lease that has run
--            out stays noted until somebody takes over.
--   leased   `lock_token` is set and `ready_seq` is not. The lease covers the messages in `batch`.
--   waiting  neither.
-- `due_at` is the next moment at which the row has to be looked at again: the end of the lease, or the moment when a
-- message becomes visible or has been parked for too long. `parked` tells whether any are parked.
CREATE TABLE instance_schedule (
    instance_id  text COLLATE "C" PRIMARY KEY,
    class        text COLLATE "C" NOT NULL DEFAULT '',
    ready_seq    bigint,
    due_at       bigint,
    parked       boolean NOT NULL DEFAULT false,
    lock_token   text COLLATE "C",
    locked_until bigint,
    locked_at    bigint,
    batch        bigint[]
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX instance_schedule_ready ON instance_schedule (class, ready_seq) WHERE ready_seq IS NOT NULL;
CREATE INDEX instance_schedule_due ON instance_schedule (due_at) WHERE due_at IS NOT NULL;

-- Live and expired leases on instances, for readers of the documented name.
CREATE VIEW instance_locks AS
    SELECT instance_id, lock_token, locked_until, locked_at FROM instance_schedule WHERE lock_token IS NOT NULL;

-- Activities. `route` is '' for an activity without a tag, '=' and the tag otherwise. A row is ready if `due_at` is
-- NULL; otherwise that is when it has to be looked at again: the end of its lease or of its delay. Of the ready rows of
-- one session and route only the first is seated: `ready_for` is its owner, or '' for anybody.
CREATE TABLE worker_queue (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id   text COLLATE "C" NOT NULL,
    execution_id  bigint NOT NULL,
    activity_id   bigint NOT NULL,
    session_id    text COLLATE "C",
    route         text COLLATE "C" NOT NULL DEFAULT '',
    due_at        bigint,
    ready_for     text COLLATE "C",
    visible_at    bigint NOT NULL DEFAULT 0,
    lock_token    text COLLATE "C",
    locked_until  bigint,
    attempt_count bigint NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    created_at    bigint NOT NULL,
    work_item     text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX worker_queue_by_identity ON worker_queue (instance_id, execution_id, activity_id);
CREATE INDEX worker_queue_ready ON worker_queue (route, id) WHERE due_at IS NULL AND session_id IS NULL;
CREATE INDEX worker_queue_due ON worker_queue (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX worker_queue_by_session ON worker_queue (session_id, route, id) WHERE session_id IS NOT NULL AND due_at IS NULL;
CREATE INDEX worker_queue_of_session ON worker_queue (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX worker_queue_seated ON worker_queue (ready_for, id) WHERE ready_for IS NOT NULL;

-- Sessions whose seats have to be looked at, as `arrivals` does for instances.
CREATE TABLE session_arrivals (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sessions text[] NOT NULL,
    routes   text[] NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- `due_at` is the end of the owner's lease until that has been noticed.
CREATE TABLE sessions (
    session_id       text COLLATE "C" PRIMARY KEY,
    worker_id        text COLLATE "C" NOT NULL,
    locked_until     bigint NOT NULL,
    last_activity_at bigint NOT NULL,
    due_at           bigint
) WITH (fillfactor = 70);
CREATE INDEX sessions_by_owner ON sessions (md5(worker_id));
CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;

-- The key-value state at the last boundary between executions, and what the running execution changed since. A NULL
-- value is a key that was removed. Keys may be longer than an index entry.
CREATE TABLE kv_store (
    instance_id        text COLLATE "C" NOT NULL,
    key                text COLLATE "C" NOT NULL,
    last_updated_at_ms bigint NOT NULL DEFAULT 0,
    value              text NOT NULL
);
CREATE UNIQUE INDEX kv_store_key ON kv_store (instance_id, md5(key));
CREATE TABLE kv_delta (
    instance_id        text COLLATE "C" NOT NULL,
    key                text COLLATE "C" NOT NULL,
    last_updated_at_ms bigint NOT NULL,
    value              text
);
CREATE UNIQUE INDEX kv_delta_key ON kv_delta (instance_id, md5(key));

-- Rows that do not decode, with their text as it was.
CREATE TABLE quarantine (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue          text NOT NULL,
    instance_id    text,
    reason         text NOT NULL,
    quarantined_at bigint NOT NULL,
    work_item      text NOT NULL
);

-- Totals, kept in the transactions that change them, so that asking for them scans nothing. Each process writes a slot of
-- its own, so that they do not wait for each other. What turns change is counted in `committers`; the totals are the sums
-- over both.
CREATE TABLE totals (
    slot                integer PRIMARY KEY,
    instances           bigint NOT NULL DEFAULT 0,
    executions          bigint NOT NULL DEFAULT 0,
    events              bigint NOT NULL DEFAULT 0,
    running_instances   bigint NOT NULL DEFAULT 0,
    completed_instances bigint NOT NULL DEFAULT 0,
    failed_instances    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- The last batch that each committing connection made, written in the batch's own transaction. Whoever did not hear the
-- answer to a commit begins another epoch, which waits for a transaction that has made its note and keeps a later one out,
-- and reads here whether it was committed, and what in it was refused. (The transaction's id would not do: after a crash
-- of the server it can be another's.) An epoch is never that of two connections, not even if the row was removed between.
CREATE TABLE committers (
    committer           text PRIMARY KEY,
    epoch               bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    batch               bigint NOT NULL DEFAULT 0,
    -- Positions in the batch: verdicts of turns, activities that were not held, starts of ids that were taken. NULL if
    -- there are none, as nearly always.
    turn_verdicts       integer[],
    refused_work        integer[],
    taken_starts        integer[],
    seen_at             timestamptz NOT NULL DEFAULT now(),
    -- What turns have added, as in `totals`.
    instances           bigint NOT NULL DEFAULT 0,
    executions          bigint NOT NULL DEFAULT 0,
    events              bigint NOT NULL DEFAULT 0,
    running_instances   bigint NOT NULL DEFAULT 0,
    completed_instances bigint NOT NULL DEFAULT 0,
    failed_instances    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
