//! A simulated process: a runtime with a handle of its own, which may die at any point where it waits.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::TagFilter;
use duroxide::runtime::Runtime;
use duroxide::{OrchestrationRegistry, RuntimeOptions};

use super::activities::activities;
use super::clock::SkewedClock;
use super::store::SimStore;
use super::twin::Twin;
use super::world::World;
use crate::shared::program;
use crate::shared::random::Random;

/// How long leases last here.
pub const LEASE: Duration = Duration::from_secs(2);
/// By how much the clock of a process may be wrong, either way.
pub const MOST_SKEW_MS: u64 = 3_000;

/// A process.
pub struct Process {
    number: usize,
    lives: usize,
    store: Arc<SimStore>,
    runtime: Arc<Runtime>,
}

impl Process {
    /// Starts a process.
    pub async fn start(world: &Arc<World>, number: usize, twin: Option<Twin>, dice: &mut Random) -> Self {
        let (store, runtime) = Self::begin(world, number, 0, twin, dice).await;
        Self { number, lives: 0, store, runtime }
    }

    async fn begin(
        world: &Arc<World>,
        number: usize,
        life: usize,
        twin: Option<Twin>,
        dice: &mut Random,
    ) -> (Arc<SimStore>, Arc<Runtime>) {
        let skew_ms = match dice.below(3) {
            0 => dice.below(2 * MOST_SKEW_MS) as i64 - MOST_SKEW_MS as i64,
            _ => 0,
        };
        let clock = Arc::new(SkewedClock::new(world.clock.clone(), skew_ms));
        let store = SimStore::new(world, format!("p{number}.{life}"), clock, true, twin);
        let options = RuntimeOptions {
            orchestration_concurrency: 1 + dice.below(3) as usize,
            worker_concurrency: 1 + dice.below(6) as usize,
            orchestrator_lock_timeout: LEASE,
            worker_lock_timeout: LEASE,
            session_lock_timeout: LEASE,
            session_idle_timeout: Duration::from_secs(3),
            session_cleanup_interval: Duration::from_secs(1),
            worker_tag_filter: TagFilter::default_and([program::TAG]),
            activity_cancellation_grace_period: Duration::from_millis(500),
            resident_instances: if dice.below(3) == 0 { 0 } else { 1_000 },
            check_residents: dice.below(4) == 0,
            // What happens to messages here is not their fault.
            max_attempts: 10_000,
            ..RuntimeOptions::default()
        };
        let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
        world.set_home(number, store.clone());
        let runtime = Runtime::start_with_options(store.clone(), activities(world), code, options).await;
        (store, runtime)
    }

    /// Loses everything that the process has in memory, and starts it anew.
    pub async fn die_and_restart(&mut self, world: &Arc<World>, twin: Option<Twin>, dice: &mut Random) {
        self.store.kill();
        end(self.runtime.clone()).await;
        self.lives += 1;
        (self.store, self.runtime) = Self::begin(world, self.number, self.lives, twin, dice).await;
    }

    /// Shuts down as a process does that is told to end, and starts anew. What is still going on then is dropped where it waits.
    pub async fn shut_down_and_restart(&mut self, world: &Arc<World>, twin: Option<Twin>, dice: &mut Random) {
        let patience_ms = dice.below(1_000);
        self.runtime.clone().shutdown(Some(patience_ms)).await;
        self.die_and_restart(world, twin, dice).await;
    }

    /// From now on, no call of the process takes effect or returns.
    pub fn kill(&self) {
        self.store.kill();
    }

    /// Ends the process, when all is over.
    pub async fn stop(self) {
        self.store.kill();
        end(self.runtime).await;
    }
}

/// Drops all tasks of a runtime where they wait. Whatever it still wants of its store goes nowhere.
async fn end(runtime: Arc<Runtime>) {
    let _ = tokio::time::timeout(Duration::from_millis(1), runtime.shutdown(Some(0))).await;
}
