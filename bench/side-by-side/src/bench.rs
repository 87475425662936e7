//! One workload of the side-by-side benchmark on a fresh store, written against the interface that both crates
//! have. Prints one line of JSON with the figures of the run.

mod args;
mod figures;
mod lab;
mod machine;
mod programs;
mod recovery;
mod resting;
mod scaling;
mod throughput;
mod waiting;

use std::process::ExitCode;

use args::Args;
use figures::Figures;

/// What can go wrong in a benchmark ends it.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("side-by-side-{}: {error}", crate::shim::SIDE);
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = threads.block_on(measure(&args));
    // Stopping in order is not measured, and the published crate takes a second for it.
    threads.shutdown_background();
    if let Some(figures) = result? {
        println!("{}", figures.json(&args));
    }
    Ok(())
}

async fn measure(args: &Args) -> Outcome<Option<Figures>> {
    let figures = match args.workload.as_str() {
        "chain" => throughput::chain(args).await?,
        "parallel" => throughput::parallel(args).await?,
        "fanout" => throughput::fanout(args).await?,
        "children" => throughput::children(args).await?,
        "continue_as_new" => throughput::continue_as_new(args).await?,
        "payload" => throughput::payload(args).await?,
        "start" => waiting::start(args).await?,
        "events" => waiting::events(args).await?,
        "timers" => waiting::timers(args).await?,
        "timers-burst" => waiting::timers_until(args, 0).await?,
        "timers-spread" => waiting::timers_until(args, 1_000).await?,
        "recovery" => recovery::run(args).await?,
        "scaling" => scaling::run(args).await?,
        "idle" => resting::idle(args).await?,
        scaling::WORKER => {
            scaling::run_worker(args).await?;
            return Ok(None);
        }
        recovery::CHILD => {
            recovery::run_child(args).await?;
            return Ok(None);
        }
        other => return Err(format!("there is no workload '{other}'").into()),
    };
    Ok(Some(figures))
}
