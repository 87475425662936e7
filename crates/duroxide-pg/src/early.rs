//! Commits that are made durable afterwards.
//!
//! Messages and results lead to turns, and the server writes the turn's commit later into the same log: the sync that
//! makes the turn durable makes them durable too. So the early committer commits them on a connection of its own
//! without waiting for the disk, and dispatchers see them at once. It answers the caller when they are durable: when
//! the server has committed a batch that the synced committer sent afterwards.
//!
//! Until then the early committer keeps the batches. A server that crashes may lose the last of them; the early
//! committer asks it which, and commits those again. So nothing is lost, and nothing is done twice.
//!
//! Behind a pooler the store cannot tell whether the server has crashed, because its connections to the pooler outlive
//! the server. There these commits wait for the disk like all others, and their callers hear at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Clock, ProviderError, SystemClock};
use tokio::sync::{mpsc, watch};

use crate::committer::{BATCH_SIZE, Committed, Committer, Committing};
use crate::epochs::Progress;
use crate::error::Failure;
use crate::give_backs::LeaseReturner;
use crate::jobs::{Job, Reply};
use crate::session::Connector;
use crate::settings::Purpose;

/// How long a result or a message waits for the sync of the turn that it leads to, before it gets a sync of its own.
const LINGER: Duration = Duration::from_millis(2);

/// Starts an early committer; the batches of `synced` make durable what it commits.
pub(crate) fn start(
    connector: Arc<Connector>,
    returner: LeaseReturner,
    patience: Duration,
    synced: Arc<Committer>,
) -> Committer {
    let (committer, committing) = Committer::new(connector, Purpose::Messages, returner, patience);
    let (failed, failures) = mpsc::unbounded_channel();
    let progress = synced.progress();
    let early = Early { committing, synced, progress, kept: VecDeque::new(), failed, failures };
    tokio::spawn(early.run());
    committer
}

/// A batch that is committed and may not be durable yet.
struct Kept {
    committed: Committed,
    /// Which connection the synced committer had before this batch was committed, and the last batch that it had sent
    /// when this one was.
    connection: u64,
    sent: i64,
    /// When to ask for a sync, unless one is on its way then; `None` once it was asked for.
    sync_at: Option<Duration>,
}

struct Early {
    committing: Committing,
    synced: Arc<Committer>,
    progress: watch::Receiver<Progress>,
    kept: VecDeque<Kept>,
    /// Where the syncs report that they failed.
    failed: mpsc::UnboundedSender<ProviderError>,
    failures: mpsc::UnboundedReceiver<ProviderError>,
}

/// The next step of the early committer.
enum Next {
    Commit(Vec<Job>),
    Settle,
    Sync,
    Fail(ProviderError),
    End,
}

impl Early {
    async fn run(mut self) {
        let mut waiting: Vec<Job> = Vec::new();
        loop {
            match self.next(std::mem::take(&mut waiting)).await {
                Next::Commit(jobs) => {
                    let (mut batch, later) = self.committing.gather(jobs).await;
                    waiting = later;
                    batch.serve(&self.committing.returner.shared.waiting_dispatchers);
                    // If this changes during the commit, it is unknown which server has the batch.
                    let connection = self.progress.borrow().connection;
                    let committed = self.committing.process(batch).await;
                    committed.into_iter().for_each(|committed| self.keep(committed, connection));
                    let connection = self.progress.borrow().connection;
                    let committed = self.committing.try_set_aside().await;
                    committed.into_iter().for_each(|committed| self.keep(committed, connection));
                    waiting.extend(self.forgotten());
                }
                Next::Settle => waiting = self.settle().await,
                Next::Sync => self.sync_what_has_lingered(),
                Next::Fail(error) => self.give_up(&error),
                Next::End => {
                    self.committing.end().await;
                    return;
                }
            }
        }
    }

    /// Waits until there is something to do.
    async fn next(&mut self, mut waiting: Vec<Job>) -> Next {
        if !waiting.is_empty() {
            return Next::Commit(waiting);
        }
        if self.is_settled() {
            return Next::Settle;
        }
        let sync_at = self.next_sync();
        let retry_at = self.committing.set_aside.next_due();
        let (is_idle, is_over) = (self.kept.is_empty(), self.kept.is_empty() && retry_at.is_none());
        tokio::select! {
            count = self.committing.jobs.recv_many(&mut waiting, BATCH_SIZE) => match count {
                0 if is_over => Next::End,
                // The handle is gone; batches that are kept still become durable, and jobs set aside are still tried.
                0 => self.wait_to_end().await,
                _ => Next::Commit(waiting),
            },
            _ = self.progress.changed(), if !is_idle => Next::Settle,
            () = wait_until(sync_at), if sync_at.is_some() => Next::Sync,
            () = wait_until(retry_at), if retry_at.is_some() => Next::Commit(Vec::new()),
            Some(error) = self.failures.recv() => Next::Fail(error),
        }
    }

    fn next_sync(&self) -> Option<Duration> {
        self.kept.iter().filter_map(|kept| kept.sync_at).min()
    }

