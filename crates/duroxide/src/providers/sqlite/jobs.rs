//! Jobs for the writer: work for one transaction, and the answer to whoever waits for it.

use tokio::sync::oneshot;

use super::batch::Batch;
use super::error::{StoreError, classify};
use super::inbox::{Answer, Debt, Job};
use crate::providers::ProviderError;

/// What a job does in the transaction.
pub(super) trait Work<T> {
    /// Tells whether the work is wanted even if nobody waits for it.
    const UNATTENDED: bool;
    fn perform(self, batch: &mut Batch<'_, '_>) -> Result<T, StoreError>;
}

impl<T, F: FnOnce(&mut Batch<'_, '_>) -> Result<T, StoreError>> Work<T> for F {
    const UNATTENDED: bool = false;
    fn perform(self, batch: &mut Batch<'_, '_>) -> Result<T, StoreError> {
        self(batch)
    }
}

/// Work that is done even if nobody waits for it.
pub(super) struct Unattended<F>(pub(super) F);

impl<F: FnOnce(&mut Batch<'_, '_>) -> Result<(), StoreError>> Work<()> for Unattended<F> {
    const UNATTENDED: bool = true;
    fn perform(self, batch: &mut Batch<'_, '_>) -> Result<(), StoreError> {
        (self.0)(batch)
    }
}

/// For a job that claims nothing.
pub(super) fn no_claim<T>(_: &mut Batch<'_, '_>, _: &mut T) -> Result<(), StoreError> {
    Ok(())
}

/// A job whose result somebody waits for.
pub(super) struct AwaitedJob<T, W, C> {
    pub(super) operation: &'static str,
    pub(super) work: W,
    /// What it claims besides, once all other jobs of the transaction have run.
    pub(super) claim: C,
    pub(super) sender: oneshot::Sender<Result<T, ProviderError>>,
    /// Who is to be told when it is durable, if that is not when it is answered.
    pub(super) debt: Option<Debt>,
}

impl<T, W, C> Job for AwaitedJob<T, W, C>
where
    T: Send + 'static,
    W: Work<T> + Send,
    C: FnOnce(&mut Batch<'_, '_>, &mut T) -> Result<(), StoreError> + Send + 'static,
{
    fn run(self: Box<Self>, batch: &mut Batch<'_, '_>) -> Box<dyn Answer> {
        let Self { operation, work, claim, sender, debt } = *self;
        // Nothing of this batch will be kept, or the caller went away before anything was done.
        let is_pointless = batch.is_spoiled() || (sender.is_closed() && !W::UNATTENDED);
        let result = if is_pointless { Err(StoreError::Closed) } else { work.perform(batch) };
        let mut answer = PreparedAnswer { operation, result, claim: Some(claim), sender, debt };
        answer.note_failure(batch);
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
    debt: Option<Debt>,
}

impl<T, C> PreparedAnswer<T, C> {
    /// Gives up the batch if a statement failed half-way.
    fn note_failure(&mut self, batch: &mut Batch<'_, '_>) {
        if let Err(StoreError::Sqlite(error)) = &self.result {
            batch.spoil(error);
        }
    }
}

impl<T, C: FnOnce(&mut Batch<'_, '_>, &mut T) -> Result<(), StoreError>> Answer for PreparedAnswer<T, C> {
    fn claim(&mut self, batch: &mut Batch<'_, '_>) {
        let (Ok(result), Some(claim)) = (&mut self.result, self.claim.take()) else { return };
        if batch.is_spoiled() {
            return;
        }
        if let Err(error) = claim(batch, result) {
            self.result = Err(error);
            self.note_failure(batch);
        }
    }

    fn give(self: Box<Self>, committed: Result<(), &rusqlite::Error>) -> Option<Debt> {
        let answer = match (committed, self.result) {
            (Ok(()), result) => result.map_err(|error| error.into_provider_error(self.operation)),
            // The job that failed hears its own failure; its neighbours, that nothing of theirs was kept either and
            // that they may try again.
            (Err(_), Err(StoreError::Sqlite(error))) => Err(classify(self.operation, &error)),
            (Err(error), _) => {
                Err(ProviderError::retryable(self.operation, classify(self.operation, error).message))
            }
        };
        let debt = self.debt.filter(|_| answer.is_ok());
        // A caller that went away does not hear it.
        let _ = self.sender.send(answer);
        debt
    }
}
