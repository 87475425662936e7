//! The machinery that runs orchestrations and activities.
//!
//! A [`Runtime`] takes work from a store: turns of orchestrations, and activities. Any number of runtimes may share a
//! store, in one process or in many; leases keep them apart. Inside, one file holds one idea: `orchestrator` takes
//! turns, `worker` runs activities, `steps` leads from one to the other without a queue, `leases` keeps both alive,
//! `tasks` owns everything that is spawned, `store` is the one interface to any store.

#[cfg(test)]
mod alike_tests;
pub(crate) mod blocked;
mod core;
mod fetch_backoff;
mod gauges;
mod heartbeat;
mod leases;
mod lru;
mod memory;
mod options;
pub(crate) mod orchestrator;
mod origins;
mod pace;
mod postponed;
pub(crate) mod program;
#[cfg(test)]
mod program_tests;
mod sessions;
mod shutdown;
mod start;
mod steps;
mod store;
mod tasks;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;
#[cfg(test)]
mod tidy_tests;
mod unserved;
mod worker;

use std::sync::Arc;

use self::core::Core;

pub use crate::compat::{HistoryManager, WorkItemReader, replay_engine};
pub use crate::model::{OrchestrationDescriptor, OrchestrationStatus, kind_of, limits};
pub use crate::registry::{
    ActivityHandler, FnActivity, FnOrchestration, OrchestrationHandler, OrchestrationRegistry,
    OrchestrationRegistryBuilder, VersionPolicy,
};
pub use observability::{LogFormat, ObservabilityConfig};
pub use options::{
    OnForeignWait, OnMismatch, OnUnregistered, RuntimeOptions, TurnCheck, UnregisteredBackoffConfig,
};

/// Metrics and logs.
pub mod observability {
    pub use crate::observability::*;
}

/// Names and versions, and the handlers behind them.
pub mod registry {
    pub use crate::registry::{
        ActivityRegistry, ActivityRegistryBuilder, OrchestrationRegistry, OrchestrationRegistryBuilder,
        Registry, RegistryBuilder, VersionPolicy,
    };
}

/// Holds nothing; the path stays for programs that name it.
pub mod execution {}

/// A running runtime: it takes turns and runs activities until it is shut down.
///
/// Dropping it does not stop it. [`shutdown`](Self::shutdown) does, and waits until nothing is left.
///
/// ```
/// use std::sync::Arc;
/// use duroxide::prelude::*;
/// use duroxide::providers::memory::MemoryProvider;
///
/// async fn shout(_ctx: ActivityContext, input: String) -> Result<String, String> {
///     Ok(input.to_uppercase())
/// }
///
/// async fn greet(ctx: OrchestrationContext, name: String) -> Result<String, String> {
///     ctx.schedule_activity("Shout", format!("hello {name}")).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let activities = ActivityRegistry::builder().register("Shout", shout).build();
/// let orchestrations = OrchestrationRegistry::builder().register("Greet", greet).build();
/// let store = Arc::new(MemoryProvider::new());
/// let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
///
/// let client = Client::new(store);
/// client.start_orchestration("greet-1", "Greet", "Ada").await?;
/// client.wait_for_orchestration("greet-1", secs(30)).await?;
/// let found = runtime.get_orchestration_descriptor("greet-1").await;
/// assert_eq!(found.map(|orchestration| orchestration.name).as_deref(), Some("Greet"));
/// assert_eq!(runtime.metrics_snapshot().map(|counts| counts.activity_success), Some(1));
/// assert!(runtime.observability_handle().is_some());
/// runtime.shutdown(None).await;
/// # Ok(()) }
/// ```
pub struct Runtime {
    pub(crate) core: Arc<Core>,
}

impl Runtime {
    /// Returns the counts since the runtime started.
    pub fn metrics_snapshot(&self) -> Option<observability::MetricsSnapshot> {
        self.core.observability.as_ref().map(|handle| handle.metrics_snapshot())
    }

    /// Returns the metrics of this runtime.
    pub fn observability_handle(&self) -> Option<&observability::ObservabilityHandle> {
        self.core.observability.as_ref()
    }

    /// Describes the orchestration that an instance runs; `None` if the instance is unknown or its record cannot be
    /// read.
    pub async fn get_orchestration_descriptor(&self, instance: &str) -> Option<OrchestrationDescriptor> {
        let history = self.core.store.read(instance).await.ok()?;
        OrchestrationDescriptor::from_history(&history)
    }
}
