//! Programs of random shape: made from a seed, run by one orchestration, and interpreted to predict the result.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use duroxide::{ActivityOptions, BackoffStrategy, Either2, OrchestrationContext, RetryPolicy, StoredRetry};
use serde::{Deserialize, Serialize};

use super::random::Random;

pub const ORCHESTRATION: &str = "Program";
pub const QUEUE: &str = "inbox";
/// The reason for which the outside process cancels an instance.
pub const CANCEL_REASON: &str = "no longer wanted";
/// The custom status that asks for that.
pub const CANCEL_ME: &str = "cancel";
/// The beginning of a custom status that asks for a signal.
pub const SIGNAL_ME: &str = "signal:";
/// The beginning of a custom status that asks for a request.
pub const ASK_ME: &str = "ask:";
/// The tag of workers.
pub const TAG: &str = "served";
/// The tag of no worker.
const NOBODY: &str = "nobody";
const PAUSE: Duration = Duration::from_millis(5);
/// How long a deadline is that is never met; the clocks of simulations jump by hours.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);
/// What an activity's error begins with when no further attempt is to follow.
const FINAL: &str = "final: ";

/// What the outside process asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    pub label: String,
}

impl duroxide::Request for Question {
    const NAME: &'static str = "question";
    type Reply = String;
}

/// The answer to a question.
pub fn answer_to(label: &str) -> String {
    format!("answer to {label}")
}

/// A step. Labels are unique in an instance, so that they identify each step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    Activity(String),
    FailingActivity(String),
    /// An activity that fails a number of times, with retries.
    Retry {
        label: String,
        failures: u32,
        attempts: u32,
    },
    Timer(u64),
    /// A signal that an activity of this instance raises.
    OwnSignal(String),
    /// A signal that a child raises.
    ChildSignal(String),
    /// A signal that the outside process raises, once, when the custom status asks for it.
    OutsideSignal(String),
    RaiseTo {
        instance: String,
        name: String,
    },
    Dequeue,
    /// A child, under an id of its own or a generated one.
    Child(Option<String>, Vec<Step>),
    Detached(String, Vec<Step>),
    SetKv(String, String),
    ReadKv(String),
    /// Async blocks, all awaited.
    Join(Vec<Vec<Step>>),
    /// Activities requested at once, all awaited.
    FanOut(Vec<String>),
    /// An activity against a timer; either may win.
    Race(String, u64),
    /// An activity that never ends, against a timer.
    GiveUpActivity(String, u64),
    /// A signal that never comes, against a timer.
    GiveUpWait(String, u64),
    /// A child that never ends, against a timer.
    GiveUpChild(String, u64),
    /// Ends the execution; the next goes on after this step.
    ContinueAsNew,
    Fail(String),
    Never,
    /// Asks to be cancelled and waits for that, with a child that waits too.
    AwaitCancel(Option<String>),
    /// An activity that fails a number of times, with attempts that the store keeps.
    StoredRetry {
        label: String,
        failures: u32,
        succeeds: bool,
    },
    /// An activity that goes on from what its earlier attempts have left behind.
    Progress {
        label: String,
        parts: u32,
    },
    /// An activity whose result comes from elsewhere.
    Pending(String),
    /// Activities of one session.
    Session(String, Vec<String>),
    /// An activity for workers with a tag.
    Tagged(String),
    /// An activity that is begun long before its deadline.
    Urgent(String),
    /// An activity that nobody begins before its deadline, so many milliseconds later.
    Unbegun(String, u64),
    /// Something that fails and undoes what came before.
    Undo(String),
    /// A request that the outside process makes when the custom status asks for it.
    Reply(String),
    /// Asks to be cancelled, waits for that, and cleans up.
    CleanUp(String),
}

/// The input of the orchestration: what it has seen before, and its remaining steps.
#[derive(Debug, Clone, Serialize, Deserialize, Default)]
pub struct Input {
    pub seen: String,
    pub steps: Vec<Step>,
}

impl Input {
    pub fn text(steps: &[Step]) -> String {
        serde_json::to_string(&Self { seen: String::new(), steps: steps.to_vec() }).unwrap()
    }
}

/// How an instance is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Output(String),
    Failure(String),
    Cancelled(String),
}

