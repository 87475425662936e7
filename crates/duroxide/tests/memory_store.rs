//! The reference store in corners that the validation kit leaves out: clock steps, signals, orphans, damaged rows,
//! dumps.
#![cfg(any(feature = "test-hooks", feature = "provider-test"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{
    ExecutionMetadata, ExtendedProvider, InstanceRequest, ManualClock, OrchestrationItem, Provider,
    ProviderAdmin, ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, StartOutcome, StoreLimits,
    TagFilter, WorkItem, WorkQueue, WorkRequest, WorkSignal,
};
use duroxide::{Event, EventKind};

use crate::metric_recorder::MetricRecorder;

const START_MS: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn the_same_calls_leave_the_same_dump_and_no_token_in_it() {
    let (first, second) = (Fixture::new(), Fixture::new());
    for fixture in [&first, &second] {
        fixture.create("a", "Running").await;
        fixture.enqueue(signal("a", "one")).await;
        fixture.enqueue(signal("ghost", "two")).await;
        fixture.store.enqueue_for_worker(activity("a", 1, Some("s"), None)).await.unwrap();
        fixture.fetch().await.unwrap();
        fixture.fetch_work_as("owner").await.unwrap();
    }
    let dump = first.store.dump();
    assert_eq!(dump, second.store.dump());
    assert!(!dump.contains("lock_"), "{dump}");
    for row in ["instance \"a\"", "execution \"a\"/1", "event \"a\"/1/1", "turn \"a\"", "session \"s\""] {
        assert!(dump.contains(row), "{row} is missing in\n{dump}");
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_hides_nothing_that_was_visible_at_once() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    fixture.store.enqueue_for_worker(activity("a", 1, None, None)).await.unwrap();
    fixture.clock.set_wall_ms(START_MS - 10_000);
    assert!(fixture.fetch().await.is_some());
    assert!(fixture.fetch_work().await.is_some());
}

#[tokio::test]
async fn giving_back_without_delay_is_visible_at_once_too() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    fixture.store.enqueue_for_worker(activity("a", 1, None, None)).await.unwrap();
    let (_, turn, _) = fixture.fetch().await.unwrap();
    let (_, work, _) = fixture.fetch_work().await.unwrap();
    fixture.store.abandon_orchestration_item(&turn, Some(Duration::ZERO), false).await.unwrap();
    fixture.store.abandon_work_item(&work, None, false).await.unwrap();
    fixture.clock.set_wall_ms(START_MS - 10_000);
    assert!(fixture.fetch().await.is_some());
    assert!(fixture.fetch_work().await.is_some());
}

#[tokio::test]
async fn a_timer_that_is_enqueued_waits_for_the_later_of_due_time_and_delay() {
    let fixture = Fixture::new();
    fixture.create("a", "Running").await;
    let due_in_2s = timer("a", START_MS + 2_000);
    fixture.store.enqueue_for_orchestrator(due_in_2s.clone(), Some(SECOND)).await.unwrap();
    fixture.clock.advance(Duration::from_millis(1_999));
    assert!(fixture.fetch().await.is_none());
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.fetch().await.unwrap().0.messages, [due_in_2s]);
}

#[tokio::test]
async fn renewing_never_shortens_a_lease() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    fixture.store.enqueue_for_worker(activity("a", 1, Some("s"), None)).await.unwrap();
    let (_, turn, _) = fixture.fetch().await.unwrap();
    let (_, work, _) = fixture.fetch_work_as("owner").await.unwrap();
    let before = fixture.store.dump();
    fixture.store.renew_orchestration_item_lock(&turn, SECOND).await.unwrap();
    fixture.store.renew_work_item_lock(&work, SECOND).await.unwrap();
    assert_eq!(fixture.store.renew_session_lock(&["owner"], SECOND, LEASE).await, Ok(1));
    assert_eq!(fixture.store.dump(), before);
}

#[tokio::test]
async fn durations_beyond_the_end_of_time_are_clamped() {
    let fixture = Fixture::new();
    fixture.store.enqueue_for_orchestrator(start("a"), Some(Duration::MAX)).await.unwrap();
    fixture.store.enqueue_for_orchestrator(timer("a", u64::MAX), Some(Duration::MAX)).await.unwrap();
    assert!(fixture.fetch().await.is_none());
    assert_eq!(fixture.signal(WorkQueue::Orchestrator).next_due_ms(), Some(u64::MAX));
}

