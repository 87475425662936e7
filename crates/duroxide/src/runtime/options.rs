//! The settings of a runtime.

use std::time::Duration;

use crate::observability::ObservabilityConfig;
use crate::providers::{SemverRange, TagFilter};

/// How a runtime works. Every field has a sensible default.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use duroxide::providers::memory::MemoryProvider;
/// use duroxide::{ActivityRegistry, OrchestrationRegistry, Runtime, RuntimeOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let options = RuntimeOptions {
///     worker_concurrency: 32,                                    // activities at once
///     activity_cancellation_grace_period: Duration::from_secs(2),
///     ..Default::default()
/// };
/// # let (activities, orchestrations) = (ActivityRegistry::default(), OrchestrationRegistry::default());
/// let store = Arc::new(MemoryProvider::new());
/// let runtime = Runtime::start_with_options(store, activities, orchestrations, options).await;
/// runtime.shutdown(Some(5_000)).await;                           // what runs has 5 seconds to end
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// The shortest time between two fetches that find nothing, for a store that does not signal.
    pub dispatcher_min_poll_interval: Duration,
    /// How long a fetch may wait for work, for a store that does not signal.
    pub dispatcher_long_poll_timeout: Duration,
    /// How many turns run at once. 0 makes a runtime that runs no orchestrations.
    pub orchestration_concurrency: usize,
    /// How many activities run at once. 0 makes a runtime that runs no activities.
    pub worker_concurrency: usize,
    /// How long the lease on an instance lasts, for one turn.
    pub orchestrator_lock_timeout: Duration,
    /// How long before its end that lease is renewed, if it is 15 seconds or longer.
    pub orchestrator_lock_renewal_buffer: Duration,
    /// How long the lease on an activity lasts.
    pub worker_lock_timeout: Duration,
    /// How long before its end that lease is renewed, if it is 15 seconds or longer.
    pub worker_lock_renewal_buffer: Duration,
    /// Logs and metrics.
    pub observability: ObservabilityConfig,
    /// How long work waits when no handler is registered for it.
    pub unregistered_backoff: UnregisteredBackoffConfig,
    /// How often the store may deliver work before it counts as poison.
    pub max_attempts: u32,
    /// How long a cancelled activity may go on before the runtime aborts it.
    pub activity_cancellation_grace_period: Duration,
    /// Which framework versions' executions this runtime replays; `None` for all up to its own.
    pub supported_replay_versions: Option<SemverRange>,
    /// How long a session belongs to its owner.
    pub session_lock_timeout: Duration,
    /// How long before its end that ownership is renewed, if it is 15 seconds or longer.
    pub session_lock_renewal_buffer: Duration,
    /// After how long without an activity the runtime stops renewing a session.
    pub session_idle_timeout: Duration,
    /// How often the runtime sweeps sessions that have no owner and no work.
    pub session_cleanup_interval: Duration,
    /// How many sessions may have an activity in flight here at once.
    pub max_sessions_per_runtime: usize,
    /// A stable owner of sessions, shared by all slots; without it each slot owns its own.
    pub worker_node_id: Option<String>,
    /// Which activities this runtime runs.
    pub worker_tag_filter: TagFilter,
    /// How many suspended instances stay in memory at most, so that their next turn costs only what is new. 0 keeps none:
    /// every turn then replays the whole history. What is recorded does not differ. By default only
    /// [`resident_bytes`](Self::resident_bytes) bounds them.
    pub resident_instances: usize,
    /// How many bytes suspended instances may take up in memory, by an estimate from their histories and their code; `None`
    /// for a tenth of the machine's memory, but at most 256 MiB. If more instances are in flight than fit, those that fit
    /// stay, and the others are read again for each turn.
    pub resident_bytes: Option<usize>,
    /// Whether the runtime takes each turn of a resident instance also with an execution that it makes anew from the
    /// stored history, and compares the two. This costs what residency saves. It finds errors of the runtime, which
    /// must decide alike from memory and from history. To find code that is not deterministic, take
    /// [`turn_check`](Self::turn_check), which also changes the hash seed.
    pub check_residents: bool,
    /// How often this runtime reports to its store that it is alive, what it runs, and what it could not do. Operators
    /// see them; zero reports nothing.
    pub heartbeat_interval: Duration,
    /// Which turns the runtime takes a second time, from the stored history, to see whether the code decides alike. If
    /// it does not, that is a mismatch.
    pub turn_check: TurnCheck,
    /// What becomes of an instance whose code does not fit its history.
    pub on_mismatch: OnMismatch,
    /// What becomes of work for which no handler is registered.
    pub on_unregistered: OnUnregistered,
    /// What becomes of an instance that waits for something that is not durable.
    pub on_foreign_wait: OnForeignWait,
    /// The name of this build of the program. A runtime of another build tries an instance again that this one has
    /// blocked. `None` takes the program's file and what is registered.
    pub build_id: Option<String>,
}