    async fn wait_to_end(&mut self) -> Next {
        for kept in &mut self.kept {
            kept.sync_at = kept.sync_at.map(|_| SystemClock.monotonic());
        }
        self.sync_what_has_lingered();
        let sync_at = self.next_sync();
        let retry_at = self.committing.set_aside.next_due();
        tokio::select! {
            () = wait_until(retry_at), if retry_at.is_some() => Next::Commit(Vec::new()),
            changed = self.progress.changed() => if changed.is_ok() { Next::Settle } else { Next::End },
            () = wait_until(sync_at), if sync_at.is_some() => Next::Sync,
            Some(error) = self.failures.recv() => Next::Fail(error),
        }
    }

    fn keep(&mut self, mut committed: Committed, connection: u64) {
        let is_urgent = committed.batch.is_urgent();
        committed.batch.hand_out();
        if committed.is_synced {
            return committed.batch.answer();
        }
        let sent = self.synced.sent();
        let sync_at = if is_urgent { SystemClock.monotonic() } else { SystemClock.monotonic() + LINGER };
        self.kept.push_back(Kept { committed, connection, sent, sync_at: Some(sync_at) });
        if is_urgent {
            self.sync_what_has_lingered();
        }
    }

    /// Tells whether the first batch that is kept is durable, or may have been lost with its server.
    fn is_settled(&self) -> bool {
        let now = *self.progress.borrow();
        self.kept.front().is_some_and(|kept| kept.is_durable(&now) || kept.connection != now.connection)
    }

    /// Answers the callers of durable batches. Returns the jobs that have to be committed again.
    async fn settle(&mut self) -> Vec<Job> {
        let now = *self.progress.borrow_and_update();
        while self.kept.front().is_some_and(|kept| kept.is_durable(&now)) {
            if let Some(Kept { committed, .. }) = self.kept.pop_front() {
                committed.batch.answer();
            }
        }
        if self.kept.iter().all(|kept| kept.connection == now.connection) {
            return Vec::new();
        }
        // The synced committer has another connection, so the server may have crashed, or be another one: then our own
        // connection is over too.
        if let Err(failure) = self.committing.check_connection().await {
            self.kept.drain(..).for_each(|kept| kept.committed.batch.fail(&uncertain(&failure.message)));
            return Vec::new();
        }
        let forgotten = self.forgotten();
        let sent = self.synced.sent();
        for kept in &mut self.kept {
            // If the synced committer's connection has changed again meanwhile, the next `settle` checks again.
            (kept.connection, kept.sent, kept.sync_at) =
                (now.connection, sent, Some(SystemClock.monotonic()));
        }
        self.sync_what_has_lingered();
        forgotten
    }

    /// Takes out the jobs of batches that the server lost in a crash. Fails batches if the server has forgotten whether
    /// it committed them.
    fn forgotten(&mut self) -> Vec<Job> {
        if let Some(last) = self.committing.epochs.take_uncertain() {
            let failure = uncertain("the server has forgotten this process");
            let (unknown, kept) = self.kept.drain(..).partition(|kept| kept.committed.number <= last);
            self.kept = kept;
            let unknown: VecDeque<Kept> = unknown;
            unknown.into_iter().for_each(|kept| kept.committed.batch.fail(&failure));
        }
        let known = self.committing.epochs.take_server_memories();
        let is_lost = |kept: &Kept| known.iter().any(|known| known.lacks(kept.committed.number));
        let (lost, kept) = self.kept.drain(..).partition(is_lost);
        self.kept = kept;
        let lost: VecDeque<Kept> = lost;
        lost.into_iter().flat_map(|kept| kept.committed.batch.into_jobs()).collect()
    }

    /// Asks for a sync if a batch has waited long enough and no sync is on its way.
    fn sync_what_has_lingered(&mut self) {
        let now = SystemClock.monotonic();
        let mut is_needed = false;
        for kept in &mut self.kept {
            if kept.sync_at.is_some_and(|sync_at| sync_at <= now) {
                // The synced batch that is on its way may fail, so this one is checked again later.
                let is_under_way = self.synced.is_under_way_after(kept.sent);
                kept.sync_at = is_under_way.then_some(now + LINGER);
                is_needed |= !is_under_way;
            }
        }
        if !is_needed {
            return;
        }
        let (synced, failed) = (self.synced.clone(), self.failed.clone());
        tokio::spawn(async move {
            let (reply, answer) = Reply::new("sync");
            if let Err(error) = synced.submit("sync", Job::Sync(reply), answer).await {
                let _ = failed.send(error);
            }
        });
    }

    /// Fails all batches that are kept: a sync has failed for so long that their callers should hear of it.
    fn give_up(&mut self, error: &ProviderError) {
        let failure = uncertain(&error.message);
        self.kept.drain(..).for_each(|kept| kept.committed.batch.fail(&failure));
    }
}

impl Kept {
    /// Tells whether this batch is durable. The synced committer makes it durable by a batch that it sent later and that the
    /// server synced, unless the server has crashed in between.
    fn is_durable(&self, now: &Progress) -> bool {
        now.connection == self.connection && now.durable > self.sent
    }
}

fn uncertain(reason: &str) -> Failure {
    Failure::lost(format!("{reason}; it may or may not have been committed"))
}

async fn wait_until(moment: Option<Duration>) {
    if let Some(moment) = moment {
        SystemClock.sleep_until(moment).await;
    }
}
