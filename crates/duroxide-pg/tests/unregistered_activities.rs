//! An activity that nobody has registered, on PostgreSQL: the test of the other stores.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::sync::Arc;

use duroxide_pg::PostgresProvider;
use support::database::Database;

#[path = "../../duroxide/tests/runtime_support/unregistered_activities.rs"]
mod shared;

// semantics: BLOCK-3
#[tokio::test]
async fn an_activity_that_nobody_has_registered_is_found_among_the_blocked() {
    let home = Database::new().await;
    shared::shown_blocked(Arc::new(PostgresProvider::new(home.url()).await.unwrap())).await;
}
