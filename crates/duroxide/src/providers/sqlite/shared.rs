//! The state that the writer thread and the provider's methods share: settings, signals, watchers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rusqlite::Connection;

use super::Durability;
use super::owners::Owners;
use super::work_done::Ledger;
use super::write_transaction::Effects;
use crate::model::Clock;
use crate::providers::{
    InstanceWatchers, LocalExchange, RunningActivities, StoreLimits, StoreMetrics, WorkSignalSource,
};

/// When dispatchers look again if the store could not read the next due time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Settings and signals of one store.
pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) durability: Durability,
    pub(super) limits: StoreLimits,
    pub(super) parking_time: Duration,
    /// How long a write waits for another process.
    pub(super) busy_timeout: Duration,
    /// Whether other processes may write to the same database, and commits need a sync.
    pub(super) is_file: bool,
    /// `None` if other processes could not notice the death of this one.
    pub(super) owners: Option<Arc<Owners>>,
    pub(super) orchestrator_signal: WorkSignalSource,
    pub(super) worker_signal: WorkSignalSource,
    pub(super) watchers: Arc<InstanceWatchers>,
    pub(super) running: Arc<RunningActivities>,
    pub(super) exchange: Arc<LocalExchange>,
    pub(super) ledger: Ledger,
    /// This handle claims work, so it also tells how the store is.
    pub(super) takes_work: AtomicBool,
}

impl Shared {
    /// What this store tells of itself.
    pub(super) const METRICS: StoreMetrics = StoreMetrics::new("sqlite");

    /// The wall time, as it is stored.
    pub(super) fn now_ms(&self) -> i64 {
        clamp_ms(self.clock.now_ms())
    }

    /// Signals the changes of a commit to dispatchers and watchers.
    pub(super) fn announce(&self, effects: Effects, connection: &Connection) {
        self.announce_dues(&effects, connection);
        if effects.instances_left || !effects.ready_instances.is_empty() {
            self.orchestrator_signal.notify();
        }
        if effects.work_ready || !effects.ready_work.is_empty() {
            self.worker_signal.notify();
        }
        for instance in &effects.changed_instances {
            self.watchers.notify(instance);
        }
    }

    /// Tells waiting dispatchers of an earlier time at which to look again. If the row of that time is gone by then,
    /// the time wakes them once for nothing; then the store reads the next time from the tables.
    fn announce_dues(&self, effects: &Effects, connection: &Connection) {
        let now = self.clock.now_ms();
        let has_passed = |signal: &WorkSignalSource| signal.next_due_ms().is_some_and(|due| due <= now);
        if has_passed(&self.orchestrator_signal) || has_passed(&self.worker_signal) {
            return self.announce_due_times(connection);
        }
        for (signal, due) in
            [(&self.orchestrator_signal, effects.instances_due), (&self.worker_signal, effects.work_due)]
        {
            if let Some(due) = due.0.map(|due| u64::try_from(due).unwrap_or(0))
                && signal.next_due_ms().is_none_or(|known| due < known)
            {
                signal.set_next_due(Some(due));
            }
        }
    }

    /// Signals all dispatchers and watchers that anything may have changed.
    pub(super) fn announce_everything(&self) {
        self.orchestrator_signal.notify();
        self.worker_signal.notify();
        self.watchers.notify_all();
    }

    /// Tells waiting dispatchers when the earliest delayed work is due. If the store cannot read that time, they look
    /// for themselves in a moment, because a forgotten due time would never come.
    pub(super) fn announce_due_times(&self, connection: &Connection) {
        let soon = self.clock.now_ms().saturating_add(crate::model::whole_ms(LOOK_AGAIN));
        let earliest = |sql| -> Option<u64> {
            let due = connection.prepare_cached(sql).and_then(|mut s| s.query_row([], |row| row.get(0)));
            match due {
                Ok(due) => Option::<i64>::map(due, |due| u64::try_from(due).unwrap_or(0)),
                Err(error) => {
                    tracing::warn!(target: "duroxide::providers::sqlite", %error, "due times cannot be read");
                    Some(soon)
                }
            }
        };
        self.orchestrator_signal
            .set_next_due(earliest("SELECT min(due_at) FROM instance_schedule WHERE due_at IS NOT NULL"));
        let work = earliest("SELECT min(due_at) FROM worker_queue WHERE due_at IS NOT NULL");
        let session = earliest("SELECT min(due_at) FROM sessions WHERE due_at IS NOT NULL");
        self.worker_signal.set_next_due(work.into_iter().chain(session).min());
    }
}

/// A time or duration in milliseconds as SQLite can hold it.
pub(super) fn clamp_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// `now` plus a duration, clamped.
pub(super) fn after(now_ms: i64, duration: Duration) -> i64 {
    now_ms.saturating_add(clamp_ms(crate::model::whole_ms(duration)))
}
