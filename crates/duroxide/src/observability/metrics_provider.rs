//! The recorder of a runtime's metrics.

use std::time::Duration;

use metrics::{SharedString, counter, gauge, histogram};

use super::counters::{Count, Counters};
use super::outcomes::ActivityOutcome;
use super::turn_outcome::TurnOutcome;
use super::{MetricsSnapshot, ObservabilityConfig, metric_names as names};

/// The label of a fact whose caller named no orchestration or activity.
const UNKNOWN: &str = "unknown";

/// Records what a runtime does, through the `metrics` facade and in counters of its own.
///
/// Each method records one fact, once: in one series of each metric that it names, and in the [`MetricsSnapshot`]. A
/// method without names (`record_activity_success` and its like) counts in the same metrics with the labels `unknown`.
/// So a caller records a fact with one of the two methods, never with both.
#[derive(Debug, Default)]
pub struct MetricsProvider {
    counters: Counters,
}

impl MetricsProvider {
    /// Makes a recorder whose counters are zero.
    ///
    /// # Errors
    /// None at present.
    pub fn new(_config: &ObservabilityConfig) -> Result<Self, String> {
        names::describe_all();
        Ok(Self::default())
    }

    /// Drops the recorder. There is nothing to flush.
    ///
    /// # Errors
    /// None at present.
    pub async fn shutdown(self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the counts so far.
    pub fn snapshot(&self) -> MetricsSnapshot {
        self.counters.snapshot()
    }
}

/// Orchestrations.
impl MetricsProvider {
    /// Records that an execution began. `initiated_by` is `client` or `continueAsNew`.
    pub fn record_orchestration_start(&self, orchestration_name: &str, version: &str, initiated_by: &str) {
        self.counters.orch_starts.add(1);
        counter!(
            names::ORCHESTRATION_STARTS,
            "orchestration_name" => orchestration_name.to_string(),
            "version" => version.to_string(),
            "initiated_by" => initiated_by.to_string(),
        )
        .increment(1);
    }

    /// Records that an execution ended. `status` is `success`, `failed` or `continuedAsNew`.
    pub fn record_orchestration_completion(
        &self,
        orchestration_name: &str,
        version: &str,
        status: &str,
        duration_seconds: f64,
        turn_count: u64,
        history_events: u64,
    ) {
        self.counters.orch_completions.add(1);
        let name = SharedString::from(orchestration_name.to_string());
        let version = SharedString::from(version.to_string());
        let status = SharedString::from(status.to_string());
        counter!(
            names::ORCHESTRATION_COMPLETIONS,
            "orchestration_name" => name.clone(),
            "version" => version.clone(),
            "status" => status.clone(),
            "final_turn_count" => turn_count_bucket(turn_count),
        )
        .increment(1);
        histogram!(
            names::ORCHESTRATION_DURATION,
            "orchestration_name" => name.clone(),
            "version" => version,
            "status" => status,
        )
        .record(duration_seconds);
        histogram!(names::ORCHESTRATION_TURNS, "orchestration_name" => name.clone())
            .record(turn_count as f64);
        histogram!(names::ORCHESTRATION_HISTORY_SIZE, "orchestration_name" => name)
            .record(history_events as f64);
    }

    /// Records that an execution failed. `error_type` is `app_error`, `infrastructure_error`, `config_error` or
    /// `unknown`; `error_category` says more.
    pub fn record_orchestration_failure(
        &self,
        orchestration_name: &str,
        version: &str,
        error_type: &str,
        error_category: &str,
    ) {
        self.counters.orch_failures.add(1);
        counter!(
            names::ORCHESTRATION_FAILURES,
            "orchestration_name" => orchestration_name.to_string(),
            "version" => version.to_string(),
            "error_type" => error_type.to_string(),
            "error_category" => error_category.to_string(),
        )
        .increment(1);
        let of_machinery = match error_type {
            "app_error" => {
                self.counters.orch_application_errors.add(1);
                return;
            }
            "infrastructure_error" => {
                self.counters.orch_infrastructure_errors.add(1);
                names::ORCHESTRATION_INFRASTRUCTURE_ERRORS
            }
            "config_error" => {
                self.counters.orch_configuration_errors.add(1);
                names::ORCHESTRATION_CONFIGURATION_ERRORS
            }
            _ => return,
        };
        counter!(
            of_machinery,
            "orchestration_name" => orchestration_name.to_string(),
            "error_category" => error_category.to_string(),
        )
        .increment(1);
    }

