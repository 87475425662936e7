//! An orchestration that never needs a long history: after each batch it begins again with what it has so far. Messages
//! that it has not read yet come along.

use duroxide::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Account {
    balance: i64,
    bookings: u32,
}

#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Booking(i64),
    Close,
}

const BATCH: u32 = 10;

/// Takes bookings from its queue until it is told to close the account.
#[orchestration]
async fn keep_account(ctx: OrchestrationContext, mut account: Account) -> Result<i64, Failure> {
    for _ in 0..BATCH {
        match ctx.queue::<Message>("messages").await? {
            Message::Close => return Ok(account.balance),
            Message::Booking(amount) => account.balance += amount,
        }
        account.bookings += 1;
    }
    ctx.set_status(&account);
    keep_account(&ctx, account).continue_as_new().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Duroxide::open("sqlite::memory:").orchestration(keep_account).start().await?;
    let savings = app.start(keep_account, "savings", Account::default()).await?;
    for amount in 1..=35 {
        savings.send("messages", &Message::Booking(amount)).await?;
    }
    savings.send("messages", &Message::Close).await?;
    let balance = savings.result().await?;
    let executions = app.list_executions("savings").await?.len();
    println!("balance {balance} after 35 bookings in {executions} executions");
    app.shutdown().await;
    Ok(())
}
