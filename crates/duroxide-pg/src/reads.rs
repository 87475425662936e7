//! Reads that are not about leases: histories, descriptions, values, figures.

use std::collections::HashMap;

use duroxide::providers::{
    AwaitedInstance, AwaitedLook, DroppedMessage, DroppedMessages, ExecutionInfo, InstanceInfo,
    InstanceMetadata, ParkedMessage, ProviderError, QueueDepths, RunningInstances, SystemMetrics, inspect,
    refusal,
};
use duroxide::{Event, SystemStats};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::PostgresProvider;
use crate::error::{Failure, StoreError};
use crate::shared::{clamp, positive, whole_ms};
use crate::text::{original, stored};
use crate::windows::window;

/// Puts a failure into the words of the storage contract.
pub(crate) fn named(operation: &'static str) -> impl Fn(Failure) -> ProviderError {
    move |failure| StoreError::from(failure).into_provider_error(operation)
}

/// Decodes the column `event_data`; if one does not decode, returns none of them and the first one's reason.
pub(crate) fn decode(rows: &[Row]) -> Result<Vec<Event>, String> {
    rows.iter()
        .map(|row| serde_json::from_str(row.get("event_data")).map_err(|error| error.to_string()))
        .collect()
}

pub(crate) fn text(row: &Row, column: &str) -> String {
    original(row.get(column))
}

pub(crate) fn optional_text(row: &Row, column: &str) -> Option<String> {
    row.get::<_, Option<String>>(column).map(original)
}

pub(crate) fn number(row: &Row, column: &str) -> u64 {
    positive(row.get(column))
}

pub(crate) fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Selects the row that describes an instance; `$more` continues the query.
macro_rules! described {
    ($more:literal) => {
        concat!(
            "SELECT i.instance_id, i.orchestration_name, i.orchestration_version, i.parent_instance_id,
                i.current_execution_id, i.incarnation, coalesce(e.status, 'Unknown') AS status, e.output, i.custom_status,
                i.custom_status_version, i.created_at, i.updated_at, NULL::text AS start
            FROM instances i
            LEFT JOIN executions e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
            WHERE i.instance_id = $1 ",
            $more
        )
    };
}

/// How many short rows a part of a listing has, at most.
pub(crate) const PAGE: i64 = 10_000;

fn metadata(row: &Row) -> InstanceMetadata {
    InstanceMetadata {
        instance_id: text(row, "instance_id"),
        orchestration_name: text(row, "orchestration_name"),
        orchestration_version: text(row, "orchestration_version"),
        parent_instance_id: optional_text(row, "parent_instance_id"),
        current_execution_id: number(row, "current_execution_id"),
        incarnation: number(row, "incarnation"),
        status: text(row, "status"),
        output: optional_text(row, "output"),
        custom_status: optional_text(row, "custom_status"),
        custom_status_version: number(row, "custom_status_version"),
        created_at: number(row, "created_at"),
        updated_at: number(row, "updated_at"),
    }
}

impl PostgresProvider {
    pub(crate) async fn rows(
        &self,
        operation: &'static str,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, ProviderError> {
        self.reads.query(sql, params).await.map_err(named(operation))
    }

    /// Makes a read that may take long.
    pub(crate) async fn listing(
        &self,
        operation: &'static str,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, ProviderError> {
        self.listings.query(sql, params).await.map_err(named(operation))
    }

