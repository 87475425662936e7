//! Instances and activities that no claim can lease are not in the way of others.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{
    ExtendedProvider, InstanceClaim, InstanceRequest, Provider, StoreLimits, TagFilter, TurnToStore,
    WorkClaim, WorkItem, WorkQueue, WorkRequest,
};
use duroxide_pg::PostgresProvider;
use support::proxy::NextCommit;
use support::world::{World, activity, completion, metadata, signal, start, started_event};

const LEASE: Duration = Duration::from_secs(300);
const REQUEST: InstanceRequest<'_> = InstanceRequest { max: 10, lock_timeout: LEASE, filter: None };
const WORK: WorkRequest<'_> =
    WorkRequest { max: 10, lock_timeout: LEASE, session: None, tag_filter: &TagFilter::Any };

fn instances(claims: &[InstanceClaim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.instance.as_str()).collect()
}

fn activities(claims: &[WorkClaim]) -> Vec<&str> {
    let instance = |claim| match claim {
        &WorkClaim { item: WorkItem::ActivityExecute { ref instance, .. }, .. } => instance.as_str(),
        other => panic!("{other:?}"),
    };
    claims.iter().map(instance).collect()
}

/// Claims until it has claimed all of these, in this order.
async fn claim_all(store: &PostgresProvider, wanted: &[&str]) -> Vec<InstanceClaim> {
    let mut all = Vec::new();
    while all.len() < wanted.len() {
        let claims = store.claim_instances(&REQUEST).await.unwrap();
        assert!(!claims.is_empty(), "only {:?}", instances(&all));
        all.extend(claims);
    }
    assert_eq!(instances(&all), wanted);
    all
}

async fn blocked(store: &PostgresProvider) -> Vec<(String, String)> {
    let blocked = store.list_blocked(10).await.unwrap();
    blocked.into_iter().map(|one| (one.instance, one.reason)).collect()
}

/// Runs the first turn of an instance, which then waits for something.
async fn run_first_turn(store: &PostgresProvider, instance: &str) {
    store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (_, token, _) = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    let events = vec![started_event(instance)];
    let ack = store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]);
    ack.await.unwrap();
}

