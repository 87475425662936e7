//! Moves the time of a test: waits until nothing happens, then skips to whatever is next.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::calls::Calls;
use super::clock::WaitingClock;
use super::script::Script;
use crate::client::Client;
use crate::model::{Clock, ManualClock, QueuedActivity, whole_ms};
use crate::providers::memory::{MemoryProvider, Quiescence};
use crate::registry::ActivityRegistry;

/// How often the test's own future is polled after the last change before time skips: what a commit has woken gets its
/// turn first.
const POLLS_BEFORE_SKIP: usize = 20;

/// Moves the time of one environment.
pub(super) struct Driver {
    pub time: Arc<ManualClock>,
    pub waiting: WaitingClock,
    pub store: Arc<MemoryProvider>,
    pub calls: Calls,
    pub script: Script,
    pub client: Client,
    pub activities: ActivityRegistry,
    /// Whether an activity that nobody gave waits for ever, and does not fail after some attempts.
    pub blocks_on_unregistered: bool,
    /// How long the lease on an activity lasts.
    pub lease: Duration,
}

/// What happens after time has skipped.
pub(super) enum Skipped {
    /// Something is due.
    Ahead,
    /// Nothing will ever be.
    Nowhere,
}

impl Driver {
    /// Waits until nothing runs and nothing is ready.
    pub async fn quiet(&self) {
        let mut pulse = self.store.pulse();
        loop {
            pulse.borrow_and_update();
            if self.now().busy_with.is_none() {
                return;
            }
            // The sender lives as long as the store.
            let _ = pulse.changed().await;
        }
    }

    fn now(&self) -> Quiescence {
        self.store.quiescence(|id| self.calls.is_dozing(id), whole_ms(self.lease / 2))
    }

    /// Tells which activity waits that nobody gave, of this instance or of any. No time brings its result. A test that lets time
    /// pass until then would never end, because each look at the activity is followed by another.
    pub fn forgotten(&self, instance: Option<&str>) -> Option<String> {
        if !self.blocks_on_unregistered {
            return None;
        }
        let mut idle = self.store.idle_activities().into_iter();
        let of = |queued: &QueuedActivity| instance.is_none_or(|instance| queued.instance == instance);
        let forgotten = idle.find(|queued| of(queued) && !self.activities.knows(&queued.name))?;
        let (name, instance) = (&forgotten.name, &forgotten.instance);
        let registered = self.activities.describe_missing(name, None);
        Some(format!(
            "activity '{name}' of '{instance}' is neither registered nor mocked; {registered}; \
             `Mock::never()` is one that gets no answer"
        ))
    }

    /// Skips to whatever is next: work that becomes due, an act of the script, or the end of a client's wait. Call it only
    /// when nothing happens.
    pub async fn skip(&self) -> Skipped {
        let now = self.time.monotonic();
        let quiescence = self.now();
        let in_store = quiescence.next_due_ms.map(|due| {
            let in_ms = due.saturating_sub(self.time.now_ms());
            now.saturating_add(Duration::from_millis(in_ms))
        });
        let events = [in_store, self.script.next(), self.waiting.next_deadline()];
        let Some(next) = events.into_iter().flatten().min() else { return Skipped::Nowhere };
        // The leases of activities that only wait are renewed on the way.
        let next = if quiescence.dozing > 0 { next.min(now.saturating_add(self.lease / 4)) } else { next };
        self.time.advance(next.saturating_sub(now));
        for act in self.script.take_due(next) {
            act(self.client.clone()).await;
        }
        Skipped::Ahead
    }

    /// Skips ahead until a look finds what it looks for. Looks only when nothing happens. `None` if nothing will ever
    /// happen any more.
    pub async fn until<T>(&self, look: impl AsyncFn() -> Option<T>) -> Option<T> {
        loop {
            self.quiet().await;
            if let Some(found) = look().await {
                return Some(found);
            }
            if let Skipped::Nowhere = self.skip().await {
                return None;
            }
        }
    }

    /// Runs a future, and skips ahead whenever it waits and nothing happens.
    ///
    /// # Panics
    /// If it waits and there is an activity that nobody gave.
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut pulse = self.store.pulse();
        loop {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = self.quiet() => {}
            }
            pulse.borrow_and_update();
            for _ in 0..POLLS_BEFORE_SKIP {
                tokio::select! {
                    biased;
                    output = &mut future => return output,
                    () = tokio::task::yield_now() => {}
                }
            }
            if self.now().busy_with.is_some() || pulse.has_changed().unwrap_or(false) {
                continue;
            }
            if let Some(forgotten) = self.forgotten(None) {
                panic!("{forgotten}");
            }
            if let Skipped::Nowhere = self.skip().await {
                tokio::select! {
                    biased;
                    output = &mut future => return output,
                    _ = pulse.changed() => {}
                }
            }
        }
    }
}
