//! `duroxide dev`: everything at work, to look at and to crash.
//!
//! This process has the store, the arrivals and the dashboard; the worker is a process of its own, which is killed and
//! started again (`supervisor`). The samples are in `samples`, what keeps arriving is in `arrivals`.

mod arrivals;
mod samples;
mod session;
mod supervisor;
mod worker;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::arguments::General;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Page, Paint};
use crate::serve::{self, Serving};
use crate::store::{Opening, Store, StoreKind};
use arrivals::Arrivals;
pub use supervisor::CrashSwitch;
use supervisor::{Supervisor, WorkerCommand, WorkerNews};
pub use worker::DevWorker;

/// The port that is tried first, so that the address stays the same.
const USUAL_PORT: u16 = 7878;

/// Arguments of `duroxide dev`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The store is a temporary SQLite file, unless --db names one (DUROXIDE_DB does not count here). A worker runs sample
orchestrations, which keep arriving: they succeed, fail, retry, wait for you, fan out, sleep and run long. Kill the
worker with the crash button or with `duroxide dev crash`, and watch the work go on where it stopped. Ctrl-C ends it all.

The worker runs 24 activities and 4 turns at once, fewer than the 64 and 8 of an application:
so the samples queue, and the dashboard shows it."
)]
pub struct Dev {
    #[command(subcommand)]
    command: Option<DevCommand>,
    /// Port of the dashboard; 0 for a free one
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Start no samples
    #[arg(long)]
    no_samples: bool,
}

/// Commands of `duroxide dev`.
#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// Kill the worker of the `duroxide dev` that runs, by SIGKILL
    Crash,
}

/// What is told when everything runs.
#[derive(Serialize)]
struct Running {
    dashboard: String,
    store: String,
    is_temporary: bool,
}

#[derive(Serialize)]
struct Crashed {
    message: String,
}

impl Dev {
    pub async fn run(&self, general: &General, output: &mut Output<'_>) -> Outcome {
        match self.command {
            Some(DevCommand::Crash) => {
                let message = session::crash().await?;
                let sentence = message.clone();
                output.done(&Crashed { message }, &sentence)
            }
            None => self.begin(general, output).await,
        }
    }

    async fn begin(&self, general: &General, output: &mut Output<'_>) -> Outcome {
        let directory = session::directory()
            .map_err(|error| Failure::from(error).while_doing("no temporary directory"))?;
        let given = general.db.as_deref().filter(|_| !general.is_db_from_environment);
        let url = match given {
            Some(url) => with_creation(url),
            None => format!("sqlite:{}?mode=rwc", directory.path().join("dev.db").display()),
        };
        let store = Store::open(&url, Opening::Migrate, &output.console.clock).await?;
        if let StoreKind::Postgres(_) = store.kind {
            return Err(Failure::usage("duroxide dev keeps its samples in a SQLite file")
                .hint("look at a PostgreSQL store with `duroxide serve`"));
        }
        let listener = self.listen().await?;
        let address = listener.local_addr()?;
        session::leave_note(directory.path(), address)?;

        let (news, told) = mpsc::unbounded_channel();
        let supervisor = Supervisor::start(worker_command(&url)?, news);
        let mut arrivals = Arrivals::new(store.client.clone(), given.is_none());
        if !self.no_samples {
            arrivals.begin().await?;
        }
        let running = Running {
            dashboard: format!("http://{address}"),
            store: url.trim_end_matches("?mode=rwc").to_string(),
            is_temporary: given.is_none(),
        };
        let serving = Serving::of_dev(&store, supervisor.crash_switch());
        output.one(&running, page)?;
        let ended = tokio::select! {
            ended = serve::serve(listener, serving, &store) => ended,
            () = arrive(arrivals, self.no_samples) => Ok(()),
            told = tell(told, output) => told,
        };
        output.note("\nending the worker")?;
        supervisor.stop().await;
        drop(store);
        let removed =
            directory.close().map_err(|error| Failure::from(error).while_doing("cannot remove the store"));
        ended.and(removed)
    }

    async fn listen(&self) -> Outcome<TcpListener> {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if let Some(port) = self.port {
            return TcpListener::bind(at(port)).await.map_err(|error| {
                Failure::failed(format!("cannot listen on port {port}: {error}"))
                    .hint("choose another --port")
            });
        }
        match TcpListener::bind(at(USUAL_PORT)).await {
            Ok(listener) => Ok(listener),
            Err(_) => Ok(TcpListener::bind(at(0)).await?),
        }
    }
}

/// Starts samples for ever, if there are to be any.
async fn arrive(arrivals: Arrivals, no_samples: bool) {
    match no_samples {
        true => std::future::pending().await,
        false => arrivals.go_on().await,
    }
}

/// Tells what happens to the worker.
async fn tell(mut news: mpsc::UnboundedReceiver<WorkerNews>, output: &mut Output<'_>) -> Outcome {
    let mut is_first = true;
    while let Some(news) = news.recv().await {
        match news {
            WorkerNews::Started(id) if is_first => output.note(&format!("worker process {id} runs"))?,
            WorkerNews::Started(id) => {
                output.note(&format!("worker process {id} goes on where the other stopped"))?
            }
            WorkerNews::Killed(id) => output.warn(&format!("worker process {id} was killed"))?,
            WorkerNews::Died(how) => output.warn(&format!("the worker has died: {how}"))?,
        }
        is_first = false;
    }
    std::future::pending().await
}

/// A given file is created if it is missing.
fn with_creation(url: &str) -> String {
    let has_mode = url.split_once('?').is_some_and(|(_, options)| options.contains("mode="));
    match (has_mode, url.contains('?')) {
        (true, _) => url.to_string(),
        (false, true) => format!("{url}&mode=rwc"),
        (false, false) => format!("{url}?mode=rwc"),
    }
}

fn worker_command(url: &str) -> Outcome<WorkerCommand> {
    let program: PathBuf = std::env::current_exe()
        .map_err(|error| Failure::from(error).while_doing("cannot find this program"))?;
    Ok(WorkerCommand { program, arguments: vec!["--db".into(), url.into(), "dev-worker".into()] })
}

fn page(running: &Running, look: crate::output::Look) -> String {
    let mut page = Page::new(look);
    page.heading("duroxide dev");
    page.painted("dashboard", &running.dashboard, Paint::Cyan);
    page.value("store", &running.store);
    page.value("", if running.is_temporary { "temporary: it goes when you stop" } else { "yours: it stays" });
    let bold = |text: &str| look.style.paint(Paint::Bold, text).into_owned();
    page.line("");
    page.line("Open the dashboard and press Crash, or in another terminal:");
    let program = std::env::args().next().unwrap_or_else(|| "duroxide".to_string());
    page.line(&format!("  {}", bold(&format!("{program} dev crash"))));
    page.line(&format!("  {}", bold(&format!("{program} --db {} list --watch", running.store))));
    page.line("The worker dies, another takes over, and the work goes on where it stopped.");
    page.line("Ctrl-C ends everything.");
    page.finish() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_file_is_created() {
        assert_eq!(with_creation("sqlite:a.db"), "sqlite:a.db?mode=rwc");
        assert_eq!(with_creation("sqlite:a.db?mode=rw"), "sqlite:a.db?mode=rw");
        assert_eq!(with_creation("a.db?cache=shared"), "a.db?cache=shared&mode=rwc");
    }
}
