//! The cost of a step on the embedded store, counted in commits, syncs, statements, rows, index entries, bytes of the log, and steps
//! of SQLite's machine.
//!
//! Counts do not depend on the machine. The bounds are some 15 % above the counts when they were set: a change that
//! exceeds one of them made a step dearer, and a change that stays far below may lower it.

#![cfg(all(feature = "sqlite", feature = "test-hooks"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;
use crate::sqlite_store;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::sqlite::{Durability, SqliteProvider, WorkDone};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistryBuilder, RuntimeOptions};
use runtime_support::{World, activities, orchestrations};
use sqlite_store::{StoreFile, soon};
use tokio::task::JoinSet;

/// Statements of one sequential step.
const MOST_STATEMENTS_A_STEP: f64 = 14.0;
/// Rows that a sequential step inserts, changes and deletes: the finished activity and the next one, two events, the
/// instance, and the totals. On the long way it was twice as many.
const ROWS_A_STEP: f64 = 6.0;
/// Entries of indexes for these rows, beside those of the tables themselves: two of the activity that goes, two of the one that
/// comes.
const INDEX_ENTRIES_A_STEP: usize = 4;
/// Pages that a sequential step writes to the log.
const MOST_LOG_PAGES_A_STEP: f64 = 8.6;
/// Machine steps of one sequential step.
const MOST_VM_STEPS_A_STEP: f64 = 525.0;
/// Machine steps of one step when two hundred instances take theirs at once, their start and end included.
const MOST_VM_STEPS_A_STEP_IN_PARALLEL: f64 = 600.0;
/// Commits that wait for the disk, beside those of its steps: of the start of an instance and of its first turn. The start goes
/// the long way, for the runtime has not seen yet that turns are quick. Leases are committed, too, but nobody waits for those,
/// and how many commits they share depends on the load.
const START: u64 = 2;
/// The same for the first child, whose start goes the long way as the turn that makes it does.
const FIRST_CHILD: u64 = 1;

fn chain() -> OrchestrationRegistryBuilder {
    orchestrations()
        .register("Chain", |ctx: OrchestrationContext, steps: String| async move {
            for step in 0..steps.parse::<usize>().unwrap() {
                ctx.schedule_activity("Step", step.to_string()).await?;
            }
            Ok(steps)
        })
        .register("Sleep", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_timer(Duration::from_secs(24 * 60 * 60)).await;
            Ok(String::new())
        })
}

/// The store's work when certain steps ran.
type Marks = Arc<Mutex<BTreeMap<usize, WorkDone>>>;

/// Runs one chain of `steps` and returns the store's work at each hundredth step.
async fn run_chain(store: &Arc<SqliteProvider>, world: &World, steps: usize) -> BTreeMap<usize, WorkDone> {
    let marks = Marks::default();
    let step = {
        let (marks, store) = (marks.clone(), store.clone());
        activities().register("Step", move |_: ActivityContext, step: String| {
            let step = step.parse::<usize>().unwrap();
            if step % 100 == 0 {
                marks.lock().unwrap().insert(step, store.work_done());
            }
            async move { Ok(String::new()) }
        })
    };
    let runtime = world.start_with(step, chain(), RuntimeOptions::default()).await;
    world.client.start_orchestration("chain", "Chain", steps.to_string()).await.unwrap();
    soon(world.output("chain")).await;
    runtime.shutdown(None).await;
    let marks = marks.lock().unwrap();
    marks.clone()
}

/// A page in the log, with its header.
const LOG_PAGE_BYTES: f64 = 4_096.0 + 24.0;

/// Counts the pages of a log, also if it begins anew.
#[derive(Default)]
struct LogPages {
    salts: [u8; 8],
    last: u32,
    /// At each step.
    marks: Vec<u64>,
}

impl LogPages {
    /// Takes note of a step. The index of the log tells how many pages are in it, and by which salts it goes.
    fn mark(&mut self, database: &Path) {
        let mut index = [0; 48];
        let file = database.with_extension("db-shm");
        std::io::Read::read_exact(&mut std::fs::File::open(file).unwrap(), &mut index).unwrap();
        let pages = u32::from_ne_bytes(index[16..20].try_into().unwrap());
        let salts: [u8; 8] = index[32..40].try_into().unwrap();
        if salts != self.salts {
            (self.salts, self.last) = (salts, 0);
        }
        let new = pages.saturating_sub(self.last);
        self.last = pages;
        self.marks.push(self.marks.last().copied().unwrap_or_default() + u64::from(new));
    }
}

