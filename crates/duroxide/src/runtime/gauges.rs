//! Gauges that only the store knows: how much runs, and how much waits.
//!
//! To count the waiting messages, a store may have to scan them all. So the runtime asks only if something may have
//! changed.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, TARGET};
use crate::providers::{WorkQueue, WorkSignal};

/// Updates the gauges at intervals.
pub(crate) async fn run(core: Arc<Core>) {
    let interval = core.options.observability.gauge_poll_interval.max(Duration::from_millis(1));
    tracing::debug!(target: TARGET, interval_secs = interval.as_secs_f64(), "gauges are updated regularly");
    let mut changes = Changes::watch(&core);
    loop {
        core.clock.sleep(interval).await;
        if changes.seen(&core) {
            update(&core).await;
        }
    }
}

/// Tells whether the store's counts may have changed since the runtime last asked.
struct Changes {
    signals: [WorkSignal; 2],
    fetched: u64,
    // A worker may ack after the last look what it had fetched before.
    settling: bool,
}

impl Changes {
    fn watch(core: &Core) -> Self {
        let store = core.store.extension();
        let signals = [WorkQueue::Orchestrator, WorkQueue::Worker].map(|queue| store.work_signal(queue));
        // The start of the runtime counts as a change: other runtimes may have worked since its first look.
        Self { signals, fetched: 0, settling: true }
    }

    fn seen(&mut self, core: &Core) -> bool {
        let mut changed = false;
        for signal in &mut self.signals {
            changed |= signal.may_have_changed();
            signal.mark_seen();
        }
        let snapshot = core.metrics().snapshot();
        let fetched = snapshot.orch_dispatcher_items_fetched + snapshot.worker_dispatcher_items_fetched;
        changed |= fetched != self.fetched;
        self.fetched = fetched;
        std::mem::replace(&mut self.settling, changed) || changed
    }
}

/// Sets the gauges to the store's counts. A store that cannot tell leaves them as they are.
pub(crate) async fn update(core: &Core) {
    update_dropped(core).await;
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

/// Takes over the store's count of dropped messages.
async fn update_dropped(core: &Core) {
    if let Ok(dropped) = core.store.extension().list_dropped(0).await {
        core.metrics().set_messages_dropped(dropped.total);
    }
}
