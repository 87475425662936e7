//! Panics of the code under test: none may happen, on whatever thread, and none may go unseen.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checker::{Invariant, Violation};

static PANICS: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Counts the panics of this process from now on.
pub fn watch() {
    WATCH.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
}

/// How many there were.
pub fn count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs something whose panic is a breach; if that is its purpose, nobody has to read about it.
pub fn caught_quietly<T>(is_quiet: bool, run: impl FnOnce() -> T) -> Result<T, Violation> {
    IS_QUIET.set(is_quiet);
    let outcome = caught(run);
    IS_QUIET.set(false);
    outcome
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
