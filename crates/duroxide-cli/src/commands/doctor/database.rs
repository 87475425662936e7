//! The database: damage, free space, the length of the log, the difference of clocks, and rows that wait for vacuum.

use duroxide::providers::sqlite::{IntegrityCheck, SqliteFacts, SqliteProvider};
use duroxide_pg::{PostgresFacts, PostgresProvider};

use super::finding::Finding;
use super::{CLOCK_DIFFERENCE_MS, MIB};
use crate::failure::Outcome;
use crate::output::{counted, duration, grouped, size};

/// A log beyond this does not shrink by itself.
const LONG_LOG: u64 = 128 * MIB;
/// Free space below this is nothing to speak of.
const MUCH_FREE: u64 = 64 * MIB;
/// Dead rows below this are nothing to speak of.
const MANY_DEAD: u64 = 10_000;

/// Looks at the file.
pub(super) async fn of_sqlite(sqlite: &SqliteProvider, reads_all: bool) -> Outcome<Vec<Finding>> {
    let mut findings = Vec::new();
    if reads_all {
        findings.push(damage(&sqlite.check_integrity(IntegrityCheck::Quick).await?));
    }
    let SqliteFacts { file_bytes, free_bytes, log_bytes, .. } = sqlite.facts().await?;
    findings.push(space(file_bytes, free_bytes));
    findings.push(log(log_bytes));
    Ok(findings)
}

/// Looks at the database of a server.
pub(super) async fn of_postgres(postgres: &PostgresProvider, now: u64) -> Outcome<Vec<Finding>> {
    let PostgresFacts { now_ms, database_bytes, tables, .. } = postgres.facts().await?;
    let rows: Vec<_> =
        tables.iter().map(|table| (table.name.as_str(), table.live_rows, table.dead_rows)).collect();
    Ok(vec![clock(now_ms, now), bloat(database_bytes, &rows)])
}

fn damage(faults: &[String]) -> Finding {
    match faults.first() {
        None => Finding::ok("damage", "the file is sound"),
        Some(first) => Finding::problem(
            "damage",
            format!("{}, the first: {first}", counted(faults.len() as u64, "fault")),
            "stop the workers, keep a copy of the file, and go back to a backup",
        ),
    }
}

fn space(file: u64, free: u64) -> Finding {
    match free > MUCH_FREE && free > file / 2 {
        false => Finding::ok("space", format!("{}, of which {} is free for reuse", size(file), size(free))),
        true => Finding::warning(
            "space",
            format!("{} of {} is free, after a large deletion", size(free), size(file)),
            "it is used again by itself; `duroxide db backup` makes a compact copy",
        ),
    }
}

fn log(bytes: u64) -> Finding {
    match bytes > LONG_LOG {
        false => Finding::ok("log", format!("the log has {}", size(bytes))),
        true => Finding::warning(
            "log",
            format!("the log has {} and does not shrink", size(bytes)),
            "look for a process that keeps a read transaction open on the file",
        ),
    }
}

/// Compares the server's time with that of this machine.
fn clock(server: u64, now: u64) -> Finding {
    let difference = server.abs_diff(now);
    match difference > CLOCK_DIFFERENCE_MS {
        false => {
            Finding::ok("clock", format!("this machine and the server differ by {}", duration(difference)))
        }
        true => Finding::warning(
            "clock",
            format!("this machine and the server differ by {}", duration(difference)),
            "leases go by the server's clock and are safe; let both follow a time server, so that ages are right",
        ),
    }
}

/// Looks for the table with the most dead rows, among names with their live and dead rows.
fn bloat(database: u64, tables: &[(&str, u64, u64)]) -> Finding {
    let bloated = tables.iter().filter(|(_, live, dead)| *dead > MANY_DEAD && dead > live);
    match bloated.max_by_key(|(_, _, dead)| *dead) {
        None => Finding::ok("space", format!("the database has {}", size(database))),
        Some((name, live, dead)) => Finding::warning(
            "space",
            format!("table {name} has {} dead rows and {} live ones", grouped(*dead), grouped(*live)),
            "look for a transaction that is open for long (pg_stat_activity), and let autovacuum run more often",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const GIB: u64 = 1024 * MIB;

    #[test]
    fn a_log_is_long_from_128_mib_on() {
        assert_eq!(log(LONG_LOG).level, Level::Ok);
        let long = log(3 * GIB);
        assert_eq!(
            (long.level, long.message.as_str()),
            (Level::Warning, "the log has 3.0 GiB and does not shrink")
        );
        assert!(long.to_do.unwrap_or_default().contains("read transaction"));
    }

    #[test]
    fn free_space_counts_if_it_is_much_and_more_than_half() {
        for (file, free) in [(10 * GIB, GIB), (100 * MIB, 60 * MIB), (MIB, 0)] {
            assert_eq!(space(file, free).level, Level::Ok, "{free} of {file}");
        }
        let much = space(GIB, 900 * MIB);
        assert_eq!(much.level, Level::Warning);
        assert_eq!(much.message, "900.0 MiB of 1.0 GiB is free, after a large deletion");
    }

    #[test]
    fn a_table_is_bloated_if_it_has_many_dead_rows_and_more_than_live_ones() {
        for healthy in [("history", 1_000_000, 900_000), ("worker_queue", 3, 9_000)] {
            assert_eq!(bloat(GIB, &[healthy]).level, Level::Ok, "{healthy:?}");
        }
        let found =
            bloat(GIB, &[("totals", 1, 20_000), ("worker_queue", 12, 345_678), ("history", 1_000_000, 0)]);
        assert_eq!(found.level, Level::Warning);
        assert_eq!(
            found.message, "table worker_queue has 345,678 dead rows and 12 live ones",
            "the worst of them"
        );
    }

    #[test]
    fn clocks_may_differ_by_two_seconds() {
        assert_eq!(clock(10_000, 12_000).level, Level::Ok);
        for (server, now) in [(10_000, 12_001), (70_000, 10_000)] {
            assert_eq!(clock(server, now).level, Level::Warning, "{server} {now}");
        }
    }

    #[test]
    fn damage_is_a_problem_with_its_first_fault() {
        assert_eq!(damage(&[]).level, Level::Ok);
        let found = damage(&["page 7 is never used".to_string(), "page 8 is never used".to_string()]);
        assert_eq!(
            (found.level, found.message.as_str()),
            (Level::Problem, "2 faults, the first: page 7 is never used")
        );
    }
}
