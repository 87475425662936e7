//! The store as operators look into it.

use async_trait::async_trait;
use duroxide::InstanceState;
use duroxide::model::{
    EventView, Obstacle, ObstacleKind, QueuedActivity, QueuedMessage, WorkerInfo, cut_text,
};
use duroxide::providers::{
    Count, EventOrder, EventRequest, ExecutionSummary, Inspector, InstanceDetail, InstancePage,
    InstanceQuery, KvView, MinuteRates, ProviderError, QueueState, StateTotals, WorkQueue, WorkerReport,
};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::encode::route;
use crate::reads::{number, optional_text, row_limit, text};
use crate::shared::{clamp, positive};
use crate::text::{original, stored};

/// The columns that describe a message.
macro_rules! message_columns {
    () => {
        "q.id, q.instance_id, q.created_at, q.visible_at, q.attempt_count, q.parked_at, q.work_item"
    };
}
pub(crate) use message_columns;

/// The columns that describe an activity.
macro_rules! activity_columns {
    () => {
        "w.id, w.instance_id, w.execution_id, w.activity_id, w.attempt_count, w.created_at, w.visible_at,
        coalesce(w.locked_until, 0) AS leased_until, w.work_item"
    };
}
pub(crate) use activity_columns;

/// A moment, if it is still to come.
fn later(at: i64, now: i64) -> Option<u64> {
    (at > now).then(|| positive(at))
}

fn attempts(row: &Row, column: &str) -> u32 {
    u32::try_from(number(row, column)).unwrap_or(u32::MAX)
}

/// Reads a message; the row also has the time, as `now_at`.
pub(crate) fn message(row: &Row, cut: usize) -> QueuedMessage {
    let now = row.get("now_at");
    let mut message = QueuedMessage::default();
    message.id = number(row, "id");
    message.instance = text(row, "instance_id");
    message.enqueued_at_ms = number(row, "created_at");
    message.delayed_until_ms = later(row.get("visible_at"), now);
    message.attempts = attempts(row, "attempt_count");
    message.is_parked = row.get::<_, Option<i64>>("parked_at").is_some();
    message.describe(row.get::<_, &str>("work_item").as_bytes(), cut);
    message
}

/// Reads an activity; the row also has the time, as `now_at`.
pub(crate) fn activity(row: &Row) -> QueuedActivity {
    let now = row.get("now_at");
    let mut activity = QueuedActivity::default();
    activity.id = number(row, "id");
    activity.instance = text(row, "instance_id");
    activity.execution_id = number(row, "execution_id");
    activity.activity_id = number(row, "activity_id");
    activity.attempts = attempts(row, "attempt_count");
    activity.enqueued_at_ms = number(row, "created_at");
    activity.delayed_until_ms = later(row.get("visible_at"), now);
    activity.leased_until_ms = later(row.get("leased_until"), now);
    activity.describe(row.get::<_, &str>("work_item").as_bytes());
    activity
}

fn event(row: &Row, cut: usize) -> EventView {
    EventView::of_stored(
        number(row, "event_id"),
        row.get::<_, &str>("data").as_bytes(),
        number(row, "size"),
        cut,
    )
}

fn obstacle(row: &Row) -> Obstacle {
    let (instance, execution_id) = (text(row, "instance_id"), number(row, "execution_id"));
    let activity_id = Some(number(row, "activity_id")).filter(|id| *id > 0);
    let kind = ObstacleKind::parse(row.get("kind"));
    let (name, reason) = (text(row, "name"), text(row, "reason"));
    let mut obstacle = Obstacle::new(instance, execution_id, activity_id, kind, name, reason);
    obstacle.version = optional_text(row, "version");
    obstacle.attempts = attempts(row, "attempts");
    obstacle.since_ms = number(row, "since_at");
    obstacle.next_try_ms = number(row, "next_try_at");
    obstacle
}

/// How much of a stored text is read for a view that is cut.
fn enough(cut: usize) -> i32 {
    i32::try_from(EventRequest::stored_bytes(cut)).unwrap_or(i32::MAX)
}

