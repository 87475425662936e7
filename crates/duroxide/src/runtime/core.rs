//! The state that all parts of a running runtime share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::heartbeat::Observed;
use super::leases::{LeaseKind, LeaseTerms, Leases};
use super::options::{RuntimeOptions, renewal_interval};
use super::orchestrator::{Residents, TurnCapacity, TurnSampler};
use super::origins::Origins;
use super::postponed::Postponed;
use super::sessions::Sessions;
use super::steps::Steps;
use super::store::Store;
use super::tasks::Tasks;
use super::worker::SlotQueue;
use crate::model::Clock;
use crate::observability::{MetricsProvider, ObservabilityHandle};
use crate::providers::{DispatcherCapabilityFilter, RunningActivities, RunningMark};
use crate::registry::{ActivityRegistry, OrchestrationRegistry};

pub(crate) const TARGET: &str = "duroxide::runtime";

/// The state of a runtime. Its tasks hold it, so it lives until the last of them has ended.
pub(crate) struct Core {
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub options: RuntimeOptions,
    pub activities: ActivityRegistry,
    pub orchestrations: OrchestrationRegistry,
    pub observability: Option<ObservabilityHandle>,
    pub metrics: Arc<MetricsProvider>,
    pub filter: DispatcherCapabilityFilter,
    /// Four hex digits that distinguish this runtime from others in logs and ids.
    pub runtime_id: String,
    /// What distinguishes this runtime from all others, also from those of the past.
    pub worker_uid: String,
    /// What this runtime tells the store about itself.
    pub observed: Arc<Observed>,
    /// Fires when the runtime shall take no new work.
    pub stop: CancellationToken,
    /// The tasks that take and do work: dispatchers, turns, activities.
    pub work: Tasks,
    /// The tasks that keep work alive, and go on until the work has ended: leases, sessions, gauges.
    pub upkeep: Tasks,
    pub leases: Arc<Leases>,
    pub running: Arc<RunningActivities>,
    pub sessions: Arc<Sessions>,
    pub residents: Residents,
    /// Turns that are stored together with their cause.
    pub steps: Steps,
    pub origins: Origins,
    /// The name of this build: see `RuntimeOptions::build_id`.
    pub build_id: String,
    /// Counts turns, to check some of them.
    pub turn_sampler: TurnSampler,
    /// Turns that the store could not take for now.
    pub postponed: Postponed,
    /// How many turns may run, and how many may be under way.
    pub turn_capacity: TurnCapacity,
    /// The worker slots, and the activities that wait for one.
    pub slot_queue: Arc<SlotQueue>,
}

impl Core {
    pub fn metrics(&self) -> &MetricsProvider {
        &self.metrics
    }

    /// Returns the id of a worker slot.
    pub fn worker_id(&self, slot: usize) -> String {
        let node = self.options.worker_node_id.as_deref().unwrap_or(&self.runtime_id);
        format!("work-{slot}-{node}")
    }

    /// Returns the id of an orchestration slot.
    pub fn turn_worker_id(&self, slot: usize) -> String {
        format!("orch-{slot}-{}", self.runtime_id)
    }

    /// Returns the owner id for the sessions that a worker slot takes.
    pub fn session_owner(&self, slot: usize) -> String {
        match &self.options.worker_node_id {
            Some(node) => node.clone(),
            None => format!("work-{slot}-{}", self.runtime_id),
        }
    }

    pub fn turn_lease(&self) -> LeaseTerms {
        let duration = self.options.orchestrator_lock_timeout;
        let interval = renewal_interval(duration, self.options.orchestrator_lock_renewal_buffer);
        LeaseTerms { kind: LeaseKind::Instance, duration, interval }
    }

    pub fn activity_lease(&self) -> LeaseTerms {
        let duration = self.options.worker_lock_timeout;
        let interval = renewal_interval(duration, self.options.worker_lock_renewal_buffer);
        LeaseTerms { kind: LeaseKind::Activity, duration, interval }
    }

    /// Tells the store that user code is about to run under this lease, until the mark is dropped.
    pub fn mark_running(&self, token: &str) -> RunningMark {
        self.store.extension().mark_running(token)
    }
}
