//! Stops a runtime and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use super::Runtime;
use super::core::TARGET;
use super::heartbeat;
use super::tasks::Tasks;
use crate::model::Clock;

/// How long work in progress may take to end, unless the caller says otherwise.
const DEFAULT_GRACE: Duration = Duration::from_secs(1);

/// How long aborted tasks may take to be gone. Only user code that blocks its thread takes longer.
const LONGEST_ABORT: Duration = Duration::from_secs(2);

impl Runtime {
    /// Stops the runtime: it takes no new work from now on, gives running work `timeout_ms` to end (1000 by default; 0
    /// for no time), aborts the rest, and returns when no task is left. The store delivers aborted work again when its
    /// lease ends.
    ///
    /// User code that blocks its thread cannot be aborted. Shutdown waits a few seconds longer for it, then logs a
    /// warning and returns without it. Such code ends by itself, or with the process; its result is dropped.
    ///
    /// Returns as soon as all tasks have ended. A second call, also at the same time, waits for the same end; the
    /// shortest time decides. If the caller drops the future, a later call finishes the shutdown.
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
    /// runtime.shutdown(Some(5_000)).await; // activities have five seconds to end
    /// # }
    /// ```
    pub async fn shutdown(self: Arc<Self>, timeout_ms: Option<u64>) {
        let core = &self.core;
        let grace = timeout_ms.map_or(DEFAULT_GRACE, Duration::from_millis);
        core.stop.cancel();
        core.steps.close();
        ended_within(&core.work, grace, &*core.clock).await;
        let remaining_tasks = core.work.count();
        if remaining_tasks > 0 {
            tracing::warn!(target: TARGET, timeout_ms = grace.as_millis() as u64, remaining_tasks,
                "shutdown aborts what has not ended");
        }
        core.work.abort_all();
        ended_within(&core.work, LONGEST_ABORT, &*core.clock).await;
        // The leases were kept until the work under them had ended.
        core.upkeep.abort_all();
        ended_within(&core.upkeep, LONGEST_ABORT, &*core.clock).await;
        let blocked_tasks = core.work.count() + core.upkeep.count();
        if blocked_tasks > 0 {
            tracing::warn!(target: TARGET, blocked_tasks,
                "shutdown returns although user code still blocks its thread");
        }
        core.residents.clear();
        heartbeat::retire(core).await;
    }
}

/// Waits until a group of tasks has ended, but no longer than `time`.
async fn ended_within(tasks: &Tasks, time: Duration, clock: &dyn Clock) {
    if time.is_zero() || tasks.count() == 0 {
        return;
    }
    // User code may block every thread of the executor, and with them its timers.
    let time_is_up = clock.alarm(time);
    tokio::select! {
        biased;
        () = tasks.ended() => {}
        () = time_is_up => {}
    }
}
