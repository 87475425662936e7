//! Claims on their way from the writer to the caller.
//!
//! A future may be dropped at any point, also after its claims were committed and before it was polled again. Then
//! nobody knows of the leases, so they are given back at once instead of running out.

use super::batch::Batch;
use super::error::StoreError;
use super::writer::Errands;

/// Something that was leased.
pub(super) trait Claimed: Send + 'static {
    /// Gives the lease back as if it had never been taken.
    fn give_back(&self, batch: &mut Batch<'_>) -> Result<(), StoreError>;
}

/// Claims that nobody has taken note of yet.
pub(super) struct Held<C: Claimed> {
    claims: Vec<C>,
    errands: Errands,
}

impl<C: Claimed> Held<C> {
    pub(super) fn new(claims: Vec<C>, errands: Errands) -> Self {
        Self { claims, errands }
    }

    /// Takes note of the claims: from here on the caller is responsible.
    pub(super) fn take(mut self) -> Vec<C> {
        std::mem::take(&mut self.claims)
    }
}

impl<C: Claimed> Drop for Held<C> {
    fn drop(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        if claims.is_empty() {
            return;
        }
        self.errands.leave("give_back", move |batch| {
            for claim in &claims {
                // Gone already is as good as given back.
                let _ = claim.give_back(batch);
            }
            Ok(())
        });
    }
}

impl Claimed for super::claims::StoredClaim {
    fn give_back(&self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        super::turns::abandon(batch, &self.token, None, true)
    }
}

impl Claimed for super::work::StoredWork {
    fn give_back(&self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        super::work::abandon(batch, &self.token, None, true)
    }
}
