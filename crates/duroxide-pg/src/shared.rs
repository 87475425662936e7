//! The state that all parts of a store share: settings, time, signals, watchers.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::providers::{
    Clock, InstanceWatchers, LocalExchange, RunningActivities, StoreLimits, WorkSignalSource,
};

use crate::clock::DatabaseClock;
use crate::lease_holder::LeaseHolder;
use crate::server_identity::ServerIdentity;
use crate::signals::PendingNotifications;
use crate::waiting_dispatchers::WaitingDispatchers;

/// Settings and signals of one store.
pub(crate) struct Shared {
    pub(crate) time: Time,
    pub(crate) limits: StoreLimits,
    pub(crate) parking_ms: i64,
    /// The server may have forgotten a committer that was away for so long.
    pub(crate) forgotten_after: Duration,
    /// Where this process counts its totals.
    pub(crate) slot: i32,
    pub(crate) instances_ready: DueSignal,
    pub(crate) work_ready: DueSignal,
    pub(crate) watchers: Arc<InstanceWatchers>,
    pub(crate) running: Arc<RunningActivities>,
    pub(crate) notifications: Arc<PendingNotifications>,
    pub(crate) server_identity: Arc<ServerIdentity>,
    /// Turns under commit whose instances have new messages: dispatchers have to look at them when the commit is over.
    pub(crate) turns_in_the_way: TurnsInTheWay,
    /// This handle claims work, so it also reports the store's figures.
    pub(crate) takes_work: AtomicBool,
    /// Where clients and runtimes on this handle meet.
    pub(crate) exchange: Arc<LocalExchange>,
    /// This handle as a holder of leases.
    pub(crate) holder: LeaseHolder,
    /// The orders of dispatchers that wait.
    pub(crate) waiting_dispatchers: WaitingDispatchers,
}

/// What a commit changes beyond its rows: whom the store has to tell.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Dispatchers have to look at instances.
    pub(crate) instances_touched: bool,
    /// When the earliest of the new delayed messages is due.
    pub(crate) next_due: Option<i64>,
    /// An activity may have become ready.
    pub(crate) work_ready: bool,
    /// Instances whose status, custom status or values changed.
    pub(crate) changed_instances: Vec<String>,
}

impl Shared {
    /// Tells dispatchers and watchers, here and in other processes, what a commit changed.
    pub(crate) fn announce(&self, effects: Effects) {
        if self.turns_in_the_way.may_be_over() {
            self.instances_ready.source.notify();
        }
        if effects.next_due.is_some() {
            self.instances_ready.may_be_due_at(effects.next_due);
        }
        if effects.instances_touched {
            self.instances_ready.source.notify();
        }
        if effects.work_ready {
            self.work_ready.source.notify();
        }
        for instance in &effects.changed_instances {
            self.watchers.notify(instance);
        }
        self.notifications.spread(&effects, &self.watchers);
    }

    /// Tells all dispatchers and watchers of this process that anything may have changed.
    pub(crate) fn announce_everything(&self) {
        self.instances_ready.source.notify();
        self.work_ready.source.notify();
        self.watchers.notify_all();
    }
}

/// Turns that a process was committing when a claim met their instances, which have new messages.
///
/// Most commits take a few milliseconds, and one that waits for a lock takes long. So claims look again soon at first, then
/// less and less often, and together: however many meet such a turn, one look is under way.
#[derive(Default)]
pub(crate) struct TurnsInTheWay(Mutex<InTheWay>);

#[derive(Default)]
struct InTheWay {
    /// A claim met such a turn, and this process has committed nothing since.
    met: bool,
    is_look_under_way: bool,
    /// How many looks in a row were in vain.
    looks: u32,
}

const FIRST_LOOK: Duration = Duration::from_millis(3);
const LAST_LOOK: Duration = Duration::from_millis(250);

