//! The kit that proves a storage provider right.
//!
//! Each check is an async function that takes a [`ProviderFactory`], makes a fresh store with it and panics when the
//! store breaks a rule of the contract, with a message that names the rule. A provider author implements the factory
//! once and lets [`provider_validation_tests!`](crate::provider_validation_tests) make one test of each check.
//!
//! The modules listed first check the published contract. Those in the second block check our own stores' promises
//! beyond it; a check of an ability that a store or its factory does not have passes at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a check reports by panicking")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::providers::{ManualClock, Provider, StoreLimits};

pub use crate::model::{Event, EventKind};
pub use crate::providers::ExecutionMetadata;

mod items;
mod macros;
mod scenario;
mod support;

pub mod atomicity;
pub mod bulk_deletion;
pub mod cancellation;
pub mod capability_filtering;
pub mod custom_status;
pub mod deletion;
pub mod error_handling;
pub mod instance_creation;
pub mod instance_locking;
pub mod kv_store;
pub mod lock_expiration;
pub mod long_polling;
pub mod management;
pub mod multi_execution;
pub mod poison_message;
pub mod prune;
pub mod queue_semantics;
pub mod race_replay;
pub mod sessions;
pub mod tag_filtering;

pub mod attempts;
pub mod bad_input;
pub mod batch_fetch;
pub mod blocking;
pub mod bounded_turns;
pub mod clock_steps;
pub mod concurrency;
pub mod deliveries;
pub mod ended_instances;
pub mod extended_reads;
pub mod figures;
pub mod hand_over;
pub mod identity;
pub mod inspection;
pub mod large_batches;
pub mod lease_details;
pub mod lease_recovery;
pub mod listed_starts;
pub mod overviews;
pub mod partial_history;
pub mod queued_children;
pub mod refusals;
pub mod removal;
pub mod session_heads;
pub mod signals;
pub mod state_details;
pub mod steps;
pub mod times;
pub mod undecodable_rows;
pub mod unknown_instances;
pub mod version_ranges;
pub mod visibility;

#[doc(hidden)]
pub use macros::run_check;

/// Makes the stores that the checks run on, and damages their rows where a check needs it.
#[async_trait]
pub trait ProviderFactory: Sync + Send {
    /// Makes an empty store that shares nothing with earlier ones.
    async fn create_provider(&self) -> Arc<dyn Provider>;

    /// Returns the lease time for checks that wait until a lease has run out; at least one second.
    fn lock_timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Returns how long a fetch from an empty queue may take on a store that does not wait for work.
    fn short_poll_threshold(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// Makes every stored event of an instance undecodable, in the store made last.
    async fn corrupt_instance_history(&self, instance: &str) {
        panic!("corrupt_instance_history is not implemented by this factory (asked for instance {instance})");
    }

    /// Returns the highest attempt count among the orchestrator messages of an instance, in the store made last.
    async fn get_max_attempt_count(&self, instance: &str) -> u32 {
        panic!("get_max_attempt_count is not implemented by this factory (asked for instance {instance})");
    }

    /// Returns the clock of the store made last, if a test can move it by hand.
    ///
    /// The checks then advance the clock instead of sleeping.
    fn clock(&self) -> Option<Arc<ManualClock>> {
        None
    }

    /// Makes all queued orchestrator messages of an instance undecodable, in the store made last.
    ///
    /// Returns whether it could; if not, the checks that need it pass at once.
    async fn corrupt_messages(&self, instance: &str) -> bool {
        let _ = instance;
        false
    }

    /// Makes an empty store with these limits, which shares nothing with earlier ones; it is then the store made last.
    ///
    /// If it returns none, the checks that need one pass at once.
    async fn create_limited_provider(&self, limits: StoreLimits) -> Option<Arc<dyn Provider>> {
        let _ = limits;
        None
    }

    /// Gives all rows of an instance that were set aside this text instead of theirs, in the store made last.
    ///
    /// Returns whether it could; the checks that need it are skipped if not.
    async fn repair_quarantined(&self, instance: &str, text: &str) -> bool {
        let _ = (instance, text);
        false
    }

    /// Makes all queued activities of an instance undecodable, in the store made last.
    ///
    /// Returns whether it could; if not, the checks that need it pass at once.
    async fn corrupt_work_items(&self, instance: &str) -> bool {
        let _ = instance;
        false
    }
}
