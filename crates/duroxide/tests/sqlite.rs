//! The embedded store: what can go wrong only with a file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/child_process.rs"]
mod child_process;
#[path = "support/crash_loops.rs"]
mod crash_loops;
mod kept_store;
#[path = "support/killed_import.rs"]
mod killed_import;
#[path = "support/power_loss.rs"]
mod power_loss;
mod runtime_support;
#[path = "support/sqlite_store.rs"]
mod sqlite_store;

mod sqlite_backup;
mod sqlite_damaged_columns;
mod sqlite_damaged_rows;
mod sqlite_dead_owners;
mod sqlite_durability;
mod sqlite_faults;
mod sqlite_hand_over;
mod sqlite_heartbeats;
mod sqlite_hot_path;
mod sqlite_killed_attempts;
mod sqlite_migration;
mod sqlite_open;
mod sqlite_power_loss;
mod sqlite_power_loss_open;
mod sqlite_regressions;
mod sqlite_scale;
mod sqlite_session_heads;
mod sqlite_session_wakes;
mod sqlite_two_processes;
mod sqlite_versions;
