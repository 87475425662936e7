//! The measuring store: it answers like the store behind it, and records each measured call once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::metric_recorder;
#[path = "instrumented_provider/scripted_store.rs"]
mod scripted_store;
#[path = "instrumented_provider/walk.rs"]
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::instrumented::InstrumentedProvider;
use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{
    ExtendedProvider, InstanceRequest, ManualClock, Provider, StartOutcome, TagFilter, TurnToStore, WorkItem,
    WorkQueue, WorkRequest,
};
use duroxide::runtime::observability::{MetricsProvider, ObservabilityConfig};
use metric_recorder::MetricRecorder;
use scripted_store::ScriptedStore;
use walk::{IDLE, LEASE, activity, completed, first_turn, metadata, start};

/// A measured store, and its records while the guard lives.
struct Measured {
    store: InstrumentedProvider,
    metrics: Arc<MetricsProvider>,
    recorder: &'static MetricRecorder,
    _guard: metrics::LocalRecorderGuard<'static>,
}

impl Measured {
    fn new(inner: impl Provider) -> Self {
        // The guard borrows the recorder for as long as the test runs.
        let recorder: &'static MetricRecorder = Box::leak(Box::default());
        let guard = metrics::set_default_local_recorder(recorder);
        let metrics = Arc::new(MetricsProvider::new(&ObservabilityConfig::default()).unwrap());
        let store = InstrumentedProvider::new(Arc::new(inner), Some(metrics.clone()));
        Self { store, metrics, recorder, _guard: guard }
    }

    /// How often each operation was recorded, as `operation/status`.
    fn calls(&self) -> BTreeMap<String, usize> {
        let histograms = self.recorder.histograms();
        histograms.iter().map(|(series, samples)| (operation_of(series), samples.len())).collect()
    }

    fn durations(&self, call: &str) -> Vec<f64> {
        let histograms = self.recorder.histograms();
        let (_, samples) = histograms.iter().find(|(series, _)| operation_of(series) == call).unwrap();
        samples.clone()
    }

    fn extended(&self) -> &dyn ExtendedProvider {
        self.store.as_extended().expect("the memory store has the extension")
    }
}

fn operation_of(series: &str) -> String {
    let labels = series
        .strip_prefix("duroxide_provider_operation_duration_seconds{operation=")
        .expect("one histogram");
    labels.trim_end_matches('}').replace(",status=", "/")
}

fn calls<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.into_iter().map(|(call, count)| (call.to_string(), count)).collect()
}

fn memory() -> MemoryProvider {
    MemoryProvider::with_clock(Arc::new(ManualClock::default()))
}

#[tokio::test]
async fn a_measured_store_answers_as_the_bare_one() {
    let bare = walk::every_method(&memory()).await;
    let measured = Measured::new(memory());
    assert_eq!(walk::every_method(&measured.store).await, bare);
    let unmeasured = InstrumentedProvider::new(Arc::new(memory()), None);
    assert_eq!(walk::every_method(&unmeasured).await, bare);
}

#[tokio::test]
async fn each_measured_call_is_recorded_once_under_its_label_and_the_others_not_at_all() {
    let measured = Measured::new(memory());
    walk::every_method(&measured.store).await;
    let expected = calls([
        ("fetch_orchestration_item/success", 3),
        ("ack_orchestration_item/success", 1),
        ("ack_orchestration_item/error", 1),
        ("enqueue_orchestrator/success", 1),
        ("fetch_work_item/success", 2),
        ("ack_work_item/success", 1),
        ("ack_work_item/error", 1),
        ("renew_session_lock/success", 1),
        ("cleanup_orphaned_sessions/success", 1),
        ("read/success", 1),
    ]);
    assert_eq!(measured.calls(), expected);
}

#[tokio::test]
async fn without_metrics_nothing_is_recorded() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = InstrumentedProvider::new(Arc::new(memory()), None);
    walk::every_method(&store).await;
    assert!(recorder.histograms().is_empty() && recorder.counters().is_empty());
    assert!(store.as_management_capability().is_some());
}

#[tokio::test]
async fn an_error_is_counted_once_by_the_first_word_that_names_its_type() {
    for (message, error_type) in [
        ("Deadlock detected while the connection was held", "deadlock"),
        ("connection timeout", "timeout"),
        ("Connection reset by peer", "connection"),
        ("disk full", "other"),
        ("", "other"),
    ] {
        let measured = Measured::new(ScriptedStore::failing(message));
        let error = measured.store.read("i").await.unwrap_err();
        assert_eq!(error.message, message, "the error comes through as it was");
        let series = format!("duroxide_provider_errors_total{{error_type={error_type},operation=read}}");
        assert_eq!(measured.recorder.counters(), BTreeMap::from([(series, 1)]));
        assert_eq!(measured.metrics.snapshot().provider_errors, 1);
        assert_eq!(measured.calls(), calls([("read/error", 1)]));
    }
}