/// Makes a claim that leases the instance or the activity `bad` fail, with this code.
async fn refuse_leases(world: &World, code: &str) {
    let refuse = |table: &str, condition: &str| {
        format!(
            "CREATE FUNCTION refuse_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF {condition} AND NEW.lock_token LIKE 'lock\\_%' THEN
                     RAISE EXCEPTION 'this row is damaged' USING ERRCODE = '{code}';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_{table}();"
        )
    };
    world.run(&refuse("instance_schedule", "NEW.instance_id = 'bad'")).await;
    world.run(&refuse("worker_queue", "NEW.instance_id = 'bad'")).await;
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn texts_that_a_disk_has_lost_stop_nobody_else() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    world
        .run(
            "ALTER TABLE orchestrator_queue ALTER work_item SET STORAGE EXTERNAL;
              ALTER TABLE worker_queue ALTER work_item SET STORAGE EXTERNAL",
        )
        .await;
    let long = "x".repeat(50_000);
    let signal_with_text =
        WorkItem::ExternalRaised { instance: "bad".into(), name: "n".into(), data: long.clone() };
    for message in [start("bad"), signal_with_text, start("good"), start("better")] {
        store.enqueue_for_orchestrator(message, None).await.unwrap();
    }
    let mut damaged = activity("bad");
    if let WorkItem::ActivityExecute { input, .. } = &mut damaged {
        input.clone_from(&long);
    }
    for item in [damaged, activity("good")] {
        store.enqueue_for_worker(item).await.unwrap();
    }
    // PostgreSQL keeps the long texts in files of their own, which the test fills with zeros as a bad disk might.
    let mut files = Vec::new();
    for table in ["orchestrator_queue", "worker_queue"] {
        let sql = format!(
            "SELECT pg_relation_filepath(reltoastrelid), pg_relation_size(reltoastrelid) FROM pg_class
             WHERE oid = '{table}'::regclass"
        );
        let row = world.connect().await.query_one(&sql, &[]).await.unwrap();
        files.push((row.get::<_, String>(0), row.get::<_, i64>(1)));
    }
    world.run("CHECKPOINT").await;
    world.cluster.stop();
    for (file, size) in files {
        world.cluster.write_file(&file, &"\0".repeat(usize::try_from(size).unwrap()));
    }
    world.cluster.start();

    claim_all(&store, &["good", "better"]).await;
    let [(instance, reason)] = blocked(&store).await.try_into().unwrap();
    assert_eq!(instance, "bad");
    assert!(reason.contains("cannot be claimed") && reason.contains("XX001"), "{reason}");
    assert_eq!(activities(&store.claim_work(&WORK).await.unwrap()), ["good"]);
    let quarantined = store.list_quarantined(10).await.unwrap();
    let [row] = quarantined.as_slice() else { panic!("{quarantined:?}") };
    assert_eq!(row.instance.as_deref(), Some("bad"));
    assert!(row.reason.contains("XX001") && row.reason.contains("cannot be read"), "{}", row.reason);

    // An operator removes the damaged message, and the instance goes on with the others.
    world.run("DELETE FROM orchestrator_queue WHERE instance_id = 'bad' AND class <> 'start'").await;
    assert!(store.unblock_instance("bad").await.unwrap());
    let claims = claim_all(&store, &["bad"]).await;
    assert_eq!(claims[0].messages, [start("bad")]);
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_stored_though_an_instance_cannot_be_claimed_along_with_it() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    run_first_turn(&store, "good").await;
    store.enqueue_for_worker(activity("good")).await.unwrap();
    let work = store.claim_work(&WORK).await.unwrap().remove(0).lock_token;
    refuse_leases(&world, "22P02").await;
    store.enqueue_for_orchestrator(start("bad"), None).await.unwrap();

    let stored = store.store_result(&work, Some(completion("good")), Some(&REQUEST)).await.unwrap();
    stored.durable.wait().await.unwrap();
    let mut claimed = stored.claims;
    if claimed.is_empty() {
        claimed = store.claim_instances(&REQUEST).await.unwrap();
    }
    assert_eq!(instances(&claimed), ["good"]);
    assert_eq!(claimed[0].messages, [completion("good")]);
    let reason = "it cannot be claimed: this row is damaged (22P02)";
    assert_eq!(blocked(&store).await, [("bad".to_string(), reason.to_string())]);

    world.run("DROP TRIGGER refuse ON instance_schedule").await;
    assert!(store.unblock_instance("bad").await.unwrap());
    claim_all(&store, &["bad"]).await;
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_stored_though_an_activity_cannot_be_claimed_along_with_it() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    store.enqueue_for_orchestrator(start("good"), None).await.unwrap();
    let claim = claim_all(&store, &["good"]).await.remove(0);
    refuse_leases(&world, "22P02").await;
    store.enqueue_for_worker(activity("bad")).await.unwrap();

    let turn = TurnToStore {
        activity_options: &[],
        lock_token: &claim.lock_token,
        execution_id: 1,
        history_delta: &[started_event("good")],
        worker_items: &[activity("good")],
        orchestrator_items: &[],
        metadata: &metadata(),
        cancelled_activities: &[],
    };
    let stored = store.store_turn(turn, Some(&WORK)).await.unwrap();
    let mut claimed = stored.claims;
    if claimed.is_empty() {
        claimed = store.claim_work(&WORK).await.unwrap();
    }
    assert_eq!(activities(&claimed), ["good"]);
    let quarantined = store.list_quarantined(10).await.unwrap();
    let [row] = quarantined.as_slice() else { panic!("{quarantined:?}") };
    assert_eq!(row.reason, "it cannot be claimed: this row is damaged (22P02)");
    assert_eq!(row.raw, serde_json::to_string(&activity("bad")).unwrap());
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_stored_though_an_instance_cannot_be_claimed_for_whoever_waits() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    refuse_leases(&world, "22P02").await;
    store.enqueue_for_orchestrator(start("bad"), None).await.unwrap();
    let waiting = tokio::spawn({
        let store: Arc<PostgresProvider> = store.clone();
        async move {
            let mut signal = store.work_signal(WorkQueue::Orchestrator);
            loop {
                let claims = store.claim_instances(&REQUEST).await.unwrap();
                if !claims.is_empty() {
                    return claims;
                }
                let claims = store.wait_for_instances(&REQUEST, &mut signal).await;
                if !claims.is_empty() {
                    return claims;
                }
            }
        }
    });
    store.enqueue_for_orchestrator(start("good"), None).await.unwrap();
    store.enqueue_for_orchestrator(signal("good"), None).await.unwrap();
    let claims = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    assert_eq!(instances(&claims), ["good"]);
    assert_eq!(blocked(&store).await.len(), 1);
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_blocked_for_what_is_not_theirs() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    // The code that the server gives where a right is missing.
    refuse_leases(&world, "42501").await;
    store.enqueue_for_orchestrator(start("bad"), None).await.unwrap();
    store.enqueue_for_worker(activity("bad")).await.unwrap();
    assert!(store.claim_instances(&REQUEST).await.is_err());
    assert!(store.claim_work(&WORK).await.is_err());
    assert_eq!(blocked(&store).await, []);
    assert!(store.list_quarantined(10).await.unwrap().is_empty());
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_server_is_an_instances_own_if_others_can_be_claimed() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    refuse_leases(&world, "XX000").await;
    store.enqueue_for_orchestrator(start("bad"), None).await.unwrap();
    store.enqueue_for_worker(activity("bad")).await.unwrap();
    assert!(store.claim_instances(&REQUEST).await.is_err());
    assert!(store.claim_work(&WORK).await.is_err());
    assert_eq!(blocked(&store).await, []);
    store.enqueue_for_orchestrator(start("good"), None).await.unwrap();
    store.enqueue_for_worker(activity("good")).await.unwrap();
    claim_all(&store, &["good"]).await;
    assert_eq!(activities(&store.claim_work(&WORK).await.unwrap()), ["good"]);
    assert_eq!(blocked(&store).await.len(), 1);
    assert_eq!(store.list_quarantined(10).await.unwrap().len(), 1);
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn what_is_leased_beside_a_row_that_cannot_be_claimed_is_given_back_if_the_answer_is_lost() {
    let world = World::new(&[]).await;
    let store = world.store().await;
    refuse_leases(&world, "22P02").await;
    // The first round prepares the statements.
    for (round, spoiled) in [("first", 0), ("second", 2)] {
        let spoil = || {
            if round == "second" {
                // The server refuses the first claim, and leases by the next one.
                world.proxy.spoil_next_claim(NextCommit::Pass);
                world.proxy.spoil_next_claim(NextCommit::LoseAnswer);
            }
        };
        store.enqueue_for_orchestrator(start("bad"), None).await.unwrap();
        store.enqueue_for_orchestrator(start(round), None).await.unwrap();
        spoil();
        let claim = claim_all(&store, &[round]).await.remove(0);
        assert_eq!(claim.attempt_count, 1, "{round}");
        store.enqueue_for_worker(activity("bad")).await.unwrap();
        store.enqueue_for_worker(activity(round)).await.unwrap();
        spoil();
        let claims = store.claim_work(&WORK).await.unwrap();
        assert_eq!(activities(&claims), [round]);
        assert_eq!(claims[0].attempt_count, 1, "{round}");
        assert_eq!(world.proxy.spoiled(), spoiled, "every fault happened");
        assert_eq!(blocked(&store).await.len(), 1);
        assert!(store.unblock_instance("bad").await.unwrap());
    }
}

// semantics: FAIL-11
#[tokio::test(flavor = "multi_thread")]
async fn big_messages_for_the_oldest_instance_stop_nobody_else() {
    const MESSAGES: usize = 40;
    let world = World::new(&[]).await;
    // A thousandth of the usual limits.
    let limits =
        StoreLimits { max_payload_bytes: 32 * 1024, max_turn_bytes: 16 * 1024, ..StoreLimits::default() };
    let builder = PostgresProvider::builder().schema(&world.schema).limits(limits);
    let store = builder.open(&world.cluster.url()).await.unwrap();
    store.enqueue_for_orchestrator(start("big"), None).await.unwrap();
    let data = "x".repeat(31 * 1024);
    for _ in 0..MESSAGES {
        let message =
            WorkItem::ExternalRaised { instance: "big".into(), name: "n".into(), data: data.clone() };
        store.enqueue_for_orchestrator(message, None).await.unwrap();
    }
    store.enqueue_for_orchestrator(start("small"), None).await.unwrap();
    let claims = claim_all(&store, &["big", "small"]).await;
    assert_eq!(claims[0].messages, [start("big")]);
    let (mut token, mut events) = (claims[0].lock_token.clone(), vec![started_event("big")]);
    for _ in 0..MESSAGES {
        let ack = store.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata(), vec![]);
        ack.await.unwrap();
        store.enqueue_for_orchestrator(signal("small"), None).await.unwrap();
        let claim = claim_all(&store, &["big"]).await.remove(0);
        assert_eq!(claim.messages.len(), 1, "one that is larger comes alone");
        (token, events) = (claim.lock_token, vec![]);
    }
    assert_eq!(blocked(&store).await, []);
}
