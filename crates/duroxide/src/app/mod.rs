//! The front door: a store, a runtime and a client as one thing.

mod builder;
mod error;
mod open;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::providers::Provider;
use crate::runtime::Runtime;

pub use builder::DuroxideBuilder;
pub use error::StartError;

/// How long running work may take to end at a shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// A running application: it takes turns, runs activities, and is a [`Client`] as well.
///
/// Clones are the same application. [`shutdown`](Self::shutdown) ends it in order.
///
/// ```
/// use duroxide::prelude::*;
///
/// #[activity]
/// async fn greet(name: String) -> Result<String, String> {
///     Ok(format!("Hello, {name}!"))
/// }
///
/// #[orchestration]
/// async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
///     greet(&ctx, name).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Duroxide::open("memory:").activity(greet).orchestration(hello).start().await?;
/// let greeting = app.start(hello, "hello-1", "Ada".to_string()).await?.result().await?;
/// assert_eq!(greeting, "Hello, Ada!");
/// app.shutdown().await;
/// # Ok(()) }
/// ```
///
/// # Defaults
///
/// They differ from those of [`RuntimeOptions`](crate::RuntimeOptions), which are those of the published 0.1 line: 64
/// activities and 8 turns at once; an instance whose code does not fit its history, is not registered, or waits for
/// something that is not durable, is blocked and does not fail; debug builds take every turn twice and compare.
/// [`DuroxideBuilder::options`] sets others. The parts stay usable on their own: registries,
/// [`Runtime`] and [`Client`].
#[derive(Clone)]
pub struct Duroxide {
    store: Arc<dyn Provider>,
    client: Client,
    runtime: Arc<Runtime>,
}

impl Duroxide {
    /// Begins with the store that a URL names; [`start`](DuroxideBuilder::start) opens it.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `sqlite:orders.db` | a SQLite file, made if it is missing (feature `sqlite`) |
    /// | `sqlite::memory:` | SQLite in memory |
    /// | `memory:` | in memory, lost at exit |
    ///
    /// For PostgreSQL, `duroxide-pg` opens the store: `Duroxide::on(duroxide_pg::open(url).await?)`. It opens all of these
    /// URLs, too.
    ///
    /// ```
    /// use duroxide::prelude::*;
    ///
    /// # #[orchestration] async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> { drop(ctx); Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").orchestration(hello).start().await?;
    /// assert_eq!(app.start(hello, "h-1", "Ada".to_string()).await?.result().await?, "Ada");
    /// app.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub fn open(url: impl Into<String>) -> DuroxideBuilder {
        DuroxideBuilder::new(builder::Source::Url(url.into()))
    }

    /// Begins with a store that is open already.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use duroxide::Duroxide;
    /// use duroxide::providers::memory::MemoryProvider;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::on(Arc::new(MemoryProvider::new())).start().await?;
    /// # app.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub fn on(store: Arc<dyn Provider>) -> DuroxideBuilder {
        DuroxideBuilder::new(builder::Source::Store(store))
    }

    /// Returns the client of this application. The application itself derefs to it.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").start().await?;
    /// let client: Client = app.client().clone();
    /// # app.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the runtime of this application.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").start().await?;
    /// let runtime = app.runtime().clone();
    /// # app.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Returns the store of this application.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").start().await?;
    /// let store = app.store().clone(); // for a dashboard
    /// # app.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub fn store(&self) -> &Arc<dyn Provider> {
        &self.store
    }

    /// Ends the application in order: takes no new work, gives running work ten seconds to end, aborts the rest, and
    /// returns when nothing runs any more. What was aborted runs again elsewhere, or at the next start.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").start().await?;
    /// app.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self) {
        self.shutdown_within(GRACE).await;
    }

    /// As [`shutdown`](Self::shutdown), with another time for running work to end.
    ///
    /// ```
    /// # use duroxide::prelude::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let app = Duroxide::open("memory:").start().await?;
    /// app.shutdown_within(secs(60)).await;
    /// # Ok(()) }
    /// ```
    pub async fn shutdown_within(&self, grace: Duration) {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.runtime.clone().shutdown(Some(grace)).await;
    }
}

impl Deref for Duroxide {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl std::fmt::Debug for Duroxide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duroxide").field("store", &self.store.name()).finish_non_exhaustive()
    }
}
