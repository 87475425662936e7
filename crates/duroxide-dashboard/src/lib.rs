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
//! let store = Arc::new(SqliteProvider::new("sqlite:app.db", None).await?);
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
            max_body_bytes: 4 * 1024 * 1024,
            shutdown: None,
        };
        Self { store, settings }
    }

    /// Names the store in the pages' margin. It is shown to everybody, so it must hold no password.
    #[must_use]
    pub fn store_name(mut self, name: impl Into<String>) -> Self {
        self.settings.store_name = name.into();
        self
    }

    /// Asks for this token: `Authorization: Bearer …`. Its holders may do everything.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.settings.token = Some(Token::new(token.into()));
        self
    }

    /// Lets the holders of this token look and change nothing. With this alone, nobody may change anything.
    #[must_use]
    pub fn read_only_token(mut self, token: impl Into<String>) -> Self {
        self.settings.read_only_token = Some(Token::new(token.into()));
        self
    }

    /// Lets nobody change anything.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.settings.is_read_only = true;
        self
    }

    /// Accepts requests for this host name, without port. `localhost` and addresses are always accepted: a name is what
    /// a hostile page would need to reach a server on its visitor's machine.
    #[must_use]
    pub fn allow_host(mut self, name: impl Into<String>) -> Self {
        self.settings.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    /// Takes the name of who acts from this header, for the audit line. Only for a server behind a proxy that sets it.
    #[must_use]
    pub fn operator_header(mut self, name: impl Into<String>) -> Self {
        self.settings.operator_header = Some(name.into().to_ascii_lowercase());
        self
    }

    /// Shows a button that calls this: to kill a worker and watch the work go on. It answers what it did, or why it
    /// could not.
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
    #[must_use]
    pub fn max_streams(mut self, streams: usize) -> Self {
        self.settings.max_streams = streams;
        self
    }

    /// Bounds the body of a request (4 MiB).
    #[must_use]
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_body_bytes = bytes;
        self
    }

    /// Ends the live streams when this turns true, so that a graceful shutdown does not wait for browsers.
    #[must_use]
    pub fn shutdown(mut self, shutdown: watch::Receiver<bool>) -> Self {
        self.settings.shutdown = Some(shutdown);
        self
    }

    /// Makes the router. Mount it at the root, or under a path with `nest_service`.
    pub fn into_router(self) -> Router {
        let Self { store, settings } = self;
        let client = Client::new(store.clone());
        let clock: Arc<dyn Clock> = match store.as_extended() {
            Some(extended) => extended.clock(),
            None => Arc::new(SystemClock),
        };
        let hub = Hub::new(store, client.clone(), clock.clone(), settings.max_streams);
        let shared = Arc::new(Shared { client, settings, hub, clock });
        guard::protect(api::router(&shared).merge(assets::router()), shared)
    }
}
