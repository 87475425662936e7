//! How a store announces that something may have changed, so that no caller has to poll.
//!
//! Both signals may be spurious and are never lost: a caller that first subscribes (or marks what it has seen), then
//! looks, then waits, hears of everything that happened after its look began.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::model::Clock;

/// The wall clock may step while a task waits for a due time; after this long, the task looks at the clock again.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, Default)]
struct SignalState {
    generation: u64,
    next_due_ms: Option<u64>,
}

/// The store's end of a work signal.
pub struct WorkSignalSource {
    state: watch::Sender<SignalState>,
    clock: Arc<dyn Clock>,
}

impl WorkSignalSource {
    /// Makes a signal that measures due times by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: watch::Sender::new(SignalState::default()), clock }
    }

    /// Announces that something may have become ready.
    pub fn notify(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Announces when the earliest delayed work is due, or that there is none.
    ///
    /// A due time that has passed meanwhile counts as a notification: a task that waited for it may not have looked at
    /// the clock yet.
    pub fn set_next_due(&self, next_due_ms: Option<u64>) {
        let now = self.clock.now_ms();
        self.state.send_if_modified(|state| {
            let changed = state.next_due_ms != next_due_ms;
            if changed && state.next_due_ms.is_some_and(|due| due <= now) {
                state.generation += 1;
            }
            state.next_due_ms = next_due_ms;
            changed
        });
    }

    /// Returns when the earliest delayed work is due, as last announced.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.state.borrow().next_due_ms
    }

    /// Returns an end to wait on. It starts as if everything up to now had been seen.
    pub fn subscribe(&self) -> WorkSignal {
        let state = self.state.subscribe();
        let seen = state.borrow().generation;
        WorkSignal { state, seen, clock: self.clock.clone() }
    }
}

/// Wakes a dispatcher when a fetch may find something.
///
/// Use it as *mark, fetch until empty, wait*: anything that becomes ready after the mark ends the wait at once.
pub struct WorkSignal {
    state: watch::Receiver<SignalState>,
    seen: u64,
    clock: Arc<dyn Clock>,
}

impl WorkSignal {
    /// Marks the present: only later changes will end a wait.
    pub fn mark_seen(&mut self) {
        self.seen = self.state.borrow_and_update().generation;
    }

    /// Returns when the earliest delayed work is due, in milliseconds since the epoch.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.state.borrow().next_due_ms
    }

    /// Waits until something may have become ready since the last mark, or until delayed work is due.
    ///
    /// Never returns if the store is gone.
    pub async fn wait(&mut self) {
        loop {
            let state = *self.state.borrow_and_update();
            if state.generation != self.seen {
                return;
            }
            let due_in = state.next_due_ms.map(|due| due.saturating_sub(self.clock.now_ms()));
            if due_in == Some(0) {
                return;
            }
            let sleep = due_in.map(|ms| self.clock.sleep(Duration::from_millis(ms).min(LONGEST_SLEEP)));
            let sleeper = async {
                match sleep {
                    Some(sleep) => sleep.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.state.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                () = sleeper => {}
            }
        }
    }
}

/// The watchers of all instances of a store.
#[derive(Default)]
pub struct InstanceWatchers {
    by_instance: Mutex<HashMap<String, watch::Sender<()>>>,
}

impl InstanceWatchers {
    /// Returns a watch on one instance; it reports the notifications from now on.
    pub fn watch(self: &Arc<Self>, instance: &str) -> InstanceWatch {
        let mut by_instance = self.lock();
        let sender = by_instance.entry(instance.to_string()).or_insert_with(|| watch::Sender::new(()));
        InstanceWatch { changes: sender.subscribe(), instance: instance.to_string(), watchers: self.clone() }
    }

    /// Announces that something about this instance changed.
    pub fn notify(&self, instance: &str) {
        if let Some(sender) = self.lock().get(instance) {
            sender.send_replace(());
        }
    }

    /// Announces that something about any instance may have changed.
    pub fn notify_all(&self) {
        for sender in self.lock().values() {
            sender.send_replace(());
        }
    }

    /// Tells whether there are no watchers; then a store need not gather the changes.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        // The map is consistent after every statement, so a panic elsewhere does not spoil it.
        self.by_instance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a caller that waits for an instance to change: its status, custom status or key-value store.
pub struct InstanceWatch {
    changes: watch::Receiver<()>,
    instance: String,
    watchers: Arc<InstanceWatchers>,
}

impl InstanceWatch {
    /// Waits until the instance may have changed since the watch was made or this last returned.
    pub async fn changed(&mut self) {
        // The sender lives in the map that `watchers` keeps alive, and leaves it only with the last watch.
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for InstanceWatch {
    fn drop(&mut self) {
        let mut by_instance = self.watchers.lock();
        let last = by_instance.get(&self.instance).is_some_and(|sender| sender.receiver_count() <= 1);
        if last {
            by_instance.remove(&self.instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ManualClock;

    async fn is_pending(future: impl Future) -> bool {
        tokio::select! { biased; _ = future => false, () = std::future::ready(()) => true }
    }

    #[tokio::test]
    async fn what_happens_between_mark_and_wait_is_not_lost() {
        let source = WorkSignalSource::new(Arc::new(ManualClock::default()));
        let mut signal = source.subscribe();
        signal.mark_seen();
        source.notify();
        signal.wait().await;
        signal.mark_seen();
        assert!(is_pending(signal.wait()).await);
    }

    #[tokio::test]
    async fn a_due_time_ends_the_wait_when_the_clock_reaches_it() {
        let clock = Arc::new(ManualClock::new(1_000));
        let source = WorkSignalSource::new(clock.clone());
        let mut signal = source.subscribe();
        source.set_next_due(Some(6_000));
        assert!(is_pending(signal.wait()).await);
        clock.advance(Duration::from_secs(5));
        signal.wait().await;
    }

    #[tokio::test]
    async fn a_later_due_time_replaces_an_earlier_one() {
        let clock = Arc::new(ManualClock::new(1_000));
        let source = WorkSignalSource::new(clock.clone());
        let mut signal = source.subscribe();
        source.set_next_due(Some(2_000));
        source.set_next_due(None);
        clock.advance(Duration::from_secs(60));
        assert!(is_pending(signal.wait()).await);
    }

    #[tokio::test]
    async fn a_due_time_that_has_passed_is_not_lost_when_it_is_replaced() {
        let clock = Arc::new(ManualClock::new(1_000));
        let source = WorkSignalSource::new(clock.clone());
        let mut signal = source.subscribe();
        source.set_next_due(Some(2_000));
        clock.advance(Duration::from_secs(1));
        source.set_next_due(Some(60_000));
        signal.wait().await;
        signal.mark_seen();
        assert!(is_pending(signal.wait()).await);
    }

    #[tokio::test]
    async fn watchers_hear_only_of_their_instance_and_leave_nothing_behind() {
        let watchers = Arc::new(InstanceWatchers::default());
        let mut first = watchers.watch("a");
        let mut second = watchers.watch("a");
        watchers.notify("b");
        assert!(is_pending(first.changed()).await);
        watchers.notify("a");
        first.changed().await;
        second.changed().await;
        drop(first);
        assert!(!watchers.is_empty());
        drop(second);
        assert!(watchers.is_empty());
    }
}
