//! A dump, a long transaction or a standby holds a snapshot. Vacuum cannot remove dead rows meanwhile, and claims do
//! not pass over all of them.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::time::Duration;

use duroxide::providers::{Clock, Provider, SystemClock, TagFilter};
use duroxide_pg::PostgresProvider;
use support::load;
use support::world::{World, activity, start};
use tokio_postgres::Client;

const LEASE: Duration = Duration::from_secs(300);
const INSTANCES: &str = "claim_instances_2(NULL, 2, 300000, 1000, NULL, NULL, gen_random_uuid()::text, NULL)";
const WORK: &str = "claim_work_1(NULL, 2, 300000, NULL, 0, NULL, gen_random_uuid()::text)";
/// Without dead rows a claim that finds something touches some fifty pages; on one page it passes about thirty dead
/// entries.
const FEW_PAGES: i64 = 300;

/// Leaves the dead rows of the last ten minutes' leases, or of the next.
const DEAD_LEASES: &str = "
    INSERT INTO arrivals (instances) SELECT ARRAY['x' || g] FROM generate_series(1, 20000) g;
    INSERT INTO orchestrator_queue (instance_id, class, created_at, work_item)
        SELECT 'x' || g, 'start', 0, '{}' FROM generate_series(1, 20000) g;
    INSERT INTO instance_schedule (instance_id, class, ready_seq) SELECT 'x' || q.id, '', q.id FROM orchestrator_queue q
        WHERE starts_with(q.instance_id, 'x');
    UPDATE instance_schedule SET due_at = now_ms_1(NULL) - 600000 + ready_seq * 30, ready_seq = NULL, lock_token = 't'
        WHERE starts_with(instance_id, 'x');
    DELETE FROM instance_schedule WHERE starts_with(instance_id, 'x');
    DELETE FROM arrivals; DELETE FROM orchestrator_queue WHERE starts_with(instance_id, 'x');
    INSERT INTO worker_queue (instance_id, execution_id, activity_id, created_at, work_item)
        SELECT 'x' || g, 1, 1, 0, '{}' FROM generate_series(1, 20000) g;
    UPDATE worker_queue SET due_at = now_ms_1(NULL) - 600000 + id * 30, lock_token = 't' WHERE starts_with(instance_id, 'x');
    DELETE FROM worker_queue WHERE starts_with(instance_id, 'x');
    ANALYZE;";

struct Held {
    world: World,
    store: std::sync::Arc<PostgresProvider>,
    /// Holds the snapshot.
    _reader: Client,
    /// Claims, with a connection like the store's.
    claimer: Client,
}

