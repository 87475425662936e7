//! `duroxide doctor`

use clap::Args;
use duroxide::InstanceState;
use duroxide::model::{QueuedActivity, WorkerInfo};
use duroxide::providers::sqlite::{IntegrityCheck, SqliteProvider};
use duroxide::providers::{InstanceQuery, ListSort, QueueState};
use duroxide_pg::PostgresProvider;
use serde::Serialize;

use super::filters::AllRows;
use crate::failure::{Failure, Outcome};
use crate::output::{Look, Output, Paint, counted, duration, grouped, printable, size, width};
use crate::store::{Store, StoreKind};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const MIB: u64 = 1024 * 1024;

/// Work that is ready for so long is old.
const OLD_MS: u64 = MINUTE;
/// An instance that could take a turn and took none for so long is stuck.
const STUCK_MS: u64 = 10 * MINUTE;
/// Clocks that differ by more confuse times, and a test of leases that goes by them.
const CLOCK_DIFFERENCE_MS: u64 = 2 * SECOND;
/// A log beyond this does not shrink by itself.
const LONG_LOG: u64 = 128 * MIB;
/// Free space below this is nothing to speak of.
const MUCH_FREE: u64 = 64 * MIB;
/// Dead rows below this are nothing to speak of.
const MANY_DEAD: u64 = 10_000;
/// How many of a kind are looked at.
const MOST: usize = 1_000;
/// Of how many instances the leases are looked at, those that changed least lately first.
const LOOKED_AT: usize = 100;
/// How many pages of failed instances are looked through.
const MOST_PAGES: usize = 20;
/// How many instances are named.
const NAMED: usize = 5;

/// Arguments of `duroxide doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exits with 1 if it finds a problem; warnings do not count.")]
pub struct Doctor {
    /// Do not read through the whole file for damage
    #[arg(long)]
    fast: bool,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Problem,
}

/// What a check has found.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_do: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), to_do: None }
    }

    fn warning(check: &'static str, message: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, message: message.into(), to_do: Some(to_do.into()) }
    }

    fn problem(check: &'static str, message: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { check, level: Level::Problem, message: message.into(), to_do: Some(to_do.into()) }
    }
}

impl Doctor {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let now = output.now_ms();
        let mut findings = match &store.kind {
            StoreKind::Sqlite(sqlite) => self.file(sqlite).await?,
            StoreKind::Postgres(postgres) => database(postgres, now).await?,
        };
        findings.push(blocked(store).await?);
        findings.push(stuck(store, now).await?);
        findings.push(poison(store, now).await?);
        let queue_states = store.client.queue_states().await?;
        let alive = store.client.list_workers().await?;
        findings.extend(queues(&queue_states, now));
        findings.push(leases(store, &queue_states, &alive, now).await?);
        findings.extend(workers(&alive, now));
        findings.push(quarantine(store).await?);
        findings.push(dropped(store).await?);
        match output.is_for_programs() {
            true => output.rows(&findings, "", |_, _| crate::output::Table::new([]))?,
            false => {
                let text = page(&findings, output.look());
                output.text(&text)?;
            }
        }
        let problems = findings.iter().filter(|finding| finding.level == Level::Problem).count() as u64;
        match problems {
            0 => Ok(()),
            _ => Err(Failure::failed(format!("{} found", counted(problems, "problem")))),
        }
    }

    /// The file: damage, free space, the length of the log.
    async fn file(&self, sqlite: &SqliteProvider) -> Outcome<Vec<Finding>> {
        let mut findings = Vec::new();
        if !self.fast {
            let damage = sqlite.check_integrity(IntegrityCheck::Quick).await?;
            findings.push(match damage.first() {
                None => Finding::ok("damage", "the file is sound"),
                Some(first) => Finding::problem(
                    "damage",
                    format!("{}, the first: {first}", counted(damage.len() as u64, "fault")),
                    "stop the workers, keep a copy of the file, and go back to a backup",
                ),
            });
        }
        let facts = sqlite.facts().await?;
        let (file, free, log) = (facts.file_bytes, facts.free_bytes, facts.log_bytes);
        findings.push(match free > MUCH_FREE && free > file / 2 {
            false => {
                Finding::ok("space", format!("{}, of which {} is free for reuse", size(file), size(free)))
            }
            true => Finding::warning(
                "space",
                format!("{} of {} is free, after a large deletion", size(free), size(file)),
                "it is used again by itself; `duroxide db backup` makes a compact copy",
            ),
        });
        findings.push(match log > LONG_LOG {
            false => Finding::ok("log", format!("the log has {}", size(log))),
            true => Finding::warning(
                "log",
                format!("the log has {} and does not shrink", size(log)),
                "look for a process that keeps a read transaction open on the file",
            ),
        });
        Ok(findings)
    }
}