    /// Describes an instance by its row or, before its first turn, by its queued start: both as of one moment.
    pub(crate) async fn metadata_or_pending(
        &self,
        operation: &'static str,
        instance: &str,
    ) -> Result<Option<InstanceMetadata>, ProviderError> {
        const SQL: &str = described!(
            "UNION ALL (
                SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, q.created_at, NULL, q.work_item
                FROM orchestrator_queue q
                WHERE q.instance_id = $1 AND q.parked_at IS NULL AND q.class = 'start'
                    AND NOT EXISTS (SELECT 1 FROM instances WHERE instance_id = $1)
                    AND NOT EXISTS (SELECT 1 FROM history WHERE instance_id = $1)
                ORDER BY q.id LIMIT 1)"
        );
        let rows = self.rows(operation, SQL, &[&stored(instance).as_ref()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        match row.get::<_, Option<&str>>("start") {
            None => Ok(Some(metadata(row))),
            Some(start) => {
                let start = serde_json::from_str(start).ok();
                Ok(start.and_then(|start| InstanceMetadata::pending(&start, number(row, "created_at"))))
            }
        }
    }

    async fn metadata(
        &self,
        operation: &'static str,
        instance: &str,
    ) -> Result<Option<InstanceMetadata>, ProviderError> {
        const SQL: &str = described!("");
        let rows = self.rows(operation, SQL, &[&stored(instance).as_ref()]).await?;
        Ok(rows.first().map(metadata))
    }

    /// Looks at instances that callers wait for. Outputs come along as long as they fit; the first always does.
    pub(crate) async fn awaited(
        &self,
        awaited: &[AwaitedInstance<'_>],
    ) -> Result<Vec<AwaitedLook>, ProviderError> {
        const SQL: &str = "SELECT instance_id, orchestration_name, orchestration_version, parent_instance_id,
                current_execution_id, incarnation, status, CASE WHEN fits THEN output END AS output,
                CASE WHEN fits THEN custom_status END AS custom_status, custom_status_version, created_at, updated_at, place,
                is_known AND fits AS is_told
            FROM (
                SELECT i.*, e.status, e.output, a.place, e.status IS NOT NULL AS is_known,
                    row_number() OVER w = 1 OR $3 >= sum(
                        coalesce(octet_length(e.output), 0) + coalesce(octet_length(i.custom_status), 0)) OVER w AS fits
                FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY a (id, seen, place)
                LEFT JOIN instances i ON i.instance_id = a.id
                LEFT JOIN executions e
                    ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
                WHERE CASE
                    WHEN i.instance_id IS NULL THEN EXISTS (SELECT 1 FROM history h WHERE h.instance_id = a.id)
                    ELSE e.status IS NULL OR e.status NOT IN ('Running', 'ContinuedAsNew')
                        OR i.custom_status_version > a.seen END
                WINDOW w AS (ORDER BY a.place)) found";
        let ids: Vec<_> = awaited.iter().map(|one| stored(one.instance).into_owned()).collect();
        let seen: Vec<_> = awaited.iter().map(|one| one.custom_status_after.map(clamp)).collect();
        let largest = row_limit(AwaitedInstance::LARGEST_ANSWER);
        let rows = self.rows("read_awaited", SQL, &[&ids, &seen, &largest]).await?;
        let mut looks = vec![AwaitedLook::Waiting; awaited.len()];
        for row in &rows {
            let place = usize::try_from(row.get::<_, i64>("place")).unwrap_or(0).saturating_sub(1);
            if let (Some(look), Some(one)) = (looks.get_mut(place), awaited.get(place)) {
                let is_told = row.get::<_, Option<bool>>("is_told") == Some(true);
                *look = if is_told { one.judge(metadata(row)) } else { AwaitedLook::Unclear };
            }
        }
        Ok(looks)
    }

    pub(crate) async fn instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        const OPERATION: &str = "get_instance_info";
        let metadata = self.metadata(OPERATION, instance).await?;
        let metadata = metadata.ok_or_else(|| refusal::instance_not_found(OPERATION, instance))?;
        Ok(InstanceInfo {
            instance_id: metadata.instance_id,
            orchestration_name: metadata.orchestration_name,
            orchestration_version: metadata.orchestration_version,
            current_execution_id: metadata.current_execution_id,
            status: metadata.status,
            output: metadata.output,
            created_at: metadata.created_at,
            updated_at: metadata.updated_at,
            parent_instance_id: metadata.parent_instance_id,
        })
    }

    pub(crate) async fn execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        const SQL: &str = "SELECT status, output, started_at, completed_at,
                (SELECT count(*) FROM history h WHERE h.instance_id = $1 AND h.execution_id = $2) AS events
            FROM executions WHERE instance_id = $1 AND execution_id = $2";
        let not_found = || refusal::execution_not_found(instance, execution_id);
        let stored_id = i64::try_from(execution_id).map_err(|_| not_found())?;
        let rows = self.listing("get_execution_info", SQL, &[&stored(instance).as_ref(), &stored_id]).await?;
        let row = rows.first().ok_or_else(not_found)?;
        Ok(ExecutionInfo {
            execution_id,
            status: text(row, "status"),
            output: optional_text(row, "output"),
            started_at: number(row, "started_at"),
            completed_at: row.get::<_, Option<i64>>("completed_at").map(positive),
            event_count: usize::try_from(number(row, "events")).unwrap_or(usize::MAX),
        })
    }

    /// Reads ids of instances.
    pub(crate) async fn names(
        &self,
        operation: &'static str,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<String>, ProviderError> {
        Ok(self.listing(operation, sql, params).await?.iter().map(|row| text(row, "instance_id")).collect())
    }

