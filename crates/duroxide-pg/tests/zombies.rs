//! The test stops worker processes (SIGSTOP) for longer than their leases, while others do their work, and lets them go
//! on (SIGCONT) as if nothing had happened: the store refuses their commits and tells them so, and they work on.
//!
//! The workers are this test binary, started again. `ZOMBIES` multiplies how many there are.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::child_process::run_alone;
use crate::support;

#[path = "zombies/child.rs"]
mod child;

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use child::{INSTRUCTIONS, LEDGER, Moment, SCHEMA, URL};
use duroxide::providers::{Clock, SystemClock};
use duroxide::{Client, EventKind, OrchestrationStatus};
use support::proxy::{Proxy, Weather};
use support::world::World;

/// Nothing here takes long; a test that waits for so long has failed.
const FAILURE_BOUND: Duration = Duration::from_secs(60);
/// The test looks at the workers' files and processes so often.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// The worker's side: not a test by itself.
#[test]
fn child_works_until_its_input_ends() {
    child::work_if_asked();
}

/// A worker process. Dropping it kills it.
struct Worker {
    process: Child,
    files: tempfile::TempDir,
}

impl Worker {
    /// Starts a worker that reaches the server through this port, and does something special at a moment.
    fn start(world: &World, port: u16, moment: Option<Moment>) -> Self {
        let files = tempfile::TempDir::new().unwrap();
        let log = std::fs::File::create(files.path().join("log")).unwrap();
        let process = run_alone(module_path!(), "child_works_until_its_input_ends")
            .env(URL, world.cluster.url_through(port))
            .env(SCHEMA, &world.schema)
            .env(LEDGER, files.path().join("ledger"))
            .env(INSTRUCTIONS, moment.map_or_else(String::new, |moment| format!("{moment:?}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, files }
    }

    fn id(&self) -> String {
        self.process.id().to_string()
    }

    /// Waits until the worker has written these words, to its log or to its ledger.
    async fn until_says(&self, words: &str) {
        let read = |file: &str| std::fs::read_to_string(self.files.path().join(file)).unwrap_or_default();
        let says = async || read("ledger").contains(words) || read("log").contains(words);
        let said = in_time(says).await;
        assert!(said, "{words:?} is not in {}\n{}", read("ledger"), read("log"));
    }

    /// Lets the worker go on where it waits for its input.
    fn let_go_on(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn send(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.id()]).status().unwrap();
        assert!(sent.success(), "kill {signal}");
    }

    /// Waits until all threads of the worker stand still.
    async fn until_stopped(&self) {
        let status = format!("/proc/{}/status", self.id());
        let is_stopped =
            async || std::fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tT"));
        assert!(in_time(is_stopped).await, "it goes on");
    }

    /// Ends the worker in an orderly way.
    async fn end(mut self) {
        drop(self.process.stdin.take());
        let mut ended = None;
        let has_ended = async || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        };
        assert!(in_time(has_ended).await, "it does not end");
        assert!(ended.unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Looks until a condition holds; `false` if it does not in time.
async fn in_time(mut is_so: impl AsyncFnMut() -> bool) -> bool {
    let deadline = SystemClock.monotonic() + FAILURE_BOUND;
    loop {
        if is_so().await {
            return true;
        }
        if SystemClock.monotonic() > deadline {
            return false;
        }
        SystemClock.sleep(BETWEEN_LOOKS).await;
    }
}

fn rounds(usual: u64) -> u64 {
    usual * std::env::var("ZOMBIES").map_or(1, |times| times.parse::<u64>().unwrap())
}

async fn start(client: &Client, instance: &str) {
    client.start_orchestration(instance, "Order", "").await.unwrap();
}

/// Waits for an order's end; returns the worker that has paid, after checking that its history says so, once.
async fn paid_by(client: &Client, instance: &str) -> String {
    let status = client.wait_for_orchestration(instance, FAILURE_BOUND).await;
    let Ok(OrchestrationStatus::Completed { output, .. }) = status else {
        panic!("{instance} should have ended: {status:?}");
    };
    check_history(client, instance, &output).await;
    output
}

async fn check_history(client: &Client, instance: &str, output: &str) {
    let events = client.read_execution_history(instance, 1).await.unwrap();
    let ids: Vec<u64> = events.iter().map(|event| event.event_id).collect();
    let kinds: Vec<&EventKind> = events.iter().map(|event| &event.kind).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6], "{instance}: {kinds:?}");
    let [_, EventKind::ActivityScheduled { .. }, EventKind::ActivityCompleted { result }, .., fired, last] =
        kinds[..]
    else {
        panic!("{instance}: {kinds:?}");
    };
    assert!(matches!(fired, EventKind::TimerFired { .. }), "{instance}: {kinds:?}");
    assert_eq!(result, output, "{instance}");
    assert!(
        matches!(last, EventKind::OrchestrationCompleted { output: told } if told == output),
        "{instance}"
    );
}

/// Stops a worker at a moment until another has taken over, lets it go on, and waits until it hears `is_told`.
async fn raise_zombies(moment: Moment, is_told: &str) {
    let world = World::new(&[]).await;
    let client = Client::new(world.sound_store().await);
    for round in 0..rounds(1) {
        let instance = format!("order-{round}");
        let proxy = Proxy::new(world.cluster.port()).await;
        let mut zombie = Worker::start(&world, proxy.port(), Some(moment));
        // The worker has prepared all statements once, so that it sends later ones at once.
        let earlier = format!("earlier-{round}");
        start(&client, &earlier).await;
        assert_eq!(paid_by(&client, &earlier).await, zombie.id());
        start(&client, &instance).await;
        if moment.is_in_commit() {
            zombie.until_says("is about to commit").await;
            let mut commits = proxy.commits();
            commits.mark_unchanged();
            proxy.set_weather(Weather::Frozen);
            zombie.let_go_on();
            tokio::time::timeout(FAILURE_BOUND, commits.changed()).await.expect("it commits").unwrap();
        } else {
            zombie.until_says("waits to be stopped").await;
        }
        zombie.send("-STOP");
        zombie.until_stopped().await;

        // The other worker has taken over and is not done yet.
        let mut other = Worker::start(&world, world.cluster.port(), Some(moment.when_taken_over()));
        other.until_says("is about to commit").await;
        // The bytes that the proxy held back arrive now.
        proxy.set_weather(Weather::Fair);
        zombie.send("-CONT");
        if !moment.is_in_commit() {
            zombie.let_go_on();
        }
        zombie.until_says(is_told).await;
        other.let_go_on();
        let payer = if moment.is_after_the_result() { zombie.id() } else { other.id() };
        assert_eq!(paid_by(&client, &instance).await, payer, "the other one counts");
        other.end().await;

        let later = format!("later-{round}");
        start(&client, &later).await;
        assert_eq!(paid_by(&client, &later).await, zombie.id(), "it works on");
        zombie.end().await;
        check_rows(&world).await;
    }
}

/// Checks that no work is left.
async fn check_rows(world: &World) {
    for table in ["orchestrator_queue", "worker_queue", "instance_locks", "quarantine"] {
        assert_eq!(world.number(&format!("SELECT count(*) FROM {table}")).await, 0, "rows in {table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stood_still_in_an_activity_is_told_that_it_is_not_his_any_more() {
    raise_zombies(Moment::ActivityThatListens, "was told").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_comes_too_late_is_refused() {
    raise_zombies(Moment::ActivityThatReturns, "result dropped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_was_on_its_way_for_too_long_is_refused() {
    raise_zombies(Moment::CommitOfResult, "result dropped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_comes_too_late_is_refused() {
    raise_zombies(Moment::Turn, "the store refuses the turn").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_was_on_its_way_for_too_long_is_refused() {
    raise_zombies(Moment::CommitOfTurn, "the store refuses the turn").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stood_still_at_any_moment_changes_nothing() {
    const ORDERS: usize = 100;
    let world = World::new(&[]).await;
    let client = Client::new(world.sound_store().await);
    let zombie = Worker::start(&world, world.cluster.port(), None);
    let other = Worker::start(&world, world.cluster.port(), None);
    for round in 0..rounds(1) {
        let instances: Vec<String> = (0..ORDERS).map(|n| format!("order-{round}-{n}")).collect();
        let (first, rest) = instances.split_at(ORDERS / 2);
        for instance in first {
            start(&client, instance).await;
        }
        zombie.until_says(&format!("order-{round}-")).await;
        zombie.send("-STOP");
        zombie.until_stopped().await;
        for instance in rest {
            start(&client, instance).await;
        }
        let mut paid = Vec::new();
        for instance in &instances {
            paid.push(paid_by(&client, instance).await);
        }
        zombie.send("-CONT");
        // The worker takes part again.
        let mut extra = 0;
        while {
            let instance = format!("extra-{round}-{extra}");
            start(&client, &instance).await;
            paid_by(&client, &instance).await != zombie.id()
        } {
            extra += 1;
            assert!(extra < 10_000, "it does nothing any more");
        }
        for (instance, paid) in instances.iter().zip(&paid) {
            assert_eq!(paid_by(&client, instance).await, *paid, "as before");
        }
    }
    zombie.end().await;
    other.end().await;
    check_rows(&world).await;
}
