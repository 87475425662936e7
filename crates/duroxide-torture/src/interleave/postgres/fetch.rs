//! Stands in for what a claim fetched: leases, which go back unless somebody takes them.

use crate::interleave::is_twin;
use crate::interleave::providers::WorkSignalSource;
use crate::interleave::sync::{Arc, Mutex};

pub struct InstanceOrder;

/// Messages that nobody has leased.
pub struct Ready {
    messages: Mutex<Vec<u64>>,
    pub signal: WorkSignalSource,
}

impl Ready {
    pub fn new(signal: WorkSignalSource) -> Self {
        Self { messages: Mutex::default(), signal }
    }

    pub fn add(&self, message: u64) {
        self.messages.lock().unwrap().push(message);
        self.signal.notify();
    }

    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.messages.lock().unwrap())
    }
}

pub struct Fetched {
    message: Option<u64>,
    ready: Arc<Ready>,
}

impl Fetched {
    pub fn new(message: u64, ready: Arc<Ready>) -> Self {
        Self { message: Some(message), ready }
    }

    pub fn take(mut self) -> Option<u64> {
        self.message.take()
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if let Some(message) = self.message.take()
            && !is_twin("keeps-untaken-leases")
        {
            self.ready.add(message);
        }
    }
}