/// The steps around a step, which decide what it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Root,
    Child,
    Block,
}

/// Makes programs.
pub struct Generator<'a> {
    random: &'a mut Random,
    instance: String,
    labels: u32,
    /// Of 100 steps, so many need more of a store than the published contract.
    extended_percent: u64,
}

impl<'a> Generator<'a> {
    /// Makes programs for every store.
    pub fn new(random: &'a mut Random, instance: &str) -> Self {
        Self { random, instance: instance.to_string(), labels: 0, extended_percent: 0 }
    }

    /// Makes programs for stores with the extended contract.
    pub fn extended(random: &'a mut Random, instance: &str) -> Self {
        Self { extended_percent: 35, ..Self::new(random, instance) }
    }

    /// Makes the program of an instance that is started from outside.
    pub fn program(&mut self) -> Vec<Step> {
        let mut steps = self.steps(Nesting::Root, 0);
        let ends = if self.extended_percent > 0 { 14 } else { 12 };
        match self.random.below(ends) {
            12 | 13 => steps.push(Step::CleanUp(self.label())),
            0 => steps.push(Step::Fail(self.label())),
            1 => steps.push(Step::AwaitCancel(None)),
            2 => steps.push(Step::AwaitCancel(Some(self.id()))),
            _ => {}
        }
        steps
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("s{}", self.labels)
    }

    fn id(&mut self) -> String {
        let label = self.label();
        format!("{}.{label}", self.instance)
    }

    fn steps(&mut self, nesting: Nesting, depth: u32) -> Vec<Step> {
        let most = if depth == 0 { 6 } else { 3 };
        let count = 1 + self.random.below(most);
        (0..count).map(|_| self.step(nesting, depth)).collect()
    }

    fn child_steps(&mut self, depth: u32) -> Vec<Step> {
        let mut steps = self.steps(Nesting::Child, depth + 1);
        if self.random.below(6) == 0 {
            steps.push(Step::Fail(self.label()));
        }
        steps
    }

    fn step(&mut self, nesting: Nesting, depth: u32) -> Step {
        if self.extended_percent > 0 && self.random.below(100) < self.extended_percent {
            return self.extended_step(nesting);
        }
        let ms = 1 + self.random.below(30);
        match self.random.below(21) {
            0 | 1 => Step::Timer(ms),
            2 => Step::FailingActivity(self.label()),
            3 => {
                let failures = self.random.below(4) as u32;
                Step::Retry { label: self.label(), failures, attempts: 3 }
            }
            4 => Step::OwnSignal(self.label()),
            5 => Step::ChildSignal(self.label()),
            6 => Step::Race(self.label(), ms),
            7 => Step::GiveUpActivity(self.label(), ms),
            8 => Step::GiveUpWait(self.label(), ms),
            9 => Step::GiveUpChild(self.id(), ms),
            10 => Step::FanOut((0..2 + self.random.below(4)).map(|_| self.label()).collect()),
            11 | 12 if depth < 2 => Step::Join(
                (0..2 + self.random.below(2)).map(|_| self.steps(Nesting::Block, depth + 1)).collect(),
            ),
            13 if depth < 2 => Step::Child(None, self.child_steps(depth)),
            14 if depth < 2 => {
                let id = self.id();
                Step::Child(Some(id), self.child_steps(depth))
            }
            15 if depth < 2 => {
                let id = self.id();
                Step::Detached(id, self.child_steps(depth))
            }
            16 if nesting != Nesting::Block => Step::ContinueAsNew,
            17 if nesting != Nesting::Block => {
                Step::SetKv(format!("k{}", self.random.below(2)), self.label())
            }
            18 if nesting != Nesting::Block => Step::ReadKv(format!("k{}", self.random.below(2))),
            19 if nesting == Nesting::Root => Step::Dequeue,
            20 if nesting == Nesting::Root => Step::OutsideSignal(self.label()),
            _ => Step::Activity(self.label()),
        }
    }
}

