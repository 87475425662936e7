//! Jobs for the writer: work for one transaction, and the answer to the caller that waits for it.

use tokio::sync::oneshot;

use super::error::{StoreError, classify};
use super::inbox::{Job, JobAnswer, SyncWaiter};
use super::write_transaction::WriteTransaction;
use crate::providers::ProviderError;

/// The work of a job in the transaction.
pub(super) trait Work<T> {
    /// Tells whether the writer does the work even if no caller waits for it.
    const UNATTENDED: bool;
    fn perform(self, tx: &mut WriteTransaction<'_, '_>) -> Result<T, StoreError>;
}

impl<T, F: FnOnce(&mut WriteTransaction<'_, '_>) -> Result<T, StoreError>> Work<T> for F {
    const UNATTENDED: bool = false;
    fn perform(self, tx: &mut WriteTransaction<'_, '_>) -> Result<T, StoreError> {
        self(tx)
    }
}

/// Work that the writer does even if no caller waits for it.
pub(super) struct Unattended<F>(pub(super) F);

impl<F: FnOnce(&mut WriteTransaction<'_, '_>) -> Result<(), StoreError>> Work<()> for Unattended<F> {
    const UNATTENDED: bool = true;
    fn perform(self, tx: &mut WriteTransaction<'_, '_>) -> Result<(), StoreError> {
        (self.0)(tx)
    }
}

/// The claim of a job that claims nothing.
pub(super) fn no_claim<T>(_: &mut WriteTransaction<'_, '_>, _: &mut T) -> Result<(), StoreError> {
    Ok(())
}

/// A job with a caller that waits for its result.
pub(super) struct AwaitedJob<T, W, C> {
    pub(super) operation: &'static str,
    pub(super) work: W,
    /// The claims that the job makes once all other jobs of the transaction have run.
    pub(super) claim: C,
    pub(super) sender: oneshot::Sender<Result<T, ProviderError>>,
    /// The caller that waits for the sync, if that comes after the answer.
    pub(super) sync_waiter: Option<SyncWaiter>,
}

impl<T, W, C> Job for AwaitedJob<T, W, C>
where
    T: Send + 'static,
    W: Work<T> + Send,
    C: FnOnce(&mut WriteTransaction<'_, '_>, &mut T) -> Result<(), StoreError> + Send + 'static,
{
    fn run(self: Box<Self>, tx: &mut WriteTransaction<'_, '_>) -> Box<dyn JobAnswer> {
        let Self { operation, work, claim, sender, sync_waiter } = *self;
        // The transaction will be rolled back, or the caller went away before the job began.
        let is_pointless = tx.is_spoiled() || (sender.is_closed() && !W::UNATTENDED);
        let result = if is_pointless { Err(StoreError::Closed) } else { work.perform(tx) };
        let mut answer = PreparedAnswer { operation, result, claim: Some(claim), sender, sync_waiter };
        answer.note_failure(tx);
        Box::new(answer)
    }

    fn fail(self: Box<Self>, error: &rusqlite::Error) {
        let _ = self.sender.send(Err(classify(self.operation, error)));
    }
}

struct PreparedAnswer<T, C> {
    operation: &'static str,
    result: Result<T, StoreError>,
    claim: Option<C>,
    sender: oneshot::Sender<Result<T, ProviderError>>,
    sync_waiter: Option<SyncWaiter>,
}

impl<T, C> PreparedAnswer<T, C> {
    /// Gives up the transaction if a statement failed half-way.
    fn note_failure(&mut self, tx: &mut WriteTransaction<'_, '_>) {
        if let Err(StoreError::Sqlite(error)) = &self.result {
            tx.spoil(error);
        }
    }
}

impl<T, C: FnOnce(&mut WriteTransaction<'_, '_>, &mut T) -> Result<(), StoreError>> JobAnswer
    for PreparedAnswer<T, C>
{
    fn claim(&mut self, tx: &mut WriteTransaction<'_, '_>) {
        let (Ok(result), Some(claim)) = (&mut self.result, self.claim.take()) else { return };
        if tx.is_spoiled() {
            return;
        }
        if let Err(error) = claim(tx, result) {
            self.result = Err(error);
            self.note_failure(tx);
        }
    }

    fn give(self: Box<Self>, committed: Result<(), &rusqlite::Error>) -> Option<SyncWaiter> {
        let answer = match (committed, self.result) {
            (Ok(()), result) => result.map_err(|error| error.into_provider_error(self.operation)),
            // The failed job gets its own error; the other jobs of the batch learn that theirs was rolled back too and
            // that they may try again.
            (Err(_), Err(StoreError::Sqlite(error))) => Err(classify(self.operation, &error)),
            (Err(error), _) => {
                Err(ProviderError::retryable(self.operation, classify(self.operation, error).message))
            }
        };
        let sync_waiter = self.sync_waiter.filter(|_| answer.is_ok());
        // A caller that went away does not get it.
        let _ = self.sender.send(answer);
        sync_waiter
    }
}
