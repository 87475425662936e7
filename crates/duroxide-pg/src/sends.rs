//! Messages for instances that can take them.

use std::time::Duration;

use duroxide::providers::{Clock, ProviderError, SendOutcome, SystemClock, WorkItem, inspect, refusal};

use crate::PostgresProvider;
use crate::encode;
use crate::jobs::Params;

/// Looks at the instance of a message, and enqueues the message if there is one that has not ended: 0 there is none, 1 sent,
/// 2 it has ended, 3 somebody is changing it.
///
/// The rows that tell are locked until the commit: a turn that ends the instance at the same time waits for that, and then removes
/// the message with all others. This statement itself waits for no lock. It may be part of a transaction that holds others,
/// and two that wait for each other would get nowhere.
const SEND: &str = "SELECT s.outcome, CASE WHEN s.outcome = 1 THEN (
        SELECT count(*) FROM enqueue_messages_2($1, '', 0, NULL, ARRAY[$2], ARRAY[$3], ARRAY[0::bigint], ARRAY[0::bigint],
            ARRAY[$4], ARRAY[NULL::text], 0, 0, 0, NULL, NULL, '')) END
    FROM (
        SELECT CASE
            WHEN running.status IN ('Completed', 'Failed') THEN 2
            WHEN running.status IS NOT NULL THEN 1
            WHEN EXISTS (SELECT 1 FROM instances n JOIN executions e
                    ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
                WHERE n.instance_id = $2) THEN 3
            WHEN start.id IS NOT NULL OR EXISTS (SELECT 1 FROM instances n WHERE n.instance_id = $2)
                OR EXISTS (SELECT 1 FROM history h WHERE h.instance_id = $2) THEN 1
            WHEN EXISTS (SELECT 1 FROM orchestrator_queue q
                WHERE q.instance_id = $2 AND q.parked_at IS NULL AND q.class = 'start') THEN 3
            ELSE 0 END AS outcome
        FROM (SELECT 1) one
        LEFT JOIN (
            SELECT e.status FROM instances n
            JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
            WHERE n.instance_id = $2 FOR SHARE OF n, e SKIP LOCKED) running ON true
        LEFT JOIN (
            SELECT q.id FROM orchestrator_queue q
            WHERE q.instance_id = $2 AND q.parked_at IS NULL AND q.class = 'start'
            ORDER BY q.id LIMIT 1 FOR KEY SHARE SKIP LOCKED) start ON true
        OFFSET 0) s";

/// Somebody is changing the instance.
const BUSY: i32 = 3;

/// The pauses before another look at an instance that somebody is changing: as long as a commit takes, and then longer.
const PAUSES_MS: [u64; 14] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 1_000, 1_000, 1_000, 1_000];

impl PostgresProvider {
    /// Enqueues a message for an instance that exists and has not ended.
    pub(crate) async fn send_if_alive(&self, message: &WorkItem) -> Result<SendOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_if_alive";
        if !inspect::may_wait_for_its_instance(message) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = encode::message(&self.shared.limits, OPERATION, message)?;
        for pause_ms in PAUSES_MS {
            let params: Params = vec![
                Box::new(self.shared.time.given_ms()),
                Box::new(message.instance.clone()),
                Box::new(message.class),
                Box::new(message.text.clone()),
            ];
            let code = self.call(&self.committer, OPERATION, (SEND, params), |rows, effects| {
                let code = rows.first().map_or(BUSY, |row| row.get::<_, i32>(0));
                effects.instances_touched |= code == 1;
                Ok(code)
            });
            match code.await? {
                0 => return Ok(SendOutcome::NotFound),
                1 => return Ok(SendOutcome::Sent),
                2 => return Ok(SendOutcome::Ended),
                _ => SystemClock.sleep(Duration::from_millis(pause_ms)).await,
            }
        }
        Err(ProviderError::retryable(OPERATION, "the instance is being changed all the time"))
    }
}
