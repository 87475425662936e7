//! The small concurrent parts of the library under a scheduler that tries interleavings.
//!
//! The parts are the library's own sources: `build.rs` copies them, and tells how the copies differ. What they rely on are
//! the modules here, which have the same names as the library's: some are the library's, some stand in for parts that a
//! schedule does not reach. Time stands still unless a scenario moves it, so whoever waits for a wake-up that was lost waits
//! for ever, and the scheduler sees that nobody can go on.

#![allow(missing_docs, dead_code, unused_imports, reason = "the copies have more than the scenarios use")]
#![allow(clippy::new_without_default, reason = "as in the library")]

mod postgres;
mod providers;
mod runtime;
mod sqlite;
pub mod sync;

use std::cell::Cell;

/// What the copies take from the library's module of this name.
mod model {
    pub use duroxide::providers::{Clock, ManualClock, SystemClock};

    pub mod clock {
        pub fn block_thread(_: std::time::Duration) {
            crate::interleave::sync::thread::yield_now();
        }
    }
}

thread_local! {
    static TWIN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Tells whether this thread is to run this broken twin.
pub fn is_twin(name: &str) -> bool {
    TWIN.get() == Some(name)
}

/// Breaks this thread's copies, or mends them.
pub fn set_twin(twin: Option<&'static str>) {
    TWIN.set(twin);
}

/// A few tasks that meet in one of the parts, and what must hold for them.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name among the figures.
    pub name: &'static str,
    /// Runs one schedule of it.
    pub run: fn(),
    /// The twins that it must catch.
    pub twins: &'static [&'static str],
    /// Whether somebody in it waits for a time-out again and again, and so keeps everybody of lower priority from running.
    pub is_impatient: bool,
}

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "schedules_of_worker_slots",
        run: runtime::worker::scenario::activities_of_clients_and_turns,
        twins: &["asks-nobody", "frees-silently"],
        is_impatient: false,
    },
    Scenario {
        name: "schedules_of_sessions",
        run: runtime::worker::scenario::activities_of_sessions,
        twins: &["forgets-owners"],
        is_impatient: false,
    },
    Scenario {
        name: "schedules_of_signals",
        run: providers::scenario::announcements_and_due_times,
        twins: &["forgets-due-times"],
        is_impatient: false,
    },
    Scenario {
        name: "schedules_of_watches",
        run: providers::scenario::watches_that_come_and_go,
        twins: &["ends-foreign-watches"],
        is_impatient: false,
    },
    Scenario {
        name: "schedules_of_the_writer_in_memory",
        run: sqlite::scenario::callers_of_a_store_in_memory,
        twins: &["wakes-nobody"],
        is_impatient: false,
    },
    Scenario {
        name: "schedules_of_the_writer_on_a_file",
        run: sqlite::scenario::callers_of_a_store_on_a_file,
        twins: &["promises-unsynced"],
        is_impatient: true,
    },
    Scenario {
        name: "schedules_of_waiting_dispatchers",
        run: postgres::scenario::commits_that_lease_for_a_dispatcher,
        twins: &["keeps-untaken-leases"],
        is_impatient: false,
    },
];
