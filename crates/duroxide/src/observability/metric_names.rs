//! The names of all metrics, and their descriptions for exporters.
//!
//! Dashboards and alerts use these names, so they do not change.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const ORCHESTRATION_STARTS: &str = "duroxide_orchestration_starts_total";
pub(super) const ORCHESTRATION_COMPLETIONS: &str = "duroxide_orchestration_completions_total";
pub(super) const ORCHESTRATION_DURATION: &str = "duroxide_orchestration_duration_seconds";
pub(super) const ORCHESTRATION_TURNS: &str = "duroxide_orchestration_turns";
pub(super) const ORCHESTRATION_HISTORY_SIZE: &str = "duroxide_orchestration_history_size";
pub(super) const ORCHESTRATION_FAILURES: &str = "duroxide_orchestration_failures_total";
pub(super) const ORCHESTRATION_INFRASTRUCTURE_ERRORS: &str =
    "duroxide_orchestration_infrastructure_errors_total";
pub(super) const ORCHESTRATION_CONFIGURATION_ERRORS: &str =
    "duroxide_orchestration_configuration_errors_total";
pub(super) const ORCHESTRATION_POISON: &str = "duroxide_orchestration_poison_total";
pub(super) const ORCHESTRATION_CONTINUE_AS_NEW: &str = "duroxide_orchestration_continue_as_new_total";
pub(super) const TURNS: &str = "duroxide_turns_total";
pub(super) const TURN_DURATION: &str = "duroxide_turn_duration_seconds";
pub(super) const LEASES_LOST: &str = "duroxide_leases_lost_total";
pub(super) const ORCHESTRATION_TURNS_POSTPONED: &str = "duroxide_orchestration_turns_postponed_total";
pub(super) const ORCHESTRATION_INSTANCES_BLOCKED: &str = "duroxide_orchestration_instances_blocked_total";
pub(super) const INSTANCES_REBUILT: &str = "duroxide_instances_rebuilt_total";
pub(super) const RESIDENTS_EVICTED: &str = "duroxide_residents_evicted_total";
pub(super) const ACTIVITY_EXECUTIONS: &str = "duroxide_activity_executions_total";
pub(super) const ACTIVITY_DURATION: &str = "duroxide_activity_duration_seconds";
pub(super) const ACTIVITY_INFRASTRUCTURE_ERRORS: &str = "duroxide_activity_infrastructure_errors_total";
pub(super) const ACTIVITY_CONFIGURATION_ERRORS: &str = "duroxide_activity_configuration_errors_total";
pub(super) const ACTIVITY_POISON: &str = "duroxide_activity_poison_total";
pub(super) const SUBORCHESTRATION_CALLS: &str = "duroxide_suborchestration_calls_total";
pub(super) const SUBORCHESTRATION_DURATION: &str = "duroxide_suborchestration_duration_seconds";
pub(super) const PROVIDER_OPERATION_DURATION: &str = "duroxide_provider_operation_duration_seconds";
pub(super) const PROVIDER_ERRORS: &str = "duroxide_provider_errors_total";
pub(super) const ORCHESTRATION_DISPATCHER_FETCHED: &str = "duroxide_orchestration_dispatcher_items_fetched";
pub(super) const ORCHESTRATION_DISPATCHER_DURATION: &str =
    "duroxide_orchestration_dispatcher_processing_duration_ms";
pub(super) const WORKER_DISPATCHER_FETCHED: &str = "duroxide_worker_dispatcher_items_fetched";
pub(super) const WORKER_DISPATCHER_DURATION: &str = "duroxide_worker_dispatcher_execution_duration_ms";
pub(super) const MESSAGES_DROPPED: &str = "duroxide_messages_dropped_total";
pub(super) const ORCHESTRATOR_QUEUE_DEPTH: &str = "duroxide_orchestrator_queue_depth";
pub(super) const WORKER_QUEUE_DEPTH: &str = "duroxide_worker_queue_depth";
pub(super) const ACTIVE_ORCHESTRATIONS: &str = "duroxide_active_orchestrations";

/// Tells the installed exporter what the metrics mean. Calling it twice is harmless.
pub(super) fn describe_all() {
    describe_counters();
    describe_histograms();
    describe_gauge!(ORCHESTRATOR_QUEUE_DEPTH, Unit::Count, "Messages in the orchestrator queue");
    describe_gauge!(WORKER_QUEUE_DEPTH, Unit::Count, "Activities in the worker queue");
    describe_gauge!(ACTIVE_ORCHESTRATIONS, Unit::Count, "Instances that are running");
}

fn describe_counters() {
    let counters = [
        (ORCHESTRATION_STARTS, "Executions that began"),
        (ORCHESTRATION_COMPLETIONS, "Executions that ended"),
        (ORCHESTRATION_FAILURES, "Executions that failed"),
        (ORCHESTRATION_INFRASTRUCTURE_ERRORS, "Executions that storage or the machinery failed"),
        (ORCHESTRATION_CONFIGURATION_ERRORS, "Executions whose code does not fit their history"),
        (ORCHESTRATION_POISON, "Turns given up after too many attempts"),
        (TURNS, "Turns by what became of them"),
        (LEASES_LOST, "Leases that others took over while their work went on"),
        (ORCHESTRATION_TURNS_POSTPONED, "Turns given back because of storage errors that may pass"),
        (ORCHESTRATION_INSTANCES_BLOCKED, "Instances set aside because not even their failure can be stored"),
        (INSTANCES_REBUILT, "Turns whose instance was not in memory and was made again from its history"),
        (RESIDENTS_EVICTED, "Instances that left memory, or were not kept, for lack of room"),
        (ORCHESTRATION_CONTINUE_AS_NEW, "Executions that ended by continue-as-new"),
        (ACTIVITY_EXECUTIONS, "Activities that ended"),
        (ACTIVITY_INFRASTRUCTURE_ERRORS, "Activities that storage or the machinery failed"),
        (ACTIVITY_CONFIGURATION_ERRORS, "Activities that could not be run as configured"),
        (ACTIVITY_POISON, "Activities given up after too many attempts"),
        (SUBORCHESTRATION_CALLS, "Children that ended"),
        (PROVIDER_ERRORS, "Storage operations that failed"),
        (ORCHESTRATION_DISPATCHER_FETCHED, "Turns fetched"),
        (WORKER_DISPATCHER_FETCHED, "Activities fetched"),
        (MESSAGES_DROPPED, "Messages that the store dropped because their instance did not exist"),
    ];
    for (name, text) in counters {
        describe_counter!(name, Unit::Count, text);
    }
}

fn describe_histograms() {
    let histograms = [
        (ORCHESTRATION_DURATION, Unit::Seconds, "Time from the start of an execution to its end"),
        (ORCHESTRATION_TURNS, Unit::Count, "Turns that an execution took"),
        (ORCHESTRATION_HISTORY_SIZE, Unit::Count, "Events in the history of an execution at its end"),
        (TURN_DURATION, Unit::Seconds, "Time that the code of a turn took"),
        (ACTIVITY_DURATION, Unit::Seconds, "Time that an activity ran"),
        (SUBORCHESTRATION_DURATION, Unit::Seconds, "Time from the call of a child to its end"),
        (PROVIDER_OPERATION_DURATION, Unit::Seconds, "Time that a storage operation took"),
        (ORCHESTRATION_DISPATCHER_DURATION, Unit::Milliseconds, "Time that a turn took"),
        (WORKER_DISPATCHER_DURATION, Unit::Milliseconds, "Time that an activity held its slot"),
    ];
    for (name, unit, text) in histograms {
        describe_histogram!(name, unit, text);
    }
}
