//! What workers do to one schema: claims, commits, leases, locks, listings.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

mod attempts;
mod bloat;
mod bulk_removal;
mod claims;
mod commits;
mod committers;
mod deliveries;
mod heartbeats;
mod held_snapshot;
mod hot_path;
mod lock_order;
mod locks;
mod long_queues;
mod long_reads;
mod many_waiters;
mod parking;
mod requests;
mod runtime_steps;
mod session_seats;
mod steps;
mod store_model;
mod totals;
mod unclaimable;
mod unregistered_activities;
mod validation;
