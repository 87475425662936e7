//! Steps beside what other processes do at the same time, and steps whose answers are lost. What a step does by itself is in
//! the kit.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{
    ExecutionMetadata, ExtendedProvider, FinishedActivity, HeldInstance, InstanceRequest, Provider,
    ProviderAdmin, StartOutcome, StepCause, StepOutcome, StepToStore, StepTurn, StoredStep, TagFilter,
    TurnToStore, WorkClaim, WorkItem, WorkRequest,
};
use duroxide::{Event, EventKind};
use duroxide_pg::PostgresProvider;
use support::proxy::NextCommit;
use support::world::{World, metadata, signal, start, started_event};

const LEASE: Duration = Duration::from_secs(600);

pub(crate) fn work() -> WorkRequest<'static> {
    WorkRequest { max: 4, lock_timeout: LEASE, session: None, tag_filter: &TagFilter::DefaultOnly }
}

fn activity(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: 1,
        id,
        name: "Pay".into(),
        input: "{}".into(),
        session_id: None,
        tag: None,
    }
}

fn event(instance: &str, id: u64, source: Option<u64>, kind: EventKind) -> Event {
    Event::with_event_id(id, instance, 1, source, kind)
}

fn scheduled(instance: &str, id: u64) -> Event {
    let kind =
        EventKind::ActivityScheduled { name: "Pay".into(), input: "{}".into(), session_id: None, tag: None };
    event(instance, id, None, kind)
}

/// Takes the first turn together with the start; the turn schedules activity 2.
async fn open(store: &PostgresProvider, instance: &str) -> StepOutcome {
    open_with(store, instance, &work()).await
}

pub(crate) async fn open_with(
    store: &PostgresProvider,
    instance: &str,
    claim: &WorkRequest<'_>,
) -> StepOutcome {
    let cause = start(instance);
    let held = HeldInstance { instance, incarnation: 0, execution_id: 1, last_event_id: 0 };
    let events = [started_event(instance), scheduled(instance, 2)];
    let next = [activity(instance, 2)];
    store_step(store, StepCause::Start(&cause), held, &events, &next, &metadata(), claim).await
}

/// Takes the turn that the result of an activity causes; the turn schedules the next one.
async fn go_on(store: &PostgresProvider, instance: &str, step: &StoredStep) -> StepOutcome {
    go_on_with(store, instance, step, &work()).await
}

pub(crate) async fn go_on_with(
    store: &PostgresProvider,
    instance: &str,
    step: &StoredStep,
    work: &WorkRequest<'_>,
) -> StepOutcome {
    let claim = &step.claims[0];
    let WorkItem::ActivityExecute { id, .. } = claim.item else { panic!("an activity") };
    let completion =
        WorkItem::ActivityCompleted { instance: instance.into(), execution_id: 1, id, result: "{}".into() };
    let results = [FinishedActivity { lock_token: &claim.lock_token, completion: &completion }];
    let incarnation = step.incarnations[0];
    let held = HeldInstance { instance, incarnation, execution_id: 1, last_event_id: id };
    let completed = EventKind::ActivityCompleted { result: "{}".into() };
    let events = [event(instance, id + 1, Some(id), completed), scheduled(instance, id + 2)];
    let next = [activity(instance, id + 2)];
    let metadata = ExecutionMetadata::default();
    store_step(store, StepCause::Results(&results), held, &events, &next, &metadata, work).await
}

async fn store_step(
    store: &PostgresProvider,
    cause: StepCause<'_>,
    held: HeldInstance<'_>,
    history_delta: &[Event],
    worker_items: &[WorkItem],
    metadata: &ExecutionMetadata,
    claim: &WorkRequest<'_>,
) -> StepOutcome {
    let turn = TurnToStore {
        activity_options: &[],
        lock_token: "",
        execution_id: 1,
        history_delta,
        worker_items,
        orchestrator_items: &[],
        metadata,
        cancelled_activities: &[],
    };
    let turns = [StepTurn { held, turn }];
    store.store_step(StepToStore { cause, turns: &turns }, Some(claim)).await.unwrap()
}