/// Which turns the runtime takes twice; see [`RuntimeOptions::turn_check`].
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::runtime::TurnCheck;
///
/// // In production, a sample.
/// let app = Duroxide::open("memory:").options(|options| options.turn_check = TurnCheck::OneIn(1_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnCheck {
    /// None. This costs nothing.
    #[default]
    Off,
    /// One of this many.
    OneIn(u32),
    /// All: for tests and debug builds. Unchecked go only turns with a history of more than 1,000 events, and those whose
    /// history cannot be read again, because the store fails or somebody else has taken a turn meanwhile.
    Every,
}

/// What becomes of an instance whose code does not fit its history; see [`RuntimeOptions::on_mismatch`].
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::runtime::{OnForeignWait, OnMismatch, OnUnregistered};
///
/// // `Duroxide` blocks by default; a runtime that is started by itself does if asked to.
/// let options = RuntimeOptions {
///     on_mismatch: OnMismatch::Block,
///     on_unregistered: OnUnregistered::Block,
///     on_foreign_wait: OnForeignWait::Block,
///     ..Default::default()
/// };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMismatch {
    /// It fails for good.
    #[default]
    Fail,
    /// It is blocked: its history and its messages stay as they were. It goes on when a runtime of another build is there
    /// whose code fits, or when [`Client::unblock_instance`](crate::Client::unblock_instance) asks for another try.
    Block,
}

/// What becomes of work for which no handler is registered; see [`RuntimeOptions::on_unregistered`].
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::runtime::OnUnregistered;
///
/// // Whoever starts an order under a wrong name is to hear of a failure.
/// let app = Duroxide::open("memory:").options(|options| options.on_unregistered = OnUnregistered::Poison);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUnregistered {
    /// It is delivered again, later each time, and fails for good after
    /// [`max_attempts`](RuntimeOptions::max_attempts) deliveries.
    #[default]
    Poison,
    /// An instance is blocked after a few deliveries, and goes on when a runtime is there that has its orchestration. An
    /// activity waits for such a runtime.
    Block,
}

/// What becomes of an instance that waits for something that is not durable; see [`RuntimeOptions::on_foreign_wait`].
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::runtime::OnForeignWait;
///
/// // Old code that sleeps by itself goes on as before, and is found in the log.
/// let app = Duroxide::open("memory:").options(|options| options.on_foreign_wait = OnForeignWait::Warn);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnForeignWait {
    /// The runtime warns. The instance goes on when a durable step brings a result.
    #[default]
    Warn,
    /// It is blocked, as with [`OnMismatch::Block`]. Nothing of the turn is stored.
    Block,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            dispatcher_min_poll_interval: Duration::from_millis(100),
            dispatcher_long_poll_timeout: Duration::from_secs(30),
            orchestration_concurrency: 2,
            worker_concurrency: 2,
            orchestrator_lock_timeout: Duration::from_secs(5),
            orchestrator_lock_renewal_buffer: Duration::from_secs(2),
            worker_lock_timeout: Duration::from_secs(30),
            worker_lock_renewal_buffer: Duration::from_secs(5),
            observability: ObservabilityConfig::default(),
            unregistered_backoff: UnregisteredBackoffConfig::default(),
            max_attempts: 10,
            activity_cancellation_grace_period: Duration::from_secs(10),
            supported_replay_versions: None,
            session_lock_timeout: Duration::from_secs(30),
            session_lock_renewal_buffer: Duration::from_secs(5),
            session_idle_timeout: Duration::from_secs(300),
            session_cleanup_interval: Duration::from_secs(300),
            max_sessions_per_runtime: 10,
            worker_node_id: None,
            worker_tag_filter: TagFilter::DefaultOnly,
            resident_instances: usize::MAX,
            resident_bytes: None,
            check_residents: false,
            heartbeat_interval: Duration::from_secs(5),
            turn_check: TurnCheck::Off,
            on_mismatch: OnMismatch::Fail,
            on_unregistered: OnUnregistered::Poison,
            on_foreign_wait: OnForeignWait::Warn,
            build_id: None,
        }
    }
}

