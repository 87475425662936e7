//! Durable execution for Rust.
//!
//! An *orchestration* is an ordinary async function whose steps are recorded. If the process dies, the function goes
//! on where it stopped, on this machine or on another. *Activities* do the work: I/O, and anything else that is not
//! deterministic.
//!
//! This crate is a library with no server to operate: state lives behind the [`providers::Provider`] trait, in a
//! SQLite file by default.
//!
#![cfg_attr(all(feature = "sqlite", feature = "macros"), doc = "```")]
#![cfg_attr(not(all(feature = "sqlite", feature = "macros")), doc = "```ignore")]
//! use duroxide::prelude::*;
//!
//! #[activity]
//! async fn greet(name: String) -> Result<String, String> {
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! #[orchestration]
//! async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
//!     greet(&ctx, name).retry(RetryPolicy::exponential(3)).timeout(secs(10)).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // "sqlite:hello.db" opens a file.
//! let app = Duroxide::open("sqlite::memory:").activity(greet).orchestration(hello).start().await?;
//! let greeting = app.start(hello, "hello-1", "Ada".to_string()).await?.result().await?;
//! assert_eq!(greeting, "Hello, Ada!");
//! app.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The same by names and strings, from the parts: registries, a store, a runtime, a client. Both record the same
//! histories, and call each other.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use duroxide::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let activities = ActivityRegistry::builder()
//!     .register("Greet", |_: ActivityContext, name: String| async move { Ok(format!("Hello, {name}!")) })
//!     .build_result()?;
//! let orchestrations = OrchestrationRegistry::builder()
//!     .register("Hello", |ctx: OrchestrationContext, name: String| async move {
//!         ctx.schedule_activity("Greet", name).await
//!     })
//!     .build_result()?;
//!
//! let store = Arc::new(SqliteProvider::new("sqlite::memory:", None).await?);
//! let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
//!
//! let client = Client::new(store);
//! client.start_orchestration("hello-1", "Hello", "Ada").await?;
//! match client.wait_for_orchestration("hello-1", Duration::from_secs(10)).await? {
//!     OrchestrationStatus::Completed { output, .. } => assert_eq!(output, "Hello, Ada!"),
//!     other => panic!("{other:?}"),
//! }
//! runtime.shutdown(None).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to begin
//!
//! | you want to | look at |
//! |---|---|
//! | write an orchestration | `#[orchestration]`, [`OrchestrationContext`], [`OrchestrationCall`], `join!`, `select!` |
//! | write an activity | `#[activity]`, [`ActivityCall`], [`ActivityContext`], [`State`], [`RetryPolicy`] |
//! | ask an orchestration, and answer | [`Client::ask`], [`Request`], [`OrchestrationContext::request`] |
//! | tell errors apart | [`StepError`], [`Failure`], [`AnyError`] |
//! | run both | [`Duroxide`]; or [`OrchestrationRegistry`], [`ActivityRegistry`], [`Runtime`], [`RuntimeOptions`] |
//! | start, signal, await and manage instances | [`Client`], [`InstanceHandle`] |
//! | choose or write a store | [`providers`] |
//!
//! [`prelude`] holds the names that nearly every program needs.
//!
//! # Features
//!
//! - `sqlite` (default): the embedded store, [`providers::sqlite`](crate::providers).
//! - `logging` (default): `runtime::observability::init_logging`, for applications that do not set up their own logs.
//! - `macros` (default): `#[activity]`, `#[orchestration]`, `join!`, `select!`.
//! - `testing`: [`testing`](crate), a test environment for your own orchestrations.
//! - `provider-test`: the kit that proves a storage provider right.
//! - `test-hooks`: hooks into the machinery for tests; `test` is both of these.

mod activity;
mod app;
pub mod client;
mod compat;
pub mod model;
mod observability;
mod orchestration;
pub mod prelude;
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
#[cfg(feature = "testing")]
pub mod testing;
pub mod typed;

