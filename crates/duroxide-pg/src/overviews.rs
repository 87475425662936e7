//! The store at a glance: instances by state, and the queues. Counters, and counts that end at a bound.

use duroxide::model::Obstacle;
use duroxide::providers::{Count, ProviderError, QueueState, StateTotals};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::inspection::tag;
use crate::reads::number;
use crate::shared::{clamp, positive};

const BOUND: u64 = StateTotals::COUNTED_UP_TO;

/// What no counter tells. `$1` is the time, `$2` one more than the bound, `$3` for how long obstacles count.
///
/// A short queue tells which instances are busy; of a long one only its first messages are looked at.
const STATES: &str = "WITH t AS MATERIALIZED (SELECT now_ms_1($1) AS now),
    queue AS MATERIALIZED (
        SELECT q.instance_id, q.visible_at FROM orchestrator_queue q WHERE q.parked_at IS NULL LIMIT 2 * $2::bigint),
    busy AS MATERIALIZED (
        SELECT DISTINCT q.instance_id FROM queue q JOIN instances i ON i.instance_id = q.instance_id
        WHERE q.visible_at <= (SELECT now FROM t) AND i.listed_status NOT IN ('Completed', 'Failed', 'Cancelled', 'ContinuedAsNew')),
    troubled AS MATERIALIZED (
        SELECT s.instance_id FROM instance_schedule s WHERE s.blocked_at IS NOT NULL
        UNION
        SELECT o.instance_id FROM obstacles o WHERE o.next_try_at >= (SELECT now FROM t) - $3
            AND CASE WHEN o.activity_id = 0
                THEN EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = o.instance_id AND q.parked_at IS NULL)
                ELSE EXISTS (SELECT 1 FROM worker_queue w WHERE w.instance_id = o.instance_id
                    AND w.execution_id = o.execution_id AND w.activity_id = o.activity_id) END
        LIMIT $2),
    blocked AS MATERIALIZED (
        SELECT b.instance_id, i.listed_status FROM troubled b LEFT JOIN instances i ON i.instance_id = b.instance_id
        WHERE i.listed_status IS NULL OR i.listed_status NOT IN ('Completed', 'Failed', 'Cancelled'))
    SELECT (SELECT count(*) FROM (SELECT 1 FROM instances WHERE listed_status = 'Cancelled' LIMIT $2) c),
        (SELECT count(*) FROM (SELECT 1 FROM instances WHERE listed_status = 'ContinuedAsNew' LIMIT $2) c),
        (SELECT count(DISTINCT s.instance_id) FROM (
            SELECT q.instance_id FROM orchestrator_queue q WHERE q.class = 'start'
                AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = q.instance_id) LIMIT $2) s),
        (SELECT count(*) FROM queue),
        (SELECT count(*) FROM busy b WHERE NOT EXISTS (SELECT 1 FROM blocked x WHERE x.instance_id = b.instance_id)),
        (SELECT count(*) FROM blocked WHERE listed_status IS NOT NULL),
        (SELECT count(*) FROM blocked WHERE listed_status IS NULL)";

/// The messages. `$1` is the time, `$2` one more than the bound.
const MESSAGES: &str = "WITH t AS MATERIALIZED (SELECT now_ms_1($1) AS now),
    queue AS MATERIALIZED (
        SELECT q.instance_id, q.visible_at, q.created_at,
            EXISTS (SELECT 1 FROM instance_schedule s WHERE s.instance_id = q.instance_id
                AND s.locked_until > (SELECT now FROM t)) AS is_held
        FROM (SELECT * FROM orchestrator_queue WHERE parked_at IS NULL ORDER BY id LIMIT 2 * $2::bigint) q)
    SELECT (SELECT count(*) FROM queue),
        (SELECT count(DISTINCT instance_id) FROM queue WHERE visible_at <= (SELECT now FROM t) AND NOT is_held),
        (SELECT count(*) FROM (SELECT s.lock_token FROM instance_schedule s WHERE s.due_at > (SELECT now FROM t)
            ORDER BY s.due_at LIMIT $2) s WHERE s.lock_token IS NOT NULL),
        (SELECT count(DISTINCT instance_id) FROM queue WHERE visible_at > (SELECT now FROM t)),
        (SELECT min(greatest(created_at, visible_at)) FROM queue WHERE visible_at <= (SELECT now FROM t) AND NOT is_held)";