impl PostgresProvider {
    /// Returns the store's time.
    pub(crate) async fn now_of(&self, operation: &'static str) -> Result<i64, ProviderError> {
        let rows = self.rows(operation, "SELECT now_ms_1($1)", &[&self.shared.time.given_ms()]).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    async fn obstacles(
        &self,
        operation: &'static str,
        instance: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Obstacle>, ProviderError> {
        const SQL: &str =
            "SELECT instance_id, execution_id, activity_id, kind, name, version, reason, attempts, since_at,
                next_try_at
            FROM obstacles WHERE next_try_at >= now_ms_1($1) - $2 AND ($3::text IS NULL OR instance_id = $3)
            ORDER BY since_at, instance_id LIMIT $4";
        let instance = instance.map(|instance| stored(instance).into_owned());
        let forgotten = clamp(Obstacle::FORGOTTEN_AFTER_MS);
        let limit = row_limit(limit);
        let rows =
            self.rows(operation, SQL, &[&self.shared.time.given_ms(), &forgotten, &instance, &limit]).await?;
        Ok(rows.iter().map(obstacle).collect())
    }

    /// Reads the parts of a detail, all as of one moment: a statement sees one snapshot. Each row begins with the number of
    /// the part that it belongs to.
    async fn detail_rows(
        &self,
        instance: &str,
        execution_id: i64,
        events: usize,
        cut: usize,
    ) -> Result<Vec<Row>, ProviderError> {
        const SQL: &str = "(SELECT 1 AS part, h.event_id AS first, left(h.event_data, $5) AS data,
                octet_length(h.event_data)::bigint AS size_or_time, NULL::bigint AS visible_at, NULL::bigint AS attempts,
                NULL::bigint AS parked_or_locked, NULL::bigint AS execution_id, NULL::bigint AS activity_id,
                NULL::text AS instance_id
            FROM history h WHERE h.instance_id = $1 AND h.execution_id = $2 ORDER BY h.event_id DESC LIMIT $3)
            UNION ALL
            (SELECT 2, h.event_id, left(h.event_data, $5), octet_length(h.event_data)::bigint, NULL, NULL, NULL, NULL,
                NULL, NULL
            FROM history h WHERE h.instance_id = $1 AND h.execution_id = $2 ORDER BY h.event_id LIMIT 1)
            UNION ALL
            (SELECT 3, q.id, q.work_item, q.created_at, q.visible_at, q.attempt_count, q.parked_at, NULL, NULL,
                q.instance_id
            FROM orchestrator_queue q WHERE q.instance_id = $1 ORDER BY q.id LIMIT $4)
            UNION ALL
            (SELECT 4, w.id, w.work_item, w.created_at, w.visible_at, w.attempt_count, coalesce(w.locked_until, 0),
                w.execution_id, w.activity_id, w.instance_id
            FROM worker_queue w WHERE w.instance_id = $1 ORDER BY w.id LIMIT $4)
            UNION ALL
            (SELECT 5, coalesce(s.blocked_at, 0), s.blocked_reason, coalesce(s.locked_until, 0), NULL, NULL, NULL, NULL,
                NULL, NULL
            FROM instance_schedule s WHERE s.instance_id = $1)
            UNION ALL
            (SELECT 6, e.started_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
            FROM executions e WHERE e.instance_id = $1 AND e.execution_id = $2)";
        let queued = row_limit(InstanceDetail::MOST_QUEUED);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&stored(instance).into_owned(), &execution_id, &row_limit(events), &queued, &enough(cut)];
        self.listing("read_detail", SQL, &params).await
    }

    async fn detail(
        &self,
        instance: &str,
        events: usize,
        cut: usize,
    ) -> Result<Option<InstanceDetail>, ProviderError> {
        let Some(row) = self.listed_instance("read_detail", instance, cut).await? else { return Ok(None) };
        let now = self.now_of("read_detail").await?;
        let mut detail = InstanceDetail::default();
        for row in self.detail_rows(instance, clamp(row.execution_id), events, cut).await? {
            add_to_detail(&mut detail, &row, cut, now);
        }
        detail.events.reverse();
        let is_due = |message: &QueuedMessage| !message.is_parked && message.delayed_until_ms.is_none();
        detail.is_busy = detail.messages.iter().any(is_due);
        detail.obstacles = self.obstacles("read_detail", Some(instance), InstanceDetail::MOST_QUEUED).await?;
        detail.read_at_ms = positive(now);
        detail.row = row;
        Ok(Some(detail))
    }
}