impl Generator<'_> {
    /// A step that needs the extended contract.
    fn extended_step(&mut self, nesting: Nesting) -> Step {
        let label = self.label();
        match self.random.below(10) {
            0 | 1 => {
                let failures = self.random.below(4) as u32;
                Step::StoredRetry { label, failures, succeeds: self.random.below(3) > 0 }
            }
            2 => Step::Progress { label, parts: 1 + self.random.below(3) as u32 },
            3 => Step::Pending(label),
            4 => {
                // Programs share sessions.
                let session = format!("session{}", self.random.below(3));
                Step::Session(session, (0..1 + self.random.below(3)).map(|_| self.label()).collect())
            }
            5 => Step::Tagged(label),
            6 => Step::Urgent(label),
            7 => Step::Unbegun(label, 20 + self.random.below(40)),
            8 => Step::Undo(label),
            _ if nesting == Nesting::Root => Step::Reply(label),
            _ => Step::Tagged(label),
        }
    }
}

/// Counts the messages that a program takes from its queue.
pub fn messages(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Dequeue)).count()
}

/// The n-th message for a program, from 0.
pub fn message(n: usize) -> String {
    format!("m{n}")
}

/// Says how every instance that has a known id is to end, and how many activities are run at least.
#[derive(Default)]
pub struct Forecast {
    pub endings: BTreeMap<String, Ending>,
    pub activities: usize,
    /// By instance: the labels of the cleanups that have to be done.
    pub cleanups: BTreeMap<String, Vec<String>>,
}

impl Forecast {
    /// Interprets the program of an instance.
    pub fn add(&mut self, instance: &str, steps: &[Step]) -> Ending {
        let instance = instance.to_string();
        let mut run = Interpreter { instance: &instance, forecast: self, kv: BTreeMap::new(), messages: 0 };
        let mut seen = String::new();
        let mut ending = None;
        for step in steps {
            match run.step(step) {
                Ok(text) => seen.push_str(&format!("{text};")),
                Err(other) => {
                    ending = Some(other);
                    break;
                }
            }
        }
        let ending = ending.unwrap_or(Ending::Output(seen));
        self.endings.insert(instance, ending.clone());
        ending
    }

    fn add_child(&mut self, id: Option<&String>, steps: &[Step]) -> String {
        let ending = match id {
            Some(id) => self.add(id, steps),
            None => {
                let ending = self.add("generated", steps);
                self.endings.remove("generated");
                self.cleanups.remove("generated");
                ending
            }
        };
        match ending {
            Ending::Output(text) => result(Ok(text)),
            Ending::Failure(text) => result(Err(text)),
            Ending::Cancelled(reason) => result(Err(format!("canceled: {reason}"))),
        }
    }
}

struct Interpreter<'a> {
    instance: &'a str,
    forecast: &'a mut Forecast,
    kv: BTreeMap<String, String>,
    messages: usize,
}

