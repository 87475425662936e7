//! The queues at a glance, and what is ready first. Counts end at a bound.

use duroxide::model::{QueuedActivity, QueuedMessage};
use duroxide::providers::inspection::listing::LONGEST_LEASE_MS;
use duroxide::providers::{Count, ProviderError, QueueState, StateTotals};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::encode::route;
use crate::inspection::{activity, activity_columns, message, message_columns, tag};
use crate::reads::{number, row_limit};
use crate::shared::{clamp, positive};

/// Up to this, counts are exact that an index tells.
pub(crate) const BOUND: u64 = StateTotals::COUNTED_UP_TO;

/// Up to this, counts are exact if each instance has to be looked at.
pub(crate) const LOOKED_AT: u64 = 1_000;

/// Looks at the schedule. `$1` is the time, `$2` one more than the bound, `$3` one more than the bound of what is looked at by
/// itself.
///
/// Timers are messages too, and a million instances may have nothing else; so this does not look at the messages, but at the
/// instances that are ready, at those whose time of the next look comes first, and at those that got a message which no claim
/// has noticed.
macro_rules! with_schedule {
    ($($rest:tt)*) => {
        concat!(
            "WITH RECURSIVE t AS MATERIALIZED (SELECT now_ms_1($1) AS now),
            ready_instances AS MATERIALIZED (
                SELECT s.instance_id FROM instance_schedule s WHERE s.ready_seq IS NOT NULL LIMIT $2),
            dues AS MATERIALIZED (
                SELECT s.instance_id, s.due_at, s.ready_seq IS NOT NULL AS is_ready, s.lock_token IS NOT NULL AS is_held, s.parked
                FROM instance_schedule s WHERE s.due_at IS NOT NULL ORDER BY s.due_at LIMIT $2),
            due AS MATERIALIZED (
                SELECT d.instance_id FROM dues d WHERE d.due_at <= (SELECT now FROM t) AND NOT d.is_ready
                    AND (NOT d.parked OR EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = d.instance_id
                        AND q.parked_at IS NULL AND q.visible_at <= (SELECT now FROM t)))),
            leased AS MATERIALIZED (
                SELECT d.instance_id FROM dues d WHERE d.due_at > (SELECT now FROM t) AND d.is_held AND NOT d.is_ready),
            arrivals_seen AS MATERIALIZED (SELECT a.instances FROM arrivals a ORDER BY a.id LIMIT $3),
            touched AS MATERIALIZED (SELECT i FROM arrivals_seen a CROSS JOIN LATERAL unnest(a.instances) i LIMIT $3),
            arrived AS MATERIALIZED (SELECT DISTINCT a.i AS instance_id FROM touched a),
            fresh AS MATERIALIZED (
                SELECT a.instance_id, m.since FROM arrived a CROSS JOIN LATERAL (
                    SELECT greatest(q.created_at, q.visible_at) AS since FROM orchestrator_queue q
                    WHERE q.instance_id = a.instance_id AND q.parked_at IS NULL AND q.visible_at <= (SELECT now FROM t)
                    ORDER BY q.visible_at, q.id LIMIT 1) m
                WHERE NOT EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = a.instance_id AND (
                    s.ready_seq IS NOT NULL OR s.due_at <= (SELECT now FROM t) OR s.locked_until > (SELECT now FROM t)
                    OR s.blocked_at IS NOT NULL))), ",
            $($rest)*
        )
    };
}
pub(crate) use with_schedule;

/// The versions to which ready instances are pinned, each found from the one before.
macro_rules! classes {
    () => {
        "classes (class) AS (
            (SELECT s.class FROM instance_schedule s WHERE s.ready_seq IS NOT NULL ORDER BY s.class LIMIT 1)
            UNION ALL
            SELECT (SELECT s.class FROM instance_schedule s
                WHERE s.ready_seq IS NOT NULL AND s.class > c.class ORDER BY s.class LIMIT 1)
            FROM classes c WHERE c.class IS NOT NULL)"
    };
}

