//! The committers keep totals: they count nothing twice and nothing that the server refused, and their totals outlive
//! the process.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, ExtendedProvider, Provider, ProviderError, SystemMetrics};
use duroxide_pg::PostgresProvider;
use support::world::{World, metadata, signal, start, started_event};

const LEASE: Duration = Duration::from_secs(30);
/// Holds up a turn's commit before it makes its note.
const GATE: &str = "TRIGGER gate BEFORE INSERT ON history";

/// Starts an instance and takes its turn.
async fn taken_turn(store: &PostgresProvider, instance: &str) -> String {
    store.enqueue_start_if_absent(start(instance)).await.unwrap();
    let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
    let (item, token, _) = fetched.expect("its start is there");
    assert_eq!(item.instance, instance);
    token
}

/// Ends a turn that has made one event.
async fn ack(
    store: &PostgresProvider,
    token: &str,
    instance: &str,
    status: &str,
) -> Result<(), ProviderError> {
    let events = vec![started_event(instance)];
    let metadata = ExecutionMetadata { status: Some(status.into()), ..metadata() };
    store.ack_orchestration_item(token, 1, events, vec![], vec![], metadata, vec![]).await
}

async fn make(store: &PostgresProvider, instance: &str, status: &str) {
    let token = taken_turn(store, instance).await;
    ack(store, &token, instance, status).await.unwrap();
}

async fn totals(store: &PostgresProvider) -> SystemMetrics {
    store.as_management_capability().unwrap().get_system_metrics().await.unwrap()
}

/// Returns the instances, executions and events, and the running, completed and failed instances.
fn figures(totals: &SystemMetrics) -> [u64; 6] {
    [
        totals.total_instances,
        totals.total_executions,
        totals.total_events,
        totals.running_instances,
        totals.completed_instances,
        totals.failed_instances,
    ]
}

