//! Several processes on one schema, some of which die or stand still.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../duroxide/tests/support/child_process.rs"]
mod child_process;
mod support;

mod dead_holders;
mod fleet;
mod zombies;