/// Counts the index entries that a step writes and removes, while its activity runs: those of its activity, and of the one that
/// follows it and looks the same. All other rows are in tables without indexes, or change no column of one.
fn index_entries(file: &StoreFile) -> usize {
    let of_activity = file.texts(
        "SELECT CASE WHEN instr(sql, ' WHERE ') THEN substr(sql, instr(sql, ' WHERE ') + 7) ELSE 'true' END
         FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'worker_queue' AND sql IS NOT NULL",
    );
    let entries = |condition: &String| {
        file.number(&format!("SELECT count(*) FROM worker_queue WHERE {}", condition.replace('\n', " ")))
    };
    let of_others = "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL
        AND (tbl_name IN ('history', 'totals') OR tbl_name = 'instances' AND instr(sql, 'updated_at'))";
    assert_eq!(file.number("SELECT count(*) FROM worker_queue"), 1);
    assert_eq!(file.number(of_others), 0);
    2 * of_activity.iter().map(entries).sum::<i64>() as usize
}

#[tokio::test]
async fn a_sequential_step_writes_few_index_entries_and_few_bytes() {
    let file = Arc::new(StoreFile::new());
    let (store, world) = open(&file, Durability::Full).await;
    let (pages, entries) = (Arc::new(Mutex::new(LogPages::default())), Arc::new(Mutex::new(0)));
    let step = {
        let (file, pages, entries) = (file.clone(), pages.clone(), entries.clone());
        activities().register("Step", move |_: ActivityContext, step: String| {
            pages.lock().unwrap().mark(&file.path());
            if step == "200" {
                *entries.lock().unwrap() = index_entries(&file);
            }
            async move { Ok(String::new()) }
        })
    };
    let runtime = world.start_with(step, chain(), RuntimeOptions::default()).await;
    world.client.start_orchestration("chain", "Chain", "301").await.unwrap();
    soon(world.output("chain")).await;
    runtime.shutdown(None).await;
    drop(store);
    let marks = &pages.lock().unwrap().marks;
    let (pages, entries) = (per_step(marks[300] - marks[100], 200), *entries.lock().unwrap());
    println!("a step: {entries} index entries, {pages} pages, {} bytes of log", pages * LOG_PAGE_BYTES);
    assert_eq!(entries, INDEX_ENTRIES_A_STEP);
    assert!(pages <= MOST_LOG_PAGES_A_STEP, "a step wrote {pages} pages to the log");
}

/// The average cost of a step between two marks.
fn vm_steps(marks: &BTreeMap<usize, WorkDone>, from: usize, to: usize) -> f64 {
    per_step((marks[&to] - marks[&from]).vm_steps, to - from)
}

fn per_step(count: u64, steps: usize) -> f64 {
    count as f64 / steps as f64
}

async fn open(file: &StoreFile, durability: Durability) -> (Arc<SqliteProvider>, World) {
    let store = Arc::new(file.builder().durability(durability).open(&file.url()).await.unwrap());
    let world = World::on(store.clone(), file.clock.clone());
    (store, world)
}

