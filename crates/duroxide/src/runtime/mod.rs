//! The machinery that runs orchestrations and activities.
//!
//! A [`Runtime`] takes work from a store: turns of orchestrations, and activities. Any number of runtimes may share a
//! store, in one process or in many; leases keep them apart. Inside, one file holds one idea: `orchestrator` takes
//! turns, `worker` runs activities, `leases` keeps both alive, `tasks` owns everything that is spawned.

#[cfg(test)]
mod alike_tests;
mod core;
mod fetch_backoff;
mod gauges;
mod handlers;
mod history;
mod leases;
mod lru;
mod options;
mod orchestrator;
mod origins;
mod pace;
mod program;
#[cfg(test)]
mod program_tests;
pub mod replay_engine;
mod running;
mod sessions;
mod shutdown;
mod start;
mod status;
mod tasks;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;
#[cfg(test)]
mod tidy_tests;
mod work_item_reader;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;

use self::core::Core;
use crate::model::{Event, KvEntry, WorkItem};
use crate::providers::ScheduledActivityIdentifier;

pub use crate::model::limits;
pub use crate::registry::{OrchestrationRegistry, OrchestrationRegistryBuilder, VersionPolicy};
pub use handlers::{ActivityHandler, FnActivity, FnOrchestration, OrchestrationHandler, kind_of};
pub use history::HistoryManager;
pub use observability::{LogFormat, ObservabilityConfig};
pub use options::{RuntimeOptions, UnregisteredBackoffConfig};
pub use status::{OrchestrationDescriptor, OrchestrationStatus};
pub use work_item_reader::WorkItemReader;

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

/// Holds nothing; the path is kept for programs that name it.
pub mod execution {}

/// A running runtime: it takes turns and runs activities until it is shut down.
///
/// Dropping it does not stop it. [`shutdown`](Self::shutdown) does, and waits until nothing is left.
pub struct Runtime {
    core: Arc<Core>,
}

impl Runtime {
    /// Returns what was counted since the runtime started.
    pub fn metrics_snapshot(&self) -> Option<observability::MetricsSnapshot> {
        self.core.observability.as_ref().map(|handle| handle.metrics_snapshot())
    }

    /// Returns the metrics of this runtime.
    pub fn observability_handle(&self) -> Option<&observability::ObservabilityHandle> {
        self.core.observability.as_ref()
    }

    /// Describes the orchestration that an instance runs; `None` if it is unknown or cannot be read.
    pub async fn get_orchestration_descriptor(&self, instance: &str) -> Option<OrchestrationDescriptor> {
        let history = self.core.store.read(instance).await.ok()?;
        OrchestrationDescriptor::from_history(&history)
    }

    /// Takes one turn and stores nothing. For tests; the dispatchers take their turns by the same code.
    ///
    /// Returns the new events, new activities, new messages, activities that were given up, and the result.
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, clippy::type_complexity, reason = "the published signature")]
    pub async fn run_single_execution_atomic(
        self: Arc<Self>,
        instance: &str,
        history_mgr: &mut HistoryManager,
        workitem_reader: &WorkItemReader,
        execution_id: u64,
        _worker_id: &str,
        handler: Arc<dyn OrchestrationHandler>,
        orchestration_version: String,
        kv_snapshot: HashMap<String, KvEntry>,
    ) -> (Vec<Event>, Vec<WorkItem>, Vec<WorkItem>, Vec<ScheduledActivityIdentifier>, Result<String, String>)
    {
        orchestrator::take_single_turn(orchestrator::Subject {
            instance,
            execution_id,
            history: history_mgr,
            batch: workitem_reader,
            handler,
            version: orchestration_version,
            kv_snapshot,
            now_ms: self.core.clock.now_ms(),
        })
    }
}
