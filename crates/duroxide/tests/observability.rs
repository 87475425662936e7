//! The metrics: their names and labels, and that each fact is counted once.
//!
//! Every test records one fact or a few, and compares all series that exist afterwards.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use crate::metric_recorder;

use duroxide::runtime::observability::{
    MetricsProvider, MetricsSnapshot, ObservabilityConfig, ObservabilityHandle,
};
use metric_recorder::MetricRecorder;

fn record(facts: impl FnOnce(&MetricsProvider)) -> (MetricRecorder, MetricsSnapshot) {
    let recorder = MetricRecorder::default();
    let metrics = MetricsProvider::new(&ObservabilityConfig::default()).unwrap();
    metrics::with_local_recorder(&recorder, || facts(&metrics));
    (recorder, metrics.snapshot())
}

fn counters_of(recorder: &MetricRecorder) -> Vec<(String, u64)> {
    recorder.counters().into_iter().collect()
}

fn one(series: &str) -> (String, u64) {
    (series.to_string(), 1)
}

#[test]
fn a_start_is_counted_once() {
    let (recorder, snapshot) = record(|m| m.record_orchestration_start("Order", "1.0.0", "client"));
    assert_eq!(
        counters_of(&recorder),
        [one(
            "duroxide_orchestration_starts_total{initiated_by=client,orchestration_name=Order,version=1.0.0}"
        )]
    );
    assert_eq!(snapshot, MetricsSnapshot { orch_starts: 1, ..Default::default() });
}

#[test]
fn a_completion_is_counted_once_and_measured() {
    let (recorder, snapshot) =
        record(|m| m.record_orchestration_completion("Order", "1.0.0", "success", 1.5, 7, 20));
    let labels = "final_turn_count=6-10,orchestration_name=Order,status=success,version=1.0.0";
    assert_eq!(
        counters_of(&recorder),
        [one(&format!("duroxide_orchestration_completions_total{{{labels}}}"))]
    );
    let labels = "orchestration_name=Order,status=success,version=1.0.0";
    let histograms: Vec<_> = recorder.histograms().into_iter().collect();
    assert_eq!(
        histograms,
        [
            (format!("duroxide_orchestration_duration_seconds{{{labels}}}"), vec![1.5]),
            ("duroxide_orchestration_history_size{orchestration_name=Order}".to_string(), vec![20.0]),
            ("duroxide_orchestration_turns{orchestration_name=Order}".to_string(), vec![7.0]),
        ]
    );
    assert_eq!(snapshot, MetricsSnapshot { orch_completions: 1, ..Default::default() });
}

#[test]
fn turn_counts_share_a_few_labels() {
    for (turns, label) in [
        (1, "1-5"),
        (5, "1-5"),
        (6, "6-10"),
        (10, "6-10"),
        (11, "11-50"),
        (50, "11-50"),
        (51, "50+"),
        (0, "50+"),
    ] {
        let (recorder, _) =
            record(|m| m.record_orchestration_completion("O", "1.0.0", "failed", 0.0, turns, 1));
        let (series, _) = counters_of(&recorder).remove(0);
        assert!(series.contains(&format!("final_turn_count={label},")), "{turns} turns: {series}");
    }
}

#[test]
fn a_failure_by_user_code_is_counted_once() {
    let (recorder, snapshot) =
        record(|m| m.record_orchestration_failure("Order", "1.0.0", "app_error", "application"));
    let labels = "error_category=application,error_type=app_error,orchestration_name=Order,version=1.0.0";
    assert_eq!(counters_of(&recorder), [one(&format!("duroxide_orchestration_failures_total{{{labels}}}"))]);
    let expected = MetricsSnapshot { orch_failures: 1, orch_application_errors: 1, ..Default::default() };
    assert_eq!(snapshot, expected);
}

#[test]
fn a_failure_by_the_machinery_has_a_counter_of_its_own_besides() {
    let labels = "error_category=storage,orchestration_name=Order";
    for (error_type, counter) in
        [("infrastructure_error", "infrastructure_errors"), ("config_error", "configuration_errors")]
    {
        let (recorder, snapshot) =
            record(|m| m.record_orchestration_failure("Order", "1.0.0", error_type, "storage"));
        let all_labels =
            format!("error_category=storage,error_type={error_type},orchestration_name=Order,version=1.0.0");
        let mut expected = [
            one(&format!("duroxide_orchestration_failures_total{{{all_labels}}}")),
            one(&format!("duroxide_orchestration_{counter}_total{{{labels}}}")),
        ];
        expected.sort();
        assert_eq!(counters_of(&recorder), expected);
        assert_eq!(snapshot.orch_failures, 1);
        assert_eq!(snapshot.orch_infrastructure_errors + snapshot.orch_configuration_errors, 1);
        assert_eq!(snapshot.orch_application_errors, 0);
    }
}

