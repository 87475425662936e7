//! Faults of a server at the other end of a wire: it loses connections, also in the middle of a commit, crashes, holds
//! locks, or accepts no more connections. Nothing is lost, nothing is done twice, and everything goes on by itself.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::providers::{Clock, ExtendedProvider, Provider, SystemClock, TagFilter, WorkQueue};
use duroxide_pg::PostgresProvider;
use support::proxy::{NextCommit, Weather};
use support::world::{World, activity, completion, metadata, start, started_event};

const LEASE: Duration = Duration::from_secs(30);
/// Nothing here takes long; a test that waits for so long has failed.
const FAILURE_BOUND: Duration = Duration::from_secs(60);

/// How often a fault happens; `PG_FAULTS` multiplies it.
fn rounds(usual: u64) -> u64 {
    usual * std::env::var("PG_FAULTS").map_or(1, |times| times.parse::<u64>().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_may_be_cut_at_any_time() {
    let world = World::new(&[]).await;
    let cut = async || {
        for n in 0..rounds(60) {
            tokio::time::sleep(Duration::from_millis(20 + n * 37 % 60)).await;
            world.proxy.cut();
        }
    };
    world.survive(cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_may_be_cut_at_any_time() {
    let world = World::new(&[]).await;
    let spoil = async || {
        let ways = [NextCommit::LoseAnswer, NextCommit::LoseRequest, NextCommit::LoseHalf];
        let deadline = SystemClock.monotonic() + FAILURE_BOUND;
        for (how, number) in ways.into_iter().cycle().zip(1..=rounds(30)) {
            let passing = vec![NextCommit::Pass; number as usize % 7];
            world.proxy.spoil_next_commits(&[passing, vec![how]].concat());
            while (world.proxy.spoiled() as u64) < number {
                assert!(SystemClock.monotonic() < deadline, "there are no more commits");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    world.survive(spoil).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_may_be_ended_in_an_orderly_way() {
    let world = World::new(&[]).await;
    let hang_up = async || {
        for _ in 0..rounds(20) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.proxy.hang_up();
        }
    };
    world.survive(hang_up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wire_may_be_slow_or_silent_for_a_while() {
    let world = World::new(&[]).await;
    let delay = async || {
        for weather in [Weather::Slow(Duration::from_millis(100)), Weather::Frozen] {
            tokio::time::sleep(Duration::from_millis(200)).await;
            world.proxy.set_weather(weather);
            // Longer than the leases.
            tokio::time::sleep(Duration::from_secs(5)).await;
            world.proxy.set_weather(Weather::Fair);
        }
    };
    world.survive(delay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_longer_than_a_lease_changes_nothing() {
    let world = World::new(&[]).await;
    let (away, other) = (world.store().await, world.sound_store().await);
    let short = Duration::from_secs(1);
    for what in ["a", "b"] {
        away.enqueue_for_orchestrator(start(what), None).await.unwrap();
        away.enqueue_for_worker(activity(what)).await.unwrap();
        let tags = TagFilter::default();
        let (_, turn, _) = away.fetch_orchestration_item(short, Duration::ZERO, None).await.unwrap().unwrap();
        let (_, work, _) = away.fetch_work_item(short, Duration::ZERO, None, &tags).await.unwrap().unwrap();
        world.proxy.set_weather(Weather::Frozen);
        let takes_over = async {
            let other_turn = until_some(async || {
                other.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap()
            });
            let (_, other_turn, attempt) = other_turn.await;
            assert_eq!(attempt, 2);
            let events = vec![started_event(what)];
            let ack =
                other.ack_orchestration_item(&other_turn, 1, events, vec![], vec![], metadata(), vec![]);
            ack.await.unwrap();
            let other_work =
                until_some(async || other.fetch_work_item(LEASE, Duration::ZERO, None, &tags).await.unwrap());
            other.ack_work_item(&other_work.await.1, None).await.unwrap();
            world.proxy.set_weather(Weather::Fair);
        };
        // The acks that were sent in time arrive too late.
        let (late_turn, late_work, ()) = tokio::join!(
            away.ack_orchestration_item(
                &turn,
                1,
                vec![started_event(what)],
                vec![activity("late")],
                vec![],
                metadata(),
                vec![]
            ),
            away.ack_work_item(&work, Some(completion(what))),
            takes_over,
        );
        assert!(!late_turn.unwrap_err().retryable);
        assert!(!late_work.unwrap_err().retryable);
        assert_eq!(other.read(what).await.unwrap().len(), 1);
        for queue in ["orchestrator_queue", "worker_queue"] {
            assert_eq!(world.number(&format!("SELECT count(*) FROM {queue}")).await, 0, "{queue}");
        }
    }
}

/// Looks until `look` finds something.
async fn until_some<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = SystemClock.monotonic() + FAILURE_BOUND;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(SystemClock.monotonic() < deadline, "there is nothing");
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_crash() {
    let world = World::new(&[]).await;
    let crash = async || {
        for _ in 0..rounds(3) {
            tokio::time::sleep(Duration::from_millis(300)).await;
            world.cluster.crash();
        }
    };
    world.survive(crash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_may_be_terminated() {
    let world = World::new(&[]).await;
    let killer = world.connect().await;
    let terminate = async || {
        for _ in 0..rounds(20) {
            tokio::time::sleep(Duration::from_millis(60)).await;
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
            killer.batch_execute(sql).await.unwrap();
        }
    };
    world.survive(terminate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_holds_is_waited_for() {
    let world = World::new(&[]).await;
    let mut other = world.connect().await;
    let store = world.sound_store().await;
    let lock = format!("LOCK TABLE {}.instance_schedule IN ACCESS EXCLUSIVE MODE", store.schema_name());
    drop(store);
    let hold = tokio::sync::Mutex::new(&mut other);
    let hold_it = async || {
        let mut other = hold.lock().await;
        let transaction = other.transaction().await.unwrap();
        transaction.batch_execute(&lock).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        transaction.commit().await.unwrap();
    };
    world.survive(hold_it).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_not_to_be_had_are_waited_for() {
    let world = World::new(&["max_connections = 30", "superuser_reserved_connections = 3"]).await;
    world.connect().await.batch_execute("CREATE ROLE greedy LOGIN").await.unwrap();
    let url = world.cluster.url().replace("postgres@", "greedy@");
    let exhaust = async || {
        let mut taken = Vec::new();
        for _ in 0..4 {
            // The store has to connect again, and finds all places taken.
            while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
                taken.push((client, tokio::spawn(connection)));
            }
            world.proxy.cut();
            tokio::time::sleep(Duration::from_millis(400)).await;
            taken.clear();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    world.survive(exhaust).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_be_read_only_for_a_while() {
    let world = World::new(&[]).await;
    let operator = world.connect().await;
    let set = async |value: &str| {
        operator.batch_execute("SET default_transaction_read_only = off").await.unwrap();
        operator
            .batch_execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"))
            .await
            .unwrap();
        operator.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    };
    let fail_over = async || {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            set("on").await;
            tokio::time::sleep(Duration::from_millis(800)).await;
            set("off").await;
        }
    };
    world.survive(fail_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_lose_its_patience_with_statements() {
    let world = World::new(&[]).await;
    let operator = world.connect().await;
    operator.batch_execute("SET statement_timeout = 0").await.unwrap();
    let impatience = async || {
        for setting in ["SET statement_timeout = '3ms'", "RESET statement_timeout"] {
            operator.batch_execute(&format!("ALTER SYSTEM {setting}")).await.unwrap();
            operator.batch_execute("SELECT pg_reload_conf()").await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    world.survive(impatience).await;
}

/// Waits until a store finds work that another has enqueued; returns its instance.
async fn found(store: &PostgresProvider) -> String {
    let mut signal = store.work_signal(WorkQueue::Orchestrator);
    let looking = async {
        loop {
            signal.mark_seen();
            let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap();
            if let Some((item, ..)) = fetched {
                return item.instance;
            }
            signal.wait().await;
        }
    };
    tokio::time::timeout(FAILURE_BOUND, looking).await.expect("it is found")
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_work_is_found_by_looking() {
    let world = World::new(&[]).await;
    let open = async || {
        let builder = PostgresProvider::builder().schema(&world.schema).notifications(false);
        builder.open(&world.cluster.url()).await.unwrap()
    };
    let (here, there) = (open().await, open().await);
    for round in 0..3 {
        let instance = format!("i-{round}");
        let looking = async {
            let began = SystemClock.monotonic();
            (found(&there).await, SystemClock.monotonic() - began)
        };
        let enqueueing = async {
            // The store looks in vain before.
            tokio::time::sleep(Duration::from_millis(100)).await;
            here.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        };
        let ((found, took), ()) = tokio::join!(looking, enqueueing);
        assert_eq!(found, instance);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    assert_eq!(world.number(listening).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_listener_costs_no_more_than_a_poll() {
    let world = World::new(&[]).await;
    let (here, there) = (world.sound_store().await, world.sound_store().await);
    let killer = world.connect().await;
    for round in 0..5 {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'duroxide reads'";
        killer.batch_execute(sql).await.unwrap();
        let instance = format!("i-{round}");
        here.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        let began = SystemClock.monotonic();
        assert_eq!(found(&there).await, instance);
        let took = SystemClock.monotonic() - began;
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_a_clear_retryable_error_without_secrets() {
    let world = World::new(&[]).await;
    let builder = PostgresProvider::builder().schema(&world.schema).retry_for(Duration::from_millis(200));
    let url = world.cluster.url_through(world.cluster.port());
    let store = builder.open(&url).await.unwrap();
    world.cluster.stop();
    let enqueued = store.enqueue_for_orchestrator(start("i"), None).await.unwrap_err();
    let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap_err();
    let read = store.read("i").await.unwrap_err();
    for error in [enqueued, fetched, read] {
        assert!(error.retryable, "{error}");
        assert!(!error.to_string().contains("not-a-secret"), "{error}");
    }
    let refused = PostgresProvider::new(&url).await.err().unwrap();
    assert!(!format!("{refused} {refused:?}").contains("not-a-secret"), "{refused}");
    world.cluster.start();
    store.enqueue_for_orchestrator(start("i"), None).await.unwrap();
    let (item, ..) = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap().unwrap();
    assert_eq!(item.instance, "i");
}