impl RuntimeOptions {
    /// # Panics
    /// If a session would count as idle before the lease of its running activity is renewed.
    pub(crate) fn validate(&self) {
        let renewal = self
            .worker_lock_timeout
            .checked_sub(self.worker_lock_renewal_buffer)
            .unwrap_or(Duration::from_secs(1));
        assert!(
            self.session_idle_timeout > renewal,
            "session_idle_timeout ({}s) must be greater than worker lock renewal interval ({}s). \
             Otherwise a session is given up while one of its activities still runs.",
            self.session_idle_timeout.as_secs(),
            renewal.as_secs()
        );
    }
}

/// How long work waits when no handler is registered for it; longer each time.
///
/// ```
/// use std::time::Duration;
/// use duroxide::runtime::UnregisteredBackoffConfig;
///
/// let backoff = UnregisteredBackoffConfig::default();
/// let seconds: Vec<u64> = (1..=4).map(|delivery| backoff.delay(delivery).as_secs()).collect();
/// assert_eq!(seconds, [1, 2, 4, 8]);
/// assert_eq!(backoff.delay(100), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone)]
pub struct UnregisteredBackoffConfig {
    /// The wait after the first delivery.
    pub base_delay: Duration,
    /// The longest wait.
    pub max_delay: Duration,
}

impl Default for UnregisteredBackoffConfig {
    fn default() -> Self {
        Self { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(60) }
    }
}

impl UnregisteredBackoffConfig {
    /// Returns the wait after the given delivery, counted from 1: the base, doubled up to six times, but never above
    /// the longest.
    pub fn delay(&self, attempt_count: u32) -> Duration {
        let doublings = attempt_count.saturating_sub(1).min(6);
        self.base_delay.saturating_mul(1 << doublings).min(self.max_delay)
    }
}

/// Returns after how many more deliveries the work counts as poison. The first delivery beyond `max_attempts` does.
pub(crate) fn attempts_until_poison(max_attempts: u32, attempt_count: u32) -> u32 {
    max_attempts.saturating_sub(attempt_count).saturating_add(1)
}

/// When to renew a lease: `buffer` before its end if it is a long one, but never later than half-way, so that one
/// failed renewal does not lose the lease.
pub(crate) fn renewal_interval(lease: Duration, buffer: Duration) -> Duration {
    let half_way = lease / 2;
    let interval = if lease >= Duration::from_secs(15) {
        lease.saturating_sub(buffer).max(Duration::from_secs(1)).min(half_way)
    } else {
        half_way
    };
    // Even a lease of zero length must not make the keeper spin.
    interval.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_a_handler_waits_longer_each_time_up_to_a_minute() {
        let backoff = UnregisteredBackoffConfig::default();
        let seconds: Vec<u64> = (0..10).map(|attempt| backoff.delay(attempt).as_secs()).collect();
        assert_eq!(seconds, [1, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let short = UnregisteredBackoffConfig {
            base_delay: Duration::from_millis(100),
            max_delay: Duration::from_millis(500),
        };
        assert_eq!(short.delay(3), Duration::from_millis(400));
        assert_eq!(short.delay(u32::MAX), Duration::from_millis(500));
        let huge = UnregisteredBackoffConfig { base_delay: Duration::MAX, max_delay: Duration::MAX };
        assert_eq!(huge.delay(7), Duration::MAX);
    }

    #[test]
    fn attempts_until_poison_count_the_one_that_is_too_many() {
        assert_eq!((attempts_until_poison(10, 1), attempts_until_poison(10, 10)), (10, 1));
        assert_eq!((attempts_until_poison(u32::MAX, 0), attempts_until_poison(1, u32::MAX)), (u32::MAX, 1));
    }

    #[test]
    fn a_lease_is_renewed_by_half_way_however_short_it_is() {
        let interval = |lease_ms, buffer_ms| {
            renewal_interval(Duration::from_millis(lease_ms), Duration::from_millis(buffer_ms)).as_millis()
        };
        assert_eq!(interval(30_000, 5_000), 15_000);
        assert_eq!(interval(30_000, 20_000), 10_000);
        assert_eq!(interval(30_000, 40_000), 1_000);
        assert_eq!(interval(5_000, 2_000), 2_500);
        assert_eq!(interval(600, 0), 300);
        assert_eq!(interval(0, 0), 1);
    }
}