#[tokio::test]
async fn errors_of_calls_that_are_not_measured_are_not_counted() {
    let measured = Measured::new(ScriptedStore::failing("timeout"));
    assert!(measured.store.renew_work_item_lock("t", LEASE).await.is_err());
    assert!(measured.store.abandon_orchestration_item("t", None, false).await.is_err());
    assert!(measured.store.get_kv_value("i", "k").await.is_err());
    assert!(measured.recorder.counters().is_empty());
    assert_eq!(measured.metrics.snapshot().provider_errors, 0);
}

#[tokio::test]
async fn time_is_taken_from_the_clock_of_the_store() {
    let measured = Measured::new(ScriptedStore::taking(Duration::from_millis(1500)));
    measured.store.cleanup_orphaned_sessions(IDLE).await.unwrap();
    assert_eq!(measured.durations("cleanup_orphaned_sessions/success"), [1.5]);
}

#[tokio::test]
async fn the_wait_of_an_empty_fetch_is_not_time_of_the_operation() {
    let poll = Duration::from_secs(30);
    let measured = Measured::new(ScriptedStore::taking(Duration::from_millis(30_250)));
    assert!(measured.store.fetch_orchestration_item(LEASE, poll, None).await.unwrap().is_none());
    assert!(measured.store.fetch_work_item(LEASE, poll, None, &TagFilter::Any).await.unwrap().is_none());
    assert_eq!(measured.durations("fetch_orchestration_item/success"), [0.25]);
    assert_eq!(measured.durations("fetch_work_item/success"), [0.25]);
}

#[tokio::test]
async fn an_empty_fetch_that_did_not_wait_is_measured_in_full() {
    let measured = Measured::new(ScriptedStore::taking(Duration::from_millis(250)));
    let poll = Duration::from_secs(30);
    assert!(measured.store.fetch_orchestration_item(LEASE, poll, None).await.unwrap().is_none());
    assert_eq!(measured.durations("fetch_orchestration_item/success"), [0.25]);
}

#[tokio::test]
async fn a_fetch_that_found_something_is_measured_in_full() {
    let measured = Measured::new(ScriptedStore::taking(Duration::from_millis(500)));
    measured.store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    let poll = Duration::from_millis(100);
    assert!(measured.store.fetch_orchestration_item(LEASE, poll, None).await.unwrap().is_some());
    assert_eq!(measured.durations("fetch_orchestration_item/success"), [0.5]);
}

#[tokio::test]
async fn management_passes_through_unmeasured() {
    let measured = Measured::new(memory());
    let extended = measured.extended();
    assert_eq!(extended.enqueue_start_if_absent(start("i")).await.unwrap(), StartOutcome::New);
    let recorded = measured.calls();
    let admin = measured.store.as_management_capability().expect("the memory store has it");
    assert_eq!(admin.get_queue_depths().await.unwrap().orchestrator_queue, 1);
    assert!(admin.get_instance_info("nobody").await.is_err());
    assert_eq!(measured.calls(), recorded);
    assert!(measured.recorder.counters().is_empty());
}

#[tokio::test]
async fn the_extension_passes_through_under_the_labels_of_the_contract() {
    let measured = Measured::new(memory());
    let extended = measured.extended();
    assert_eq!(extended.enqueue_start_if_absent(start("i")).await.unwrap(), StartOutcome::New);
    assert_eq!(extended.enqueue_start_if_absent(start("i")).await.unwrap(), StartOutcome::Existing);

    let request = InstanceRequest { max: 8, lock_timeout: LEASE, filter: None };
    let turn = extended.claim_instances(&request).await.unwrap().remove(0);
    let history = extended.load_history(&turn.lock_token, 0).await.unwrap();
    assert_eq!((turn.instance.as_str(), history.events.len()), ("i", 0));
    let (events, work) = (first_turn("i"), vec![activity("i", 9)]);
    let ack =
        measured.store.ack_orchestration_item(&turn.lock_token, 1, events, work, vec![], metadata(), vec![]);
    ack.await.unwrap();

    let session = duroxide::SessionFetchConfig { owner_id: "me".to_string(), lock_timeout: LEASE };
    let tag_filter = TagFilter::default();
    let request =
        WorkRequest { max: 8, lock_timeout: LEASE, session: Some(&session), tag_filter: &tag_filter };
    let work = extended.claim_work(&request).await.unwrap().remove(0);
    measured.store.ack_work_item(&work.lock_token, Some(completed("i", 9))).await.unwrap();

    assert_eq!(extended.read_recent("i", 2).await.unwrap().len(), 2);
    let described = extended.read_metadata("i").await.unwrap().unwrap();
    assert_eq!(described.custom_status.as_deref(), Some("half"));
    assert!(extended.list_parked(9).await.unwrap().is_empty());
    assert!(extended.list_quarantined(9).await.unwrap().is_empty());

    let expected = calls([
        ("enqueue_orchestrator/success", 2),
        ("fetch_orchestration_item/success", 1),
        ("ack_orchestration_item/success", 1),
        ("fetch_work_item/success", 1),
        ("ack_work_item/success", 1),
        ("read/success", 3),
    ]);
    assert_eq!(measured.calls(), expected);
}

