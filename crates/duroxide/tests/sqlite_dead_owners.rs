//! The store releases the leases of a dead process at once, those of a live process never, and counts a crash as an
//! attempt only for work that was running.
//!
//! The process that dies is this test binary, started again and killed (SIGKILL), or aborted by its own user code. All
//! leases are far longer than any test may take, so a lease comes free only because its owner died.

#![cfg(all(feature = "sqlite", feature = "test-hooks", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, too")]

use crate::child_process::run_alone;
use crate::crash_loops::{AbortsAtDecoding, LARGE, large_work, poisoned_after, run_until_it_ends};
use crate::sqlite_store as support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::providers::{
    Clock, ExtendedProvider, InstanceRequest, Provider, SessionFetchConfig, SystemClock, TagFilter, WorkItem,
    WorkQueue, WorkRequest,
};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, RuntimeOptions};
use support::{FAILURE_BOUND, StoreFile, activity, soon, start};
use tokio::sync::watch;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);
const URL: &str = "DUROXIDE_TEST_OWNER_URL";
/// Set for a child that also fetches by the plain contract.
const PLAIN: &str = "DUROXIDE_TEST_OWNER_PLAIN";

async fn open(file: &StoreFile) -> Arc<SqliteProvider> {
    // The clock of the machine, as the other processes have it.
    Arc::new(SqliteProvider::new(&file.url(), None).await.unwrap())
}

fn in_session(session: &str, id: u64) -> WorkItem {
    let WorkItem::ActivityExecute { instance, execution_id, id, name, input, tag, .. } = activity("s", id)
    else {
        unreachable!()
    };
    let session_id = Some(session.to_string());
    WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
}

/// Claims everything that there is; instances and activities with their tokens and attempts.
async fn claim_all(store: &SqliteProvider, worker: &str) -> Vec<(String, String, u32)> {
    let mut claimed = Vec::new();
    let request = InstanceRequest { max: 1000, lock_timeout: LONG, filter: None };
    for claim in store.claim_instances(&request).await.unwrap() {
        claimed.push((claim.instance, claim.lock_token, claim.attempt_count));
    }
    let owner = SessionFetchConfig { owner_id: worker.into(), lock_timeout: LONG };
    let tags = &TagFilter::Any;
    let request = WorkRequest { max: 1000, lock_timeout: LONG, session: Some(&owner), tag_filter: tags };
    loop {
        let claims = store.claim_work(&request).await.unwrap();
        if claims.is_empty() {
            return claimed;
        }
        for claim in claims {
            let WorkItem::ActivityExecute { instance, id, .. } = claim.item else { panic!("{claim:?}") };
            claimed.push((format!("{instance}/{id}"), claim.lock_token, claim.attempt_count));
        }
    }
}

/// The claimed work, with its attempts.
type Claimed = watch::Sender<BTreeMap<String, u32>>;

/// Claims until `count` items are claimed, waiting for those that come free.
async fn claim_until(store: &SqliteProvider, worker: &str, count: usize) -> BTreeMap<String, u32> {
    let claimed = Claimed::default();
    share(store, worker, count, &claimed).await;
    claimed.borrow().clone()
}

/// Claims as long as the tasks that share `claimed` have fewer than `count`.
async fn share(store: &SqliteProvider, worker: &str, count: usize, claimed: &Claimed) {
    let mut turns = store.work_signal(WorkQueue::Orchestrator);
    let mut work = store.work_signal(WorkQueue::Worker);
    let mut by_others = claimed.subscribe();
    let claim = async {
        loop {
            turns.mark_seen();
            work.mark_seen();
            for (name, _, attempts) in claim_all(store, worker).await {
                claimed.send_modify(|all| {
                    assert_eq!(all.insert(name.clone(), attempts), None, "{name} was claimed twice");
                });
            }
            if claimed.borrow().len() >= count {
                return;
            }
            tokio::select! { () = turns.wait() => {}, () = work.wait() => {} }
        }
    };
    soon(async {
        tokio::select! { () = claim => {}, _ = by_others.wait_for(|all| all.len() >= count) => {} }
    })
    .await;
}