    /// Records a failure by user code, of an execution whose name is not at hand.
    pub fn record_orchestration_application_error(&self) {
        self.record_orchestration_failure(UNKNOWN, UNKNOWN, "app_error", "application");
    }

    /// Records a failure by storage or the machinery, of an execution whose name is not at hand.
    pub fn record_orchestration_infrastructure_error(&self) {
        self.record_orchestration_failure(UNKNOWN, UNKNOWN, "infrastructure_error", "infrastructure");
    }

    /// Records a failure because code and history do not fit, of an execution whose name is not at hand.
    pub fn record_orchestration_configuration_error(&self) {
        self.record_orchestration_failure(UNKNOWN, UNKNOWN, "config_error", "configuration");
    }

    /// Records that an execution ended by continue-as-new.
    pub fn record_continue_as_new(&self, orchestration_name: &str, execution_id: u64) {
        self.counters.orch_continue_as_new.add(1);
        counter!(
            names::ORCHESTRATION_CONTINUE_AS_NEW,
            "orchestration_name" => orchestration_name.to_string(),
            "execution_id" => execution_id.to_string(),
        )
        .increment(1);
    }

    /// Records that the runtime gave a turn up after too many attempts.
    pub fn record_orchestration_poison(&self) {
        self.counters.orch_poison.add(1);
        counter!(names::ORCHESTRATION_POISON).increment(1);
    }

    /// Records that the runtime gave a turn back because of a storage error that may pass, a full disk for instance.
    pub fn record_turn_postponed(&self, orchestration_name: &str) {
        counter!(names::ORCHESTRATION_TURNS_POSTPONED, "orchestration_name" => orchestration_name.to_string())
            .increment(1);
    }

    /// Records that the runtime blocked an instance because the store cannot take even its failure.
    pub fn record_instance_blocked(&self, orchestration_name: &str) {
        counter!(names::ORCHESTRATION_INSTANCES_BLOCKED, "orchestration_name" => orchestration_name.to_string())
            .increment(1);
    }

    /// Records that an instance was not in memory for its turn, and was made again from its history.
    pub fn record_instance_rebuilt(&self) {
        counter!(names::INSTANCES_REBUILT).increment(1);
    }

    /// Records that instances left memory, or were not kept there, for lack of room.
    pub fn record_residents_evicted(&self, instances: u64) {
        if instances > 0 {
            counter!(names::RESIDENTS_EVICTED).increment(instances);
        }
    }

    /// Records that a child ended.
    pub fn record_suborchestration_call(
        &self,
        parent_orchestration: &str,
        child_orchestration: &str,
        outcome: &str,
    ) {
        self.counters.suborchestration_calls.add(1);
        counter!(
            names::SUBORCHESTRATION_CALLS,
            "parent_orchestration" => parent_orchestration.to_string(),
            "child_orchestration" => child_orchestration.to_string(),
            "outcome" => outcome.to_string(),
        )
        .increment(1);
    }

    /// Records how long a child took, from its call to its end.
    pub fn record_suborchestration_duration(
        &self,
        parent_orchestration: &str,
        child_orchestration: &str,
        duration_seconds: f64,
        outcome: &str,
    ) {
        histogram!(
            names::SUBORCHESTRATION_DURATION,
            "parent_orchestration" => parent_orchestration.to_string(),
            "child_orchestration" => child_orchestration.to_string(),
            "outcome" => outcome.to_string(),
        )
        .record(duration_seconds);
    }
}

/// Activities.
impl MetricsProvider {
    /// Records that an activity ended. `outcome` is `success`, `app_error`, `infra_error`, `config_error` or
    /// `cancelled`; `retry_attempt` is 0 for the first attempt.
    pub fn record_activity_execution(
        &self,
        activity_name: &str,
        outcome: &str,
        duration_seconds: f64,
        retry_attempt: u32,
        tag: Option<&str>,
    ) {
        let tag = tag.unwrap_or("default");
        self.count_activity(activity_name, outcome, retry_bucket(retry_attempt), tag);
        histogram!(
            names::ACTIVITY_DURATION,
            "activity_name" => activity_name.to_string(),
            "outcome" => outcome.to_string(),
            "tag" => tag.to_string(),
        )
        .record(duration_seconds);
    }

