//! The published layout of the provider validation kit: most checks flat, some in modules of their own.
//!
//! See [`provider_validation`](crate::provider_validation) for how to use them.

pub use crate::provider_validation::ProviderFactory;

pub use crate::provider_validation::atomicity::*;
pub use crate::provider_validation::cancellation::*;
pub use crate::provider_validation::error_handling::*;
pub use crate::provider_validation::instance_creation::*;
pub use crate::provider_validation::instance_locking::*;
pub use crate::provider_validation::lock_expiration::*;
pub use crate::provider_validation::management::*;
pub use crate::provider_validation::multi_execution::*;
pub use crate::provider_validation::queue_semantics::*;

pub use crate::provider_validation::{
    bulk_deletion, capability_filtering, custom_status, deletion, kv_store, long_polling, poison_message,
    prune, race_replay, sessions, tag_filtering,
};

pub use crate::provider_validation::{
    bad_input, batch_fetch, clock_steps, concurrency, extended_reads, figures, hand_over, identity,
    large_batches, lease_details, partial_history, refusals, removal, signals, state_details, times,
    undecodable_rows, unknown_instances, version_ranges, visibility,
};
