//! The counters behind a snapshot.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::MetricsSnapshot;

/// A number that many threads count up. The counters of a runtime are independent facts, so relaxed order is enough.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub(super) struct Level(AtomicI64);

impl Level {
    pub(super) fn add(&self, change: i64) {
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One count for each field of [`MetricsSnapshot`], and the present levels.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) orch_starts: Count,
    pub(super) orch_completions: Count,
    pub(super) orch_failures: Count,
    pub(super) orch_application_errors: Count,
    pub(super) orch_infrastructure_errors: Count,
    pub(super) orch_configuration_errors: Count,
    pub(super) orch_poison: Count,
    pub(super) activity_success: Count,
    pub(super) activity_app_errors: Count,
    pub(super) activity_infra_errors: Count,
    pub(super) activity_config_errors: Count,
    pub(super) activity_poison: Count,
    pub(super) orch_dispatcher_items_fetched: Count,
    pub(super) worker_dispatcher_items_fetched: Count,
    pub(super) orch_continue_as_new: Count,
    pub(super) suborchestration_calls: Count,
    pub(super) provider_errors: Count,
    pub(super) active_orchestrations: Level,
    pub(super) orchestrator_queue_depth: Count,
    pub(super) worker_queue_depth: Count,
}

impl Counters {
    pub(super) fn snapshot(&self) -> MetricsSnapshot {
        MetricsSnapshot {
            orch_starts: self.orch_starts.get(),
            orch_completions: self.orch_completions.get(),
            orch_failures: self.orch_failures.get(),
            orch_application_errors: self.orch_application_errors.get(),
            orch_infrastructure_errors: self.orch_infrastructure_errors.get(),
            orch_configuration_errors: self.orch_configuration_errors.get(),
            orch_poison: self.orch_poison.get(),
            activity_success: self.activity_success.get(),
            activity_app_errors: self.activity_app_errors.get(),
            activity_infra_errors: self.activity_infra_errors.get(),
            activity_config_errors: self.activity_config_errors.get(),
            activity_poison: self.activity_poison.get(),
            orch_dispatcher_items_fetched: self.orch_dispatcher_items_fetched.get(),
            worker_dispatcher_items_fetched: self.worker_dispatcher_items_fetched.get(),
            orch_continue_as_new: self.orch_continue_as_new.get(),
            suborchestration_calls: self.suborchestration_calls.get(),
            provider_errors: self.provider_errors.get(),
        }
    }
}
