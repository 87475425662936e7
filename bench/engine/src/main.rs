//! How the engine's costs grow: with the length of a history, with the number of orchestrations that a process has run,
//! and with the number of instances that sleep. `README.md` in the directory above says how to run each program.

mod calls;
mod cpu;
mod growth;
mod idle;
mod in_flight;
mod memory;
mod repeat;
mod rounds;
mod turn_check;
mod typed;
mod watched;
mod world;

/// What can go wrong in a benchmark ends it.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "engine-bench PROGRAM
  growth [STEPS]      cost of a step of a chain, early and late in its history (10,000 steps)
  memory [COUNT]      memory while COUNT typed orchestrations with 100 KB payloads run (20,000)
  idle [SLEEPERS]     what an idle runtime costs, empty and with SLEEPERS sleeping instances (100,000)
  in-flight [COUNT]   cost of a step with 500 and with COUNT orchestrations in flight, resident or not (10,000)
  typed [SIZE] [ROUNDS]
                      the typed interface beside names and strings: chain, parallel and fanout (2,000; 31 rounds)
  turn-check [SIZE] [ROUNDS]
                      chain and parallel without and with the turn check (2,000; 31 rounds)
  watched [COUNT]     COUNT orchestrations while a dashboard has the file open, and while nobody looks (2,000)
  repeat [RUNS] [WORKLOAD]
                      short runs of every workload, each on a new store, none of which may stop (100)";

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().unwrap_or_default();
    let count = arguments.next().map(|count| count.parse::<usize>()).transpose()?;
    world::print_settings()?;
    match program.as_str() {
        "growth" => growth::run(count.unwrap_or(10_000)).await,
        "memory" => memory::run(count.unwrap_or(20_000)).await,
        "repeat" => repeat::run(count.unwrap_or(100), arguments.next().as_deref()).await,
        "in-flight" => in_flight::run(count.unwrap_or(10_000)).await,
        "watched" => watched::run(count.unwrap_or(2_000)).await,
        "typed" => typed::run(count.unwrap_or(2_000), rounds(arguments)?).await,
        "turn-check" => turn_check::run(count.unwrap_or(2_000), rounds(arguments)?).await,
        "idle" => idle::run(count.unwrap_or(100_000)).await,
        _ => Err(USAGE.into()),
    }
}

/// How many rounds the last argument asks for.
fn rounds(mut arguments: impl Iterator<Item = String>) -> Outcome<usize> {
    Ok(arguments.next().map(|rounds| rounds.parse()).transpose()?.unwrap_or(31))
}
