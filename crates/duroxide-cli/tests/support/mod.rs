//! A store with known instances at a known time, commands that run on it, and snapshots of what they print.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and uses what it needs"
)]

use std::ffi::OsString;
use std::io::{self, BufReader, Cursor, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::ActivityOptions;
use duroxide::model::{ActivityStage, Wait, WaitFor};
use duroxide::prelude::*;
use duroxide::providers::{Clock, ManualClock, SystemClock};
use duroxide_cli::{Console, Exit};
use tempfile::TempDir;

/// How long a test waits for a runtime before it takes it for stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store in a directory of its own, whose time stands still.
pub struct Scene {
    pub directory: TempDir,
    pub clock: Arc<ManualClock>,
    pub url: String,
}

/// What a command did.
#[derive(Debug)]
pub struct Run {
    pub exit: Exit,
    pub stdout: String,
    pub stderr: String,
}

/// How a command is run.
#[derive(Clone, Default)]
pub struct Terminal {
    /// What is typed; there is a person only if there is something.
    pub typed: Option<&'static str>,
    /// What comes through a pipe.
    pub piped: &'static str,
    pub columns: Option<usize>,
    pub is_terminal: bool,
    pub drawings: Option<u32>,
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Captured {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Scene {
    /// A store without instances.
    pub async fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("app.db").display());
        let scene = Self { directory, clock: Arc::new(ManualClock::default()), url };
        drop(scene.store().await);
        scene
    }

    /// A store with an instance of every kind; five minutes later.
    pub async fn full() -> Self {
        let scene = Self::empty().await;
        scene.fill().await;
        scene.clock.advance(Duration::from_secs(5 * 60));
        scene
    }

    /// A store with two instances that wait for activities whose results come from elsewhere; five minutes later.
    pub async fn awaiting_completions() -> Self {
        let scene = Self::empty().await;
        let store = scene.store().await;
        let client = Client::new(store.clone());
        let activities = ActivityRegistry::builder()
            .register("Sign", |ctx: ActivityContext, _: String| async move { ctx.pending().await })
            .build_result();
        let orchestrations = OrchestrationRegistry::builder()
            .register("Contract", |ctx: OrchestrationContext, party: String| async move {
                let patience = Duration::from_secs(60 * 60);
                let options = match party.as_str() {
                    "Acme" => ActivityOptions::new(),
                    _ => ActivityOptions::new().start_to_close(patience),
                };
                ctx.schedule_activity("Sign", party).with_options(options).await
            })
            .build_result();
        let runtime = Runtime::start_with_store(store, activities.unwrap(), orchestrations.unwrap()).await;
        for (id, party) in [("contract-1", "Acme"), ("contract-2", "Initech")] {
            client.start_orchestration(id, "Contract", party).await.unwrap();
            tokio::time::timeout(PATIENCE, until_awaited(&client, id)).await.unwrap();
        }
        runtime.shutdown(Some(1_000)).await;
        scene.clock.advance(Duration::from_secs(5 * 60));
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub async fn store(&self) -> Arc<SqliteProvider> {
        let builder = SqliteProvider::builder().clock(self.clock.clone());
        Arc::new(builder.open(&format!("{}?mode=rwc", self.url)).await.unwrap())
    }

    /// Starts instances one after the other, so that every run of the test writes the same.
    async fn fill(&self) {
        let store = self.store().await;
        let client = Client::new(store.clone());
        let options =
            RuntimeOptions { worker_concurrency: 1, orchestration_concurrency: 1, ..Default::default() };
        let runtime =
            Runtime::start_with_options(store.clone(), activities(), orchestrations(), options).await;
        for (id, name, input) in [("order-7", "Order", "3 apples"), ("payment-1", "Payment", "card 9995")] {
            client.start_orchestration(id, name, input).await.unwrap();
            client.wait_for_orchestration(id, PATIENCE).await.unwrap();
            self.clock.advance(Duration::from_secs(1));
        }
        client.start_orchestration("basket-1", "Basket", "2").await.unwrap();
        client.wait_for_orchestration("basket-1", PATIENCE).await.unwrap();
        self.clock.advance(Duration::from_secs(1));
        for (id, name, input) in [
            ("approval-1", "Approval", "a new coffee machine"),
            ("inbox", "Inbox", "0"),
            ("video-1", "Video", "keynote.mov"),
        ] {
            client.start_orchestration(id, name, input).await.unwrap();
            client.wait_for_status_change(id, 0, Duration::from_millis(5), PATIENCE).await.unwrap();
            self.clock.advance(Duration::from_secs(1));
        }
        client.start_orchestration("monitor", "Monitor", "0").await.unwrap();
        client.wait_for_orchestration("monitor", PATIENCE).await.unwrap();
        runtime.shutdown(Some(1_000)).await;
        client.start_orchestration("legacy-1", "Legacy", "1998").await.unwrap();
    }

    /// A runtime that works until it is shut down.
    pub async fn start_worker(&self) -> Arc<Runtime> {
        Runtime::start_with_store(self.store().await, activities(), orchestrations()).await
    }

    /// A worker that reported itself last at this time.
    pub async fn report_worker(&self, last_seen_ms: u64) {
        self.report_worker_with(last_seen_ms, serde_json::json!([])).await;
    }

    /// The same with activities that it runs.
    pub async fn report_worker_with(&self, last_seen_ms: u64, running: serde_json::Value) {
        let info = serde_json::json!({
            "id": "w-1", "name": "worker-a", "host": "host-1", "process_id": 4711, "version": "0.1.100",
            "started_at_ms": self.clock.now_ms() - 60_000, "interval_ms": 5_000,
            "orchestrations": [{ "name": "Order", "versions": ["1.0.0", "2.0.0"] }, { "name": "Payment", "versions": ["1.0.0"] }],
            "activities": ["Charge", "Ship"],
            "turn_slots": 4, "turn_slots_used": 1, "activity_slots": 8, "activity_slots_used": 3,
            "running": running,
        });
        let row = format!(
            "INSERT INTO workers (worker_id, last_seen_at, info) VALUES ('w-1', {last_seen_ms}, '{info}')"
        );
        self.store().await.execute_sql(&row).await.unwrap();
    }

    /// Runs a command on the store, without a terminal.
    pub async fn run(&self, arguments: &str) -> Run {
        self.run_on(arguments, Terminal::default()).await
    }

    /// Runs a command on the store.
    pub async fn run_on(&self, arguments: &str, terminal: Terminal) -> Run {
        let words = words(arguments);
        let words = ["duroxide".into(), "--db".into(), self.url.clone()].into_iter().chain(words);
        run(words.map(OsString::from), terminal, self.clock.clone()).await
    }

    /// Compares what a command does with its snapshot.
    pub async fn snapshot(&self, name: &str, arguments: &str, terminal: Terminal) {
        let run = self.run_on(arguments, terminal).await;
        let mut text = format!("$ duroxide {arguments}\n");
        text.push_str(&run.stdout);
        if !run.stderr.is_empty() {
            text.push_str(&format!("--- standard error\n{}", run.stderr));
        }
        text.push_str(&format!("--- exit code {}\n", run.exit as u8));
        compare(name, &self.normalised(&text));
    }

    /// Replaces what differs from run to run: the one place where that is done.
    pub fn normalised(&self, text: &str) -> String {
        let text = text.replace(&self.directory.path().display().to_string(), "DIR").replace('\u{1b}', "^[");
        without_versions(&without_cursor(&without_sizes(&text)))
    }
}

/// Replaces the versions of SQLite and of the tables, which change with other things than the output.
fn without_versions(text: &str) -> String {
    let mut found = text.to_string();
    for (before, after) in [("  SQLite  ", "\n"), ("  schema version  ", "\n"), (" has version ", ",")] {
        if let Some((head, rest)) = found.split_once(before) {
            let padding = rest.len() - rest.trim_start().len();
            if let Some((_, tail)) = rest.split_once(after) {
                found = format!("{head}{before}{}VERSION{after}{tail}", &rest[..padding]);
            }
        }
    }
    found
}

async fn until_awaited(client: &Client, instance: &str) {
    loop {
        let open = client.waits(instance).await.map(|waits| waits.open).unwrap_or_default();
        let is_awaited = |wait: &Wait| match &wait.what {
            WaitFor::Activity(activity) => activity.stage == ActivityStage::Awaited,
            _ => false,
        };
        if open.iter().any(is_awaited) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Replaces a cursor, which means something to the store alone.
fn without_cursor(text: &str) -> String {
    match text.split_once("page: --cursor ") {
        Some((before, after)) => {
            let rest = after.split_once('\n').map_or("", |(_, rest)| rest);
            format!("{before}page: --cursor CURSOR\n{rest}")
        }
        None => text.to_string(),
    }
}

/// Replaces `184.0 KiB`: how large a file is depends on SQLite and on the schema.
pub fn without_sizes(text: &str) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some((at, unit)) =
        [" B", " KiB", " MiB"].into_iter().filter_map(|unit| Some((rest.find(unit)?, unit))).min()
    {
        let (before, after) = (&rest[..at], &rest[at + unit.len()..]);
        let kept = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let is_size = kept.len() < before.len() && !after.starts_with(char::is_alphanumeric);
        found.push_str(if is_size { kept } else { before });
        found.push_str(if is_size { "SIZE" } else { unit });
        rest = after;
    }
    found + rest
}

/// Runs a command without a store.
pub async fn run_alone(arguments: &str) -> Run {
    let words = std::iter::once("duroxide".to_string()).chain(words(arguments));
    run(words.map(OsString::from), Terminal::default(), Arc::new(ManualClock::default())).await
}

/// Runs a command at the time that the machine has: on a store whose time is another's.
pub async fn run_now(arguments: &str) -> Run {
    let words = std::iter::once("duroxide".to_string()).chain(words(arguments));
    run(words.map(OsString::from), Terminal::default(), Arc::new(SystemClock)).await
}

async fn run(arguments: impl Iterator<Item = OsString>, terminal: Terminal, clock: Arc<dyn Clock>) -> Run {
    let (stdout, stderr) = (Captured::default(), Captured::default());
    let typed = terminal.typed.unwrap_or(terminal.piped);
    let mut console = Console {
        stdout: Box::new(stdout.clone()),
        stderr: Box::new(stderr.clone()),
        stdin: Box::new(BufReader::new(Cursor::new(typed))),
        stdin_is_terminal: terminal.typed.is_some(),
        stdout_is_terminal: terminal.is_terminal,
        stderr_is_terminal: terminal.is_terminal,
        columns: terminal.columns,
        variable: |_| None,
        clock,
        shows_logs: false,
        most_drawings: terminal.drawings,
    };
    // A test thread has a small stack, and the future of all commands is large.
    let exit = Box::pin(duroxide_cli::run(arguments, &mut console)).await;
    Run { exit, stdout: stdout.text(), stderr: stderr.text() }
}

/// Replaces each number by N, and the padding that goes with it.
pub fn without_numbers(text: &str) -> String {
    let line = |line: &str| {
        let begin = &line[..line.len() - line.trim_start().len()];
        let words: Vec<String> = line.split_whitespace().map(without_number).collect();
        format!("{begin}{}\n", words.join(" "))
    };
    text.lines().map(line).collect()
}

/// A word without its digits, and without what groups them.
fn without_number(word: &str) -> String {
    let mut found = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        found.push_str(&rest[..at]);
        found.push('N');
        let number = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ',' || c == '.');
        // What ends a sentence or a part of it is no part of the number.
        let read = &rest[at..rest.len() - number.len()];
        found.push_str(&read[read.trim_end_matches([',', '.']).len()..]);
        rest = number;
    }
    found + rest
}

/// Splits at blanks; quotes keep a text together.
fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in arguments.split('\'').enumerate() {
        match index % 2 {
            1 => words.push(part.to_string()),
            _ => words.extend(part.split_whitespace().map(str::to_string)),
        }
    }
    words
}