/// The activities, by route. `$1` is the time, `$2` one more than the bound.
const ACTIVITIES: &str = "WITH RECURSIVE t AS MATERIALIZED (SELECT now_ms_1($1) AS now),
    ready_routes (route) AS (
        (SELECT w.route FROM worker_queue w WHERE w.due_at IS NULL AND w.session_id IS NULL ORDER BY w.route LIMIT 1)
        UNION ALL
        SELECT (SELECT w.route FROM worker_queue w
            WHERE w.due_at IS NULL AND w.session_id IS NULL AND w.route > r.route ORDER BY w.route LIMIT 1)
        FROM ready_routes r WHERE r.route IS NOT NULL),
    dues AS MATERIALIZED (
        SELECT w.route, w.lock_token IS NOT NULL AS is_leased FROM worker_queue w
        WHERE w.due_at > (SELECT now FROM t) ORDER BY w.due_at LIMIT $2),
    seats AS MATERIALIZED (SELECT w.route FROM worker_queue w WHERE w.ready_for IS NOT NULL LIMIT $2),
    routes (route) AS (
        SELECT ''::text UNION SELECT route FROM ready_routes WHERE route IS NOT NULL UNION SELECT route FROM dues
        UNION SELECT route FROM seats)
    SELECT r.route,
        (SELECT count(*) FROM (SELECT 1 FROM worker_queue w
            WHERE w.due_at IS NULL AND w.session_id IS NULL AND w.route = r.route LIMIT $2) c)
            + (SELECT count(*) FROM seats s WHERE s.route = r.route),
        (SELECT count(*) FROM dues d WHERE d.route = r.route AND d.is_leased),
        (SELECT count(*) FROM dues d WHERE d.route = r.route AND NOT d.is_leased),
        (SELECT greatest(w.created_at, w.visible_at) FROM worker_queue w
            WHERE w.due_at IS NULL AND w.session_id IS NULL AND w.route = r.route ORDER BY w.id LIMIT 1),
        (SELECT count(*) FROM dues)
    FROM routes r ORDER BY r.route";

fn count(row: &Row, column: usize) -> Count {
    Count::up_to(BOUND, number(row, column))
}

impl PostgresProvider {
    pub(crate) async fn totals_by_state(&self) -> Result<StateTotals, ProviderError> {
        let metrics = self.system_metrics().await?;
        let forgotten = clamp(Obstacle::FORGOTTEN_AFTER_MS);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&self.shared.time.given_ms(), &clamp(BOUND + 1), &forgotten];
        let rows = self.listing("state_totals", STATES, &params).await?;
        let mut totals = StateTotals::default();
        totals.instances = metrics.total_instances;
        totals.executions = metrics.total_executions;
        totals.events = metrics.total_events;
        totals.completed = Count::exact(metrics.completed_instances);
        let Some(row) = rows.first() else { return Ok(totals) };
        totals.cancelled = count(row, 0);
        totals.continued = count(row, 1);
        let (with_row, without_row) = (number(row, 5), number(row, 6));
        totals.blocked = Count::up_to(BOUND, with_row + without_row);
        let starts = count(row, 2);
        totals.pending = Count { value: starts.value.saturating_sub(without_row), ..starts };
        // Twice as many messages as are counted are looked at.
        let is_whole_queue = number(row, 3) < 2 * (BOUND + 1);
        let running = count(row, 4);
        totals.running = Count { is_exact: running.is_exact && is_whole_queue, ..running };
        totals.waiting = Count {
            value: metrics.running_instances.saturating_sub(running.value + with_row),
            is_exact: totals.running.is_exact,
        };
        totals.failed = Count {
            value: metrics.failed_instances.saturating_sub(totals.cancelled.value),
            is_exact: totals.cancelled.is_exact,
        };
        Ok(totals)
    }

    pub(crate) async fn queues_now(&self) -> Result<Vec<QueueState>, ProviderError> {
        let (now, most) = (self.shared.time.given_ms(), clamp(BOUND + 1));
        let mut queues = Vec::new();
        for row in self.listing("queue_states", MESSAGES, &[&now, &most]).await? {
            let is_exact = number(&row, 0) < 2 * (BOUND + 1);
            let counted = |column| Count { is_exact, value: number(&row, column) };
            let mut state = QueueState::default();
            state.queue = "orchestrator".into();
            state.ready = counted(1);
            state.leased = count(&row, 2);
            state.delayed = counted(3);
            state.oldest_ready_ms = row.get::<_, Option<i64>>(4).map(positive);
            queues.push(state);
        }
        for row in self.listing("queue_states", ACTIVITIES, &[&now, &most]).await? {
            let is_exact = number(&row, 5) <= BOUND;
            let mut state = QueueState::default();
            state.queue = "worker".into();
            state.tag = tag(row.get(0));
            state.ready = count(&row, 1);
            state.leased = Count { is_exact, value: number(&row, 2) };
            state.delayed = Count { is_exact, value: number(&row, 3) };
            state.oldest_ready_ms = row.get::<_, Option<i64>>(4).map(positive);
            queues.push(state);
        }
        Ok(queues)
    }
}
