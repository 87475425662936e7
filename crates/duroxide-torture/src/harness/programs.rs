//! `programs`: random orchestrations against an interpreter, with a crash after every commit and every activity delivered
//! twice, with and without instances that stay in memory; and on a store that offers no more than the plain contract, where
//! every runtime dies with its first commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{SystemClock, TagFilter};
use duroxide::runtime::Runtime;
use duroxide::testing::{TestEnv, TestEnvBuilder};
use duroxide::{
    ActivityContext, ActivityRegistry, Client, ClientError, EventKind, OrchestrationContext,
    OrchestrationRegistry, OrchestrationStatus, RuntimeOptions,
};

use super::broken_worker::{Break, BrokenStore};
use super::{Harness, Tier};
use crate::checker::{Ended, Invariant, Leftovers, Run, Trace, Violation, check};
use crate::report::{Figures, Trial};
use crate::shared::attempts::{self, Watcher};
use crate::shared::program::{
    self, ASK_ME, CANCEL_ME, CANCEL_REASON, Forecast, Generator, Input, ORCHESTRATION, QUEUE, Question,
    SIGNAL_ME, Step, answer_to, broken, message, messages, signal_data, worked,
};
use crate::shared::random::Random;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "programs",
    about: "random orchestrations against an interpreter, with a crash at every commit",
    trial,
    twins: &["counts-runs", "remembers", "forgets-activities"],
    twin_trials: 8,
    ci: Tier { trials: 100, time_limit: Duration::from_secs(30) },
    nightly: Tier { trials: 50_000, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: true,
};

/// One seed of so many runs on a store that offers only the plain contract, where time is the machine's.
const PLAIN_EVERY: u64 = 8;
const SOON: Duration = Duration::from_secs(60);

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let mut dice = Random::new(seed);
    let is_plain = seed.is_multiple_of(PLAIN_EVERY) && twin != Some("forgets-activities");
    let steps = match is_plain {
        true => Generator::new(&mut dice, "i").program(),
        false => tame(Generator::extended(&mut dice, "i").program(), &mut 0),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match twin {
            Some("forgets-activities") => on_a_broken_store(steps).await,
            twin if is_plain => on_a_plain_store(steps, seed, twin).await,
            twin => with_crashes(steps, seed, twin).await,
        }
    })
}

/// What the test environment and the comparison of two runs can deal with: time passes only when nothing runs, so nothing
/// may run for ever; and a crash may change the order of what happens at once, by which generated ids count.
fn tame(steps: Vec<Step>, named: &mut u32) -> Vec<Step> {
    let mut tame_step = |step| match step {
        Step::GiveUpActivity(label, _) => Step::Activity(label),
        Step::ChildSignal(label) => Step::OwnSignal(label),
        // What nobody takes counts as something that runs.
        Step::Unbegun(label, _) => Step::Tagged(label),
        Step::Child(id, steps) => {
            *named += 1;
            let id = id.unwrap_or_else(|| format!("i.child{named}"));
            Step::Child(Some(id), tame(steps, named))
        }
        Step::Detached(id, steps) => Step::Detached(id, tame(steps, named)),
        Step::Join(blocks) => Step::Join(blocks.into_iter().map(|block| tame(block, named)).collect()),
        step => step,
    };
    steps.into_iter().map(&mut tame_step).collect()
}

