//! Several processes on one schema, some of which die or stand still.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../duroxide/tests/support/child_process.rs"]
mod child_process;
#[path = "../../duroxide/tests/support/crash_loops.rs"]
mod crash_looping;
#[path = "../../duroxide/tests/support/killed_import.rs"]
mod killed_import;
mod support;

mod crash_loops;
mod dead_holders;
mod fleet;
mod killed_attempts;
mod sleeping;
mod zombies;
