//! Gauges that only the store can tell: how much runs, and how much waits.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, TARGET};

/// Updates the gauges from time to time.
pub(crate) async fn run(core: Arc<Core>) {
    let interval = core.options.observability.gauge_poll_interval.max(Duration::from_millis(1));
    tracing::debug!(target: TARGET, interval_secs = interval.as_secs_f64(), "gauges are updated regularly");
    loop {
        core.clock.sleep(interval).await;
        update(&core).await;
    }
}

/// Sets the gauges to what the store says. A store that cannot tell leaves them as they are.
pub(crate) async fn update(core: &Core) {
    let Some(admin) = core.store.as_management_capability() else { return };
    if let Ok(metrics) = admin.get_system_metrics().await {
        let active = i64::try_from(metrics.running_instances).unwrap_or(i64::MAX);
        core.metrics().set_active_orchestrations(active);
        tracing::debug!(target: TARGET, active_count = active, "gauge set");
    }
    if let Ok(depths) = admin.get_queue_depths().await {
        let (orch_queue, worker_queue) = (depths.orchestrator_queue as u64, depths.worker_queue as u64);
        core.metrics().update_queue_depths(orch_queue, worker_queue);
        tracing::debug!(target: TARGET, orch_queue, worker_queue, "gauges set");
    }
}
