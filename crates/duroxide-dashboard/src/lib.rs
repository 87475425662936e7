//! The dashboard of duroxide: pages, a REST API and a live stream over any store, as an axum [`Router`].
//!
//! An application mounts it in its own server, at the root or under any path. It is a client like any other: it sees the
//! store through the storage traits and has no SQL of its own. The pages are embedded; no request leaves the machine.
//!
//! ```no_run
//! use std::sync::Arc;
//! use duroxide::providers::sqlite::SqliteProvider;
//! use duroxide_dashboard::Dashboard;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(SqliteProvider::new("sqlite:app.db?mode=rwc", None).await?);
//! let dashboard = Dashboard::new(store).store_name("app.db").into_router();
//! let app = axum::Router::new().nest_service("/ops", dashboard);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7777").await?;
//! axum::serve(listener, app).await?;
//! # Ok(()) }
//! ```
//!
//! # Who may do what
//!
//! Without a token, everybody who reaches the address may do everything: bind it to the loopback interface only. With
//! [`Dashboard::token`] the API asks for `Authorization: Bearer …`; [`Dashboard::read_only_token`] lets its holders look;
//! [`Dashboard::read_only`] lets nobody change anything. In any case the `Host` header must name the machine itself, an
//! address, or a [name that was allowed](Dashboard::allow_host), and a page of another origin is refused. Whatever
//! changes something writes a line under the tracing target `duroxide::audit`.

mod api;
mod assets;
mod audit;
mod guard;
mod live;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use duroxide::Client;
use duroxide::providers::{Clock, Provider, SystemClock};
use tokio::sync::watch;

pub use api::openapi;

use guard::tokens::Token;
use live::hub::Hub;

/// What the crash button does: says what died, or why nothing did.
type Crash = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync>;

/// The settings of a dashboard; [`into_router`](Self::into_router) makes it.
///
/// ```no_run
/// use duroxide_dashboard::Dashboard;
///
/// # async fn run(store: std::sync::Arc<dyn duroxide::providers::Provider>, app: axum::Router) {
/// let dashboard = Dashboard::new(store).token("a long secret").into_router();
/// let app = app.nest_service("/ops", dashboard);
/// # drop(app);
/// # }
/// ```
pub struct Dashboard {
    store: Arc<dyn Provider>,
    settings: Settings,
}

/// Everything that is fixed once the router is made.
pub(crate) struct Settings {
    store_name: String,
    token: Option<Token>,
    read_only_token: Option<Token>,
    is_read_only: bool,
    hosts: Vec<String>,
    operator_header: Option<String>,
    crash: Option<Crash>,
    max_streams: usize,
    look_every: Duration,
    max_body_bytes: usize,
    shutdown: Option<watch::Receiver<bool>>,
}

/// What every handler sees.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) hub: Arc<Hub>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Dashboard {
    /// Begins a dashboard over this store.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).into_router();
    /// # let _: axum::Router = router;
    /// ```
    pub fn new(store: Arc<dyn Provider>) -> Self {
        let settings = Settings {
            store_name: String::new(),
            token: None,
            read_only_token: None,
            is_read_only: false,
            hosts: Vec::new(),
            operator_header: None,
            crash: None,
            max_streams: 64,
            look_every: Duration::from_secs(1),
            max_body_bytes: 4 * 1024 * 1024,
            shutdown: None,
        };
        Self { store, settings }
    }

    /// Names the store in the pages' margin. It is shown to everybody, so it must hold no password.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).store_name("orders in production").into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn store_name(mut self, name: impl Into<String>) -> Self {
        self.settings.store_name = name.into();
        self
    }

    /// Asks for this token: `Authorization: Bearer …`. Its holders may do everything.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let token = std::env::var("DUROXIDE_TOKEN").unwrap_or_else(|_| "only for this example".to_string());
    /// let router = Dashboard::new(store).token(token).into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.settings.token = Some(Token::new(token.into()));
        self
    }

    /// Lets the holders of this token look and change nothing. With this alone, nobody may change anything.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).token("operators").read_only_token("support").into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn read_only_token(mut self, token: impl Into<String>) -> Self {
        self.settings.read_only_token = Some(Token::new(token.into()));
        self
    }

    /// Lets nobody change anything.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).read_only().into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.settings.is_read_only = true;
        self
    }

    /// Accepts requests for this host name, without port. `localhost` and addresses are always accepted: a name is what
    /// a hostile page would need to reach a server on its visitor's machine.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).token("operators").allow_host("orders.example.com").into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn allow_host(mut self, name: impl Into<String>) -> Self {
        self.settings.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    /// Takes the name of who acts from this header, for the audit line. Only for a server behind a proxy that sets it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).token("proxy").operator_header("x-forwarded-user").into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn operator_header(mut self, name: impl Into<String>) -> Self {
        self.settings.operator_header = Some(name.into().to_ascii_lowercase());
        self
    }

    /// Shows a button that calls this: to kill a worker and watch the work go on. It answers what it did, or why it
    /// could not.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store)
    ///     .crash_button(|| async { Err("nothing here can be killed".to_string()) })
    ///     .into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn crash_button<F, Fut>(mut self, crash: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.settings.crash = Some(Arc::new(move || Box::pin(crash())));
        self
    }

    /// Bounds how many live streams may be open (64).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).max_streams(8).into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn max_streams(mut self, streams: usize) -> Self {
        self.settings.max_streams = streams;
        self
    }

    /// Reads the store for the live pages at least so often while one is open, even if it signals nothing (1 s). Whatever
    /// happens to instances is signalled and shown within half a second; workers and ages of messages are not.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).look_every(Duration::from_secs(10)).into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn look_every(mut self, interval: Duration) -> Self {
        self.settings.look_every = interval;
        self
    }

    /// Bounds the body of a request (4 MiB).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let router = Dashboard::new(store).max_body_bytes(64 * 1024).into_router();
    /// # let _: axum::Router = router;
    /// ```
    #[must_use]
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_body_bytes = bytes;
        self
    }

    /// Ends the live streams when this turns true, so that a graceful shutdown does not wait for browsers.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let (stop, stopping) = tokio::sync::watch::channel(false);
    /// let router = Dashboard::new(store).shutdown(stopping).into_router();
    /// // ... serve it; then, before the graceful shutdown of the server:
    /// stop.send(true)?;
    /// # let _: axum::Router = router;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn shutdown(mut self, shutdown: watch::Receiver<bool>) -> Self {
        self.settings.shutdown = Some(shutdown);
        self
    }

    /// Makes the router. Mount it at the root, or under a path with `nest_service`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duroxide::providers::memory::MemoryProvider;
    /// # use duroxide_dashboard::Dashboard;
    /// # let store = Arc::new(MemoryProvider::new());
    /// let ops = Dashboard::new(store).into_router();
    /// let app: axum::Router = axum::Router::new().nest_service("/ops", ops);
    /// ```
    pub fn into_router(self) -> Router {
        let Self { store, settings } = self;
        let client = Client::new(store.clone());
        let clock: Arc<dyn Clock> = match store.as_extended() {
            Some(extended) => extended.clock(),
            None => Arc::new(SystemClock),
        };
        let hub = Hub::new(store, client.clone(), clock.clone(), settings.max_streams, settings.look_every);
        let shared = Arc::new(Shared { client, settings, hub, clock });
        guard::protect(api::router(&shared).merge(assets::router()), shared)
    }
}

/// Compiles and runs the code of the guide's chapter on a service with a dashboard.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/src/service.md")]
struct Guide;
