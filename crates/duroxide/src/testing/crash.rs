//! Runs a test again and again, with a crash at another place each time.

use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::history::line;
use super::{TestEnv, TestEnvBuilder};
use crate::model::WorkItem;
use crate::providers::{CommitGate, CommitKind};

/// How many places a crash was tried at, without a change of the outcome.
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::testing::{Mock, TestEnv, crash_everywhere};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
/// let builder = || TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt"));
/// let test = async |env: &TestEnv| {
///     env.start("p-1", "Pay", "visa").await;
///     env.output("p-1").await
/// };
/// println!("{:?}", crash_everywhere(builder, test).await.unwrap());
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashReport {
    /// Crashes right after a commit: a turn, or the result of an activity.
    pub commits: usize,
    /// Activities whose result was lost, so that they ran a second time.
    pub repeated_activities: usize,
}

/// A crash that changes the outcome.
///
/// ```
/// use duroxide::prelude::*;
/// use duroxide::testing::{Mock, TestEnv, crash_everywhere};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let pay = |ctx: OrchestrationContext, card: String| async move { ctx.schedule_activity("Charge", card).await };
/// let builder = || TestEnv::builder().orchestration("Pay", pay).mock("Charge", Mock::returns("receipt"));
/// // Counts the effects, and a charge may run twice: the finding names the step.
/// let test = async |env: &TestEnv| {
///     env.start("p-1", "Pay", "visa").await;
///     env.output("p-1").await;
///     env.calls("Charge").len()
/// };
/// println!("{}", crash_everywhere(builder, test).await.unwrap_err());
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashFinding {
    /// Where the crash was.
    pub step: String,
    /// The outcome without a crash.
    pub expected: String,
    /// The outcome with it.
    pub found: String,
}

impl fmt::Display for CrashFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the outcome differs with {}", self.step)?;
        writeln!(f, "  without a crash: {}", self.expected)?;
        write!(f, "  with this crash: {}", self.found)
    }
}

impl std::error::Error for CrashFinding {}

/// Runs a test once as it is, then with a crash after every commit of the runtime, then with every activity delivered a
/// second time because a crash lost its result.
///
/// A crash takes everything that the runtime holds in memory; another one starts on the same store at once. The outcome is
/// what the test returns, or the text of its panic, and how each instance ended. `setup` makes a fresh environment for each
/// run.
///
/// # Errors
/// Names the first step where the outcome differs.
///
/// ```
/// use duroxide::OrchestrationContext;
/// use duroxide::testing::{Mock, TestEnv, crash_everywhere};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let setup = || {
///     TestEnv::builder()
///         .orchestration("Order", |ctx: OrchestrationContext, order: String| async move {
///             ctx.schedule_activity("Reserve", order.clone()).await?;
///             ctx.schedule_activity("Charge", order).await
///         })
///         .mock("Reserve", Mock::returns("reserved"))
///         .mock("Charge", Mock::returns("receipt"))
/// };
/// let report = crash_everywhere(setup, async |env: &TestEnv| {
///     env.start("o-1", "Order", "book").await;
///     env.output("o-1").await
/// });
/// assert_eq!(report.await.unwrap().repeated_activities, 2);
/// # }
/// ```
pub async fn crash_everywhere<T: PartialEq + Debug>(
    setup: impl Fn() -> TestEnvBuilder,
    test: impl AsyncFn(&TestEnv) -> T,
) -> Result<CrashReport, CrashFinding> {
    let (expected, _) = run(&setup, &test, CrashPlace::Nowhere).await;
    let mut report = CrashReport { commits: 0, repeated_activities: 0 };
    if let Err(panic) = &expected.returned {
        let step = "no crash at all".to_string();
        return Err(CrashFinding { step, expected: "a test that passes".to_string(), found: panic.clone() });
    }
    for number in 1.. {
        let (found, step) = run(&setup, &test, CrashPlace::AfterCommit(number)).await;
        let Some(step) = step else { break };
        compare(&expected, &found, format!("a crash after commit {number} ({step})"))?;
        report.commits += 1;
    }
    for number in 1.. {
        let (found, step) = run(&setup, &test, CrashPlace::InsteadOfResult(number)).await;
        let Some(step) = step else { break };
        compare(&expected, &found, format!("a second delivery of an activity: a crash lost the {step}"))?;
        report.repeated_activities += 1;
    }
    Ok(report)
}

/// How a test ended.
#[derive(PartialEq)]
struct Outcome<T> {
    returned: Result<T, String>,
    instances: Vec<String>,
}

impl<T: Debug> fmt::Display for Outcome<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.returned {
            Ok(value) => write!(f, "the test returned {value:?}")?,
            Err(panic) => write!(f, "the test panicked: {panic}")?,
        }
        write!(f, "; {}", self.instances.join(", "))
    }
}

fn compare<T: PartialEq + Debug>(
    expected: &Outcome<T>,
    found: &Outcome<T>,
    step: String,
) -> Result<(), CrashFinding> {
    if expected == found {
        return Ok(());
    }
    Err(CrashFinding { step, expected: expected.to_string(), found: found.to_string() })
}