async fn with_crashes(steps: Vec<Step>, seed: u64, twin: Option<&str>) -> Trial {
    let found = Mutex::new(Vec::new());
    let mut forecast = Forecast::default();
    forecast.add("i", &steps);
    let code = code(twin == Some("remembers"));
    let is_resident = seed.is_multiple_of(2);
    let counts_runs = twin == Some("counts-runs");
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let environment = || -> TestEnvBuilder {
        runs.lock().unwrap().clear();
        TestEnv::builder().orchestrations(code.clone()).activities(activities(&runs, counts_runs)).options(
            |options| {
                options.resident_instances = if is_resident { 1_000 } else { 0 };
                options.worker_tag_filter = TagFilter::default_and([program::TAG]);
            },
        )
    };
    let crashed = duroxide::testing::crash_everywhere(environment, async |env: &TestEnv| {
        env.start("i", ORCHESTRATION, Input::text(&steps)).await;
        let client = env.client();
        for data in (0..messages(&steps)).map(message) {
            client.enqueue_event("i", QUEUE, data).await.unwrap();
        }
        let answered = env.run(answer(&client, &steps)).await;
        let mut ends = Vec::new();
        for instance in forecast.endings.keys() {
            ends.push(format!(
                "{:?}",
                env.end(instance).await.map(|status| crate::checker::ending_of(&status))
            ));
        }
        env.settle().await;
        let mut trace = Trace::default();
        trace.expect(&forecast);
        (0..messages(&steps)).for_each(|n| trace.note_sent("i", QUEUE, &message(n)));
        runs.lock().unwrap().iter().cloned().for_each(|run| trace.note_run(run));
        let ended = env
            .run(Ended::read(&client, &*env.clock(), Duration::from_secs(30), async || Leftovers::default()))
            .await
            .unwrap();
        found.lock().unwrap().extend(check(&trace, &ended, &code));
        (answered, ends)
    })
    .await;
    let mut violations = found.into_inner().unwrap();
    let mut figures = Figures::from([("programs", 1)]);
    match crashed {
        Ok(report) => {
            figures.insert("crashes", report.commits as u64);
            figures.insert("second_deliveries", report.repeated_activities as u64);
        }
        Err(finding) => violations.push(Violation::new(Invariant::RightAnswer, "i", finding.to_string())),
    }
    Trial::new(violations, figures)
}

/// Runs a program where the runtime can rely on nothing but the plain contract: every runtime dies after its first commit, and
/// another one takes over; of every other seed, it dies before it has stored the first result of each activity, too.
async fn on_a_plain_store(steps: Vec<Step>, seed: u64, twin: Option<&str>) -> Trial {
    let mut forecast = Forecast::default();
    forecast.add("i", &steps);
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let memory = Arc::new(MemoryProvider::new());
    let options = RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_millis(5),
        activity_cancellation_grace_period: Duration::from_millis(200),
        worker_lock_timeout: Duration::from_secs(1),
        max_attempts: 1_000,
        ..RuntimeOptions::default()
    };
    let code = code(twin == Some("remembers"));
    let client = Client::new(Arc::new(plain::PlainStore::new(memory.clone(), plain::Fate::Lives)));
    client.start_orchestration("i", ORCHESTRATION, Input::text(&steps)).await.unwrap();
    let mut trace = Trace::default();
    trace.expect(&forecast);
    for data in (0..messages(&steps)).map(message) {
        client.enqueue_event("i", QUEUE, &data).await.unwrap();
        trace.note_sent("i", QUEUE, &data);
    }
    let reader = Client::new(memory.clone());
    let lost: plain::Lost = Arc::default();
    let mut deaths = 0;
    let living = async {
        // A program that has taken so many commits has gone astray.
        for life in 0..MOST_LIVES {
            let fate = match life {
                ..MOST_DEATHS if (seed / PLAIN_EVERY).is_multiple_of(2) => plain::Fate::DiesAfterCommit,
                ..MOST_DEATHS => plain::Fate::DiesAtCommit(lost.clone()),
                _ => plain::Fate::Lives,
            };
            let store = Arc::new(plain::PlainStore::new(memory.clone(), fate));
            let activities = activities(&runs, twin == Some("counts-runs"));
            let runtime =
                Runtime::start_with_options(store.clone(), activities, code.clone(), options.clone()).await;
            store.died().await;
            deaths += 1;
            runtime.shutdown(Some(0)).await;
            // The store notices the death.
            memory.release_leases_of_the_dead(|_| true);
        }
    };
    let ending = async {
        answer(&reader, &steps).await;
        for instance in forecast.endings.keys() {
            let _ = client.wait_for_orchestration(instance, SOON).await;
        }
        let rows = async || Leftovers::of_dump(&memory.dump());
        Ended::read(&reader, &SystemClock, Duration::from_secs(20), rows).await.unwrap()
    };
    let ended = tokio::select! {
        ended = ending => ended,
        () = living => unreachable!("the last runtime lives"),
    };
    runs.lock().unwrap().iter().cloned().for_each(|run| trace.note_run(run));
    let figures =
        Figures::from([("programs", 1), ("on_a_plain_store", 1), ("deaths_on_a_plain_store", deaths)]);
    Trial::new(check(&trace, &ended, &code), figures)
}