pub use activity::{ActivityContext, AttemptError, State, StateKey};
pub use app::{Duroxide, DuroxideBuilder, StartError};
pub use client::{Client, ClientError, CompleteError, StartOptions, StartedInstance};
pub use model::{
    Action, ActivityOptions, AppErrorKind, CompletionToken, ConfigErrorKind, ErrorDetails, Event, EventKind,
    INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, InstanceState, PoisonMessageType, SUB_ORCH_AUTO_PREFIX,
    StoredRetry, SystemStats, build_child_instance_id, is_auto_generated_sub_orch_id,
};
pub use orchestration::{
    BackoffStrategy, Cancellation, Cancelled, DurableFuture, Either2, Either3, LogLevel, OnCancel,
    OrchestrationContext, RetryOptions, RetryPolicy, Saga, ScheduleKind,
};
pub use providers::{
    DeleteInstanceResult, DispatcherCapabilityFilter, ExecutionInfo, InstanceFilter, InstanceInfo,
    InstanceTree, ProviderAdmin, PruneOptions, PruneResult, QueueDepths, ScheduledActivityIdentifier,
    SemverRange, SessionFetchConfig, SystemMetrics, TagFilter, current_build_version,
};
pub use registry::{ActivityRegistry, ActivityRegistryBuilder, VersionPolicy};
#[doc(hidden)]
pub use replay::CompletionResult;
pub use runtime::{
    OrchestrationDescriptor, OrchestrationHandler, OrchestrationRegistry, OrchestrationRegistryBuilder,
    OrchestrationStatus, Runtime, RuntimeOptions,
};

pub use typed::durations::{days, hours, millis, mins, secs};
pub use typed::{
    Activity, ActivityCall, AnyError, Ask, Either4, Either5, Either6, Either7, Either8, Either9, Either10,
    Either11, Either12, Failure, FailureKind, InstanceHandle, NextRequest, Orchestration, OrchestrationCall,
    ReceivedRequest, Request, Retryable, RunError, StepError,
};

#[cfg(feature = "macros")]
pub use duroxide_macros::{activity, join, orchestration};

/// A shared store.
pub type ProviderRef = std::sync::Arc<dyn providers::Provider>;

/// Shared code of an orchestration.
pub type OrchestrationHandlerRef = std::sync::Arc<dyn runtime::OrchestrationHandler>;

/// Compiles and runs the code of the README.
#[cfg(all(doctest, feature = "sqlite", feature = "macros"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles and runs the code of the guide. Every chapter is here, also one without code, so that none is forgotten that gets some;
/// `postgres.md` is in `duroxide-pg`, `service.md` in `duroxide-dashboard`. `tests/architecture.rs` looks for them.
#[cfg(all(doctest, feature = "sqlite", feature = "macros"))]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/introduction.md")]
    struct Introduction;
    #[doc = include_str!("../../../docs/guide/src/start.md")]
    struct Start;
    #[doc = include_str!("../../../docs/guide/src/how-it-works.md")]
    struct HowItWorks;
    #[doc = include_str!("../../../docs/guide/src/activities.md")]
    struct Activities;
    #[doc = include_str!("../../../docs/guide/src/timers.md")]
    struct Timers;
    #[doc = include_str!("../../../docs/guide/src/events-and-queues.md")]
    struct EventsAndQueues;
    #[doc = include_str!("../../../docs/guide/src/children.md")]
    struct Children;
    #[doc = include_str!("../../../docs/guide/src/continue-as-new.md")]
    struct ContinueAsNew;
    #[doc = include_str!("../../../docs/guide/src/determinism.md")]
    struct Determinism;
    #[doc = include_str!("../../../docs/guide/src/versions.md")]
    struct Versions;
    #[doc = include_str!("../../../docs/guide/src/compensation.md")]
    struct Compensation;
    #[doc = include_str!("../../../docs/guide/src/cancellation.md")]
    struct Cancellation;
    #[doc = include_str!("../../../docs/guide/src/sessions-and-tags.md")]
    struct SessionsAndTags;
    #[doc = include_str!("../../../docs/guide/src/values-and-status.md")]
    struct ValuesAndStatus;
    #[cfg(feature = "testing")]
    #[doc = include_str!("../../../docs/guide/src/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/guide/src/operating.md")]
    struct Operating;
    #[doc = include_str!("../../../docs/guide/src/sqlite.md")]
    struct Sqlite;
    #[cfg(feature = "provider-test")]
    #[doc = include_str!("../../../docs/guide/src/providers.md")]
    struct Providers;
    #[doc = include_str!("../../../docs/guide/src/moving.md")]
    struct Moving;
    #[doc = include_str!("../../../docs/guide/src/comparison.md")]
    struct Comparison;
    #[doc = include_str!("../../../docs/guide/src/limits.md")]
    struct Limits;
}
