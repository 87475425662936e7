//! Heartbeats of runtimes. Under load a heartbeat joins the next commit of other requests. Without load it is a commit of its
//! own that does not wait for the disk.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duroxide::model::Obstacle;
use duroxide::providers::{Clock, ProviderError, SystemClock, WorkerReport};
use tokio_postgres::types::ToSql;

use crate::PostgresProvider;
use crate::functions::{Function, owned_params, params};
use crate::jobs::{CallOf, Job, Params, Reply};
use crate::reads::named;
use crate::shared::{Effects, clamp};
use crate::text::{stored, stored_owned};

/// How long a heartbeat waits for a commit of others.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a heartbeat is a commit of its own, whatever the load: only then the server also removes what is out of date, dead
/// runtimes after ten minutes and the rates of a minute after a day.
const ALONE_EVERY: Duration = Duration::from_secs(300);

/// A heartbeat among the statements of others. No other process writes to this row, so none of them waits for it.
const SEEN: &str = "INSERT INTO workers AS w (worker_id, last_seen_at, info)
    SELECT $1::text, now_ms_1($2::bigint), $3::text WHERE {in our session}
    ON CONFLICT (worker_id) DO UPDATE SET last_seen_at = excluded.last_seen_at, info = excluded.info RETURNING 1";

static ALONE: Function = Function::value("report_worker_1");
static RETIRE: Function = Function::value("retire_worker_1");

/// What the store has seen when it took its last heartbeats.
#[derive(Default)]
pub(crate) struct Heartbeats {
    last: Mutex<Last>,
    /// The heartbeats that wait for a commit or are part of one, also those whose callers have gone away meanwhile.
    joining: AtomicUsize,
}

#[derive(Default)]
struct Last {
    /// The last batch that the committer had sent.
    batch: i64,
    /// When a heartbeat was last a commit of its own, by the machine's clock.
    alone_at: Option<Duration>,
}

impl Heartbeats {
    /// Tells whether a heartbeat may wait for the commit of others, if `sent` is the last batch that was sent.
    fn may_join(&self, sent: i64) -> bool {
        let now = SystemClock.monotonic();
        let mut last = self.last();
        let is_under_load = std::mem::replace(&mut last.batch, sent) < sent;
        is_under_load && last.alone_at.is_some_and(|at| now.saturating_sub(at) < ALONE_EVERY)
    }

    fn note_alone(&self) {
        self.last().alone_at = Some(SystemClock.monotonic());
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PostgresProvider {
    pub(crate) async fn take_report(&self, report: &WorkerReport) -> Result<(), ProviderError> {
        let is_under_load = self.heartbeats.may_join(self.committer.sent());
        // Others may write about the same obstacles, and no commit shall wait for them.
        if is_under_load
            && report.obstacles.is_empty()
            && let Some(joined) = self.join_others(report).await
        {
            return joined;
        }
        self.report_alone(report).await?;
        self.heartbeats.note_alone();
        Ok(())
    }

    /// Waits for a commit of others and takes part in it; `None` if there is none.
    async fn join_others(&self, report: &WorkerReport) -> Option<Result<(), ProviderError>> {
        let worker_id = stored(&report.worker.id).into_owned();
        let params: Params =
            vec![Box::new(worker_id), Box::new(self.shared.time.given_ms()), Box::new(info(report))];
        let (reply, answer) = Reply::new("report");
        let read = |_, _: &mut Effects| Ok(());
        let call = CallOf { sql: SEEN, params, read, noted: None, reply };
        self.heartbeats.joining.fetch_add(1, Ordering::SeqCst);
        let joined = self.committer.join_batch("report", Job::Call(Box::new(call)), answer, PATIENCE).await;
        self.heartbeats.joining.fetch_sub(1, Ordering::SeqCst);
        joined
    }

    /// Removes a runtime that ends.
    pub(crate) async fn take_leave(&self, worker_id: &str) -> Result<(), ProviderError> {
        if self.heartbeats.joining.load(Ordering::SeqCst) > 0 {
            // A commit under way may have the last heartbeat of a runtime whose tasks have ended. This waits for it.
            let (reply, answer) = Reply::new("retire");
            self.committer.submit("retire", Job::Sync(reply), answer).await?;
        }
        let worker_id = stored(worker_id).into_owned();
        let (sql, values) = RETIRE.call(params![p_worker: worker_id]);
        self.returner.connection.query(sql, &values).await.map_err(named("retire")).map(drop)
    }

    async fn report_alone(&self, report: &WorkerReport) -> Result<(), ProviderError> {
        let obstacles = &report.obstacles;
        let texts = |of: &dyn Fn(&Obstacle) -> String| -> Vec<String> {
            obstacles.iter().map(|obstacle| stored_owned(of(obstacle))).collect()
        };
        let numbers = |of: &dyn Fn(&Obstacle) -> u64| -> Vec<i64> {
            obstacles.iter().map(|obstacle| clamp(of(obstacle))).collect()
        };
        let versions: Vec<Option<String>> =
            obstacles.iter().map(|obstacle| obstacle.version.clone().map(stored_owned)).collect();
        let params = owned_params![
            p_now: self.shared.time.given_ms(),
            p_worker: stored(&report.worker.id).into_owned(),
            p_info: info(report),
            p_forgotten_ms: clamp(Obstacle::FORGOTTEN_AFTER_MS),
            p_instance: texts(&|obstacle| obstacle.instance.clone()),
            p_execution: numbers(&|obstacle| obstacle.execution_id),
            p_activity: numbers(&|obstacle| obstacle.activity_id.unwrap_or_default()),
            p_kind: texts(&|obstacle| obstacle.kind.as_str().to_string()),
            p_name: texts(&|obstacle| obstacle.name.clone()),
            p_version: versions,
            p_reason: texts(&|obstacle| obstacle.reason.clone()),
            p_attempts: numbers(&|obstacle| u64::from(obstacle.attempts)),
            p_since: numbers(&|obstacle| obstacle.since_ms),
            p_next_try: numbers(&|obstacle| obstacle.next_try_ms),
        ];
        let (sql, values) = ALONE.call(params);
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
        self.returner.connection.query(sql, &values).await.map_err(named("report")).map(drop)
    }
}

/// What a runtime tells about itself, as the column holds it.
fn info(report: &WorkerReport) -> String {
    serde_json::to_string(&report.worker).unwrap_or_default()
}
