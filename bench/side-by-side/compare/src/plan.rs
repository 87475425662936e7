//! Which workloads run, how large, on which side, and which of their figures are compared.

use crate::Outcome;
use crate::args::{Against, Args};
use crate::sides::{Side, Store};

/// One workload of one size.
pub struct Case {
    /// What `--only` calls it.
    pub group: &'static str,
    pub workload: &'static str,
    pub size: u64,
    /// The durability that our side is asked for.
    pub sync: &'static str,
    /// Processes that do the work, where there are several; otherwise 0.
    pub workers: u64,
    pub sides: &'static [Side],
    /// Slow ones run once, whatever the number of rounds.
    pub is_once: bool,
    pub cap_s: u64,
    pub figures: &'static [Figure],
}

/// One compared figure of a workload.
pub struct Figure {
    pub name: &'static str,
    pub label: &'static str,
    pub unit: &'static str,
    pub better: Better,
    /// Whether it is a time that syncs are a part of.
    pub in_syncs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
}

const BOTH: &[Side] = &[Side::Other, Side::Ours];
const OURS: &[Side] = &[Side::Ours];

const fn lower(name: &'static str, label: &'static str, unit: &'static str) -> Figure {
    Figure { name, label, unit, better: Better::Lower, in_syncs: false }
}

const fn time(name: &'static str, label: &'static str, unit: &'static str) -> Figure {
    Figure { name, label, unit, better: Better::Lower, in_syncs: true }
}

const PER_STEP: &[Figure] = &[time("us_per_step", "per step", "us")];
const CHAIN: &[Figure] =
    &[time("us_per_step", "per step", "us"), lower("commits_per_step", "commits per step", "")];
const THROUGHPUT: Figure =
    Figure { name: "per_s", label: "throughput", unit: "/s", better: Better::Higher, in_syncs: false };
const PARALLEL: &[Figure] = &[
    THROUGHPUT,
    lower("cpu_us_per_step", "CPU per step", "us"),
    lower("commits_per_step", "commits per step", ""),
    lower("peak_mb", "peak memory", "MB"),
];
/// On a server there is more to count.
const PG_CHAIN: &[Figure] = &[time("us_per_step", "per step", "us"), SERVER_CPU, TRANSACTIONS, LOG_SYNCS];
const PG_PARALLEL: &[Figure] = &[
    THROUGHPUT,
    lower("cpu_us_per_step", "CPU per step", "us"),
    SERVER_CPU,
    TRANSACTIONS,
    LOG_SYNCS,
    lower("peak_mb", "peak memory", "MB"),
];
const SERVER_CPU: Figure = lower("server_cpu_us_per_step", "server's CPU per step", "us");
const TRANSACTIONS: Figure = lower("commits_per_step", "transactions per step", "");
const LOG_SYNCS: Figure = lower("syncs_per_step", "log syncs per step", "");
const SCALING: &[Figure] = &[THROUGHPUT];
const LATENCY: &[Figure] = &[time("p50_ms", "p50", "ms"), time("p99_ms", "p99", "ms")];
const LATENESS: &[Figure] = &[lower("p50_ms", "late p50", "ms"), lower("p99_ms", "late p99", "ms")];
const RECOVERY: &[Figure] = &[
    lower("recovery_ms", "until all done", "ms"),
    lower("steps_run_twice", "steps run twice", ""),
    lower("completed_steps_run_again", "completed steps run again", ""),
];
const IDLE: &[Figure] = &[lower("cpu_percent", "CPU", "% of a core")];
const SYNCS: &[Figure] = &[lower("syncs_per_step", "syncs per step", "")];

/// The workloads that other crates have, too.
const PEER_WORKLOADS: [&str; 5] = ["chain", "parallel", "fanout", "start", "timers"];

/// The group of cases that count syncs.
pub const SYNCS_GROUP: &str = "syncs";

/// The group of cases with several processes on one database.
pub const SCALING_GROUP: &str = "scaling";