    /// Records that an activity returned a result, when its name is not at hand.
    pub fn record_activity_success(&self) {
        self.count_activity(UNKNOWN, ActivityOutcome::Success.as_str(), UNKNOWN, UNKNOWN);
    }

    /// Records that an activity returned an error, when its name is not at hand.
    pub fn record_activity_app_error(&self) {
        self.count_activity(UNKNOWN, ActivityOutcome::AppError.as_str(), UNKNOWN, UNKNOWN);
    }

    /// Records that the machinery failed an activity, when its name is not at hand.
    pub fn record_activity_infra_error(&self) {
        self.count_activity(UNKNOWN, ActivityOutcome::InfraError.as_str(), UNKNOWN, UNKNOWN);
    }

    /// Records that an activity could not be run as configured, when its name is not at hand.
    pub fn record_activity_config_error(&self) {
        self.count_activity(UNKNOWN, ActivityOutcome::ConfigError.as_str(), UNKNOWN, UNKNOWN);
    }

    /// Records that the runtime gave an activity up after too many attempts.
    pub fn record_activity_poison(&self) {
        self.counters.activity_poison.add(1);
        counter!(names::ACTIVITY_POISON).increment(1);
    }

    fn count_activity(&self, activity_name: &str, outcome: &str, retry_attempt: &'static str, tag: &str) {
        let known = ActivityOutcome::parse(outcome);
        if let Some(count) = known.and_then(|known| self.count_of_outcome(known)) {
            count.add(1);
        }
        counter!(
            names::ACTIVITY_EXECUTIONS,
            "activity_name" => activity_name.to_string(),
            "outcome" => outcome.to_string(),
            "retry_attempt" => retry_attempt,
            "tag" => tag.to_string(),
        )
        .increment(1);
        let of_machinery = match known {
            Some(ActivityOutcome::InfraError) => names::ACTIVITY_INFRASTRUCTURE_ERRORS,
            Some(ActivityOutcome::ConfigError) => names::ACTIVITY_CONFIGURATION_ERRORS,
            _ => return,
        };
        counter!(of_machinery, "activity_name" => activity_name.to_string()).increment(1);
    }

    fn count_of_outcome(&self, outcome: ActivityOutcome) -> Option<&Count> {
        match outcome {
            ActivityOutcome::Success => Some(&self.counters.activity_success),
            ActivityOutcome::AppError => Some(&self.counters.activity_app_errors),
            ActivityOutcome::InfraError => Some(&self.counters.activity_infra_errors),
            ActivityOutcome::ConfigError => Some(&self.counters.activity_config_errors),
            ActivityOutcome::Pending | ActivityOutcome::Cancelled => None,
        }
    }
}

/// Storage.
impl MetricsProvider {
    /// Records how long a storage operation took. `status` is `success` or `error`.
    pub fn record_provider_operation(&self, operation: &str, duration_seconds: f64, status: &str) {
        histogram!(
            names::PROVIDER_OPERATION_DURATION,
            "operation" => operation.to_string(),
            "status" => status.to_string(),
        )
        .record(duration_seconds);
    }

    /// Records that a storage operation failed. `error_type` is `deadlock`, `timeout`, `connection` or `other`.
    pub fn record_provider_error(&self, operation: &str, error_type: &str) {
        self.counters.provider_errors.add(1);
        counter!(
            names::PROVIDER_ERRORS,
            "operation" => operation.to_string(),
            "error_type" => error_type.to_string(),
        )
        .increment(1);
    }

    /// Records a storage operation as a whole: how long it took, and of what type its error was if it failed. Takes
    /// static labels, to copy nothing: every turn calls this several times.
    pub(crate) fn record_provider_call(
        &self,
        operation: &'static str,
        took: Duration,
        error_type: Option<&'static str>,
    ) {
        let status = if error_type.is_none() { "success" } else { "error" };
        histogram!(names::PROVIDER_OPERATION_DURATION, "operation" => operation, "status" => status)
            .record(took.as_secs_f64());
        if let Some(error_type) = error_type {
            self.record_provider_error(operation, error_type);
        }
    }
}

/// Dispatchers and gauges.
impl MetricsProvider {
    /// Records that the dispatcher fetched turns.
    pub fn record_orch_dispatcher_items_fetched(&self, count: u64) {
        self.counters.orch_dispatcher_items_fetched.add(count);
        counter!(names::ORCHESTRATION_DISPATCHER_FETCHED).increment(count);
    }

