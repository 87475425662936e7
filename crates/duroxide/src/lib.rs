//! Durable execution for Rust.
//!
//! An *orchestration* is an ordinary async function whose steps are recorded. If the process dies, the function goes
//! on where it stopped, on this machine or on another.
//!
//! This crate is a library with no server to operate: state lives behind the [`providers::Provider`] trait, in a
//! SQLite file by default.

mod activity;
pub mod client;
pub mod model;
mod observability;
mod orchestration;
#[cfg(feature = "provider-test")]
pub mod provider_stress_test;
#[cfg(feature = "provider-test")]
pub mod provider_stress_tests;
#[cfg(feature = "provider-test")]
pub mod provider_validation;
#[cfg(feature = "provider-test")]
pub mod provider_validations;
pub mod providers;
mod registry;
mod replay;
pub mod runtime;

pub use activity::ActivityContext;
pub use client::{Client, ClientError};
pub use model::{
    Action, AppErrorKind, ConfigErrorKind, ErrorDetails, Event, EventKind, INITIAL_EVENT_ID,
    INITIAL_EXECUTION_ID, PoisonMessageType, SUB_ORCH_AUTO_PREFIX, SystemStats, build_child_instance_id,
    is_auto_generated_sub_orch_id,
};
pub use orchestration::{
    BackoffStrategy, DurableFuture, Either2, Either3, LogLevel, OrchestrationContext, RetryPolicy,
    ScheduleKind,
};
pub use providers::{
    DeleteInstanceResult, DispatcherCapabilityFilter, ExecutionInfo, InstanceFilter, InstanceInfo,
    InstanceTree, ProviderAdmin, PruneOptions, PruneResult, QueueDepths, ScheduledActivityIdentifier,
    SemverRange, SessionFetchConfig, SystemMetrics, TagFilter, current_build_version,
};
#[doc(hidden)]
pub use replay::CompletionResult;
pub use runtime::{
    OrchestrationDescriptor, OrchestrationHandler, OrchestrationRegistry, OrchestrationRegistryBuilder,
    OrchestrationStatus, RuntimeOptions,
};

/// A shared store.
pub type ProviderRef = std::sync::Arc<dyn providers::Provider>;

/// Shared code of an orchestration.
pub type OrchestrationHandlerRef = std::sync::Arc<dyn runtime::OrchestrationHandler>;
