//! Connections that only read, so that a read never waits for a write.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::SqliteError;
use super::connection::{open_copier, open_reader};
use super::disk::Disk;
use super::error::StoreError;

/// The most connections; further readers wait for a free one.
const CONNECTIONS: usize = 4;

/// A small pool. It opens connections when they are first needed.
#[derive(Clone)]
pub(super) struct Readers(Arc<Pool>);

struct Pool {
    path: PathBuf,
    busy_timeout: Duration,
    disk: Disk,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, busy_timeout: Duration, disk: Disk) -> Self {
        let pool = Pool {
            path,
            busy_timeout,
            disk,
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
            idle: Mutex::default(),
        };
        Self(Arc::new(pool))
    }

    /// The file that is read.
    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Opens a connection beside the pool, for a read that takes long and makes its own transactions.
    pub(super) fn open_apart(&self) -> Result<Connection, SqliteError> {
        open_copier(&self.0.path, self.0.busy_timeout, &self.0.disk)
    }

    /// Runs `read` on a connection of its own, in one snapshot.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.0.permits.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let pool = self.0.clone();
        // SQLite blocks its thread; the executor has threads for that.
        let task = tokio::task::spawn_blocking(move || {
            // Held until the connection is back, even if the caller drops the future meanwhile.
            let _permit = permit;
            let connection = pool.take()?;
            let result = in_snapshot(&connection, read);
            // A connection that could not end its transaction would fail all later reads.
            if connection.is_autocommit() {
                pool.put_back(connection);
            }
            result
        });
        task.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Pool {
    fn take(&self) -> Result<Connection, StoreError> {
        if let Some(connection) = self.lock().pop() {
            return Ok(connection);
        }
        open_reader(&self.path, self.busy_timeout, &self.disk).map_err(|error| match error {
            SqliteError::Sqlite { source, .. } => StoreError::Sqlite(source),
            other => {
                StoreError::Refused(crate::providers::ProviderError::retryable("read", other.to_string()))
            }
        })
    }

    fn put_back(&self, connection: Connection) {
        self.lock().push(connection);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        // Connections are only moved in and out under the lock, so a panic elsewhere does not spoil it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs several statements of one read in one snapshot, so that they see the same state.
fn in_snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let result = read(connection);
    // A read transaction has nothing to lose; if even ending it fails, the connection is closed.
    let ended = connection.prepare_cached("COMMIT").and_then(|mut statement| statement.execute([]));
    match (result, ended) {
        (Ok(value), Ok(_)) => Ok(value),
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(error), _) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_read_whose_caller_went_away_counts_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n);")
            .unwrap();
        let readers = Readers::new(path, Duration::ZERO, None);

        let mut ends = Vec::new();
        for _ in 0..CONNECTIONS {
            let ((tell, started), (end, ended)) = (tokio::sync::oneshot::channel(), mpsc::channel::<()>());
            let read = readers.read(move |_| {
                let _ = tell.send(());
                let _ = ended.recv();
                Ok(())
            });
            // The caller drops the future as soon as its read has begun.
            tokio::select! { _ = read => {}, _ = started => {} }
            ends.push(end);
        }
        assert_eq!(readers.0.permits.available_permits(), 0, "all connections are in use");

        drop(ends);
        for _ in 0..2 * CONNECTIONS {
            readers.read(|_| Ok(())).await.unwrap();
        }
        let all = readers.0.permits.acquire_many(CONNECTIONS as u32).await.unwrap();
        assert!(readers.0.lock().len() <= CONNECTIONS, "no more were opened");
        drop(all);
    }
}
