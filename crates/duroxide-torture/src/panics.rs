//! Panics of the code under test: none may happen, on whatever thread, and none may go unseen.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checker::{Invariant, Violation};

static PANICS: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

/// How many pieces of work are under way that panic because they are broken on purpose.
static BROKEN_WORK: AtomicU64 = AtomicU64::new(0);

/// Counts the panics of this process from now on. Prints them as the hook does that was there before.
pub fn watch() {
    WATCH.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            if !is_quiet() {
                usual(panic);
            }
        }));
    });
}

/// Tells whether panics are not printed, because work that is broken on purpose is under way.
pub fn is_quiet() -> bool {
    BROKEN_WORK.load(Ordering::Relaxed) > 0
}

/// How many there were.
pub fn count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Keeps panics of any thread from being printed, until this is dropped.
pub struct Quiet(());

impl Quiet {
    /// Begins work that panics because it is broken on purpose: nobody has to read about that. The panics count.
    pub fn begin() -> Self {
        watch();
        BROKEN_WORK.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        BROKEN_WORK.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs something; its panic is a breach.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let what = format!("panicked: {}", text.unwrap_or_else(|| "without a text".into()));
        Violation::of_store(Invariant::LoudFailure, what)
    })
}
