//! Starts a runtime.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::core::{Core, TARGET};
use super::leases::Leases;
use super::orchestrator::{self, Residents, TurnCapacity, TurnSampler};
use super::origins::Origins;
use super::postponed::Postponed;
use super::sessions::Sessions;
use super::steps::{self, Steps};
use super::store::Store;
use super::tasks::Tasks;
use super::{Runtime, RuntimeOptions, blocked, gauges, heartbeat, unserved, worker};
use crate::observability::ObservabilityHandle;
use crate::providers::{DispatcherCapabilityFilter, Polling, Provider};
use crate::registry::{ActivityRegistry, OrchestrationRegistry};

impl Runtime {
    /// Starts a runtime with default options on a store of its own, in memory. Only activities can reach that store.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # use duroxide::Runtime;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (activities, orchestrations) = (ActivityRegistry::builder().build(), OrchestrationRegistry::builder().build());
    /// let runtime = Runtime::start(activities, orchestrations).await;
    /// runtime.shutdown(None).await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the store cannot be made.
    #[cfg(feature = "sqlite")]
    pub async fn start(
        activity_registry: ActivityRegistry,
        orchestration_registry: OrchestrationRegistry,
    ) -> Arc<Self> {
        let store = match crate::providers::sqlite::SqliteProvider::new_in_memory().await {
            Ok(store) => Arc::new(store),
            Err(error) => panic!("the in-memory store cannot be made: {error}"),
        };
        Self::start_with_store(store, activity_registry, orchestration_registry).await
    }

    /// Starts a runtime with default options.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::prelude::*;
    /// # use duroxide::Runtime;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (activities, orchestrations) = (ActivityRegistry::builder().build(), OrchestrationRegistry::builder().build());
    /// let store = Arc::new(MemoryProvider::new());
    /// let runtime = Runtime::start_with_store(store, activities, orchestrations).await;
    /// runtime.shutdown(None).await;
    /// # }
    /// ```
    pub async fn start_with_store(
        history_store: Arc<dyn Provider>,
        activity_registry: ActivityRegistry,
        orchestration_registry: OrchestrationRegistry,
    ) -> Arc<Self> {
        let options = RuntimeOptions::default();
        Self::start_with_options(history_store, activity_registry, orchestration_registry, options).await
    }

    /// Starts a runtime. It works until [`shutdown`](Self::shutdown), also if the returned pointer is dropped.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::prelude::*;
    /// # use duroxide::Runtime;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (activities, orchestrations) = (ActivityRegistry::builder().build(), OrchestrationRegistry::builder().build());
    /// let options = duroxide::RuntimeOptions { worker_concurrency: 64, ..Default::default() };
    /// let store = Arc::new(MemoryProvider::new());
    /// let runtime = Runtime::start_with_options(store, activities, orchestrations, options).await;
    /// runtime.shutdown(None).await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If `session_idle_timeout` is not longer than the time after which an activity's lease is renewed.
    pub async fn start_with_options(
        history_store: Arc<dyn Provider>,
        activity_registry: ActivityRegistry,
        orchestration_registry: OrchestrationRegistry,
        options: RuntimeOptions,
    ) -> Arc<Self> {
        options.validate();
        let core = Arc::new(core(history_store, activity_registry, orchestration_registry, options));
        log_start(&core);
        gauges::update(&core).await;
        start_upkeep(&core);
        if core.options.orchestration_concurrency > 0 {
            core.upkeep.spawn(unserved::report(core.clone()));
            blocked::start(&core);
        }
        orchestrator::start(&core);
        worker::start(&core);
        steps::start(&core);
        Arc::new(Self { core })
    }
}

pub(super) fn core(
    history_store: Arc<dyn Provider>,
    activities: ActivityRegistry,
    orchestrations: OrchestrationRegistry,
    options: RuntimeOptions,
) -> Core {
    let observability = ObservabilityHandle::init(&options.observability).ok();
    let metrics = observability.as_ref().map(|handle| handle.metrics_provider().clone()).unwrap_or_default();
    let stop = CancellationToken::new();
    let polling = Polling {
        interval: options.dispatcher_min_poll_interval,
        longest_fetch: options.dispatcher_long_poll_timeout,
        stop: stop.clone(),
    };
    let store = Store::choose(history_store, metrics.clone(), polling);
    let running = store.extension().running_activities().unwrap_or_default();
    let clock = store.extension().clock();
    let filter = match &options.supported_replay_versions {
        Some(range) => DispatcherCapabilityFilter { supported_duroxide_versions: vec![range.clone()] },
        None => DispatcherCapabilityFilter::default_for_current_build(),
    };
    let build_id = options.build_id.clone().unwrap_or_else(|| blocked::build_id(&orchestrations));
    let handle = Handle::current();
    Core {
        leases: Arc::new(Leases::new(store.clone(), clock.clone(), metrics.clone())),
        activities: worker::with_builtins(&activities, clock.clone()),
        sessions: Arc::new(Sessions::new(options.max_sessions_per_runtime)),
        residents: Residents::new(&options),
        steps: Steps::new(store.extension()),
        origins: Origins::new(),
        postponed: Postponed::new(),
        turn_capacity: TurnCapacity::new(options.orchestration_concurrency),
        slot_queue: Arc::new(worker::SlotQueue::new(options.worker_concurrency)),
        runtime_id: runtime_id(),
        worker_uid: uuid::Uuid::new_v4().to_string(),
        observed: Arc::default(),
        stop,
        work: Tasks::new(handle.clone()),
        upkeep: Tasks::new(handle),
        store,
        clock,
        options,
        orchestrations,
        observability,
        metrics,
        filter,
        running,
        build_id,
        turn_sampler: TurnSampler::default(),
    }
}

/// Four hex digits that distinguish this runtime from others on the same store.
fn runtime_id() -> String {
    let id = uuid::Uuid::new_v4();
    let [first, second, ..] = id.as_bytes();
    format!("{first:02x}{second:02x}")
}

fn log_start(core: &Core) {
    tracing::info!(target: TARGET, "duroxide {} runtime {} started on {} {}", env!("CARGO_PKG_VERSION"),
        core.runtime_id, core.store.name(), core.store.version());
    tracing::info!(target: TARGET, supported_range = %orchestrator::supported_range(&core.filter),
        "Orchestration dispatcher capability filter configured");
}

fn start_upkeep(core: &Arc<Core>) {
    let (leases, upkeep) = (core.leases.clone(), core.upkeep.clone());
    core.upkeep.spawn_supervised("lease keeper", move || leases.clone().run(upkeep.clone()));
    if core.store.as_management_capability().is_some() {
        let shared = core.clone();
        core.upkeep.spawn_supervised("gauges", move || gauges::run(shared.clone()));
    }
    if !core.options.heartbeat_interval.is_zero() {
        let shared = core.clone();
        core.upkeep.spawn_supervised("heartbeat", move || heartbeat::run(shared.clone()));
    }
}
