//! How a store announces that something may have changed, so that no caller has to poll.
//!
//! Both signals may be spurious and are never lost: a caller that first subscribes (or marks what it has seen), then
//! looks, then waits, hears of everything that happened after its look began.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::GatheredLooks;
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
        WorkSignal { clock: self.clock.clone(), wakes: Wakes::WhenTold { state, seen } }
    }
}

/// Wakes a dispatcher when a fetch may find something.
///
/// Use it as *mark, fetch until empty, wait*: anything that becomes ready after the mark ends the wait at once.
pub struct WorkSignal {
    clock: Arc<dyn Clock>,
    wakes: Wakes,
}

/// When a signal wakes.
enum Wakes {
    /// The store notifies it.
    WhenTold { state: watch::Receiver<SignalState>, seen: u64 },
    /// The store cannot notify it, so it wakes some time after the last mark.
    ByTheClock { interval: Duration, marked: Duration },
}

impl WorkSignal {
    /// Makes the signal of a store that cannot signal: it wakes when `interval` has passed since the last mark.
    pub(crate) fn ticking(clock: Arc<dyn Clock>, interval: Duration) -> Self {
        let marked = clock.monotonic();
        Self { clock, wakes: Wakes::ByTheClock { interval, marked } }
    }

    /// Marks the present: only later changes will end a wait.
    pub fn mark_seen(&mut self) {
        match &mut self.wakes {
            Wakes::WhenTold { state, seen } => *seen = state.borrow_and_update().generation,
            Wakes::ByTheClock { marked, .. } => *marked = self.clock.monotonic(),
        }
    }

    /// Returns when the earliest delayed work is due, in milliseconds since the epoch.
    pub fn next_due_ms(&self) -> Option<u64> {
        match &self.wakes {
            Wakes::WhenTold { state, .. } => state.borrow().next_due_ms,
            Wakes::ByTheClock { .. } => None,
        }
    }

    /// Tells whether something may have become ready since the last mark. The signal of a store that cannot signal never
    /// rules it out.
    pub(crate) fn may_have_changed(&self) -> bool {
        match &self.wakes {
            Wakes::WhenTold { state, seen } => {
                let state = *state.borrow();
                state.generation != *seen || state.next_due_ms.is_some_and(|due| due <= self.clock.now_ms())
            }
            Wakes::ByTheClock { .. } => true,
        }
    }

    /// Waits until something may have become ready since the last mark, or until delayed work is due.
    ///
    /// Never returns if the store is gone.
    pub async fn wait(&mut self) {
        match &mut self.wakes {
            Wakes::WhenTold { state, seen } => until_told(state, *seen, &*self.clock).await,
            Wakes::ByTheClock { interval, marked } => {
                self.clock.sleep_until(marked.saturating_add(*interval)).await;
            }
        }
    }
}

