//! Requests and replies over PostgreSQL: the client and the runtime have a store handle each, as two processes have.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::future::IntoFuture;
use std::sync::Arc;

use duroxide::client::{AskError, SendError};
use duroxide::{ActivityRegistry, Client, OrchestrationContext, OrchestrationRegistry, Request, Runtime};
use duroxide_pg::PostgresProvider;
use serde::{Deserialize, Serialize};
use support::database::Database;

/// Takes money out of an account; the reply is what is left.
#[derive(Serialize, Deserialize)]
struct Withdraw {
    cents: u64,
}

impl Request for Withdraw {
    const NAME: &'static str = "withdraw";
    type Reply = u64;
}

/// An account that takes three withdrawals, each in an execution of its own.
async fn account(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let cents: u64 = input.parse().map_err(|_| "no number".to_string())?;
    let request = ctx.request::<Withdraw>().await;
    let left = cents - request.cents;
    request.reply(left);
    match ctx.execution_id() {
        3 => Ok(left.to_string()),
        _ => ctx.continue_as_new(left.to_string()).await,
    }
}

#[tokio::test]
async fn requests_of_one_id_are_handled_once_and_answers_outlive_executions_and_the_instance() {
    let home = Database::new().await;
    let working = Arc::new(PostgresProvider::new(home.url()).await.unwrap());
    let client = Client::new(Arc::new(PostgresProvider::new(home.url()).await.unwrap()));
    let orchestrations = OrchestrationRegistry::builder().register("Account", account).build();
    let runtime =
        Runtime::start_with_store(working, ActivityRegistry::builder().build(), orchestrations).await;

    let ask = |id: &str, cents: u64| client.ask("a-1", Withdraw { cents }).id(id).into_future();
    assert!(matches!(ask("w-1", 10).await, Err(AskError::NotFound { .. })));
    assert!(matches!(client.send("a-1", "q", &1).await, Err(SendError::NotFound { .. })));
    client.start_orchestration("a-1", "Account", "100").await.unwrap();
    let (first, again) = tokio::join!(ask("w-1", 10), ask("w-1", 10));
    assert_eq!((first.unwrap(), again.unwrap()), (90, 90));
    assert_eq!(ask("w-2", 20).await.unwrap(), 70);
    assert_eq!(ask("w-1", 10).await.unwrap(), 90, "of an execution before");
    assert_eq!(ask("w-3", 30).await.unwrap(), 40, "in its last turn");
    assert_eq!(ask("w-2", 20).await.unwrap(), 70, "after its end");
    assert!(matches!(ask("w-4", 1).await, Err(AskError::Ended { .. })));
    assert!(matches!(client.send("a-1", "q", &1).await, Err(SendError::Ended { .. })));
    assert!(client.get_kv_all_values("a-1").await.unwrap().is_empty());
    runtime.shutdown(None).await;
}
