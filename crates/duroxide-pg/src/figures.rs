//! Metrics about the state of the store: processes that take work read them now and then, by one query.
//!
//! The query reads the lowest entries of a few indexes, and passes the dead ones before them. While a transaction holds a
//! snapshot, there may be millions. So if the query takes long, the store makes it more rarely, and on a connection that no
//! short read waits for.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

use crate::listings::Listings;
use crate::reads::number;
use crate::session::{Connector, METRICS};
use crate::shared::{Shared, positive};
use crate::shared_connection::{SharedConnection, jittered};

/// Versions and tags are few, and an index sorts by them: the query finds the first row of each by one probe.
const FIGURES: &str = "WITH RECURSIVE t AS MATERIALIZED (SELECT now_ms_1($1) AS now),
    classes (class) AS (
        (SELECT class FROM instance_schedule WHERE ready_seq IS NOT NULL ORDER BY class LIMIT 1)
        UNION ALL
        SELECT (SELECT s.class FROM instance_schedule s
            WHERE s.ready_seq IS NOT NULL AND s.class > c.class ORDER BY s.class LIMIT 1)
        FROM classes c WHERE c.class IS NOT NULL),
    routes (route) AS (
        (SELECT route FROM worker_queue WHERE due_at IS NULL AND session_id IS NULL ORDER BY route LIMIT 1)
        UNION ALL
        SELECT (SELECT w.route FROM worker_queue w
            WHERE w.due_at IS NULL AND w.session_id IS NULL AND w.route > r.route ORDER BY w.route LIMIT 1)
        FROM routes r WHERE r.route IS NOT NULL)
    SELECT (SELECT count(*) FROM (SELECT 1 FROM arrivals LIMIT 10000) a) AS arrivals,
        (SELECT t.now - greatest(q.created_at, q.visible_at) FROM t, orchestrator_queue q WHERE q.id = (
            SELECT min((SELECT s.ready_seq FROM instance_schedule s
                WHERE s.class = c.class AND s.ready_seq IS NOT NULL ORDER BY s.ready_seq LIMIT 1))
            FROM classes c)) AS message_ms,
        (SELECT t.now - greatest(w.created_at, w.visible_at) FROM t, worker_queue w WHERE w.id = (
            SELECT min((SELECT f.id FROM worker_queue f
                WHERE f.route = r.route AND f.due_at IS NULL AND f.session_id IS NULL ORDER BY f.id LIMIT 1))
            FROM routes r)) AS activity_ms";

/// The server's estimates, which cost no look at the tables.
const DEAD_ROWS: &str = "SELECT relname::text AS name, n_dead_tup AS dead FROM pg_stat_user_tables
    WHERE schemaname = current_schema() AND relname IN (
        'arrivals', 'instance_schedule', 'orchestrator_queue', 'worker_queue', 'sessions', 'session_arrivals')";

/// A look that takes longer is made by a connection for listings. So is the first, if there are many dead rows.
const LONG: Duration = Duration::from_millis(200);
const MANY_DEAD_ROWS: u64 = 10_000;
/// Looks take one part in so many of the time, at most.
const SHARE: u32 = 100;

/// Reads the figures and reports them as metrics.
pub(crate) struct Figures {
    shared: Weak<Shared>,
    reads: Arc<SharedConnection>,
    /// The connections for a query that takes long.
    listings: Arc<Listings>,
    connector: Arc<Connector>,
    /// How long the last query took.
    took: Option<Duration>,
    /// When the last query was made.
    looked_at: Option<Duration>,
    /// How many rounds to leave out before the next query.
    rest: u128,
}

impl Figures {
    pub(crate) fn new(
        shared: Weak<Shared>,
        reads: Arc<SharedConnection>,
        listings: Arc<Listings>,
        connector: Arc<Connector>,
    ) -> Self {
        METRICS.describe();
        Self { shared, reads, listings, connector, took: None, looked_at: None, rest: 0 }
    }

    /// Runs until the store is dropped.
    pub(crate) async fn tell_every(mut self, interval: Duration) {
        loop {
            SystemClock.sleep(interval.max(jittered(interval))).await;
            let Some(shared) = self.shared.upgrade() else { return };
            if shared.takes_work.load(Ordering::Relaxed) {
                self.tell(shared.time.given_ms(), interval).await;
            }
        }
    }

    /// Reports the figures, once in an interval. If a read fails, the next round tries again. Returns whether it has looked at
    /// the queues.
    pub(crate) async fn tell(&mut self, now: Option<i64>, interval: Duration) -> bool {
        METRICS.connections(Arc::strong_count(&self.connector.open_sessions).saturating_sub(1));
        let Ok(tables) = self.reads.query(DEAD_ROWS, &[]).await else { return false };
        let mut dead = 0;
        for table in &tables {
            dead += number(table, "dead");
            METRICS.dead_rows(table.get("name"), number(table, "dead"));
        }
        let is_due = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        let takes_long = self.took.map_or(dead > MANY_DEAD_ROWS, |took| took > LONG);
        let began = SystemClock.monotonic();
        let has_looked = is_due && self.look(now, takes_long).await;
        if has_looked {
            let over = SystemClock.monotonic();
            let took = over.saturating_sub(began);
            self.rest = took.saturating_mul(SHARE).as_nanos() / interval.as_nanos().max(1);
            (self.took, self.looked_at) = (Some(took), Some(over));
        }
        if let Some(looked_at) = self.looked_at {
            METRICS.figures_age(SystemClock.monotonic().saturating_sub(looked_at));
        }
        has_looked
    }

    /// Looks at the queues.
    async fn look(&self, now: Option<i64>, takes_long: bool) -> bool {
        let figures = match takes_long {
            true => self.listings.query(FIGURES, &[&now]).await,
            false => self.reads.query(FIGURES, &[&now]).await,
        };
        let Ok(figures) = figures else { return false };
        if let Some(row) = figures.first() {
            let age =
                |column: &str| Duration::from_millis(row.get::<_, Option<i64>>(column).map_or(0, positive));
            METRICS.arrivals(number(row, "arrivals"));
            METRICS.oldest("orchestrator", age("message_ms"));
            METRICS.oldest("worker", age("activity_ms"));
        }
        true
    }
}