async fn renew(store: &SqliteProvider, leases: impl IntoIterator<Item = (&String, &String)>) {
    for (name, token) in leases {
        match name.contains('/') {
            true => store.renew_work_item_lock(token, LONG).await.unwrap(),
            false => store.renew_orchestration_item_lock(token, LONG).await.unwrap(),
        }
    }
}

/// The other process: claims all, says that it is running every tenth, and waits to be killed.
#[test]
fn child_claims_all_and_waits() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteProvider::new(&url, None).await.unwrap();
        if std::env::var(PLAIN).is_ok() {
            let item = store.fetch_work_item(LONG, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
            assert!(item.is_some());
        }
        let claimed = claim_all(&store, "child").await;
        let mut marks = Vec::new();
        for (place, (name, token, attempts)) in claimed.iter().enumerate() {
            let mark = store.mark_running(token);
            let running = if place % 10 == 0 { "runs" } else { "holds" };
            // The others were running before, and are not any more.
            marks.extend((place % 10 == 0).then_some(mark));
            say(&format!("{running} {name} {token} {attempts}"));
        }
        say("waits");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
}

fn say(line: &str) {
    // The test harness may have begun a line of its own.
    let _ = std::io::stdout().write_all(format!("\n{line}\n").as_bytes());
}

/// A process that holds leases.
struct Holder {
    process: Child,
    /// The tokens of the work that it was running, and of the work that it only held, by name.
    running: BTreeMap<String, String>,
    holding: BTreeMap<String, String>,
}

impl Holder {
    fn spawn(file: &StoreFile) -> Self {
        Self::spawn_with(file, &[])
    }