impl TurnsInTheWay {
    fn lock(&self) -> std::sync::MutexGuard<'_, InTheWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a claim met such a turn. Returns in what time to look again, unless a look is under way.
    pub(crate) fn met(&self) -> Option<Duration> {
        let mut turns = self.lock();
        turns.met = true;
        if std::mem::replace(&mut turns.is_look_under_way, true) {
            return None;
        }
        let pause = FIRST_LOOK.saturating_mul(1 << turns.looks.min(10)).min(LAST_LOOK);
        turns.looks = turns.looks.saturating_add(1);
        Some(pause)
    }

    /// Notes that the look takes place.
    pub(crate) fn looked(&self) {
        self.lock().is_look_under_way = false;
    }

    /// Notes that a claim met no such turn.
    pub(crate) fn are_over(&self) {
        self.lock().looks = 0;
    }

    /// Notes that this process has committed something. Tells whether that may be the turn in the way.
    fn may_be_over(&self) -> bool {
        std::mem::take(&mut self.lock().met)
    }
}

/// A signal and the moment for which it is set.
pub(crate) struct DueSignal {
    pub(crate) source: WorkSignalSource,
    due: Mutex<Option<u64>>,
}

impl DueSignal {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { source: WorkSignalSource::new(clock), due: Mutex::default() }
    }

    /// Sets when to look again, after a fetch has looked.
    pub(crate) fn is_due_at(&self, due: Option<i64>) {
        self.set(|_| due.map(positive));
    }

    /// Notes something new, which may be due earlier than what is known.
    pub(crate) fn may_be_due_at(&self, due: Option<i64>) {
        self.set(|known| known.into_iter().chain(due.map(positive)).min());
    }

    fn set(&self, change: impl FnOnce(Option<u64>) -> Option<u64>) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        *due = change(*due);
        self.source.set_next_due(*due);
    }
}

/// The clock that decides: the database's, or one that a test moves by hand and whose time the store sends with every
/// call.
pub(crate) enum Time {
    Database(Arc<DatabaseClock>),
    Given(Arc<dyn Clock>),
}

impl Time {
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Database(clock) => clock.clone(),
            Self::Given(clock) => clock.clone(),
        }
    }

    /// Returns the time to send with a call; `None` if the database uses its own.
    pub(crate) fn given_ms(&self) -> Option<i64> {
        match self {
            Self::Database(_) => None,
            Self::Given(clock) => Some(clamp(clock.now_ms())),
        }
    }

    pub(crate) fn monotonic(&self) -> Duration {
        match self {
            Self::Database(clock) => clock.monotonic(),
            Self::Given(clock) => clock.monotonic(),
        }
    }

    /// Returns how long a request that arrived at `arrived` has waited.
    pub(crate) fn waited_ms(&self, arrived: Duration) -> i64 {
        whole_ms(self.monotonic().saturating_sub(arrived))
    }

    /// Takes note of the time in an answer.
    pub(crate) fn learn(&self, database_ms: Option<i64>) {
        if let (Self::Database(clock), Some(database_ms)) = (self, database_ms) {
            clock.learn(database_ms);
        }
    }
}

/// Returns the number as the database can hold it.
pub(crate) fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the number as callers see it.
pub(crate) fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The longest duration; a longer one counts as for ever. Its sum with any time does not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Bounds a duration so that it can be added to any time, here and in the database.
pub(crate) fn bounded(duration: Duration) -> Duration {
    duration.min(LONGEST)
}

/// Returns the whole milliseconds of a duration, bounded.
pub(crate) fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(bounded(duration).as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_meet_a_turn_that_hangs_look_again_together_and_less_and_less_often() {
        let turns = TurnsInTheWay::default();
        let mut looks = Vec::new();
        for _ in 0..10 {
            looks.extend(turns.met());
            assert_eq!(turns.met(), None, "a look is under way");
            turns.looked();
        }
        let ms: Vec<u128> = looks.iter().map(Duration::as_millis).collect();
        assert_eq!(ms, [3, 6, 12, 24, 48, 96, 192, 250, 250, 250]);
        assert!(turns.may_be_over() && !turns.may_be_over());
        turns.are_over();
        assert_eq!(turns.met(), Some(FIRST_LOOK));
    }
}
