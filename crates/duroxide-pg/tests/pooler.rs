//! Poolers in front of the server: the store notices a session that is not its own before it does anything there, and
//! works without sessions.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duroxide::Client;
use duroxide::providers::Provider;
use duroxide_pg::{PgError, PostgresProvider};
use support::bouncer::Bouncer;
use support::world::{World, take_turn};
use support::{load, logs};

/// Records, for each commit that writes history, its `synchronous_commit` and its session.
const RECORD_COMMITS: &str = "
    CREATE TABLE commit_levels (level text NOT NULL, pid integer NOT NULL);
    CREATE FUNCTION record_level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO commit_levels VALUES (current_setting('synchronous_commit'), pg_backend_pid());
        RETURN NULL;
    END $$;
    CREATE TRIGGER record_level AFTER INSERT ON history FOR EACH STATEMENT EXECUTE FUNCTION record_level();";

// semantics: PG-8
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_of_transactions_commits_are_synced_and_settings_stay_ours() {
    const JOBS: usize = 50;
    logs::listen();
    let world = World::new(&[]).await;
    let mut bouncer = Bouncer::new(&world.cluster, "transaction", &["default_pool_size = 2"]);
    let url = world.cluster.url_through(bouncer.port());
    let stores = [world.open(&url).await, world.open(&url).await];
    world.run(RECORD_COMMITS).await;
    let runtimes = [load::runtime(stores[0].clone()).await, load::runtime(stores[1].clone()).await];

    // Another client uses the same sessions.
    let is_over = Arc::new(AtomicBool::new(false));
    let other = tokio::spawn({
        let (url, is_over) = (url.clone(), is_over.clone());
        async move {
            let mut looks = 0;
            while !is_over.load(Ordering::SeqCst) {
                let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
                else {
                    continue;
                };
                let connection = tokio::spawn(connection);
                let shown = "SELECT concat_ws(' ', current_setting('enable_seqscan'), current_setting('lock_timeout'),
                    current_setting('search_path'), current_setting('synchronous_commit'))";
                while let Ok(answers) = client.simple_query(shown).await
                    && !is_over.load(Ordering::SeqCst)
                {
                    let row = answers.iter().find_map(|answer| match answer {
                        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                        _ => None,
                    });
                    assert_eq!(row, Some("on 0 \"$user\", public on"));
                    looks += 1;
                }
                connection.abort();
            }
            looks
        }
    });

    let client = Client::new(stores[0].clone());
    load::start(&client, 0, JOBS / 2).await;
    bouncer.restart();
    load::start(&client, JOBS / 2, JOBS - JOBS / 2).await;
    load::check(&client, JOBS).await;
    is_over.store(true, Ordering::SeqCst);
    assert!(other.await.unwrap() > 0, "somebody else has looked");
    for runtime in runtimes {
        runtime.shutdown(None).await;
    }
    let commits = world.number("SELECT count(*) FROM commit_levels").await;
    assert!(commits >= JOBS as i64, "{commits}");
    assert_eq!(world.number("SELECT count(*) FROM commit_levels WHERE level <> 'on'").await, 0);
    assert!(logs::heard().contains("shares its sessions"), "operators are told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_of_sessions_is_taken_as_it_is() {
    let world = World::new(&[]).await;
    for settings in ["", "ignore_startup_parameters = options,extra_float_digits"] {
        let bouncer = Bouncer::new(&world.cluster, "session", &["default_pool_size = 20", settings]);
        let store = world.open(&world.cluster.url_through(bouncer.port())).await;
        take_turn(&store, &format!("session {settings}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_ignores_settings_is_noticed() {
    let world = World::new(&[]).await;
    let ignore = "ignore_startup_parameters = options,extra_float_digits";
    let bouncer = Bouncer::new(&world.cluster, "transaction", &["default_pool_size = 2", ignore]);
    let store = world.open(&world.cluster.url_through(bouncer.port())).await;
    world.run(RECORD_COMMITS).await;
    for number in 0..10 {
        take_turn(&store, &format!("i-{number}")).await;
    }
    assert_eq!(world.number("SELECT count(*) FROM commit_levels WHERE level = 'on'").await, 10);
    assert_eq!(world.number("SELECT count(*) FROM commit_levels WHERE level <> 'on'").await, 0);
}

// semantics: PG-8
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_of_statements_is_refused_in_a_clear_sentence() {
    let world = World::new(&[]).await;
    let bouncer = Bouncer::new(&world.cluster, "statement", &[]);
    let refused = PostgresProvider::new(&world.cluster.url_through(bouncer.port())).await.err().unwrap();
    assert!(matches!(refused, PgError::Unsupported { .. }), "{refused:?}");
    assert!(refused.to_string().contains("set pool_mode = transaction or session"), "{refused}");
}

/// A process that listens finds work that another enqueued through a pooler, and the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn processes_on_both_ways_share_their_work() {
    let world = World::new(&[]).await;
    let bouncer = Bouncer::new(&world.cluster, "transaction", &["default_pool_size = 2"]);
    let pooled = world.open(&world.cluster.url_through(bouncer.port())).await;
    let direct = world.sound_store().await;
    for (here, there, jobs) in [(&pooled, &direct, 0..5), (&direct, &pooled, 5..10)] {
        let runtime = load::runtime(there.clone()).await;
        let client = Client::new(here.clone());
        load::start(&client, jobs.start, jobs.len()).await;
        load::check(&client, jobs.end).await;
        runtime.shutdown(None).await;
    }
}

/// Concurrent callers share a connection, and each brings its own transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn concurrent_calls_behind_a_pooler_do_not_mix() {
    let world = World::new(&[]).await;
    let bouncer = Bouncer::new(&world.cluster, "transaction", &["default_pool_size = 2"]);
    let store = world.open(&world.cluster.url_through(bouncer.port())).await;
    take_turn(&store, "i").await;
    let reading = |_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..200 {
                assert_eq!(store.read("i").await.unwrap().len(), 1);
            }
        })
    };
    let all: Vec<_> = (0..16).map(reading).collect();
    for one in all {
        one.await.unwrap();
    }
}

