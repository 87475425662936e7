//! The decision core: from a history and new messages to what happens next.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "runtime_support/logs.rs"]
mod logs;
mod support;

mod replay_cancellations;
mod replay_history;
mod replay_history_readers;
mod replay_message_events;
mod replay_mismatches;
mod replay_queues;
mod replay_races;
mod replay_signals;
mod replay_topics;
mod replay_turns;
