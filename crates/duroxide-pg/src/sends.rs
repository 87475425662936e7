//! Messages for instances that can take them.

use duroxide::providers::{ProviderError, SendOutcome, WorkItem, inspect, refusal};

use crate::PostgresProvider;
use crate::encode;
use crate::jobs::Params;
use crate::shared_connection::Trials;

/// Looks at the instance of a message, and enqueues the message if there is one that has not ended. [`Verdict`] reads the
/// outcome.
///
/// The statement locks the rows that tell until the commit: a turn that ends the instance at the same time waits for that, and
/// then removes the message with all others. An instance that has ended stays ended, so that answer needs no lock. The statement
/// itself waits for no lock, because it may be part of a transaction that holds others: two such transactions could wait for
/// each other.
const SEND: &str = "SELECT s.outcome, CASE WHEN s.outcome = 1 THEN (
        SELECT count(*) FROM enqueue_messages_3(p_now => $1, p_committer => '', p_epoch => 0, p_batch => NULL,
            p_instance => ARRAY[$2], p_class => ARRAY[$3], p_delay_ms => ARRAY[0::bigint], p_due => ARRAY[0::bigint],
            p_item => ARRAY[$4], p_parent => ARRAY[NULL::text], p_max => 0, p_lease_ms => 0, p_parking_ms => 0,
            p_known => NULL, p_allowed => NULL, p_seed => '')) END
    FROM (
        SELECT CASE
            WHEN running.status IN ('Completed', 'Failed') THEN 2
            WHEN running.status IS NOT NULL THEN 1
            WHEN held.status IN ('Completed', 'Failed') THEN 2
            WHEN held.status IS NOT NULL THEN 3
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
            SELECT e.status FROM instances n
            JOIN executions e ON e.instance_id = n.instance_id AND e.execution_id = n.current_execution_id
            WHERE n.instance_id = $2) held ON true
        LEFT JOIN (
            SELECT q.id FROM orchestrator_queue q
            WHERE q.instance_id = $2 AND q.parked_at IS NULL AND q.class = 'start'
            ORDER BY q.id LIMIT 1 FOR KEY SHARE SKIP LOCKED) start ON true
        OFFSET 0) s";

/// What became of a message, as the statement answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// There is no such instance.
    NotFound,
    Sent,
    /// The instance has ended.
    Ended,
    /// Another transaction holds the rows of the instance.
    Held,
}

impl Verdict {
    fn read(code: i32) -> Self {
        match code {
            0 => Self::NotFound,
            1 => Self::Sent,
            2 => Self::Ended,
            _ => Self::Held,
        }
    }
}

const STILL_HELD: &str =
    "another transaction holds the row of the instance, and this one has waited for it as long as it may";

impl PostgresProvider {
    /// Enqueues a message for an instance that exists and has not ended.
    pub(crate) async fn send_if_alive(&self, message: &WorkItem) -> Result<SendOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_if_alive";
        if !inspect::may_wait_for_its_instance(message) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = encode::message(&self.shared.limits, OPERATION, message)?;
        let mut trials = Trials::new(self.returner.patience);
        loop {
            let params: Params = vec![
                Box::new(self.shared.time.given_ms()),
                Box::new(message.instance.clone()),
                Box::new(message.class),
                Box::new(message.text.clone()),
            ];
            let verdict = self.call(&self.committer, OPERATION, (SEND, params), |rows, effects| {
                let verdict = rows.first().map_or(Verdict::Held, |row| Verdict::read(row.get("outcome")));
                effects.instances_touched |= verdict == Verdict::Sent;
                Ok(verdict)
            });
            match verdict.await? {
                Verdict::NotFound => return Ok(SendOutcome::NotFound),
                Verdict::Sent => return Ok(SendOutcome::Sent),
                Verdict::Ended => return Ok(SendOutcome::Ended),
                Verdict::Held if trials.wait().await => {}
                Verdict::Held => return Err(ProviderError::retryable(OPERATION, STILL_HELD)),
            }
        }
    }
}