#[tokio::test]
async fn only_what_makes_something_ready_wakes_a_dispatcher() {
    let fixture = Fixture::new();
    let mut signal_of_turns = fixture.signal(WorkQueue::Orchestrator);
    fixture.enqueue(start("a")).await;
    assert_wakes(&mut signal_of_turns).await;

    let (_, token, _) = fixture.fetch().await.unwrap();
    fixture.store.renew_orchestration_item_lock(&token, LEASE).await.unwrap();
    assert!(fixture.fetch().await.is_none());
    fixture.enqueue(signal("a", "while leased")).await;
    assert_sleeps(&mut signal_of_turns).await;

    fixture.store.abandon_orchestration_item(&token, Some(SECOND), false).await.unwrap();
    assert_wakes(&mut signal_of_turns).await;
}

#[tokio::test]
async fn a_turn_wakes_the_workers_and_a_worker_the_dispatcher() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    let (_, token, _) = fixture.fetch().await.unwrap();
    let mut signal_of_turns = fixture.signal(WorkQueue::Orchestrator);
    let mut signal_of_work = fixture.signal(WorkQueue::Worker);
    let metadata = running_metadata("Running");
    let work = vec![activity("a", 2, None, None)];
    let ack = fixture.store.ack_orchestration_item(&token, 1, vec![], work, vec![], metadata, vec![]);
    ack.await.unwrap();
    assert_wakes(&mut signal_of_work).await;
    assert_sleeps(&mut signal_of_turns).await;

    let (_, token, _) = fixture.fetch_work().await.unwrap();
    fixture.store.ack_work_item(&token, Some(completion("a", 2))).await.unwrap();
    assert_wakes(&mut signal_of_turns).await;
    assert_sleeps(&mut signal_of_work).await;
}

#[tokio::test]
async fn the_next_due_time_follows_delays_and_leases_of_turns() {
    let fixture = Fixture::new();
    let turns = fixture.signal(WorkQueue::Orchestrator);
    assert_eq!(turns.next_due_ms(), None);
    fixture.store.enqueue_for_orchestrator(start("late"), Some(60 * SECOND)).await.unwrap();
    assert_eq!(turns.next_due_ms(), Some(START_MS + 60_000));
    fixture.enqueue(start("a")).await;
    assert_eq!(turns.next_due_ms(), Some(START_MS + 60_000), "what is ready now is not due later");

    let (_, token, _) = fixture.fetch().await.unwrap();
    assert_eq!(turns.next_due_ms(), Some(START_MS + 30_000), "the lease may run out");
    fixture.store.renew_orchestration_item_lock(&token, 40 * SECOND).await.unwrap();
    assert_eq!(turns.next_due_ms(), Some(START_MS + 40_000));
    fixture.store.abandon_orchestration_item(&token, Some(SECOND), false).await.unwrap();
    assert_eq!(turns.next_due_ms(), Some(START_MS + 1_000));
    fixture.clock.advance(60 * SECOND);
    assert!(fixture.fetch().await.is_some() && fixture.fetch().await.is_some());
    assert_eq!(turns.next_due_ms(), Some(START_MS + 90_000));
}

#[tokio::test]
async fn a_leased_instance_without_messages_is_not_waited_for() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    let (_, token, _) = fixture.fetch().await.unwrap();
    fixture.ack(&token, vec![], ExecutionMetadata::default()).await.unwrap();
    assert_eq!(fixture.signal(WorkQueue::Orchestrator).next_due_ms(), None);
}

#[tokio::test]
async fn the_next_due_time_of_work_follows_items_and_sessions() {
    let fixture = Fixture::new();
    let work = fixture.signal(WorkQueue::Worker);
    fixture.store.enqueue_for_worker(activity("a", 1, Some("s"), None)).await.unwrap();
    fixture.store.enqueue_for_worker(activity("a", 2, Some("s"), None)).await.unwrap();
    assert_eq!(work.next_due_ms(), None);

    let (_, token, _) = fixture.fetch_work_as("owner").await.unwrap();
    assert_eq!(work.next_due_ms(), Some(START_MS + 10_000), "the session may become free before the item");
    fixture.store.renew_session_lock(&["owner"], 60 * SECOND, LEASE).await.unwrap();
    assert_eq!(work.next_due_ms(), Some(START_MS + 30_000), "the item's lease may run out");
    fixture.store.abandon_work_item(&token, Some(5 * SECOND), false).await.unwrap();
    assert_eq!(work.next_due_ms(), Some(START_MS + 5_000));
}

