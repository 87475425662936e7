//! What every store must do: the kit, the random model, the wrappers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/forwarding.rs"]
mod forwarding;
#[path = "support/metric_recorder.rs"]
mod metric_recorder;
#[path = "support/sqlite_store.rs"]
mod sqlite_store;

mod instrumented_provider;
mod listing_scale;
mod memory_store;
mod provider_stress;
mod store_model;
mod validation_memory;
mod validation_paths;
mod validation_sqlite;
