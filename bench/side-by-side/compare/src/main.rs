//! The same workloads on this repository's crate and on the published one, run in turn on the same machine and
//! compared. `README.md` two directories above says what each workload does.

mod args;
mod bare;
mod chart;
mod database;
mod machine;
mod plan;
mod report;
mod run;
#[path = "../../../postgres/src/server.rs"]
mod server;
mod sides;
mod table;

use std::process::ExitCode;

use args::Args;
use database::Postgres;
use report::Report;
use run::Runs;
use sides::{Programs, Store};

/// What can go wrong ends the comparison.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("side-by-side: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Outcome<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    if args.is_help {
        println!("{}", args::USAGE);
        return Ok(());
    }
    let cases = plan::cases(&args)?;
    let programs = Programs::build(args.store, &args.against)?;
    let dir = machine::WorkDir::new(args.dir.as_deref())?;
    let server = match args.store {
        Store::Sqlite => None,
        Store::Postgres => Some(Postgres::start(dir.path())?),
    };
    let mut runs = Runs::new(&programs, &dir, server);
    for round in 0..args.rounds {
        runs.round(round, &cases)?;
        if args.wants("bare") {
            runs.add_bare_limit();
        }
    }
    let report = Report::new(&args, &cases, runs.finish()?);
    if args.is_json {
        println!("{}", report.json());
    } else {
        println!("{}", table::text(&report));
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, chart::svg(&report))?;
    }
    Ok(())
}
