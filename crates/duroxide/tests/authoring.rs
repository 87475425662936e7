//! How a program is written: the context, typed functions, the registry, the test environment.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod runtime_support;
mod support;
mod typed_support;

mod activity_attempts_typed;
mod authoring_futures;
mod authoring_state;
mod authoring_steps;
mod blocked_instances;
mod cancellation_cleanup;
mod children_on_cancel;
mod decode_errors;
mod orchestration_zoo;
mod patched_code;
mod registry;
mod requests;
mod testing_crashes;
mod testing_env;
mod testing_typed;
mod turn_check;
mod typed_app;
mod typed_calls;
mod typed_errors;
mod typed_races;
