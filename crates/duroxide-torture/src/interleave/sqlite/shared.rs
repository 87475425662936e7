//! Stands in for what the writer and the callers of a store share.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::Durability;
use super::connection::Connection;
use super::owners::Owners;
use super::work_done::Ledger;
use super::write_transaction::Effects;
use crate::interleave::sync::Arc;

pub struct Shared {
    pub is_file: bool,
    pub durability: Durability,
    pub busy_timeout: Duration,
    pub takes_work: AtomicBool,
    pub(super) owners: Option<Arc<Owners>>,
    pub(super) ledger: Ledger,
}

impl Shared {
    pub const METRICS: Metrics = Metrics;

    pub fn new(is_file: bool) -> Self {
        Self {
            is_file,
            durability: Durability::Full,
            busy_timeout: Duration::ZERO,
            takes_work: AtomicBool::new(false),
            owners: None,
            ledger: Ledger,
        }
    }

    pub fn now_ms(&self) -> i64 {
        0
    }

    pub fn announce(&self, _: Effects, _: &Connection) {}

    pub fn announce_due_times(&self, _: &Connection) {}

    pub fn announce_everything(&self) {}
}

pub struct Metrics;

impl Metrics {
    pub fn describe(&self) {}

    pub fn committed(&self, _: bool, _: usize, _: Duration) {}

    pub fn retried(&self) {}

    pub fn log_bytes(&self, _: u64) {}
}
