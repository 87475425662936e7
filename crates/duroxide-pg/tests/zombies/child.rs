//! The process that is stopped: a runtime on the store, and code that stands still at a moment.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry, RuntimeOptions};
use duroxide_pg::PostgresProvider;

pub const URL: &str = "DUROXIDE_TEST_ZOMBIE_URL";
pub const SCHEMA: &str = "DUROXIDE_TEST_ZOMBIE_SCHEMA";
/// The file in which a worker writes down what it does.
pub const LEDGER: &str = "DUROXIDE_TEST_ZOMBIE_LEDGER";
/// The moment at which a worker stands still; empty for one that does not.
pub const INSTRUCTIONS: &str = "DUROXIDE_TEST_ZOMBIE_MOMENT";

/// Leases are short, so that what is left behind is soon free again.
const LEASE: Duration = Duration::from_secs(1);

/// When a worker stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// In an activity, which then waits until it is told that its result is not wanted.
    ActivityThatListens,
    /// In an activity, which then returns at once.
    ActivityThatReturns,
    /// When an activity's result is on its way.
    CommitOfResult,
    /// In the code of an orchestration, after its activity.
    Turn,
    /// When a turn is on its way.
    CommitOfTurn,
}

impl Moment {
    fn named(name: &str) -> Option<Self> {
        use Moment::*;
        let all = [ActivityThatListens, ActivityThatReturns, CommitOfResult, Turn, CommitOfTurn];
        all.into_iter().find(|moment| format!("{moment:?}") == name)
    }

    /// Others have to stop the process at this moment.
    pub fn is_in_commit(self) -> bool {
        matches!(self, Self::CommitOfResult | Self::CommitOfTurn)
    }

    /// When one who has taken over waits until others are ready.
    pub fn when_taken_over(self) -> Self {
        if self.is_after_the_result() { Self::CommitOfTurn } else { Self::CommitOfResult }
    }

    /// The activity's result is stored already.
    pub fn is_after_the_result(self) -> bool {
        matches!(self, Self::Turn | Self::CommitOfTurn)
    }
}

/// What all code in this process shares.
struct Stage {
    ledger: File,
    moment: Option<Moment>,
    /// The moment comes only once.
    was: AtomicBool,
    input: Mutex<Receiver<()>>,
}

/// Works until the standard input is closed, if this process is a worker.
pub fn work_if_asked() {
    let Ok(url) = std::env::var(URL) else { return };
    let schema = std::env::var(SCHEMA).unwrap();
    let ledger = OpenOptions::new().create(true).append(true).open(std::env::var(LEDGER).unwrap()).unwrap();
    let moment = Moment::named(&std::env::var(INSTRUCTIONS).unwrap());
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let (line, input) = channel();
    let (over, is_over) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines() {
            let _ = line.send(());
        }
        let _ = over.send(());
    });
    let stage = Arc::new(Stage { ledger, moment, was: AtomicBool::new(false), input: Mutex::new(input) });
    // Code that stands still takes a thread with it.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(PostgresProvider::new_with_schema(&url, Some(&schema)).await.unwrap());
        let running = start(store, stage).await;
        let _ = is_over.await;
        running.shutdown(None).await;
    });
}

async fn start(store: Arc<PostgresProvider>, stage: Arc<Stage>) -> Arc<Runtime> {
    let paying = stage.clone();
    let activities = ActivityRegistry::builder()
        .register("Pay", move |ctx: ActivityContext, _: String| pay(paying.clone(), ctx))
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Order", move |ctx: OrchestrationContext, _: String| order(stage.clone(), ctx))
        .build();
    let options = RuntimeOptions {
        orchestrator_lock_timeout: LEASE,
        worker_lock_timeout: LEASE,
        // Standing still is not the message's fault.
        max_attempts: 1_000,
        ..Default::default()
    };
    Runtime::start_with_options(store, activities, orchestrations, options).await
}

/// LeaseReturner which process has paid.
async fn pay(stage: Arc<Stage>, ctx: ActivityContext) -> Result<String, String> {
    stage.write(&format!("pays {} (attempt {})", ctx.instance_id(), ctx.attempt()));
    stage.at(ctx.instance_id(), Moment::ActivityThatReturns, stop);
    stage.at(ctx.instance_id(), Moment::CommitOfResult, || stage.wait_to_commit());
    if stage.at(ctx.instance_id(), Moment::ActivityThatListens, stop) {
        ctx.cancelled().await;
        stage.write("was told");
    }
    Ok(std::process::id().to_string())
}

async fn order(stage: Arc<Stage>, ctx: OrchestrationContext) -> Result<String, String> {
    let paid = ctx.schedule_activity("Pay", "").await?;
    // The result is durable before the next turn, which is the only one to be committed then.
    ctx.schedule_timer(Duration::from_millis(1)).await;
    stage.at(&ctx.instance_id(), Moment::Turn, stop);
    stage.at(&ctx.instance_id(), Moment::CommitOfTurn, || stage.wait_to_commit());
    Ok(paid)
}

/// Stops this whole process until others let it go on.
fn stop() {
    let stopped = Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status().unwrap();
    assert!(stopped.success());
    // On a busy machine this thread may run on until another one takes the signal, which then stops all of them.
    while signals_to_be_taken() & SIGSTOP != 0 {
        std::thread::yield_now();
    }
}

/// The signal that stops a process, in a set of signals.
const SIGSTOP: u64 = 1 << 18;

/// The signals that were sent to this process and that no thread has taken yet.
fn signals_to_be_taken() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

impl Stage {
    /// Does something if this is the moment in the life of an order, and it comes for the first time.
    fn at(&self, instance: &str, moment: Moment, act: impl FnOnce()) -> bool {
        let is_it = instance.starts_with("order") && self.moment == Some(moment);
        let is_now = is_it && !self.was.swap(true, Ordering::SeqCst);
        if is_now {
            act();
        }
        is_now
    }

    /// Waits until the others are ready for what is committed next.
    fn wait_to_commit(&self) {
        self.write("is about to commit");
        self.input.lock().unwrap().recv().unwrap();
    }

    fn write(&self, line: &str) {
        // One write for a line, so that nobody reads half of it.
        (&self.ledger).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
