//! Functions that lock the same rows lock them in the same order.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use support::world::World;
use tokio_postgres::Client;

/// A claim of activities, as the store makes it for an owner of sessions.
async fn claim(client: &Client, owner: &str) -> Result<Vec<i64>, String> {
    let sql = format!("SELECT id FROM claim_work_1(NULL, 1, 30000, '{owner}', 30000, NULL, '{owner}')");
    let rows =
        client.query(&sql, &[]).await.map_err(|error| error.as_db_error().unwrap().message().to_string())?;
    Ok(rows.iter().filter_map(|row| row.get(0)).collect())
}

/// Sessions whose leases have run out, each with an activity that has a seat.
const TWO_SESSIONS: &str = "
    INSERT INTO sessions (session_id, worker_id, locked_until, last_activity_at, due_at)
    VALUES ('one', 'A', 1, 1, 1), ('two', 'B', 1, 1, 1);
    INSERT INTO worker_queue (instance_id, execution_id, activity_id, session_id, ready_for, created_at, work_item)
    VALUES ('i', 1, 1, 'one', 'A', 0, '{}'), ('i', 1, 2, 'two', 'B', 0, '{}');";

#[tokio::test(flavor = "multi_thread")]
async fn freeing_sessions_and_taking_a_seat_do_not_wait_for_each_other() {
    let world = World::new(&[]).await;
    let _store = world.sound_store().await;
    world.run(TWO_SESSIONS).await;
    let (freeing, taking, holding) = (world.connect().await, world.connect().await, world.connect().await);
    // The claim that frees the sessions gets as far as the first activity.
    holding
        .batch_execute("BEGIN; SELECT 1 FROM worker_queue WHERE activity_id = 1 FOR UPDATE")
        .await
        .unwrap();
    let watched: i32 = freeing.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let freed = tokio::spawn(async move { claim(&freeing, "C").await });
    let is_waiting =
        format!("EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = {watched} AND wait_event_type = 'Lock')");
    world.until(&is_waiting).await;
    // Meanwhile the owner of the second session takes its seat. That claim may have to wait, or leave it for later.
    let taking_pid: i32 = taking.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let taken = tokio::spawn(async move { claim(&taking, "B").await });
    let is_settled = format!(
        "EXISTS (SELECT 1 FROM pg_stat_activity
                 WHERE pid = {taking_pid} AND (wait_event_type = 'Lock' OR (state = 'idle' AND query LIKE '%claim_work_1%')))"
    );
    world.until(&is_settled).await;
    holding.batch_execute("COMMIT").await.unwrap();
    let (freed, taken) = (freed.await.unwrap(), taken.await.unwrap());
    let freed = freed.expect("whoever frees sessions");
    let taken = taken.expect("whoever takes a seat");
    assert!(!freed.is_empty() || !taken.is_empty(), "somebody gets something");
    // Later claims get the rest.
    let later = world.connect().await;
    let mut all = [freed, taken].concat();
    while all.len() < 2 {
        let more = claim(&later, "D").await.unwrap();
        assert!(!more.is_empty(), "only {all:?}");
        all.extend(more);
    }
    all.sort_unstable();
    assert_eq!(all, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_take_seats_after_they_looked_at_other_sessions_do_not_wait_for_each_other() {
    let world = World::new(&[]).await;
    let _store = world.sound_store().await;
    world.run(TWO_SESSIONS).await;
    world
        .run("UPDATE sessions SET locked_until = now_ms_1(NULL) + 300000, due_at = now_ms_1(NULL) + 300000")
        .await;
    let (first, second) = (world.connect().await, world.connect().await);
    // Each claim has looked at a session whose seat the other is about to take.
    let look = |session: &str| {
        format!(
            "BEGIN; INSERT INTO session_arrivals (sessions, routes) VALUES (ARRAY['{session}'], ARRAY['']);
             SELECT claim_work_1(NULL, 1, 30000, NULL, 0, NULL, 'x')"
        )
    };
    first.batch_execute(&look("two")).await.unwrap();
    second.batch_execute(&look("one")).await.unwrap();
    let one = tokio::spawn(async move { (claim(&first, "A").await, first) });
    let two = tokio::spawn(async move { (claim(&second, "B").await, second) });
    let mut all = Vec::new();
    for claimed in [one, two] {
        let (claimed, client) = claimed.await.unwrap();
        all.extend(claimed.expect("nobody waits for the other"));
        client.batch_execute("COMMIT").await.unwrap();
    }
    // The claim that came second may have to ask again.
    let later = world.connect().await;
    for owner in ["A", "B"] {
        all.extend(claim(&later, owner).await.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, [1, 2]);
}
