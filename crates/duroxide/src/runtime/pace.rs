//! How much to claim at once.

use std::sync::Mutex;
use std::time::Duration;

/// A slot may hold work for about this long ahead.
const AHEAD: Duration = Duration::from_millis(50);
/// The limit grows after it was used up this many times.
const RECOVERY: usize = 4;

/// Measures how long user code takes, and says how much of it a slot will finish soon.
///
/// Claiming in batches saves round trips, but claiming too much keeps work from runtimes that are free. So a slot that
/// takes a second per item claims one, and a slot that takes a millisecond claims fifty. On a busy machine user code is
/// not the only thing that takes time. So if claimed items had to wait too long, the limit falls to the number that the
/// slots began meanwhile, and grows again little by little while waits stay short.
pub(crate) struct Pace {
    state: Mutex<State>,
    most: usize,
}

struct State {
    average: Option<Duration>,
    /// The most items to claim; learnt from items that had to wait.
    limit: usize,
    /// Items finished since the limit last changed.
    since: usize,
}

impl Pace {
    /// Makes a measure that never asks for more than `most` items.
    pub fn new(most: usize) -> Self {
        Self { state: Mutex::new(State { average: None, limit: most.max(1), since: 0 }), most: most.max(1) }
    }

    /// Takes note of how long one item took.
    pub fn record(&self, took: Duration) {
        let mut state = self.state();
        // A new item counts for an eighth: one slow item among quick ones does not stop the batching.
        state.average = Some(match state.average {
            None => took,
            Some(average) => (average.saturating_mul(7).saturating_add(took)) / 8,
        });
        state.since += 1;
        if state.limit < self.most && state.since >= state.limit.saturating_mul(RECOVERY) {
            state.limit = (state.limit + state.limit / 8 + 1).min(self.most);
            state.since = 0;
        }
    }

    /// Takes note that claimed items had to wait too long, and how many the slots began meanwhile. If they began none,
    /// the runtime claims nothing ahead until an item is finished.
    pub fn slow_down(&self, begun: usize) {
        let mut state = self.state();
        if begun == 0 {
            state.average = Some(AHEAD);
        }
        state.limit = begun.clamp(1, self.most);
        state.since = 0;
    }

    /// Tells whether a time was measured.
    pub fn is_known(&self) -> bool {
        self.state().average.is_some()
    }

    /// Returns how many items `slots` slots should claim together: at least one each, and as many as they will finish
    /// soon.
    pub fn items_to_claim(&self, slots: usize) -> usize {
        let state = self.state();
        let per_slot = match state.average {
            // No time is measured yet: claim only as much as can start at once.
            None => 1,
            Some(average) => AHEAD.as_micros().checked_div(average.as_micros().max(10)).unwrap_or(1).max(1),
        };
        let wanted = usize::try_from(per_slot.saturating_mul(slots as u128)).unwrap_or(usize::MAX);
        wanted.min(state.limit.max(slots)).clamp(1, self.most)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_work_is_claimed_one_by_one_and_quick_work_in_batches() {
        let pace = Pace::new(64);
        assert_eq!(pace.items_to_claim(2), 2);
        pace.record(Duration::from_secs(5));
        assert_eq!(pace.items_to_claim(2), 2);
        for _ in 0..200 {
            pace.record(Duration::from_millis(5));
        }
        assert_eq!(pace.items_to_claim(2), 20);
        for _ in 0..200 {
            pace.record(Duration::ZERO);
        }
        assert_eq!(pace.items_to_claim(2), 64);
        assert_eq!(pace.items_to_claim(0), 1);
    }

    #[test]
    fn no_more_is_claimed_than_was_finished_in_time_and_it_grows_again_little_by_little() {
        let pace = Pace::new(64);
        pace.record(Duration::ZERO);
        assert_eq!(pace.items_to_claim(2), 64);
        pace.slow_down(16);
        assert_eq!(pace.items_to_claim(2), 16);
        for _ in 1..16 * RECOVERY {
            pace.record(Duration::ZERO);
        }
        assert_eq!(pace.items_to_claim(2), 16);
        pace.record(Duration::ZERO);
        assert_eq!(pace.items_to_claim(2), 19);
        for _ in 0..100 * 64 * RECOVERY {
            pace.record(Duration::ZERO);
        }
        assert_eq!(pace.items_to_claim(2), 64, "as if nothing had happened");
    }

    #[test]
    fn nothing_is_claimed_ahead_of_what_does_not_end() {
        let pace = Pace::new(64);
        pace.record(Duration::ZERO);
        pace.slow_down(0);
        assert_eq!(pace.items_to_claim(2), 2, "one for each slot");
    }
}