/// The routes of ready activities, each found from the one before.
macro_rules! routes {
    () => {
        "ready_routes (route) AS (
            (SELECT w.route FROM worker_queue w WHERE w.due_at IS NULL AND w.session_id IS NULL ORDER BY w.route LIMIT 1)
            UNION ALL
            SELECT (SELECT w.route FROM worker_queue w
                WHERE w.due_at IS NULL AND w.session_id IS NULL AND w.route > r.route ORDER BY w.route LIMIT 1)
            FROM ready_routes r WHERE r.route IS NOT NULL)"
    };
}

/// The messages.
const MESSAGES: &str = with_schedule!(
    classes!(),
    " SELECT (SELECT count(*) FROM ready_instances) AS ready, (SELECT count(*) FROM due) AS due,
        (SELECT count(*) FROM fresh) AS fresh, (SELECT count(*) FROM leased) AS leased,
        (SELECT count(*) FROM dues d WHERE d.due_at > (SELECT now FROM t) AND NOT d.is_held)
            + (SELECT count(*) FROM arrived a WHERE EXISTS (SELECT 1 FROM orchestrator_queue q
                    WHERE q.instance_id = a.instance_id AND q.parked_at IS NULL AND q.visible_at > (SELECT now FROM t))
                AND NOT EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = a.instance_id)) AS delayed,
        (SELECT count(*) FROM dues) AS dues,
        greatest((SELECT count(*) FROM arrivals_seen), (SELECT count(*) FROM touched)) AS arrived,
        (SELECT coalesce(max(d.due_at), 0) - (SELECT now FROM t) FROM dues d) AS ms_ahead,
        least(
            (SELECT greatest(q.created_at, q.visible_at) FROM orchestrator_queue q WHERE q.id = (
                SELECT min((SELECT s.ready_seq FROM instance_schedule s
                    WHERE s.class = c.class AND s.ready_seq IS NOT NULL ORDER BY s.ready_seq LIMIT 1))
                FROM classes c)),
            (SELECT min(f.since) FROM fresh f),
            (SELECT min(greatest(q.created_at, q.visible_at)) FROM (SELECT * FROM due LIMIT 100) d
                JOIN orchestrator_queue q ON q.instance_id = d.instance_id
                WHERE q.parked_at IS NULL AND q.visible_at <= (SELECT now FROM t))) AS oldest"
);

/// The activities, by route. `$1` is the time, `$2` one more than the bound. Leases that have ended, and delays, are noticed by
/// the next claim.
const ACTIVITIES: &str = concat!(
    "WITH RECURSIVE t AS MATERIALIZED (SELECT now_ms_1($1) AS now), ",
    routes!(),
    ", dues AS MATERIALIZED (
        SELECT w.route, w.due_at, w.lock_token IS NOT NULL AS is_leased FROM worker_queue w
        WHERE w.due_at IS NOT NULL ORDER BY w.due_at LIMIT $2),
    by_route AS MATERIALIZED (
        SELECT d.route, count(*) FILTER (WHERE d.due_at <= (SELECT now FROM t)) AS ready,
            count(*) FILTER (WHERE d.due_at > (SELECT now FROM t) AND d.is_leased) AS leased,
            count(*) FILTER (WHERE d.due_at > (SELECT now FROM t) AND NOT d.is_leased) AS delayed,
            min(d.due_at) FILTER (WHERE d.due_at <= (SELECT now FROM t)) AS since
        FROM dues d GROUP BY d.route),
    ready_in_sessions AS MATERIALIZED (
        SELECT w.route, count(*) AS ready FROM (SELECT route FROM worker_queue WHERE ready_for IS NOT NULL LIMIT $2) w
        GROUP BY w.route),
    routes (route) AS (
        SELECT ''::text UNION SELECT route FROM ready_routes WHERE route IS NOT NULL UNION SELECT route FROM by_route
        UNION SELECT route FROM ready_in_sessions)
    SELECT r.route,
        (SELECT count(*) FROM (SELECT 1 FROM worker_queue w
            WHERE w.due_at IS NULL AND w.session_id IS NULL AND w.route = r.route LIMIT $2) c)
            + coalesce(s.ready, 0) + coalesce(d.ready, 0) AS ready,
        coalesce(d.leased, 0) AS leased, coalesce(d.delayed, 0) AS delayed,
        least(d.since, (SELECT greatest(w.created_at, w.visible_at) FROM worker_queue w
            WHERE w.due_at IS NULL AND w.session_id IS NULL AND w.route = r.route ORDER BY w.id LIMIT 1)) AS oldest,
        (SELECT count(*) FROM dues) AS dues, (SELECT coalesce(max(x.due_at), 0) - (SELECT now FROM t) FROM dues x) AS ms_ahead
    FROM routes r LEFT JOIN by_route d ON d.route = r.route LEFT JOIN ready_in_sessions s ON s.route = r.route ORDER BY r.route"
);

