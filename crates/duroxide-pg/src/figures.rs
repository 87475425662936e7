//! Metrics about the state of the store: processes that take work read them now and then, by one cheap query.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

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
            FROM classes c)) AS message_age,
        (SELECT t.now - greatest(w.created_at, w.visible_at) FROM t, worker_queue w WHERE w.id = (
            SELECT min((SELECT f.id FROM worker_queue f
                WHERE f.route = r.route AND f.due_at IS NULL AND f.session_id IS NULL ORDER BY f.id LIMIT 1))
            FROM routes r)) AS activity_age";

/// The server's estimates, which cost no look at the tables.
const DEAD_ROWS: &str = "SELECT relname::text AS name, n_dead_tup AS dead FROM pg_stat_user_tables
    WHERE schemaname = current_schema() AND relname IN (
        'arrivals', 'instance_schedule', 'orchestrator_queue', 'worker_queue', 'sessions', 'session_arrivals')";

/// Reads the figures and reports them as metrics.
pub(crate) struct Figures {
    shared: Weak<Shared>,
    connection: Arc<SharedConnection>,
    connector: Arc<Connector>,
}

impl Figures {
    pub(crate) fn new(
        shared: Weak<Shared>,
        connection: Arc<SharedConnection>,
        connector: Arc<Connector>,
    ) -> Self {
        METRICS.describe();
        Self { shared, connection, connector }
    }

    /// Runs until the store is dropped.
    pub(crate) async fn tell_every(self, interval: Duration) {
        loop {
            SystemClock.sleep(interval.max(jittered(interval))).await;
            let Some(shared) = self.shared.upgrade() else { return };
            if shared.takes_work.load(Ordering::Relaxed) {
                self.tell(shared.time.given_ms()).await;
            }
        }
    }

    /// Reads and reports the figures. If a read fails, the next round tries again.
    async fn tell(&self, now: Option<i64>) {
        METRICS.connections(Arc::strong_count(&self.connector.open_sessions).saturating_sub(1));
        let figures = self.connection.pipeline(&[(FIGURES, &[&now]), (DEAD_ROWS, &[])]).await;
        let Ok([figures, dead]) = figures.as_deref() else { return };
        if let Some(row) = figures.first() {
            let age = |column| Duration::from_millis(row.get::<_, Option<i64>>(column).map_or(0, positive));
            METRICS.arrivals(number(row, "arrivals"));
            METRICS.oldest("orchestrator", age("message_age"));
            METRICS.oldest("worker", age("activity_age"));
        }
        for row in dead {
            METRICS.dead_rows(row.get("name"), number(row, "dead"));
        }
    }
}