/// The database: the difference of clocks, and rows that wait for vacuum.
async fn database(postgres: &PostgresProvider, now: u64) -> Outcome<Vec<Finding>> {
    let facts = postgres.facts().await?;
    let difference = facts.now_ms.abs_diff(now);
    let clock = match difference > CLOCK_DIFFERENCE_MS {
        false => {
            Finding::ok("clock", format!("this machine and the server differ by {}", duration(difference)))
        }
        true => Finding::warning(
            "clock",
            format!("this machine and the server differ by {}", duration(difference)),
            "leases go by the server's clock and are safe; let both follow a time server, so that ages are right",
        ),
    };
    let dead =
        facts.tables.iter().filter(|table| table.dead_rows > MANY_DEAD && table.dead_rows > table.live_rows);
    let bloat = match dead.max_by_key(|table| table.dead_rows) {
        None => Finding::ok("space", format!("the database has {}", size(facts.database_bytes))),
        Some(table) => Finding::warning(
            "space",
            format!(
                "table {} has {} dead rows and {} live ones",
                table.name,
                grouped(table.dead_rows),
                grouped(table.live_rows)
            ),
            "look for a transaction that is open for long (pg_stat_activity), and let autovacuum run more often",
        ),
    };
    Ok(vec![clock, bloat])
}

/// Instances that cannot go on.
async fn blocked(store: &Store) -> Outcome<Finding> {
    let blocked = store.client.list_blocked_instances(MOST).await?;
    let obstacles = store.client.list_obstacles(MOST).await?;
    let mut ids: Vec<&str> = blocked.iter().map(|blocked| blocked.instance.as_str()).collect();
    ids.extend(obstacles.iter().map(|obstacle| obstacle.instance.as_str()));
    ids.sort_unstable();
    ids.dedup();
    let first =
        blocked.first().map(|blocked| &blocked.reason).or(obstacles.first().map(|obstacle| &obstacle.reason));
    Ok(match first {
        None => Finding::ok("blocked", "no instance is blocked"),
        Some(reason) => Finding::problem(
            "blocked",
            format!(
                "{} cannot go on: {}; the reason of the first: {reason}",
                counted(ids.len() as u64, "instance"),
                named(&ids)
            ),
            "mend the cause; `duroxide show ID` names it, `duroxide retry ID` lets a blocked one go on",
        ),
    })
}

/// Instances that have messages and take no turn.
async fn stuck(store: &Store, now: u64) -> Outcome<Finding> {
    let query = InstanceQuery::new()
        .state(InstanceState::Pending)
        .state(InstanceState::Running)
        .updated_before_ms(now.saturating_sub(STUCK_MS));
    let count = store.client.count(&query, MOST as u64).await?;
    if count.value == 0 {
        return Ok(Finding::ok("stuck", "every instance that can take a turn took one lately"));
    }
    let page = store.client.list(&query.limit(NAMED)).await?;
    let ids: Vec<&str> = page.rows.iter().map(|row| row.instance.as_str()).collect();
    Ok(Finding::problem(
        "stuck",
        format!("{count} could take a turn and took none for {}: {}", duration(STUCK_MS), named(&ids)),
        "start a worker that has their orchestrations registered; `duroxide workers --long` shows who has what",
    ))
}