/// Runs a program without faults on a store that forgets activities.
async fn on_a_broken_store(steps: Vec<Step>) -> Trial {
    // What a broken store has lost does not come, however long the harness waits.
    let soon = Duration::from_secs(2);
    let mut forecast = Forecast::default();
    forecast.add("i", &steps);
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let memory = Arc::new(MemoryProvider::new());
    let store = Arc::new(BrokenStore::new(memory.clone(), Break::ForgetsActivities));
    let options = RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_millis(5),
        activity_cancellation_grace_period: Duration::from_millis(200),
        worker_lock_timeout: Duration::from_secs(1),
        worker_tag_filter: TagFilter::default_and([program::TAG]),
        ..RuntimeOptions::default()
    };
    let code = code(false);
    let runtime =
        Runtime::start_with_options(store.clone(), activities(&runs, false), code.clone(), options).await;
    let client = Client::new(store);
    client.start_orchestration("i", ORCHESTRATION, Input::text(&steps)).await.unwrap();
    let mut trace = Trace::default();
    trace.expect(&forecast);
    for data in (0..messages(&steps)).map(message) {
        client.enqueue_event("i", QUEUE, &data).await.unwrap();
        trace.note_sent("i", QUEUE, &data);
    }
    let reader = Client::new(memory.clone());
    let _ = tokio::time::timeout(soon, answer(&reader, &steps)).await;
    for instance in forecast.endings.keys() {
        let _ = client.wait_for_orchestration(instance, soon).await;
    }
    let rows = async || Leftovers::of_dump(&memory.dump());
    let ended = Ended::read(&reader, &SystemClock, soon / 3, rows).await.unwrap();
    runtime.shutdown(Some(0)).await;
    runs.lock().unwrap().iter().cloned().for_each(|run| trace.note_run(run));
    Trial::new(check(&trace, &ended, &code), Figures::from([("programs", 1)]))
}

/// So many runtimes die, which is more than programs have commits; the one after them lives.
const MOST_DEATHS: usize = 300;
const MOST_LIVES: usize = MOST_DEATHS + 1;

/// Answers the requests of a program, which come in the order of its steps.
async fn answer(client: &Client, steps: &[Step]) -> usize {
    let mut answered = 0;
    for step in steps {
        let request = match step {
            Step::OutsideSignal(name) => format!("{SIGNAL_ME}{name}"),
            Step::AwaitCancel(_) | Step::CleanUp(_) => CANCEL_ME.to_string(),
            Step::Reply(label) => format!("{ASK_ME}{label}"),
            _ => continue,
        };
        let mut seen = 0;
        loop {
            let status = client.wait_for_status_change("i", seen, Duration::from_millis(5), SOON).await;
            match status {
                Ok(OrchestrationStatus::Running { custom_status, custom_status_version }) => {
                    seen = custom_status_version;
                    if custom_status.as_deref() == Some(&request) {
                        break;
                    }
                }
                _ => return answered,
            }
        }
        answered += 1;
        match step {
            Step::OutsideSignal(name) => client.raise_event("i", name, signal_data(name)).await.unwrap(),
            Step::Reply(label) => {
                let answer = client.ask("i", Question { label: label.clone() }).id(label).await.unwrap();
                assert_eq!(answer, answer_to(label));
            }
            _ => client.cancel_instance("i", CANCEL_REASON).await.unwrap(),
        }
    }
    answered
}

