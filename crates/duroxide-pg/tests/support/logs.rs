//! Collects everything that this process logs, the driver's words included.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::filter::LevelFilter;

static HEARD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Ear;

impl io::Write for Ear {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        HEARD.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to collect, at the finest level.
pub fn listen() {
    static LISTENING: OnceLock<()> = OnceLock::new();
    LISTENING.get_or_init(|| {
        tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(|| Ear).init();
    });
}

/// Returns what all tests of this process have logged so far.
pub fn heard() -> String {
    String::from_utf8_lossy(&HEARD.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}
