//! `programs`: random orchestrations against an interpreter, with a crash after every commit and every activity delivered
//! twice, with and without instances that stay in memory, and on a store that offers no more than the plain contract.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{Provider, SystemClock};
use duroxide::runtime::Runtime;
use duroxide::testing::{TestEnv, TestEnvBuilder};
use duroxide::{
    ActivityContext, ActivityRegistry, Client, ClientError, EventKind, OrchestrationContext,
    OrchestrationRegistry, OrchestrationStatus, RuntimeOptions,
};

use super::{Harness, Tier};
use crate::checker::{Ended, Invariant, Run, Trace, Violation, check};
use crate::report::{Figures, Trial};
use crate::shared::program::{
    self, CANCEL_ME, CANCEL_REASON, Forecast, Generator, Input, ORCHESTRATION, QUEUE, SIGNAL_ME, Step,
    broken, message, messages, signal_data, worked,
};
use crate::shared::random::Random;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "programs",
    about: "random orchestrations against an interpreter, with a crash at every commit",
    trial,
    twins: &["counts-runs", "remembers"],
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
    let mut steps = Generator::new(&mut dice, "i").program();
    let is_plain = seed.is_multiple_of(PLAIN_EVERY) && twin.is_none();
    if !is_plain {
        steps = tame(steps, &mut 0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if is_plain { on_a_plain_store(steps).await } else { with_crashes(steps, seed, twin).await }
    })
}

/// What the test environment and the comparison of two runs can deal with: time passes only when nothing runs, so nothing
/// may run for ever; and a crash may change the order of what happens at once, by which generated ids count.
fn tame(steps: Vec<Step>, named: &mut u32) -> Vec<Step> {
    let mut tame_step = |step| match step {
        Step::GiveUpActivity(label, _) => Step::Activity(label),
        Step::ChildSignal(label) => Step::OwnSignal(label),
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
        TestEnv::builder()
            .orchestrations(code.clone())
            .activities(activities(&runs, counts_runs))
            .options(|options| options.resident_instances = if is_resident { 1_000 } else { 0 })
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
        let ended = env.run(Ended::read(&client, &*env.clock(), Duration::from_secs(30))).await.unwrap();
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

/// Runs a program without faults where the runtime can rely on nothing but the plain contract.
async fn on_a_plain_store(steps: Vec<Step>) -> Trial {
    let mut forecast = Forecast::default();
    forecast.add("i", &steps);
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let memory = Arc::new(MemoryProvider::new());
    let plain: Arc<dyn Provider> = Arc::new(plain::PlainStore::new(memory.clone()));
    let options = RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_millis(5),
        activity_cancellation_grace_period: Duration::from_millis(200),
        worker_lock_timeout: Duration::from_secs(1),
        ..RuntimeOptions::default()
    };
    let code = code(false);
    let runtime =
        Runtime::start_with_options(plain.clone(), activities(&runs, false), code.clone(), options).await;
    let client = Client::new(plain);
    client.start_orchestration("i", ORCHESTRATION, Input::text(&steps)).await.unwrap();
    let mut trace = Trace::default();
    trace.expect(&forecast);
    for data in (0..messages(&steps)).map(message) {
        client.enqueue_event("i", QUEUE, &data).await.unwrap();
        trace.note_sent("i", QUEUE, &data);
    }
    let reader = Client::new(memory);
    answer(&reader, &steps).await;
    for instance in forecast.endings.keys() {
        let _ = client.wait_for_orchestration(instance, SOON).await;
    }
    let ended = Ended::read(&reader, &SystemClock, Duration::from_secs(20)).await.unwrap();
    runtime.shutdown(Some(0)).await;
    runs.lock().unwrap().iter().cloned().for_each(|run| trace.note_run(run));
    Trial::new(check(&trace, &ended, &code), Figures::from([("programs", 1), ("on_a_plain_store", 1)]))
}

/// Answers the requests of a program, which come in the order of its steps.
async fn answer(client: &Client, steps: &[Step]) -> usize {
    let mut answered = 0;
    for step in steps {
        let request = match step {
            Step::OutsideSignal(name) => format!("{SIGNAL_ME}{name}"),
            Step::AwaitCancel(_) => CANCEL_ME.to_string(),
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
    ActivityRegistry::builder()
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

fn begin(runs: &Mutex<Vec<Run>>, ctx: &ActivityContext) {
    runs.lock().unwrap().push(Run {
        instance: ctx.instance_id().to_string(),
        execution: ctx.execution_id(),
        event: ctx.activity_id(),
        attempt: ctx.attempt(),
        began_ms: None,
    });
}

/// A store that offers the published contract and nothing more.
mod plain {
    use std::sync::Arc;

    use duroxide::providers::ProviderAdmin;
    use duroxide::providers::memory::MemoryProvider;

    use crate::forwarding::forwarding_provider;

    pub struct PlainStore {
        inner: Arc<MemoryProvider>,
    }

    impl PlainStore {
        pub fn new(inner: Arc<MemoryProvider>) -> Self {
            Self { inner }
        }
    }

    forwarding_provider! {
        PlainStore => inner;
        forwards: [
            fetch_orchestration_item, ack_orchestration_item, abandon_orchestration_item,
            renew_orchestration_item_lock, read, read_with_execution, append_with_execution, enqueue_for_worker,
            fetch_work_item, ack_work_item, renew_work_item_lock, abandon_work_item, renew_session_lock,
            cleanup_orphaned_sessions, enqueue_for_orchestrator, get_custom_status, get_kv_value, get_kv_all_values,
            get_instance_stats,
        ];

        // The programs' activities read histories.
        fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
            Some(&*self.inner)
        }
    }
}
