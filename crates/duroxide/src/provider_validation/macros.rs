//! Turns the kit into tests.

use std::future::Future;

/// Runs one check to its end, on a runtime of its own with several threads.
#[doc(hidden)]
pub fn run_check(check: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a check needs a tokio runtime")
        .block_on(check);
}