/// Begins the commit of a turn, which the gate holds up before its note.
async fn held_up(
    world: &World,
    store: &Arc<PostgresProvider>,
    instance: &str,
) -> tokio::task::JoinHandle<Result<(), ProviderError>> {
    let token = taken_turn(store, instance).await;
    world.run("DROP TRIGGER IF EXISTS gate ON history").await;
    world.close_gate(&[GATE]).await;
    let (of_task, instance) = (store.clone(), instance.to_string());
    let committing = tokio::spawn(async move { ack(&of_task, &token, &instance, "Running").await });
    world.until_held_up().await;
    committing
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_counted_stays_when_it_is_long_gone() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    make(&store, "running", "Running").await;
    make(&store, "completed", "Completed").await;
    make(&store, "failed", "Failed").await;
    let before = totals(&store).await;
    assert_eq!(figures(&before), [3, 3, 3, 1, 1, 1]);
    drop(store);
    for round in 1..=2 {
        world.run("UPDATE committers SET seen_at = now() - interval '31 days', begun_at = now() - interval '31 days'").await;
        let next = world.sound_store().await;
        // The committer connects when it writes.
        next.enqueue_for_orchestrator(signal("nobody"), None).await.unwrap();
        world.until("NOT EXISTS (SELECT 1 FROM committers WHERE seen_at < now() - interval '1 day')").await;
        let counted = "SELECT count(*) FROM committers WHERE instances <> 0";
        assert_eq!(world.number(counted).await, 0, "the row is gone");
        assert_eq!(figures(&totals(&next).await), figures(&before), "after {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_refused_is_not_counted_with_its_neighbours() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    for (round, shares_with_a_call) in [(1, false), (2, true)] {
        let [first, stale, good, appended] =
            ["first", "stale", "good", "appended"].map(|what| format!("{what}-{round}"));
        let before = totals(&store).await;
        let stale_token = taken_turn(&store, &stale).await;
        ack(&store, &stale_token, &stale, "Running").await.unwrap();
        let good_token = taken_turn(&store, &good).await;
        let committing = held_up(&world, &store, &first).await;
        // The test hands in all of them before the first is through.
        let append = async {
            if shares_with_a_call {
                store.append_with_execution(&appended, 1, vec![started_event(&appended)]).await.unwrap();
            }
        };
        let (refused, stored, (), ()) = tokio::join!(
            ack(&store, &stale_token, &stale, "Running"),
            ack(&store, &good_token, &good, "Completed"),
            append,
            world.open_gate()
        );
        committing.await.unwrap().unwrap();
        assert!(!refused.unwrap_err().retryable);
        stored.unwrap();
        let shared = "SELECT count(*) FROM committers WHERE turn_verdicts = '{0,1}'";
        assert_eq!(world.number(shared).await, 1, "the refused one shared a commit, and that is noted");
        let after = totals(&store).await;
        assert_eq!(after.total_instances - before.total_instances, 3);
        assert_eq!(after.running_instances - before.running_instances, 2);
        assert_eq!(after.completed_instances - before.completed_instances, 1);
        assert_eq!(
            after.total_events - before.total_events,
            if shares_with_a_call { 4 } else { 3 },
            "what was appended is counted too"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_committer_has_given_up_before_its_note_is_made_and_counted_once() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    // Of the store's committers, this one has counted something.
    make(&store, "before", "Running").await;
    let committing = held_up(&world, &store, "i").await;
    let given_up = "SELECT count(*) FROM committers c, begin_epoch_1(c.committer) WHERE c.instances > 0";
    assert_eq!(world.number(given_up).await, 1, "nobody waits for a batch that has not made its note");
    world.open_gate().await;
    committing.await.unwrap().unwrap();
    assert_eq!(store.read("i").await.unwrap().len(), 1);
    let after = totals(&store).await;
    assert_eq!((after.total_instances, after.total_executions, after.total_events), (2, 2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_note_of_turns_leaves_alone_what_else_their_batch_has_noted() {
    let world = World::new(&[]).await;
    let _store = world.sound_store().await;
    let operator = world.connect().await;
    let epoch = "SELECT epoch FROM begin_epoch_1('c')";
    let epoch: i64 = operator.query_one(epoch, &[]).await.unwrap().get(0);
    let noted = async |batch: Option<i64>, verdicts: &[i32]| {
        let note = "SELECT note_turns_1('c', $1, $2, $3, 0, 0, 0, 0, 0, 0)";
        operator.query(note, &[&epoch, &batch, &verdicts]).await.unwrap();
        let row =
            "SELECT batch, turn_verdicts, refused_work, taken_starts FROM committers WHERE committer = 'c'";
        let row = operator.query_one(row, &[]).await.unwrap();
        let list = |column| row.get::<_, Option<Vec<i32>>>(column);
        (row.get::<_, i64>(0), list(1), list(2), list(3))
    };
    operator.query("SELECT begin_batch_1('c', $1, 7)", &[&epoch]).await.unwrap();
    world.run("UPDATE committers SET refused_work = '{3}', taken_starts = '{4}' WHERE committer = 'c'").await;
    assert_eq!(noted(None, &[0, 2]).await, (7, Some(vec![0, 2]), Some(vec![3]), Some(vec![4])));
    assert_eq!(noted(Some(8), &[0, 0]).await, (8, None, None, None), "a batch of its own begins anew");
    // The test removes the row and makes it again, with another epoch.
    world.run("DELETE FROM committers WHERE committer = 'c'; SELECT begin_epoch_1('c')").await;
    let late = operator.query("SELECT begin_batch_1('c', $1, 9)", &[&epoch]).await.unwrap_err();
    assert_eq!(late.code().unwrap().code(), "08003");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_instance_that_may_not_be_deleted_keeps_all_of_them() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let admin = store.as_management_capability().unwrap();
    let ids: Vec<String> = (0..12).map(|number| format!("i-{number:02}")).collect();
    for (number, id) in ids.iter().enumerate() {
        make(&store, id, if number == 7 || number == 9 { "Running" } else { "Completed" }).await;
    }
    let before = totals(&store).await;
    let children = "UPDATE instances SET parent_instance_id = 'i-08' WHERE instance_id IN ('i-01', 'i-02')";
    world.run(children).await;

    let refused = admin.delete_instances_atomic(&ids, false).await.unwrap_err().to_string();
    assert!(refused.contains("i-07"), "the first one that runs is told of: {refused}");
    // The server checks in the order of the request: now the parent comes first, and the request lacks two of its
    // children.
    let some = ["i-00", "i-08", "i-07"].map(String::from);
    let refused = admin.delete_instances_atomic(&some, false).await.unwrap_err().to_string();
    assert!(refused.contains("i-08") && refused.contains("i-01"), "its oldest child is told of: {refused}");
    assert_eq!(figures(&totals(&store).await), figures(&before));
    assert_eq!(world.number("SELECT count(*) FROM history").await, 12);
    assert_eq!(world.number("SELECT count(*) FROM instance_schedule").await, 0, "and nothing is locked");

    let twice = [ids.clone(), ids, vec!["nobody".into()]].concat();
    let deleted = admin.delete_instances_atomic(&twice, true).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted), (12, 12, 12));
    assert_eq!(figures(&totals(&store).await), [0; 6]);
}