/// Instances that failed of late because their messages were delivered too often.
async fn poison(store: &Store, now: u64) -> Outcome<Finding> {
    const DAY: u64 = 24 * 60 * MINUTE;
    let query = InstanceQuery::new()
        .state(InstanceState::Failed)
        .updated_from_ms(now.saturating_sub(DAY))
        .sort(ListSort::Updated)
        .cut(32);
    let is_poison = |output: &Option<String>| output.as_ref().is_some_and(|text| text.starts_with("poison"));
    let mut found = Vec::new();
    let mut rows = AllRows::of(query);
    let mut is_all = false;
    for _ in 0..MOST_PAGES {
        let Some(page) = rows.next(store).await? else {
            is_all = true;
            break;
        };
        found.extend(page.into_iter().filter(|row| is_poison(&row.output)).map(|row| row.instance));
    }
    let ids: Vec<&str> = found.iter().map(String::as_str).collect();
    let at_least = if is_all { "" } else { "at least " };
    Ok(match ids.len() as u64 {
        0 if is_all => Finding::ok("poison", "no instance was given up as poison in the last day"),
        0 => Finding::ok("poison", "none of the instances that failed last was given up as poison"),
        count => Finding::problem(
            "poison",
            format!(
                "{at_least}{} given up as poison in the last day: {}",
                counted(count, "instance"),
                named(&ids)
            ),
            "`duroxide show ID` tells what was missing or crashed its workers; start it anew once that is mended",
        ),
    })
}

