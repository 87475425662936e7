//! The clock of a test: it stands still until the driver moves it, and knows who waits on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::{Clock, ClockSleep, ManualClock};

/// The clock of clients and mocks: time may skip ahead to whatever they wait for, and no further.
///
/// The runtime waits on the plain clock below it. Its own waits, such as a look every 30 seconds, do not hold the test up.
#[derive(Clone)]
pub(super) struct WaitingClock {
    time: Arc<ManualClock>,
    deadlines: Arc<Mutex<Deadlines>>,
}

#[derive(Default)]
struct Deadlines {
    by_id: BTreeMap<u64, Duration>,
    next_id: u64,
}

impl WaitingClock {
    pub fn new(time: Arc<ManualClock>) -> Self {
        Self { time, deadlines: Arc::default() }
    }

    /// Returns the earliest time to come that a task waits for.
    pub fn next_deadline(&self) -> Option<Duration> {
        let now = self.time.monotonic();
        self.lock().by_id.values().copied().filter(|deadline| *deadline > now).min()
    }

    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A deadline, as long as a task waits for it.
struct Waiting {
    clock: WaitingClock,
    id: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.clock.lock().by_id.remove(&self.id);
    }
}

impl Clock for WaitingClock {
    fn now_ms(&self) -> u64 {
        self.time.now_ms()
    }

    fn monotonic(&self) -> Duration {
        self.time.monotonic()
    }

    fn sleep_until(&self, deadline: Duration) -> ClockSleep {
        let sleep = self.time.sleep_until(deadline);
        let id = {
            let mut deadlines = self.lock();
            let id = deadlines.next_id;
            deadlines.next_id += 1;
            deadlines.by_id.insert(id, deadline);
            id
        };
        let waiting = Waiting { clock: self.clone(), id };
        Box::pin(async move {
            sleep.await;
            drop(waiting);
        })
    }
}
