//! What it costs to be watched: `parallel` while `duroxide serve` has the same file open, with and without a browser that
//! shows the live list.
//!
//! The ways take turns, each on a fresh file, so that all meet the same machine; a figure is the median of its rounds. The
//! server is a process of its own, as it is for a user. What a browser does is little: it reads one page of the list and the
//! stream of changes, and asks for nothing else as long as it misses nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use duroxide::providers::sqlite::Durability;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Outcome;
use crate::world::World;

const ROUNDS: usize = 7;
const STEPS: usize = 5;
const STARTS_AT_ONCE: usize = 512;

/// Who looks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Nobody,
    /// The server has the file open; no browser is there.
    Served,
    /// A browser shows the live list.
    Live,
}

impl Watched {
    const ALL: [Self; 3] = [Self::Nobody, Self::Served, Self::Live];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody looks",
            Self::Served => "server, no browser",
            Self::Live => "live list open",
        }
    }
}

async fn few_steps(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    for step in 0..STEPS {
        ctx.schedule_activity("Nothing", step.to_string()).await?;
    }
    Ok(String::new())
}

pub async fn run(count: usize) -> Outcome<()> {
    let server = server_program()?;
    println!(
        "{count} orchestrations of {STEPS} activities, started together, durability Full; {ROUNDS} rounds"
    );
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..Watched::ALL.len() {
            // Who goes first changes from round to round.
            let way = (round + turn) % Watched::ALL.len();
            rates[way].push(measure(Watched::ALL[way], count, &server).await?);
        }
    }
    println!("{:>20} {:>10} {:>10} {:>10} {:>8}", "", "per s", "least", "most", "times");
    let unwatched = median(&rates[0]);
    for (way, rates) in Watched::ALL.into_iter().zip(&rates) {
        let (least, most) =
            (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        let middle = median(rates);
        println!("{:>20} {middle:>10.0} {least:>10.0} {most:>10.0} {:>8.3}", way.name(), middle / unwatched);
    }
    Ok(())
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The program `duroxide` of this repository, which has to be built before: it is no part of this package.
fn server_program() -> Outcome<PathBuf> {
    let given = std::env::var_os("DUROXIDE_BIN").map(PathBuf::from);
    let built = || {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        target.join("release/duroxide")
    };
    let program = given.unwrap_or_else(built);
    if !program.exists() {
        let missing = program.display();
        return Err(format!(
            "{missing} is missing: run `cargo build --release -p duroxide-cli`, or name it by DUROXIDE_BIN"
        )
        .into());
    }
    Ok(program)
}

/// Orchestrations per second.
async fn measure(watched: Watched, count: usize, server: &PathBuf) -> Outcome<f64> {
    let activities = ActivityRegistry::builder()
        .register("Nothing", |_: ActivityContext, _: String| async move { Ok(String::new()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("Few", few_steps).build();
    let world = World::new(Durability::Full, activities, orchestrations).await?;
    let server = match watched {
        Watched::Nobody => None,
        _ => Some(Server::start(server, &world.url)?),
    };
    let browser = match (&server, watched) {
        (Some(server), Watched::Live) => Some(Browser::open(&server.address)?),
        _ => None,
    };
    let began = Instant::now();
    let mut starts = JoinSet::new();
    for number in 0..count {
        let client = world.client.clone();
        starts.spawn(async move { client.start_orchestration(format!("few-{number}"), "Few", "").await });
        if starts.len() >= STARTS_AT_ONCE {
            starts.join_next().await.transpose()?.transpose()?;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    for number in 0..count {
        world.output(&format!("few-{number}")).await?;
    }
    let took = began.elapsed();
    if let Some(browser) = browser {
        let heard = browser.close()?;
        if heard == 0 {
            return Err("the browser heard of no change".into());
        }
    }
    drop(server);
    world.runtime.shutdown(None).await;
    Ok(count as f64 / took.as_secs_f64())
}

/// `duroxide serve` on a store; it ends with this.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(program: &PathBuf, url: &str) -> Outcome<Self> {
        let mut process = Command::new(program)
            .args(["--db", url, "--output", "jsonl", "serve", "--bind", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().ok_or("the server has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.ok_or("the server did not tell its address")?.to_string();
        Ok(Self { process, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a browser does that shows the live list.
struct Browser {
    stream: TcpStream,
    reading: JoinHandle<usize>,
}

impl Browser {
    fn open(address: &str) -> Outcome<Self> {
        let mut page = TcpStream::connect(address)?;
        let list = "GET /api/v1/instances?limit=50&count=true HTTP/1.1";
        write!(page, "{list}\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        page.read_to_string(&mut answer)?;
        if !answer.starts_with("HTTP/1.1 200") {
            return Err(format!("the list was refused: {answer}").into());
        }
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "GET /api/v1/stream HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
        )?;
        let lines = BufReader::new(stream.try_clone()?).lines();
        let reading = std::thread::spawn(move || {
            lines.map_while(Result::ok).filter(|line| line == "event: instances").count()
        });
        Ok(Self { stream, reading })
    }

    /// Returns how often it heard of changed instances.
    fn close(self) -> Outcome<usize> {
        self.stream.shutdown(Shutdown::Both)?;
        self.reading.join().map_err(|_| "the browser failed".into())
    }
}
