//! Notifications between processes hold no ids, because every role of the database may listen.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::Provider;
use duroxide_pg::PostgresProvider;
use support::database::{Database, connect};
use support::load;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

const FAILURE_BOUND: Duration = Duration::from_secs(30);

/// A connection that listens to a store's channel.
struct Listener {
    _client: tokio_postgres::Client,
    heard: mpsc::UnboundedReceiver<String>,
}

impl Listener {
    async fn new(url: &str, channel: &str) -> Self {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let (sender, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message {
                    let _ = sender.send(notification.payload().to_string());
                }
            }
        });
        client.batch_execute(&format!("LISTEN {channel}")).await.unwrap();
        Self { _client: client, heard }
    }

    async fn hear(&mut self) -> String {
        tokio::time::timeout(FAILURE_BOUND, self.heard.recv()).await.expect("something is told").unwrap()
    }
}

/// Opens a store that does not poll while the test runs.
async fn store(database: &Database) -> Arc<PostgresProvider> {
    let builder = PostgresProvider::builder().poll_interval(Duration::from_secs(3_600));
    Arc::new(builder.open(database.url()).await.unwrap())
}

// semantics: PG-24
#[tokio::test(flavor = "multi_thread")]
async fn whoever_listens_hears_no_ids() {
    let database = Database::new().await;
    let mut listener = Listener::new(database.url(), "duroxide_public").await;
    let (worker, waiting) = (store(&database).await, store(&database).await);
    let runtime = load::runtime(worker.clone()).await;
    let mut watch = waiting.as_extended().unwrap().watch_instance("job-7");
    let client = Client::new(waiting.clone());
    load::start(&client, 7, 1).await;
    tokio::time::timeout(FAILURE_BOUND, watch.changed()).await.expect("the other process is told");
    client.wait_for_orchestration("job-7", FAILURE_BOUND).await.unwrap();
    runtime.shutdown(None).await;
    let mut has_hashes = false;
    while !has_hashes {
        let payload = listener.hear().await;
        assert!(!payload.contains("job"), "{payload}");
        has_hashes = payload.contains("\"hashes\":[") && !payload.contains("\"hashes\":[]");
    }
    while let Ok(payload) = listener.heard.try_recv() {
        assert!(!payload.contains("job"), "{payload}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_that_tell_ids_are_understood_and_told_to_look() {
    let database = Database::new().await;
    let mut listener = Listener::new(database.url(), "duroxide_public").await;
    let waiting = store(&database).await;
    let operator = connect(database.url()).await;
    support::world::until(
        &operator,
        "EXISTS (SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN \"duroxide%' AND datname = current_database())",
    )
    .await;
    let extended = waiting.as_extended().unwrap();
    for told in [
        r#"{"from":"x","turns":false,"work":false,"changed":["i"],"many":false}"#,
        r#"{"from":"x","many":true}"#,
    ] {
        let mut watch = extended.watch_instance("i");
        operator.query("SELECT pg_notify('duroxide_public', $1)", &[&told]).await.unwrap();
        tokio::time::timeout(FAILURE_BOUND, watch.changed()).await.expect("it is understood");
        assert_eq!(listener.hear().await, told);
    }
    // This store tells them of a change as a change of many.
    let runtime = load::runtime(waiting.clone()).await;
    load::start(&Client::new(waiting), 0, 1).await;
    loop {
        let payload = listener.hear().await;
        if payload.contains("\"many\":true") {
            break;
        }
    }
    runtime.shutdown(None).await;
}
