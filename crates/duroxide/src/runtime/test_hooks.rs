//! Hooks for tests: a delay in every turn, for the whole process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static DELAY: Mutex<Option<Delay>> = Mutex::new(None);

struct Delay {
    duration: Duration,
    // Empty: all instances.
    prefixes: Vec<String>,
}

/// Delays every turn of the instances whose id begins with `instance_prefix`; of all instances, if no call gave a
/// prefix. Prefixes add up until [`clear_orch_processing_delay`].
pub fn set_orch_processing_delay(delay: Duration, instance_prefix: Option<&str>) {
    let mut current = lock();
    let mut prefixes = current.take().map(|delay| delay.prefixes).unwrap_or_default();
    prefixes.extend(instance_prefix.map(str::to_string));
    *current = Some(Delay { duration: delay, prefixes });
}

/// Returns the delay for an instance.
pub fn get_orch_processing_delay(instance: &str) -> Option<Duration> {
    let current = lock();
    let delay = current.as_ref()?;
    let applies =
        delay.prefixes.is_empty() || delay.prefixes.iter().any(|p| instance.starts_with(p.as_str()));
    applies.then_some(delay.duration)
}

/// Removes the delay and all prefixes.
pub fn clear_orch_processing_delay() {
    *lock() = None;
}

fn lock() -> MutexGuard<'static, Option<Delay>> {
    DELAY.lock().unwrap_or_else(PoisonError::into_inner)
}
