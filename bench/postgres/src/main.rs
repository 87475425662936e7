//! What the PostgreSQL store is measured against, and how it bears size. `README.md` in the directory above says how to
//! run each program and what its figures mean.

#[path = "../../store/src/args.rs"]
#[allow(dead_code, reason = "shared with the SQLite benchmark")]
mod args;
mod bare;
mod deletion;
mod faults;
mod fetch;
#[path = "../../store/src/life.rs"]
#[allow(dead_code, reason = "shared with the SQLite benchmark")]
mod life;
mod listing;
#[path = "../../store/src/pages.rs"]
mod pages;
mod place;
mod pruning;
#[path = "../../store/src/report.rs"]
mod report;
mod rows;
mod server;
mod size;
mod sleepers;
mod snapshot;
#[path = "../../store/src/stats.rs"]
#[allow(dead_code, reason = "shared with the SQLite benchmark")]
mod stats;
#[path = "../../store/src/subject.rs"]
mod subject;
mod wave;

use args::Args;
use report::Report;

/// What can go wrong in a benchmark ends it.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "postgres-bench PROGRAM [--dir DIR] [--json] [options]

  bare     the rows of durable steps by bare pipelined statements
             --batch 100  --seconds 5  --steps-per-instance 5  --callers 1000  --no-leases
  fetch    fetch latency on stores with sleeping timers beside an empty one
             --rounds 150  --samples 4  --scale 1.0
  pruning  the size of the tables while finished instances are deleted
             --size 1000000  --keep 10000
  size     the bytes of each table and index after orchestrations of five steps, kept and deleted
             --size 100000  --keep 10000
  snapshot fetch latency while somebody holds a snapshot, with dead rows of finished leases
             --rounds 150  --samples 4  --scale 1.0
  deletion bulk deletion by completion time, at the first and at the last page
             --size 2000000  --page 1000
  listing  pages of a listing, first and deep, and the overview
             --size 1000000  --samples 5
  faults   three worker processes under load while one fault after the other meets the database
             --minutes 60  --rate 20  --seed N  --phases NAME,NAME
  upgrade  workers of this build and of another on one schema, in both orders, with restarts of both
             --before CHECKOUT  --seconds 60  --rate 5  --seed N

The server is the one that BENCH_DATABASE_URL names, in schemas that are removed afterwards; or one that is started for
the program and thrown away.";

fn main() -> std::process::ExitCode {
    match run() {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("postgres-bench: {error}");
            std::process::ExitCode::from(2)
        }
    }
}

/// Runs the program that was asked for; `false` if a goal was missed.
fn run() -> Outcome<bool> {
    let args = Args::parse(std::env::args().skip(1))?;
    let mut report = Report::new(&args.program, !args.flag("json"));
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    threads.block_on(async {
        match args.program.as_str() {
            "bare" => bare::run(&args, &mut report).await,
            "fetch" => fetch::run(&args, &mut report).await,
            "pruning" => pruning::run(&args, &mut report).await,
            "size" => size::run(&args, &mut report).await,
            "snapshot" => snapshot::run(&args, &mut report).await,
            "deletion" => deletion::run(&args, &mut report).await,
            "listing" => listing::run(&args, &mut report).await,
            "faults" => faults::run(&args, &mut report).await,
            "upgrade" => faults::upgrade::run(&args, &mut report).await,
            faults::worker::PROGRAM => faults::worker::run(&args).await,
            "help" | "--help" | "-h" => {
                println!("{USAGE}");
                Ok(())
            }
            other => Err(format!("there is no program '{other}'\n{USAGE}").into()),
        }
    })?;
    if args.flag("json") {
        println!("{}", report.json());
    }
    Ok(report.all_met())
}
