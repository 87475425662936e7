//! Counts the writer's work for tests: they then know the cost of a step without a stopwatch.
//!
//! Without the feature `test-hooks` it counts and stores nothing.

#[cfg(feature = "test-hooks")]
pub use counted::WorkDone;
#[cfg(feature = "test-hooks")]
pub(super) use counted::{Ledger, forget, note};

#[cfg(not(feature = "test-hooks"))]
pub(super) use uncounted::{Ledger, forget, note};

/// The kind of a commit.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "test-hooks"), expect(dead_code, reason = "read where work is counted"))]
pub(super) struct Committed {
    /// The commit changed rows, so SQLite wrote it to the log.
    pub(super) is_written: bool,
    pub(super) is_synced: bool,
    /// The writer made it only to sync earlier commits, because no other write came in time.
    pub(super) is_settlement: bool,
    /// How many rows it inserted, changed and deleted.
    pub(super) rows: u64,
}

#[cfg(feature = "test-hooks")]
mod counted {
    use std::cell::Cell;
    use std::sync::{Mutex, PoisonError};

    use rusqlite::{Statement, StatementStatus};

    use super::Committed;

    /// The work of a store's writer so far.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct WorkDone {
        /// Transactions that were written to the log.
        pub commits: u64,
        /// Transactions that were written to the log and synced.
        pub synced_commits: u64,
        /// Transactions that the writer made only to sync earlier commits. Their number depends on timing.
        pub settlements: u64,
        /// Statements in the writer's transactions, including begin and commit, but without those of settlements.
        pub statements: u64,
        /// Steps that SQLite's machine took for them.
        pub vm_steps: u64,
        /// Rows that they inserted, changed and deleted.
        pub rows: u64,
    }

    impl std::ops::Sub for WorkDone {
        type Output = Self;

        fn sub(self, before: Self) -> Self {
            Self {
                commits: self.commits - before.commits,
                synced_commits: self.synced_commits - before.synced_commits,
                settlements: self.settlements - before.settlements,
                statements: self.statements - before.statements,
                vm_steps: self.vm_steps - before.vm_steps,
                rows: self.rows - before.rows,
            }
        }
    }

    thread_local! {
        /// Statements and machine steps of this thread that are not in a ledger yet.
        static RECENT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    /// Counts a statement that was run.
    pub(in super::super) fn note(statement: &Statement<'_>) {
        let steps = u64::try_from(statement.reset_status(StatementStatus::VmStep)).unwrap_or(0);
        RECENT.with(|recent| recent.set((recent.get().0 + 1, recent.get().1 + steps)));
    }

    /// Leaves out the statements between two transactions, because their number depends on timing.
    pub(in super::super) fn forget() {
        RECENT.take();
    }

    /// The ledger of the writer's work.
    #[derive(Debug, Default)]
    pub(in super::super) struct Ledger(Mutex<WorkDone>);

    impl Ledger {
        /// Enters a commit, and the statements of this thread since the last one.
        pub(in super::super) fn enter(&self, commit: Committed) {
            let (statements, vm_steps) = RECENT.take();
            let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            done.commits += u64::from(commit.is_written);
            done.synced_commits += u64::from(commit.is_written && commit.is_synced);
            done.settlements += u64::from(commit.is_settlement);
            if !commit.is_settlement {
                done.statements += statements;
                done.vm_steps += vm_steps;
                done.rows += commit.rows;
            }
        }

        pub(in super::super) fn total(&self) -> WorkDone {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(not(feature = "test-hooks"))]
mod uncounted {
    use rusqlite::Statement;

    use super::Committed;

    pub(in super::super) fn note(_: &Statement<'_>) {}

    pub(in super::super) fn forget() {}

    #[derive(Debug, Default)]
    pub(in super::super) struct Ledger(());

    impl Ledger {
        pub(in super::super) fn enter(&self, _: Committed) {}
    }
}
