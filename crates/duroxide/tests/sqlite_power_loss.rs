//! Every write that the SQLite store has acknowledged is there after a power cut, also if syncs had failed before it.
//!
//! The disk loses unsynced data. A sync fails the way it does on Linux: the system takes the unwritten pages for
//! written from then on, and no later sync writes them.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::power_loss;
use crate::sqlite_store as support;

use duroxide::EventKind;
use duroxide::providers::sqlite::{Durability, SqliteProvider};
use duroxide::providers::{ExtendedProvider, InstanceRequest, Provider};
use power_loss::{Fact, Machine, run_activity, run_instance};
use powerloss_vfs::{Disk, Survivors, VFS_NAME};
use rusqlite::Connection;
use support::{LEASE, activity, completion, fetch, fetch_work, start, started_event};

/// The events that the store goes through besides failing syncs.
#[derive(Clone, Copy)]
struct Conditions {
    /// How many syncs fail in a row.
    failures: u64,
    /// After how many pages the log is moved into the database.
    move_after: u64,
    /// A reader uses the log while the writer moves it for the first time.
    has_reader: bool,
    /// Another handle works on the same file, as another process would.
    has_neighbour: bool,
    /// The system also loses pages from its memory if it could not write them.
    forgets: bool,
}

const QUIET: Conditions =
    Conditions { failures: 1, move_after: 4_000, has_reader: false, has_neighbour: false, forgets: false };

struct Run {
    machine: Machine,
    conditions: Conditions,
    acknowledged: Vec<Fact>,
    lost: Vec<Fact>,
    refusals: u64,
}

impl Run {
    fn new(conditions: Conditions) -> Self {
        let machine = Machine::new();
        if conditions.forgets {
            machine.disk.forget_what_cannot_be_written();
        }
        Self { machine, conditions, acknowledged: Vec::new(), lost: Vec::new(), refusals: 0 }
    }

    async fn open(&self) -> SqliteProvider {
        let builder = self.machine.builder().log_pages(self.conditions.move_after, 4_000);
        builder.open(&self.machine.url()).await.unwrap()
    }

    /// Works, and starts the store anew if it refuses to go on.
    async fn work(&mut self, store: &mut Option<SqliteProvider>, round: u64) {
        let (name, is_lone) = (format!("i{round}"), round == 2);
        let open = store.as_ref().unwrap();
        let worked = match is_lone {
            true => run_activity(open, &name, &mut self.acknowledged).await,
            false => run_instance(open, &name, &mut self.acknowledged).await,
        };
        if worked.is_err() {
            self.refusals += 1;
            drop(store.take());
            *store = Some(self.open().await);
        }
    }

    /// Stores data on pages that no later write touches.
    async fn append_once(&mut self, store: &SqliteProvider) {
        let mut event = started_event("large", 1);
        if let EventKind::OrchestrationStarted { input, .. } = &mut event.kind {
            *input = "x".repeat(40_000);
        }
        if store.append_with_execution("large", 1, vec![event]).await.is_ok() {
            self.acknowledged.push(Fact::Turns("large".into(), 1));
        }
    }

    /// Compares the acknowledged writes with the content after a power cut.
    fn check(&mut self, survivors: Survivors) {
        self.lost.extend(self.machine.cut_power(survivors).missing(&self.acknowledged));
    }
}

/// Works on a store whose `n`th sync fails, and cuts the power after each instance; `None` if there were not so many
/// syncs.
async fn run(n: u64, conditions: Conditions) -> Option<Run> {
    let mut run = Run::new(conditions);
    let mut store = Some(run.open().await);
    let mut neighbour = None;
    if conditions.has_neighbour {
        neighbour = Some(run.open().await);
    }
    let before = run.machine.disk.syncs();
    run.machine.disk.fail_syncs(n..n + conditions.failures);
    let mut reader = None;
    for round in 0..5 {
        match round {
            1 if conditions.has_reader => {
                run.append_once(store.as_ref().unwrap()).await;
                reader = Some(Reader::begin(run.machine.connection()));
            }
            3 => drop(reader.take()),
            _ => {}
        }
        match round % 2 == 1 && neighbour.is_some() {
            true => run.work(&mut neighbour, round).await,
            false => run.work(&mut store, round).await,
        }
        let seed = 10 * n + round;
        run.check(match seed % 3 {
            0 => Survivors::FirstChanges { seed },
            1 => Survivors::TornChanges { seed },
            _ => Survivors::Nothing,
        });
    }
    run.check(Survivors::Nothing);
    let was_reached = run.machine.disk.syncs() - before > n;
    drop(neighbour);
    drop(store);
    run.check(Survivors::Nothing);
    was_reached.then_some(run)
}

