//! The process that the run kills: a runtime on the store, and activities that write down when they run.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, Provider, SystemClock, TagFilter};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, CompletionToken, EventKind, OrchestrationRegistry, RuntimeOptions};

use super::attempts::{self, Watcher};
use super::program::{self, broken, signal_data, worked};

/// Runs until its standard input closes, or until the run kills it.
pub async fn work(store: Arc<dyn Provider>, ledger: &Path, round: usize, announces: bool) {
    let options = RuntimeOptions {
        worker_concurrency: 8,
        activity_cancellation_grace_period: Duration::from_secs(1),
        // Being killed is not the message's fault.
        max_attempts: 1_000,
        resident_instances: if round % 3 == 2 { 0 } else { 1_000 },
        check_residents: round % 3 == 1,
        worker_tag_filter: TagFilter::default_and([program::TAG]),
        session_lock_timeout: Duration::from_secs(2),
        // Sessions go soon, so that the run can see that they do.
        worker_lock_renewal_buffer: Duration::from_secs(29),
        session_idle_timeout: Duration::from_secs(2),
        session_cleanup_interval: Duration::from_secs(1),
        ..Default::default()
    };
    let orchestrations =
        OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
    let runtime =
        Runtime::start_with_options(store, activities(ledger, announces), orchestrations, options).await;
    let wait_for_the_end = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(wait_for_the_end).await.unwrap().unwrap();
    runtime.shutdown(None).await;
}

/// The activities; `announces` says whether somebody reads the ledger and completes those that wait for that.
pub fn activities(ledger: &Path, announces: bool) -> ActivityRegistry {
    let file = Arc::new(OpenOptions::new().create(true).append(true).open(ledger).unwrap());
    let [work, flaws, flaky, raise, hang, others] =
        std::array::from_fn(|_| Ledger { file: file.clone(), announces });
    attempts::register(ActivityRegistry::builder(), Arc::new(others))
        .register("Work", move |ctx: ActivityContext, label: String| {
            let ledger = work.clone();
            async move {
                ledger.begin(&ctx);
                tokio::task::yield_now().await;
                ledger.end(&ctx);
                Ok(worked(&label))
            }
        })
        .register("Break", move |ctx: ActivityContext, label: String| {
            let ledger = flaws.clone();
            async move {
                ledger.begin(&ctx);
                ledger.end(&ctx);
                Err(broken(&label))
            }
        })
        .register("Flaky", move |ctx: ActivityContext, input: String| {
            let ledger = flaky.clone();
            async move {
                ledger.begin(&ctx);
                let (label, failures): (String, usize) = serde_json::from_str(&input).unwrap();
                let earlier = earlier_requests(&ctx, &input).await;
                ledger.end(&ctx);
                if earlier < failures { Err(broken(&label)) } else { Ok(worked(&label)) }
            }
        })
        .register("Raise", move |ctx: ActivityContext, input: String| {
            let ledger = raise.clone();
            async move {
                ledger.begin(&ctx);
                let (instance, name): (String, String) = serde_json::from_str(&input).unwrap();
                let data = signal_data(&name);
                ctx.get_client()
                    .raise_event(instance, name, data)
                    .await
                    .map_err(|error| error.to_string())?;
                ledger.end(&ctx);
                Ok(String::new())
            }
        })
        .register("Hang", move |ctx: ActivityContext, _: String| {
            let ledger = hang.clone();
            async move {
                ledger.begin(&ctx);
                ctx.cancelled().await;
                ledger.end(&ctx);
                Err("cancelled".into())
            }
        })
        .build()
}

/// How often this execution had requested the same before; decided by the history, so that every run of this step
/// comes to the same answer.
async fn earlier_requests(ctx: &ActivityContext, own_input: &str) -> usize {
    let client = ctx.get_client();
    let history = client.read_execution_history(ctx.instance_id(), ctx.execution_id()).await.unwrap();
    let is_same = |kind: &EventKind| matches!(kind, EventKind::ActivityScheduled { name, input, .. } if name == "Flaky" && input == own_input);
    history.iter().filter(|event| event.event_id < ctx.activity_id() && is_same(&event.kind)).count()
}

/// The activities' own record of their runs, in a file apart from the store.
#[derive(Clone)]
struct Ledger {
    file: Arc<File>,
    /// Whether somebody who reads it completes activities.
    announces: bool,
}

impl Watcher for Ledger {
    fn begin(&self, ctx: &ActivityContext) {
        Ledger::begin(self, ctx);
    }

    fn announce(&self, token: &CompletionToken, label: &str) -> bool {
        if !self.announces {
            return false;
        }
        (&*self.file).write_all(format!("pends {token} {label}\n").as_bytes()).unwrap();
        true
    }
}

impl Ledger {
    fn begin(&self, ctx: &ActivityContext) {
        self.write("begin", ctx);
    }

    fn end(&self, ctx: &ActivityContext) {
        self.write("end", ctx);
    }

    fn write(&self, what: &str, ctx: &ActivityContext) {
        let (instance, execution) = (ctx.instance_id(), ctx.execution_id());
        let (id, attempt) = (ctx.activity_id(), ctx.attempt());
        let line = format!("{what} {} {instance} {execution} {id} {attempt}\n", SystemClock.now_ms());
        // One write for a line, so that a kill leaves no half of it.
        (&*self.file).write_all(line.as_bytes()).unwrap();
        // Tells the other process that there is progress.
        let _ = std::io::stdout().write_all(b"\n");
    }
}
