//! What is stored, by which version, and who may still read it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../duroxide/tests/kept_store/mod.rs"]
mod kept_store;
mod support;

mod publication;
mod schema;
mod signatures;
mod upgrades;
mod versions;
