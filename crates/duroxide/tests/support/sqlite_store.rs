//! A store in a file of its own, the messages that tests put into it, and a second look at the file from outside.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use duroxide::providers::sqlite::{SqliteBuilder, SqliteProvider};
use duroxide::providers::{
    ExecutionMetadata, ManualClock, OrchestrationItem, Provider, ProviderError, TagFilter, WorkItem,
};
use duroxide::{Event, EventKind};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

pub const LEASE: Duration = Duration::from_secs(30);
/// Nothing here takes long; a wait of this length is in vain.
pub const FAILURE_BOUND: Duration = Duration::from_secs(30);

/// A directory with the file of a store, and the clock that its stores share.
pub struct StoreFile {
    directory: TempDir,
    pub clock: Arc<ManualClock>,
}

impl StoreFile {
    pub fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), clock: Arc::new(ManualClock::default()) }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_path_buf()
    }

    pub fn url(&self) -> String {
        format!("sqlite:{}?mode=rwc", self.path().display())
    }

    pub fn builder(&self) -> SqliteBuilder {
        SqliteProvider::builder().clock(self.clock.clone())
    }

    pub async fn open(&self) -> Arc<SqliteProvider> {
        Arc::new(self.builder().open(&self.url()).await.unwrap())
    }

    /// A connection that knows nothing of the store.
    pub fn connection(&self) -> Connection {
        Connection::open_with_flags(self.path(), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap()
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.connection().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub fn text(&self, sql: &str) -> String {
        self.connection().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub fn texts(&self, sql: &str) -> Vec<String> {
        let connection = self.connection();
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    pub fn assert_sound(&self) {
        assert_eq!(self.texts("PRAGMA integrity_check"), ["ok"]);
    }
}

pub fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Order".into(),
        input: "{}".into(),
        version: Some("1.0.0".into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

pub fn signal(instance: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "Go".into(), data: data.into() }
}

pub fn activity(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: 1,
        id,
        name: "Charge".into(),
        input: "10".into(),
        session_id: None,
        tag: None,
    }
}

pub fn completion(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.into(), execution_id: 1, id, result: "paid".into() }
}

pub fn started_event(instance: &str, event_id: u64) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "Order".into(),
        version: "1.0.0".into(),
        input: "{}".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event::with_event_id(event_id, instance, 1, None, kind)
}

pub fn metadata() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".into()),
        orchestration_version: Some("1.0.0".into()),
        ..Default::default()
    }
}

pub async fn fetch(store: &SqliteProvider) -> Option<(OrchestrationItem, String, u32)> {
    store.fetch_orchestration_item(LEASE, Duration::ZERO, None).await.unwrap()
}

pub async fn fetch_work(store: &SqliteProvider) -> Option<(WorkItem, String, u32)> {
    store.fetch_work_item(LEASE, Duration::ZERO, None, &TagFilter::Any).await.unwrap()
}

/// Acks a turn that creates the instance and schedules these activities.
pub async fn ack(
    store: &SqliteProvider,
    token: &str,
    events: Vec<Event>,
    activities: Vec<WorkItem>,
) -> Result<(), ProviderError> {
    store.ack_orchestration_item(token, 1, events, activities, vec![], metadata(), vec![]).await
}

/// Starts an instance and takes its first turn.
pub async fn create(store: &SqliteProvider, instance: &str) {
    store.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (item, token, _) = fetch(store).await.unwrap();
    assert_eq!(item.instance, instance);
    ack(store, &token, vec![started_event(instance, 1)], vec![]).await.unwrap();
}

/// Polls a future once and drops it.
pub async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! { biased; value = future => Some(value), () = std::future::ready(()) => None }
}

/// Waits for something that must happen.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(FAILURE_BOUND, future).await.expect("it happens soon")
}

/// The number of transactions in the log: a frame that ends one carries the size of the database.
pub fn commits_in_log(file: &StoreFile) -> usize {
    const HEADER: usize = 32;
    const FRAME_HEADER: usize = 24;
    let log = std::fs::read(file.directory().join("store.db-wal")).unwrap_or_default();
    if log.is_empty() {
        return 0;
    }
    let page_size = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let frames = log[HEADER..].chunks_exact(FRAME_HEADER + page_size);
    frames.filter(|frame| frame[4..8] != [0; 4] && frame[8..16] == log[16..24]).count()
}

/// Polls a future so many times, whenever it asks for it, and drops it.
pub async fn drop_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(move |cx| {
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polled >= polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
