//! The command line.

use std::path::PathBuf;

use crate::Outcome;
use crate::sides::Store;

pub const USAGE: &str = "side-by-side [options]

  --store NAME      sqlite, or postgres: on a server that is started for it and thrown away (sqlite)
  --quick           smaller sizes and one round: a try, not a measurement
  --rounds N        how often each workload runs on each side (3)
  --only A,B        only these workloads: chain, parallel, fanout, start, timers, events, children,
                    continue_as_new, payload, recovery, idle, syncs (sqlite), scaling (postgres), bare
  --against WHAT    durare or dbos (postgres): compares with that crate, from the registry, on the workloads that it
                    has: chain, parallel, fanout, start, timers. Or a directory: with another checkout of this
                    repository, built for it; --only parallel-10000 is a workload of this comparison only
  --json            the figures of every run as JSON instead of the table
  --svg PATH        also draws the table
  --dir DIR         where the databases go: a disk, not a tmpfs";

/// What ours is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Against {
    #[default]
    Published,
    /// Another checkout of this repository.
    Checkout(PathBuf),
    /// Another crate, whose package beside this one has this name.
    Peer(&'static str),
}

impl Against {
    fn parse(text: String) -> Self {
        match PEERS.iter().find(|peer| **peer == text) {
            Some(peer) => Self::Peer(peer),
            None => Self::Checkout(text.into()),
        }
    }

    /// What the table calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Checkout(_) => "before",
            Self::Peer(peer) => peer,
        }
    }
}

const PEERS: [&str; 2] = ["durare", "dbos"];

#[derive(Default)]
pub struct Args {
    pub store: Store,
    pub is_help: bool,
    pub is_quick: bool,
    pub is_json: bool,
    pub rounds: usize,
    pub only: Vec<String>,
    pub svg: Option<PathBuf>,
    pub dir: Option<PathBuf>,
    pub against: Against,
}

impl Args {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut args = Self::default();
        let mut rounds = None;
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
            match name.as_str() {
                "--store" => args.store = value()?.parse()?,
                "--quick" => args.is_quick = true,
                "--json" => args.is_json = true,
                "--rounds" => rounds = Some(value()?.parse()?),
                "--only" => args.only = value()?.split(',').map(|part| part.trim().to_string()).collect(),
                "--svg" => args.svg = Some(value()?.into()),
                "--against" => args.against = Against::parse(value()?),
                "--dir" => args.dir = Some(value()?.into()),
                "--help" | "-h" | "help" => args.is_help = true,
                other => return Err(format!("there is no option {other}\n{USAGE}").into()),
            }
        }
        args.rounds = rounds.unwrap_or(if args.is_quick { 1 } else { 3 }).max(1);
        Ok(args)
    }

    /// Tells whether a workload was asked for.
    pub fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload)
    }
}