/// Runs a test once. Returns the step of the crash, if the test got there.
async fn run<T>(
    setup: &impl Fn() -> TestEnvBuilder,
    test: &impl AsyncFn(&TestEnv) -> T,
    place: CrashPlace,
) -> (Outcome<T>, Option<String>) {
    let plan = CrashPlan::at(place);
    let env = setup().start_with(plan.clone()).await;
    let returned = caught(test(&env)).await;
    env.settle().await;
    let instances = env.outcomes().await;
    (Outcome { returned, instances }, plan.reached())
}

/// Runs a future, and turns its panic into its text.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Poll::Ready(Err(text.unwrap_or_else(|| "no text".to_string())))
        }
    })
    .await
}

/// Where a runtime crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashPlace {
    Nowhere,
    /// After this commit, from 1.
    AfterCommit(usize),
    /// Before this result of an activity is stored, from 1.
    InsteadOfResult(usize),
}

/// A planned crash, and how far the runtime has come.
#[derive(Clone)]
pub(super) struct CrashPlan {
    shared: Arc<SharedPlan>,
}

struct SharedPlan {
    place: CrashPlace,
    progress: Mutex<Progress>,
    crashed: Notify,
}

#[derive(Default)]
struct Progress {
    commits: usize,
    results: usize,
    reached: Option<String>,
}

impl CrashPlan {
    pub fn none() -> Self {
        Self::at(CrashPlace::Nowhere)
    }

    fn at(place: CrashPlace) -> Self {
        Self { shared: Arc::new(SharedPlan { place, progress: Mutex::default(), crashed: Notify::new() }) }
    }

    /// Makes the gate of one runtime.
    pub fn gate(&self) -> CrashGate {
        CrashGate { plan: self.clone(), is_down: AtomicBool::new(false) }
    }

    /// Waits until a runtime has crashed.
    pub async fn crashed(&self) {
        self.shared.crashed.notified().await;
    }

    fn reached(&self) -> Option<String> {
        self.progress().reached.clone()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees the commits of one runtime, and stops it at the planned place.
pub(super) struct CrashGate {
    plan: CrashPlan,
    is_down: AtomicBool,
}

impl CrashGate {
    /// Nothing that this runtime asks for happens any more.
    async fn crash(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        self.plan.shared.crashed.notify_one();
        std::future::pending::<()>().await;
    }

    /// Counts a commit, or a result that is about to be stored; tells whether the runtime crashes there.
    fn is_reached(&self, commit: &CommitKind, is_stored: bool) -> bool {
        let mut progress = self.plan.progress();
        let results = match commit {
            CommitKind::Turn(_) | CommitKind::Attempt(_) => 0,
            CommitKind::Result(_) => 1,
            CommitKind::Step { results, .. } => results.len(),
        };
        let is_here = match self.plan.shared.place {
            CrashPlace::Nowhere => false,
            CrashPlace::AfterCommit(number) => is_stored && progress.commits + 1 == number,
            CrashPlace::InsteadOfResult(number) => {
                !is_stored && (progress.results + 1..=progress.results + results).contains(&number)
            }
        };
        progress.commits += usize::from(is_stored);
        progress.results += if is_stored { results } else { 0 };
        let is_first = is_here && progress.reached.is_none();
        if is_first {
            progress.reached = Some(describe(commit));
        }
        is_first
    }
}

#[async_trait]
impl CommitGate for CrashGate {
    async fn before(&self, commit: &CommitKind) {
        if self.is_down.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.is_reached(commit, false) {
            self.crash().await;
        }
    }

    async fn after(&self, commit: &CommitKind) {
        if self.is_reached(commit, true) {
            self.crash().await;
        }
    }
}

/// A commit in words.
fn describe(commit: &CommitKind) -> String {
    match commit {
        CommitKind::Step { events, results } if !results.is_empty() => {
            let results: Vec<String> = results.iter().map(result).collect();
            let turn = describe(&CommitKind::Turn(events.clone()));
            format!("{}, with the {turn}", results.join(", "))
        }
        CommitKind::Turn(events) | CommitKind::Step { events, .. } => match events.first() {
            Some(first) => {
                let lines: Vec<String> = events.iter().map(line).collect();
                format!("turn of '{}': {}", first.instance_id, lines.join(", "))
            }
            None => "turn without events".to_string(),
        },
        CommitKind::Result(Some(completion)) => result(completion),
        CommitKind::Attempt(activity) => format!("attempt of activity '{activity}' that is not the last"),
        CommitKind::Result(None) => "end of an activity that nobody wants".to_string(),
    }
}

fn result(completion: &WorkItem) -> String {
    match completion {
        WorkItem::ActivityCompleted { instance, id, .. } | WorkItem::ActivityFailed { instance, id, .. } => {
            format!("result of activity {id} of '{instance}'")
        }
        _ => "result of an activity".to_string(),
    }
}