fn code(remembers: bool) -> OrchestrationRegistry {
    if !remembers {
        return OrchestrationRegistry::builder().register(ORCHESTRATION, program::run).build();
    }
    // A twin that decides by what its process has seen, and not by what is recorded.
    let begun = Arc::new(AtomicU64::new(0));
    let run = move |ctx: OrchestrationContext, input: String| {
        let begun = begun.clone();
        async move {
            if begun.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                ctx.schedule_timer(Duration::from_millis(1)).await;
            }
            program::run(ctx, input).await
        }
    };
    OrchestrationRegistry::builder().register(ORCHESTRATION, run).build()
}

/// The activities of the programs. Those that count their runs return something else the second time, as no activity
/// may that is delivered at least once.
pub(super) fn activities(runs: &Arc<Mutex<Vec<Run>>>, counts_runs: bool) -> ActivityRegistry {
    let [work, flaws, flaky, raise, hang] = std::array::from_fn(|_| runs.clone());
    let counted: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    attempts::register(ActivityRegistry::builder(), Arc::new(Runs(runs.clone())))
        .register("Work", move |ctx: ActivityContext, label: String| {
            begin(&work, &ctx);
            let times = {
                let mut counted = counted.lock().unwrap();
                let times = counted.entry(label.clone()).or_default();
                *times += 1;
                if counts_runs { *times } else { 1 }
            };
            async move { Ok(worked(&label).repeat(times)) }
        })
        .register("Break", move |ctx: ActivityContext, label: String| {
            begin(&flaws, &ctx);
            async move { Err(broken(&label)) }
        })
        .register("Flaky", move |ctx: ActivityContext, input: String| {
            begin(&flaky, &ctx);
            async move {
                let (label, failures): (String, usize) = serde_json::from_str(&input).unwrap();
                let client = ctx.get_client();
                let history = loop {
                    match client.read_execution_history(ctx.instance_id(), ctx.execution_id()).await {
                        Ok(history) => break history,
                        Err(error) => wait_after(&error).await,
                    }
                };
                let is_same = |kind: &EventKind| {
                    matches!(kind, EventKind::ActivityScheduled { name, input: other, .. } if name == "Flaky" && *other == input)
                };
                let earlier = history
                    .iter()
                    .filter(|event| event.event_id < ctx.activity_id() && is_same(&event.kind))
                    .count();
                if earlier < failures { Err(broken(&label)) } else { Ok(worked(&label)) }
            }
        })
        .register("Raise", move |ctx: ActivityContext, input: String| {
            begin(&raise, &ctx);
            async move {
                let (instance, name): (String, String) = serde_json::from_str(&input).unwrap();
                let client = ctx.get_client();
                // To raise a signal twice does no harm.
                while let Err(error) = client.raise_event(&instance, &name, signal_data(&name)).await {
                    wait_after(&error).await;
                }
                Ok(String::new())
            }
        })
        .register("Hang", move |ctx: ActivityContext, _: String| {
            begin(&hang, &ctx);
            async move {
                ctx.cancelled().await;
                Err("cancelled".into())
            }
        })
        .build()
}

