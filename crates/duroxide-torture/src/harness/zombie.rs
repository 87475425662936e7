//! `zombie` and `zombie-pg`: worker processes, on a SQLite file or a PostgreSQL server, that are stopped (SIGSTOP) for longer
//! than their leases, while others take over, and go on (SIGCONT) as if nothing had happened. What they still want to write is
//! refused, and they work on.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, Provider, SystemClock, TagFilter};
use duroxide::runtime::Runtime;
use duroxide::{Client, OrchestrationRegistry, RuntimeOptions};
use tempfile::TempDir;

use super::broken_worker::{Break, BrokenStore};
use super::kill9::{Place, ledger, program_file};
use super::{Harness, Tier, refusals};
use crate::checker::{Ended, Invariant, Trace, Violation, check};
use crate::panics::Quiet;
use crate::report::{Figures, Report, Trial};
use crate::shared::program::{self, Forecast, Generator, Input, ORCHESTRATION, Step};
use crate::shared::random::Random;
use crate::shared::worker;

/// The harness.
pub const HARNESS: Harness = Harness {
    name: "zombie",
    about: "workers on a SQLite file, stopped for longer than their leases, and then going on",
    trial,
    twins: &["ignores-leases"],
    twin_trials: 2,
    ci: Tier { trials: 2, time_limit: Duration::from_secs(20) },
    nightly: Tier { trials: 250, time_limit: Duration::from_secs(60 * 60) },
    is_parallel: false,
};

/// The harness on a server.
pub const ON_A_SERVER: Harness = Harness {
    name: "zombie-pg",
    about: "workers on a PostgreSQL server, stopped for longer than their leases, and then going on",
    trial: on_a_server,
    ci: Tier { trials: 1, time_limit: Duration::from_secs(20) },
    ..HARNESS
};

/// The hidden subcommand of the workers.
pub const WORKER: &str = "worker-of-zombie";
const LEASE: Duration = Duration::from_secs(1);
const STOPS: usize = 4;
/// Everything ends so long after the last stop.
const LIVENESS_BOUND: Duration = Duration::from_secs(60);
const INSTANCES: usize = 40;
/// A run of so many trials must have seen the store refuse something.
const TELLING_TRIALS: u64 = 4;

/// The worker's side.
pub fn work(place: &str, ledger: &str, is_broken: bool) {
    let _quiet = is_broken.then(Quiet::begin);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        refusals::note_in(Path::new(ledger));
        let store = Place::parse(place).open(false).await;
        let store: Arc<dyn Provider> = match is_broken {
            true => Arc::new(BrokenStore::new(store, Break::IgnoresLeases)),
            false => store,
        };
        let options = RuntimeOptions {
            dispatcher_min_poll_interval: Duration::from_millis(5),
            worker_concurrency: 4,
            worker_lock_timeout: LEASE,
            orchestrator_lock_timeout: LEASE,
            max_attempts: 1_000,
            activity_cancellation_grace_period: Duration::from_millis(500),
            worker_tag_filter: TagFilter::default_and([program::TAG]),
            session_lock_timeout: LEASE,
            session_idle_timeout: Duration::from_secs(2),
            session_cleanup_interval: LEASE,
            ..RuntimeOptions::default()
        };
        let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
        let activities = worker::activities(Path::new(ledger), false);
        let runtime = Runtime::start_with_options(store, activities, code, options).await;
        let wait_for_the_end = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(wait_for_the_end).await.unwrap().unwrap();
        runtime.shutdown(None).await;
    });
}

/// Nobody answers requests here.
fn without_requests(step: Step) -> Step {
    match step {
        Step::OutsideSignal(label) | Step::Reply(label) => Step::Activity(label),
        Step::Dequeue | Step::AwaitCancel(_) | Step::CleanUp(_) => Step::Timer(3),
        step => step,
    }
}

fn trial(seed: u64, twin: Option<&str>) -> Trial {
    let files = TempDir::new().unwrap();
    run(seed, twin, &Place::File(files.path().join("store.db")))
}