/// Adds a row of `detail_rows`.
fn add_to_detail(detail: &mut InstanceDetail, row: &Row, cut: usize, now: i64) {
    let first = |row: &Row| number(row, "first");
    match row.get::<_, i32>("part") {
        part @ (1 | 2) => {
            let view = EventView::of_stored(
                first(row),
                row.get::<_, &str>("data").as_bytes(),
                number(row, "size_or_time"),
                cut,
            );
            if part == 2 {
                detail.first_event = Some(view);
                return;
            }
            detail.event_count = detail.event_count.max(view.event_id);
            detail.events.push(view);
        }
        3 => {
            let mut message = QueuedMessage::default();
            message.id = first(row);
            message.instance = text(row, "instance_id");
            message.enqueued_at_ms = number(row, "size_or_time");
            message.delayed_until_ms = later(row.get("visible_at"), now);
            message.attempts = attempts(row, "attempts");
            message.is_parked = row.get::<_, Option<i64>>("parked_or_locked").is_some();
            message.describe(row.get::<_, &str>("data").as_bytes(), cut);
            detail.messages.push(message);
        }
        4 => {
            let mut activity = QueuedActivity::default();
            activity.id = first(row);
            activity.instance = text(row, "instance_id");
            activity.enqueued_at_ms = number(row, "size_or_time");
            activity.delayed_until_ms = later(row.get("visible_at"), now);
            activity.attempts = attempts(row, "attempts");
            activity.leased_until_ms = later(row.get("parked_or_locked"), now);
            activity.execution_id = number(row, "execution_id");
            activity.activity_id = number(row, "activity_id");
            activity.describe(row.get::<_, &str>("data").as_bytes());
            detail.activities.push(activity);
        }
        5 => match first(row) {
            0 => detail.leased_until_ms = later(row.get("size_or_time"), now),
            at => detail.blocked = Some((optional_text(row, "data").unwrap_or_default(), at)),
        },
        _ => detail.started_at_ms = Some(first(row)),
    }
}

#[async_trait]
impl Inspector for PostgresProvider {
    async fn list_page(&self, query: &InstanceQuery) -> Result<InstancePage, ProviderError> {
        self.page_of(query).await
    }

    async fn count(&self, query: &InstanceQuery, bound: u64) -> Result<Count, ProviderError> {
        self.count_of(query, bound).await
    }

    async fn read_detail(
        &self,
        instance: &str,
        events: usize,
        cut: usize,
    ) -> Result<Option<InstanceDetail>, ProviderError> {
        self.detail(instance, events, cut).await
    }

    async fn read_states(&self, instances: &[&str]) -> Result<Vec<Option<InstanceState>>, ProviderError> {
        self.states_of(instances).await
    }