/// Work that waits for long, or that nobody serves.
fn queues(queues: &[QueueState], now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for queue in queues {
        let name = match &queue.tag {
            Some(tag) => format!("the {} queue, tag '{tag}'", queue.queue),
            None => format!("the {} queue", queue.queue),
        };
        let age = queue.oldest_ready_ms.map_or(0, |since| now.saturating_sub(since));
        if queue.ready.value > 0 && queue.workers == Some(0) {
            findings.push(Finding::problem(
                "queues",
                format!("{} ready in {name}, and nobody serves it", queue.ready),
                "start a worker that serves it",
            ));
        } else if age > OLD_MS {
            findings.push(Finding::warning(
                "queues",
                format!("{} ready in {name}, the oldest for {}", queue.ready, duration(age)),
                "start more workers, or give them more slots",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("queues", "nothing is ready for long"));
    }
    findings
}

/// Workers that are silent, or whose clocks are wrong.
fn workers(workers: &[WorkerInfo], now: u64) -> Vec<Finding> {
    if workers.is_empty() {
        let to_do = "start the application; workers before this version do not report themselves";
        return vec![Finding::warning("workers", "no worker is alive, or none reports itself", to_do)];
    }
    let mut findings = Vec::new();
    for worker in workers {
        let name = format!("worker {} (process {} on {})", worker.name, worker.process_id, worker.host);
        if is_silent(worker, now) {
            let silence = now.saturating_sub(worker.last_seen_ms);
            findings.push(Finding::warning(
                "workers",
                format!(
                    "{name} was last heard of {} ago; its leases are about to run out",
                    duration(silence)
                ),
                "if it has died, others take over by themselves; if it hangs, end it",
            ));
        }
        if worker.last_seen_ms > now + CLOCK_DIFFERENCE_MS {
            findings.push(Finding::warning(
                "clock",
                format!(
                    "{name} was last heard of in the future: clocks differ by {}",
                    duration(worker.last_seen_ms - now)
                ),
                "let all machines follow a time server",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("workers", format!("{} alive", counted(workers.len() as u64, "worker"))));
    }
    findings
}

/// Whether a worker missed its last two reports.
fn is_silent(worker: &WorkerInfo, now: u64) -> bool {
    now.saturating_sub(worker.last_seen_ms) > worker.interval_ms.max(SECOND) * 2
}

/// Work whose lease has run out, or is held by nobody who is heard of.
async fn leases(store: &Store, queues: &[QueueState], workers: &[WorkerInfo], now: u64) -> Outcome<Finding> {
    let query = InstanceQuery::new()
        .state(InstanceState::Running)
        .state(InstanceState::Waiting)
        .sort(ListSort::Updated)
        .ascending()
        .limit(LOOKED_AT)
        .cut(0);
    let mut left = Vec::new();
    for row in store.client.list(&query).await?.rows {
        let activities = store.client.list_queued_activities(&row.instance, LOOKED_AT).await?;
        // Claimed more often than it failed, and neither held nor put off: its worker went away with it.
        let is_left = |one: &QueuedActivity| {
            one.attempts > one.failed_attempts
                && one.leased_until_ms.is_none()
                && one.delayed_until_ms.is_none()
        };
        if activities.iter().any(is_left) {
            left.push(row.instance);
        }
    }
    if !left.is_empty() {
        let ids: Vec<&str> = left.iter().map(String::as_str).collect();
        let whose = counted(ids.len() as u64, "instance");
        return Ok(Finding::warning(
            "leases",
            format!(
                "activities of {whose} lost their worker, and nobody has taken them over: {}",
                named(&ids)
            ),
            "its lease ran out: the worker died, hangs, or lost the store; start one that serves them",
        ));
    }
    let leased: u64 = queues.iter().map(|queue| queue.leased.value).sum();
    if leased > 0 && workers.iter().all(|worker| is_silent(worker, now)) {
        return Ok(Finding::warning(
            "leases",
            format!("{leased} leased, and no worker that reports itself holds them"),
            "these leases run out, and then others take the work over; if its workers should be alive, see why they are silent",
        ));
    }
    Ok(Finding::ok("leases", "no lease has run out that nobody took over"))
}

/// Rows that could not be decoded.
async fn quarantine(store: &Store) -> Outcome<Finding> {
    let rows = store.client.list_quarantined(0, MOST).await?;
    Ok(match rows.len() as u64 {
        0 => Finding::ok("quarantine", "nothing is in quarantine"),
        count => Finding::problem(
            "quarantine",
            format!("{} could not be decoded", counted(count, "row")),
            "`duroxide quarantine list` shows them; release them once a worker knows them",
        ),
    })
}

/// Messages for instances that did not exist.
async fn dropped(store: &Store) -> Outcome<Finding> {
    let dropped = store.client.list_dropped_messages(1).await?;
    Ok(match dropped.total {
        0 => Finding::ok("dropped", "no message was dropped"),
        count => Finding::warning(
            "dropped",
            format!("{} dropped so far, because their instances did not exist", counted(count, "message")),
            "send messages after the start, along with it, or parked (`duroxide enqueue --park`)",
        ),
    })
}

/// The first few ids.
fn named(ids: &[&str]) -> String {
    let mut named = ids.iter().take(NAMED).map(|id| printable(id)).collect::<Vec<_>>().join(", ");
    if ids.len() > NAMED {
        named.push_str(", …");
    }
    named
}

fn page(findings: &[Finding], look: Look) -> String {
    let checks = findings.iter().map(|finding| width(finding.check)).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (mark, paint) = match finding.level {
            Level::Ok => ("ok     ", Paint::Green),
            Level::Warning => ("warning", Paint::Yellow),
            Level::Problem => ("problem", Paint::Red),
        };
        let mark = look.style.paint(paint, mark);
        let indent = checks + 11;
        let message = wrapped(&printable(&finding.message), look.columns, indent);
        text.push_str(&format!("{mark}  {:<checks$}  {message}\n", finding.check));
        if let Some(to_do) = &finding.to_do {
            let to_do = wrapped(to_do, look.columns, indent);
            text.push_str(&format!("{:indent$}{}\n", "", look.style.paint(Paint::Dim, &to_do)));
        }
    }
    text
}

/// Breaks a text between words, so that it stays behind its indent.
fn wrapped(text: &str, columns: Option<usize>, indent: usize) -> String {
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(20));
    let mut wrapped = String::new();
    let mut taken = 0;
    for word in text.split(' ') {
        let word_width = width(word);
        if taken > 0 && taken + 1 + word_width > room {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            taken = 0;
        } else if taken > 0 {
            wrapped.push(' ');
            taken += 1;
        }
        wrapped.push_str(word);
        taken += word_width;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_findings_stay_behind_their_indent() {
        assert_eq!(
            wrapped("one two three four five six", Some(34), 12),
            "one two three four\n            five six"
        );
        assert_eq!(wrapped("one two", None, 4), "one two");
    }
}
