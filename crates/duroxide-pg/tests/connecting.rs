//! How the store reaches its server, as whom and through what.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

mod connections;
mod facts;
mod failover;
mod faults;
mod notifications;
mod tls;