#[tokio::test]
async fn a_sequential_step_costs_one_commit_and_one_sync() {
    let mut runs = Vec::new();
    for _ in 0..3 {
        let file = StoreFile::new();
        let (store, world) = open(&file, Durability::Full).await;
        let before = store.work_done();
        let marks = run_chain(&store, &world, 301).await;
        let all = store.work_done() - before;
        runs.push((all.synced_commits - all.settlements, marks));
    }
    // The least, as in `cost_of`.
    let (commits, marks) = runs.into_iter().min_by_key(|(commits, _)| *commits).unwrap();
    assert_eq!(commits, 301 + START, "301 steps took {commits} commits");
    let statements = per_step((marks[&300] - marks[&100]).statements, 200);
    let vm_steps = vm_steps(&marks, 100, 300);
    let rows = per_step((marks[&300] - marks[&100]).rows, 200);
    println!("a step: {statements} statements, {rows} rows, {vm_steps} machine steps");
    assert_eq!(rows, ROWS_A_STEP, "a step took {rows} rows");
    assert!(statements <= MOST_STATEMENTS_A_STEP, "a step took {statements} statements");
    assert!(vm_steps <= MOST_VM_STEPS_A_STEP, "a step took {vm_steps} machine steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_costs_the_same_however_long_the_history_is() {
    let file = StoreFile::new();
    let (store, world) = open(&file, Durability::Normal).await;
    let marks = run_chain(&store, &world, 2_001).await;
    let (early, late) = (vm_steps(&marks, 100, 200), vm_steps(&marks, 1_900, 2_000));
    assert!(late <= 1.1 * early, "{early} machine steps at first, {late} after 1,900 steps");
}

/// The cost of a step while this many instances wait for a timer.
async fn cost_beside_sleepers(sleepers: usize) -> f64 {
    let file = StoreFile::new();
    let (store, world) = open(&file, Durability::Normal).await;
    let runtime = world.start(activities(), chain()).await;
    let mut starts = JoinSet::new();
    for n in 0..sleepers {
        let client = Client::new(store.clone());
        starts.spawn(async move { client.start_orchestration(format!("sleeper-{n}"), "Sleep", "").await });
    }
    for started in starts.join_all().await {
        started.unwrap();
    }
    soon(async {
        // The commit that makes the execution sets its timer.
        while store.query_number("SELECT count(*) FROM executions").await.unwrap() < sleepers as i64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    runtime.shutdown(None).await;
    vm_steps(&run_chain(&store, &world, 301).await, 100, 300)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_costs_the_same_however_many_instances_sleep() {
    const SLEEPERS: usize = 5_000;
    let (alone, among_sleepers) = (cost_beside_sleepers(0).await, cost_beside_sleepers(SLEEPERS).await);
    // To see that the first of them is not due yet takes a few steps; how many there are does not matter.
    assert!(
        among_sleepers <= 1.05 * alone,
        "{alone} machine steps alone, {among_sleepers} beside {SLEEPERS} instances that sleep"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_instances_at_once_cost_no_more_a_step() {
    const INSTANCES: usize = 200;
    const STEPS: usize = 5;
    let file = StoreFile::new();
    let (store, world) = open(&file, Durability::Full).await;
    let step = activities().register("Step", |_: ActivityContext, _: String| async { Ok(String::new()) });
    let runtime = world.start(step, chain()).await;
    let before = store.work_done();
    for n in 0..INSTANCES {
        world.client.start_orchestration(format!("i{n}"), "Chain", STEPS.to_string()).await.unwrap();
    }
    for n in 0..INSTANCES {
        soon(world.output(&format!("i{n}"))).await;
    }
    let all = store.work_done() - before;
    runtime.shutdown(None).await;
    let vm_steps = per_step(all.vm_steps, INSTANCES * STEPS);
    println!("in parallel, start and end included: {vm_steps} machine steps a step, {all:?}");
    assert!(
        vm_steps <= MOST_VM_STEPS_A_STEP_IN_PARALLEL,
        "a step took {vm_steps} machine steps, and all {all:?}"
    );
}

/// The least that an orchestration costs from its start to its end: the commits that wait for the disk, and the rows. A turn
/// whose instance somebody else holds just then goes the long way; on a busy machine that happens to one in thousands.
async fn cost_of(
    orchestrations: impl Fn() -> OrchestrationRegistryBuilder,
    name: &str,
    input: usize,
) -> (u64, u64) {
    let mut least = (u64::MAX, u64::MAX);
    for _ in 0..3 {
        least = least.min(cost_of_run(orchestrations(), name, input).await);
    }
    least
}

async fn cost_of_run(orchestrations: OrchestrationRegistryBuilder, name: &str, input: usize) -> (u64, u64) {
    let file = StoreFile::new();
    let (store, world) = open(&file, Durability::Full).await;
    let step = activities().register("Step", |_: ActivityContext, _: String| async { Ok(String::new()) });
    let runtime = world.start(step, orchestrations).await;
    let before = store.work_done();
    world.client.start_orchestration("i", name, input.to_string()).await.unwrap();
    soon(world.output("i")).await;
    let all = store.work_done() - before;
    runtime.shutdown(None).await;
    println!("{name}: {all:?}");
    (all.synced_commits - all.settlements, all.rows)
}

#[tokio::test]
async fn an_execution_that_continues_as_new_costs_one_commit() {
    let looping = || {
        orchestrations().register("Loop", |ctx: OrchestrationContext, left: String| async move {
            ctx.schedule_activity("Step", "").await?;
            match left.parse::<usize>().unwrap() {
                0 => Ok(String::new()),
                left => ctx.continue_as_new((left - 1).to_string()).await,
            }
        })
    };
    let (commits, rows) = cost_of(looping, "Loop", 99).await;
    assert_eq!((commits, rows), (100 + START, 1_307), "100 executions of one step");
}

#[tokio::test]
async fn a_child_of_one_step_costs_one_commit() {
    let family = || {
        orchestrations()
            .register("Parent", |ctx: OrchestrationContext, children: String| async move {
                for _ in 0..children.parse::<usize>().unwrap() {
                    ctx.schedule_sub_orchestration("Child", "").await?;
                }
                Ok(String::new())
            })
            .register("Child", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_activity("Step", "").await
            })
    };
    let (commits, rows) = cost_of(family, "Parent", 100).await;
    assert_eq!((commits, rows), (100 + START + FIRST_CHILD, 1_519), "100 children of one step");
}
