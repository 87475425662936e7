//! Group commit: one connection that commits for a whole process.
//!
//! Callers hand in jobs and wait. The committer takes what is there, sends it as one transaction (its statements are not
//! waited for one by one, so that a batch costs one round trip), and answers when it is committed. While a commit is on
//! its way jobs gather, so batches grow with the load by themselves and nobody waits when there is none.
//!
//! - A job that is refused leaves nothing behind and does not disturb its neighbours: the statements refuse each request
//!   by itself, before they write.
//! - A statement that fails all the same takes the batch with it. If the failure may pass (a deadlock, a lost
//!   connection), the batch is tried again; if not, its jobs are tried one by one, so that each hears its own failure.
//! - A commit whose answer was lost is looked up before anything is tried again; see the table `committers`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_postgres::Row;

use crate::batch::{Batch, Verdicts};
use crate::error::{Failure, FailureKind, StoreError};
use crate::jobs::{Answer, Job};
use crate::line::{Trials, in_time};
use crate::pipeline::in_order;
use crate::results::Progress;
use crate::session::{Dialer, Purpose, Session};
use crate::shared::{Effects, Shared};

/// Jobs that wait, at most; more callers wait outside.
const INBOX_SIZE: usize = 4_096;
/// Jobs in one transaction, at most: bounds how long a commit can take.
const BATCH_SIZE: usize = 512;
/// Bytes in one transaction, about and at most, unless one job alone has more.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

const BEGIN_BATCH: &str = "SELECT begin_batch_1($1, $2, $3)";
const BEGIN_EPOCH: &str = "SELECT * FROM begin_epoch_1($1)";

/// The handle by which jobs reach the committer. Once it is dropped, the committer finishes what it has and ends.
pub(crate) struct Committer {
    inbox: mpsc::Sender<Job>,
    progress: watch::Receiver<Progress>,
}

impl Committer {
    pub(crate) fn start(dialer: Arc<Dialer>, shared: Arc<Shared>, patience: Duration) -> Self {
        let (inbox, jobs) = mpsc::channel(INBOX_SIZE);
        let name = uuid::Uuid::new_v4().simple().to_string();
        let (told, progress) = watch::channel(Progress::default());
        let committing =
            Committing { dialer, shared, patience, name, jobs, connection: None, batches: 0, progress: told };
        tokio::spawn(committing.run());
        Self { inbox, progress }
    }

