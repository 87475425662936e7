//! The commands, one a file.

pub mod cancel;
pub mod completions;
pub mod db;
pub mod delete;
pub mod doctor;
pub mod enqueue;
pub mod history;
pub mod list;
pub mod prune;
pub mod quarantine;
pub mod queues;
pub mod raise;
pub mod retry;
pub mod show;
pub mod start;
pub mod stats;
pub mod tree;
pub mod workers;

mod bulk;
mod events;
mod filters;
mod payloads;
mod targets;
mod waits;
mod watching;

use crate::arguments::{Arguments, Command, General};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::store::{Opening, Store};

/// Runs a command.
pub async fn run(arguments: &Arguments, output: &mut Output<'_>) -> Outcome {
    let general = &arguments.general;
    match &arguments.command {
        Command::List(list) => list.run(&open(general, output).await?, output).await,
        Command::Show(show) => show.run(&open(general, output).await?, output).await,
        Command::Tree(tree) => tree.run(&open(general, output).await?, output).await,
        Command::Start(start) => start.run(&open(general, output).await?, output).await,
        Command::Raise(raise) => raise.run(&open(general, output).await?, output).await,
        Command::Enqueue(enqueue) => enqueue.run(&open(general, output).await?, output).await,
        Command::Cancel(cancel) => cancel.run(&open(general, output).await?, output).await,
        Command::Retry(retry) => retry.run(&open(general, output).await?, output).await,
        Command::Delete(delete) => delete.run(&open(general, output).await?, output).await,
        Command::Prune(prune) => prune.run(&open(general, output).await?, output).await,
        Command::Stats(stats) => stats.run(&open(general, output).await?, output).await,
        Command::Queues(queues) => queues.run(&open(general, output).await?, output).await,
        Command::Workers(workers) => workers.run(&open(general, output).await?, output).await,
        Command::Quarantine(quarantine) => quarantine.run(&open(general, output).await?, output).await,
        Command::History(history) => history.run(&open(general, output).await?, output).await,
        Command::Db(db) => db.run(url(general)?, output).await,
        Command::Doctor(doctor) => doctor.run(&open(general, output).await?, output).await,
        Command::Serve(serve) => serve.run(open(general, output).await?, output).await,
        Command::Dev(dev) => dev.run(general, output).await,
        Command::DevWorker(worker) => worker.run(url(general)?).await,
        Command::Completions(completions) => completions.run(output),
    }
}

/// The URL of the store.
pub fn url(general: &General) -> Outcome<&str> {
    let missing = || {
        Failure::usage("which store?").hint(
            "say --db sqlite:app.db or --db postgres://user@host/database, or set DUROXIDE_DB; \
             `duroxide dev` brings its own",
        )
    };
    general.db.as_deref().filter(|url| !url.is_empty()).ok_or_else(missing)
}

async fn open(general: &General, output: &Output<'_>) -> Outcome<Store> {
    Store::open(url(general)?, Opening::AsItIs, &output.console.clock).await
}
