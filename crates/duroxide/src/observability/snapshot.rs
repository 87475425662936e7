//! The counters of one runtime at one moment.

/// The counts of a runtime since it started.
///
/// ```
/// use duroxide::Runtime;
///
/// fn failed_share(runtime: &Runtime) -> Option<f64> {
///     let counts = runtime.metrics_snapshot()?;
///     (counts.orch_completions > 0).then(|| counts.orch_failures as f64 / counts.orch_completions as f64)
/// }
/// ```
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Executions that began.
    pub orch_starts: u64,
    /// Executions that ended, whether with a result, a failure or a next execution.
    pub orch_completions: u64,
    /// Executions that failed, for whatever cause.
    pub orch_failures: u64,
    /// Failures by user code.
    pub orch_application_errors: u64,
    /// Failures by storage or another part of the machinery.
    pub orch_infrastructure_errors: u64,
    /// Failures because code and history do not fit.
    pub orch_configuration_errors: u64,
    /// Turns that the runtime gave up after too many attempts.
    pub orch_poison: u64,
    /// Activities that returned a result.
    pub activity_success: u64,
    /// Activities that returned an error.
    pub activity_app_errors: u64,
    /// Activities that the machinery failed.
    pub activity_infra_errors: u64,
    /// Activities that are not registered, or the like.
    pub activity_config_errors: u64,
    /// Activities that the runtime gave up after too many attempts.
    pub activity_poison: u64,
    /// Turns fetched.
    pub orch_dispatcher_items_fetched: u64,
    /// Activities fetched.
    pub worker_dispatcher_items_fetched: u64,
    /// Executions that ended by continue-as-new.
    pub orch_continue_as_new: u64,
    /// Children called.
    pub suborchestration_calls: u64,
    /// Storage operations that failed.
    pub provider_errors: u64,
}
