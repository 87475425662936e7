//! Turns that the store could not take, and how long each waits for its next attempt.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lru::Lru;

/// The longest first wait; each further one may be twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait of all.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How many instances a runtime remembers. The waits of others begin anew, which costs the store a few more attempts.
const REMEMBERED: usize = 16 * 1024;

/// The instances whose turns met storage errors that may pass, since their last turn that was stored.
///
/// The runtime keeps this count, not the store: it gives such a turn back without counting an attempt, because an
/// outage must never turn a message into poison.
pub(crate) struct Postponed {
    instances: Mutex<Lru<String, Trouble>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Trouble {
    /// How often in a row the store could not take the turn.
    times: u32,
    /// How many attempts the store has counted because it could not take the turn back either.
    falsely_counted: u32,
}

impl Postponed {
    pub fn new() -> Self {
        Self { instances: Mutex::new(Lru::new(REMEMBERED)) }
    }

    /// Notes that the store could not take a turn; returns how often in a row.
    pub fn note(&self, instance: &str) -> u32 {
        self.change(instance, |trouble| trouble.times = trouble.times.saturating_add(1)).times
    }

    /// Notes that the store could not take the turn back, so that its attempt stays counted.
    pub fn note_counted_attempt(&self, instance: &str) {
        self.change(instance, |trouble| trouble.falsely_counted = trouble.falsely_counted.saturating_add(1));
    }

    /// Returns the attempts that the messages themselves caused, of those that the store has counted.
    pub fn own_attempts(&self, instance: &str, counted: u32) -> u32 {
        let trouble = self.lock().get(&instance.to_string()).copied().unwrap_or_default();
        // This very claim is an attempt.
        counted.saturating_sub(trouble.falsely_counted).max(counted.min(1))
    }

    /// Forgets an instance whose turn was stored.
    pub fn forget(&self, instance: &str) {
        self.lock().remove(&instance.to_string());
    }

    fn change(&self, instance: &str, change: impl FnOnce(&mut Trouble)) -> Trouble {
        let mut instances = self.lock();
        let mut trouble = instances.remove(&instance.to_string()).unwrap_or_default();
        change(&mut trouble);
        instances.insert(instance.to_string(), trouble);
        trouble
    }

    fn lock(&self) -> MutexGuard<'_, Lru<String, Trouble>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long a turn waits after the store has refused it for the `times`th time: up to a second at first, then
/// up to twice as long each time, up to a minute. The instance's id picks a point between half of that and all of it,
/// so that the turns that met the same outage do not all come back at once.
pub(crate) fn wait(instance: &str, times: u32) -> Duration {
    let doublings = times.saturating_sub(1).min(6);
    let longest = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    let mut hasher = DefaultHasher::new();
    (instance, times).hash(&mut hasher);
    let thousandths = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    longest / 2 + longest / 2 * thousandths / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_minute_and_differ_between_instances() {
        for (times, most) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (u32::MAX, 60)] {
            let most = Duration::from_secs(most);
            let waits: Vec<Duration> = (0..100).map(|i| wait(&format!("i{i}"), times)).collect();
            assert!(waits.iter().all(|wait| *wait >= most / 2 && *wait <= most), "{waits:?}");
            let different: std::collections::HashSet<_> = waits.iter().collect();
            assert!(different.len() > 80, "{waits:?}");
        }
    }

    #[test]
    fn attempts_that_an_outage_left_counted_are_not_the_messages_own() {
        let postponed = Postponed::new();
        assert_eq!(postponed.own_attempts("i", 3), 3);
        assert_eq!([postponed.note("i"), postponed.note("i"), postponed.note("other")], [1, 2, 1]);
        postponed.note_counted_attempt("i");
        postponed.note_counted_attempt("i");
        assert_eq!(postponed.own_attempts("i", 3), 1);
        assert_eq!((postponed.own_attempts("i", 1), postponed.own_attempts("i", 0)), (1, 0));
        postponed.forget("i");
        assert_eq!((postponed.own_attempts("i", 3), postponed.note("i")), (3, 1));
    }
}