    fn spawn_with(file: &StoreFile, settings: &[(&str, &str)]) -> Self {
        let mut process = run_alone(module_path!(), "child_claims_all_and_waits")
            .env(URL, file.url())
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut running, mut holding) = (BTreeMap::new(), BTreeMap::new());
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["runs", name, token, "1"] => drop(running.insert(name.into(), token.into())),
                ["holds", name, token, "1"] => drop(holding.insert(name.into(), token.into())),
                ["waits"] => break,
                _ => assert!(!line.starts_with("runs") && !line.starts_with("holds"), "{line}"),
            }
        }
        Self { process, running, holding }
    }

    fn kill(mut self) -> Self {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self
    }

    fn count(&self) -> usize {
        self.running.len() + self.holding.len()
    }

    fn assert_counted(&self, claimed: &BTreeMap<String, u32>) {
        assert_eq!(claimed.len(), self.count());
        for (name, attempts) in claimed {
            let expected = if self.running.contains_key(name) { 2 } else { 1 };
            assert_eq!(*attempts, expected, "{name}");
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn enqueue(store: &SqliteProvider, prefix: &str) {
    for n in 0..100 {
        store.enqueue_for_orchestrator(start(&format!("{prefix}{n}")), None).await.unwrap();
        store.enqueue_for_worker(activity(prefix, n)).await.unwrap();
    }
}

fn owner_files(file: &StoreFile) -> usize {
    std::fs::read_dir(file.directory().join("store.db-owners")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_had_the_store_open_gets_the_leases_of_a_killed_process_at_once() {
    let file = StoreFile::new();
    let store = open(&file).await;
    enqueue(&store, "a").await;
    for id in 1..=3 {
        store.enqueue_for_worker(in_session("cart", id)).await.unwrap();
    }
    let holder = Holder::spawn(&file);
    assert_eq!((holder.count(), holder.running.len()), (203, 21));
    assert!(claim_all(&store, "parent").await.is_empty());
    assert_eq!(owner_files(&file), 2);

    let holder = holder.kill();
    let died = SystemClock.monotonic();
    let claimed = claim_until(&store, "parent", holder.count()).await;
    eprintln!("all leases claimed anew {:?} after the death", SystemClock.monotonic() - died);
    holder.assert_counted(&claimed);
    assert_eq!(owner_files(&file), 1, "nothing is left of the dead one");
    drop(store);
    assert!(!file.directory().join("store.db-owners").exists());
    file.assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_opens_the_store_later_gets_them_with_the_first_claim() {
    let file = StoreFile::new();
    let store = open(&file).await;
    enqueue(&store, "a").await;
    drop(store);
    let holder = Holder::spawn(&file).kill();

    let began = SystemClock.monotonic();
    let store = open(&file).await;
    let claimed = claim_all(&store, "parent").await;
    eprintln!("all leases claimed anew {:?} after the store was opened", SystemClock.monotonic() - began);
    holder.assert_counted(&claimed.into_iter().map(|(name, _, attempts)| (name, attempts)).collect());
    assert_eq!(owner_files(&file), 1);
    file.assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_who_find_a_dead_owner_at_once_share_its_leases_without_a_double() {
    let file = StoreFile::new();
    let stores = [open(&file).await, open(&file).await, open(&file).await];
    enqueue(&stores[0], "a").await;
    let holder = Holder::spawn(&file).kill();
    let claimed = Claimed::default();
    let [one, two, three] = &stores;
    tokio::join!(
        share(one, "one", holder.count(), &claimed),
        share(two, "two", holder.count(), &claimed),
        share(three, "three", holder.count(), &claimed),
    );
    holder.assert_counted(&claimed.borrow());
    // The handle that released them has then also removed the file.
    for store in &stores {
        assert!(claim_all(store, "late").await.is_empty());
    }
    assert_eq!(owner_files(&file), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leases_of_a_process_that_lives_are_never_released() {
    let file = StoreFile::new();
    let store = open(&file).await;
    enqueue(&store, "a").await;
    let living = Holder::spawn(&file);
    enqueue(&store, "b").await;
    let dying = Holder::spawn(&file);
    assert_eq!((living.count(), dying.count()), (200, 200));
    // The handle that finds the dead owner has looked at the live one as well.
    let dead = dying.kill();
    dead.assert_counted(&claim_until(&store, "parent", dead.count()).await);
    for _ in 0..3 {
        assert!(claim_all(&*open(&file).await, "later").await.is_empty());
    }
    renew(&store, living.holding.iter().chain(&living.running)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_renews_a_lease_owns_it() {
    let file = StoreFile::new();
    let store = open(&file).await;
    enqueue(&store, "a").await;
    let holder = Holder::spawn(&file);
    let renewed: BTreeMap<_, _> = holder.holding.clone().into_iter().step_by(2).collect();
    renew(&store, &renewed).await;
    let holder = holder.kill();
    let others = holder.count() - renewed.len();
    let claimed = claim_until(&store, "parent", others).await;
    assert_eq!(claimed.len(), others);
    assert!(renewed.keys().all(|name| !claimed.contains_key(name)), "{claimed:?}");
    renew(&store, &renewed).await;
}

/// A runtime on a store of the plain contract does not mark what it runs. If the store counted nothing, an activity
/// that crashes the process would do so for ever.
#[tokio::test]
async fn of_a_killed_process_that_did_not_say_what_it_runs_everything_counts() {
    let file = StoreFile::new();
    let store = open(&file).await;
    enqueue(&store, "a").await;
    let holder = Holder::spawn_with(&file, &[(PLAIN, "1")]).kill();
    assert_eq!(holder.count(), 199);
    let claimed = claim_until(&store, "parent", 200).await;
    assert!(claimed.values().all(|attempts| *attempts == 2), "{claimed:?}");
}

#[tokio::test]
async fn the_session_of_a_killed_process_is_anybodys() {
    let file = StoreFile::new();
    let store = open(&file).await;
    store.enqueue_for_worker(in_session("cart", 1)).await.unwrap();
    let holder = Holder::spawn(&file);
    store.enqueue_for_worker(in_session("cart", 2)).await.unwrap();
    assert!(claim_all(&store, "parent").await.is_empty(), "the session is the child's");
    let _holder = holder.kill();
    let claimed = claim_until(&store, "parent", 2).await;
    assert_eq!(claimed, BTreeMap::from([("s/1".to_string(), 2), ("s/2".to_string(), 1)]));
    let renewed = store.renew_session_lock(&["child"], LONG, LONG).await.unwrap();
    assert_eq!(renewed, 0, "it does not come back to a namesake of the dead");
}

#[tokio::test]
async fn closing_a_handle_is_no_death() {
    let file = StoreFile::new();
    let (closed, store) = (file.open().await, file.open().await);
    closed.enqueue_for_worker(activity("a", 1)).await.unwrap();
    assert_eq!(claim_all(&closed, "closed").await.len(), 1);
    drop(closed);
    assert_eq!(owner_files(&file), 1);
    let later = file.open().await;
    for store in [&store, &later] {
        assert!(claim_all(store, "other").await.is_empty(), "the token may still be used by somebody");
    }
    file.clock.advance(LONG);
    assert_eq!(claim_all(&later, "other").await.len(), 1);
}

#[tokio::test]
async fn where_no_lock_file_can_be_made_the_store_works_and_leases_run_out() {
    let file = StoreFile::new();
    std::fs::write(file.directory().join("store.db-owners"), "in the way").unwrap();
    let store = file.open().await;
    store.enqueue_for_worker(activity("a", 1)).await.unwrap();
    let claimed = claim_all(&store, "one").await;
    drop(store.mark_running(&claimed[0].1));
    let later = file.open().await;
    assert!(claim_all(&later, "two").await.is_empty());
    file.clock.advance(LONG);
    assert_eq!(claim_all(&later, "two").await.len(), 1);
}

#[tokio::test]
async fn files_beside_the_database_are_for_whom_the_database_is() {
    use std::os::unix::fs::PermissionsExt;
    let file = StoreFile::new();
    let directory = file.directory().join("store.db-owners");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (database, expected) in [(0o600, (0o700, 0o600)), (0o660, (0o770, 0o660)), (0o644, (0o755, 0o644))] {
        std::fs::write(file.path(), "").unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(database)).unwrap();
        let store = file.open().await;
        let lock = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
        assert_eq!((mode(&directory), mode(&lock)), expected);
        drop(store);
        std::fs::remove_file(file.path()).unwrap();
    }
}

/// Names the work that crashes the process, in the child that runs it.
const CULPRIT: &str = "DUROXIDE_TEST_CULPRIT";
const MAX_ATTEMPTS: u32 = 3;
const BYSTANDERS: usize = 40;

/// The other process: a runtime whose user code aborts it.
///
/// It has one thread. So at the abort no other user code is in the middle of its run: what waits for a slot, or for its commit,
/// is not running and must not be noted.
#[test]
fn child_runs_user_code_that_aborts() {
    let (Ok(url), Ok(culprit)) = (std::env::var(URL), std::env::var(CULPRIT)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(SqliteProvider::new(&url, None).await.unwrap());
        let activities = ActivityRegistry::builder()
            .register("Attempt", async |ctx: ActivityContext, _: String| Ok(ctx.attempt().to_string()))
            .register("Abort", async |_: ActivityContext, _: String| std::process::abort())
            .build();
        let orchestrations = OrchestrationRegistry::builder()
            .register("Bystander", async |ctx: OrchestrationContext, _: String| {
                ctx.schedule_activity("Attempt", "").await
            })
            .register("activity", async |ctx: OrchestrationContext, _: String| {
                ctx.schedule_activity("Abort", "").await
            })
            .register("turn", async |_: OrchestrationContext, _: String| std::process::abort())
            .build();
        let options = RuntimeOptions {
            orchestration_concurrency: 1,
            worker_concurrency: 1,
            orchestrator_lock_timeout: LONG,
            worker_lock_timeout: LONG,
            session_idle_timeout: LONG * 2,
            max_attempts: MAX_ATTEMPTS,
            ..Default::default()
        };
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        let client = Client::new(store);
        let ended = client.wait_for_orchestration(&culprit, FAILURE_BOUND).await.unwrap();
        say(&format!("{ended:?}"));
        for n in 0..BYSTANDERS {
            client.wait_for_orchestration(&format!("b{n}"), FAILURE_BOUND).await.unwrap();
        }
        runtime.shutdown(None).await;
    });
}

async fn crash_loop(culprit: &str) {
    let file = StoreFile::new();
    let client = Client::new(open(&file).await);
    let half = BYSTANDERS / 2;
    for n in 0..half {
        client.start_orchestration(format!("b{n}"), "Bystander", "").await.unwrap();
    }
    client.start_orchestration(culprit, culprit, "").await.unwrap();
    for n in half..BYSTANDERS {
        client.start_orchestration(format!("b{n}"), "Bystander", "").await.unwrap();
    }
    let mut child = run_alone(module_path!(), "child_runs_user_code_that_aborts");
    child.env(URL, file.url()).env(CULPRIT, culprit);
    assert_eq!(run_until_it_ends(child, MAX_ATTEMPTS), MAX_ATTEMPTS);
    assert_eq!(poisoned_after(&client, culprit).await, MAX_ATTEMPTS + 1);
    for n in 0..BYSTANDERS {
        let status = client.get_orchestration_status(&format!("b{n}")).await.unwrap();
        let OrchestrationStatus::Completed { output, .. } = status else { panic!("b{n}: {status:?}") };
        assert_eq!(output, "1", "b{n} has crashed nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_crashes_the_process_is_poisoned_and_no_bystander_is() {
    crash_loop("activity").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_crashes_the_process_is_poisoned_and_no_bystander_is() {
    crash_loop("turn").await;
}

fn few_attempts() -> RuntimeOptions {
    RuntimeOptions {
        orchestrator_lock_timeout: LONG,
        worker_lock_timeout: LONG,
        session_idle_timeout: LONG * 2,
        max_attempts: MAX_ATTEMPTS,
        ..Default::default()
    }
}

/// The other process: a runtime whose store aborts it where it decodes `CULPRIT`.
#[test]
fn child_aborts_in_decoding() {
    let (Ok(url), Ok(what)) = (std::env::var(URL), std::env::var(CULPRIT)) else { return };
    tracing::subscriber::set_global_default(AbortsAtDecoding { what }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(SqliteProvider::new(&url, None).await.unwrap());
        let (activities, orchestrations) = large_work();
        let runtime =
            Runtime::start_with_options(store.clone(), activities, orchestrations, few_attempts()).await;
        let client = Client::new(store);
        client.wait_for_orchestration("large", FAILURE_BOUND).await.unwrap();
        runtime.shutdown(None).await;
    });
}

fn aborting_in_decoding(file: &StoreFile, what: &str) -> Command {
    let mut child = run_alone(module_path!(), "child_aborts_in_decoding");
    child.env(URL, file.url()).env(CULPRIT, what);
    child
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_kills_the_process_which_loads_it_is_poisoned() {
    let file = StoreFile::new();
    let store = open(&file).await;
    let client = Client::new(store.clone());
    let (activities, orchestrations) = large_work();
    let runtime = Runtime::start_with_options(store, activities, orchestrations, few_attempts()).await;
    client.start_orchestration("large", "Collect", "").await.unwrap();
    client.wait_for_status_change("large", 0, Duration::from_millis(10), FAILURE_BOUND).await.unwrap();
    runtime.shutdown(None).await;
    client.raise_event("large", "go", "").await.unwrap();

    // The attempt after the last one loads the history to fail the instance as poison. The next one does without.
    let crashes = run_until_it_ends(aborting_in_decoding(&file, "history"), MAX_ATTEMPTS + 1);
    assert_eq!(crashes, MAX_ATTEMPTS + 1);
    assert_eq!(poisoned_after(&client, "large").await, MAX_ATTEMPTS + 2);
    file.assert_sound();
}

/// The store decodes before a runtime can judge the attempts. So another process, which has the memory, looks at them.
async fn crash_in_decoding_of(what: &str) {
    let file = StoreFile::new();
    let store = open(&file).await;
    let client = Client::new(store.clone());
    client.start_orchestration("large", "Pass", "x".repeat(LARGE)).await.unwrap();
    for _ in 0..MAX_ATTEMPTS {
        assert!(!aborting_in_decoding(&file, what).stdout(Stdio::null()).status().unwrap().success());
    }
    let attempts = claim_until(&store, "parent", 1).await;
    assert_eq!(attempts.into_values().collect::<Vec<_>>(), [MAX_ATTEMPTS + 1]);
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_kill_the_process_which_decodes_them_use_up_attempts() {
    crash_in_decoding_of("messages").await;
}

// semantics: FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_that_kills_the_process_which_decodes_it_uses_up_attempts() {
    crash_in_decoding_of("activity").await;
}