/// The published crate replays and re-reads everything on every turn, so large sizes run on our side only.
pub fn cases(args: &Args) -> Outcome<Vec<Case>> {
    let case = |group, workload, size, figures| Case {
        group,
        workload,
        size,
        sync: "full",
        workers: 0,
        sides: BOTH,
        is_once: false,
        cap_s: 60,
        figures,
    };
    let normal = |size| Case { sync: "normal", sides: OURS, ..case("chain", "chain", size, CHAIN) };
    let once = |case: Case, cap_s| Case { is_once: true, cap_s, ..case };
    let quick = args.is_quick;
    let smaller = |full: u64, small: u64| if quick { small } else { full };

    // A step of `children` is a child, and one of `continue_as_new` an execution.
    let (chain, parallel, executions) = match args.store {
        Store::Sqlite => (CHAIN, PARALLEL, CHAIN),
        Store::Postgres => (PG_CHAIN, PG_PARALLEL, PG_CHAIN),
    };

    let mut all = vec![case("chain", "chain", 10, chain), case("chain", "chain", 100, chain), normal(100)];
    if !quick {
        all.push(once(case("chain", "chain", 1_000, chain), 300));
        all.push(normal(1_000));
        all.push(Case { sides: OURS, ..once(case("chain", "chain", 10_000, chain), 300) });
        all.push(once(normal(10_000), 300));
    }
    all.push(Case { cap_s: 120, ..case("parallel", "parallel", smaller(1_000, 200), parallel) });
    all.push(Case { cap_s: 120, ..case("fanout", "fanout", smaller(1_000, 200), PER_STEP) });
    if !quick {
        all.push(Case { sides: OURS, ..case("fanout", "fanout", 10_000, PER_STEP) });
    }
    all.push(case("start", "start", smaller(100, 30), LATENCY));
    let timers = smaller(1_000, 200);
    all.push(case("timers", "timers", timers, LATENESS));
    all.push(case("timers", "timers-burst", timers, LATENESS));
    all.push(case("timers", "timers-spread", timers, LATENESS));
    all.push(case("events", "events", smaller(100, 30), LATENCY));
    all.push(case("children", "children", smaller(200, 50), executions));
    all.push(case("continue_as_new", "continue_as_new", smaller(100, 30), executions));
    all.push(case("payload", "payload", smaller(50, 20), PER_STEP));
    all.push(once(case("recovery", "recovery", smaller(100, 50), RECOVERY), 120));
    all.push(case("idle", "idle", 0, IDLE));
    all.push(once(case("idle", "idle", smaller(10_000, 500), IDLE), 240));
    all.push(once(case(SYNCS_GROUP, "chain", smaller(100, 30), SYNCS), 60));

    if let Against::Checkout(_) = args.against {
        // Both sides are ours, so neither is spared, and every round counts.
        for case in &mut all {
            case.sides = BOTH;
            case.is_once = false;
        }
        all.push(Case { cap_s: 240, ..case("parallel-10000", "parallel", 10_000, parallel) });
    }
    if let Against::Peer(_) = args.against {
        // What a peer's programs can express.
        all.retain(|case| PEER_WORKLOADS.contains(&case.workload) && case.group != SYNCS_GROUP);
        // A peer is about as fast as we are, so every round counts.
        for case in &mut all {
            case.sides = BOTH;
            case.is_once = false;
        }
    }
    match args.store {
        Store::Sqlite => {}
        Store::Postgres if matches!(args.against, Against::Peer(_)) => all.retain(|case| case.sync == "full"),
        Store::Postgres => {
            // The server syncs every commit, and in a process of its own.
            all.retain(|case| case.sync == "full" && case.group != SYNCS_GROUP);
            let size = smaller(1_000, 200);
            all.extend([1, 2, 4].map(|workers| Case {
                workers,
                sides: OURS,
                cap_s: 120,
                ..case(SCALING_GROUP, "scaling", size, SCALING)
            }));
        }
    }

    let known = |name: &String| name == "bare" || all.iter().any(|case| case.group == name);
    if let Some(unknown) = args.only.iter().find(|name| !known(name)) {
        return Err(format!("there is no workload '{unknown}'").into());
    }
    Ok(all.into_iter().filter(|case| args.wants(case.group)).collect())
}

impl Case {
    /// What the table calls it.
    pub fn label(&self) -> String {
        let sync = if self.sync == "full" { "" } else { " (normal)" };
        match (self.workload, self.size) {
            (workload, size) if self.group == SYNCS_GROUP => {
                format!("{workload} {} (strace)", thousands(size))
            }
            (workload, size) if self.workers > 0 => {
                let plural = if self.workers == 1 { "" } else { "s" };
                format!("{workload} {}, {} worker{plural}", thousands(size), self.workers)
            }
            ("idle", 0) => "idle, empty".to_string(),
            ("idle", size) => format!("idle, {} sleepers", thousands(size)),
            (workload, size) => format!("{workload} {}{sync}", thousands(size)),
        }
    }
}

/// A number with commas.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
