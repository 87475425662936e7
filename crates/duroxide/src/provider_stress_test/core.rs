//! The runner: keeps a number of orchestrations in flight for a while, and counts how they end.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tracing::info;

use super::latency::{Latencies, StressTestReport};
use crate::client::Client;
use crate::model::{Clock, ErrorDetails, SystemClock};
use crate::providers::Provider;
use crate::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use crate::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use crate::{ActivityContext, OrchestrationContext};

/// The orchestration that the runner starts; every registry given to it must have one of this name.
pub(super) const FANOUT: &str = "FanoutOrchestration";

/// How long the runner waits for orchestrations in flight when the time is up.
const LONGEST_DRAIN: Duration = Duration::from_secs(120);

/// The pause between two starts.
const PACE: Duration = Duration::from_millis(1);

/// How much load, for how long, on how large a runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StressTestConfig {
    /// The most orchestrations in flight.
    pub max_concurrent: usize,
    /// For how long the runner starts new ones.
    pub duration_secs: u64,
    /// Activities of each orchestration.
    pub tasks_per_instance: usize,
    /// How long each activity takes.
    pub activity_delay_ms: u64,
    /// Turns that the runtime takes at once.
    pub orch_concurrency: usize,
    /// Activities that the runtime runs at once.
    pub worker_concurrency: usize,
    /// How long to wait for one orchestration.
    #[serde(default = "default_wait_timeout_secs")]
    pub wait_timeout_secs: u64,
}

fn default_wait_timeout_secs() -> u64 {
    60
}

impl Default for StressTestConfig {
    fn default() -> Self {
        Self {
            max_concurrent: 20,
            duration_secs: 10,
            tasks_per_instance: 5,
            activity_delay_ms: 10,
            orch_concurrency: 2,
            worker_concurrency: 2,
            wait_timeout_secs: default_wait_timeout_secs(),
        }
    }
}

/// How the orchestrations ended.
#[derive(Debug, Clone)]
pub struct StressTestResult {
    /// Orchestrations that were started.
    pub launched: usize,
    /// Orchestrations that completed.
    pub completed: usize,
    /// Orchestrations that failed, did not start, or did not end in time.
    pub failed: usize,
    /// Orchestrations that failed because of the machinery, poisoned ones included.
    pub failed_infrastructure: usize,
    /// Orchestrations that failed because code and history did not fit.
    pub failed_configuration: usize,
    /// Orchestrations that failed in user code.
    pub failed_application: usize,
    /// From the first start to the last end.
    pub total_time: Duration,
    /// Completed orchestrations a second.
    pub orch_throughput: f64,
    /// Activities of completed orchestrations a second.
    pub activity_throughput: f64,
    /// How long a completed orchestration took on average, from start to end.
    pub avg_latency_ms: f64,
}

impl StressTestResult {
    /// Returns the percentage of the started orchestrations that completed; 0 if none was started.
    pub fn success_rate(&self) -> f64 {
        if self.launched == 0 {
            return 0.0;
        }
        self.completed as f64 / self.launched as f64 * 100.0
    }
}

/// Runs the load on a fresh runtime and returns the figures.
///
/// Starts instances `stress-test-0`, `stress-test-1`, … of orchestration `FanoutOrchestration`, which the registry must
/// have, with input `{"task_count":N}`.
///
/// # Errors
/// If the runner itself breaks down. The result counts orchestrations that fail.
pub async fn run_stress_test(
    config: StressTestConfig,
    provider: Arc<dyn Provider>,
    activities: ActivityRegistry,
    orchestrations: OrchestrationRegistry,
) -> Result<StressTestResult, Box<dyn Error>> {
    Ok(measure_stress_test(config, provider, activities, orchestrations).await?.result)
}

