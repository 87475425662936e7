//! A store on a disk that can lose its power, and a record of the acknowledged writes.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::io;
use std::path::Path;
use std::sync::Arc;

use duroxide::providers::sqlite::{DiskUnderTest, SqliteBuilder, SqliteProvider, WriterFault};
use duroxide::providers::{
    ExtendedProvider, InstanceClaim, InstanceRequest, ManualClock, Provider, ProviderError, StoredResult,
    TagFilter, TurnToStore, WorkClaim, WorkItem, WorkRequest,
};
use powerloss_vfs::{Disk, Survivors, VFS_NAME};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::sqlite_store::{LEASE, activity, completion, metadata, start, started_event};

/// The store's view of the disk.
pub struct Watched {
    pub disk: Arc<Disk>,
    pub fault: Option<WriterFault>,
}

impl DiskUnderTest for Watched {
    fn vfs(&self) -> &str {
        VFS_NAME
    }

    fn write(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(path, offset, bytes)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.disk.sync(path)
    }

    fn writer_fault(&self) -> Option<WriterFault> {
        self.fault
    }
}

/// A directory with a store whose power can be cut.
pub struct Machine {
    directory: TempDir,
    pub disk: Arc<Disk>,
    pub clock: Arc<ManualClock>,
    fault: Option<WriterFault>,
}

impl Machine {
    pub fn new() -> Self {
        Self::with_fault(None)
    }

    /// A machine whose stores have a writer that is wrong on purpose.
    pub fn with_fault(fault: Option<WriterFault>) -> Self {
        let directory = TempDir::new().unwrap();
        let disk = Disk::new(directory.path());
        Self { directory, disk, clock: Arc::new(ManualClock::default()), fault }
    }

    pub fn builder(&self) -> SqliteBuilder {
        let watched = Watched { disk: self.disk.clone(), fault: self.fault };
        SqliteProvider::builder().clock(self.clock.clone()).disk(Arc::new(watched))
    }

    pub fn url(&self) -> String {
        format!("sqlite:{}?mode=rwc", self.disk.directory().join("store.db").display())
    }

    pub async fn open(&self) -> SqliteProvider {
        self.builder().open(&self.url()).await.unwrap()
    }

    /// A connection past the store, on the same disk.
    pub fn connection(&self) -> Connection {
        let path = self.disk.directory().join("store.db");
        Connection::open(format!("file:{}?vfs={VFS_NAME}", path.display())).unwrap()
    }

    /// The content after a power cut.
    pub fn cut_power(&self, survivors: Survivors) -> Image {
        Image::of(&self.disk, survivors)
    }
}

/// The file as it is after a power cut.
pub struct Image {
    pub connection: Connection,
    _directory: TempDir,
}

impl Image {
    pub fn of(disk: &Disk, survivors: Survivors) -> Self {
        let directory = TempDir::new().unwrap();
        disk.cut_power(directory.path(), survivors).unwrap();
        let connection = Connection::open(directory.path().join("store.db")).unwrap();
        Self { connection, _directory: directory }
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.connection.query_row(sql, [], |row| row.get(0)).unwrap_or(0)
    }

    /// Finds acknowledged writes that are missing.
    pub fn missing(&self, acknowledged: &[Fact]) -> Vec<Fact> {
        let sound: String =
            self.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        acknowledged.iter().filter(|fact| !fact.holds(self)).cloned().collect()
    }
}

/// Something that the store has promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The start of an instance is queued, or was taken up.
    Started(String),
    /// So many turns of an instance are stored.
    Turns(String, i64),
    /// The result of an instance's activity is stored.
    Result(String),
}

impl Fact {
    fn holds(&self, image: &Image) -> bool {
        let count = |table: &str, condition: &str, instance: &str| {
            image.number(&format!(
                "SELECT count(*) FROM {table} WHERE instance_id = '{instance}' AND {condition}"
            ))
        };
        match self {
            Self::Started(instance) => {
                count("orchestrator_queue", "class = 'start'", instance) + count("instances", "1", instance)
                    == 1
            }
            Self::Turns(instance, turns) => count("history", "1", instance) >= *turns,
            Self::Result(instance) => {
                count("history", "1", instance) >= 1 && count("worker_queue", "1", instance) == 0
            }
        }
    }
}

/// The store refuses to go on.
#[derive(Debug)]
pub struct Refused;