    async fn read_events(&self, request: &EventRequest) -> Result<Vec<EventView>, ProviderError> {
        const ASCENDING: &str =
            "SELECT event_id, left(event_data, $6) AS data, octet_length(event_data)::bigint AS size FROM history
            WHERE instance_id = $1 AND execution_id = coalesce($2, (
                SELECT max(execution_id) FROM executions WHERE instance_id = $1), 1)
                AND event_id >= $3 AND event_id < $4 ORDER BY event_id LIMIT $5";
        const DESCENDING: &str =
            "SELECT event_id, left(event_data, $6) AS data, octet_length(event_data)::bigint AS size FROM history
            WHERE instance_id = $1 AND execution_id = coalesce($2, (
                SELECT max(execution_id) FROM executions WHERE instance_id = $1), 1)
                AND event_id >= $3 AND event_id < $4 ORDER BY event_id DESC LIMIT $5";
        let sql = match request.order {
            EventOrder::OldestFirst => ASCENDING,
            EventOrder::NewestFirst => DESCENDING,
        };
        let from = request.from_event_id.map_or(0, clamp);
        let before = request.before_event_id.map_or(i64::MAX, clamp);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] = [
            &stored(&request.instance).into_owned(),
            &request.execution_id.map(clamp),
            &from,
            &before,
            &row_limit(request.page_size()),
            &enough(request.cut),
        ];
        let rows = self.listing("read_events", sql, &params).await?;
        Ok(rows.iter().map(|row| event(row, request.cut)).collect())
    }

    async fn list_execution_page(
        &self,
        instance: &str,
        before: Option<u64>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<ExecutionSummary>, ProviderError> {
        const SQL: &str = "SELECT p.*, CASE WHEN p.events <= $5 THEN (
                SELECT coalesce(sum(octet_length(h.event_data)), 0)::bigint FROM history h
                WHERE h.instance_id = $1 AND h.execution_id = p.execution_id) END AS bytes
            FROM (
                SELECT e.execution_id, e.status, e.started_at, e.completed_at, left(e.output, $4) AS output, coalesce((
                    SELECT max(h.event_id) FROM history h
                    WHERE h.instance_id = $1 AND h.execution_id = e.execution_id), 0) AS events
                FROM executions e WHERE e.instance_id = $1 AND e.execution_id < $2
                ORDER BY e.execution_id DESC LIMIT $3) p ORDER BY p.execution_id DESC";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [
            &stored(instance).into_owned(),
            &before.map_or(i64::MAX, clamp),
            &row_limit(limit),
            &i32::try_from(cut).unwrap_or(i32::MAX),
            &clamp(ExecutionSummary::MOST_MEASURED),
        ];
        let rows = self.listing("list_execution_page", SQL, &params).await?;
        let summary = |row: &Row| {
            let mut summary = ExecutionSummary::default();
            summary.execution_id = number(row, "execution_id");
            summary.status = text(row, "status");
            summary.started_at_ms = number(row, "started_at");
            summary.completed_at_ms = row.get::<_, Option<i64>>("completed_at").map(positive);
            summary.output = optional_text(row, "output");
            if let Some(output) = &mut summary.output {
                cut_text(output, cut);
            }
            summary.event_count = number(row, "events");
            summary.history_bytes = row.get::<_, Option<i64>>("bytes").map(positive);
            summary
        };
        Ok(rows.iter().map(summary).collect())
    }

    async fn list_values(
        &self,
        instance: &str,
        after: Option<&str>,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<KvView>, ProviderError> {
        const SQL: &str = "SELECT v.key, left(v.value, $4) AS value, octet_length(v.value)::bigint AS size, v.last_updated_at_ms FROM (
                SELECT key, value, last_updated_at_ms FROM kv_delta
                WHERE instance_id = $1 AND value IS NOT NULL AND ($2::text IS NULL OR key > $2)
                UNION ALL
                SELECT key, value, last_updated_at_ms FROM kv_store s
                WHERE instance_id = $1 AND ($2::text IS NULL OR key > $2) AND NOT EXISTS (
                    SELECT 1 FROM kv_delta d WHERE d.instance_id = $1 AND text_hash_1(d.key) = text_hash_1(s.key))) v
            ORDER BY v.key LIMIT $3";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [
            &stored(instance).into_owned(),
            &after.map(|after| stored(after).into_owned()),
            &row_limit(limit),
            &i32::try_from(cut).unwrap_or(i32::MAX),
        ];
        let rows = self.listing("list_values", SQL, &params).await?;
        let view = |row: &Row| {
            let mut view = KvView::default();
            view.key = text(row, "key");
            view.value = text(row, "value");
            cut_text(&mut view.value, cut);
            view.size_bytes = number(row, "size");
            view.updated_at_ms = number(row, "last_updated_at_ms");
            view
        };
        Ok(rows.iter().map(view).collect())
    }

    async fn list_messages(
        &self,
        instance: &str,
        limit: usize,
        cut: usize,
    ) -> Result<Vec<QueuedMessage>, ProviderError> {
        const SQL: &str = concat!(
            "SELECT ",
            message_columns!(),
            ", now_ms_1($3) AS now_at FROM orchestrator_queue q WHERE q.instance_id = $1 ORDER BY q.id LIMIT $2"
        );
        let (instance, limit) = (stored(instance).into_owned(), row_limit(limit));
        let rows =
            self.listing("list_messages", SQL, &[&instance, &limit, &self.shared.time.given_ms()]).await?;
        Ok(rows.iter().map(|row| message(row, cut)).collect())
    }

    async fn list_activities(
        &self,
        instance: &str,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        const SQL: &str = concat!(
            "SELECT ",
            activity_columns!(),
            ", now_ms_1($3) AS now_at FROM worker_queue w WHERE w.instance_id = $1 ORDER BY w.id LIMIT $2"
        );
        let (instance, limit) = (stored(instance).into_owned(), row_limit(limit));
        let rows =
            self.listing("list_activities", SQL, &[&instance, &limit, &self.shared.time.given_ms()]).await?;
        Ok(rows.iter().map(activity).collect())
    }

    async fn list_ready(
        &self,
        queue: WorkQueue,
        limit: usize,
    ) -> Result<(Vec<QueuedMessage>, Vec<QueuedActivity>), ProviderError> {
        match queue {
            WorkQueue::Orchestrator => Ok((self.ready_messages(limit).await?, Vec::new())),
            WorkQueue::Worker => Ok((Vec::new(), self.ready_activities(limit).await?)),
        }
    }

    async fn list_ready_activities(
        &self,
        tag: Option<&str>,
        limit: usize,
    ) -> Result<Vec<QueuedActivity>, ProviderError> {
        self.ready_activities_of(tag, limit).await
    }

    async fn state_totals(&self) -> Result<StateTotals, ProviderError> {
        self.totals_by_state().await
    }

    async fn queue_states(&self) -> Result<Vec<QueueState>, ProviderError> {
        self.queues_now().await
    }

    async fn minute_rates(&self, minutes: u32) -> Result<Vec<MinuteRates>, ProviderError> {
        const SQL: &str = "WITH t AS MATERIALIZED (SELECT now_ms_1(NULL) / 60000 AS this)
            SELECT m.minute, coalesce(sum(r.started), 0)::bigint AS started,
                coalesce(sum(r.completed), 0)::bigint AS completed, coalesce(sum(r.failed), 0)::bigint AS failed
            FROM t CROSS JOIN LATERAL generate_series(t.this + 1 - $1, t.this) m(minute)
            LEFT JOIN minute_rates r ON r.minute = m.minute GROUP BY m.minute ORDER BY m.minute";
        let minutes = i64::from(minutes.min(MinuteRates::KEPT_MINUTES));
        let rows = self.rows("minute_rates", SQL, &[&minutes]).await?;
        let rates = |row: &Row| {
            let [started, completed, failed] =
                ["started", "completed", "failed"].map(|column| number(row, column));
            MinuteRates::of(number(row, "minute") * 60_000, started, completed, failed)
        };
        Ok(rows.iter().map(rates).collect())
    }

    async fn report(&self, report: &WorkerReport) -> Result<(), ProviderError> {
        self.take_report(report).await
    }

    async fn retire(&self, worker_id: &str) -> Result<(), ProviderError> {
        self.take_leave(worker_id).await
    }

    async fn list_workers(&self) -> Result<Vec<WorkerInfo>, ProviderError> {
        const SQL: &str = "SELECT info, last_seen_at, now_ms_1($1) AS now_at FROM workers";
        let rows = self.rows("list_workers", SQL, &[&self.shared.time.given_ms()]).await?;
        let read = |row: &Row| {
            let mut worker: WorkerInfo = serde_json::from_str(&text(row, "info")).ok()?;
            worker.last_seen_ms = number(row, "last_seen_at");
            worker.is_alive(number(row, "now_at")).then_some(worker)
        };
        let mut workers: Vec<WorkerInfo> = rows.iter().filter_map(read).collect();
        workers.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        Ok(workers)
    }

    async fn list_obstacles(
        &self,
        instance: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Obstacle>, ProviderError> {
        self.obstacles("list_obstacles", instance, limit).await
    }
}

/// The tag of a route.
pub(crate) fn tag(stored_route: &str) -> Option<String> {
    debug_assert_eq!(route(None), "");
    stored_route.strip_prefix('=').map(|tag| original(tag.to_string()))
}