#[tokio::test]
async fn a_due_time_that_passed_without_a_taker_does_not_keep_waking() {
    let fixture = Fixture::new();
    fixture.store.enqueue_for_worker(activity("a", 1, None, Some("gpu"))).await.unwrap();
    let (_, token, _) = fixture.fetch_work_with(None, &TagFilter::Any).await.unwrap();
    let mut work = fixture.signal(WorkQueue::Worker);
    fixture.store.abandon_work_item(&token, Some(SECOND), false).await.unwrap();
    fixture.clock.advance(SECOND);
    for _ in 0..2 {
        assert_wakes(&mut work).await;
        assert!(fixture.fetch_work().await.is_none(), "nobody here serves that tag");
    }
    assert_sleeps(&mut work).await;
}

#[tokio::test]
async fn watchers_hear_of_turns_and_deletion() {
    let fixture = Fixture::new();
    let mut watch = fixture.store.watch_instance("a");
    fixture.create("a", "Completed").await;
    watch.changed().await;
    fixture.store.delete_instance("a", false).await.unwrap();
    watch.changed().await;
}

#[tokio::test]
async fn messages_that_overtook_the_start_are_parked_and_delivered_in_order_as_a_first_attempt() {
    let fixture = Fixture::new();
    fixture.enqueue(cancel("a")).await;
    assert!(fixture.fetch().await.is_none());
    fixture.enqueue(queue_message("a")).await;
    fixture.enqueue(start("b")).await;
    assert_eq!(fixture.fetch().await.unwrap().0.instance, "b", "parked messages are not in the way");
    let parked = fixture.store.list_parked(10).await.unwrap();
    assert_eq!(parked.iter().map(|message| message.instance.as_str()).collect::<Vec<_>>(), ["a", "a"]);
    assert_eq!(parked[0].expires_at, START_MS + 24 * 60 * 60 * 1_000);
    assert_eq!(fixture.store.list_parked(1).await.unwrap().len(), 1);

    fixture.enqueue(start("a")).await;
    let (item, _, attempt) = fixture.fetch().await.unwrap();
    assert_eq!(item.messages, [cancel("a"), queue_message("a"), start("a")]);
    assert_eq!(attempt, 1);
    assert!(fixture.store.list_parked(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn parked_messages_are_dropped_when_their_time_is_over() {
    let fixture = Fixture::with(|store| store.with_parking_time(10 * SECOND));
    fixture.enqueue(signal("a", "early")).await;
    assert!(fixture.fetch().await.is_none());
    let turns = fixture.signal(WorkQueue::Orchestrator);
    assert_eq!(turns.next_due_ms(), Some(START_MS + 10_000), "somebody must come to drop it");
    fixture.clock.advance(10 * SECOND);
    fixture.enqueue(start("a")).await;
    assert_eq!(fixture.fetch().await.unwrap().0.messages, [start("a")]);
}

#[tokio::test]
async fn stale_completions_and_lone_queue_messages_of_an_unknown_instance_are_dropped() {
    let fixture = Fixture::new();
    for message in [completion("a", 1), timer("a", 0), queue_message("a")] {
        fixture.enqueue(message).await;
    }
    assert!(fixture.fetch().await.is_none());
    assert_eq!(fixture.store.dump(), "");
}

#[tokio::test]
async fn queue_messages_wait_for_a_start_that_is_only_delayed() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    let (_, token, _) = fixture.fetch().await.unwrap();
    fixture.store.abandon_orchestration_item(&token, Some(SECOND), true).await.unwrap();
    fixture.enqueue(queue_message("a")).await;
    assert!(fixture.fetch().await.is_none());
    fixture.clock.advance(SECOND);
    let (item, _, attempt) = fixture.fetch().await.unwrap();
    assert_eq!((item.messages, attempt), (vec![start("a"), queue_message("a")], 1));
}

#[tokio::test]
async fn undecodable_messages_are_set_aside_and_the_rest_goes_on() {
    let recorder = MetricRecorder::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let fixture = Fixture::new();
    fixture.create("a", "Running").await;
    fixture.enqueue(signal("a", "damaged")).await;
    fixture.enqueue(start("only-damaged")).await;
    fixture.store.corrupt_messages("a");
    fixture.store.corrupt_messages("only-damaged");
    fixture.enqueue(signal("a", "sound")).await;
    fixture.enqueue(start("b")).await;
    let (item, _, attempt) = fixture.fetch().await.unwrap();
    assert_eq!((item.messages, attempt), (vec![signal("a", "sound")], 1));
    assert_eq!(fixture.fetch().await.unwrap().0.instance, "b");
    let rows = fixture.store.list_quarantined(10).await.unwrap();
    let instances: Vec<_> = rows.iter().map(|row| row.instance.as_deref().unwrap()).collect();
    assert_eq!(instances, ["a", "only-damaged"]);
    assert!(rows.iter().all(|row| row.queue == WorkQueue::Orchestrator && row.quarantined_at == START_MS));
    assert_eq!(recorder.counters()["duroxide_quarantined_total{queue=orchestrator,store=memory}"], 2);
}

#[tokio::test]
async fn undecodable_activities_are_set_aside_and_the_next_is_served() {
    let fixture = Fixture::new();
    fixture.store.enqueue_for_worker(activity("a", 1, None, None)).await.unwrap();
    fixture.store.corrupt_work_items("a");
    fixture.store.enqueue_for_worker(activity("a", 2, None, None)).await.unwrap();
    assert_eq!(fixture.fetch_work().await.unwrap().0, activity("a", 2, None, None));
    assert_eq!(fixture.store.list_quarantined(10).await.unwrap()[0].queue, WorkQueue::Worker);
}

#[tokio::test]
async fn an_undecodable_history_keeps_its_messages_even_without_a_row() {
    let fixture = Fixture::new();
    let started = vec![started_event("a")];
    fixture.store.append_with_execution("a", 1, started).await.unwrap();
    fixture.store.corrupt_history("a");
    fixture.enqueue(queue_message("a")).await;
    let (item, _, _) = fixture.fetch().await.unwrap();
    assert_eq!(item.messages, [queue_message("a")]);
    assert!(item.history.is_empty() && item.history_error.is_some());
    assert_eq!(item.orchestration_name, "unknown");
}

#[tokio::test]
async fn without_a_row_the_execution_is_the_latest_one_of_the_history() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    let (_, token, _) = fixture.fetch().await.unwrap();
    let again = vec![signal("a", "next")];
    let ack = fixture.store.ack_orchestration_item(
        &token,
        3,
        vec![started_event("a")],
        vec![],
        again,
        ExecutionMetadata::default(),
        vec![],
    );
    ack.await.unwrap();
    let (item, _, _) = fixture.fetch().await.unwrap();
    assert_eq!((item.execution_id, item.orchestration_name.as_str(), item.history.len()), (3, "Orch", 1));
}

#[tokio::test]
async fn a_claim_tells_incarnation_and_last_event_and_loads_the_rest() {
    let fixture = Fixture::new();
    fixture.create("a", "Completed").await;
    fixture.store.delete_instance("a", false).await.unwrap();
    fixture.create("a", "Running").await;
    fixture.enqueue(signal("a", "s")).await;
    let request = InstanceRequest { max: 5, lock_timeout: LEASE, filter: None };
    let claims = fixture.store.claim_instances(&request).await.unwrap();
    let [claim] = claims.as_slice() else { panic!("one claim expected, got {claims:?}") };
    assert_eq!((claim.incarnation, claim.last_event_id, claim.execution_id), (2, 1, 1));
    assert_eq!(claim.status.as_deref(), Some("Running"));

    let all = fixture.store.load_history(&claim.lock_token, 0).await.unwrap();
    assert!(all.events.len() == 1 && all.kv_snapshot.is_some());
    let rest = fixture.store.load_history(&claim.lock_token, 1).await.unwrap();
    assert!(rest.events.is_empty() && rest.kv_snapshot.is_none());
    fixture.clock.advance(LEASE);
    let expired = fixture.store.load_history(&claim.lock_token, 0).await.unwrap_err();
    assert_eq!(expired.to_string(), "load_history: Instance lock expired");
}

#[tokio::test]
async fn one_claim_of_work_holds_at_most_one_activity_of_a_session() {
    let fixture = Fixture::new();
    for (id, session) in [(1, None), (2, Some("s")), (3, Some("t")), (4, None)] {
        fixture.store.enqueue_for_worker(activity("a", id, session, None)).await.unwrap();
    }
    let owner = SessionFetchConfig { owner_id: "owner".into(), lock_timeout: LEASE };
    let request =
        WorkRequest { max: 4, lock_timeout: LEASE, session: Some(&owner), tag_filter: &TagFilter::Any };
    let claims = fixture.store.claim_work(&request).await.unwrap();
    let expected =
        [activity("a", 1, None, None), activity("a", 2, Some("s"), None), activity("a", 4, None, None)];
    assert_eq!(claims.iter().map(|claim| claim.item.clone()).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn an_id_is_taken_by_a_queued_start_a_row_or_history() {
    let fixture = Fixture::new();
    assert_eq!(fixture.store.enqueue_start_if_absent(start("a")).await, Ok(StartOutcome::New));
    assert_eq!(fixture.store.enqueue_start_if_absent(start("a")).await, Ok(StartOutcome::Existing));
    let (_, token, _) = fixture.fetch().await.unwrap();
    assert_eq!(fixture.store.enqueue_start_if_absent(start("a")).await, Ok(StartOutcome::Existing));
    fixture.ack(&token, vec![started_event("a")], ExecutionMetadata::default()).await.unwrap();
    assert_eq!(fixture.store.enqueue_start_if_absent(start("a")).await, Ok(StartOutcome::Existing));
    assert!(fixture.store.enqueue_start_if_absent(signal("b", "s")).await.is_err());
}

#[tokio::test]
async fn an_instance_between_two_executions_counts_as_running() {
    let fixture = Fixture::new();
    fixture.enqueue(start("a")).await;
    let (_, token, _) = fixture.fetch().await.unwrap();
    let next = vec![continue_as_new("a")];
    let metadata = running_metadata("ContinuedAsNew");
    let ack = fixture.store.ack_orchestration_item(&token, 1, vec![], vec![], next, metadata, vec![]);
    ack.await.unwrap();
    assert!(fixture.store.delete_instance("a", false).await.unwrap_err().message.contains("still running"));
    let bulk = fixture.store.delete_instance_bulk(Default::default()).await.unwrap();
    assert_eq!(bulk.instances_deleted, 0);
    assert_eq!(fixture.store.delete_instance("a", true).await.unwrap().queue_messages_deleted, 1);
}

#[tokio::test]
async fn parents_in_a_circle_do_not_hang_a_tree() {
    let fixture = Fixture::new();
    for (id, parent) in [("a", "b"), ("b", "a")] {
        fixture.enqueue(start(id)).await;
        let (_, token, _) = fixture.fetch().await.unwrap();
        let metadata =
            ExecutionMetadata { parent_instance_id: Some(parent.into()), ..running_metadata("Completed") };
        fixture.ack(&token, vec![], metadata).await.unwrap();
    }
    assert_eq!(fixture.store.get_instance_tree("a").await.unwrap().all_ids, ["a", "b"]);
}

#[tokio::test]
async fn a_refusal_leaves_nothing_behind() {
    let limits = StoreLimits { max_payload_bytes: 500, ..StoreLimits::default() };
    let fixture = Fixture::with(|store| store.with_limits(limits));
    fixture.create("a", "Running").await;
    fixture.enqueue(signal("a", "s")).await;
    fixture.store.enqueue_for_worker(activity("a", 9, None, None)).await.unwrap();
    let (_, turn, _) = fixture.fetch().await.unwrap();
    let (_, work, _) = fixture.fetch_work().await.unwrap();
    let store = &fixture.store;
    let before = store.dump();

    let huge = signal("a", &"x".repeat(500));
    let kv = Event::with_event_id(
        2,
        "a",
        1,
        None,
        EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 1 },
    );
    let unnumbered = Event { event_id: 0, ..kv.clone() };
    let sound_work = || vec![activity("a", 3, None, None)];
    let cancelled =
        || vec![ScheduledActivityIdentifier { instance: "a".into(), execution_id: 1, activity_id: 9 }];
    let bad_turns = [
        (vec![kv.clone(), started_event("a")], sound_work(), vec![]),
        (vec![kv.clone(), kv.clone()], sound_work(), vec![]),
        (vec![kv.clone(), unnumbered], sound_work(), vec![]),
        (vec![kv.clone()], vec![signal("a", "s")], vec![]),
        (vec![kv.clone()], sound_work(), vec![signal("a", "s"), activity("a", 4, None, None)]),
        (vec![kv.clone()], sound_work(), vec![signal("a", "s"), signal("", "s")]),
        (vec![kv.clone()], sound_work(), vec![signal("a", "s"), huge.clone()]),
    ];
    for (events, work, messages) in bad_turns {
        let metadata = running_metadata("Completed");
        let ack = store.ack_orchestration_item(&turn, 1, events, work, messages, metadata, cancelled());
        assert!(!ack.await.unwrap_err().retryable);
        assert_eq!(store.dump(), before);
    }
    assert!(store.ack_work_item(&work, Some(signal("a", "s"))).await.is_err());
    assert!(store.enqueue_for_worker(signal("a", "s")).await.is_err());
    assert!(store.enqueue_for_orchestrator(activity("a", 5, None, None), None).await.is_err());
    assert!(store.enqueue_for_orchestrator(huge, None).await.is_err());
    assert!(store.append_with_execution("a", 1, vec![kv, started_event("a")]).await.is_err());
    assert!(store.delete_instance("a", false).await.is_err());
    assert_eq!(store.dump(), before);
}

struct Fixture {
    clock: Arc<ManualClock>,
    store: MemoryProvider,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|store| store)
    }

    fn with(configure: impl FnOnce(MemoryProvider) -> MemoryProvider) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let store = configure(MemoryProvider::with_clock(clock.clone()));
        Self { clock, store }
    }

    fn signal(&self, queue: WorkQueue) -> WorkSignal {
        self.store.work_signal(queue)
    }

    async fn enqueue(&self, message: WorkItem) {
        self.store.enqueue_for_orchestrator(message, None).await.unwrap();
    }

    async fn fetch(&self) -> Option<(OrchestrationItem, String, u32)> {
        self.store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap()
    }

    async fn fetch_work(&self) -> Option<(WorkItem, String, u32)> {
        self.fetch_work_with(None, &TagFilter::DefaultOnly).await
    }

    async fn fetch_work_as(&self, owner_id: &str) -> Option<(WorkItem, String, u32)> {
        let session = SessionFetchConfig { owner_id: owner_id.into(), lock_timeout: 10 * SECOND };
        self.fetch_work_with(Some(&session), &TagFilter::DefaultOnly).await
    }

    async fn fetch_work_with(
        &self,
        session: Option<&SessionFetchConfig>,
        tags: &TagFilter,
    ) -> Option<(WorkItem, String, u32)> {
        self.store.fetch_work_item(LEASE, Duration::ZERO, session, tags).await.unwrap()
    }

    async fn ack(
        &self,
        token: &str,
        events: Vec<Event>,
        metadata: ExecutionMetadata,
    ) -> Result<(), ProviderError> {
        self.store.ack_orchestration_item(token, 1, events, vec![], vec![], metadata, vec![]).await
    }

    /// Takes an instance through its first turn.
    async fn create(&self, instance: &str, status: &str) {
        self.enqueue(start(instance)).await;
        let (_, token, _) = self.fetch().await.unwrap();
        self.ack(&token, vec![started_event(instance)], running_metadata(status)).await.unwrap();
    }
}

