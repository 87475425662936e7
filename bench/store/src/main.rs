//! What the embedded store costs, and what it survives. `README.md` in the directory above says how to run each
//! program and what its figures mean.

mod args;
mod bare;
mod big_stores;
mod cpu;
mod fetch;
mod fsyncs;
mod kill9;
mod life;
mod limit;
mod listing;
mod load;
mod machine;
mod pages;
mod report;
mod stats;
mod steps;
mod subject;
mod survivors;

use args::Args;
use report::Report;

/// What can go wrong in a benchmark ends it.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "store-bench PROGRAM [--dir DIR] [--json] [options]

  steps    durable steps per second beside a bare SQLite loop
             --callers 1,8,64,256  --rounds 9  --seconds 1  --steps-per-instance 10
  fsyncs   syncs per operation
             --callers 64  --seconds 5  --steps-per-instance 10
  fetch    fetch latency on large stores beside an empty one
             --rounds 150  --samples 4  --scale 1.0  --only NAME,NAME
  kill9    SIGKILL in the middle of the load, and what is there afterwards
             --callers 64  --kills 20  --seed N  --self-test
  load     the load of `steps` on one file, alone, for profilers
             --callers 64  --seconds 10  --bare BATCH  --no-op
  limit    the fewest rows that could carry the promises, written by a bare loop
             --callers 1000  --steps-per-instance 5  --batch 60  --seconds 5
  listing  pages of a listing, first and deep, and the overview
             --size 1000000  --samples 5";

fn main() -> std::process::ExitCode {
    match run() {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("store-bench: {error}");
            std::process::ExitCode::from(2)
        }
    }
}

/// Runs the program that was asked for; `false` if a goal was missed.
fn run() -> Outcome<bool> {
    let args = Args::parse(std::env::args().skip(1))?;
    let report = match args.program.as_str() {
        "steps" => steps::run(&args)?,
        "fsyncs" => fsyncs::run(&args)?,
        "fetch" => fetch::run(&args)?,
        "kill9" => kill9::run(&args)?,
        "load" => fsyncs::run_load(&args)?,
        "limit" => limit::run(&args)?,
        "listing" => listing::run(&args)?,
        kill9::CHILD => return kill9::run_child(&args).map(|()| true),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return Ok(true);
        }
        other => return Err(format!("there is no program '{other}'\n{USAGE}").into()),
    };
    if args.flag("json") {
        println!("{}", report.json());
    }
    Ok(report.all_met())
}

/// Starts a report: in text it is printed as it grows.
fn new_report(args: &Args) -> Report {
    Report::new(&args.program, !args.flag("json"))
}

/// The runtime on which callers run: as many threads as the machine has cores.
fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_time().build()?)
}
