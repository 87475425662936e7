//! Commits whose answer is lost, and statements that fail: each request happens once, and its caller hears the outcome.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{
    ExtendedProvider, InstanceRequest, Provider, ProviderError, StartOutcome, TagFilter,
};
use duroxide_pg::PostgresProvider;
use support::proxy::{NextCommit, Weather};
use support::world::{World, activity, completion, metadata, signal, start, started_event};

const LEASE: Duration = Duration::from_secs(30);
const ALL_WAYS: [NextCommit; 3] = [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf];

/// Starts an instance and takes its turn.
async fn taken_turn(store: &PostgresProvider, instance: &str) -> String {
    store.enqueue_start_if_absent(start(instance)).await.unwrap();
    let (item, token, _) =
        store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!((item.instance.as_str(), item.messages.len()), (instance, 1));
    token
}

/// Enqueues an activity and takes it.
async fn taken_work(store: &PostgresProvider, instance: &str) -> String {
    store.enqueue_for_worker(activity(instance)).await.unwrap();
    let fetched = store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::default()).await;
    fetched.unwrap().unwrap().1
}

/// Ends a turn that has made one event.
async fn ack(store: &PostgresProvider, token: &str, instance: &str) -> Result<(), ProviderError> {
    let events = vec![started_event(instance)];
    store.ack_orchestration_item(token, 1, events, vec![], vec![], metadata(), vec![]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_meets_a_broken_wire_is_made_once() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let mut spoiled = 0;
    for how in ALL_WAYS {
        let instance = format!("{how:?}");
        let mut spoil = || {
            world.proxy.spoil_next_commit(how);
            spoiled += 1;
        };
        spoil();
        let outcome = store.enqueue_start_if_absent(start(&instance)).await.unwrap();
        assert_eq!(outcome, StartOutcome::New, "{how:?}");
        spoil();
        let outcome = store.enqueue_start_if_absent(start(&instance)).await.unwrap();
        assert_eq!(outcome, StartOutcome::Existing, "{how:?}");

        let (item, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        assert_eq!((item.instance.as_str(), item.messages.len()), (instance.as_str(), 1), "{how:?}");
        spoil();
        let events = vec![started_event(&instance)];
        let ack = store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]);
        ack.await.unwrap();
        assert_eq!(store.read(&instance).await.unwrap().len(), 1, "{how:?}");

        spoil();
        store.enqueue_for_orchestrator(signal(&instance), None).await.unwrap();
        let (item, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        assert_eq!(item.messages.len(), 1, "{how:?}: the signal is there once");

        // The caller hears a refusal even if the answer that said so was lost.
        spoil();
        let stale = token.replace("lock_", "lock_0").chars().take(37).collect::<String>() + "_" + &instance;
        let refused = store.ack_orchestration_item(&stale, 1, vec![], vec![], vec![], metadata(), vec![]);
        assert!(!refused.await.unwrap_err().retryable, "{how:?}");
        store.ack_orchestration_item(&token, 1, vec![], vec![], vec![], metadata(), vec![]).await.unwrap();
    }
    assert_eq!(world.proxy.spoiled(), spoiled, "every fault happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_meets_one_broken_wire_after_the_other_is_made_once() {
    use NextCommit::{LoseAnswer, LoseHalf, LoseRequest};
    let world = World::new(&[]).await;
    let store = world.store().await;
    let series: [&[NextCommit]; 4] = [
        &[LoseRequest, LoseAnswer],
        &[LoseHalf, LoseRequest, LoseAnswer],
        &[LoseRequest, LoseRequest, LoseHalf],
        &[LoseAnswer, LoseAnswer],
    ];
    for (number, ways) in series.into_iter().enumerate() {
        let instance = format!("i-{number}");
        let token = taken_turn(&store, &instance).await;
        world.proxy.spoil_next_commits(ways);
        store.enqueue_for_orchestrator(signal(&instance), None).await.unwrap();
        ack(&store, &token, &instance).await.unwrap();
        world.proxy.spoil_next_commits(&[]);
        assert_eq!(store.read(&instance).await.unwrap().len(), 1, "{ways:?}");
        let left = "SELECT count(*) FROM orchestrator_queue WHERE instance_id = ";
        assert_eq!(world.number(&format!("{left}'{instance}'")).await, 1, "{ways:?}: the signal, once");
        let (_, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        store.ack_orchestration_item(&token, 1, vec![], vec![], vec![], metadata(), vec![]).await.unwrap();
    }
    assert_eq!(world.proxy.spoiled(), series.iter().map(|ways| ways.len()).sum::<usize>());
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_a_commit_up_may_be_cut_short_at_any_point() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for how in [NextCommit::LoseAnswer, NextCommit::LoseRequest] {
        for answers in 0..10 {
            let instance = format!("{how:?}-{answers}");
            let token = taken_turn(&store, &instance).await;
            world.proxy.cut_next_connections(&[answers, answers + 1]);
            world.proxy.spoil_next_commit(how);
            ack(&store, &token, &instance).await.unwrap();
            assert_eq!(store.read(&instance).await.unwrap().len(), 1, "{instance}");
            let refused = ack(&store, &token, &instance).await.unwrap_err();
            assert!(!refused.retryable, "{refused}");
            world.proxy.cut_next_connections(&[]);
        }
    }
}

/// Lets requests gather while another commit is under way, so that they share the next one. `ways` is what the proxy
/// does to that commit and to those that follow.
async fn together<T>(
    world: &World,
    store: &Arc<PostgresProvider>,
    ways: &[NextCommit],
    requests: impl Future<Output = T>,
) -> T {
    // This prepares the statement, before the test holds up the next one of its kind.
    store.enqueue_for_orchestrator(signal("first"), None).await.unwrap();
    let mut commits = world.proxy.commits();
    world.proxy.spoil_next_commits(&[&[NextCommit::Pass], ways].concat());
    world.proxy.set_weather(Weather::Frozen);
    let first = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue_for_orchestrator(signal("first"), None).await }
    });
    commits.changed().await.unwrap();
    // The callers hand in all requests before anything moves.
    let (answers, ()) = tokio::join!(requests, async { world.proxy.set_weather(Weather::Fair) });
    first.await.unwrap().unwrap();
    world.proxy.spoil_next_commits(&[]);
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_hears_their_own_verdict_although_the_answer_was_lost() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for (round, how) in ALL_WAYS.into_iter().enumerate() {
        let [stale, good, taken, new, told] =
            ["stale", "good", "taken", "new", "told"].map(|what| format!("{what}-{round}"));
        let stale_turn = taken_turn(&store, &stale).await;
        ack(&store, &stale_turn, &stale).await.unwrap();
        let stale_work = taken_work(&store, &stale).await;
        store.ack_work_item(&stale_work, None).await.unwrap();
        let good_turn = taken_turn(&store, &good).await;
        let good_work = taken_work(&store, &good).await;
        store.enqueue_start_if_absent(start(&taken)).await.unwrap();

        let requests = async {
            tokio::join!(
                ack(&store, &stale_turn, &stale),
                ack(&store, &good_turn, &good),
                store.ack_work_item(&stale_work, Some(completion(&stale))),
                store.ack_work_item(&good_work, Some(completion(&good))),
                store.enqueue_start_if_absent(start(&taken)),
                store.enqueue_start_if_absent(start(&new)),
                store.enqueue_for_orchestrator(signal(&told), None),
            )
        };
        let heard = together(&world, &store, &[how], requests).await;
        let transactions = format!(
            "SELECT count(DISTINCT xmin::text) FROM orchestrator_queue WHERE instance_id IN ('{good}', '{new}', '{told}')"
        );
        assert_eq!(world.number(&transactions).await, 1, "results, starts and messages shared a commit");
        let (stale_turn, good_turn, stale_work, good_work, taken_start, new_start, message) = heard;
        assert!(!stale_turn.unwrap_err().retryable, "{how:?}");
        good_turn.unwrap();
        assert!(!stale_work.unwrap_err().retryable, "{how:?}");
        good_work.unwrap();
        assert_eq!(taken_start.unwrap(), StartOutcome::Existing, "{how:?}");
        assert_eq!(new_start.unwrap(), StartOutcome::New, "{how:?}");
        message.unwrap();

        let rows = async |instance: &str| {
            let sql = "SELECT count(*) FROM orchestrator_queue WHERE instance_id = ";
            world.number(&format!("{sql}'{instance}'")).await
        };
        assert_eq!(rows(&stale).await, 0, "{how:?}");
        assert_eq!(rows(&good).await, 1, "{how:?}: the activity's end");
        assert_eq!((rows(&taken).await, rows(&new).await, rows(&told).await), (1, 1, 1), "{how:?}");
        assert_eq!(world.number("SELECT count(*) FROM worker_queue").await, 0, "{how:?}");
        assert_eq!(store.read(&good).await.unwrap().len(), 1, "{how:?}");
        world.run("DELETE FROM orchestrator_queue").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_there_is_refused_although_the_answer_was_lost() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for how in ALL_WAYS {
        let instance = format!("{how:?}");
        let token = taken_turn(&store, &instance).await;
        store.append_with_execution(&instance, 1, vec![started_event(&instance)]).await.unwrap();
        // The first commit fails by itself, and the committer tries the request alone.
        world.proxy.spoil_next_commits(&[NextCommit::Pass, how]);
        let error = ack(&store, &token, &instance).await.unwrap_err();
        assert!(!error.retryable && error.to_string().contains("already has an event"), "{how:?}: {error}");
        assert_eq!(store.read(&instance).await.unwrap().len(), 1, "{how:?}");
    }
    assert_eq!(world.proxy.spoiled(), ALL_WAYS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_is_lost_says_so_and_was_made_once() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let admin = store.as_management_capability().unwrap();
    for how in ALL_WAYS {
        let instance = format!("{how:?}");
        let told = |result: Result<(), ProviderError>| match result {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(how, NextCommit::LoseAnswer, "{error}");
                assert!(error.retryable && error.to_string().contains("may or may not"), "{error}");
            }
        };
        world.proxy.spoil_next_commit(how);
        told(store.append_with_execution(&instance, 1, vec![started_event(&instance)]).await);
        assert_eq!(store.read(&instance).await.unwrap().len(), 1, "{how:?}");

        let token = taken_turn(&store, &format!("{instance}-2")).await;
        ack(&store, &token, &format!("{instance}-2")).await.unwrap();
        world.proxy.spoil_next_commit(how);
        told(admin.delete_instance(&format!("{instance}-2"), true).await.map(drop));
        assert!(store.read(&format!("{instance}-2")).await.unwrap().is_empty(), "{how:?}");
    }
    assert_eq!(world.proxy.spoiled(), 2 * ALL_WAYS.len());
}

/// Triggers that hold up a commit, when only its write to the disk is left.
const GATES: [&str; 2] = [
    "CONSTRAINT TRIGGER gate AFTER INSERT ON orchestrator_queue DEFERRABLE INITIALLY DEFERRED",
    "CONSTRAINT TRIGGER gate AFTER INSERT ON history DEFERRABLE INITIALLY DEFERRED",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_before_a_commit_is_on_its_disk_makes_it_later() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for crashes in 1..=2 {
        let instance = format!("i-{crashes}");
        let token = taken_turn(&store, &instance).await;
        world.close_gate(if crashes == 1 { &GATES } else { &[] }).await;
        let committing = tokio::spawn({
            let (store, instance) = (store.clone(), instance.clone());
            async move {
                let (acked, told) = tokio::join!(
                    ack(&store, &token, &instance),
                    store.enqueue_for_orchestrator(signal(&instance), None)
                );
                acked.and(told)
            }
        });
        for _ in 0..crashes {
            world.until_held_up().await;
            world.cluster.crash();
        }
        assert_eq!(world.number("SELECT count(*) FROM history WHERE instance_id <> 'i-1'").await, 0);
        world.open_gate().await;
        committing.await.unwrap().unwrap();
        assert_eq!(store.read(&instance).await.unwrap().len(), 1, "after {crashes} crashes");
        let (item, token, _) =
            store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
        assert_eq!((item.instance, item.messages.len()), (instance, 1), "after {crashes} crashes");
        store.ack_orchestration_item(&token, 1, vec![], vec![], vec![], metadata(), vec![]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_crashed_server_has_forgotten_is_committed_again() {
    // Commits that are not synced stay in the server's memory for long.
    let world = World::new(&["wal_writer_delay = 10000"]).await;
    let store = world.sound_store().await;
    for round in 0..3 {
        let [made, told] = ["made", "told"].map(|what| format!("{what}-{round}"));
        let token = taken_turn(&store, &made).await;
        world
            .run(
                "DROP TABLE IF EXISTS before; CREATE TABLE before AS SELECT committer, batch FROM committers",
            )
            .await;
        ack(&store, &token, &made).await.unwrap();
        // The committer of turns makes the syncs too. As long as it has to wait, nothing becomes durable.
        let operator = world.connect().await;
        let of_turns =
            "SELECT c.committer FROM committers c JOIN before b USING (committer) WHERE c.batch > b.batch";
        let of_turns: String = operator.query_one(of_turns, &[]).await.unwrap().get(0);
        operator.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT 1 FROM committers WHERE committer = $1 FOR UPDATE";
        operator.query(lock, &[&of_turns]).await.unwrap();
        let telling = tokio::spawn({
            let (store, told) = (store.clone(), told.clone());
            async move { store.enqueue_for_orchestrator(signal(&told), None).await }
        });
        world.until(&format!("EXISTS (SELECT 1 FROM orchestrator_queue WHERE instance_id = '{told}')")).await;
        world.until("pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()").await;
        assert!(!telling.is_finished(), "nothing is acknowledged that may be forgotten");
        world.cluster.crash();
        telling.await.unwrap().unwrap();
        let rows = format!("SELECT count(*) FROM orchestrator_queue WHERE instance_id = '{told}'");
        assert_eq!(world.number(&rows).await, 1, "it is there, once");
    }
}

/// Tells whether a commit waits for a standby that does not exist.
const WAITS_FOR_STANDBY: &str = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_after_a_commit_is_on_its_disk_does_not_make_it_again() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    for crashes in 1..=2 {
        let instance = format!("i-{crashes}");
        let token = taken_turn(&store, &instance).await;
        let operator = world.connect().await;
        let alter = async |sql: &str| operator.batch_execute(sql).await.unwrap();
        alter("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
        alter("SELECT pg_reload_conf()").await;
        let committing = tokio::spawn({
            let (store, instance) = (store.clone(), instance.clone());
            async move { ack(&store, &token, &instance).await }
        });
        // The second time the lookup waits.
        for crash in 1..=crashes {
            world.until(&format!("EXISTS ({WAITS_FOR_STANDBY})")).await;
            if crash == crashes {
                world.run("ALTER SYSTEM RESET synchronous_standby_names").await;
            }
            world.cluster.crash();
        }
        committing.await.unwrap().unwrap();
        assert_eq!(store.read(&instance).await.unwrap().len(), 1, "after {crashes} crashes");
        assert!(store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().is_none());
    }
}

/// Makes the next so many writes to a table fail with a code.
async fn make_fail(world: &World, when: &str, code: &str, times: u32) {
    world
        .run(&format!(
            "DROP SEQUENCE IF EXISTS failures CASCADE; CREATE SEQUENCE failures;
             DROP FUNCTION IF EXISTS fail CASCADE;
             CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval('failures') <= {times} THEN
                     RAISE EXCEPTION 'made up' USING ERRCODE = '{code}';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE {when} FOR EACH ROW EXECUTE FUNCTION fail();"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_may_pass_are_tried_again() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let codes = ["40001", "40P01", "55P03", "57014", "25006", "53200", "53300", "58030", "57P03", "0A000"];
    for code in codes {
        make_fail(&world, "TRIGGER fail BEFORE INSERT ON orchestrator_queue", code, 3).await;
        store.enqueue_for_orchestrator(signal(code), None).await.unwrap();
        let rows = format!("SELECT count(*) FROM orchestrator_queue WHERE instance_id = '{code}'");
        assert_eq!(world.number(&rows).await, 1, "{code}");
        assert_eq!(world.number("SELECT last_value FROM failures").await, 4, "{code}");

        store.enqueue_for_worker(activity(code)).await.unwrap();
        make_fail(&world, "TRIGGER fail BEFORE UPDATE ON worker_queue", code, 3).await;
        let fetched = store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::default()).await;
        let (_, token, attempt) = fetched.unwrap().unwrap();
        assert_eq!(attempt, 1, "{code}");
        assert_eq!(world.number("SELECT last_value FROM failures").await, 4, "{code}");
        store.ack_work_item(&token, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_server_refuses_is_tried_again() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    let when = "CONSTRAINT TRIGGER fail AFTER INSERT ON orchestrator_queue DEFERRABLE INITIALLY DEFERRED";
    make_fail(&world, when, "40001", 2).await;
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 1);
    assert_eq!(world.number("SELECT last_value FROM failures").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_fails_for_good_does_not_take_its_neighbours_along() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    world.run("ALTER TABLE orchestrator_queue ADD CHECK (instance_id NOT LIKE 'bad%')").await;
    for how in [NextCommit::Pass, NextCommit::LoseAnswer] {
        let [good, bad, other] = ["good", "bad", "other"].map(|what| format!("{what}-{how:?}"));
        let requests = async {
            tokio::join!(
                store.enqueue_for_orchestrator(signal(&good), None),
                store.enqueue_for_orchestrator(signal(&bad), None),
                store.enqueue_for_orchestrator(signal(&other), None),
            )
        };
        // The batch fails, and then each job goes by itself.
        let ways = [NextCommit::Pass, how, how, how];
        let (good_told, bad_told, other_told) = together(&world, &store, &ways, requests).await;
        good_told.unwrap();
        other_told.unwrap();
        let error = bad_told.unwrap_err();
        assert!(!error.retryable && error.to_string().contains("23514"), "{error}");
        let rows = "SELECT count(*) FROM orchestrator_queue WHERE instance_id LIKE";
        assert_eq!(world.number(&format!("{rows} '%-{how:?}'")).await, 2, "{how:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_connection_lasts_for_months_is_not_forgotten() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    store.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    world.run("UPDATE committers SET seen_at = now() - interval '31 days', begun_at = now() - interval '31 days'").await;
    // Another process starts, and removes committers that are long gone.
    let other = world.sound_store().await;
    other.enqueue_for_orchestrator(signal("b"), None).await.unwrap();
    store.enqueue_for_orchestrator(signal("c"), None).await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM orchestrator_queue").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_becomes_durable_though_the_turn_behind_it_fails() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    let client = world.connect().await;
    // This also prepares the statements of a turn, so that the committer sends the next one at once.
    ack(&store, &taken_turn(&store, "before").await, "before").await.unwrap();
    let failing = "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION ''not today'' USING ERRCODE = ''check_violation''; END';
        CREATE TRIGGER fail BEFORE INSERT ON history EXECUTE FUNCTION fail()";
    client.batch_execute(failing).await.unwrap();
    let request = InstanceRequest { max: 1, lock_timeout: LEASE, filter: None };
    for number in 0..5 {
        let (of_turn, of_work) = (format!("t-{number}"), format!("w-{number}"));
        let turn = taken_turn(&store, &of_turn).await;
        let work = taken_work(&store, &of_work).await;
        let stored = store.store_result(&work, Some(completion(&of_work)), Some(&request)).await.unwrap();
        // The result waits for this turn to make it durable.
        ack(&store, &turn, &of_turn).await.unwrap_err();
        let durable = tokio::time::timeout(Duration::from_secs(20), stored.durable.wait()).await;
        durable.expect("it is synced without the turn").unwrap();
    }
}
