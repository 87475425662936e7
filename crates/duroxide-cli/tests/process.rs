//! The program itself, as a process: streams, signals, the server, and the demonstration with its crashes.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use serde_json::Value;
use support::{Scene, compare, without_numbers};

/// How long a process may take for anything.
const PATIENCE: Duration = Duration::from_secs(90);
/// The pause between two looks at another process.
const PAUSE: Duration = Duration::from_millis(100);

fn duroxide() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duroxide"));
    command
        .env_remove("DUROXIDE_DB")
        .env_remove("DUROXIDE_TOKEN")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    command
}

/// Ends a process with the test, whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

/// Looks until something is there.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = SystemClock.monotonic();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(SystemClock.monotonic() - begun < PATIENCE, "{what} did not happen");
        std::thread::sleep(PAUSE);
    }
}

/// Asks a server; returns the status and the whole answer.
fn ask(address: &str, head: &str) -> (u16, String) {
    ask_for(address, address, head)
}

/// The same by another name of the server.
fn ask_for(host: &str, address: &str, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{head}\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn first_line(running: &mut Running) -> Value {
    let mut line = String::new();
    BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = duroxide()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((child.wait().unwrap().code(), told.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn the_environment_names_the_store_and_decides_about_colours() {
    let scene = Scene::full().await;
    let list = |variable: &str, value: &str| {
        let mut command = duroxide();
        command.args(["list", "--status", "failed"]).env("DUROXIDE_DB", &scene.url).env(variable, value);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(list("CLICOLOR_FORCE", "1").contains("\u{1b}[31mfailed"));
    assert!(!list("NO_COLOR", "1").contains('\u{1b}'));
    let narrow = list("COLUMNS", "60");
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
}

#[tokio::test]
async fn a_server_listens_to_others_only_with_a_token() {
    let scene = Scene::full().await;
    let serve = |bind: &str| {
        let mut command = duroxide();
        command.args(["--db", &scene.url, "--output", "jsonl", "serve", "--bind", bind]);
        command
    };
    let refused = serve("0.0.0.0:0").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("DUROXIDE_TOKEN"));

    let token = "a-token-for-this-test-only";
    let mut command = serve("0.0.0.0:0");
    command.env("DUROXIDE_TOKEN", token).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let told = first_line(&mut running);
    let port = told["metrics"].as_str().unwrap().rsplit(':').next().unwrap().split('/').next().unwrap();
    let address = format!("127.0.0.1:{port}");
    assert_eq!(ask(&address, "GET /metrics HTTP/1.1").0, 401);
    assert_eq!(ask(&address, "GET /metrics HTTP/1.1\r\nauthorization: Bearer wrong").0, 401);
    let (status, answer) = ask(&address, &format!("GET /metrics HTTP/1.1\r\nauthorization: Bearer {token}"));
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("duroxide_instances{state=\"failed\"} 2"), "{answer}");

    // Metrics stand behind the same guard as the rest.
    let with = |host: &str, header: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nauthorization: Bearer {token}{header}");
        ask_for(host, &address, &head).0
    };
    for host in ["localhost", "LOCALHOST:7777", "metrics.localhost", "localhost.", "[::1]:7777"] {
        assert_eq!(with(host, ""), 200, "{host}");
    }
    assert_eq!(with("evil.example", ""), 421);
    assert_eq!(with("localhost", "\r\norigin: http://evil.example"), 403);
    assert_eq!(with("localhost", "\r\nsec-fetch-site: cross-site"), 403);

    running.signal("-TERM");
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    let mut stderr = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("not encrypted") && !stderr.contains(token), "{stderr}");
}

/// What `show` tells programs about an instance.
fn show(store: &str, id: &str) -> Option<Value> {
    let output = duroxide().args(["--db", store, "show", id, "--output", "json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

/// How far the report has come.
fn step(store: &str) -> Option<u32> {
    let shown = show(store, "report-1001")?;
    shown["custom_status"].as_str()?.split(' ').nth(1)?.parse().ok()
}

/// The processes of the workers that have reported themselves.
fn workers(store: &str) -> Vec<u64> {
    let output = duroxide().args(["--db", store, "workers", "--output", "jsonl"]).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let workers = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    workers.map(|worker| worker["process_id"].as_u64().unwrap()).collect()
}

fn crash(directory: &Path) -> std::process::Output {
    duroxide().args(["dev", "crash"]).env("TMPDIR", directory).output().unwrap()
}

/// Compares what the command has told with its snapshot.
fn compare_crash(name: &str, told: &std::process::Output) {
    let [stdout, stderr] = [&told.stdout, &told.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let text = format!("{stdout}--- standard error\n{stderr}");
    let exit = told.status.code().unwrap();
    compare(name, &format!("$ duroxide dev crash\n{}--- exit code {exit}\n", without_numbers(&text)));
}

/// What a process writes to standard output until it is ready, with the path and the ports replaced.
fn first_page(running: &mut Running, directory: &Path, last: &str) -> String {
    let mut page = String::new();
    let mut output = BufReader::new(running.0.stdout.as_mut().unwrap());
    while !page.lines().any(|line| line.starts_with(last)) {
        assert!(output.read_line(&mut page).unwrap() > 0, "it ended after {page}");
    }
    let mut parts = page.split("127.0.0.1:");
    let mut found = parts.next().unwrap().to_string();
    for part in parts {
        found.push_str("127.0.0.1:PORT");
        found.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    found = found.replace(env!("CARGO_BIN_EXE_duroxide"), "duroxide");
    found.replace(&directory.display().to_string(), "DIR")
}

#[tokio::test]
async fn a_server_says_where_it_is_and_who_may_act() {
    let scene = Scene::empty().await;
    for (name, more, last) in [("serve", "", "  access"), ("serve-read-only", "--read-only", "  access")] {
        let mut command = duroxide();
        command.args(["--db", &scene.url, "serve", "--bind", "127.0.0.1:0"]).args(more.split_whitespace());
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let page = first_page(&mut running, scene.directory.path(), last);
        let asked = format!("$ duroxide serve {more}");
        compare(name, &format!("{}\n{page}", asked.trim_end()));
    }
}

#[test]
fn the_demonstration_says_what_to_do_and_may_be_ended_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("dev.db").display());
    let mut command = duroxide();
    command.args(["--db", &store, "dev", "--port", "0"]).env("TMPDIR", directory.path());
    let mut dev = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let page = first_page(&mut dev, directory.path(), "  Ctrl-C");
    dev.signal("-INT");
    assert_eq!(dev.0.wait().unwrap().code(), Some(0));
    compare("dev", &format!("$ duroxide --db sqlite:DIR/dev.db dev\n{page}"));
}

#[test]
fn a_killed_worker_is_replaced_and_the_work_goes_on_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = crash(directory.path());
    assert_eq!(nobody.status.code(), Some(3), "{}", String::from_utf8_lossy(&nobody.stderr));

    let mut command = duroxide();
    command.args(["dev", "--port", "0", "--output", "jsonl"]).env("TMPDIR", directory.path());
    // The environment's store is an application's, and not for demonstrations.
    command.env("DUROXIDE_DB", "sqlite:/nowhere/at/all.db");
    let mut dev = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let told = first_line(&mut dev);
    let store = told["store"].as_str().unwrap().to_string();

    until("the first steps of the report", || step(&store).filter(|step| *step >= 2));
    let first = until("the report of the first worker", || workers(&store).first().copied());
    for _ in 0..2 {
        let before = step(&store).unwrap();
        let crashed = crash(directory.path());
        assert!(crashed.status.success(), "{}", String::from_utf8_lossy(&crashed.stderr));
        compare_crash("dev-crash", &crashed);
        assert!(step(&store).unwrap() >= before, "no step is lost");
        until("more steps of the report", || step(&store).filter(|step| *step >= before + 3));
    }
    until("the report of another worker", || workers(&store).into_iter().find(|worker| *worker != first));
    until("an order", || show(&store, "order-1002").filter(|order| order["state"] == "completed"));
    let address =
        told["dashboard"].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/').to_string();
    assert_eq!(ask(&address, "GET /metrics HTTP/1.1").0, 200);

    dev.signal("-INT");
    assert_eq!(dev.0.wait().unwrap().code(), Some(0));
    let mut news = String::new();
    dev.0.stderr.take().unwrap().read_to_string(&mut news).unwrap();
    assert_eq!(news.matches("was killed").count(), 2, "{news}");
    compare_crash("dev-crash-nobody", &crash(directory.path()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the temporary store is gone");
}