impl Held {
    /// Leases an instance and an activity, then lets 20,000 leases come and go while the reader holds a snapshot.
    async fn new() -> (Self, String, String) {
        let world = World::new(&["autovacuum = off"]).await;
        let store = world.sound_store().await;
        store.enqueue_for_orchestrator(start("old"), None).await.unwrap();
        let fetched = store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await;
        let (_, turn, _) = fetched.unwrap().unwrap();
        store.enqueue_for_worker(activity("old")).await.unwrap();
        let fetched = store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::Any).await;
        let (_, work, _) = fetched.unwrap().unwrap();
        let reader = world.connect().await;
        reader
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM instances")
            .await
            .unwrap();
        world.run(DEAD_LEASES).await;
        let claimer = world.connect().await;
        claimer
            .batch_execute(
                "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
                 SET plan_cache_mode = force_generic_plan; SET jit = off",
            )
            .await
            .unwrap();
        (Self { world, store, _reader: reader, claimer }, turn, work)
    }

    /// Returns how many pages a claim touches.
    async fn pages(&self, claim: &str) -> i64 {
        let sql = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {claim}");
        let plan: serde_json::Value = {
            let row =
                self.claimer.query_one(&format!("SELECT explain('{}')", sql.replace('\'', "''")), &[]).await;
            serde_json::from_str(row.unwrap().get(0)).unwrap()
        };
        let touched = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        touched("Shared Hit Blocks") + touched("Shared Read Blocks")
    }

    /// Claims until a claim touches few pages.
    async fn settle(&self, claim: &str) -> i64 {
        let explain = "CREATE OR REPLACE FUNCTION explain(p_sql text) RETURNS text LANGUAGE plpgsql AS $$
            DECLARE v_plan text; BEGIN EXECUTE p_sql INTO v_plan; RETURN v_plan; END $$";
        self.world.run(explain).await;
        let first = self.pages(claim).await;
        let deadline = SystemClock.monotonic() + Duration::from_secs(30);
        while self.pages(claim).await > FEW_PAGES {
            assert!(SystemClock.monotonic() < deadline, "claims pass all that is dead");
        }
        first
    }

    /// Returns what a claim leases.
    async fn claim(&self, what: &str, claim: &str) -> Vec<String> {
        let sql = format!("SELECT {what} FROM {claim} c WHERE {what} IS NOT NULL");
        let rows = self.claimer.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Claims until a claim leases something.
    async fn claim_some(&self, what: &str, claim: &str) -> Vec<String> {
        let deadline = SystemClock.monotonic() + Duration::from_secs(35);
        loop {
            let claimed = self.claim(what, claim).await;
            if !claimed.is_empty() {
                return claimed;
            }
            assert!(SystemClock.monotonic() < deadline, "it was forgotten");
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Checks that a claim that finds something touches few pages. The first claims also plan their statements, and now and
/// then one begins at the lowest entries.
fn check_median(mut pages: Vec<i64>) {
    pages.sort_unstable();
    assert!(pages[pages.len() / 2] < FEW_PAGES, "claims that find something touch so many pages: {pages:?}");
}

// semantics: LEASE-9
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_instances_do_not_pass_what_is_dead() {
    let (held, turn, _) = Held::new().await;
    let at_first = held.settle(INSTANCES).await;
    assert!(at_first > 2 * FEW_PAGES, "there is something to pass: {at_first}");

    let mut pages = Vec::new();
    for number in 0..9 {
        held.store.enqueue_for_orchestrator(start(&format!("first-{number}")), None).await.unwrap();
        pages.push(held.pages(INSTANCES).await);
    }
    check_median(pages);

    // Claims find new messages at once, and in their order.
    for instance in ["a", "b", "c"] {
        held.store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    }
    let mut claimed = held.claim("c.instance", INSTANCES).await;
    claimed.extend(held.claim("c.instance", INSTANCES).await);
    assert_eq!(claimed, ["a", "b", "c"]);

    // Another process puts work back below the floor of this connection; a claim finds it soon.
    held.world
        .run(&format!(
            "SELECT abandon_turn_1(NULL, 'old', '{turn}', 0, true); DELETE FROM arrivals;
             SELECT place_1(ARRAY['old'], now_ms_1(NULL), 1000)"
        ))
        .await;
    assert_eq!(held.claim_some("c.instance", INSTANCES).await, ["old"]);
}

// semantics: LEASE-9
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_activities_do_not_pass_what_is_dead() {
    let (held, _, work) = Held::new().await;
    let at_first = held.settle(WORK).await;
    assert!(at_first > 2 * FEW_PAGES, "there is something to pass: {at_first}");

    let mut pages = Vec::new();
    for number in 0..9 {
        held.store.enqueue_for_worker(activity(&format!("first-{number}"))).await.unwrap();
        pages.push(held.pages(WORK).await);
    }
    check_median(pages);

    for instance in ["a", "b", "c"] {
        held.store.enqueue_for_worker(activity(instance)).await.unwrap();
    }
    let instance = "(c.item::json -> 'ActivityExecute' ->> 'instance')";
    let mut claimed = held.claim(instance, WORK).await;
    claimed.extend(held.claim(instance, WORK).await);
    assert_eq!(claimed, ["a", "b", "c"]);

    assert!(held.store.abandon_work_item(&work, None, true).await.is_ok());
    assert_eq!(held.claim_some(instance, WORK).await, ["old"]);
}

// semantics: LEASE-9
#[tokio::test(flavor = "multi_thread")]
async fn what_a_claim_itself_puts_back_in_line_is_not_passed_by() {
    let (held, turn, work) = Held::new().await;
    held.settle(INSTANCES).await;
    held.settle(WORK).await;
    // The leases run out, so the next claim finds their rows among those that are due.
    let lapse = "UPDATE instance_schedule SET due_at = now_ms_1(NULL), locked_until = now_ms_1(NULL);
        UPDATE worker_queue SET due_at = now_ms_1(NULL), locked_until = now_ms_1(NULL)";
    held.world.run(lapse).await;
    assert_eq!(held.claim("c.instance", INSTANCES).await, ["old"]);
    assert_eq!(held.claim("c.token", WORK).await.len(), 1);
    drop((turn, work));
}

// semantics: OBS-9
#[tokio::test(flavor = "multi_thread")]
async fn looks_at_what_is_dead_for_gauges_are_rare_and_in_nobodys_way() {
    let listings = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'duroxide listings'";
    let world = World::new(&[]).await;
    let usual = world.sound_store().await;
    assert_eq!(usual.tell_figures(5, Duration::from_secs(3_600)).await, 5);
    // Every look takes longer than a hundredth of such an interval.
    assert_eq!(usual.tell_figures(5, Duration::from_nanos(1)).await, 1);

    let (held, ..) = Held::new().await;
    // A session tells of its dead rows when it ends, or a while later.
    held.world
        .until("(SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname = 'worker_queue') > 20000")
        .await;
    assert_eq!(held.store.tell_figures(5, Duration::from_nanos(1)).await, 1);
    assert_eq!(held.world.number(listings).await, 1);
}

// semantics: LEASE-9
#[tokio::test(flavor = "multi_thread")]
async fn orchestrations_come_to_their_end_among_what_is_dead() {
    const JOBS: usize = 60;
    let (held, ..) = Held::new().await;
    let runtime = load::runtime(held.store.clone()).await;
    let client = duroxide::Client::new(held.store.clone());
    load::start(&client, 0, JOBS / 2).await;
    load::check(&client, JOBS / 2).await;
    // By now its connections have their floors.
    load::start(&client, JOBS / 2, JOBS / 2).await;
    load::check(&client, JOBS).await;
    runtime.shutdown(None).await;
    let left = "SELECT count(*) FROM worker_queue WHERE instance_id <> 'old'";
    assert_eq!(held.world.number(left).await, 0);
}

// semantics: LEASE-9
#[tokio::test(flavor = "multi_thread")]
async fn commits_do_not_pass_the_dead_versions_of_their_own_row() {
    let world = World::new(&["autovacuum = off"]).await;
    let _store = world.sound_store().await;
    let (reader, committer) = (world.connect().await, world.connect().await);
    reader
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM instances")
        .await
        .unwrap();
    committer
        .batch_execute(
            "INSERT INTO committers (committer, epoch) VALUES ('c', 1);
             SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan",
        )
        .await
        .unwrap();
    let batches =
        "DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM begin_batch_1('c', 1, i); COMMIT; END LOOP; END $$";
    committer.batch_execute(batches).await.unwrap();
    let explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT begin_batch_1('c', 1, 5001)";
    let rows = committer.simple_query(explain).await.unwrap();
    let text = rows.iter().find_map(|row| match row {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_string),
        _ => None,
    });
    let plan: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
    let pages = plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap();
    assert!(pages < 50, "a commit touches {pages} pages");
    drop(reader);
}