/// Waits before a call is made again, if that makes sense.
async fn wait_after(error: &ClientError) {
    assert!(error.is_retryable(), "{error}");
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Notes which activities begin.
struct Runs(Arc<Mutex<Vec<Run>>>);

impl Watcher for Runs {
    fn begin(&self, ctx: &ActivityContext) {
        begin(&self.0, ctx);
    }
}

fn begin(runs: &Mutex<Vec<Run>>, ctx: &ActivityContext) {
    runs.lock().unwrap().push(Run {
        instance: ctx.instance_id().to_string(),
        execution: ctx.execution_id(),
        event: ctx.activity_id(),
        attempt: ctx.attempt(),
        began_ms: None,
    });
}

/// A store that offers the published contract and nothing more, and whose process dies at a certain point.
mod plain {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use duroxide::Event;
    use duroxide::providers::memory::MemoryProvider;
    use duroxide::providers::{
        ExecutionMetadata, ProviderAdmin, ProviderError, ScheduledActivityIdentifier, WorkItem,
    };
    use tokio::sync::Notify;

    use crate::forwarding::forwarding_provider;

    /// The activities whose first result was lost with a process.
    pub type Lost = Arc<Mutex<HashSet<String>>>;

    /// What becomes of the process.
    pub enum Fate {
        Lives,
        /// It dies when it has committed something.
        DiesAfterCommit,
        /// The same, and with the first result of each activity it dies before.
        DiesAtCommit(Lost),
    }

    pub struct PlainStore {
        inner: Arc<MemoryProvider>,
        fate: Fate,
        is_dead: AtomicBool,
        death: Notify,
    }

    impl PlainStore {
        pub fn new(inner: Arc<MemoryProvider>, fate: Fate) -> Self {
            Self { inner, fate, is_dead: AtomicBool::new(false), death: Notify::new() }
        }

        /// Waits for the death of the process.
        pub async fn died(&self) {
            self.death.notified().await;
        }

        /// A dead process reaches the store no more.
        fn alive(&self) -> Result<(), ProviderError> {
            match self.is_dead.load(Ordering::Acquire) {
                true => Err(ProviderError::retryable("call", "the process has died")),
                false => Ok(()),
            }
        }

        fn die(&self) {
            self.is_dead.store(true, Ordering::Release);
            self.death.notify_one();
        }

        fn has_committed(&self) {
            if !matches!(self.fate, Fate::Lives) {
                self.die();
            }
        }

        /// Tells whether the process dies before it stores this result.
        fn loses(&self, completion: Option<&WorkItem>) -> bool {
            let (
                Fate::DiesAtCommit(lost),
                Some(
                    WorkItem::ActivityCompleted { instance, execution_id, id, .. }
                    | WorkItem::ActivityFailed { instance, execution_id, id, .. },
                ),
            ) = (&self.fate, completion)
            else {
                return false;
            };
            lost.lock().unwrap().insert(format!("{instance} {execution_id} {id}"))
        }
    }

    forwarding_provider! {
        PlainStore => inner, first alive;
        forwards: [
            fetch_orchestration_item, abandon_orchestration_item, renew_orchestration_item_lock, read,
            read_with_execution, append_with_execution, enqueue_for_worker, fetch_work_item, renew_work_item_lock,
            abandon_work_item, renew_session_lock, cleanup_orphaned_sessions, enqueue_for_orchestrator,
            get_custom_status, get_kv_value, get_kv_all_values, get_instance_stats,
        ];

        async fn ack_orchestration_item(
            &self,
            lock_token: &str,
            execution_id: u64,
            history_delta: Vec<Event>,
            worker_items: Vec<WorkItem>,
            orchestrator_items: Vec<WorkItem>,
            metadata: ExecutionMetadata,
            cancelled: Vec<ScheduledActivityIdentifier>,
        ) -> Result<(), ProviderError> {
            self.alive()?;
            let stored = self.inner.ack_orchestration_item(
                lock_token,
                execution_id,
                history_delta,
                worker_items,
                orchestrator_items,
                metadata,
                cancelled,
            );
            stored.await?;
            self.has_committed();
            Ok(())
        }

        async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
            self.alive()?;
            if self.loses(completion.as_ref()) {
                self.die();
                return self.alive();
            }
            self.inner.ack_work_item(token, completion).await?;
            self.has_committed();
            Ok(())
        }

        // The programs' activities read histories.
        fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
            Some(&*self.inner)
        }
    }
}