    /// Tells how far it has come.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Hands in a job and waits for its answer. If the caller goes away before, it happens wholly or not at all.
    pub(crate) async fn submit<T>(
        &self,
        operation: &'static str,
        job: Job,
        answer: Answer<T>,
    ) -> Result<T, duroxide::providers::ProviderError> {
        let closed = || StoreError::Closed.into_provider_error(operation);
        self.inbox.send(job).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

/// A connection and the epoch in which its batches count.
struct Connected {
    session: Session,
    epoch: i64,
}

/// The task behind the handle.
struct Committing {
    dialer: Arc<Dialer>,
    shared: Arc<Shared>,
    patience: Duration,
    name: String,
    jobs: mpsc::Receiver<Job>,
    connection: Option<Connected>,
    batches: i64,
    progress: watch::Sender<Progress>,
}

/// What one attempt to commit came to.
enum Attempt {
    Committed(Verdicts, Effects),
    /// Nothing was kept.
    Failed(Failure),
    /// It could not be found out whether anything was kept, so it must not be tried again.
    Unresolved(Failure),
}

impl Committing {
    async fn run(mut self) {
        // If that fails, the first job finds out.
        let _ = self.connect().await;
        let mut waiting: Vec<Job> = Vec::new();
        loop {
            let mut batch = Batch::default();
            let room = BATCH_SIZE.saturating_sub(waiting.len());
            if waiting.is_empty() {
                if self.jobs.recv_many(&mut waiting, room).await == 0 {
                    return;
                }
            } else {
                while let Some(job) =
                    (waiting.len() < BATCH_SIZE).then(|| self.jobs.try_recv().ok()).flatten()
                {
                    waiting.push(job);
                }
            }
            waiting = fill(&mut batch, waiting);
            if batch.len() > 0 {
                self.process(batch).await;
            }
        }
    }

    /// Commits a batch, or its jobs one by one, and answers them.
    async fn process(&mut self, batch: Batch) {
        let Err((batch, failure)) = self.commit(batch, false).await else { return };
        if failure.may_pass() || batch.len() == 0 {
            return batch.fail(&failure);
        }
        for job in batch.into_jobs() {
            let mut alone = Batch::default();
            // A job alone never has to wait for the next batch.
            let _ = alone.add(job);
            if let Err((alone, failure)) = self.commit(alone, true).await {
                alone.fail(&failure);
            }
        }
    }

    /// Commits a batch and answers it; gives it back if that failed for good or for too long.
    async fn commit(&mut self, mut batch: Batch, careful: bool) -> Result<(), (Batch, Failure)> {
        let mut trials = Trials::new(self.patience);
        loop {
            match self.attempt(&mut batch, careful).await {
                Attempt::Committed(verdicts, effects) => {
                    self.shared.announce(effects);
                    batch.answer(&verdicts);
                    return Ok(());
                }
                Attempt::Failed(failure) => {
                    if failure.kind == FailureKind::Lost {
                        self.connection = None;
                    }
                    if !failure.may_pass() || !trials.wait().await {
                        return Err((batch, failure));
                    }
                }
                Attempt::Unresolved(failure) => return Err((batch, failure)),
            }
        }
    }

    async fn attempt(&mut self, batch: &mut Batch, careful: bool) -> Attempt {
        if let Err(failure) = self.connect().await {
            return Attempt::Failed(failure);
        }
        let Some(connection) = &self.connection else {
            return Attempt::Failed(Failure::lost("Connection closed"));
        };
        if let Err(error) = batch.prepare(&connection.session).await {
            return Attempt::Failed(error.into());
        }
        self.batches += 1;
        let number = self.batches;
        self.progress.send_modify(|progress| progress.sent = number);
        let answers = transact(&self.shared, &self.name, connection, number, batch, careful).await;
        match answers {
            Ok(answers) => {
                let (verdicts, effects) = batch.read(answers);
                self.progress.send_modify(|progress| progress.durable = number);
                Attempt::Committed(verdicts, effects)
            }
            Err(Unfinished::RolledBack(failure)) => Attempt::Failed(failure),
            Err(Unfinished::Unknown(failure)) => {
                connection.session.cut();
                self.connection = None;
                self.resolve(number, batch, failure).await
            }
        }
    }

    /// Finds out what became of a batch whose answer was lost.
    async fn resolve(&mut self, number: i64, batch: &Batch, failure: Failure) -> Attempt {
        let mut trials = Trials::new(self.patience);
        loop {
            match self.begin_epoch().await {
                Ok(row) if row.get::<_, i64>(1) == number => {
                    tracing::info!(target: "duroxide::providers::postgres", "a commit whose answer was lost had been made");
                    let verdicts = Verdicts {
                        turns: row.get(2),
                        turn_details: Vec::new(),
                        refused_work: row.get::<_, Option<Vec<i32>>>(3).unwrap_or_default(),
                        taken_starts: row.get::<_, Option<Vec<i32>>>(4).unwrap_or_default(),
                    };
                    // What is due when was lost with the answer: everybody looks.
                    let mut effects =
                        Effects { instances_touched: true, work_ready: true, ..Effects::default() };
                    batch.add_effects(&verdicts, &mut effects);
                    return Attempt::Committed(verdicts, effects);
                }
                // It was not committed, and cannot be any more.
                Ok(_) => return Attempt::Failed(failure),
                Err(_) if trials.wait().await => {}
                Err(_) => {
                    let message = format!("{}; it may or may not have been committed", failure.message);
                    return Attempt::Unresolved(Failure::lost(message));
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        match &self.connection {
            Some(connection) if !connection.session.is_closed() => Ok(()),
            _ => self.begin_epoch().await.map(drop),
        }
    }

    /// Connects, and makes sure that nothing of an earlier connection can still be committed.
    async fn begin_epoch(&mut self) -> Result<Row, Failure> {
        self.connection = None;
        let session = self.dialer.connect(Purpose::Data).await?;
        session.prepare(BEGIN_BATCH).await?;
        let rows = in_time(session.query(BEGIN_EPOCH, &[&self.name])).await;
        let rows = rows.ok_or_else(|| Failure::lost("PostgreSQL does not answer"))??;
        let row = rows.into_iter().next().ok_or_else(|| Failure::lost("no epoch"))?;
        self.connection = Some(Connected { session, epoch: row.get(0) });
        self.progress.send_modify(|progress| progress.connection += 1);
        Ok(row)
    }
}

/// Puts jobs into a batch, and returns those that have to wait for the next.
fn fill(batch: &mut Batch, jobs: Vec<Job>) -> Vec<Job> {
    let (mut bytes, mut later) = (0, Vec::new());
    for job in jobs.into_iter().filter(|job| !job.is_moot()) {
        let size = job.size();
        if batch.len() > 0 && bytes + size > BATCH_BYTES {
            later.push(job);
            continue;
        }
        bytes += size;
        later.extend(batch.add(job));
    }
    later
}

/// Why a transaction has no answer.
enum Unfinished {
    /// It did not happen.
    RolledBack(Failure),
    /// It may have happened.
    Unknown(Failure),
}

type Answers = Vec<Result<Vec<Row>, tokio_postgres::Error>>;
type Parts<'a> = Pin<Box<dyn Future<Output = Answers> + Send + 'a>>;

/// Sends a whole transaction at once and waits for it.
async fn transact(
    shared: &Shared,
    name: &String,
    connection: &Connected,
    number: i64,
    batch: &Batch,
    careful: bool,
) -> Result<Vec<Vec<Row>>, Unfinished> {
    let Connected { session, epoch } = connection;
    let begin: Parts<'_> = Box::pin(async { vec![session.run("BEGIN").await.map(|()| Vec::new())] });
    let mark: Parts<'_> = Box::pin(async { vec![session.query(BEGIN_BATCH, &[name, epoch, &number]).await] });
    let statements: Parts<'_> = Box::pin(batch.execute(session, shared, name, careful));
    let commit: Parts<'_> = Box::pin(async { vec![session.run("COMMIT").await.map(|()| Vec::new())] });
    let all = in_order(vec![begin, mark, statements, commit]);
    let Some(answers) = in_time(all).await else {
        return Err(Unfinished::Unknown(Failure::lost("PostgreSQL does not answer")));
    };
    let mut answers: Answers = answers.into_iter().flatten().collect();
    // A backend that is told to end may say so instead of answering a commit that it has made.
    let committed = answers.pop();
    let refused =
        answers.iter().position(|answer| answer.as_ref().is_err_and(|error| error.code().is_some()));
    if let Some(position) = refused
        && let Err(error) = answers.swap_remove(position)
    {
        // The server refused a statement, so the commit that follows it rolled back, also if we did not hear of that.
        return Err(Unfinished::RolledBack(error.into()));
    }
    let unknown = |error: tokio_postgres::Error| {
        Unfinished::Unknown(Failure { kind: FailureKind::Lost, ..error.into() })
    };
    let mut rows = answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(unknown)?;
    if let Some(Err(error)) = committed {
        return Err(unknown(error));
    }
    // Without those of BEGIN and the mark.
    rows.drain(..2);
    Ok(rows)
}
