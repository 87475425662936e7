//! How much to claim at once.

use std::sync::Mutex;
use std::time::Duration;

/// A slot may hold work for about this long ahead.
const AHEAD: Duration = Duration::from_millis(50);

/// Measures how long user code takes, and says how much of it a slot will finish soon.
///
/// Claiming in batches saves round trips, and claiming too much keeps work from others who are free. So a slot that
/// takes a second per item claims one, and a slot that takes a millisecond claims fifty.
pub(crate) struct Pace {
    average: Mutex<Option<Duration>>,
    most: usize,
}

impl Pace {
    /// Makes a measure that never asks for more than `most` items.
    pub fn new(most: usize) -> Self {
        Self { average: Mutex::new(None), most }
    }

    /// Takes note of how long one item took.
    pub fn record(&self, took: Duration) {
        let mut average = self.average.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A new item counts for an eighth: one slow item among quick ones does not stop the batching.
        *average = Some(match *average {
            None => took,
            Some(average) => (average.saturating_mul(7).saturating_add(took)) / 8,
        });
    }

    /// Takes note that what was claimed had to wait: for a while nothing is claimed ahead.
    pub fn slow_down(&self) {
        *self.average.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(AHEAD);
    }

    /// How many items `slots` slots should claim together: at least one each, and what they will finish soon.
    pub fn batch(&self, slots: usize) -> usize {
        let average = *self.average.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let per_slot = match average {
            // Nothing is known yet: claim what can start at once.
            None => 1,
            Some(average) => AHEAD.as_micros().checked_div(average.as_micros().max(10)).unwrap_or(1).max(1),
        };
        let wanted = per_slot.saturating_mul(slots as u128);
        usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, self.most.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_work_is_claimed_one_by_one_and_quick_work_in_batches() {
        let pace = Pace::new(64);
        assert_eq!(pace.batch(2), 2);
        pace.record(Duration::from_secs(5));
        assert_eq!(pace.batch(2), 2);
        for _ in 0..200 {
            pace.record(Duration::from_millis(5));
        }
        assert_eq!(pace.batch(2), 20);
        for _ in 0..200 {
            pace.record(Duration::ZERO);
        }
        assert_eq!(pace.batch(2), 64);
        assert_eq!(pace.batch(0), 1);
    }
}
