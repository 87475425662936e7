//! Workloads that are about how much gets done.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::args::Args;
use super::figures::Figures;
use super::lab::Lab;
use super::machine::{CpuTime, commits, peak_memory_mb};
use super::programs::{ACTIVITIES_RUN, FEW_STEPS};
use super::{Outcome, machine};

/// One orchestration of `size` sequential activities.
pub async fn chain(args: &Args) -> Outcome<Figures> {
    one_instance(args, "Chain").await
}

/// One orchestration that joins `size` activities.
pub async fn fanout(args: &Args) -> Outcome<Figures> {
    one_instance(args, "Fanout").await
}

/// One orchestration that joins `size` children of one activity each.
pub async fn children(args: &Args) -> Outcome<Figures> {
    one_instance(args, "Parent").await
}

/// `size` executions of one activity each, one after the other.
pub async fn continue_as_new(args: &Args) -> Outcome<Figures> {
    one_instance(args, "Again").await
}

/// One orchestration of `size` sequential activities that return 64 KiB each.
pub async fn payload(args: &Args) -> Outcome<Figures> {
    one_instance(args, "Payload").await
}

/// Runs one instance of as many activities as the size says. If the time is up before, what was done counts.
async fn one_instance(args: &Args, name: &str) -> Outcome<Figures> {
    let mut lab = Lab::running(args).await?;
    let watch = Watch::start(args);
    if lab.start("only", name, args.size.to_string()).await {
        lab.wait("only").await;
    }
    let steps = ACTIVITIES_RUN.load(Ordering::Relaxed);
    watch.stop(&mut lab.figures, steps);
    Ok(lab.figures)
}

/// `size` orchestrations of five sequential activities, started together.
pub async fn parallel(args: &Args) -> Outcome<Figures> {
    let mut lab = Lab::running(args).await?;
    let watch = Watch::start(args);
    let inputs = vec![FEW_STEPS.to_string(); usize::try_from(args.size)?];
    let started = lab.start_all("Chain", inputs).await;
    let starting = watch.began.elapsed();
    lab.wait_all(&started).await;
    let elapsed = watch.began.elapsed();
    watch.stop(&mut lab.figures, ACTIVITIES_RUN.load(Ordering::Relaxed));
    let done = lab.figures.done() as f64;
    lab.figures.set("per_s", done / elapsed.as_secs_f64());
    lab.figures.set("starting_ms", in_ms(starting));
    lab.figures.set("peak_mb", peak_memory_mb());
    Ok(lab.figures)
}

fn in_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
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
        Self { args, cpu: CpuTime::read(), commits: commits(&args.file), began: Instant::now() }
    }

    fn stop(&self, figures: &mut Figures, steps: u64) {
        let elapsed = self.began.elapsed();
        let steps = steps.max(1) as f64;
        figures.set("ms", in_ms(elapsed));
        figures.set("us_per_step", elapsed.as_secs_f64() * 1e6 / steps);
        figures.set("steps_run", steps);
        figures.set("cpu_us_per_step", CpuTime::read().since(&self.cpu) * 1e6 / steps);
        let commits = machine::commits(&self.args.file).wrapping_sub(self.commits);
        figures.set("commits_per_step", f64::from(commits) / steps);
    }
}