    /// Reads ids of instances in bounded parts, from the highest incarnation downwards. The statement's first parameter is
    /// the incarnation to stay below, its second one how many to read; `more` holds the others.
    pub(crate) async fn pages(
        &self,
        operation: &'static str,
        sql: &'static str,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<String>, ProviderError> {
        let (mut below, mut ids) = (i64::MAX, Vec::new());
        loop {
            let params: &[&(dyn ToSql + Sync)] = &[&below, &PAGE];
            let rows = self.listing(operation, sql, &[params, more].concat()).await?;
            ids.extend(rows.iter().map(|row| text(row, "instance_id")));
            match rows.last() {
                Some(last) if rows.len() as i64 == PAGE => below = last.get("incarnation"),
                _ => return Ok(ids),
            }
        }
    }

    pub(crate) async fn system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        const SQL: &str = "SELECT coalesce(sum(instances), 0)::bigint AS instances,
                coalesce(sum(executions), 0)::bigint AS executions,
                coalesce(sum(running_instances), 0)::bigint AS running_instances,
                coalesce(sum(completed_instances), 0)::bigint AS completed_instances,
                coalesce(sum(failed_instances), 0)::bigint AS failed_instances, coalesce(sum(events), 0)::bigint AS events
            FROM (
                SELECT instances, executions, running_instances, completed_instances, failed_instances, events FROM totals
                UNION ALL
                SELECT instances, executions, running_instances, completed_instances, failed_instances, events
                FROM committers) t";
        let rows = self.listing("get_system_metrics", SQL, &[]).await?;
        let Some(row) = rows.first() else { return Ok(SystemMetrics::default()) };
        Ok(SystemMetrics {
            total_instances: number(row, "instances"),
            total_executions: number(row, "executions"),
            running_instances: number(row, "running_instances"),
            completed_instances: number(row, "completed_instances"),
            failed_instances: number(row, "failed_instances"),
            total_events: number(row, "events"),
        })
    }

    /// Counts rows that no worker holds. Few instances are leased at a time, so it counts the held messages by their
    /// leases.
    pub(crate) async fn queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        const SQL: &str = "WITH t AS MATERIALIZED (SELECT now_ms_1($1) AS now)
            SELECT (SELECT count(*) FROM orchestrator_queue) - (
                    SELECT count(*) FROM instance_schedule s, unnest(s.batch) b JOIN orchestrator_queue q ON q.id = b
                    WHERE s.lock_token IS NOT NULL AND s.locked_until > (SELECT now FROM t)) AS messages,
                (SELECT count(*) FROM worker_queue) - (
                    SELECT count(*) FROM worker_queue
                    WHERE lock_token IS NOT NULL AND locked_until > (SELECT now FROM t)) AS activities";
        let rows = self.listing("get_queue_depths", SQL, &[&self.shared.time.given_ms()]).await?;
        let depth = |column: &str| {
            rows.first().and_then(|row| usize::try_from(row.get::<_, i64>(column)).ok()).unwrap_or(0)
        };
        Ok(QueueDepths {
            orchestrator_queue: depth("messages"),
            worker_queue: depth("activities"),
            timer_queue: 0,
        })
    }

    pub(crate) async fn custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        const SQL: &str = "SELECT custom_status, custom_status_version FROM instances
            WHERE instance_id = $1 AND custom_status_version > $2";
        let (instance, seen) = (stored(instance), clamp(last_seen_version));
        let rows = self.rows("get_custom_status", SQL, &[&instance.as_ref(), &seen]).await?;
        Ok(rows
            .first()
            .map(|row| (optional_text(row, "custom_status"), number(row, "custom_status_version"))))
    }

    pub(crate) async fn kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        const SQL: &str =
            "SELECT value, 0 AS layer FROM kv_delta WHERE instance_id = $1 AND text_hash_1(key) = text_hash_1($2)
            UNION ALL SELECT value, 1 FROM kv_store WHERE instance_id = $1 AND text_hash_1(key) = text_hash_1($2)
            ORDER BY layer LIMIT 1";
        let (instance, key) = (stored(instance), stored(key));
        let rows = self.rows("get_kv_value", SQL, &[&instance.as_ref(), &key.as_ref()]).await?;
        Ok(rows.first().and_then(|row| optional_text(row, "value")))
    }

    pub(crate) async fn kv_values(
        &self,
        operation: &'static str,
        instance: &str,
    ) -> Result<HashMap<String, String>, ProviderError> {
        const SQL: &str = "SELECT key, value FROM kv_delta WHERE instance_id = $1 AND value IS NOT NULL
            UNION ALL
            SELECT key, value FROM kv_store s WHERE instance_id = $1 AND NOT EXISTS (
                SELECT 1 FROM kv_delta d WHERE d.instance_id = $1 AND text_hash_1(d.key) = text_hash_1(s.key))";
        let rows = self.rows(operation, SQL, &[&stored(instance).as_ref()]).await?;
        Ok(rows.iter().map(|row| (text(row, "key"), text(row, "value"))).collect())
    }

    pub(crate) async fn instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        const OPERATION: &str = "get_instance_stats";
        const SQL: &str = "SELECT (SELECT count(*) FROM history h
                    WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id) AS events,
                (SELECT coalesce(sum(octet_length(event_data)), 0)::bigint FROM history h
                    WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id) AS bytes,
                (SELECT event_data FROM history h WHERE h.instance_id = i.instance_id
                    AND h.execution_id = i.current_execution_id AND h.event_id = 1) AS first_event
            FROM instances i WHERE i.instance_id = $1";
        let rows = self.listing(OPERATION, SQL, &[&stored(instance).as_ref()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let queue_pending_count = match row.get::<_, Option<&str>>("first_event") {
            None => 0,
            Some(first) => {
                let event: Event = serde_json::from_str(first)
                    .map_err(|error| refusal::undecodable_history(OPERATION, &error.to_string()))?;
                inspect::carried_messages(&event)
            }
        };
        let values = self.kv_values(OPERATION, instance).await?;
        Ok(Some(SystemStats {
            history_event_count: number(row, "events"),
            history_size_bytes: number(row, "bytes"),
            queue_pending_count,
            kv_user_key_count: values.len() as u64,
            kv_total_value_bytes: values.values().map(|value| value.len() as u64).sum(),
        }))
    }

    /// Counts running instances by orchestration and version, those of each up to a bound. Goes through the index from one
    /// version to the next.
    pub(crate) async fn running_instances(
        &self,
        up_to: usize,
    ) -> Result<Vec<RunningInstances>, ProviderError> {
        const SQL: &str = "WITH RECURSIVE parts (name, version) AS (
                (SELECT orchestration_name, orchestration_version FROM instances WHERE listed_status = 'Running'
                    ORDER BY orchestration_name, orchestration_version LIMIT 1)
                UNION ALL
                SELECT n.orchestration_name, n.orchestration_version FROM parts p CROSS JOIN LATERAL (
                    SELECT i.orchestration_name, i.orchestration_version FROM instances i
                    WHERE i.listed_status = 'Running'
                        AND (i.orchestration_name, i.orchestration_version) > (p.name, p.version)
                    ORDER BY i.orchestration_name, i.orchestration_version LIMIT 1) n)
            SELECT name, version, (SELECT count(*) FROM (SELECT FROM instances i WHERE i.listed_status = 'Running'
                AND i.orchestration_name = p.name AND i.orchestration_version = p.version LIMIT $1) bounded) AS instances
            FROM parts p ORDER BY name COLLATE \"C\", version COLLATE \"C\"";
        let rows = self.listing("count_running", SQL, &[&row_limit(up_to)]).await?;
        let read = |row: &Row| RunningInstances {
            orchestration_name: text(row, "name"),
            orchestration_version: text(row, "version"),
            instances: number(row, "instances"),
        };
        Ok(rows.iter().map(read).collect())
    }

    pub(crate) async fn parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        const SQL: &str = window!(
            "id, instance_id, work_item, parked_at",
            "work_item",
            "orchestrator_queue WHERE parked_at IS NOT NULL"
        );
        let rows = self.windows("list_parked", SQL, i64::MIN, limit, &[]).await?;
        let read = |row: &Row| ParkedMessage {
            instance: text(row, "instance_id"),
            raw: row.get("work_item"),
            expires_at: positive(row.get::<_, i64>("parked_at").saturating_add(self.shared.parking_ms)),
        };
        Ok(rows.iter().map(read).collect())
    }

    pub(crate) async fn dropped(&self, limit: usize) -> Result<DroppedMessages, ProviderError> {
        const OPERATION: &str = "list_dropped";
        const TOTAL: &str = "SELECT coalesce(sum(messages), 0)::bigint AS total FROM dropped_totals";
        const NEWEST: &str = "SELECT instance_id, work_item, size, dropped_at FROM dropped_messages
            WHERE dropped_at > now_ms_1($1) - $2 ORDER BY id DESC LIMIT $3";
        let total = self.listing(OPERATION, TOTAL, &[]).await?.first().map_or(0, |row| number(row, "total"));
        let kept_for = whole_ms(DroppedMessage::KEPT_FOR);
        let params: &[&(dyn ToSql + Sync)] =
            &[&self.shared.time.given_ms(), &kept_for, &row_limit(limit.min(DroppedMessage::KEPT))];
        let read = |row: &Row| DroppedMessage {
            instance: text(row, "instance_id"),
            raw: row.get("work_item"),
            size: number(row, "size"),
            dropped_at: number(row, "dropped_at"),
        };
        let newest = match limit {
            0 => Vec::new(),
            _ => self.listing(OPERATION, NEWEST, params).await?.iter().map(read).collect(),
        };
        Ok(DroppedMessages { total, newest })
    }
}