/// Asserts that the signal ends a wait, and takes note of it.
async fn assert_wakes(signal: &mut WorkSignal) {
    assert!(!is_pending(signal).await, "the signal should have been given");
    signal.mark_seen();
}

async fn assert_sleeps(signal: &mut WorkSignal) {
    assert!(is_pending(signal).await, "nothing became ready, and yet a signal was given");
}

async fn is_pending(signal: &mut WorkSignal) -> bool {
    tokio::select! { biased; () = signal.wait() => false, () = std::future::ready(()) => true }
}

fn running_metadata(status: &str) -> ExecutionMetadata {
    ExecutionMetadata {
        status: Some(status.into()),
        orchestration_name: Some("Orch".into()),
        orchestration_version: Some("1.0.0".into()),
        ..ExecutionMetadata::default()
    }
}

fn started_event(instance: &str) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "Orch".into(),
        version: "1.0.0".into(),
        input: "{}".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event { timestamp_ms: START_MS, ..Event::with_event_id(1, instance, 1, None, kind) }
}

fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Orch".into(),
        input: "{}".into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

fn continue_as_new(instance: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.into(),
        orchestration: "Orch".into(),
        input: "{}".into(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![],
        initial_custom_status: None,
    }
}

fn signal(instance: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "signal".into(), data: data.into() }
}

fn queue_message(instance: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: instance.into(), name: "queue".into(), data: "{}".into() }
}

fn cancel(instance: &str) -> WorkItem {
    WorkItem::CancelInstance { instance: instance.into(), reason: "test".into() }
}

fn timer(instance: &str, fire_at_ms: u64) -> WorkItem {
    WorkItem::TimerFired { instance: instance.into(), execution_id: 1, id: 7, fire_at_ms }
}

fn completion(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.into(), execution_id: 1, id, result: "done".into() }
}

fn activity(instance: &str, id: u64, session_id: Option<&str>, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: 1,
        id,
        name: "Act".into(),
        input: "{}".into(),
        session_id: session_id.map(Into::into),
        tag: tag.map(Into::into),
    }
}
