//! The metrics that operators look at first: what becomes of turns, how long they take, and leases that are lost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::metric_recorder;
use crate::runtime_support;

use std::time::Duration;

use duroxide::RuntimeOptions;
use duroxide::providers::{ProviderError, TagFilter};
use metric_recorder::MetricRecorder;
use runtime_support::faulty::{Call, Faulty};
use runtime_support::{Stage, World, activities, echo, family, faulty_world, few_attempts, one_activity};

/// Longer than any lease.
const NIGHT: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3_600);

/// Counts by the value of a label.
type Counts = Vec<(String, u64)>;

/// The turns by outcome, and the lost leases by kind.
fn told(recorder: &MetricRecorder) -> (Counts, Counts) {
    let of = |prefix: &str| {
        let counters = recorder.counters().into_iter();
        counters
            .filter_map(|(key, count)| Some((key.strip_prefix(prefix)?.replace('}', ""), count)))
            .collect()
    };
    (of("duroxide_turns_total{outcome="), of("duroxide_leases_lost_total{kind="))
}

fn count(label: &str, count: u64) -> (String, u64) {
    (label.to_string(), count)
}

// semantics: OBS-2
#[tokio::test]
async fn turns_are_counted_by_what_became_of_them_and_measured_in_seconds() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (world, faulty) = faulty_world();
    let runtime = world.start_with(echo(), one_activity(), few_attempts(1)).await;
    world.run("a", "One", "Echo").await;
    assert_eq!(told(&recorder), (vec![count("stored", 2)], vec![]));
    let histograms = recorder.histograms();
    assert_eq!(histograms["duroxide_turn_duration_seconds{}"], [0.0; 2], "the clock stands still");
    let inherited = &histograms["duroxide_orchestration_dispatcher_processing_duration_ms{}"];
    assert_eq!(inherited.len(), 2, "the inherited name goes on");

    faulty.fail(Call::AckTurn, [ProviderError::permanent("ack_orchestration_item", "refused")]);
    world.run("refused", "One", "Echo").await;
    assert_eq!(told(&recorder).0, [count("refused", 1), count("stored", 2)]);
    faulty.fail(Call::AckTurn, vec![ProviderError::retryable("ack_orchestration_item", "disk full"); 6]);
    world.client.start_orchestration("postponed", "One", "Echo").await.unwrap();
    world.end_in_time("postponed", Duration::from_millis(100)).await;
    assert_eq!(told(&recorder).0, [count("postponed", 1), count("refused", 1), count("stored", 4)]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_turn_that_another_runtime_has_taken_over_is_counted_as_lost_with_its_lease() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let inner = World::new();
    let faulty = Faulty::new(inner.store.clone());
    let world = World::on(faulty.clone(), inner.clock.clone());
    let runtime = world.start(echo(), family()).await;
    let (acks, renewals) = (faulty.hold(Call::AckTurn), faulty.hold(Call::RenewTurn));
    world.client.start_orchestration("i", "Echo", "fine").await.unwrap();
    while faulty.count(Call::AckTurn) == 0 {
        tokio::task::yield_now().await;
    }
    let _fetches = faulty.hold(Call::FetchTurn);
    world.clock.advance(NIGHT);
    while faulty.count(Call::RenewTurn) == 0 {
        tokio::task::yield_now().await;
    }
    let taken = inner.store.fetch_orchestration_item(HOUR, Duration::ZERO, None).await.unwrap();
    assert!(taken.is_some(), "its lease has run out");
    faulty.release(Call::AckTurn);
    acks.add_permits(1);
    let lost = (vec![count("lost", 1)], vec![count("turn", 1)]);
    while told(&recorder) != lost {
        tokio::task::yield_now().await;
    }
    // The renewal that was under way meets the same refusal, and it is the same lease.
    faulty.release(Call::RenewTurn);
    renewals.add_permits(1);
    runtime.shutdown(Some(0)).await;
    assert_eq!(told(&recorder), lost);
}

#[tokio::test]
async fn an_activity_that_was_taken_over_is_one_lost_lease_and_one_that_was_cancelled_is_none() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (world, faulty) = faulty_world();
    let stage = Stage::default();
    let work = activities().register("Work", stage.until_cancelled());
    let runtime = world.start_with(work, one_activity(), RuntimeOptions::default()).await;
    world.client.start_orchestration("cancelled", "One", "Work").await.unwrap();
    stage.seen("running", 1).await;
    world.client.cancel_instance("cancelled", "no longer wanted").await.unwrap();
    stage.seen("cancelled", 1).await;

    let renewals = faulty.hold(Call::RenewWork);
    world.client.start_orchestration("i", "One", "Work").await.unwrap();
    stage.seen("running", 2).await;
    world.clock.advance(Duration::from_secs(60));
    while faulty.count(Call::RenewWork) == 0 {
        tokio::task::yield_now().await;
    }
    let taken = world.store.fetch_work_item(HOUR, Duration::ZERO, None, &TagFilter::DefaultOnly).await;
    assert!(taken.unwrap().is_some(), "its lease has run out");
    faulty.release(Call::RenewWork);
    renewals.add_permits(1);
    stage.seen("cancelled", 2).await;
    runtime.shutdown(Some(0)).await;
    assert_eq!(told(&recorder).1, [count("activity", 1)]);
}
