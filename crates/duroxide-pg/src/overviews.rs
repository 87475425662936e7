//! Instances by state: counters, and counts that end at a bound.

use duroxide::model::Obstacle;
use duroxide::providers::inspection::listing::LONGEST_LEASE_MS;
use duroxide::providers::{Count, ProviderError, StateTotals};

use crate::PostgresProvider;
use crate::queue_states::{LOOKED_AT, Looked, with_schedule};
use crate::reads::number;
use crate::shared::clamp;

/// What no counter tells. `$1` is the time, `$2` and `$3` are one more than the bound, `$4` is for how long obstacles count.
///
/// Between two executions an instance stays for a moment only.
const STATES: &str = with_schedule!(
    "busy AS MATERIALIZED (
        SELECT i.instance_id FROM (
            SELECT instance_id FROM ready_instances UNION SELECT instance_id FROM due UNION SELECT instance_id FROM leased
            UNION SELECT instance_id FROM fresh) b
        JOIN instances i ON i.instance_id = b.instance_id
        WHERE i.listed_status NOT IN ('Completed', 'Failed', 'Cancelled', 'ContinuedAsNew')),
    troubled AS MATERIALIZED (
        SELECT s.instance_id FROM instance_schedule s WHERE s.blocked_at IS NOT NULL
        UNION
        SELECT o.instance_id FROM obstacles o WHERE o.next_try_at >= (SELECT now FROM t) - $4
            AND CASE WHEN o.activity_id = 0
                THEN EXISTS (SELECT 1 FROM orchestrator_queue q WHERE q.instance_id = o.instance_id AND q.parked_at IS NULL)
                ELSE EXISTS (SELECT 1 FROM worker_queue w WHERE w.instance_id = o.instance_id
                    AND w.execution_id = o.execution_id AND w.activity_id = o.activity_id) END
        LIMIT $2),
    blocked AS MATERIALIZED (
        SELECT b.instance_id, i.listed_status FROM troubled b LEFT JOIN instances i ON i.instance_id = b.instance_id
        WHERE i.listed_status IS NULL OR i.listed_status NOT IN ('Completed', 'Failed', 'Cancelled')),
    starts AS MATERIALIZED (
        SELECT q.instance_id FROM orchestrator_queue q WHERE q.class = 'start' LIMIT $2)
    SELECT (SELECT coalesce(sum(c.instances), 0)::bigint FROM cancelled_totals c) AS cancelled,
        (SELECT count(*) FROM (SELECT 1 FROM instances WHERE listed_status = 'ContinuedAsNew' LIMIT $2) c) AS continued,
        (SELECT count(*) FROM starts) AS starts_seen,
        (SELECT count(DISTINCT s.instance_id) FROM starts s
            WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = s.instance_id)) AS starts,
        (SELECT count(*) FROM busy b WHERE b.instance_id NOT IN (SELECT x.instance_id FROM blocked x)) AS busy,
        (SELECT count(*) FROM blocked WHERE listed_status IS NOT NULL) AS blocked_with_row,
        (SELECT count(*) FROM blocked WHERE listed_status IS NULL) AS blocked_without_row,
        (SELECT count(*) FROM ready_instances) AS ready, (SELECT count(*) FROM dues) AS dues,
        greatest((SELECT count(*) FROM arrivals_seen), (SELECT count(*) FROM touched)) AS arrived,
        (SELECT coalesce(max(d.due_at), 0) - (SELECT now FROM t) FROM dues d) AS ms_ahead"
);

/// Counts rows of the schedule, without a look at their instances. At most so many instances can take a turn. `$1` is the time,
/// `$2` how many rows the server counts at most, `$3` how long leases are.
const MOST_BUSY: &str = "SELECT
        (SELECT count(*) FROM (SELECT 1 FROM instance_schedule WHERE ready_seq IS NOT NULL LIMIT $2) s)
        + (SELECT count(*) FROM (SELECT 1 FROM instance_schedule WHERE due_at <= (SELECT now_ms_1($1)) + $3 LIMIT $2) s)
        + (SELECT coalesce(sum(cardinality(a.instances)), 0)::bigint FROM (SELECT instances FROM arrivals LIMIT $2) a) AS busy";

/// How many rows are counted that need no further look.
const MANY: u64 = 50_000;

impl PostgresProvider {
    pub(crate) async fn totals_by_state(&self) -> Result<StateTotals, ProviderError> {
        const OPERATION: &str = "state_totals";
        let metrics = self.system_metrics().await?;
        let (now, forgotten) = (self.shared.time.given_ms(), clamp(Obstacle::FORGOTTEN_AFTER_MS));
        let most = clamp(LOOKED_AT + 1);
        let rows = self.listing(OPERATION, STATES, &[&now, &most, &most, &forgotten]).await?;
        let mut totals = StateTotals::default();
        totals.instances = metrics.total_instances;
        totals.executions = metrics.total_executions;
        totals.events = metrics.total_events;
        totals.completed = Count::exact(metrics.completed_instances);
        let Some(row) = rows.first() else { return Ok(totals) };
        totals.cancelled = Count::exact(number(row, "cancelled"));
        totals.failed = Count::exact(metrics.failed_instances.saturating_sub(totals.cancelled.value));
        totals.continued = Count::up_to(LOOKED_AT, number(row, "continued"));
        let (starts_seen, starts, busy) =
            (number(row, "starts_seen"), number(row, "starts"), number(row, "busy"));
        let (with_row, without_row) = (number(row, "blocked_with_row"), number(row, "blocked_without_row"));
        totals.blocked = Count::up_to(LOOKED_AT, with_row + without_row);
        totals.pending = Count {
            value: starts.saturating_sub(without_row).min(LOOKED_AT),
            is_exact: starts_seen <= LOOKED_AT,
        };
        let looked = Looked::read(LOOKED_AT, row);
        let live = metrics.running_instances.saturating_sub(with_row);
        let is_exact = looked.has_all_ready() && looked.has_all_leases();
        totals.running = Count { value: busy, is_exact };
        totals.waiting = match is_exact {
            true => Count::exact(live.saturating_sub(busy)),
            false => self.at_least_waiting(live).await?,
        };
        Ok(totals)
    }

    /// Counts waiting instances, if `live` have not ended: at least all but those that the schedule shows as busy.
    async fn at_least_waiting(&self, live: u64) -> Result<Count, ProviderError> {
        let now = self.shared.time.given_ms();
        let rows = self.listing("state_totals", MOST_BUSY, &[&now, &clamp(MANY), &LONGEST_LEASE_MS]).await?;
        let most = rows.first().map(|row| number(row, "busy")).filter(|most| *most < MANY);
        Ok(Count { value: most.map_or(0, |most| live.saturating_sub(most)), is_exact: false })
    }
}
