//! A standby takes the place of its primary. If the primary waits for it with every commit, no acknowledged work is
//! lost. If not, the last moments are lost, but the rest is consistent: an instance is unknown, or it comes to its
//! right end.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::{ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationStatus};
use duroxide_pg::PostgresProvider;
use support::load;
use support::pair::Pair;
use support::proxy::{Proxy, Weather};
use support::world::signal;

/// Nothing here takes long; a test that waits for so long has failed.
const FAILURE_BOUND: Duration = Duration::from_secs(60);
/// Commits after which a store is well under way.
const UNDER_WAY: usize = 150;

/// Waits until so many commits have come from clients.
async fn until_commits(proxy: &Proxy, count: usize) {
    let mut commits = proxy.commits();
    let enough = commits.wait_for(|commits| *commits >= count);
    tokio::time::timeout(FAILURE_BOUND, enough).await.expect("there are commits").unwrap();
}

/// Fails over under load; the standby has lagged behind for a moment before.
async fn nothing_is_lost(settings: &[&str]) {
    let pair = Pair::synchronous(settings).await;
    let fail_over = async || {
        until_commits(&pair.world.proxy, UNDER_WAY).await;
        pair.cut_off_standby();
        pair.until_standby_is_waited_for().await;
        pair.fail_over();
        let so_far = *pair.world.proxy.commits().borrow();
        until_commits(&pair.world.proxy, so_far + UNDER_WAY).await;
    };
    pair.world.survive(fail_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_is_waited_for_has_everything() {
    nothing_is_lost(&["synchronous_commit = on"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_is_waited_for_until_it_shows_has_everything() {
    nothing_is_lost(&["synchronous_commit = remote_apply"]).await;
}

/// Sends a message while the standby receives nothing; returns when the primary has it.
async fn told(pair: &Pair, store: &Arc<PostgresProvider>, instance: &str) -> Telling {
    pair.until_standby_has_all().await;
    pair.cut_off_standby();
    let telling = tokio::spawn({
        let (store, instance) = (store.clone(), instance.to_string());
        async move { store.enqueue_for_orchestrator(signal(&instance), None).await }
    });
    pair.until(&format!("EXISTS (SELECT 1 FROM orchestrator_queue WHERE instance_id = '{instance}')")).await;
    pair.until_standby_is_waited_for().await;
    assert!(!telling.is_finished(), "nothing is acknowledged that only one server has");
    telling
}

type Telling = tokio::task::JoinHandle<Result<(), duroxide::providers::ProviderError>>;

/// Waits for the acknowledgement, and checks that the message is there.
async fn is_there_once(pair: &Pair, telling: Telling, instance: &str) {
    tokio::time::timeout(FAILURE_BOUND, telling).await.expect("it is answered").unwrap().unwrap();
    let rows = format!("SELECT count(*) FROM orchestrator_queue WHERE instance_id = '{instance}'");
    assert_eq!(pair.world.number(&rows).await, 1, "it is there, once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_standby_has_not_heard_of_is_committed_again() {
    let pair = Pair::synchronous(&[]).await;
    let store = pair.world.store().await;
    let telling = told(&pair, &store, "i").await;
    pair.fail_over();
    is_there_once(&pair, telling, "i").await;
}

/// Ends connections that wait for the standby, as an administrator or a network may.
const END_WAITING: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_lives_on_beside_its_successor_gets_nothing_acknowledged() {
    let pair = Pair::synchronous(&[]).await;
    let store = pair.world.store().await;
    let telling = told(&pair, &store, "i").await;
    pair.promote();
    // One connection is lost and leads to the new server; the others stay.
    pair.run(END_WAITING).await;
    is_there_once(&pair, telling, "i").await;
    for n in 0..3 {
        let instance = format!("later-{n}");
        store.enqueue_for_orchestrator(signal(&instance), None).await.unwrap();
        let rows = format!("SELECT count(*) FROM orchestrator_queue WHERE instance_id = '{instance}'");
        assert_eq!(pair.world.number(&rows).await, 1, "{instance}");
    }
}

/// Goes from station to station when the test says so, and draws at each a number that no other run of it draws.
async fn relay(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let mut drawn = vec![input];
    for station in 0..STATIONS {
        ctx.schedule_wait(format!("go-{station}")).await;
        drawn.push(ctx.schedule_activity("Draw", station.to_string()).await?);
    }
    Ok(drawn.join(","))
}

const STATIONS: usize = 3;

/// Starts a runtime that has relays, and the jobs of the load.
async fn runtime(store: Arc<PostgresProvider>) -> Arc<Runtime> {
    let draw = |_: ActivityContext, _: String| async { Ok(uuid::Uuid::new_v4().simple().to_string()) };
    let activities = load::activities().register("Draw", draw).build();
    let orchestrations = load::orchestrations().register("Relay", relay).build();
    Runtime::start_with_options(store, activities, orchestrations, load::options()).await
}

/// Waits until a relay waits at a station.
async fn until_at(client: &Client, instance: &str, station: usize) {
    let station = format!("go-{station}");
    let waits = |kind: &EventKind| matches!(kind, EventKind::ExternalSubscribed { name } if *name == station);
    let looking = async {
        loop {
            let events = client.read_execution_history(instance, 1).await;
            if events.is_ok_and(|events| events.iter().any(|event| waits(&event.kind))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let looked = tokio::time::timeout(FAILURE_BOUND, looking).await;
    assert!(looked.is_ok(), "{instance} does not come to {station}");
}

async fn start_relay(client: &Client, instance: &str, input: &str) {
    client.start_orchestration(instance, "Relay", input).await.unwrap();
    until_at(client, instance, 0).await;
}

/// Tells a relay to go on from some stations; it ignores one that it has passed.
async fn go(client: &Client, instance: &str, stations: std::ops::Range<usize>) {
    for station in stations {
        until_at(client, instance, station).await;
        client.raise_event(instance, format!("go-{station}"), "").await.unwrap();
    }
}

/// Waits for a relay's end and checks that its output and its history tell the same.
async fn check_relay(client: &Client, instance: &str) {
    let status = client.wait_for_orchestration(instance, FAILURE_BOUND).await;
    let Ok(OrchestrationStatus::Completed { output, .. }) = status else {
        panic!("{instance} should have ended: {status:?}");
    };
    let events = client.read_execution_history(instance, 1).await.unwrap();
    let ids: Vec<u64> = events.iter().map(|event| event.event_id).collect();
    assert_eq!(ids, (1..=events.len() as u64).collect::<Vec<_>>(), "{instance} has gaps or repetitions");
    let told = events.iter().filter_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { input, .. } => Some(input.as_str()),
        EventKind::ActivityCompleted { result } => Some(result.as_str()),
        _ => None,
    });
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 1 + STATIONS, "{instance}");
    assert_eq!(output, told.join(","), "{instance} is what its history says");
    let last = events.last().map(|event| &event.kind);
    assert!(
        matches!(last, Some(EventKind::OrchestrationCompleted { .. })),
        "{instance} goes on after its end"
    );
}

/// Starts jobs and relays, which go on while the standby receives nothing, and fails over. The runtime goes on as if
/// nothing had happened, or another starts.
async fn the_last_moments_may_be_lost(is_restarted: bool) {
    let pair = Pair::new(&[]).await;
    let store = pair.world.store().await;
    let mut running = runtime(store.clone()).await;
    let client = Client::new(store);
    let relays: Vec<String> = (0..12).map(|n| format!("relay-{n}")).collect();
    for (n, relay) in relays.iter().enumerate() {
        start_relay(&client, relay, "").await;
        go(&client, relay, 0..n % 3).await;
    }
    load::start(&client, 0, 20).await;
    pair.until_standby_has_all().await;
    pair.cut_off_standby();
    for (n, relay) in relays.iter().enumerate() {
        // Some relays stay where they are, some get ahead of what the standby knows, some come to their end.
        go(&client, relay, n % 3..(n % 3 + n % 4).min(STATIONS)).await;
    }
    start_relay(&client, "forgotten", "").await;
    load::start(&client, 20, 30).await;
    client.wait_for_orchestration("job-40", FAILURE_BOUND).await.unwrap();
    load::start(&client, 50, 10).await;
    pair.fail_over();
    if is_restarted {
        running.shutdown(None).await;
        running = runtime(pair.world.store().await).await;
    }
    let status = client.get_orchestration_status("forgotten").await.unwrap();
    assert_eq!(status, OrchestrationStatus::NotFound, "something was lost");
    load::start(&client, 60, 20).await;
    for relay in &relays {
        go(&client, relay, 0..STATIONS).await;
        check_relay(&client, relay).await;
    }
    let unknown = load::check_known(&client, 80).await;
    assert!((30..=60).contains(&unknown), "{unknown} jobs were forgotten");
    running.shutdown(None).await;
    for table in ["orchestrator_queue", "worker_queue", "instance_locks", "quarantine"] {
        assert_eq!(pair.world.number(&format!("SELECT count(*) FROM {table}")).await, 0, "rows in {table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_on_after_a_loss_agrees_with_what_is_left() {
    the_last_moments_may_be_lost(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_starts_after_a_loss_agrees_with_what_is_left() {
    the_last_moments_may_be_lost(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_made_of_a_lost_instance_counts_and_not_what_is_in_memory() {
    let pair = Pair::new(&[]).await;
    let here = pair.world.store().await;
    let first = runtime(here.clone()).await;
    let client = Client::new(here);
    start_relay(&client, "i", "").await;
    pair.until_standby_has_all().await;
    pair.cut_off_standby();
    go(&client, "i", 0..1).await;
    until_at(&client, "i", 1).await;
    pair.world.proxy.set_weather(Weather::Frozen);
    pair.fail_over();
    // Another store takes the instance to the same station on another way.
    let there = pair.world.sound_store().await;
    let second = runtime(there.clone()).await;
    let other_client = Client::new(there);
    go(&other_client, "i", 0..1).await;
    until_at(&other_client, "i", 1).await;
    second.shutdown(None).await;
    pair.world.proxy.set_weather(Weather::Fair);
    go(&other_client, "i", 1..STATIONS).await;
    check_relay(&other_client, "i").await;
    first.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_instance_is_not_taken_for_one_that_was_lost() {
    let pair = Pair::new(&[]).await;
    let store = pair.world.store().await;
    let running = runtime(store.clone()).await;
    let client = Client::new(store);
    start_relay(&client, "first", "").await;
    pair.until_standby_has_all().await;
    pair.cut_off_standby();
    // More than the numbers that a server sets aside, so that the next server gives them out again.
    for n in 0..50 {
        start_relay(&client, &format!("i-{n}"), "before").await;
    }
    let numbers =
        pair.connect().await.query("SELECT incarnation, instance_id FROM instances", &[]).await.unwrap();
    pair.fail_over();
    let sequence = "SELECT last_value + is_called::int FROM instances_incarnation_seq";
    let next = pair.world.number(sequence).await;
    let same = numbers.iter().find(|row| row.get::<_, i64>(0) == next).expect("a number is given out again");
    let instance: String = same.get(1);
    start_relay(&client, &instance, "after").await;
    let incarnation = format!("SELECT incarnation FROM instances WHERE instance_id = '{instance}'");
    assert_eq!(pair.world.number(&incarnation).await, next, "it has the number of the one that was lost");
    go(&client, &instance, 0..STATIONS).await;
    check_relay(&client, &instance).await;
    running.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_hosts_the_one_that_can_be_written_to_is_used() {
    let pair = Pair::synchronous(&[]).await;
    let (primary, standby) = (pair.primary.port(), pair.world.cluster.port());
    for hosts in [
        format!("127.0.0.1:{standby},127.0.0.1:{primary}"),
        format!("127.0.0.1:{primary},127.0.0.1:{standby}"),
    ] {
        let url =
            format!("postgres://postgres:not-a-secret@{hosts}/postgres?target_session_attrs=read-write");
        assert!(pair.world.open(&url).await.read("i").await.unwrap().is_empty());
    }
    let hosts = format!("127.0.0.1:{standby},127.0.0.1:{primary}");
    let store = pair.world.open(&format!("postgres://postgres:not-a-secret@{hosts}/postgres")).await;
    let runtime = load::runtime(store.clone()).await;
    let client = Client::new(store);
    load::start(&client, 0, 20).await;
    pair.fail_over();
    load::start(&client, 20, 20).await;
    load::check(&client, 40).await;
    load::check(&Client::new(pair.world.sound_store().await), 40).await;
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_says_nothing_does_not_keep_the_next_from_being_tried() {
    let world = support::world::World::new(&[]).await;
    world.proxy.set_weather(Weather::Frozen);
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", world.proxy.port(), world.cluster.port());
    let url = format!("postgres://postgres:not-a-secret@{hosts}/postgres?connect_timeout=1");
    let store = tokio::time::timeout(FAILURE_BOUND, world.open(&url)).await.expect("the next one is tried");
    store.enqueue_for_orchestrator(signal("i"), None).await.unwrap();
}