/// The first messages that can be delivered. `$1` is the time, `$2` how many.
const READY_MESSAGES: &str = concat!(
    "WITH RECURSIVE t AS MATERIALIZED (SELECT now_ms_1($1) AS now), ",
    classes!(),
    ", candidates AS (
        SELECT s.instance_id FROM classes c CROSS JOIN LATERAL (
            SELECT s.instance_id FROM instance_schedule s WHERE s.class = c.class AND s.ready_seq IS NOT NULL
            ORDER BY s.ready_seq LIMIT $2) s
        UNION
        (SELECT s.instance_id FROM instance_schedule s WHERE s.due_at <= (SELECT now FROM t) ORDER BY s.due_at LIMIT $2)
        UNION
        SELECT i FROM (SELECT a.instances FROM arrivals a ORDER BY a.id LIMIT $2) a CROSS JOIN LATERAL unnest(a.instances) i)
    SELECT ",
    message_columns!(),
    ", (SELECT now FROM t) AS now_at FROM candidates c CROSS JOIN LATERAL (
        SELECT * FROM orchestrator_queue m WHERE m.instance_id = c.instance_id AND m.parked_at IS NULL
            AND m.visible_at <= (SELECT now FROM t) ORDER BY m.visible_at, m.id LIMIT $2) q
    WHERE NOT EXISTS (SELECT 1 FROM instance_schedule s
        WHERE s.instance_id = c.instance_id AND s.locked_until > (SELECT now FROM t))
    ORDER BY q.id LIMIT $2"
);

/// The first activities that can be claimed, and those that the next claim notices: their lease has run out, or their delay is
/// over. `$1` is the time, `$2` how many, `$3` one more than the bound.
const READY_ACTIVITIES: &str = concat!(
    "WITH RECURSIVE ",
    routes!(),
    " SELECT ",
    activity_columns!(),
    ", now_ms_1($1) AS now_at FROM (
        SELECT f.* FROM ready_routes r CROSS JOIN LATERAL (
            SELECT * FROM worker_queue x WHERE x.due_at IS NULL AND x.session_id IS NULL AND x.route = r.route
            ORDER BY x.id LIMIT $2) f
        UNION ALL
        (SELECT * FROM worker_queue x WHERE x.due_at <= (SELECT now_ms_1($1)) ORDER BY x.due_at LIMIT $3)
        UNION ALL
        (SELECT * FROM worker_queue x WHERE x.ready_for IS NOT NULL LIMIT $3)) w
    ORDER BY w.id LIMIT $2"
);

/// The same of one route. `$4` is the route.
const READY_OF_ROUTE: &str = concat!(
    "SELECT ",
    activity_columns!(),
    ", now_ms_1($1) AS now_at FROM (
        (SELECT * FROM worker_queue x WHERE x.due_at IS NULL AND x.session_id IS NULL AND x.route = $4 ORDER BY x.id LIMIT $2)
        UNION ALL
        (SELECT * FROM worker_queue x WHERE x.due_at <= (SELECT now_ms_1($1)) ORDER BY x.due_at LIMIT $3)
        UNION ALL
        (SELECT * FROM worker_queue x WHERE x.ready_for IS NOT NULL LIMIT $3)) w
    WHERE w.route = $4 ORDER BY w.id LIMIT $2"
);

/// Tells whether all leases end before the last row that was looked at.
fn has_all_leases(ms_ahead: i64) -> bool {
    ms_ahead > LONGEST_LEASE_MS
}

/// How much of the schedule was looked at.
pub(crate) struct Looked {
    /// Up to how many ready instances and dues the look went.
    pub(crate) bound: u64,
    /// Ready instances.
    pub(crate) ready: u64,
    /// Rows that have to be looked at next.
    pub(crate) dues: u64,
    /// Arrivals and their instances.
    pub(crate) arrived: u64,
    /// How far in the future the last of the dues is.
    pub(crate) ms_ahead: i64,
}