/// Runs the load like [`run_stress_test`] and also returns how long single orchestrations took.
///
/// # Errors
/// If the runner itself breaks down.
pub async fn measure_stress_test(
    config: StressTestConfig,
    provider: Arc<dyn Provider>,
    activities: ActivityRegistry,
    orchestrations: OrchestrationRegistry,
) -> Result<StressTestReport, Box<dyn Error>> {
    let clock = clock_of(&*provider);
    let options = RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_millis(100),
        orchestration_concurrency: config.orch_concurrency,
        worker_concurrency: config.worker_concurrency,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::start_with_options(provider.clone(), activities, orchestrations, options).await;
    let began = clock.monotonic();
    let load = Load { client: Client::new(provider), clock: clock.clone(), config: &config };
    let tally = load.run().await;
    let total_time = clock.monotonic().saturating_sub(began);
    runtime.shutdown(None).await;
    Ok(tally?.into_report(&config, total_time))
}

/// The store's own clock, so that a load can run on a clock that a test moves by hand.
fn clock_of(provider: &dyn Provider) -> Arc<dyn Clock> {
    provider
        .as_extended()
        .map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |extended| extended.clock())
}

/// The part that keeps orchestrations in flight.
struct Load<'a> {
    client: Client,
    clock: Arc<dyn Clock>,
    config: &'a StressTestConfig,
}

impl Load<'_> {
    async fn run(&self) -> Result<Tally, Box<dyn Error>> {
        let mut tally = Tally::default();
        let mut flights = JoinSet::new();
        let deadline = self.clock.monotonic() + Duration::from_secs(self.config.duration_secs);
        while self.clock.monotonic() < deadline {
            if flights.len() < self.config.max_concurrent {
                flights.spawn(self.flight(tally.launched));
                tally.launched += 1;
                self.clock.sleep(PACE).await;
            } else {
                self.land_one(&mut flights, deadline, &mut tally).await?;
            }
            while let Some(landed) = flights.try_join_next() {
                tally.add(landed?);
            }
        }
        let deadline = self.clock.monotonic() + LONGEST_DRAIN;
        while !flights.is_empty() && self.clock.monotonic() < deadline {
            self.land_one(&mut flights, deadline, &mut tally).await?;
        }
        tally.failed += flights.len();
        flights.shutdown().await;
        Ok(tally)
    }

    /// Waits until one orchestration has ended or the deadline has come.
    async fn land_one(
        &self,
        flights: &mut JoinSet<Landing>,
        deadline: Duration,
        tally: &mut Tally,
    ) -> Result<(), Box<dyn Error>> {
        tokio::select! {
            Some(landed) = flights.join_next() => tally.add(landed?),
            () = self.clock.sleep_until(deadline) => {}
        }
        Ok(())
    }

    /// Starts one orchestration and waits for its end.
    fn flight(&self, number: usize) -> impl Future<Output = Landing> + use<> {
        let (client, clock) = (self.client.clone(), self.clock.clone());
        let timeout = Duration::from_secs(self.config.wait_timeout_secs);
        let input = serde_json::json!({ "task_count": self.config.tasks_per_instance }).to_string();
        async move {
            let instance = format!("stress-test-{number}");
            let began = clock.monotonic();
            if client.start_orchestration(instance.as_str(), FANOUT, input).await.is_err() {
                return Landing::Lost;
            }
            match client.wait_for_orchestration(&instance, timeout).await {
                Ok(OrchestrationStatus::Completed { .. }) => {
                    Landing::Completed(clock.monotonic().saturating_sub(began))
                }
                Ok(OrchestrationStatus::Failed { details, .. }) => Landing::Failed(details),
                _ => Landing::Lost,
            }
        }
    }
}

/// How one orchestration ended.
enum Landing {
    Completed(Duration),
    Failed(ErrorDetails),
    /// It did not start, or did not end in time.
    Lost,
}

/// The counts while the load runs.
#[derive(Default)]
struct Tally {
    launched: usize,
    failed: usize,
    failed_infrastructure: usize,
    failed_configuration: usize,
    failed_application: usize,
    latencies: Vec<Duration>,
}

impl Tally {
    fn add(&mut self, landing: Landing) {
        match landing {
            Landing::Completed(latency) => self.latencies.push(latency),
            Landing::Lost => self.failed += 1,
            Landing::Failed(details) => {
                self.failed += 1;
                match details {
                    ErrorDetails::Infrastructure { .. } | ErrorDetails::Poison { .. } => {
                        self.failed_infrastructure += 1;
                    }
                    ErrorDetails::Configuration { .. } => self.failed_configuration += 1,
                    ErrorDetails::Application { .. } => self.failed_application += 1,
                }
            }
        }
    }

