//! Signals of stores, and those who wait for them.

use std::time::Duration;

use duroxide::providers::{Clock, ManualClock};

use super::{InstanceWatchers, WorkSignalSource};
use crate::interleave::sync::{Arc, Mutex, a_while, atomic, below};

/// Work of a store, by the time at which it is due.
struct Queue {
    clock: Arc<ManualClock>,
    due: Mutex<Vec<u64>>,
    signal: WorkSignalSource,
}

impl Queue {
    /// Adds work, and announces what is due and what will be, as the stores do: in one step, by one look at the clock.
    fn add(&self, delay_ms: u64) {
        let mut due = self.due.lock().unwrap();
        let now = self.clock.now_ms();
        due.push(now + delay_ms);
        self.announce_next(&due, now);
        if due.iter().any(|at| *at <= now) {
            self.signal.notify();
        }
    }

    /// Takes what is due. That makes nothing ready, and so wakes nobody.
    fn take(&self) -> usize {
        let mut due = self.due.lock().unwrap();
        let now = self.clock.now_ms();
        let before = due.len();
        due.retain(|at| *at > now);
        self.announce_next(&due, now);
        before - due.len()
    }

    /// Renews some lease. That makes nothing ready either.
    fn renew(&self) {
        let due = self.due.lock().unwrap();
        let now = self.clock.now_ms();
        self.announce_next(&due, now);
    }

    fn announce_next(&self, due: &[u64], now: u64) {
        self.signal.set_next_due(due.iter().copied().filter(|at| *at > now).min());
    }
}

/// Some add work, at once or for later, or renew leases; time goes on; one takes the work, and waits in between. It takes
/// everything.
pub fn announcements_and_due_times() {
    const SECOND: u64 = 1_000;
    let clock = Arc::new(ManualClock::default());
    let signal = WorkSignalSource::new(clock.clone());
    let queue = Arc::new(Queue { clock: clock.clone(), due: Mutex::default(), signal });
    let mut wake_up = queue.signal.subscribe();
    let producers = [[0, 2 * SECOND], [SECOND, 3 * SECOND]].map(|delays| {
        let queue = queue.clone();
        shuttle::future::spawn(async move {
            for delay in delays {
                a_while().await;
                queue.add(delay);
            }
        })
    });
    let renewing = queue.clone();
    shuttle::future::spawn(async move {
        for _ in 0..4 {
            a_while().await;
            renewing.renew();
        }
    });
    shuttle::future::spawn(async move {
        for _ in 0..4 {
            a_while().await;
            clock.advance(Duration::from_millis(SECOND));
        }
        for producer in producers {
            producer.await.unwrap();
        }
        // Everything is due after that.
        clock.advance(Duration::from_millis(3 * SECOND));
    });
    shuttle::future::block_on(async {
        let mut taken = 0;
        loop {
            wake_up.mark_seen();
            taken += queue.take();
            if taken == 4 {
                return;
            }
            wake_up.wait().await;
        }
    });
}

/// Watches of one instance come and go while it changes. Whoever still watches sees the last change.
pub fn watches_that_come_and_go() {
    const LAST: usize = 3;
    let watchers = Arc::new(InstanceWatchers::default());
    let value = Arc::new(atomic::AtomicUsize::new(0));
    let tasks: Vec<_> = (0..3)
        .map(|number| {
            let (watchers, value) = (watchers.clone(), value.clone());
            shuttle::future::spawn(async move {
                a_while().await;
                let mut watch = watchers.watch("i");
                // The first goes away early.
                let enough = if number == 0 { below(LAST as u64) as usize } else { LAST };
                while value.load(atomic::Ordering::SeqCst) < enough {
                    watch.changed().await;
                }
            })
        })
        .collect();
    for _ in 0..LAST {
        value.fetch_add(1, atomic::Ordering::SeqCst);
        watchers.notify("i");
    }
    shuttle::future::block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(watchers.is_empty(), "nothing is left of watches that are gone");
}
