//! The process that the test stops: a runtime on the store, and code that stands still at a moment.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
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
/// The moment at which a worker stands still; empty for a worker that does not.
pub const INSTRUCTIONS: &str = "DUROXIDE_TEST_ZOMBIE_MOMENT";

/// Leases are short, so that the work of a stopped process is soon free again.
const LEASE: Duration = Duration::from_secs(1);

/// When a worker stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// In an activity, which then waits until the runtime cancels it.
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

    /// Tells whether the process stands still while a commit is on its way.
    pub fn is_in_commit(self) -> bool {
        matches!(self, Self::CommitOfResult | Self::CommitOfTurn)
    }

    /// Returns the moment at which the worker that has taken over waits for the test.
    pub fn when_taken_over(self) -> Self {
        if self.is_after_the_result() { Self::CommitOfTurn } else { Self::CommitOfResult }
    }

    /// Tells whether the activity's result is stored already.
    pub fn is_after_the_result(self) -> bool {
        matches!(self, Self::Turn | Self::CommitOfTurn)
    }
}

/// The state that all code in this process shares.
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
        // A message is not to blame for a process that stands still.
        max_attempts: 1_000,
        ..Default::default()
    };
    Runtime::start_with_options(store, activities, orchestrations, options).await
}

/// Returns which process has paid.
async fn pay(stage: Arc<Stage>, ctx: ActivityContext) -> Result<String, String> {
    stage.write(&format!("pays {} (attempt {})", ctx.instance_id(), ctx.attempt()));
    stage.at(ctx.instance_id(), Moment::ActivityThatReturns, || stage.wait_to_be_stopped());
    stage.at(ctx.instance_id(), Moment::CommitOfResult, || stage.wait_to_commit());
    if stage.at(ctx.instance_id(), Moment::ActivityThatListens, || stage.wait_to_be_stopped()) {
        ctx.cancelled().await;
        stage.write("was told");
    }
    Ok(std::process::id().to_string())
}

async fn order(stage: Arc<Stage>, ctx: OrchestrationContext) -> Result<String, String> {
    let paid = ctx.schedule_activity("Pay", "").await?;
    // The result is durable before the next turn, which is then the only commit.
    ctx.schedule_timer(Duration::from_millis(1)).await;
    stage.at(&ctx.instance_id(), Moment::Turn, || stage.wait_to_be_stopped());
    stage.at(&ctx.instance_id(), Moment::CommitOfTurn, || stage.wait_to_commit());
    Ok(paid)
}

impl Stage {
    /// Runs `act` if this is the moment in the life of an order, and it comes for the first time.
    fn at(&self, instance: &str, moment: Moment, act: impl FnOnce()) -> bool {
        let is_it = instance.starts_with("order") && self.moment == Some(moment);
        let is_now = is_it && !self.was.swap(true, Ordering::SeqCst);
        if is_now {
            act();
        }
        is_now
    }

    /// Waits until the test is ready for the next commit.
    fn wait_to_commit(&self) {
        self.say_and_wait("is about to commit");
    }

    /// Waits while the test stops this process and lets it go on. A process that stopped itself could still run for a
    /// moment after it sent itself the signal, and commit what it should be too late for.
    fn wait_to_be_stopped(&self) {
        self.say_and_wait("waits to be stopped");
    }

    fn say_and_wait(&self, line: &str) {
        self.write(line);
        self.input.lock().unwrap().recv().unwrap();
    }

    fn write(&self, line: &str) {
        // One write for a line, so that the test never reads half of it.
        (&self.ledger).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