    fn into_report(self, config: &StressTestConfig, total_time: Duration) -> StressTestReport {
        let completed = self.latencies.len();
        let latencies = Latencies::of(self.latencies);
        let seconds = total_time.as_secs_f64().max(f64::EPSILON);
        let orch_throughput = completed as f64 / seconds;
        let result = StressTestResult {
            launched: self.launched,
            completed,
            failed: self.failed,
            failed_infrastructure: self.failed_infrastructure,
            failed_configuration: self.failed_configuration,
            failed_application: self.failed_application,
            total_time,
            orch_throughput,
            activity_throughput: orch_throughput * config.tasks_per_instance as f64,
            avg_latency_ms: latencies.mean.as_secs_f64() * 1_000.0,
        };
        StressTestReport { result, latencies }
    }
}

/// Logs the figures of several runs as a table: for each the store, the configuration and the result.
pub fn print_comparison_table(results: &[(String, String, StressTestResult)]) {
    info!(
        "{:<20} {:<20} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>12}",
        "provider", "config", "launched", "completed", "failed", "success %", "orch/s", "act/s", "latency ms"
    );
    for (provider, config, result) in results {
        info!(
            "{:<20} {:<20} {:>9} {:>9} {:>9} {:>9.2} {:>10.2} {:>10.2} {:>12.2}",
            provider,
            config,
            result.launched,
            result.completed,
            result.failed,
            result.success_rate(),
            result.orch_throughput,
            result.activity_throughput,
            result.avg_latency_ms
        );
    }
}

/// Makes a registry with `ProcessTask`, an activity that takes `delay_ms`.
pub fn create_default_activities(delay_ms: u64) -> ActivityRegistry {
    let process = move |_: ActivityContext, input: String| async move {
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        Ok(format!("processed: {input}"))
    };
    ActivityRegistry::builder().register("ProcessTask", process).build()
}

/// Makes a registry with `FanoutOrchestration`, which runs `task_count` activities at once and waits for all.
pub fn create_default_orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder().register(FANOUT, fan_out).build()
}

async fn fan_out(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let input: serde_json::Value = serde_json::from_str(&input).unwrap_or_default();
    let task_count = input["task_count"].as_u64().unwrap_or(5);
    let tasks = (0..task_count).map(|task| ctx.schedule_activity("ProcessTask", format!("task-{task}")));
    let results = ctx.join(tasks.collect()).await;
    let done = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(format!("completed {} tasks", done.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_without_wait_timeout_waits_a_minute() {
        let json = r#"{"max_concurrent":1,"duration_secs":1,"tasks_per_instance":1,"activity_delay_ms":1,
            "orch_concurrency":1,"worker_concurrency":1}"#;
        let config: StressTestConfig = serde_json::from_str(json).unwrap();
        assert_eq!(config.wait_timeout_secs, 60);
    }

    #[test]
    fn nothing_launched_is_no_success() {
        let report = Tally::default().into_report(&StressTestConfig::default(), Duration::ZERO);
        assert_eq!((report.result.success_rate(), report.result.orch_throughput), (0.0, 0.0));
    }

    #[test]
    fn poison_counts_as_infrastructure() {
        let mut tally = Tally { launched: 2, ..Tally::default() };
        tally.add(Landing::Completed(Duration::from_millis(4)));
        tally.add(Landing::Failed(ErrorDetails::Poison {
            attempt_count: 2,
            max_attempts: 1,
            message_type: crate::model::PoisonMessageType::Orchestration {
                instance: "i".to_string(),
                execution_id: 1,
            },
            message: String::new(),
        }));
        let result = tally.into_report(&StressTestConfig::default(), Duration::from_secs(2)).result;
        assert_eq!((result.completed, result.failed, result.failed_infrastructure), (1, 1, 1));
        assert_eq!((result.success_rate(), result.orch_throughput, result.avg_latency_ms), (50.0, 0.5, 4.0));
    }
}