impl Interpreter<'_> {
    fn step(&mut self, step: &Step) -> Result<String, Ending> {
        let ran = match step {
            Step::Activity(_)
            | Step::FailingActivity(_)
            | Step::OwnSignal(_)
            | Step::ChildSignal(_)
            | Step::RaiseTo { .. }
            | Step::Race(..)
            | Step::Pending(_)
            | Step::Tagged(_)
            | Step::Urgent(_) => 1,
            Step::StoredRetry { failures, .. } => *failures as usize + 1,
            Step::Progress { parts, .. } => *parts as usize,
            Step::Session(_, labels) => labels.len(),
            Step::Undo(_) => 3,
            Step::Retry { failures, attempts, .. } => (failures + 1).min(*attempts) as usize,
            Step::FanOut(labels) => labels.len(),
            _ => 0,
        };
        self.forecast.activities += ran;
        Ok(match step {
            Step::Activity(label) => result(Ok(worked(label))),
            Step::FailingActivity(label) => result(Err(broken(label))),
            Step::Retry { label, failures, attempts } if failures < attempts => result(Ok(worked(label))),
            Step::Retry { label, .. } => result(Err(broken(label))),
            Step::Timer(_) => "timer".into(),
            Step::OwnSignal(name) | Step::ChildSignal(name) | Step::OutsideSignal(name) => signal_data(name),
            Step::RaiseTo { .. } => "raised".into(),
            Step::Dequeue => {
                self.messages += 1;
                message(self.messages - 1)
            }
            Step::Child(id, steps) => self.forecast.add_child(id.as_ref(), steps),
            Step::Detached(id, steps) => {
                self.forecast.add(id, steps);
                "detached".into()
            }
            Step::SetKv(key, value) => {
                self.kv.insert(key.clone(), value.clone());
                "set".into()
            }
            Step::ReadKv(key) => format!("{key}={:?}", self.kv.get(key)),
            Step::Join(blocks) => {
                let mut texts = Vec::new();
                for block in blocks {
                    let steps: Result<Vec<String>, Ending> =
                        block.iter().map(|step| self.step(step)).collect();
                    texts.push(steps?.join(","));
                }
                format!("({})", texts.join("|"))
            }
            Step::FanOut(labels) => {
                labels.iter().map(|label| result(Ok(worked(label)))).collect::<Vec<_>>().join("+")
            }
            Step::Race(..) => "race".into(),
            Step::GiveUpActivity(..) | Step::GiveUpWait(..) => "gave up".into(),
            Step::GiveUpChild(id, _) => {
                // It may not even have begun, but it was recorded, so it is started and then cancelled.
                let reason = "parent dropped sub-orchestration future".to_string();
                self.forecast.endings.insert(id.clone(), Ending::Cancelled(reason));
                "gave up".into()
            }
            Step::ContinueAsNew => "continued".into(),
            Step::Fail(label) => return Err(Ending::Failure(label.clone())),
            Step::Never => return Err(Ending::Cancelled(String::new())),
            Step::AwaitCancel(child) => {
                if let Some(id) = child {
                    let ending = Ending::Cancelled("parent canceled".into());
                    self.forecast.endings.insert(id.clone(), ending);
                }
                return Err(Ending::Cancelled(CANCEL_REASON.into()));
            }
            Step::StoredRetry { label, succeeds: true, .. }
            | Step::Progress { label, .. }
            | Step::Pending(label)
            | Step::Tagged(label)
            | Step::Urgent(label) => result(Ok(worked(label))),
            Step::StoredRetry { label, .. } => result(Err(format!("{FINAL}{}", broken(label)))),
            Step::Session(_, labels) => {
                labels.iter().map(|label| result(Ok(worked(label)))).collect::<Vec<_>>().join("+")
            }
            Step::Unbegun(..) => result(Err(too_late("Work"))),
            Step::Undo(label) => {
                self.cleans_up(label);
                result(Err(broken(label)))
            }
            Step::Reply(label) => format!("replied {label}"),
            Step::CleanUp(label) => {
                self.cleans_up(label);
                return Err(Ending::Cancelled(CANCEL_REASON.into()));
            }
        })
    }
}

impl Interpreter<'_> {
    fn cleans_up(&mut self, label: &str) {
        let cleanups = self.forecast.cleanups.entry(self.instance.to_string()).or_default();
        cleanups.push(cleanup_of(label));
    }
}

/// The label of the activity that undoes another.
fn cleanup_of(label: &str) -> String {
    format!("undo {label}")
}

/// The error of an activity that nobody has begun in time.
fn too_late(activity: &str) -> String {
    format!("activity timed out: no worker began '{activity}' in time (schedule to start)")
}

pub fn worked(label: &str) -> String {
    format!("{label}!")
}

pub fn broken(label: &str) -> String {
    format!("{label} broke")
}

pub fn signal_data(name: &str) -> String {
    format!("data of {name}")
}

/// The input of an activity that needs several attempts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tries {
    pub label: String,
    pub failures: u32,
    pub succeeds: bool,
}

impl Tries {
    /// How the attempt ends of this number, from 1.
    pub fn outcome(&self, attempt: u32) -> Result<String, String> {
        match (attempt > self.failures, self.succeeds) {
            (false, _) => Err(broken(&self.label)),
            (true, true) => Ok(worked(&self.label)),
            (true, false) => Err(format!("{FINAL}{}", broken(&self.label))),
        }
    }
}

/// How many attempts an activity takes without faults.
pub fn needed_attempts(name: &str, input: &str) -> u64 {
    let tries = || serde_json::from_str(input).map_or(1, |tries: Tries| u64::from(tries.failures) + 1);
    if ["Tries", "Proceeds"].contains(&name) { tries() } else { 1 }
}

fn result(result: Result<String, String>) -> String {
    match result {
        Ok(text) => format!("<{text}>"),
        Err(text) => format!("error<{text}>"),
    }
}