    /// Records how long the code of a turn took, in seconds and under the inherited name in milliseconds.
    pub(crate) fn record_turn_duration(&self, took: Duration) {
        histogram!(names::TURN_DURATION).record(took.as_secs_f64());
        self.record_orch_dispatcher_processing_duration(took.as_millis() as u64);
    }

    /// Records what became of turns.
    pub(crate) fn record_turns(&self, outcome: TurnOutcome, turns: u64) {
        counter!(names::TURNS, "outcome" => outcome.name()).increment(turns);
    }

    /// Records that a lease ran out, and that another worker has the work now. `kind` is `turn` or `activity`.
    pub(crate) fn record_lease_lost(&self, kind: &'static str) {
        counter!(names::LEASES_LOST, "kind" => kind).increment(1);
    }

    /// Records how long a turn took.
    pub fn record_orch_dispatcher_processing_duration(&self, duration_ms: u64) {
        histogram!(names::ORCHESTRATION_DISPATCHER_DURATION).record(duration_ms as f64);
    }

    /// Records that the dispatcher fetched activities.
    pub fn record_worker_dispatcher_items_fetched(&self, count: u64) {
        self.counters.worker_dispatcher_items_fetched.add(count);
        counter!(names::WORKER_DISPATCHER_FETCHED).increment(count);
    }

    /// Records how long an activity held its slot.
    pub fn record_worker_dispatcher_execution_duration(&self, duration_ms: u64) {
        histogram!(names::WORKER_DISPATCHER_DURATION).record(duration_ms as f64);
    }

    /// Sets the depths of the two queues.
    pub fn update_queue_depths(&self, orch_depth: u64, worker_depth: u64) {
        self.counters.orchestrator_queue_depth.set(orch_depth);
        self.counters.worker_queue_depth.set(worker_depth);
        gauge!(names::ORCHESTRATOR_QUEUE_DEPTH).set(orch_depth as f64);
        gauge!(names::WORKER_QUEUE_DEPTH).set(worker_depth as f64);
    }

    /// Takes over the store's own count of the messages that it dropped because their instance did not exist.
    pub fn set_messages_dropped(&self, total: u64) {
        counter!(names::MESSAGES_DROPPED).absolute(total);
    }

    /// Returns the depths of the orchestrator queue and the worker queue, as last set.
    pub fn get_queue_depths(&self) -> (u64, u64) {
        (self.counters.orchestrator_queue_depth.get(), self.counters.worker_queue_depth.get())
    }

    /// Counts one more running instance.
    pub fn increment_active_orchestrations(&self) {
        self.counters.active_orchestrations.add(1);
        gauge!(names::ACTIVE_ORCHESTRATIONS).increment(1.0);
    }

    /// Counts one running instance fewer.
    pub fn decrement_active_orchestrations(&self) {
        self.counters.active_orchestrations.add(-1);
        gauge!(names::ACTIVE_ORCHESTRATIONS).decrement(1.0);
    }

    /// Sets the number of running instances.
    pub fn set_active_orchestrations(&self, count: i64) {
        self.counters.active_orchestrations.set(count);
        gauge!(names::ACTIVE_ORCHESTRATIONS).set(count as f64);
    }

    /// Returns the number of running instances, as last set or counted.
    pub fn get_active_orchestrations(&self) -> i64 {
        self.counters.active_orchestrations.get()
    }
}

/// Puts turn counts into few buckets, for each value of a label is a series of its own.
fn turn_count_bucket(turns: u64) -> &'static str {
    match turns {
        1..=5 => "1-5",
        6..=10 => "6-10",
        11..=50 => "11-50",
        // No execution ends without a turn: 0 means that the count is missing.
        _ => "50+",
    }
}

fn retry_bucket(attempt: u32) -> &'static str {
    match attempt {
        0 => "0",
        1 => "1",
        2 => "2",
        _ => "3+",
    }
}
