//! A process is killed in the middle of its work, and another one takes over.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use duroxide::{Client, EventKind};
use tokio::time::Instant;

use super::Outcome;
use super::args::Args;
use super::figures::Figures;
use super::lab::Lab;
use super::programs::{FEW_STEPS, STEP_LOG};

/// The workload of the process that is killed.
pub const CHILD: &str = "recovery-child";
const LOOK: Duration = Duration::from_millis(1);

/// `size` orchestrations of five steps in a child that is killed when half of the steps have run. The time is from the
/// start of the next runtime to the end of the last instance.
pub async fn run(args: &Args) -> Outcome<Figures> {
    let log = step_log(&args.file);
    let killed_after = run_and_kill(args, &log)?;
    STEP_LOG.set(log.clone()).map_err(|_| "the step log is set twice")?;

    let mut lab = Lab::open(args).await?;
    let instances: Vec<String> = (0..args.size).map(|number| format!("LoggedSteps-{number}")).collect();
    let completed = completed_steps(&lab.client, &instances).await?;
    let before = read_steps(&log);
    let began = Instant::now();
    lab.start_runtime().await;
    lab.wait_all(&instances).await;
    let elapsed = began.elapsed();

    let all = read_steps(&log);
    let mut runs: HashMap<&str, u32> = HashMap::new();
    for step in &all {
        *runs.entry(step).or_default() += 1;
    }
    let again = all[before.len()..].iter().filter(|step| completed.contains(*step)).count();
    lab.figures.set("recovery_ms", elapsed.as_secs_f64() * 1e3);
    lab.figures.set("steps_before_kill", before.len() as f64);
    lab.figures.set("steps_run_twice", runs.values().filter(|count| **count > 1).count() as f64);
    lab.figures.set("completed_steps_run_again", again as f64);
    lab.figures.set("killed_after_ms", killed_after.as_secs_f64() * 1e3);
    Ok(lab.figures)
}

/// The life of the process that will be killed.
pub async fn run_child(args: &Args) -> Outcome<()> {
    STEP_LOG.set(step_log(&args.file)).map_err(|_| "the step log is set twice")?;
    let mut lab = Lab::open(args).await?;
    let inputs = (0..args.size).map(|number| number.to_string()).collect();
    // All are started before the first one runs, so that the kill finds every one of them in the store.
    let started = lab.start_all("LoggedSteps", inputs).await;
    lab.start_runtime().await;
    lab.wait_all(&started).await;
    Ok(())
}

/// Runs the child until half of the steps have run, or until it ends by itself.
fn run_and_kill(args: &Args, log: &Path) -> Outcome<Duration> {
    let began = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .args([
            "--size",
            &args.size.to_string(),
            "--cap",
            &args.cap.as_secs().to_string(),
            "--sync",
            &args.sync,
        ])
        .arg("--file")
        .arg(&args.file)
        .stdout(Stdio::null())
        .spawn()?;
    let half = args.size * FEW_STEPS / 2;
    while (read_steps(log).len() as u64) < half {
        if began.elapsed() > args.cap || child.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(LOOK);
    }
    // On Unix this is SIGKILL.
    child.kill()?;
    child.wait()?;
    Ok(began.elapsed())
}

/// Steps whose completion is in a history: these must never run again.
async fn completed_steps(client: &Client, instances: &[String]) -> Outcome<HashSet<String>> {
    let mut completed = HashSet::new();
    for instance in instances {
        for event in client.read_execution_history(instance, 1).await.unwrap_or_default() {
            if let EventKind::ActivityCompleted { result } = event.kind {
                completed.insert(result);
            }
        }
    }
    Ok(completed)
}

fn step_log(database: &Path) -> PathBuf {
    database.with_extension("steps")
}

fn read_steps(log: &Path) -> Vec<String> {
    fs::read_to_string(log).unwrap_or_default().lines().map(str::to_string).collect()
}
