//! `duroxide serve`: the dashboard and the metrics, over HTTP.

mod access;
mod metrics;
mod prometheus;
mod signals;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use duroxide_dashboard::Dashboard;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::dev::CrashSwitch;
use crate::failure::{Failure, Outcome};
use crate::output::{Look, Output, Page, Paint};
use crate::store::Store;
use access::Access;
use metrics::Meter;
use signals::StopSignals;

/// Arguments of `duroxide serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Tokens come from the environment (DUROXIDE_TOKEN, DUROXIDE_READ_ONLY_TOKEN) or from files, never from arguments: those can
be read by everybody on the machine. Requests carry them as `Authorization: Bearer TOKEN`, also those for /metrics.

There is no TLS: put a proxy that has it in front of any address but the loopback.")]
pub struct Serve {
    /// Address to listen on; any but the loopback needs a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7777")]
    bind: SocketAddr,
    /// Let nobody change anything
    #[arg(long)]
    read_only: bool,
    /// File with the token that may do everything
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with a token that may only look
    #[arg(long, value_name = "FILE")]
    read_only_token_file: Option<PathBuf>,
    /// Name under which the server is reached, for example behind a proxy; may be given again
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Header in which a proxy says who acts, for the audit log
    #[arg(long, value_name = "HEADER")]
    operator_header: Option<String>,
}

/// What is told when the server listens.
#[derive(Serialize)]
struct Listening {
    dashboard: String,
    metrics: String,
    store: String,
    is_read_only: bool,
    needs_token: bool,
}

/// The dashboard that is served, with the metrics behind its guard.
pub struct Serving {
    dashboard: Dashboard,
    stop: watch::Sender<bool>,
    /// Heard from the beginning: whoever reads the address may stop the server at once.
    signals: StopSignals,
}

impl Serving {
    /// The dashboard of `duroxide dev`: on the loopback, with a button that kills the worker.
    pub fn of_dev(store: &Store, crash: CrashSwitch) -> Self {
        Self::new(store, &Access::default()).crash_button(crash)
    }

    fn new(store: &Store, access: &Access) -> Self {
        let (stop, stopped) = watch::channel(false);
        let meter = Arc::new(Meter::new(store.client.clone()));
        let mut dashboard = Dashboard::new(store.provider.clone())
            .store_name(store.name.clone())
            .shutdown(stopped)
            .route("/metrics", metrics::handler(meter));
        if let Some(token) = access.token() {
            dashboard = dashboard.token(token);
        }
        if let Some(token) = access.read_only_token() {
            dashboard = dashboard.read_only_token(token);
        }
        Self { dashboard, stop, signals: StopSignals::listen() }
    }

    fn crash_button(mut self, crash: CrashSwitch) -> Self {
        self.dashboard = self.dashboard.crash_button(move || {
            let crash = crash.clone();
            async move { crash.crash().await }
        });
        self
    }
}

impl Serve {
    pub async fn run(&self, store: Store, output: &mut Output<'_>) -> Outcome {
        let access = Access::read(
            self.token_file.as_deref(),
            self.read_only_token_file.as_deref(),
            output.console.variable,
        )?;
        self.refuse_the_open(&access)?;
        let mut serving = Serving::new(&store, &access);
        if self.read_only {
            serving.dashboard = serving.dashboard.read_only();
        }
        for host in &self.allow_host {
            serving.dashboard = serving.dashboard.allow_host(host);
        }
        if let Some(header) = &self.operator_header {
            serving.dashboard = serving.dashboard.operator_header(header);
        }
        let listener = TcpListener::bind(self.bind).await.map_err(|error| {
            Failure::failed(format!("cannot listen on {}: {error}", self.bind))
                .hint("choose another address with --bind")
        })?;
        let address = listener.local_addr()?;
        let listening = Listening {
            dashboard: format!("http://{address}/"),
            metrics: format!("http://{address}/metrics"),
            store: store.name.clone(),
            is_read_only: self.read_only,
            needs_token: access.needs_token(),
        };
        output.one(&listening, page)?;
        if !self.bind.ip().is_loopback() {
            output.warn("what is sent to this address is not encrypted, the token included; put a proxy with TLS in front")?;
        }
        serve(listener, serving).await
    }

    fn refuse_the_open(&self, access: &Access) -> Outcome {
        match self.bind.ip().is_loopback() || access.needs_token() {
            true => Ok(()),
            false => {
                Err(Failure::usage(format!("{} can be reached by others, and there is no token", self.bind))
                    .hint("set DUROXIDE_TOKEN or give --token-file, or listen on 127.0.0.1"))
            }
        }
    }
}

fn page(listening: &Listening, look: Look) -> String {
    let mut page = Page::new(look);
    page.heading("duroxide serve");
    page.painted("dashboard", &listening.dashboard, Paint::Cyan);
    page.value("metrics", &listening.metrics);
    page.value("store", &listening.store);
    let rights = match (listening.is_read_only, listening.needs_token) {
        (true, true) => "those with a token may look",
        (true, false) => "everybody on this machine may look",
        (false, true) => "those with a token",
        (false, false) => "everybody on this machine may look and act",
    };
    page.value("access", rights);
    page.finish()
}

/// Serves until somebody stops the process by Ctrl-C or SIGTERM.
pub async fn serve(listener: TcpListener, serving: Serving) -> Outcome {
    let Serving { dashboard, stop, signals } = serving;
    let service = dashboard.into_router().into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(stopped(stop, signals));
    Ok(server.await?)
}

/// Waits until the process is told to stop, and ends the live streams, which would go on for ever.
async fn stopped(stop: watch::Sender<bool>, signals: StopSignals) {
    signals.told().await;
    stop.send_replace(true);
}
