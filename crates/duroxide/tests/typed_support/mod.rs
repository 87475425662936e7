//! Runs a test on every store that a program can open by its URL.

use std::future::Future;

use duroxide::{Duroxide, DuroxideBuilder};

/// Calls a test once for each store, with a builder on it.
pub async fn on_every_store<F, Fut>(test: F)
where
    F: Fn(DuroxideBuilder) -> Fut,
    Fut: Future<Output = ()>,
{
    test(Duroxide::open("memory:")).await;
    #[cfg(feature = "sqlite")]
    {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("orders.db");
        test(Duroxide::open(format!("sqlite:{}", file.display()))).await;
        assert!(file.exists(), "the file is made");
    }
}
