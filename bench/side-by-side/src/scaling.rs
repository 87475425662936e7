//! Several processes that share the work of one database.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use tokio::time::Instant;

use super::Outcome;
use super::args::Args;
use super::figures::Figures;
use super::lab::Lab;
use super::programs::FEW_STEPS;

/// The workload of a process that runs whatever is there.
pub const WORKER: &str = "scaling-worker";
const READY: &str = "ready";

/// How many orchestrations there are for each worker before the time begins, so that connections are made and statements
/// planned.
const WARM_UP: u64 = 50;

/// `size` orchestrations of five sequential activities, as in `parallel`, but this process only starts them and waits;
/// `--workers` others run them. The time begins when all of these have run some.
pub async fn run(args: &Args) -> Outcome<Figures> {
    let mut lab = Lab::open(args).await?;
    let workers = Workers::start(args)?;
    let warm_up = usize::try_from(WARM_UP * args.workers.max(1))?;
    let warm_up = lab.start_all("One", vec!["x".to_string(); warm_up]).await;
    lab.wait_all(&warm_up).await;
    let done_before = lab.figures.done();
    let began = Instant::now();
    let inputs = vec![FEW_STEPS.to_string(); usize::try_from(args.size)?];
    let started = lab.start_all("Chain", inputs).await;
    lab.wait_all(&started).await;
    let elapsed = began.elapsed();
    drop(workers);
    let done = (lab.figures.done() - done_before) as f64;
    lab.figures.set("ms", elapsed.as_secs_f64() * 1e3);
    lab.figures.set("per_s", done / elapsed.as_secs_f64());
    lab.figures.set("workers", args.workers as f64);
    Ok(lab.figures)
}

/// The life of a worker: it ends when its input does, which is when the process that started it ends.
pub async fn run_worker(args: &Args) -> Outcome<()> {
    let _lab = Lab::running(args).await?;
    println!("{READY}");
    let waiting = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    waiting.await??;
    Ok(())
}

/// Processes that end when this is dropped.
struct Workers(Vec<Child>);

impl Workers {
    /// Starts them and waits until each runs.
    fn start(args: &Args) -> Outcome<Self> {
        let mut workers = Self(Vec::new());
        for _ in 0..args.workers.max(1) {
            let worker = Command::new(std::env::current_exe()?)
                .arg(WORKER)
                .args(["--cap", &args.cap.as_secs().to_string(), "--sync", &args.sync])
                .arg("--file")
                .arg(&args.file)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            workers.0.push(worker);
        }
        for worker in &mut workers.0 {
            let output = worker.stdout.as_mut().ok_or("a worker has no output")?;
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line)?;
            if line.trim() != READY {
                return Err("a worker did not start".into());
            }
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}
