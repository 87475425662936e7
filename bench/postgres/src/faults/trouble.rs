//! What happens to the database while the load goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};
use tokio::task::block_in_place;

use super::scene::Scene;
use crate::Outcome;

/// A fault, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing, to compare with.
    None,
    /// `CREATE INDEX` on `history`, which takes as long as on a large table, and `DROP INDEX`.
    Index,
    /// `VACUUM FULL` of the queue tables, again and again, and the lock of one that takes long.
    Vacuum,
    /// Rows of running instances, locked by somebody else.
    RowLock,
    /// A snapshot that somebody holds.
    Snapshot,
    /// The server is stopped, and started later.
    Restart,
    /// The server crashes, and its standby takes its place.
    Failover,
    /// The pooler crashes and comes back, several times.
    Pooler,
}

/// When something was wrong, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from_ms: u64,
    pub to_ms: u64,
}

const QUEUES: [&str; 3] = ["worker_queue", "orchestrator_queue", "instance_schedule"];
/// Rows that are locked at once.
const ROWS: usize = 5;

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Index,
        Self::Vacuum,
        Self::RowLock,
        Self::Snapshot,
        Self::Restart,
        Self::Failover,
        Self::Pooler,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Index => "index",
            Self::Vacuum => "vacuum",
            Self::RowLock => "row-lock",
            Self::Snapshot => "snapshot",
            Self::Restart => "restart",
            Self::Failover => "failover",
            Self::Pooler => "pooler",
        }
    }

    /// Its part of an hour, in minutes.
    pub fn minutes(self) -> f64 {
        match self {
            Self::None => 4.5,
            Self::Snapshot => 12.0,
            _ => 6.5,
        }
    }

    /// How long it lasts in a run of an hour.
    fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            // Longer than any lease.
            Self::Index => 130,
            Self::RowLock => 60,
            Self::Snapshot => 600,
            Self::Vacuum | Self::Restart => 30,
            Self::Pooler => 10,
            Self::None | Self::Failover => 0,
        })
    }

    /// Does it; `scale` is the run's part of an hour. A short run has short faults, but none below ten seconds that is
    /// longer in an hour.
    pub async fn happen(self, scene: &Scene, scale: f64) -> Outcome<Vec<Window>> {
        let least = self.lasts().min(Duration::from_secs(10));
        let lasts = self.lasts().mul_f64(scale.min(1.0)).max(least);
        // The load comes into its stride first.
        tokio::time::sleep(Duration::from_secs_f64((60.0 * scale).clamp(3.0, 60.0))).await;
        match self {
            Self::None => Ok(Vec::new()),
            Self::Index => Ok(vec![index(scene, lasts).await?]),
            Self::Vacuum => vacuum(scene, lasts).await,
            Self::RowLock => Ok(vec![row_lock(scene, lasts).await?]),
            Self::Snapshot => Ok(vec![snapshot(scene, lasts).await?]),
            Self::Restart => Ok(vec![restart(scene, lasts).await?]),
            Self::Failover => {
                let from_ms = SystemClock.now_ms();
                block_in_place(|| scene.fail_over())?;
                Ok(vec![since(from_ms)])
            }
            Self::Pooler => pooler(scene, lasts).await,
        }
    }
}

fn since(from_ms: u64) -> Window {
    Window { from_ms, to_ms: SystemClock.now_ms() }
}

async fn index(scene: &Scene, lasts: Duration) -> Outcome<Window> {
    let (sql, from_ms) = (scene.sql().await?, SystemClock.now_ms());
    sql.batch_execute("BEGIN; CREATE INDEX faults_extra ON history (created_at)").await?;
    tokio::time::sleep(lasts).await;
    sql.batch_execute("COMMIT").await?;
    sql.batch_execute("DROP INDEX faults_extra").await?;
    Ok(since(from_ms))
}

async fn vacuum(scene: &Scene, lasts: Duration) -> Outcome<Vec<Window>> {
    let (sql, mut windows) = (scene.sql().await?, Vec::new());
    for _ in 0..3 {
        for table in QUEUES {
            let from_ms = SystemClock.now_ms();
            sql.batch_execute(&format!("VACUUM FULL {table}")).await?;
            windows.push(since(from_ms));
            tokio::time::sleep(lasts / 15).await;
        }
    }
    let from_ms = SystemClock.now_ms();
    sql.batch_execute(&format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", QUEUES[0])).await?;
    tokio::time::sleep(lasts).await;
    sql.batch_execute("COMMIT").await?;
    windows.push(since(from_ms));
    Ok(windows)
}

async fn row_lock(scene: &Scene, lasts: Duration) -> Outcome<Window> {
    let (sql, from_ms) = (scene.sql().await?, SystemClock.now_ms());
    sql.batch_execute("BEGIN").await?;
    let mut locked = BTreeSet::new();
    while locked.len() < ROWS {
        // Instances end while we look, so one may be over when its row is ours.
        let running = "SELECT instance_id FROM instances WHERE instance_id IN
                (SELECT instance_id FROM executions WHERE status = 'Running' ORDER BY started_at DESC LIMIT 5)
            FOR UPDATE SKIP LOCKED";
        locked.extend(sql.query(running, &[]).await?.iter().map(|row| row.get::<_, String>(0)));
    }
    tokio::time::sleep(lasts).await;
    sql.batch_execute("COMMIT").await?;
    Ok(since(from_ms))
}

async fn snapshot(scene: &Scene, lasts: Duration) -> Outcome<Window> {
    let (sql, from_ms) = (scene.sql().await?, SystemClock.now_ms());
    sql.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM history LIMIT 1").await?;
    tokio::time::sleep(lasts).await;
    sql.batch_execute("COMMIT").await?;
    Ok(since(from_ms))
}

async fn restart(scene: &Scene, lasts: Duration) -> Outcome<Window> {
    let from_ms = SystemClock.now_ms();
    block_in_place(|| scene.primary().stop("fast"))?;
    tokio::time::sleep(lasts).await;
    block_in_place(|| scene.primary().start_again())?;
    Ok(since(from_ms))
}

async fn pooler(scene: &Scene, lasts: Duration) -> Outcome<Vec<Window>> {
    let mut windows = Vec::new();
    // At once, and after a while.
    for away in [Duration::ZERO, Duration::ZERO, lasts] {
        let from_ms = SystemClock.now_ms();
        scene.with_bouncer(|bouncer| bouncer.crash())?;
        tokio::time::sleep(away).await;
        block_in_place(|| scene.with_bouncer(|bouncer| bouncer.start_again()))?;
        windows.push(since(from_ms));
        tokio::time::sleep(lasts).await;
    }
    Ok(windows)
}