#[test]
fn a_failure_of_unknown_type_is_just_a_failure() {
    let (_, snapshot) = record(|m| m.record_orchestration_failure("Order", "1.0.0", "unknown", "poison"));
    assert_eq!(snapshot, MetricsSnapshot { orch_failures: 1, ..Default::default() });
}

#[test]
fn failures_without_a_name_are_failures_too() {
    let (recorder, snapshot) = record(|m| {
        m.record_orchestration_application_error();
        m.record_orchestration_infrastructure_error();
        m.record_orchestration_configuration_error();
    });
    let failures: u64 = counters_of(&recorder)
        .iter()
        .filter(|(series, _)| series.starts_with("duroxide_orchestration_failures_total"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(failures, 3);
    let expected = MetricsSnapshot {
        orch_failures: 3,
        orch_application_errors: 1,
        orch_infrastructure_errors: 1,
        orch_configuration_errors: 1,
        ..Default::default()
    };
    assert_eq!(snapshot, expected);
}

#[test]
fn an_activity_is_counted_once_and_measured() {
    let (recorder, snapshot) =
        record(|m| m.record_activity_execution("Charge", "success", 0.25, 0, Some("gpu")));
    assert_eq!(
        counters_of(&recorder),
        [one(
            "duroxide_activity_executions_total{activity_name=Charge,outcome=success,retry_attempt=0,tag=gpu}"
        )]
    );
    let histograms: Vec<_> = recorder.histograms().into_iter().collect();
    let series = "duroxide_activity_duration_seconds{activity_name=Charge,outcome=success,tag=gpu}";
    assert_eq!(histograms, [(series.to_string(), vec![0.25])]);
    assert_eq!(snapshot, MetricsSnapshot { activity_success: 1, ..Default::default() });
}

#[test]
fn an_activity_that_the_machinery_failed_has_a_counter_of_its_own_besides() {
    for (outcome, counter) in [("infra_error", "infrastructure"), ("config_error", "configuration")] {
        let (recorder, snapshot) = record(|m| m.record_activity_execution("Charge", outcome, 0.0, 4, None));
        let labels = format!("activity_name=Charge,outcome={outcome},retry_attempt=3+,tag=default");
        let mut expected = [
            one(&format!("duroxide_activity_executions_total{{{labels}}}")),
            one(&format!("duroxide_activity_{counter}_errors_total{{activity_name=Charge}}")),
        ];
        expected.sort();
        assert_eq!(counters_of(&recorder), expected);
        assert_eq!(snapshot.activity_infra_errors + snapshot.activity_config_errors, 1);
    }
}

#[test]
fn a_cancelled_activity_is_in_no_field_of_the_snapshot() {
    let (recorder, snapshot) = record(|m| m.record_activity_execution("Charge", "cancelled", 0.0, 1, None));
    assert_eq!(counters_of(&recorder).len(), 1);
    assert_eq!(snapshot, MetricsSnapshot::default());
}

#[test]
fn activities_without_a_name_are_counted_once() {
    let (recorder, snapshot) = record(|m| {
        m.record_activity_success();
        m.record_activity_app_error();
        m.record_activity_infra_error();
        m.record_activity_config_error();
    });
    let executions: u64 = counters_of(&recorder)
        .iter()
        .filter(|(series, _)| series.starts_with("duroxide_activity_executions_total"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(executions, 4);
    assert_eq!(recorder.histograms().len(), 0, "nobody knows how long they took");
    let expected = MetricsSnapshot {
        activity_success: 1,
        activity_app_errors: 1,
        activity_infra_errors: 1,
        activity_config_errors: 1,
        ..Default::default()
    };
    assert_eq!(snapshot, expected);
}

#[test]
fn poison_and_continue_as_new_and_children_have_their_counters() {
    let (recorder, snapshot) = record(|m| {
        m.record_orchestration_poison();
        m.record_activity_poison();
        m.record_continue_as_new("Loop", 3);
        m.record_suborchestration_call("Parent", "Child", "success");
        m.record_suborchestration_duration("Parent", "Child", 2.0, "success");
    });
    let child = "child_orchestration=Child,outcome=success,parent_orchestration=Parent";
    assert_eq!(
        counters_of(&recorder),
        [
            one("duroxide_activity_poison_total{}"),
            one("duroxide_orchestration_continue_as_new_total{execution_id=3,orchestration_name=Loop}"),
            one("duroxide_orchestration_poison_total{}"),
            one(&format!("duroxide_suborchestration_calls_total{{{child}}}")),
        ]
    );
    let histograms: Vec<_> = recorder.histograms().into_iter().collect();
    assert_eq!(histograms, [(format!("duroxide_suborchestration_duration_seconds{{{child}}}"), vec![2.0])]);
    let expected = MetricsSnapshot {
        orch_poison: 1,
        activity_poison: 1,
        orch_continue_as_new: 1,
        suborchestration_calls: 1,
        ..Default::default()
    };
    assert_eq!(snapshot, expected);
}

#[test]
fn storage_operations_are_measured_and_their_errors_counted() {
    let (recorder, snapshot) = record(|m| {
        m.record_provider_operation("read", 0.001, "success");
        m.record_provider_error("read", "timeout");
    });
    let errors = "duroxide_provider_errors_total{error_type=timeout,operation=read}";
    assert_eq!(counters_of(&recorder), [one(errors)]);
    let histograms: Vec<_> = recorder.histograms().into_iter().collect();
    let series = "duroxide_provider_operation_duration_seconds{operation=read,status=success}";
    assert_eq!(histograms, [(series.to_string(), vec![0.001])]);
    assert_eq!(snapshot, MetricsSnapshot { provider_errors: 1, ..Default::default() });
}

#[test]
fn dispatchers_count_what_they_fetch() {
    let (recorder, snapshot) = record(|m| {
        m.record_orch_dispatcher_items_fetched(5);
        m.record_orch_dispatcher_items_fetched(3);
        m.record_orch_dispatcher_processing_duration(12);
        m.record_worker_dispatcher_items_fetched(10);
        m.record_worker_dispatcher_execution_duration(7);
    });
    assert_eq!(
        counters_of(&recorder),
        [
            ("duroxide_orchestration_dispatcher_items_fetched{}".to_string(), 8),
            ("duroxide_worker_dispatcher_items_fetched{}".to_string(), 10),
        ]
    );
    let histograms: Vec<_> = recorder.histograms().into_iter().collect();
    assert_eq!(
        histograms,
        [
            ("duroxide_orchestration_dispatcher_processing_duration_ms{}".to_string(), vec![12.0]),
            ("duroxide_worker_dispatcher_execution_duration_ms{}".to_string(), vec![7.0]),
        ]
    );
    assert_eq!(snapshot.orch_dispatcher_items_fetched, 8);
    assert_eq!(snapshot.worker_dispatcher_items_fetched, 10);
}

#[test]
fn gauges_follow_what_they_are_told() {
    let recorder = MetricRecorder::default();
    let metrics = MetricsProvider::new(&ObservabilityConfig::default()).unwrap();
    let active = "duroxide_active_orchestrations{}";
    metrics::with_local_recorder(&recorder, || {
        assert_eq!((metrics.get_active_orchestrations(), metrics.get_queue_depths()), (0, (0, 0)));
        metrics.increment_active_orchestrations();
        metrics.increment_active_orchestrations();
        metrics.decrement_active_orchestrations();
        assert_eq!((metrics.get_active_orchestrations(), recorder.gauges()[active]), (1, 1.0));
        metrics.set_active_orchestrations(100);
        assert_eq!((metrics.get_active_orchestrations(), recorder.gauges()[active]), (100, 100.0));
        metrics.update_queue_depths(4, 9);
        assert_eq!(metrics.get_queue_depths(), (4, 9));
        assert_eq!(recorder.gauges()["duroxide_orchestrator_queue_depth{}"], 4.0);
        assert_eq!(recorder.gauges()["duroxide_worker_queue_depth{}"], 9.0);
    });
}

#[tokio::test]
async fn a_handle_shows_what_its_provider_recorded() {
    let handle = ObservabilityHandle::init(&ObservabilityConfig::default()).unwrap();
    handle.metrics_provider().record_orchestration_start("Order", "1.0.0", "client");
    assert_eq!(handle.metrics_snapshot().orch_starts, 1);
    let metrics = handle.metrics_provider().clone();
    handle.shutdown().await.unwrap();
    assert_eq!(metrics.snapshot().orch_starts, 1, "a shared recorder outlives the handle");
    MetricsProvider::default().shutdown().await.unwrap();
}