fn on_a_server(seed: u64, twin: Option<&str>) -> Trial {
    run(seed, twin, &Place::on_a_server())
}

fn run(seed: u64, twin: Option<&str>, place: &Place) -> Trial {
    let mut dice = Random::new(seed);
    let files = TempDir::new().unwrap();
    let ledger_file = files.path().join("ledger");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = Client::new(runtime.block_on(place.open(false)));
    let mut forecast = Forecast::default();
    let mut workers: Vec<Zombie> = (0..2).map(|_| Zombie::spawn(place, &ledger_file, twin)).collect();
    for stop in 0..STOPS {
        let victim = &mut workers[stop % 2];
        // Work of its own for each stop, in the midst of which it comes.
        runtime.block_on(async {
            for n in 0..INSTANCES / STOPS {
                let instance = format!("i{stop}-{n}");
                let steps = Generator::extended(&mut dice, &instance).program();
                let steps: Vec<Step> = steps.into_iter().map(without_requests).collect();
                forecast.add(&instance, &steps);
                client.start_orchestration(&instance, ORCHESTRATION, Input::text(&steps)).await.unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(dice.below(60)));
        victim.send("-STOP");
        std::thread::sleep(LEASE + Duration::from_millis(300 + dice.below(700)));
        victim.send("-CONT");
    }
    // Of a twin, the rest of the time would tell nothing more.
    let bound = if twin.is_some() { Duration::from_secs(6) } else { LIVENESS_BOUND };
    let ended = runtime.block_on(async {
        let deadline = SystemClock.monotonic() + bound;
        for instance in forecast.endings.keys() {
            let left = deadline.saturating_sub(SystemClock.monotonic());
            let _ = client.wait_for_orchestration(instance, left).await;
        }
        Ended::read(&client, &SystemClock, bound / 3, async || place.leftovers().await).await.unwrap()
    });
    let alive = workers.iter_mut().map(Zombie::is_alive).filter(|is_alive| *is_alive).count();
    workers.into_iter().for_each(Zombie::kill);
    let mut trace = Trace::default();
    trace.expect(&forecast);
    let runs = ledger(&ledger_file);
    let again = runs.iter().filter(|run| run.attempt > 1).count();
    // A zombie notices only when it comes to write that its activity has ended elsewhere, so times say nothing here.
    for mut run in runs {
        run.began_ms = None;
        trace.note_run(run);
    }
    let code = OrchestrationRegistry::builder().register(program::ORCHESTRATION, program::run).build();
    let mut violations = check(&trace, &ended, &code);
    if alive < 2 {
        let what = "a worker that was stopped and let go on has died";
        violations.push(Violation::of_store(Invariant::LoudFailure, what));
    }
    let figures = Figures::from([
        ("stops", STOPS as u64),
        ("instances", ended.statuses.len() as u64),
        ("takeovers", again as u64),
        ("stale_writes_refused", refusals::count(&ledger_file)),
    ]);
    Trial::new(violations, figures)
}

/// A breach if in many trials no stopped worker was refused anything: then the stops have proven nothing.
pub fn unproven(name: &str, report: &Report) -> Option<Violation> {
    let is_one = [HARNESS.name, ON_A_SERVER.name].contains(&name);
    let refused = report.figures.get("stale_writes_refused").copied().unwrap_or(0);
    let what = "no stopped worker wanted to write anything after others had taken over";
    (is_one && report.trials >= TELLING_TRIALS && refused == 0)
        .then(|| Violation::of_store(Invariant::Fencing, what))
}

struct Zombie(Child);

impl Zombie {
    fn spawn(place: &Place, ledger: &Path, twin: Option<&str>) -> Self {
        let process = Command::new(program_file())
            .arg(WORKER)
            .arg(place.text())
            .arg(ledger)
            .args(twin)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(process.unwrap())
    }

    fn send(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success(), "kill {signal}");
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
