//! Stops a runtime and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use super::Runtime;
use super::core::TARGET;

/// How long work in progress may take to end, unless the caller says otherwise.
const DEFAULT_GRACE: Duration = Duration::from_secs(1);

impl Runtime {
    /// Stops the runtime: it takes no new work at once, lets what is in progress end for `timeout_ms` (1000 by default;
    /// 0 for not at all), aborts the rest, and returns when no task is left. What was aborted is delivered again when
    /// its lease ends.
    ///
    /// It returns as soon as everything has ended. Calling it again, also at the same time, waits for the same end; the
    /// shortest time decides. If the future is dropped, a later call finishes the job.
    pub async fn shutdown(self: Arc<Self>, timeout_ms: Option<u64>) {
        let core = &self.core;
        let grace = timeout_ms.map_or(DEFAULT_GRACE, Duration::from_millis);
        core.stop.cancel();
        if !grace.is_zero() {
            tokio::select! {
                biased;
                () = core.work.ended() => {}
                () = core.clock.sleep(grace) => {}
            }
        }
        let remaining_tasks = core.work.count();
        if remaining_tasks > 0 {
            tracing::warn!(target: TARGET, timeout_ms = grace.as_millis() as u64, remaining_tasks,
                "shutdown aborts what has not ended");
        }
        core.work.abort_all();
        core.work.ended().await;
        // Leases were kept until the work that they cover had ended.
        core.upkeep.abort_all();
        core.upkeep.ended().await;
        core.residents.clear();
    }
}