/// The orchestration: runs the program that it gets as its input.
pub async fn run(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let Input { mut seen, steps } = serde_json::from_str(&input).map_err(|error| error.to_string())?;
    let mut steps = steps.into_iter();
    while let Some(step) = steps.next() {
        if let Step::ContinueAsNew = step {
            // Continue-as-new does not cancel a child that the code gives up in the same turn; here all shall end.
            ctx.schedule_timer(Duration::from_millis(1)).await;
            let next = Input { seen: format!("{seen}continued;"), steps: steps.collect() };
            return ctx.continue_as_new(serde_json::to_string(&next).unwrap()).await;
        }
        let text = take(&ctx, step).await?;
        seen.push_str(&format!("{text};"));
    }
    Ok(seen)
}

type Boxed = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// A block of steps. The box lets blocks stand in blocks.
fn block(ctx: OrchestrationContext, steps: Vec<Step>) -> Boxed {
    Box::pin(async move {
        let mut texts = Vec::new();
        for step in steps {
            texts.push(take(&ctx, step).await?);
        }
        Ok(texts.join(","))
    })
}

async fn take(ctx: &OrchestrationContext, step: Step) -> Result<String, String> {
    let timer = |ms| ctx.schedule_timer(Duration::from_millis(ms));
    let me = ctx.instance_id();
    Ok(match step {
        Step::Activity(label) => result(ctx.schedule_activity("Work", label).await),
        Step::FailingActivity(label) => result(ctx.schedule_activity("Break", label).await),
        Step::Retry { label, failures, attempts } => {
            let policy = RetryPolicy::new(attempts)
                .with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(5) });
            let input = serde_json::to_string(&(label, failures)).unwrap();
            result(ctx.schedule_activity_with_retry("Flaky", input, policy).await)
        }
        Step::Timer(ms) => {
            timer(ms).await;
            "timer".into()
        }
        Step::OwnSignal(name) => {
            let wait = ctx.schedule_wait(&name);
            let (data, raised) = ctx.join2(wait, raise(ctx, &me, &name)).await;
            raised?;
            data
        }
        Step::ChildSignal(name) => {
            let wait = ctx.schedule_wait(&name);
            let steps = Input::text(&[Step::RaiseTo { instance: me, name }]);
            let child = ctx.schedule_sub_orchestration(ORCHESTRATION, steps);
            let (data, raised) = ctx.join2(wait, child).await;
            raised?;
            data
        }
        Step::OutsideSignal(name) => {
            ctx.set_custom_status(format!("{SIGNAL_ME}{name}"));
            let data = ctx.schedule_wait(&name).await;
            ctx.reset_custom_status();
            data
        }
        Step::RaiseTo { instance, name } => {
            raise(ctx, &instance, &name).await?;
            "raised".into()
        }
        Step::Dequeue => ctx.dequeue_event(QUEUE).await,
        Step::Child(None, steps) => {
            result(ctx.schedule_sub_orchestration(ORCHESTRATION, Input::text(&steps)).await)
        }
        Step::Child(Some(id), steps) => {
            result(ctx.schedule_sub_orchestration_with_id(ORCHESTRATION, id, Input::text(&steps)).await)
        }
        Step::Detached(id, steps) => {
            ctx.schedule_orchestration(ORCHESTRATION, id, Input::text(&steps));
            "detached".into()
        }
        Step::SetKv(key, value) => {
            ctx.set_kv_value(key, value);
            "set".into()
        }
        Step::ReadKv(key) => format!("{key}={:?}", ctx.get_kv_value(&key)),
        Step::Join(blocks) => {
            let blocks = blocks.into_iter().map(|steps| block(ctx.clone(), steps)).collect();
            let texts: Result<Vec<String>, String> = ctx.join(blocks).await.into_iter().collect();
            format!("({})", texts?.join("|"))
        }
        Step::FanOut(labels) => {
            let activities = labels.into_iter().map(|label| ctx.schedule_activity("Work", label)).collect();
            ctx.join(activities).await.into_iter().map(result).collect::<Vec<_>>().join("+")
        }
        Step::Race(label, ms) => {
            ctx.select2(ctx.schedule_activity("Work", label), timer(ms)).await;
            "race".into()
        }
        Step::GiveUpActivity(label, ms) => {
            given_up(ctx.select2(ctx.schedule_activity("Hang", label), timer(ms)).await)
        }
        Step::GiveUpWait(name, ms) => given_up(ctx.select2(ctx.schedule_wait(name), timer(ms)).await),
        Step::GiveUpChild(id, ms) => {
            let steps = Input::text(&[Step::Never]);
            let child = ctx.schedule_sub_orchestration_with_id(ORCHESTRATION, id, steps);
            given_up(ctx.select2(child, timer(ms)).await)
        }
        Step::ContinueAsNew => return Err("a block cannot continue as new".into()),
        Step::Fail(label) => return Err(label),
        Step::Never => ctx.schedule_wait("never").await,
        Step::AwaitCancel(child) => {
            ctx.set_custom_status(CANCEL_ME);
            if let Some(id) = child {
                let steps = Input::text(&[Step::Never]);
                result(ctx.schedule_sub_orchestration_with_id(ORCHESTRATION, id, steps).await)
            } else {
                ctx.schedule_wait("never").await
            }
        }
        Step::StoredRetry { label, failures, succeeds } => {
            let input = serde_json::to_string(&Tries { label, failures, succeeds }).unwrap();
            result(ctx.schedule_activity("Tries", input).with_options(for_ever()).await)
        }
        Step::Progress { label, parts } => {
            let input = serde_json::to_string(&Tries { label, failures: parts - 1, succeeds: true }).unwrap();
            result(ctx.schedule_activity("Proceeds", input).with_options(for_ever()).await)
        }
        Step::Pending(label) => result(ctx.schedule_activity("Pends", label).await),
        Step::Session(session, labels) => {
            let on_session = |label| ctx.schedule_activity_on_session("Work", label, &session);
            let activities = labels.into_iter().map(on_session).collect();
            ctx.join(activities).await.into_iter().map(result).collect::<Vec<_>>().join("+")
        }
        Step::Tagged(label) => result(ctx.schedule_activity("Work", label).with_tag(TAG).await),
        Step::Urgent(label) => {
            let options = ActivityOptions::new().schedule_to_start(FOR_EVER);
            result(ctx.schedule_activity("Work", label).with_options(options).await)
        }
        Step::Unbegun(label, ms) => {
            let options = ActivityOptions::new().schedule_to_start(Duration::from_millis(ms));
            let work = ctx.schedule_activity("Work", label).with_tag(NOBODY).with_options(options);
            result(work.await)
        }
        Step::Undo(label) => result(undo(ctx, label).await),
        Step::Reply(label) => {
            ctx.set_custom_status(format!("{ASK_ME}{label}"));
            let request = ctx.request::<Question>().await;
            ctx.reset_custom_status();
            let asked = request.label.clone();
            request.reply(answer_to(&asked));
            format!("replied {asked}")
        }
        Step::CleanUp(label) => {
            ctx.saga(|saga| async move {
                saga.defer("Work", cleanup_of(&label));
                ctx.set_custom_status(CANCEL_ME);
                Ok::<_, String>(ctx.schedule_wait("never").await)
            })
            .await?
        }
    })
}

/// Attempts without end, as long as the error does not say that it is final.
fn for_ever() -> ActivityOptions {
    let retry = StoredRetry::forever().first_pause(PAUSE).longest_pause(4 * PAUSE).give_up_on(FINAL);
    ActivityOptions::new().retry(retry)
}

/// Does something, undoes it because the next step fails, and returns the error.
async fn undo(ctx: &OrchestrationContext, label: String) -> Result<String, String> {
    ctx.saga(|saga| async move {
        ctx.schedule_activity("Work", &label).await?;
        saga.defer("Work", cleanup_of(&label));
        ctx.schedule_activity("Break", &label).await
    })
    .await
}

async fn raise(ctx: &OrchestrationContext, instance: &str, name: &str) -> Result<String, String> {
    let input = serde_json::to_string(&(instance, name)).unwrap();
    ctx.schedule_activity("Raise", input).await
}

fn given_up<A: std::fmt::Debug>(winner: Either2<A, ()>) -> String {
    match winner {
        Either2::First(value) => format!("ended: {value:?}"),
        Either2::Second(()) => "gave up".into(),
    }
}
