//! Turns: starting, children, endings, and stores that fail.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

mod children;
mod endings;
mod starting;
mod store_faults;
#[cfg(feature = "test-hooks")]
mod undecodable;
mod unregistered;
mod unstorable;
