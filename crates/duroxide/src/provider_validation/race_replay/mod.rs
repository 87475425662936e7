//! Races between messages and their replay, with a whole runtime on the store.
//!
//! A store decides which messages come together and in which order; the runtime decides races by that order, and must
//! decide them the same way when it replays. So these checks seed a history and the messages of one batch, let a
//! runtime take it from there, and look at result and history.

mod continued;
mod lab;
mod replayed;

pub use continued::{
    test_continue_as_new_duplicate_start, test_continue_as_new_poisoned_successor_is_own_execution,
    test_continue_as_new_transition_delivery, test_continue_as_new_unregistered_backoff,
    test_duplicate_start_preserves_pinned_handler,
};
pub use replayed::{
    test_continue_as_new_queue_race_replay, test_legacy_queue_race_decision_preserved,
    test_positional_wait_race_replay, test_queue_race_cancellation_replay,
    test_queue_replay_version_stamp_roundtrip,
};
