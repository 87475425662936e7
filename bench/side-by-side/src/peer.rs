//! The workloads on another crate, which has an interface of its own: those that its programs can express. Prints one line of
//! JSON with the figures of the run, as `bench` does.
//!
//! A package of a peer links it from the registry and implements [`Peer`] by its documented interface.

#[allow(dead_code, reason = "a peer needs a part of it")]
mod args;
#[allow(dead_code, reason = "a peer needs a part of it")]
mod figures;
#[allow(dead_code, reason = "a peer needs a part of it")]
mod machine;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

pub use args::Args;
use figures::Figures;
use machine::CpuTime;
pub use machine::now_ms;

/// What can go wrong in a benchmark ends it.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Steps that have run in this process.
static STEPS_RUN: AtomicU64 = AtomicU64::new(0);
/// As in `bench`.
const FEW_STEPS: u64 = 5;
const STARTS_AT_ONCE: usize = 64;
const SLEEP_MS: u64 = 500;

/// What a step does: nothing.
pub fn nop() {
    STEPS_RUN.fetch_add(1, Ordering::Relaxed);
}

/// The programs that every peer has. Each takes a number and returns one.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    /// As many steps as its input says, one after the other.
    Chain,
    /// As many steps as its input says, all at once.
    Fanout,
    /// Sleeps for so many milliseconds; returns by how many it woke too late.
    Sleep,
}

/// The end of a program that was started.
pub type End = Pin<Box<dyn Future<Output = Outcome<u64>> + Send>>;

/// A durable engine on a store of its own.
pub trait Peer: Clone + Send + Sync + 'static {
    /// Opens a store and starts the engine; also returns the level at which commits are synced.
    fn open(args: &Args) -> impl Future<Output = Outcome<(Self, String)>> + Send;

    /// Starts a program. Returns when that is durable.
    fn start(&self, id: String, program: Program, input: u64) -> impl Future<Output = Outcome<End>> + Send;
}

pub fn main<P: Peer>() -> ExitCode {
    match run::<P>() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("side-by-side-{}: {error}", crate::shim::SIDE);
            ExitCode::FAILURE
        }
    }
}

fn run<P: Peer>() -> Outcome<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = threads.block_on(async {
        let (peer, sync) = P::open(&args).await?;
        let mut lab = Lab { peer, figures: Figures::new(&sync), deadline: Instant::now() + args.cap };
        lab.measure(&args).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(lab.figures)
    });
    // Stopping in order is not measured.
    threads.shutdown_background();
    println!("{}", result?.json(&args));
    Ok(())
}

struct Lab<P> {
    peer: P,
    figures: Figures,
    deadline: Instant,
}

impl<P: Peer> Lab<P> {
    async fn measure(&mut self, args: &Args) -> Outcome<()> {
        match args.workload.as_str() {
            "chain" => self.one(args, Program::Chain).await,
            "fanout" => self.one(args, Program::Fanout).await,
            "parallel" => self.parallel(args).await,
            "start" => self.starts(args).await,
            "timers" => self.timers(args).await,
            other => return Err(format!("a peer has no workload '{other}'").into()),
        }
        Ok(())
    }

    async fn one(&mut self, args: &Args, program: Program) {
        let watch = Watch::start(args);
        if let Some(end) = self.start("only", program, args.size).await {
            self.wait(end).await;
        }
        watch.stop(&mut self.figures);
    }

    async fn parallel(&mut self, args: &Args) {
        let watch = Watch::start(args);
        let started = self.start_all(Program::Chain, FEW_STEPS, args.size).await;
        let starting = watch.began.elapsed();
        for end in started {
            self.wait(end).await;
        }
        let elapsed = watch.began.elapsed();
        watch.stop(&mut self.figures);
        let done = self.figures.done() as f64;
        self.figures.set("per_s", done / elapsed.as_secs_f64());
        self.figures.set("starting_ms", starting.as_secs_f64() * 1e3);
        self.figures.set("peak_mb", machine::peak_memory_mb());
    }

    async fn starts(&mut self, args: &Args) {
        let mut samples = Vec::new();
        for number in 0..args.size {
            let began = Instant::now();
            let Some(end) = self.start(&format!("one-{number}"), Program::Chain, 1).await else { continue };
            if self.wait(end).await.is_some() {
                samples.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        self.figures.set_latencies(&samples);
    }

    async fn timers(&mut self, args: &Args) {
        let mut late = Vec::new();
        for end in self.start_all(Program::Sleep, SLEEP_MS, args.size).await {
            late.extend(self.wait(end).await.map(|late_ms| late_ms as f64));
        }
        self.figures.set_latencies(&late);
    }

    async fn start(&mut self, id: &str, program: Program, input: u64) -> Option<End> {
        match self.peer.start(id.to_string(), program, input).await {
            Ok(end) => Some(end),
            Err(error) => {
                self.figures.count_failed(&format!("start: {error}"));
                None
            }
        }
    }

    async fn start_all(&mut self, program: Program, input: u64, count: u64) -> Vec<End> {
        let permits = Arc::new(Semaphore::new(STARTS_AT_ONCE));
        let mut starts = JoinSet::new();
        for number in 0..count {
            let (peer, permits) = (self.peer.clone(), permits.clone());
            starts.spawn(async move {
                let _permit = permits.acquire_owned().await;
                peer.start(format!("many-{number}"), program, input).await
            });
        }
        let mut ends = Vec::new();
        while let Some(started) = starts.join_next().await {
            match started {
                Ok(Ok(end)) => ends.push(end),
                Ok(Err(error)) => self.figures.count_failed(&format!("start: {error}")),
                Err(error) => self.figures.count_failed(&error.to_string()),
            }
        }
        ends
    }

    /// Waits for the end of a program and counts it; `None` if it failed or the time is up.
    async fn wait(&mut self, end: End) -> Option<u64> {
        match timeout(self.deadline.saturating_duration_since(Instant::now()), end).await {
            Ok(Ok(output)) => {
                self.figures.count_done();
                Some(output)
            }
            Ok(Err(error)) => {
                self.figures.count_failed(&error.to_string());
                None
            }
            Err(_) => {
                self.figures.cap();
                None
            }
        }
    }
}

/// Time, processor time and commits from a moment on.
struct Watch<'run> {
    args: &'run Args,
    began: Instant,
    cpu: CpuTime,
    commits: u32,
}

impl<'run> Watch<'run> {
    fn start(args: &'run Args) -> Self {
        Self { args, cpu: CpuTime::read(), commits: machine::commits(&args.file), began: Instant::now() }
    }

    fn stop(&self, figures: &mut Figures) {
        let elapsed = self.began.elapsed();
        let steps = STEPS_RUN.load(Ordering::Relaxed).max(1) as f64;
        figures.set("ms", elapsed.as_secs_f64() * 1e3);
        figures.set("us_per_step", elapsed.as_secs_f64() * 1e6 / steps);
        figures.set("steps_run", steps);
        figures.set("cpu_us_per_step", CpuTime::read().since(&self.cpu) * 1e6 / steps);
        let commits = machine::commits(&self.args.file).wrapping_sub(self.commits);
        figures.set("commits_per_step", f64::from(commits) / steps);
    }
}