/// Compares a text with its snapshot. `UPDATE_SNAPSHOTS=1` writes snapshots anew.
pub fn compare(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == text,
        "{} differs; UPDATE_SNAPSHOTS=1 writes it anew\n--- expected\n{expected}\n--- found\n{text}",
        path.display()
    );
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register("Charge", |_: ActivityContext, what: String| async move { Ok(format!("paid for {what}")) })
        .register("Ship", |_: ActivityContext, what: String| async move { Ok(format!("parcel with {what}")) })
        .register("Decline", |_: ActivityContext, card: String| async move {
            Err::<String, _>(format!("{card} was declined"))
        })
        .build_result()
        .unwrap()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Order", |ctx: OrchestrationContext, what: String| async move {
            ctx.schedule_activity("Charge", &what).await?;
            ctx.set_custom_status("paid");
            ctx.schedule_activity("Ship", what).await
        })
        .register("Payment", |ctx: OrchestrationContext, card: String| async move {
            ctx.schedule_activity("Decline", card).await
        })
        .register("Basket", |ctx: OrchestrationContext, _: String| async move {
            let order = ctx.schedule_sub_orchestration("Order", "5 lemons").await;
            let payment = ctx.schedule_sub_orchestration("Payment", "card 0341").await;
            Ok(format!("{order:?}, {payment:?}"))
        })
        .register("Approval", |ctx: OrchestrationContext, what: String| async move {
            let decision = ctx.schedule_wait("decision");
            let deadline = ctx.schedule_timer(Duration::from_secs(60 * 60));
            ctx.set_custom_status("waiting for a decision");
            match ctx.select2(decision, deadline).await {
                Either2::First(answer) => Ok(format!("{what}: {answer}")),
                Either2::Second(()) => Err("nobody decided".to_string()),
            }
        })
        .register("Inbox", |ctx: OrchestrationContext, _: String| async move {
            let message = ctx.dequeue_event("messages");
            ctx.set_custom_status("reading");
            Ok(message.await)
        })
        .register("Video", |ctx: OrchestrationContext, file: String| async move {
            // No worker of the tests serves this tag.
            let transcoded = ctx.schedule_activity("Transcode", file).with_tag("gpu");
            ctx.set_custom_status("transcoding");
            transcoded.await
        })
        .register("Monitor", |ctx: OrchestrationContext, rounds: String| async move {
            match rounds.as_str() {
                "2" => Ok(rounds),
                _ => ctx.continue_as_new((rounds.parse::<u32>().unwrap_or(0) + 1).to_string()).await,
            }
        })
        .build_result()
        .unwrap()
}
