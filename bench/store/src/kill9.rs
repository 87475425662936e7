//! SIGKILL in the middle of the load, again and again on the same file, and what is there afterwards.
//!
//! A child process runs the load and prints a line for every operation that the store has answered. The parent reads the
//! lines, kills the child at a random moment, opens the file and looks for everything that was promised.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

use crate::args::Args;
use crate::load::{Answered, Load, Plan, open};
use crate::report::{Report, Table};
use crate::stats::Dice;
use crate::survivors::{self, Ledger};
use crate::{Outcome, machine, new_report, runtime};

/// The program that the parent starts.
pub const CHILD: &str = "kill9-child";
/// The kill comes this long after the first answer.
const LIFE_MS: (u64, u64) = (100, 1_500);
/// Short, so that the next child gets at what the last one held.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
const STEPS: u64 = 10;
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A child that nobody kills ends by itself.
const CHILD_ENDS_AFTER: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Outcome<Report> {
    let self_test = args.flag("self-test");
    let callers: usize = args.value("callers", 64)?;
    let kills: u64 = args.value("kills", if self_test { 2 } else { 20 })?;
    let seed: u64 = args.value("seed", SystemClock.now_ms())?;
    let dir = args.work_dir()?;
    let mut report = new_report(args);
    machine::describe(&mut report, dir.path())?;
    report.setting("callers", callers);
    report.setting("kills", kills);
    report.setting("seed", seed);

    let file = dir.path().join("kill9.db");
    let (mut dice, mut ledger) = (Dice::new(seed), Ledger::default());
    let mut problems = Vec::new();
    let mut table = Table::new(
        "kills",
        &["kill", "alive (ms)", "answered before", "answered in all", "instances", "integrity", "problems"],
    );
    for kill in 1..=kills {
        let alive = Duration::from_millis(LIFE_MS.0 + dice.roll(LIFE_MS.1 - LIFE_MS.0));
        let lines = live_and_die(&file, callers, kill, alive)?;
        let before = lines.len();
        lines.iter().try_for_each(|line| ledger.note(line))?;
        // The store must take the file as it is left.
        drop(runtime()?.block_on(open(&file))?);
        let found = survivors::check(&file, &ledger)?;
        table.row(vec![
            kill.into(),
            (alive.as_millis() as u64).into(),
            before.into(),
            ledger.answered.into(),
            ledger.instances().into(),
            found.integrity.as_str().into(),
            found.problems.len().into(),
        ]);
        if found.integrity != "ok" {
            problems.push(format!("after kill {kill}: integrity_check says {}", found.integrity));
        }
        problems.extend(found.problems.into_iter().map(|text| format!("after kill {kill}: {text}")));
    }
    report.table(table);
    problems.iter().take(20).for_each(|problem| report.progress(problem));
    report.setting("answered operations", ledger.answered);
    report.goal(
        "every answered operation is there after every kill",
        problems.len() as f64,
        problems.is_empty(),
    );
    if self_test {
        test_the_check(&mut report, &file, &ledger)?;
    }
    Ok(report)
}

/// Runs the load in a process, kills it, and returns what it said had been answered.
fn live_and_die(file: &Path, callers: usize, life: u64, alive: Duration) -> Outcome<Vec<String>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([CHILD, "--callers", &callers.to_string(), "--life", &life.to_string(), "--file"])
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("the child has no output")?;
    let (first_answer, answered) = mpsc::channel();
    let reader = std::thread::spawn(move || read_lines(stdout, first_answer));
    if answered.recv_timeout(FIRST_ANSWER_WITHIN).is_err() {
        child.kill()?;
        return Err(format!("the child answered nothing: {}", last_words(child)?).into());
    }
    std::thread::sleep(alive);
    if let Some(status) = child.try_wait()? {
        return Err(format!("the child ended by itself, {status}: {}", last_words(child)?).into());
    }
    child.kill()?;
    child.wait()?;
    reader.join().map_err(|_| "the reader failed")?
}

fn read_lines(stdout: ChildStdout, first_answer: Sender<()>) -> Outcome<Vec<String>> {
    let mut reader = BufReader::new(stdout);
    let mut lines = Vec::new();
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        // A line that was cut off by the kill says nothing.
        if let Some(whole) = line.strip_suffix('\n') {
            lines.push(whole.to_string());
        }
        if lines.len() == 1 {
            // If the parent has given up, nobody needs to know.
            let _ = first_answer.send(());
        }
        line.clear();
    }
    Ok(lines)
}

fn last_words(mut child: Child) -> Outcome<String> {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut text)?;
    }
    child.wait()?;
    Ok(text)
}

/// Damages the file in every way that the check must notice, and undoes it.
fn test_the_check(report: &mut Report, file: &Path, ledger: &Ledger) -> Outcome<()> {
    let mut table =
        Table::new("self-test: rows deleted behind the store's back", &["deleted", "rows", "problems"]);
    let mut noticed = 0;
    for (what, sql) in survivors::DAMAGES {
        let (rows, found) = survivors::check_with_damage(file, ledger, sql)?;
        table.row(vec![what.into(), rows.into(), found.problems.len().into()]);
        noticed += usize::from(rows > 0 && !found.problems.is_empty());
    }
    report.table(table);
    let all = survivors::DAMAGES.len();
    report.goal("every damage is noticed", noticed as f64, noticed == all);
    Ok(())
}

/// The load, with a line on standard output for every answered operation.
pub fn run_child(args: &Args) -> Outcome<()> {
    let file = args.text("file").ok_or("--file is missing")?;
    let witness = |answered: Answered<'_>| {
        let line = match answered {
            Answered::Enqueued { instance } => format!("E {instance}\n"),
            Answered::TurnAcked { instance, last_event, ended } => {
                format!("T {instance} {last_event} {}\n", u8::from(ended))
            }
            Answered::WorkAcked { instance, activity } => format!("W {instance} {activity}\n"),
        };
        std::io::stdout().lock().write_all(line.as_bytes())
    };
    let plan = Plan {
        callers: args.value("callers", 64)?,
        steps: STEPS,
        lock_timeout: LOCK_TIMEOUT,
        prefix: format!("life{:03}-", args.value("life", 0)?),
        witness: Some(Arc::new(witness)),
    };
    runtime()?.block_on(async {
        let store = open(Path::new(file)).await?;
        let mut load = Load::start(&store, &plan);
        match tokio::time::timeout(CHILD_ENDS_AFTER, load.first_failure()).await {
            Ok(failure) => failure,
            Err(_) => load.finish().await,
        }
    })
}
