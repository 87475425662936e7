//! The application's handle on a store: start, send, wait, query, manage.
//!
//! A client talks to the store only, never to a runtime: the two may live in different processes.

mod ask;
mod cancel;
mod complete;
mod error;
mod inspect;
mod key_value;
mod management;
mod messages;
mod presence;
mod send;
mod start;
mod status;
mod wait;

use std::sync::Arc;

use crate::model::{Clock, SystemClock};
use crate::providers::{ExtendedProvider, Provider};

pub use ask::AskError;
pub(crate) use ask::Question;
pub use cancel::Cancel;
pub use complete::CompleteError;
pub use error::ClientError;
pub use inspect::{InstanceDescription, StoreOverview, TroubledOrchestration, UnservedActivities};
pub use messages::EnqueueOptions;
pub use send::SendError;
pub use start::{StartOptions, StartedInstance};

const TARGET: &str = "duroxide::client";

/// A handle on a store for applications: starts instances, sends them messages, waits for them, and manages them.
///
/// A call returns when the store has made it durable. A client needs no runtime; it may live in another process.
///
/// ```no_run
/// use std::time::Duration;
/// use duroxide::{Client, OrchestrationStatus};
///
/// # async fn run(client: Client) -> Result<(), duroxide::ClientError> {
/// client.start_orchestration("order-7", "Order", "3 apples").await?;
/// client.raise_event("order-7", "Approved", "Ada").await?;
/// match client.wait_for_orchestration("order-7", Duration::from_secs(60)).await? {
///     OrchestrationStatus::Completed { output, .. } => println!("{output}"),
///     OrchestrationStatus::Failed { details, .. } => println!("failed: {}", details.display_message()),
///     other => println!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Provider>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Client {
    /// Makes a client on a store. Its time-outs and pauses follow the machine's clock, whatever clock the store
    /// follows.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use duroxide::Client;
    /// use duroxide::providers::memory::MemoryProvider;
    ///
    /// // The runtime and any number of clients share the store.
    /// let store = Arc::new(MemoryProvider::new());
    /// let client = Client::new(store.clone());
    /// ```
    pub fn new(store: Arc<dyn Provider>) -> Self {
        Self { store, clock: Arc::new(SystemClock) }
    }

    /// Makes time-outs and pauses follow this clock instead: for tests that move the time by hand.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use duroxide::Client;
    /// use duroxide::providers::ManualClock;
    /// use duroxide::providers::memory::MemoryProvider;
    ///
    /// let clock = Arc::new(ManualClock::default());
    /// let client = Client::new(Arc::new(MemoryProvider::with_clock(clock.clone()))).with_clock(clock);
    /// ```
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    fn extended(&self) -> Option<&dyn ExtendedProvider> {
        self.store.as_extended()
    }
}
