//! A server with work of every kind, for the tests in a browser and for a look at the pages.
//!
//! `cargo run -p duroxide-dashboard --example browser_server -- [--port 7777] [--token secret] [--read-only] [--busy]`

mod hostile;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use duroxide::Client;
use duroxide::prelude::*;
use duroxide_dashboard::Dashboard;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn option(name: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == name)?;
    Some(arguments.get(at + 1).cloned().unwrap_or_default())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sample.db");
    let store = Arc::new(SqliteProvider::new(&format!("sqlite:{}?mode=rwc", path.display()), None).await?);
    let options = RuntimeOptions { worker_concurrency: 6, ..RuntimeOptions::default() };
    let runtime =
        Runtime::start_with_options(store.clone(), work::activities()?, work::orchestrations()?, options)
            .await;
    let client = Client::new(store.clone());
    if option("--hostile").is_some() {
        hostile::begin(&client).await?;
        hostile::begin_everywhere(&client).await?;
        hostile::spoil(&store).await?;
        hostile::report(&store).await?;
    }
    work::begin(&client).await?;
    if option("--busy").is_some() {
        tokio::spawn(work::keep_busy(client.clone()));
    }

    let crashes = Arc::new(AtomicU32::new(0));
    let mut dashboard = Dashboard::new(store).store_name("sqlite:sample.db").crash_button(move || {
        let count = crashes.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(format!("Killed worker {count}; another one takes over.")) }
    });
    if let Some(token) = option("--token") {
        dashboard = dashboard.token(token).read_only_token("look");
    }
    if option("--read-only").is_some() {
        dashboard = dashboard.read_only();
    }
    let port = option("--port").unwrap_or_default().parse().unwrap_or(0);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/ops/", listener.local_addr()?);
    let app = axum::Router::new().nest_service("/ops", dashboard.into_router());
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    runtime.shutdown(None).await;
    Ok(())
}
