//! What a program and its operator see of a runtime and a client.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/metric_recorder.rs"]
mod metric_recorder;
mod runtime_support;

mod behaviour_activities;
mod behaviour_cancellation;
mod behaviour_children;
mod behaviour_client;
mod behaviour_continue_as_new;
mod behaviour_events;
mod behaviour_inspection;
mod behaviour_observability;
mod behaviour_operators_metrics;
mod behaviour_runtime;
mod behaviour_state;
mod behaviour_timers;
mod behaviour_turns;
mod behaviour_versions;
mod client_calls;
mod client_messages;
mod many_waiters;
mod observability;
