//! Keeps a worker process alive: starts another when it dies, and kills it when asked to.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// How long the worker has to stop by itself.
const GRACE: Duration = Duration::from_secs(3);
/// A worker that dies by itself is not started again at once, so that a broken one does not spin.
const PAUSE: Duration = Duration::from_secs(1);

/// How to start the worker.
#[derive(Debug, Clone)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// What happened to the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerNews {
    /// The worker runs as this process.
    Started(u32),
    /// The worker was killed because a user asked for it.
    Killed(u32),
    /// It died for another reason, which the text names.
    Died(String),
}

type Reply = oneshot::Sender<Result<String, String>>;

/// A handle on the task that keeps the worker alive.
pub struct Supervisor {
    crashes: mpsc::Sender<Reply>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Kills the worker. Each part of the program that may do that has a copy.
#[derive(Debug, Clone)]
pub struct CrashSwitch(mpsc::Sender<Reply>);

impl CrashSwitch {
    /// Kills the worker by SIGKILL and says what happened.
    pub async fn crash(&self) -> Result<String, String> {
        let gone = || "there is no worker: duroxide dev is about to end".to_string();
        let (reply, answer) = oneshot::channel();
        self.0.send(reply).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Supervisor {
    /// Starts a worker and keeps one alive; tells what happens to it.
    pub fn start(command: WorkerCommand, news: mpsc::UnboundedSender<WorkerNews>) -> Self {
        let (crashes, requests) = mpsc::channel(1);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(keep_alive(command, news, requests, stopped));
        Self { crashes, stop, task }
    }

    /// What kills the worker.
    pub fn crash_switch(&self) -> CrashSwitch {
        CrashSwitch(self.crashes.clone())
    }

    /// Ends the worker and waits until it is gone.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // The task ends with the worker; if it panicked, the worker went with it.
        let _ = self.task.await;
    }
}

async fn keep_alive(
    command: WorkerCommand,
    news: mpsc::UnboundedSender<WorkerNews>,
    mut requests: mpsc::Receiver<Reply>,
    mut stopped: watch::Receiver<bool>,
) {
    // Whoever listened for news may have gone away; the worker does not depend on it.
    let tell = |what| drop(news.send(what));
    loop {
        let (mut child, stdin, id) = match spawn(&command) {
            Ok(started) => started,
            Err(error) => {
                tell(WorkerNews::Died(format!("cannot be started: {error}")));
                if is_stopped_within(PAUSE, &mut stopped).await {
                    return;
                }
                continue;
            }
        };
        tell(WorkerNews::Started(id));
        let event = tokio::select! {
            ended = child.wait() => Event::Died(ended),
            request = requests.recv() => Event::Crash(request),
            _ = stopped.wait_for(|stopped| *stopped) => Event::Stop,
        };
        match event {
            Event::Died(ended) => {
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                tell(WorkerNews::Died(how));
                if is_stopped_within(PAUSE, &mut stopped).await {
                    return;
                }
            }
            Event::Crash(request) => {
                let answer = match child.kill().await {
                    Ok(()) => Ok(format!("killed worker process {id}; another takes over")),
                    Err(error) => Err(format!("worker process {id} cannot be killed: {error}")),
                };
                tell(WorkerNews::Killed(id));
                if let Some(reply) = request {
                    // The one who asked may not wait for the answer.
                    let _ = reply.send(answer);
                }
            }
            Event::Stop => return end(child, stdin).await,
        }
    }
}

/// What may happen next.
enum Event {
    Died(std::io::Result<std::process::ExitStatus>),
    Crash(Option<Reply>),
    Stop,
}

/// Waits, and says whether it was told to stop meanwhile.
async fn is_stopped_within(pause: Duration, stopped: &mut watch::Receiver<bool>) -> bool {
    tokio::time::timeout(pause, stopped.wait_for(|stopped| *stopped)).await.is_ok()
}

/// Starts the worker. Its standard input is kept apart, because waiting for a child closes what it still has.
fn spawn(command: &WorkerCommand) -> std::io::Result<(Child, Option<ChildStdin>, u32)> {
    let mut process = Command::new(&command.program);
    process.args(&command.arguments).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
    // A group of its own: Ctrl-C is for this process, which then ends the worker.
    #[cfg(unix)]
    process.process_group(0);
    let mut child = process.spawn()?;
    let (stdin, id) = (child.stdin.take(), child.id().unwrap_or_default());
    Ok((child, stdin, id))
}

/// Closes its standard input, which tells the worker to end; kills it if it does not.
async fn end(mut child: Child, stdin: Option<ChildStdin>) {
    drop(stdin);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        // It may have ended in this very moment.
        let _ = child.kill().await;
    }
}