pub(crate) fn stored(outcome: StepOutcome) -> StoredStep {
    match outcome {
        StepOutcome::Stored(step) => step,
        StepOutcome::Conflict => panic!("the step should be stored"),
    }
}

fn ids(claims: &[WorkClaim]) -> Vec<u64> {
    let id = |claim: &WorkClaim| match claim.item {
        WorkItem::ActivityExecute { id, .. } => id,
        _ => panic!("an activity"),
    };
    claims.iter().map(id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequential_step_is_one_commit() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let mut step = stored(open(&store, "i").await);
    // All connections are there, and all statements are prepared.
    step = stored(go_on(&store, "i", &step).await);
    let commits = world.proxy.commits();
    let before = *commits.borrow();
    for round in 0..10 {
        step = stored(go_on(&store, "i", &step).await);
        assert_eq!(ids(&step.claims), [6 + 2 * round]);
    }
    assert_eq!(*commits.borrow() - before, 10, "one call a step");
    for table in ["orchestrator_queue", "instance_schedule", "arrivals"] {
        assert_eq!(world.number(&format!("SELECT count(*) FROM {table}")).await, 0, "rows in {table}");
    }
    let metrics = store.get_system_metrics().await.unwrap();
    assert_eq!((metrics.total_instances, metrics.total_events, metrics.running_instances), (1, 24, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_answer_was_lost_is_stored_once() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for how in [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf] {
        let instance = format!("{how:?}");
        let first = stored(open(&store, &instance).await);
        world.proxy.spoil_next_commit(how);
        let step = stored(go_on(&store, &instance, &first).await);
        assert_eq!(store.read(&instance).await.unwrap().len(), 4, "{instance}");
        // If the answer was lost, so was what the commit leased: it was given back, and counts no attempt.
        let claims =
            if step.claims.is_empty() { store.claim_work(&work()).await.unwrap() } else { step.claims };
        assert_eq!((ids(&claims), claims[0].attempt_count), (vec![4], 1), "{instance}");
        // What it holds is out of date now, and the store says so.
        assert!(matches!(go_on(&store, &instance, &first).await, StepOutcome::Conflict), "{instance}");
        store.ack_work_item(&claims[0].lock_token, None).await.unwrap();
    }
    assert_eq!(world.proxy.spoiled(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_claims_an_instance_during_a_step_gets_it_as_the_step_left_it() {
    let world = World::new(&[]).await;
    let (one, other) = (world.sound_store().await, world.sound_store().await);
    let first = stored(open(&one, "i").await);
    let second = stored(go_on(&one, "i", &first).await);
    world.close_gate(&["TRIGGER hold BEFORE INSERT ON history"]).await;
    let stepping = {
        let one = one.clone();
        tokio::spawn(async move { stored(go_on(&one, "i", &second).await) })
    };
    world.until_held_up().await;
    other.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    let claiming = {
        let other = other.clone();
        tokio::spawn(async move { claim(&other).await })
    };
    world.until("EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'transactionid')").await;
    world.open_gate().await;
    stepping.await.unwrap();
    claiming.await.unwrap();
    let (last_event, messages) = claim_all(&other).await;
    assert_eq!((last_event, messages), (6, 1), "the history goes on where the step ended");
}

/// Claims instances; those that were not leased are looked at again later.
async fn claim(store: &PostgresProvider) -> Vec<(u64, usize)> {
    let request = InstanceRequest { max: 1, lock_timeout: LEASE, filter: None };
    let claims = store.claim_instances(&request).await.unwrap();
    let told = claims.iter().map(|claim| (claim.last_event_id, claim.messages.len())).collect();
    for claim in claims {
        store.abandon_orchestration_item(&claim.lock_token, None, true).await.unwrap();
    }
    told
}

async fn claim_all(store: &PostgresProvider) -> (u64, usize) {
    loop {
        if let Some(claimed) = claim(store).await.pop() {
            return claimed;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_in_another_process_meets_the_one_of_a_step() {
    let world = World::new(&[]).await;
    let (one, other) = (world.sound_store().await, world.sound_store().await);
    stored(open(&one, "before").await);
    world.close_gate(&["TRIGGER hold BEFORE INSERT ON history"]).await;
    let stepping = {
        let one = one.clone();
        tokio::spawn(async move { stored(open(&one, "i").await) })
    };
    world.until_held_up().await;
    let starting = {
        let other: Arc<PostgresProvider> = other.clone();
        tokio::spawn(async move { other.enqueue_start_if_absent(start("i")).await.unwrap() })
    };
    world.until("EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'transactionid')").await;
    world.open_gate().await;
    stepping.await.unwrap();
    assert_eq!(starting.await.unwrap(), StartOutcome::Existing);
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 0);
}

/// Takes the turn that the result of an activity causes, and in the same step the first turn of a child.
async fn go_on_with_child(
    store: &PostgresProvider,
    instance: &str,
    child: &str,
    step: &StoredStep,
) -> StepOutcome {
    let claim = &step.claims[0];
    let completion = WorkItem::ActivityCompleted {
        instance: instance.into(),
        execution_id: 1,
        id: 2,
        result: "{}".into(),
    };
    let results = [FinishedActivity { lock_token: &claim.lock_token, completion: &completion }];
    let completed = EventKind::ActivityCompleted { result: "{}".into() };
    let of_parent = [event(instance, 3, Some(2), completed)];
    let of_child = [started_event(child), scheduled(child, 2)];
    let (no_metadata, child_metadata, work_of_child) =
        (ExecutionMetadata::default(), metadata(), [activity(child, 2)]);
    let turn = |history_delta, worker_items, metadata| TurnToStore {
        lock_token: "",
        execution_id: 1,
        history_delta,
        activity_options: &[],
        worker_items,
        orchestrator_items: &[],
        metadata,
        cancelled_activities: &[],
    };
    let held = |instance, incarnation, last_event_id| HeldInstance {
        instance,
        incarnation,
        execution_id: 1,
        last_event_id,
    };
    let turns = [
        StepTurn { held: held(instance, step.incarnations[0], 2), turn: turn(&of_parent, &[], &no_metadata) },
        StepTurn { held: held(child, 0, 0), turn: turn(&of_child, &work_of_child, &child_metadata) },
    ];
    let step = StepToStore { cause: StepCause::Results(&results), turns: &turns };
    store.store_step(step, Some(&work())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_several_turns_whose_answer_was_lost_is_stored_once() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for how in [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf] {
        let (instance, child) = (format!("{how:?}"), format!("{how:?}-child"));
        let first = stored(open(&store, &instance).await);
        world.proxy.spoil_next_commit(how);
        let step = stored(go_on_with_child(&store, &instance, &child, &first).await);
        assert_eq!(step.incarnations.len(), 2, "{instance}");
        let lengths = (store.read(&instance).await.unwrap().len(), store.read(&child).await.unwrap().len());
        assert_eq!(lengths, (3, 2), "{instance}");
        let claims =
            if step.claims.is_empty() { store.claim_work(&work()).await.unwrap() } else { step.claims };
        assert_eq!((ids(&claims), claims[0].attempt_count), (vec![2], 1), "{instance}");
        let again = go_on_with_child(&store, &instance, &child, &first).await;
        assert!(matches!(again, StepOutcome::Conflict), "{instance}");
        store.ack_work_item(&claims[0].lock_token, None).await.unwrap();
    }
    assert_eq!(world.proxy.spoiled(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_turn_that_does_not_fit_refuses_its_step_and_no_other() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    stored(open(&store, "taken").await);
    let (mut parents, mut running) = (Vec::new(), tokio::task::JoinSet::new());
    for number in 0..8 {
        let parent = format!("parent-{number}");
        parents.push((parent.clone(), stored(open(&store, &parent).await)));
    }
    for (number, (parent, first)) in parents.into_iter().enumerate() {
        let store = store.clone();
        let child = if number == 3 { "taken".to_string() } else { format!("child-{number}") };
        running.spawn(async move {
            let outcome = go_on_with_child(&store, &parent, &child, &first).await;
            let events = store.read(&parent).await.unwrap().len();
            (number, matches!(outcome, StepOutcome::Conflict), events)
        });
    }
    for (number, is_refused, events) in running.join_all().await {
        assert_eq!((is_refused, events), if number == 3 { (true, 2) } else { (false, 3) }, "parent {number}");
    }
    assert_eq!(store.read("taken").await.unwrap().len(), 2);
    for table in ["instance_schedule", "orchestrator_queue"] {
        assert_eq!(world.number(&format!("SELECT count(*) FROM {table}")).await, 0, "rows in {table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_turn_that_does_not_fit_is_refused_without_waiting_for_it_to_fit() {
    let world = World::new(&[]).await;
    let builder = PostgresProvider::builder().schema(&world.schema).retry_for(Duration::from_secs(3));
    let store = builder.open(&world.cluster.url_through(world.proxy.port())).await.unwrap();
    stored(open(&store, "taken").await);
    let first = stored(open(&store, "parent").await);
    let commits = world.proxy.commits();
    let before = *commits.borrow();
    let outcome = go_on_with_child(&store, "parent", "taken", &first).await;
    assert!(matches!(outcome, StepOutcome::Conflict));
    assert!(*commits.borrow() - before <= 2, "once among others, once by itself");
}

/// Stores a start and two steps, each while an activity waits that is older than any, and returns the rows of the instance.
async fn chain_behind_older_work(world: &World, instance: &str, claim: &WorkRequest<'_>) -> Vec<String> {
    let store = world.sound_store().await;
    let mut step: Option<StoredStep> = None;
    for id in 1..=3 {
        store.enqueue_for_worker(activity("older", id)).await.unwrap();
        world.run("UPDATE worker_queue SET created_at = 0 WHERE lock_token IS NULL").await;
        let outcome = match &step {
            None => open_with(&store, instance, claim).await,
            Some(step) => go_on_with(&store, instance, step, claim).await,
        };
        let mut next = stored(outcome);
        assert_eq!(next.claims.len(), 2, "the older activity comes along, which a lone step does not lease");
        next.claims.retain(
            |claim| matches!(&claim.item, WorkItem::ActivityExecute { instance: of, .. } if of == instance),
        );
        step = Some(next);
    }
    let mut rows = Vec::new();
    for (table, but) in [
        ("instances", "{incarnation,created_at,updated_at,updated_10s}"),
        ("executions", "{started_at}"),
        ("history", "{created_at}"),
        ("worker_queue", "{id,created_at,lock_token,locked_until,due_at}"),
    ] {
        let sql = format!(
            "SELECT regexp_replace(replace((to_jsonb(t) - '{but}'::text[])::text, '{instance}', 'I'),
                'timestamp_ms[^,]*', '') FROM {table} t WHERE instance_id = '{instance}' ORDER BY 1"
        );
        let found = world.connect().await.query(&sql, &[]).await.unwrap();
        rows.extend(found.iter().map(|row| format!("{table} {}", row.get::<_, String>(0))));
    }
    rows
}

/// The functions of lone steps hand over to that of batches, by parameters that must not change places.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_step_about_which_something_is_unusual_is_stored_as_one_of_a_batch_is() {
    let world = World::new(&[]).await;
    // A claim for several routes never goes with a lone step.
    let some = TagFilter::default_and(["other"]);
    let of_batches = WorkRequest { tag_filter: &some, ..work() };
    let expected = chain_behind_older_work(&world, "many", &of_batches).await;
    assert_eq!(expected.len(), 1 + 1 + 6 + 1, "{expected:?}");
    assert_eq!(chain_behind_older_work(&world, "lone", &work()).await, expected);
}