#[tokio::test]
async fn what_is_stored_and_handed_over_passes_through_as_one_call() {
    let measured = Measured::new(memory());
    let extended = measured.extended();
    measured.store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    let (_, token, _) =
        measured.store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    let turn = TurnToStore {
        activity_options: &[],
        lock_token: &token,
        execution_id: 1,
        history_delta: &first_turn("i"),
        worker_items: &[activity("i", 9)],
        orchestrator_items: &[],
        metadata: &metadata(),
        cancelled_activities: &[],
    };
    let tag_filter = TagFilter::default();
    let session = duroxide::SessionFetchConfig { owner_id: "me".to_string(), lock_timeout: LEASE };
    let work = WorkRequest { max: 8, lock_timeout: LEASE, session: Some(&session), tag_filter: &tag_filter };
    let stored = extended.store_turn(turn, Some(&work)).await.unwrap();
    let token = &stored.claims[0].lock_token;
    let instances = InstanceRequest { max: 8, lock_timeout: LEASE, filter: None };
    let result = extended.store_result(token, Some(completed("i", 9)), Some(&instances)).await.unwrap();
    assert_eq!(result.claims[0].messages, [completed("i", 9)]);
    result.durable.wait().await.unwrap();
    let expected = calls([
        ("enqueue_orchestrator/success", 1),
        ("fetch_orchestration_item/success", 1),
        ("ack_orchestration_item/success", 1),
        ("ack_work_item/success", 1),
    ]);
    assert_eq!(measured.calls(), expected);
    assert!(extended.store_turn(turn, None).await.is_err());
    assert!(extended.store_result(token, None, None).await.is_err());
    let counter =
        |operation| format!("duroxide_provider_errors_total{{error_type=other,operation={operation}}}");
    let expected = BTreeMap::from([(counter("ack_orchestration_item"), 1), (counter("ack_work_item"), 1)]);
    assert_eq!(measured.recorder.counters(), expected);
}

#[tokio::test]
async fn errors_of_the_extension_are_counted_under_the_labels_of_the_contract() {
    let measured = Measured::new(memory());
    assert!(measured.extended().load_history("no such token", 0).await.is_err());
    assert!(measured.extended().enqueue_start_if_absent(activity("i", 1)).await.is_err());
    let counter =
        |operation| format!("duroxide_provider_errors_total{{error_type=other,operation={operation}}}");
    let expected = BTreeMap::from([(counter("enqueue_orchestrator"), 1), (counter("read"), 1)]);
    assert_eq!(measured.recorder.counters(), expected);
}

#[tokio::test]
async fn clock_and_signals_are_those_of_the_store() {
    let clock = Arc::new(ManualClock::new(5_000));
    let measured = Measured::new(MemoryProvider::with_clock(clock.clone()));
    let extended = measured.extended();
    clock.advance(Duration::from_secs(1));
    assert_eq!(extended.clock().now_ms(), 6_000);

    let mut turns = extended.work_signal(WorkQueue::Orchestrator);
    turns.mark_seen();
    measured.store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    turns.wait().await;

    let mut changes = extended.watch_instance("i");
    let (_, token, _) =
        measured.store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    let work: Vec<WorkItem> = vec![activity("i", 9)];
    let mut activities = extended.work_signal(WorkQueue::Worker);
    activities.mark_seen();
    let ack =
        measured.store.ack_orchestration_item(&token, 1, first_turn("i"), work, vec![], metadata(), vec![]);
    ack.await.unwrap();
    activities.wait().await;
    changes.changed().await;
}

#[test]
fn a_store_without_capabilities_gains_none() {
    let measured = Measured::new(ScriptedStore::without_capabilities());
    assert!(measured.store.as_extended().is_none());
    assert!(measured.store.as_management_capability().is_none());
    assert_eq!((measured.store.name(), measured.store.version()), ("scripted", "7.8.9"));
}

#[tokio::test]
async fn a_store_without_an_extension_is_measured_all_the_same() {
    let measured = Measured::new(ScriptedStore::without_capabilities());
    measured.store.read("i").await.unwrap();
    assert_eq!(measured.calls(), calls([("read/success", 1)]));
}
