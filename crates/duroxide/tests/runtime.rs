//! The runtime between the decision core and a store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod runtime_support;
#[path = "support/sqlite_store.rs"]
mod sqlite_store;

mod activity_attempts;
mod activity_start_deadlines;
mod runtime_activities;
mod runtime_basics;
mod runtime_details;
mod runtime_fair_order;
mod runtime_hand_over;
mod runtime_plain_store;
mod runtime_postponed_order;
mod runtime_results;
mod runtime_retries;
mod runtime_shutdown;
mod runtime_sqlite;
mod runtime_steps;
mod runtime_timers;
mod runtime_turn_leases;
mod runtime_turns;