/// A server that crashes while its pooler lives on ends no connection of ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_crash_behind_its_pooler() {
    let world = World::new(&[]).await;
    let bouncer =
        Bouncer::new(&world.cluster, "transaction", &["default_pool_size = 4", "server_login_retry = 1"]);
    let store = world.open(&world.cluster.url_through(bouncer.port())).await;
    let runtime = load::runtime(store.clone()).await;
    let client = Client::new(store);
    for round in 0..3 {
        load::start(&client, round * 20, 20).await;
        world.cluster.crash();
    }
    load::check(&client, 60).await;
    runtime.shutdown(None).await;
}

// semantics: PG-8
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_in_a_session_that_is_not_ours_any_more() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    take_turn(&store, "before").await;
    // A read meets the session of another client.
    store.execute_sql("SELECT set_config('duroxide.session', 'theirs', false)").await.unwrap();
    assert_eq!(store.read("before").await.unwrap().len(), 1);

    // Another read finds its prepared statements gone.
    let forgotten = world.sound_store().await;
    assert_eq!(forgotten.read("before").await.unwrap().len(), 1);
    forgotten.execute_sql("DEALLOCATE ALL").await.unwrap();
    assert_eq!(forgotten.read("before").await.unwrap().len(), 1);
    let unprepared = "SELECT count(*) FROM pg_prepared_statements";
    assert_eq!(forgotten.query_number(unprepared).await.unwrap(), 0);

    // A commit meets the session of another client, after one that succeeds.
    let other = world.sound_store().await;
    world
        .run(
            "CREATE TABLE taken (pid integer);
             CREATE FUNCTION take_session() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NOT EXISTS (SELECT 1 FROM taken) THEN
                    INSERT INTO taken VALUES (pg_backend_pid());
                    PERFORM set_config('duroxide.session', 'theirs', false);
                    PERFORM set_config('search_path', '', false);
                END IF;
                RETURN NULL;
             END $$;
             CREATE CONSTRAINT TRIGGER take_session AFTER INSERT ON history DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION take_session();",
        )
        .await;
    for number in 0..5 {
        take_turn(&other, &format!("i-{number}")).await;
    }
    assert_eq!(world.number("SELECT count(*) FROM taken").await, 1);
    assert_eq!(world.number("SELECT count(*) FROM history").await, 6);
}

// semantics: PG-9
#[tokio::test(flavor = "multi_thread")]
async fn turns_stay_synced_when_the_server_is_told_not_to_sync() {
    let world = World::new(&[]).await;
    let store = world.sound_store().await;
    world.run(RECORD_COMMITS).await;
    take_turn(&store, "before").await;
    let operator = world.connect().await;
    operator.batch_execute("ALTER SYSTEM SET synchronous_commit = off").await.unwrap();
    operator.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    support::world::until(&operator, "current_setting('synchronous_commit') = 'off'").await;
    for number in 0..5 {
        take_turn(&store, &format!("i-{number}")).await;
    }
    // A store that opens only now finds the server like that.
    let late = world.sound_store().await;
    take_turn(&late, "late").await;
    assert_eq!(world.number("SELECT count(*) FROM commit_levels WHERE level = 'on'").await, 7);
    assert_eq!(world.number("SELECT count(*) FROM commit_levels WHERE level <> 'on'").await, 0);
}

// semantics: PG-9
#[tokio::test(flavor = "multi_thread")]
async fn the_level_that_the_server_has_is_kept() {
    let world = World::new(&["synchronous_commit = local"]).await;
    let store = world.sound_store().await;
    world.run(RECORD_COMMITS).await;
    take_turn(&store, "i").await;
    assert_eq!(world.number("SELECT count(*) FROM commit_levels WHERE level = 'local'").await, 1);
}