/// Calls again as long as it is refused for the moment.
async fn insist<T>(mut call: impl AsyncFnMut() -> Result<T, ProviderError>) -> Result<T, Refused> {
    for _ in 0..12 {
        match call().await {
            Ok(value) => return Ok(value),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    Err(Refused)
}

const ANY_TAG: TagFilter = TagFilter::Any;

fn work_request() -> WorkRequest<'static> {
    WorkRequest { max: 1, lock_timeout: LEASE, session: None, tag_filter: &ANY_TAG }
}

fn instance_request() -> InstanceRequest<'static> {
    InstanceRequest { max: 1, lock_timeout: LEASE, filter: None }
}

/// Claims this instance. Others may be ready too, from a run that was refused; they stay leased.
async fn claim_turn(store: &SqliteProvider, instance: &str) -> Result<InstanceClaim, Refused> {
    loop {
        let claims = insist(async || store.claim_instances(&instance_request()).await).await?;
        let claim = claims.into_iter().next().expect("an instance is ready");
        if claim.instance == instance {
            return Ok(claim);
        }
    }
}

/// Claims the activity of this instance.
async fn claim_work(store: &SqliteProvider, instance: &str) -> Result<WorkClaim, Refused> {
    loop {
        let claims = insist(async || store.claim_work(&work_request()).await).await?;
        let claim = claims.into_iter().next().expect("an activity is ready");
        if is_for(&claim, instance) {
            return Ok(claim);
        }
    }
}

fn is_for(claim: &WorkClaim, wanted: &str) -> bool {
    matches!(&claim.item, WorkItem::ActivityExecute { instance, .. } if instance == wanted)
}

/// Stores a turn that appends an event; returns an activity that was claimed along with it.
async fn store_turn(
    store: &SqliteProvider,
    claim: &InstanceClaim,
    event_id: u64,
    has_activity: bool,
) -> Result<Option<WorkClaim>, Refused> {
    let activities = Vec::from_iter(has_activity.then(|| activity(&claim.instance, 2)));
    let turn = TurnToStore {
        activity_options: &[],
        lock_token: &claim.lock_token,
        execution_id: 1,
        history_delta: &[started_event(&claim.instance, event_id)],
        worker_items: &activities,
        orchestrator_items: &[],
        metadata: &metadata(),
        cancelled_activities: &[],
    };
    let stored = insist(async || store.store_turn(turn, Some(&work_request())).await).await?;
    Ok(stored.claims.into_iter().next())
}

/// Starts an instance, takes its first turn and stores the result of its activity.
async fn store_result(
    store: &SqliteProvider,
    instance: &str,
    next: Option<&InstanceRequest<'_>>,
    acknowledged: &mut Vec<Fact>,
) -> Result<StoredResult, Refused> {
    insist(async || store.enqueue_for_orchestrator(start(instance), None).await).await?;
    acknowledged.push(Fact::Started(instance.into()));

    let claim = claim_turn(store, instance).await?;
    let work = store_turn(store, &claim, 1, true).await?;
    acknowledged.push(Fact::Turns(instance.into(), 1));

    let work = match work.filter(|work| is_for(work, instance)) {
        Some(work) => work,
        None => claim_work(store, instance).await?,
    };
    insist(async || store.store_result(&work.lock_token, Some(completion(instance, 2)), next).await).await
}

/// Takes an instance from its start to its second turn, by the short path; notes the acknowledged writes.
pub async fn run_instance(
    store: &SqliteProvider,
    instance: &str,
    acknowledged: &mut Vec<Fact>,
) -> Result<(), Refused> {
    let stored = store_result(store, instance, Some(&instance_request()), acknowledged).await?;
    let claim = match stored.claims.into_iter().find(|claim| claim.instance == instance) {
        Some(claim) => claim,
        None => claim_turn(store, instance).await?,
    };
    store_turn(store, &claim, 2, false).await?;
    acknowledged.push(Fact::Turns(instance.into(), 2));
    if stored.durable.wait().await.is_ok() {
        acknowledged.push(Fact::Result(instance.into()));
    }
    Ok(())
}

/// Leaves a result to a sync of its own: no turn follows it.
pub async fn run_activity(
    store: &SqliteProvider,
    instance: &str,
    acknowledged: &mut Vec<Fact>,
) -> Result<(), Refused> {
    let stored = store_result(store, instance, None, acknowledged).await?;
    if stored.durable.wait().await.is_ok() {
        acknowledged.push(Fact::Result(instance.into()));
    }
    Ok(())
}
