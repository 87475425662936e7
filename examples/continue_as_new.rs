//! An orchestration that never needs a long history: after each batch it begins again with what it has so far. Messages
//! that it has not read yet come along.

use std::sync::Arc;
use std::time::Duration;

use duroxide::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Default)]
struct Account {
    balance: i64,
    bookings: u32,
}

const BATCH: u32 = 10;

/// Takes bookings from its queue; an empty one closes the account.
async fn account(ctx: OrchestrationContext, mut account: Account) -> Result<i64, String> {
    for _ in 0..BATCH {
        let booking = ctx.dequeue_event("bookings").await;
        if booking.is_empty() {
            return Ok(account.balance);
        }
        account.balance += booking.parse::<i64>().map_err(|error| error.to_string())?;
        account.bookings += 1;
    }
    ctx.set_custom_status(format!("{} bookings", account.bookings));
    ctx.continue_as_new_typed(&account).await?;
    Ok(account.balance)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteProvider::new_in_memory().await?);
    let orchestrations =
        OrchestrationRegistry::builder().register_typed("Account", account).build_result()?;
    let runtime =
        Runtime::start_with_store(store.clone(), ActivityRegistry::builder().build(), orchestrations).await;

    let client = Client::new(store);
    client.start_orchestration_typed("savings", "Account", Account::default()).await?;
    for booking in 1..=35 {
        client.enqueue_event("savings", "bookings", booking.to_string()).await?;
    }
    client.enqueue_event("savings", "bookings", "").await?;
    let balance = client.wait_for_orchestration_typed::<i64>("savings", Duration::from_secs(30)).await??;
    let executions = client.list_executions("savings").await?.len();
    println!("balance {balance} after 35 bookings in {executions} executions");
    runtime.shutdown(None).await;
    Ok(())
}
