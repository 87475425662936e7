//! Results of activities whose turn follows at once.
//!
//! Such a result need not be synced by itself: the turn that it leads to is committed later in the same log, so what makes
//! the turn durable makes the result durable too. It is committed on the connection of the leases, which does not wait for
//! the disk, together with those of others. Whoever reports it waits for the next commit that is synced.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Durable, ProviderError, refusal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::columns::WorkAckColumns;
use crate::committer::Committer;
use crate::encode::WorkAck;
use crate::errands::Returns;
use crate::jobs::{Answer, Job, Pending, Reply};
use crate::shared::Effects;

/// Results in one call, at most.
const BATCH_SIZE: usize = 256;
/// How long the turn that a result leads to may take before the result is synced by itself.
const LINGER: Duration = Duration::from_millis(2);

/// How far the committer has come, as those see it who wait for what they committed elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Which connection it has; another one may lead to a server that has forgotten what was not synced.
    pub(crate) connection: u64,
    /// The last batch that was sent.
    pub(crate) sent: i64,
    /// The last batch that is durable.
    pub(crate) durable: i64,
}

/// The handle by which results are handed in.
pub(crate) struct Results {
    inbox: mpsc::UnboundedSender<Pending<WorkAck>>,
}

impl Results {
    pub(crate) fn start(returns: Returns) -> Self {
        let (inbox, mut arriving) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while arriving.recv_many(&mut waiting, BATCH_SIZE).await > 0 {
                store(&returns, std::mem::take(&mut waiting)).await;
            }
        });
        Self { inbox }
    }

    /// Commits a result, without waiting for the disk.
    pub(crate) async fn hand_in(
        &self,
        ack: Pending<WorkAck>,
        answer: Answer<()>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "ack_work_item";
        let closed = || crate::error::StoreError::Closed.into_provider_error(OPERATION);
        self.inbox.send(ack).map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

async fn store(returns: &Returns, acks: Vec<Pending<WorkAck>>) {
    let acks: Vec<Pending<WorkAck>> = acks.into_iter().filter(|ack| !ack.reply.is_moot()).collect();
    if acks.is_empty() {
        return;
    }
    let columns = WorkAckColumns::new(&acks, &returns.shared);
    // There is no committer to leave a note for: who does not hear the answer tries again, and is refused if it was made.
    let stored = columns.store(&returns.line, returns.shared.time.given_ms(), "").await;
    match stored {
        Ok(rows) => {
            let done: std::collections::HashSet<i32> = rows.iter().map(|row| row.get(0)).collect();
            returns.shared.announce(Effects { instances_touched: !done.is_empty(), ..Effects::default() });
            for (place, ack) in (1..).zip(acks) {
                let held = done.contains(&place);
                ack.reply.give(if held { Ok(()) } else { Err(refusal::work_not_held().into()) });
            }
        }
        Err(failure) => acks.into_iter().for_each(|ack| ack.reply.give(Err(failure.clone().into()))),
    }
}

/// Tells when everything that is committed by now is durable. `before` is how far the committer had come before it was.
pub(crate) fn durable_soon(committer: &Arc<Committer>, before: Progress) -> Durable {
    let (sender, told) = oneshot::channel();
    let progress = committer.progress();
    let began = Progress { connection: before.connection, ..*progress.borrow() };
    let committer = Arc::downgrade(committer);
    tokio::spawn(async move {
        let result = wait_until_durable(began, progress, || {
            let committer = committer.upgrade();
            async move {
                let Some(committer) = committer else { return };
                let (reply, answer) = Reply::new("sync");
                // What becomes of it shows in the progress.
                let _ = committer.submit("sync", Job::Sync(reply), answer).await;
            }
        });
        let _ = sender.send(result.await);
    });
    Durable::when(told)
}

async fn wait_until_durable<S: Future<Output = ()>>(
    began: Progress,
    mut progress: watch::Receiver<Progress>,
    sync: impl FnOnce() -> S,
) -> Result<(), ProviderError> {
    let uncertain =
        || ProviderError::retryable("sync", "the connection was lost before the result was synced");
    let is_over = |now: &Progress| now.connection != began.connection || now.durable > began.sent;
    let lingered = tokio::time::timeout(LINGER, progress.wait_for(is_over)).await.is_ok();
    if !lingered {
        let under_way = { progress.borrow().sent > began.sent };
        if !under_way {
            sync().await;
        }
        progress.wait_for(is_over).await.map_err(|_| uncertain())?;
    }
    let now = *progress.borrow();
    if now.connection == began.connection { Ok(()) } else { Err(uncertain()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(connection: u64, sent: i64, durable: i64) -> Progress {
        Progress { connection, sent, durable }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_batch_that_is_sent_and_synced_covers_it() {
        let source = watch::Sender::new(at(1, 5, 4));
        let no_sync = || async { panic!("no sync is needed") };
        let waiting = tokio::spawn(wait_until_durable(at(1, 5, 4), source.subscribe(), no_sync));
        tokio::task::yield_now().await;
        source.send_replace(at(1, 6, 5));
        tokio::time::sleep(LINGER * 2).await;
        assert!(!waiting.is_finished(), "batch 5 was sent before");
        source.send_replace(at(1, 6, 6));
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn if_nothing_is_sent_it_is_synced_by_itself() {
        let source = Arc::new(watch::Sender::new(at(1, 5, 5)));
        let inner = source.clone();
        let sync = || async move {
            inner.send_replace(at(1, 6, 6));
        };
        wait_until_durable(at(1, 5, 5), source.subscribe(), sync).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn another_connection_means_that_nobody_knows() {
        let source = Arc::new(watch::Sender::new(at(1, 5, 5)));
        let inner = source.clone();
        let sync = || async move {
            inner.send_replace(at(2, 6, 6));
        };
        let error = wait_until_durable(at(1, 5, 5), source.subscribe(), sync).await.unwrap_err();
        assert!(error.retryable);
    }
}
