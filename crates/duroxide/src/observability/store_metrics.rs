//! What a store tells of itself.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const COMMIT_BATCH_SIZE: &str = "duroxide_commit_batch_size";
const COMMIT_DURATION: &str = "duroxide_commit_duration_seconds";
const RETRIES: &str = "duroxide_store_retries_total";
const CONNECTS: &str = "duroxide_store_connects_total";
const FAILED_SYNCS: &str = "duroxide_store_failed_syncs_total";
const QUARANTINED: &str = "duroxide_quarantined_total";
const CONNECTIONS: &str = "duroxide_store_connections";
const ARRIVALS: &str = "duroxide_store_arrivals_depth";
const OLDEST: &str = "duroxide_queue_oldest_age_seconds";
const DEAD_ROWS: &str = "duroxide_store_dead_rows";
const FIGURES_AGE: &str = "duroxide_store_figures_age_seconds";
const LOG_BYTES: &str = "duroxide_store_log_bytes";

/// Records what a store does, through the `metrics` facade. All metrics have the label `store`.
///
/// | metric | kind | labels | what it says | stores |
/// |---|---|---|---|---|
/// | `duroxide_commit_batch_size` | histogram | `committer` | requests that shared a commit | both |
/// | `duroxide_commit_duration_seconds` | histogram | `committer` | time from sending a commit to its answer | both |
/// | `duroxide_store_retries_total` | counter | | calls that were tried again after a failure that may pass | both |
/// | `duroxide_store_failed_syncs_total` | counter | | failures that may have been a sync | SQLite |
/// | `duroxide_quarantined_total` | counter | `queue` | rows of the `orchestrator` or `worker` queue that do not decode and were set aside | all |
/// | `duroxide_store_log_bytes` | gauge | | the size of the write-ahead log's file | SQLite |
/// | `duroxide_store_connects_total` | counter | `purpose` | connections that were made; after the start, made again | PostgreSQL |
/// | `duroxide_store_connections` | gauge | | connections that this handle has open | PostgreSQL |
/// | `duroxide_store_arrivals_depth` | gauge | | commits whose messages no claim has looked at yet, at most 10,000 | PostgreSQL |
/// | `duroxide_queue_oldest_age_seconds` | gauge | `queue` | how long the first in the `orchestrator` or `worker` queue has been ready; 0 if there is none | both |
/// | `duroxide_store_dead_rows` | gauge | `table` | rows of a queue's table that wait for vacuum, as the server estimates | PostgreSQL |
/// | `duroxide_store_figures_age_seconds` | gauge | | how old the depth of arrivals and the ages of the queues are; more while dead rows make a look take long | PostgreSQL |
///
/// `store` is `sqlite`, `postgres` or `memory`. `committer` is `synced` or `unsynced`; a commit that is not synced by itself is made
/// durable by a later one. Gauges are read by those handles only that take work, every 15 seconds at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreMetrics {
    store: &'static str,
}

impl StoreMetrics {
    /// Makes a recorder for a store of this kind.
    pub const fn new(store: &'static str) -> Self {
        Self { store }
    }

    /// Tells the installed exporter what the metrics mean. Saying it twice is harmless.
    pub fn describe(self) {
        describe_histogram!(COMMIT_BATCH_SIZE, Unit::Count, "Requests that shared a commit");
        describe_histogram!(COMMIT_DURATION, Unit::Seconds, "Time that a commit took");
        describe_counter!(RETRIES, Unit::Count, "Calls tried again after a failure that may pass");
        describe_counter!(CONNECTS, Unit::Count, "Connections made");
        describe_counter!(FAILED_SYNCS, Unit::Count, "Failures that may have been a sync");
        describe_counter!(QUARANTINED, Unit::Count, "Rows that do not decode and were set aside");
        describe_gauge!(CONNECTIONS, Unit::Count, "Connections that are open");
        describe_gauge!(ARRIVALS, Unit::Count, "Commits whose messages no claim has looked at");
        describe_gauge!(OLDEST, Unit::Seconds, "How long the first in a queue has been ready");
        describe_gauge!(DEAD_ROWS, Unit::Count, "Rows of a queue's table that wait for vacuum");
        describe_gauge!(FIGURES_AGE, Unit::Seconds, "How old the figures about the queues are");
        describe_gauge!(LOG_BYTES, Unit::Bytes, "The size of the write-ahead log's file");
    }

    /// Records a commit of so many requests.
    pub fn committed(self, is_synced: bool, requests: usize, took: Duration) {
        let committer = if is_synced { "synced" } else { "unsynced" };
        histogram!(COMMIT_BATCH_SIZE, "store" => self.store, "committer" => committer)
            .record(requests as f64);
        histogram!(COMMIT_DURATION, "store" => self.store, "committer" => committer)
            .record(took.as_secs_f64());
    }

    /// Records that a call is tried again.
    pub fn retried(self) {
        counter!(RETRIES, "store" => self.store).increment(1);
    }

    /// Records that a connection was made.
    pub fn connected(self, purpose: &'static str) {
        counter!(CONNECTS, "store" => self.store, "purpose" => purpose).increment(1);
    }

    /// Records a failure that may have been a sync.
    pub fn sync_failed(self) {
        counter!(FAILED_SYNCS, "store" => self.store).increment(1);
    }

    /// Records that a row of the `orchestrator` or `worker` queue does not decode and was set aside.
    pub fn quarantined(self, queue: &'static str) {
        counter!(QUARANTINED, "store" => self.store, "queue" => queue).increment(1);
    }

    /// Says how many connections are open.
    pub fn connections(self, connections: usize) {
        gauge!(CONNECTIONS, "store" => self.store).set(connections as f64);
    }

    /// Says how many commits wait to be looked at.
    pub fn arrivals(self, depth: u64) {
        gauge!(ARRIVALS, "store" => self.store).set(depth as f64);
    }

    /// Says how long the first in the `orchestrator` or `worker` queue has been ready.
    pub fn oldest(self, queue: &'static str, age: Duration) {
        gauge!(OLDEST, "store" => self.store, "queue" => queue).set(age.as_secs_f64());
    }

    /// Says how many rows of a table wait for vacuum.
    pub fn dead_rows(self, table: String, rows: u64) {
        gauge!(DEAD_ROWS, "store" => self.store, "table" => table).set(rows as f64);
    }

    /// Says how old the depth of arrivals and the ages of the queues are.
    pub fn figures_age(self, age: Duration) {
        gauge!(FIGURES_AGE, "store" => self.store).set(age.as_secs_f64());
    }

    /// Says how large the log's file is.
    pub fn log_bytes(self, bytes: u64) {
        gauge!(LOG_BYTES, "store" => self.store).set(bytes as f64);
    }
}