impl Looked {
    /// Reads the columns `ready`, `dues`, `arrived` and `ms_ahead` of a look up to this bound.
    pub(crate) fn read(bound: u64, row: &Row) -> Self {
        let [ready, dues, arrived] = ["ready", "dues", "arrived"].map(|column| number(row, column));
        Self { bound, ready, dues, arrived, ms_ahead: row.get("ms_ahead") }
    }

    /// Tells whether no instance was missed that can take a turn now.
    pub(crate) fn has_all_ready(&self) -> bool {
        self.ready <= self.bound
            && self.arrived <= LOOKED_AT
            && (self.dues <= self.bound || self.ms_ahead > 0)
    }

    /// Tells whether no lease was missed.
    pub(crate) fn has_all_leases(&self) -> bool {
        self.dues <= self.bound || has_all_leases(self.ms_ahead)
    }
}

fn message_state(row: &Row) -> QueueState {
    let looked = Looked::read(BOUND, row);
    let (due, fresh) = (number(row, "due"), number(row, "fresh"));
    let mut state = QueueState::default();
    state.queue = "orchestrator".into();
    state.ready = Count::counted(BOUND, looked.ready + due + fresh, looked.has_all_ready());
    state.leased = Count::counted(BOUND, number(row, "leased"), looked.has_all_leases());
    let has_all_delayed = looked.dues <= BOUND && looked.arrived <= LOOKED_AT;
    state.delayed = Count::counted(BOUND, number(row, "delayed"), has_all_delayed);
    state.oldest_ready_ms = row.get::<_, Option<i64>>("oldest").map(positive);
    state
}

fn activity_state(row: &Row) -> QueueState {
    let has_seen_all = number(row, "dues") <= BOUND;
    let has_all_leases = has_seen_all || has_all_leases(row.get("ms_ahead"));
    let mut state = QueueState::default();
    state.queue = "worker".into();
    state.tag = tag(row.get("route"));
    state.ready = Count::up_to(BOUND, number(row, "ready"));
    state.leased = Count::counted(BOUND, number(row, "leased"), has_all_leases);
    state.delayed = Count::counted(BOUND, number(row, "delayed"), has_seen_all);
    state.oldest_ready_ms = row.get::<_, Option<i64>>("oldest").map(positive);
    state
}

impl PostgresProvider {
    pub(crate) async fn queues_now(&self) -> Result<Vec<QueueState>, ProviderError> {
        const OPERATION: &str = "queue_states";
        let (now, most) = (self.shared.time.given_ms(), clamp(BOUND + 1));
        let messages = self.listing(OPERATION, MESSAGES, &[&now, &most, &clamp(LOOKED_AT + 1)]).await?;
        let activities = self.listing(OPERATION, ACTIVITIES, &[&now, &most]).await?;
        Ok(messages.iter().map(message_state).chain(activities.iter().map(activity_state)).collect())
    }

    pub(crate) async fn ready_messages(&self, limit: usize) -> Result<Vec<QueuedMessage>, ProviderError> {
        let (now, limit) = (self.shared.time.given_ms(), row_limit(limit));
        let rows = self.listing("list_ready", READY_MESSAGES, &[&now, &limit]).await?;
        Ok(rows.iter().map(|row| message(row, 1_000)).collect())
    }

    pub(crate) async fn ready_activities(&self, limit: usize) -> Result<Vec<QueuedActivity>, ProviderError> {
        let (now, limit, most) = (self.shared.time.given_ms(), row_limit(limit), clamp(BOUND + 1));
        let rows = self.listing("list_ready", READY_ACTIVITIES, &[&now, &limit, &most]).await?;
        Ok(rows.iter().map(activity).collect())
    }

    pub(crate) async fn ready_activities_of(
        &self,
        tag: Option<&str>,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        let (now, limit, most) = (self.shared.time.given_ms(), row_limit(limit), clamp(BOUND + 1));
        let route = route(tag);
        let rows =
            self.listing("list_ready_activities", READY_OF_ROUTE, &[&now, &limit, &most, &route]).await?;
        Ok(rows.iter().map(activity).collect())
    }
}
