//! The statements of the bare loop: one row each, in the store's own tables.

use tokio_postgres::{Client, Statement};

use crate::Outcome;

/// Prepared once. The loop makes up the ids of messages and activities, for it waits for no answer.
pub struct Rows {
    pub message: Statement,
    pub message_gone: Statement,
    pub placed: Statement,
    pub turn_leased: Statement,
    pub turn_over: Statement,
    pub event: Statement,
    pub instance: Statement,
    pub instance_changed: Statement,
    pub execution: Statement,
    pub execution_ended: Statement,
    pub activity: Statement,
    pub activity_leased: Statement,
    pub activity_gone: Statement,
    pub arrivals: Statement,
    pub arrivals_gone: Statement,
    pub committer: Statement,
}

impl Rows {
    pub async fn prepare(sql: &Client) -> Outcome<Self> {
        let prepared = async |statement: &str| sql.prepare(statement).await;
        Ok(Self {
            message: prepared(
                "INSERT INTO orchestrator_queue (id, instance_id, class, created_at, work_item)
                 OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, $5)",
            )
            .await?,
            message_gone: prepared("DELETE FROM orchestrator_queue WHERE id = $1").await?,
            placed: prepared("INSERT INTO instance_schedule (instance_id, class, ready_seq) VALUES ($1, $2, $3)")
                .await?,
            turn_leased: prepared(
                "UPDATE instance_schedule SET ready_seq = NULL, due_at = $3, lock_token = $2, locked_until = $3,
                    locked_at = $4, batch = ARRAY[$5::bigint] WHERE instance_id = $1",
            )
            .await?,
            turn_over: prepared("DELETE FROM instance_schedule WHERE instance_id = $1").await?,
            event: prepared(
                "INSERT INTO history (instance_id, execution_id, event_id, event_type, created_at, event_data)
                 VALUES ($1, 1, $2, $3, $4, $5)",
            )
            .await?,
            instance: prepared(
                "INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at,
                    pinned_version) VALUES ($1, $2, $3, $4, $4, $5)",
            )
            .await?,
            instance_changed: prepared("UPDATE instances SET updated_at = $2 WHERE instance_id = $1").await?,
            execution: prepared(
                "INSERT INTO executions (instance_id, execution_id, started_at, duroxide_version_major,
                    duroxide_version_minor, duroxide_version_patch) VALUES ($1, 1, $2, $3, $4, $5)",
            )
            .await?,
            execution_ended: prepared(
                "UPDATE executions SET status = 'Completed', output = $2, completed_at = $3
                 WHERE instance_id = $1 AND execution_id = 1",
            )
            .await?,
            activity: prepared(
                "INSERT INTO worker_queue (id, instance_id, execution_id, activity_id, created_at, work_item)
                 OVERRIDING SYSTEM VALUE VALUES ($1, $2, 1, $3, $4, $5)",
            )
            .await?,
            activity_leased: prepared(
                "UPDATE worker_queue SET lock_token = $2, locked_until = $3, due_at = $3,
                    attempt_count = attempt_count + 1 WHERE id = $1",
            )
            .await?,
            activity_gone: prepared("DELETE FROM worker_queue WHERE id = $1").await?,
            arrivals: prepared("INSERT INTO arrivals (id, instances) OVERRIDING SYSTEM VALUE VALUES ($1, $2)").await?,
            arrivals_gone: prepared("DELETE FROM arrivals WHERE id = $1").await?,
            committer: prepared(
                "UPDATE committers SET batch = $1, instances = instances + $2, executions = executions + $2,
                    events = events + $3, running_instances = running_instances + $2 - $4,
                    completed_instances = completed_instances + $4
                 WHERE committer = 'bare'",
            )
            .await?,
        })
    }
}
