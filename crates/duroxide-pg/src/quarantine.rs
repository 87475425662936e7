//! The quarantine: lists rows that do not decode, puts them back into their queues, and removes them.

use std::collections::HashSet;

use duroxide::providers::inspect::MessageClass;
use duroxide::providers::{
    ProviderError, QuarantineEntry, QuarantinePurge, QuarantineRetry, QuarantinedRow, WorkQueue,
    decode_quarantined,
};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::encode::{self, NewActivity, NewMessage};
use crate::functions::{Function, OwnedParam, owned_params};
use crate::reads::{number, optional_text};
use crate::shared::{Effects, clamp, positive};
use crate::windows::window;

const LIST: &str = window!(
    "id, queue, instance_id, work_item, reason, quarantined_at",
    "work_item",
    "quarantine WHERE true"
);
const READ: &str = window!(
    "id, queue, instance_id, work_item, reason, quarantined_at",
    "work_item",
    "quarantine WHERE id = ANY ($3)"
);
static RETRY: Function = Function::value("retry_quarantined_1");
static PURGE: Function = Function::value("purge_quarantined_1");

/// The columns of rows that go back into their queues.
#[derive(Default)]
struct Retries {
    id: Vec<i64>,
    instance: Vec<String>,
    class: Vec<Option<&'static str>>,
    due: Vec<i64>,
    parent: Vec<Option<String>>,
    execution: Vec<i64>,
    activity: Vec<i64>,
    session: Vec<Option<String>>,
    route: Vec<String>,
}

impl Retries {
    fn add_message(&mut self, id: i64, message: NewMessage) {
        self.id.push(id);
        self.instance.push(message.instance);
        // An operator who retries a message does not want the store to drop it.
        let is_droppable = message.class == MessageClass::Queue.as_str();
        self.class.push(Some(if is_droppable { MessageClass::Signal.as_str() } else { message.class }));
        self.due.push(message.due_at);
        self.parent.push(message.parent);
        self.execution.push(0);
        self.activity.push(0);
        self.session.push(None);
        self.route.push(String::new());
    }

    fn add_activity(&mut self, id: i64, activity: NewActivity) {
        self.id.push(id);
        self.instance.push(activity.instance);
        self.class.push(None);
        self.due.push(0);
        self.parent.push(None);
        self.execution.push(activity.execution_id);
        self.activity.push(activity.activity_id);
        self.session.push(activity.session_id);
        self.route.push(activity.route);
    }

    fn into_params(self, now: Option<i64>) -> Vec<OwnedParam> {
        owned_params![
            p_now: now,
            p_id: self.id,
            p_instance: self.instance,
            p_class: self.class,
            p_due: self.due,
            p_parent: self.parent,
            p_execution: self.execution,
            p_activity: self.activity,
            p_session: self.session,
            p_route: self.route,
        ]
    }
}

impl PostgresProvider {
    /// Lists the rows in quarantine, oldest first.
    pub(crate) async fn quarantine(
        &self,
        operation: &'static str,
        after_id: u64,
        limit: usize,
    ) -> Result<Vec<QuarantineEntry>, ProviderError> {
        let rows = self.windows(operation, LIST, clamp(after_id), limit, &[]).await?;
        Ok(rows.iter().map(entry).collect())
    }

    /// Puts rows back at the end of their queues, as if they had never been delivered.
    pub(crate) async fn retry_rows(&self, ids: &[u64]) -> Result<Vec<QuarantineRetry>, ProviderError> {
        const OPERATION: &str = "retry_quarantined";
        let stored: Vec<i64> = ids.iter().map(|id| clamp(*id)).collect();
        let rows = self.windows(OPERATION, READ, i64::MIN, stored.len(), &[&stored]).await?;
        let entries: Vec<QuarantineEntry> = rows.iter().map(entry).collect();
        let (mut retries, mut answers) = (Retries::default(), Vec::with_capacity(ids.len()));
        for id in ids {
            let found = entries.binary_search_by_key(id, |entry| entry.id).ok();
            // A row goes back once, however often the caller names it.
            let entry = found.and_then(|at| entries.get(at)).filter(|_| !retries.id.contains(&clamp(*id)));
            answers.push(match entry {
                None => QuarantineRetry::NotFound,
                Some(entry) => match self.add_retry(&mut retries, &entry.row, clamp(*id)) {
                    Ok(()) => QuarantineRetry::Enqueued,
                    Err(reason) => QuarantineRetry::Kept { reason },
                },
            });
        }
        if retries.id.is_empty() {
            return Ok(answers);
        }
        let params = retries.into_params(self.shared.time.given_ms());
        let read = |rows: Vec<Row>, effects: &mut Effects| {
            effects.instances_touched = true;
            effects.work_ready = true;
            let retried: Vec<i64> = rows.first().map(|row| row.get(0)).unwrap_or_default();
            Ok(retried.into_iter().map(positive).collect::<HashSet<u64>>())
        };
        let retried = self.call(&self.committer, OPERATION, RETRY.call(params), read).await?;
        for (id, answer) in ids.iter().zip(&mut answers) {
            // Another process has put it back, or removed it, in the meantime.
            if *answer == QuarantineRetry::Enqueued && !retried.contains(id) {
                *answer = QuarantineRetry::NotFound;
            }
        }
        Ok(answers)
    }

    fn add_retry(&self, retries: &mut Retries, row: &QuarantinedRow, id: i64) -> Result<(), String> {
        const OPERATION: &str = "retry_quarantined";
        let item = decode_quarantined(row.queue, &row.raw)?;
        let refused = |error: ProviderError| error.message;
        let limits = &self.shared.limits;
        match row.queue {
            WorkQueue::Orchestrator => {
                retries.add_message(id, encode::message(limits, OPERATION, &item).map_err(refused)?);
            }
            WorkQueue::Worker => {
                retries.add_activity(
                    id,
                    encode::activity(limits, OPERATION, &item, None, None).map_err(refused)?,
                );
            }
        }
        Ok(())
    }

    /// Removes rows for good.
    pub(crate) async fn purge_rows(&self, purge: QuarantinePurge<'_>) -> Result<u64, ProviderError> {
        let (ids, before): (Vec<i64>, Option<i64>) = match purge {
            QuarantinePurge::Ids(ids) => (ids.iter().map(|id| clamp(*id)).collect(), None),
            QuarantinePurge::SetAsideBefore(time) => (Vec::new(), Some(clamp(time))),
        };
        let params = owned_params![p_ids: ids, p_before: before];
        let read = |rows: Vec<Row>, _: &mut Effects| Ok(rows.first().map_or(0, |row| positive(row.get(0))));
        self.call(&self.removals, "purge_quarantined", PURGE.call(params), read).await
    }
}

fn entry(row: &Row) -> QuarantineEntry {
    let queue = match row.get("queue") {
        "worker_queue" => WorkQueue::Worker,
        _ => WorkQueue::Orchestrator,
    };
    let row_set_aside = QuarantinedRow {
        queue,
        instance: optional_text(row, "instance_id"),
        raw: row.get("work_item"),
        reason: row.get("reason"),
        quarantined_at: number(row, "quarantined_at"),
    };
    QuarantineEntry { id: number(row, "id"), row: row_set_aside }
}
