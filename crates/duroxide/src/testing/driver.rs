//! Moves the time of a test: waits until nothing happens, then skips to whatever is next.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::calls::Calls;
use super::clock::WaitingClock;
use super::script::Script;
use crate::client::Client;
use crate::model::{Clock, ManualClock, whole_ms};
use crate::providers::memory::{MemoryProvider, Quiescence};

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

    /// Skips to whatever is next: work that becomes due, an act of the script, or the end of somebody's wait. Call it only
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
