//! What the copies take from the library's module of this name.

pub mod scenario;

pub use duroxide::providers::{ProviderError, SessionFetchConfig, WorkClaim, WorkQueue, WorkRequest};
pub use signal::{InstanceWatch, InstanceWatchers, WorkSignal, WorkSignalSource};

use crate::interleave::sync::oneshot;

pub mod signal {
    include!(concat!(env!("OUT_DIR"), "/signal.rs"));
}

/// Stands in for the shared reads of those who wait.
#[derive(Default)]
pub struct GatheredLooks;

/// Stands in for the news that a commit is durable.
pub struct Durable(oneshot::Receiver<Result<(), ProviderError>>);

impl Durable {
    pub fn when(told: oneshot::Receiver<Result<(), ProviderError>>) -> Self {
        Self(told)
    }

    pub async fn wait(self) -> Result<(), ProviderError> {
        self.0.await.unwrap_or_else(|_| Err(ProviderError::retryable("sync", "the store was closed")))
    }
}