async fn until_told(changes: &mut watch::Receiver<SignalState>, seen: u64, clock: &dyn Clock) {
    loop {
        let state = *changes.borrow_and_update();
        if state.generation != seen {
            return;
        }
        let due_in = state.next_due_ms.map(|due| due.saturating_sub(clock.now_ms()));
        if due_in == Some(0) {
            return;
        }
        let sleep = due_in.map(|ms| clock.sleep(Duration::from_millis(ms).min(LONGEST_SLEEP)));
        let sleeper = async {
            match sleep {
                Some(sleep) => sleep.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = sleeper => {}
        }
    }
}

/// The watchers of all instances of a store.
#[derive(Default)]
pub struct InstanceWatchers {
    watched: Mutex<Watched>,
    /// By which name other processes speak of an instance, if not by its id.
    hash: Option<InstanceHash>,
    looks: GatheredLooks,
}

type InstanceHash = Box<dyn Fn(&str) -> u64 + Send + Sync>;

#[derive(Default)]
struct Watched {
    /// With how often each instance has changed.
    by_instance: HashMap<String, watch::Sender<u64>>,
    /// Instances that are watched, by their hashes, if there are any.
    by_hash: HashMap<u64, Vec<String>>,
}

impl InstanceWatchers {
    /// Makes watchers that can also be notified by the hash of an instance's id: for stores whose processes tell each other
    /// of instances where others may listen.
    pub fn with_hash(hash: impl Fn(&str) -> u64 + Send + Sync + 'static) -> Self {
        Self { hash: Some(Box::new(hash)), ..Self::default() }
    }

    /// Returns a watch on one instance; it reports what is notified from now on.
    pub fn watch(self: &Arc<Self>, instance: &str) -> InstanceWatch {
        let hash = self.hash.as_ref().map(|hash| hash(instance));
        let mut watched = self.lock();
        let Watched { by_instance, by_hash } = &mut *watched;
        let sender = by_instance.entry(instance.to_string()).or_insert_with(|| {
            if let Some(hash) = hash {
                by_hash.entry(hash).or_default().push(instance.to_string());
            }
            watch::Sender::new(0)
        });
        let changes = sender.subscribe();
        let seen = *changes.borrow();
        InstanceWatch { changes, seen, instance: instance.to_string(), hash, watchers: self.clone() }
    }

    /// Announces that something about this instance changed.
    pub fn notify(&self, instance: &str) {
        if let Some(sender) = self.lock().by_instance.get(instance) {
            sender.send_modify(|changes| *changes += 1);
        }
    }

    /// Says that something about the instances with this hash changed; see [`with_hash`](Self::with_hash).
    pub fn notify_hash(&self, hash: u64) {
        let watched = self.lock();
        let instances = watched.by_hash.get(&hash).into_iter().flatten();
        for sender in instances.filter_map(|instance| watched.by_instance.get(instance)) {
            sender.send_modify(|changes| *changes += 1);
        }
    }

    /// Returns the hash of an instance's id, if the watchers were made with one.
    pub fn hash_of(&self, instance: &str) -> Option<u64> {
        self.hash.as_ref().map(|hash| hash(instance))
    }

    /// Says that something about any instance may have changed.
    pub fn notify_all(&self) {
        for sender in self.lock().by_instance.values() {
            sender.send_modify(|_| {});
        }
    }

    /// Tells whether there are no watchers; then a store need not gather the changes.
    pub fn is_empty(&self) -> bool {
        self.lock().by_instance.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        // The maps are consistent after every statement, so a panic elsewhere does not spoil them.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a watch was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The instance has changed.
    Certain,
    /// Anything may have changed.
    Possible,
}

/// Wakes a caller that waits for an instance to change: its status, custom status or key-value store.
pub struct InstanceWatch {
    changes: watch::Receiver<u64>,
    seen: u64,
    instance: String,
    hash: Option<u64>,
    watchers: Arc<InstanceWatchers>,
}

impl InstanceWatch {
    /// Waits until the instance may have changed since the watch was made or this last returned.
    pub async fn changed(&mut self) {
        self.next_change().await;
    }

    /// Waits as [`changed`](Self::changed) does, and says what it was told.
    pub(crate) async fn next_change(&mut self) -> Change {
        // The sender lives in the map that `watchers` keeps alive, and leaves it only with the last watch.
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let changes = *self.changes.borrow_and_update();
        let is_certain = changes != self.seen;
        self.seen = changes;
        if is_certain { Change::Certain } else { Change::Possible }
    }

    /// Waits until the instance has certainly changed.
    pub(crate) async fn certain_change(&mut self) {
        while self.next_change().await != Change::Certain {}
    }

    /// Returns the watchers of the store, who look together.
    pub(crate) fn looks(&self) -> Looks {
        Looks(self.watchers.clone())
    }
}

/// The looks of all watchers of a store.
#[derive(Clone)]
pub(crate) struct Looks(Arc<InstanceWatchers>);

impl std::ops::Deref for Looks {
    type Target = GatheredLooks;

    fn deref(&self) -> &GatheredLooks {
        &self.0.looks
    }
}

impl Drop for InstanceWatch {
    fn drop(&mut self) {
        let mut watched = self.watchers.lock();
        let Watched { by_instance, by_hash } = &mut *watched;
        let last = by_instance.get(&self.instance).is_some_and(|sender| sender.receiver_count() <= 1);
        if !last {
            return;
        }
        by_instance.remove(&self.instance);
        if let Some(hash) = self.hash
            && let Some(instances) = by_hash.get_mut(&hash)
        {
            instances.retain(|instance| *instance != self.instance);
            if instances.is_empty() {
                by_hash.remove(&hash);
            }
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
    async fn a_signal_without_a_store_behind_it_ticks_from_mark_to_mark() {
        let clock = Arc::new(ManualClock::new(1_000));
        let mut signal = WorkSignal::ticking(clock.clone(), Duration::from_millis(100));
        clock.advance(Duration::from_millis(60));
        signal.mark_seen();
        clock.advance(Duration::from_millis(99));
        assert!(is_pending(signal.wait()).await && signal.may_have_changed());
        clock.advance(Duration::from_millis(1));
        signal.wait().await;
    }

    #[tokio::test]
    async fn a_signal_knows_without_waiting_whether_anything_may_have_changed() {
        let clock = Arc::new(ManualClock::new(1_000));
        let source = WorkSignalSource::new(clock.clone());
        let mut signal = source.subscribe();
        assert!(!signal.may_have_changed());
        source.notify();
        assert!(signal.may_have_changed());
        signal.mark_seen();
        source.set_next_due(Some(2_000));
        assert!(!signal.may_have_changed());
        clock.advance(Duration::from_secs(1));
        assert!(signal.may_have_changed());
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
    #[tokio::test]
    async fn watchers_can_be_told_by_hashes_and_leave_nothing_behind() {
        // Two instances share a hash; both are woken.
        let watchers = Arc::new(InstanceWatchers::with_hash(|instance| instance.len() as u64));
        let (mut one, mut other, mut third) =
            (watchers.watch("a"), watchers.watch("b"), watchers.watch("long"));
        watchers.notify_hash(1);
        one.changed().await;
        other.changed().await;
        assert!(is_pending(third.changed()).await);
        drop(one);
        watchers.notify_hash(1);
        other.changed().await;
        drop((other, third));
        assert!(watchers.is_empty() && watchers.lock().by_hash.is_empty());
    }

    #[tokio::test]
    async fn a_watch_knows_a_change_of_its_instance_from_one_that_may_be_any() {
        let watchers = Arc::new(InstanceWatchers::default());
        let mut watch = watchers.watch("a");
        watchers.notify_all();
        assert_eq!(watch.next_change().await, Change::Possible);
        watchers.notify("a");
        watchers.notify_all();
        assert_eq!(watch.next_change().await, Change::Certain);
        watchers.notify_all();
        assert!(is_pending(watch.certain_change()).await);
    }
}
