//! The arguments of the command line.

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    cancel, completions, db, delete, doctor, enqueue, history, list, prune, quarantine, queues, raise, retry,
    show, start, stats, tree, workers,
};
use crate::output::{Colours, Format};
use crate::{dev, serve};

const EXAMPLES: &str = "\
Examples:
  duroxide dev                                       see it all at work: samples, a worker, the dashboard
  duroxide --db sqlite:app.db list --status failed   what has failed
  duroxide --db sqlite:app.db show order-7           what it waits for, and why
  duroxide --db postgres://app@db/app serve          the dashboard

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 timed out";

/// Look at orchestrations and act on them
///
/// Works on any store by its URL, without the code of the application.
#[derive(Debug, Parser)]
#[command(name = "duroxide", version, after_help = EXAMPLES, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(flatten)]
    pub general: General,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct General {
    /// Store to work on: sqlite:FILE, postgres://USER@HOST/DATABASE, or a path
    #[arg(
        long,
        value_name = "URL",
        env = "DUROXIDE_DB",
        hide_env_values = true,
        global = true,
        help_heading = "General options"
    )]
    pub db: Option<String>,
    /// How to print data
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        global = true,
        help_heading = "General options",
        hide_possible_values = false
    )]
    pub output: Format,
    /// When to use colours
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        global = true,
        help_heading = "General options"
    )]
    pub color: Colours,
    /// Print data and errors only
    #[arg(short, long, global = true, help_heading = "General options")]
    pub quiet: bool,
    /// Show what the store logs; twice for more
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = "General options")]
    pub verbose: u8,
    /// Whether the URL comes from the environment: a demonstration must not take the store of an application.
    #[arg(skip)]
    pub is_db_from_environment: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List instances
    List(list::List),
    /// Show an instance: its state, what it waits for, its history
    Show(show::Show),
    /// Show an instance with its children
    Tree(tree::Tree),
    /// Start an orchestration
    Start(start::Start),
    /// Raise an event on an instance that waits for it
    Raise(raise::Raise),
    /// Put a message into a queue of an instance
    Enqueue(enqueue::Enqueue),
    /// Cancel instances
    Cancel(cancel::Cancel),
    /// Let blocked instances go on
    Retry(retry::Retry),
    /// Delete instances that have ended
    Delete(delete::Delete),
    /// Delete old executions and instances that ended long ago
    Prune(prune::Prune),
    /// Show totals and rates
    Stats(stats::Stats),
    /// Show queues: how much waits, and for how long
    Queues(queues::Queues),
    /// List workers that are alive
    Workers(workers::Workers),
    /// Look at rows that could not be decoded, and put them back or drop them
    #[command(subcommand)]
    Quarantine(quarantine::Quarantine),
    /// Export histories
    #[command(subcommand)]
    History(history::History),
    /// Check, migrate, back up and describe the database
    #[command(subcommand)]
    Db(db::Db),
    /// Serve the dashboard and metrics
    Serve(serve::Serve),
    /// See it all at work: a temporary store, samples, a worker, the dashboard
    Dev(dev::Dev),
    /// Look for what is stuck, old or growing
    Doctor(doctor::Doctor),
    /// Print completions for a shell
    Completions(completions::Completions),
    /// Run the worker of `duroxide dev`
    #[command(hide = true)]
    DevWorker(dev::DevWorker),
}