/// Reads from the log as it is now.
struct Reader(Connection);

impl Reader {
    fn begin(connection: Connection) -> Self {
        connection.execute_batch("BEGIN; SELECT count(*) FROM history;").unwrap();
        Self(connection)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.execute_batch("COMMIT");
    }
}

/// Lets each sync fail in turn; returns how many there were, and how often the store refused to go on.
async fn fail_each_sync(conditions: Conditions) -> (u64, u64) {
    let (mut n, mut refusals) = (0, 0);
    while let Some(run) = run(n, conditions).await {
        assert_eq!(run.lost, [], "lost although acknowledged; sync {n} had failed");
        refusals += run.refusals;
        n += 1;
    }
    (n, refusals)
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_whichever_sync_fails() {
    let (syncs, refusals) = fail_each_sync(QUIET).await;
    assert!(syncs > 10, "only {syncs} syncs");
    assert_eq!(refusals, 0, "one failure is overcome");
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_if_the_next_syncs_fail_too() {
    let (_, refusals) = fail_each_sync(Conditions { failures: 4, ..QUIET }).await;
    assert_eq!(refusals, 0, "a few failures are overcome");
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_if_a_sync_fails_while_the_log_is_moved() {
    let (syncs, refusals) = fail_each_sync(Conditions { move_after: 20, ..QUIET }).await;
    assert!(syncs > 22, "the log was moved: {syncs} syncs, and some 16 would do without");
    assert_eq!(refusals, 0, "one failure is overcome");
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_if_a_sync_fails_after_part_of_the_log_was_moved() {
    let (_, refusals) = fail_each_sync(Conditions { move_after: 70, has_reader: true, ..QUIET }).await;
    assert!(refusals > 0, "what was moved without a sync is not known to be there, and is not moved again");
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_if_a_sync_fails_in_another_process() {
    fail_each_sync(Conditions { has_neighbour: true, ..QUIET }).await;
    fail_each_sync(Conditions { has_neighbour: true, move_after: 20, ..QUIET }).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_if_the_system_forgets_what_it_could_not_write() {
    let (_, refusals) = fail_each_sync(Conditions { forgets: true, ..QUIET }).await;
    assert!(refusals > 0, "committed data is gone from memory, too");
}

#[tokio::test]
async fn who_opens_the_file_after_a_process_died_of_a_failed_sync_relies_on_nothing() {
    let machine = Machine::new();
    let dying = machine.open().await;
    dying.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    // A lease, in the log without a sync; then a sync that should cover it.
    let (_, token, _) = fetch(&dying).await.unwrap();
    machine.disk.fail_syncs(0..u64::MAX);
    support::ack(&dying, &token, vec![started_event("a", 1)], vec![]).await.unwrap_err();
    // It never closes the file, as one that was killed.
    std::mem::forget(dying);
    machine.disk.fail_syncs(0..0);

    let store = machine.open().await;
    let mut acknowledged = vec![Fact::Started("a".into())];
    run_instance(&store, "b", &mut acknowledged).await.unwrap();
    assert_eq!(machine.cut_power(Survivors::Nothing).missing(&acknowledged), []);
}

#[tokio::test]
async fn while_syncs_fail_nothing_is_acknowledged_but_leases_live_on() {
    let machine = Machine::new();
    let store = machine.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, turn, _) = fetch(&store).await.unwrap();
    support::ack(&store, &turn, vec![started_event("a", 1)], vec![activity("a", 2), activity("a", 3)])
        .await
        .unwrap();
    let (_, work, _) = fetch_work(&store).await.unwrap();
    let (_, more_work, _) = fetch_work(&store).await.unwrap();

    machine.disk.fail_syncs(0..u64::MAX);
    let stored = store.store_result(&work, Some(completion("a", 2)), None).await.unwrap();
    assert!(
        stored.durable.wait().await.unwrap_err().is_retryable(),
        "the sync that it waited for has failed"
    );
    let refused = store.enqueue_for_orchestrator(start("b"), None).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let refused = store.store_result(&more_work, Some(completion("a", 3)), None).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert!(store.checkpoint().await.unwrap_err().is_retryable());

    store.renew_work_item_lock(&more_work, LEASE).await.unwrap();
    let (_, turn, _) = fetch(&store).await.unwrap();
    store.renew_orchestration_item_lock(&turn, LEASE).await.unwrap();
    store.abandon_orchestration_item(&turn, None, true).await.unwrap();

    machine.disk.fail_syncs(0..0);
    // The system has a failure left that it has not reported to every handle.
    let _ = store.store_result(&more_work, Some(completion("a", 3)), None).await;
    let stored = store.store_result(&more_work, Some(completion("a", 3)), None).await.unwrap();
    stored.durable.wait().await.unwrap();
    store.enqueue_for_orchestrator(start("b"), None).await.unwrap();
    store.checkpoint().await.unwrap();
    let acknowledged = [Fact::Turns("a".into(), 1), Fact::Result("a".into()), Fact::Started("b".into())];
    assert_eq!(machine.cut_power(Survivors::Nothing).missing(&acknowledged), []);
    let request = InstanceRequest { max: 9, lock_timeout: LEASE, filter: None };
    assert_eq!(store.claim_instances(&request).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_store_whose_log_is_lost_is_as_good_as_closed_until_it_is_opened_again() {
    let machine = Machine::new();
    machine.disk.forget_what_cannot_be_written();
    let store = machine.open().await;
    store.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let (_, turn, _) = fetch(&store).await.unwrap();
    machine.disk.fail_syncs(0..1);
    store.enqueue_for_orchestrator(start("b"), None).await.unwrap_err();
    let refused = store.enqueue_for_orchestrator(start("b"), None).await.unwrap_err();
    assert!(refused.is_retryable() && refused.message.contains("open it again"), "{refused}");
    let refused = store.renew_orchestration_item_lock(&turn, LEASE).await.unwrap_err();
    assert!(refused.is_retryable() && refused.message.contains("open it again"), "{refused}");

    drop(store);
    let store = machine.open().await;
    store.enqueue_for_orchestrator(start("b"), None).await.unwrap();
    let acknowledged = [Fact::Started("a".into()), Fact::Started("b".into())];
    assert_eq!(machine.cut_power(Survivors::Nothing).missing(&acknowledged), []);
}

#[tokio::test]
async fn with_normal_durability_a_failed_sync_leaves_a_sound_file() {
    for n in 0..12 {
        let machine = Machine::new();
        let builder = machine.builder().durability(Durability::Normal).log_pages(15, 4_000);
        let store = builder.open(&machine.url()).await.unwrap();
        machine.disk.fail_syncs(n..n + 1);
        for round in 0..6 {
            run_instance(&store, &format!("i{round}"), &mut Vec::new()).await.unwrap();
            for survivors in [Survivors::Nothing, Survivors::TornChanges { seed: 10 * n + round }] {
                assert_eq!(machine.cut_power(survivors).missing(&[]), [], "it is sound");
            }
        }
    }
}

/// A twin of the store's writer that relies on any sync that succeeds: the same tests must find it out.
#[test]
fn a_store_that_trusts_the_sync_after_a_failed_one_is_found_out() {
    let lost = |n: u64| {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::new(directory.path());
        let path = disk.directory().join("store.db");
        let connection = Connection::open(format!("file:{}?vfs={VFS_NAME}", path.display())).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n);").unwrap();
        disk.fail_syncs(n..n + 1);
        let mut acknowledged = 0;
        for n in 0..10 {
            // First writes that need not be durable, and then those that must be, tried again if they fail.
            connection.execute_batch("PRAGMA synchronous = NORMAL; DELETE FROM t WHERE n < 0;").unwrap();
            connection.execute_batch("INSERT INTO t VALUES (-1); PRAGMA synchronous = FULL;").unwrap();
            let stored = (0..2).find(|_| connection.execute("INSERT INTO t VALUES (?1)", [n]).is_ok());
            acknowledged += i64::from(stored.is_some());
        }
        let image = tempfile::tempdir().unwrap();
        disk.cut_power(image.path(), Survivors::Nothing).unwrap();
        let found = Connection::open(image.path().join("store.db")).unwrap();
        let there: i64 =
            found.query_row("SELECT count(*) FROM t WHERE n >= 0", [], |row| row.get(0)).unwrap();
        acknowledged - there
    };
    assert!((0..10).all(|n| lost(n) > 0), "each failed sync costs what was acknowledged after it");
    assert_eq!(lost(1_000), 0, "and without one nothing is lost");
}
