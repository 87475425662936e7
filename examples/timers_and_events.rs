//! Whatever comes first: a message from outside, or the end of the waiting time. Messages that nobody waits for yet are
//! kept in a queue.

use std::time::Duration;

use duroxide::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Text(String),
    Stop,
}

/// Collects messages until it is told to stop, or until nothing has come for a while.
#[orchestration]
async fn collect(ctx: OrchestrationContext, quiet: Duration) -> Result<String, Failure> {
    let mut received = Vec::new();
    loop {
        select! {
            message = ctx.queue::<Message>("inbox") => match message? {
                Message::Text(text) => received.push(text),
                Message::Stop => break,
            },
            () = ctx.timer(quiet) => {
                received.push("(silence)".to_string());
                break;
            }
        }
    }
    Ok(received.join(", "))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Duroxide::open("sqlite::memory:").orchestration(collect).start().await?;
    let told = app.start(collect, "told", mins(1)).await?;
    for text in ["one", "two"] {
        told.send("inbox", &Message::Text(text.to_string())).await?;
    }
    told.send("inbox", &Message::Stop).await?;
    println!("told: {}", told.result().await?);

    let left_alone = app.start(collect, "left alone", millis(100)).await?;
    println!("left alone: {}", left_alone.result().await?);
    app.shutdown().await;
    Ok(())
}
